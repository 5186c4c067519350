"""What the command line shows: answers on stdout, everything else on stderr.

With ``--json`` stdout holds one JSON object and nothing else, whatever a library prints meanwhile. Progress is one
line that is written over on a terminal; into a file or a pipe it is a plain line every ten seconds.
"""

from __future__ import annotations

import json
import logging
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from types import TracebackType
from typing import Any, Self, TextIO

from sbert_app.formats import format_estimate, json_values

BEGIN_LINE = "\r\033[K"  # to the first column, and clear what stands there
TELL_SECONDS = {True: 0.1, False: 10.0}  # between two updates: on a terminal, elsewhere
BAR_WIDTHS = (8, 24)  # narrower than that, there is no bar


@contextmanager
def stoppable() -> Iterator[Callable[[], bool]]:
    """Whether somebody pressed Ctrl-C, or the system asked us to end. The second time ends at once."""
    asked: list[int] = []

    def note(number: int, _: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def answer(value: Mapping[str, Any], as_json: bool, text: str) -> None:
    """Print the result: ``value`` as one line of JSON, or ``text`` for people. NaN becomes null."""
    print(json.dumps(json_values(value), allow_nan=False) if as_json else text)


@contextmanager
def clean_stdout() -> Iterator[None]:
    """What is printed inside the block goes to stderr, so that stdout holds the answer alone."""
    with redirect_stdout(sys.stderr):
        yield


class Bar:
    """Progress on stderr: how much, how fast, how long still. Call it with (done, in all if known).

    with Bar("encoding", "sentences") as bar:
        encoder.encode(sentences, on_progress=bar)
    """

    _shown: Bar | None = None  # the one on the terminal now, for log lines to step aside

    def __init__(self, what: str, unit: str, stream: TextIO | None = None) -> None:
        self.what = what
        self.unit = unit
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()
        self.begun: tuple[float, float] | None = None  # when it was first called, and what was done by then
        self.told = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def __call__(self, done: float, total: float | None = None) -> None:
        """Show it, unless the last time is not long ago."""
        now = time.monotonic()
        if self.begun is None:
            self.begun, self.told = (now, done), now
        if now - self.told < TELL_SECONDS[self.live]:
            return
        self.told = now
        columns = shutil.get_terminal_size().columns - 1 if self.live else 120
        line = self.line(done, total, (done - self.begun[1]) / (now - self.begun[0]), columns)
        if not self.live:
            print(line, file=self.stream, flush=True)
            return
        Bar._shown = self
        self.stream.write(BEGIN_LINE + line)
        self.stream.flush()

    def line(self, done: float, total: float | None, rate: float, columns: int) -> str:
        """What, bar, count, rate, time left; the bar takes the room that the words leave."""
        words = [self.what, f"{done:,.0f}{f' of {total:,.0f}' if total else ''} {self.unit}", f"{rate:,.1f}/s"]
        if not total:
            return "  ".join(words)[:columns]
        share = min(1.0, done / total)
        words.insert(1, f"{share:.0%}")
        if rate > 0:
            words.append(f"{format_estimate(max(0.0, total - done) / rate)} left")
        room = min(columns - len("  ".join(words)) - len("  []"), BAR_WIDTHS[1])
        if room >= BAR_WIDTHS[0]:
            filled = round(share * room)
            words.insert(1, f"[{'#' * filled}{'.' * (room - filled)}]")
        return "  ".join(words)[:columns]

    def clear(self) -> None:
        """Take the line away."""
        if Bar._shown is self:
            Bar._shown = None
            self.stream.write(BEGIN_LINE)
            self.stream.flush()


class StderrHandler(logging.Handler):
    """Log lines on stderr, above the bar."""

    def emit(self, record: logging.LogRecord) -> None:
        """One record, as it reads."""
        if Bar._shown is not None:
            Bar._shown.clear()
        print(self.format(record), file=sys.stderr, flush=True)
