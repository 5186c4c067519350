"""Work that people watch: it runs in a thread, says how far it is, and stops when its owner asks.

    for event in watched.run(owner, "Drawing the map", lambda tell, stop: project(…, tell, stop)):
        if isinstance(event, Done): use(event.value)
        else: show(event)                             # a Step: what is being done, and how much of it is

An owner (a browser session and what it is about) has one piece of work at a time: the next one stops the last.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from training.errors import Stopped

POLL_SECONDS = 0.25

ReportProgress = Callable[..., None]  # tell(share) or tell(share, "now this")
ShouldStop = Callable[[], bool]


@dataclass(frozen=True)
class TaskProgress:
    """How far the work is."""

    words: str
    share: float  # of these words' part, 0–1
    seconds: float  # since this part began

    @property
    def seconds_left(self) -> float | None:
        """None as long as it is too early to tell."""
        return self.seconds / self.share * (1 - self.share) if self.share > 0.02 and self.seconds > 0.5 else None


@dataclass(frozen=True)
class TaskResult:
    """The work's result."""

    value: Any
    seconds: float


class TaskRunner:
    """Thread-safe."""

    def __init__(self) -> None:
        self._stops: dict[str, threading.Event] = {}

    def run(
        self, owner: str, words: str, work: Callable[[ReportProgress, ShouldStop], Any]
    ) -> Iterator[TaskProgress | TaskResult]:
        """Do ``work(tell, should_stop)`` in a thread: ``TaskProgress`` a few times a second, then ``TaskResult``.

        Raises:
            Stopped: the owner pressed Stop.
            Exception: whatever ``work`` raised.
        """
        self.stop(owner)
        stop = self._stops[owner] = threading.Event()
        gauge = _Gauge(words)
        ended: queue.SimpleQueue[TaskResult | BaseException] = queue.SimpleQueue()

        def body() -> None:
            started = time.perf_counter()
            try:
                value = work(gauge.tell, stop.is_set)
            except BaseException as error:  # noqa: BLE001 - it is raised again in the thread that waits for it
                ended.put(error)
            else:
                ended.put(TaskResult(value, time.perf_counter() - started))

        threading.Thread(target=body, name=words, daemon=True).start()
        try:
            yield from _until_done(ended, gauge, stop)
        finally:
            stop.set()  # also when the reader goes away
            if self._stops.get(owner) is stop:
                del self._stops[owner]

    def stop(self, owner: str) -> None:
        """Let the owner's work come to an end."""
        if (stop := self._stops.get(owner)) is not None:
            stop.set()

    def forget(self, session: str) -> None:
        """The person has left: all work of theirs stops."""
        for owner in [owner for owner in list(self._stops) if owner.startswith(session)]:
            self.stop(owner)


class _Gauge:
    def __init__(self, words: str) -> None:
        self.now = (words, 0.0, time.perf_counter())

    def tell(self, share: float, words: str | None = None) -> None:
        was, _, since = self.now
        fresh = words is not None and words != was
        self.now = (words or was, min(share, 1.0), time.perf_counter() if fresh else since)

    def step(self) -> TaskProgress:
        words, share, since = self.now
        return TaskProgress(words, share, time.perf_counter() - since)


def _until_done(
    ended: queue.SimpleQueue[TaskResult | BaseException], gauge: _Gauge, stop: threading.Event
) -> Iterator[TaskProgress | TaskResult]:
    said = None
    while True:
        try:
            outcome = ended.get(timeout=POLL_SECONDS)
        except queue.Empty:
            if stop.is_set():
                raise Stopped from None  # the work ends by itself at its next look
            step = gauge.step()
            if step != said:
                yield step
            said = step
            continue
        if isinstance(outcome, BaseException):
            raise outcome
        yield outcome
        return
