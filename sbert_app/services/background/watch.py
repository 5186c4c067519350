"""Watch: what long work reports its progress to, and asks whether it shall stop. One argument of every long function,
which raises Stopped when it says so.

    def cluster(embedded, settings, watch: Watch = UNWATCHED):
        with_model = watch.stage("Encoding")  # reports from now on under this description
        vectors = encoder.encode(sentences, on_progress=with_model.on_progress, should_stop=watch.should_stop)
        for done, block in enumerate(blocks):
            watch.check()  # raises Stopped
            watch.report(done, "Joining", len(blocks))

The core knows no `Watch`: its functions take ``on_progress`` and ``should_stop``, which a watch has as methods. The
command line makes one of its progress bar: ``Watch.of(bar, should_stop)``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from training.errors import Stopped

POLL_SECONDS = 0.2  # between two questions whether to stop, while waiting for a lock


class Report(Protocol):
    """Receives progress; cheap enough to be called at every step."""

    def __call__(self, done: float, description: str | None = None, total: float = 1.0, /) -> None:
        """``done`` of ``total``; a new ``description`` begins a new stage, with its own rate and time left."""


def _ignore(done: float, description: str | None = None, total: float = 1.0, /) -> None:
    pass


def _never() -> bool:
    return False


@dataclass(frozen=True)
class Watch:
    """Where progress goes, and whether to stop. Immutable; `stage` and `part` return others."""

    report: Report = _ignore
    should_stop: Callable[[], bool] = _never  # whether somebody has asked the work to stop

    @classmethod
    def of(
        cls, on_progress: Callable[[float, float], object] | None = None, should_stop: Callable[[], bool] = _never
    ) -> Watch:
        """One whose progress goes to a callback of (done, total), such as the progress bar of a terminal."""

        def report(done: float, description: str | None = None, total: float = 1.0, /) -> None:
            if on_progress is not None:
                on_progress(done, total)

        return cls(report, should_stop)

    def check(self) -> None:
        """Raise Stopped if the work shall stop."""
        if self.should_stop():
            raise Stopped

    @contextmanager
    def holding(self, lock: threading.Lock | threading.Semaphore) -> Iterator[None]:
        """Hold a lock meanwhile. Raises Stopped while waiting for it if the work shall stop."""
        while not lock.acquire(timeout=POLL_SECONDS):
            self.check()
        try:
            yield
        finally:
            lock.release()

    def on_progress(self, done: float, total: float | None = None) -> None:
        """The progress callback of the core's functions; ``total`` is None while it is not known."""
        self.report(done, None, total or max(done, 1))

    def stage(self, description: str) -> Watch:
        """Begin a stage -> one whose reports are of it, also after a download has reported in between."""

        def report(done: float, text: str | None = None, total: float = 1.0, /) -> None:
            self.report(done, text or description, total)

        self.report(0, description)
        return replace(self, report=report)

    def part(self, start: float, stop: float) -> Watch:
        """One whose 0 to 1 is this range of the whole."""

        def report(done: float, description: str | None = None, total: float = 1.0, /) -> None:
            self.report(start + (stop - start) * (done / total if total else 0.0), description)

        return replace(self, report=report)


UNWATCHED = Watch()


class State(StrEnum):
    OPENED = "opened"  # a file that nobody has asked to be scored yet
    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"


AT_WORK = frozenset({State.QUEUED, State.RUNNING})
RESUMABLE = frozenset({State.INTERRUPTED, State.FAILED, State.STOPPED})
