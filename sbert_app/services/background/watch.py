"""Watch, the argument through which every long function reports its progress and is stopped; and the states of work.

    def cluster(embedded, settings, watch: Watch = UNWATCHED):
        encoding = watch.stage("Encoding")  # reports under this description
        vectors = encoder.encode(sentences, on_progress=encoding.on_progress, should_stop=watch.should_stop)
        for done, block in enumerate(blocks):
            watch.check()  # raises StoppedError
            watch.report(done, "Joining", len(blocks))

The functions of `training` take ``on_progress`` and ``should_stop``, which are methods of a watch.
The command line creates a watch from its progress bar: ``Watch.of(bar, should_stop)``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from training.errors import StoppedError

POLL_SECONDS = 0.2


class Report(Protocol):
    """A function that receives progress. It is cheap enough to be called at every step."""

    def __call__(self, done: float, description: str | None = None, total: float = 1.0, /) -> None:
        """Reports ``done`` of ``total``. A new ``description`` starts a stage with its own rate and remaining time."""


def _ignore(done: float, description: str | None = None, total: float = 1.0, /) -> None:
    pass


def _never() -> bool:
    return False


@dataclass(frozen=True)
class Watch:
    """Receives progress and says whether to stop. Immutable; `stage` and `part` return new watches."""

    report: Report = _ignore
    should_stop: Callable[[], bool] = _never

    @classmethod
    def of(
        cls, on_progress: Callable[[float, float], object], should_stop: Callable[[], bool] = _never
    ) -> Watch:
        """A watch that reports to a callback of (done, total), such as the progress bar of a terminal."""

        def report(done: float, description: str | None = None, total: float = 1.0, /) -> None:
            on_progress(done, total)

        return cls(report, should_stop)

    def check(self) -> None:
        """Raises StoppedError if the work should stop."""
        if self.should_stop():
            raise StoppedError

    @contextmanager
    def holding(self, lock: threading.Lock | threading.Semaphore) -> Iterator[None]:
        """Holds a lock in the block. Raises StoppedError if the work should stop while it waits for the lock."""
        while not lock.acquire(timeout=POLL_SECONDS):
            self.check()
        try:
            yield
        finally:
            lock.release()

    def on_progress(self, done: float, total: float | None = None) -> None:
        """Reports progress, as a callback of the functions of `training`.

        ``total`` is None while it is unknown; ``done`` is then reported as the total, too.
        """
        self.report(done, None, total or max(done, 1))

    def stage(self, description: str) -> Watch:
        """Starts a stage, and returns a watch whose reports without a description have the stage's.

        So the description of the stage comes back after a download, which reports its own.
        """

        def report(done: float, text: str | None = None, total: float = 1.0, /) -> None:
            self.report(done, text or description, total)

        self.report(0, description)
        return replace(self, report=report)

    def part(self, start: float, stop: float) -> Watch:
        """A watch whose progress from 0 to 1 becomes the range from ``start`` to ``stop`` of this watch."""

        def report(done: float, description: str | None = None, total: float = 1.0, /) -> None:
            fraction = done / total if total else 0.0
            self.report(start + (stop - start) * fraction, description)

        return replace(self, report=report)


UNWATCHED = Watch()


class State(StrEnum):
    """The state of long work: a run, a file that is scored, a cell of an experiment.

    queued -> running -> finished | failed | stopped | interrupted (its process ended; it can be
    started again)

    Members equal their words in records on disk, on pages and in the API. Only files are "opened":
    they were not scored yet.
    """

    OPENED = "opened"
    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"


AT_WORK = frozenset({State.QUEUED, State.RUNNING})
RESUMABLE = frozenset({State.INTERRUPTED, State.FAILED, State.STOPPED})
