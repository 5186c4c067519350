"""Output of the command line: results on stdout, everything else on stderr.

With ``--json`` stdout has one JSON object and nothing else, whatever a library prints. On a
terminal, progress is a bar in one line, which is removed at the end. In a file or a pipe, it is a
plain line every ten seconds.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from types import FrameType
from typing import TYPE_CHECKING, Any, Self, TextIO

from sbert_app.formats import format_estimate, json_values
from sbert_app.process import interrupt, is_interrupted, on_ending_signal

if TYPE_CHECKING:
    from rich.progress import Progress

# Seconds between two updates of the bar on a terminal, and between two lines elsewhere.
BAR_SECONDS = 0.1
LINE_SECONDS = 10.0
# A narrower terminal shows only the figures.
MIN_COLUMNS_FOR_BAR = 80


@contextmanager
def stop_on_signal(at_once: Callable[[], bool] = lambda: False) -> Iterator[Callable[[], bool]]:
    """Yields a function that says whether a signal to end has come, such as Ctrl-C.

    The second signal interrupts the block at once. The first one does so only while ``at_once()`` is
    true, when nothing would be lost.
    """
    has_come = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal has_come
        if has_come or at_once():
            interrupt(number, frame)
        has_come = True

    with on_ending_signal(handle):
        yield lambda: has_come


def print_result(value: Mapping[str, Any], as_json: bool, text: str) -> None:
    """Prints ``value`` as one line of JSON (NaN as null), or ``text`` for people."""
    if as_json:
        text = json.dumps(json_values(value), allow_nan=False)
    print(text)


@contextmanager
def clean_stdout() -> Iterator[None]:
    """Redirects what is printed inside the block to stderr, so that stdout has only the result."""
    with redirect_stdout(sys.stderr):
        yield


class ProgressBar:
    """Progress on stderr: the share, the rate and the time left. It is called with (done, total if known).

    with ProgressBar("encoding", "sentences") as bar:
        encoder.encode(sentences, on_progress=bar)
    """

    # The bar on the terminal, above which log lines are printed.
    active: Progress | None = None
    # --no-progress and --quiet turn progress off for the whole command line.
    is_wanted = True

    def __init__(self, description: str, unit: str = "", stream: TextIO | None = None) -> None:
        """Creates a bar. Without a ``unit``, it shows only the share that is done."""
        self.description = description
        self.unit = unit
        self.stream = stream or sys.stderr
        can_redraw = os.environ.get("TERM") not in ("dumb", "unknown")
        self.is_terminal = can_redraw and self.stream.isatty()
        # The time of the first call, and its progress.
        self._start: tuple[float, float] | None = None
        self._last_update = 0.0
        self._progress: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._progress is not None:
            ProgressBar.active = None
            self._progress.stop()
            self._progress = None

    def __call__(self, done: float, total: float | None = None) -> None:
        """Shows the progress, unless the last update was a moment ago.

        Raises KeyboardInterrupt if the command has to end.
        """
        if is_interrupted.is_set():
            raise KeyboardInterrupt
        if not ProgressBar.is_wanted:
            return
        now = time.monotonic()
        if self._start is None:
            # The first call shows nothing, so ``now - began`` below is above 0.
            self._start = (now, done)
            self._last_update = now
        interval = BAR_SECONDS if self.is_terminal else LINE_SECONDS
        if now - self._last_update < interval:
            return
        self._last_update = now
        began, done_before = self._start
        figures = self._figures(done, total, (done - done_before) / (now - began))
        if not self.is_terminal:
            print(f"{self.description}  {figures}", file=self.stream, flush=True)
            return
        progress = self._open()
        [task] = progress.task_ids
        progress.update(
            task, description=self.description, completed=done, total=total, figures=figures
        )
        progress.refresh()

    def stage(self, done: float, description: str | None = None, total: float = 1.0, /) -> None:
        """Shows work in stages, with the arguments of `Watch.report`. A new description begins a stage."""
        if description is not None and description != self.description:
            self.description = description
            self._start = None
        # A total of 0 would count as unknown.
        self(done, total or 1.0)

    def _open(self) -> Progress:
        """Returns the bar on the terminal, which appears at the first update."""
        if self._progress is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn

            console = Console(file=self.stream, force_terminal=True)
            columns: list[ProgressColumn] = [TextColumn("{task.description}", markup=False)]
            if console.width >= MIN_COLUMNS_FOR_BAR:
                columns.append(BarColumn(24))
            columns.append(TextColumn("{task.fields[figures]}", markup=False))
            self._progress = Progress(
                *columns,
                console=console,
                transient=True,
                auto_refresh=False,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._progress.add_task(self.description, figures="")
            self._progress.start()
            # A process that is killed must not leave the cursor hidden.
            console.show_cursor()
            ProgressBar.active = self._progress
        return self._progress

    def _figures(self, done: float, total: float | None, rate: float) -> str:
        """Percentage, count, rate and time left."""
        if not total:
            return f"{done:,.0f} {self.unit}  {rate:,.1f}/s"
        figures = f"{min(1.0, done / total):.0%}"
        if self.unit:
            figures += f"  {done:,.0f} of {total:,.0f} {self.unit}  {rate:,.1f}/s"
        if rate > 0:
            figures += f"  {format_estimate(max(0.0, total - done) / rate)} left"
        return figures


class StderrHandler(logging.Handler):
    """Log lines on stderr, above the progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        if ProgressBar.active is not None:
            ProgressBar.active.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, file=sys.stderr, flush=True)
