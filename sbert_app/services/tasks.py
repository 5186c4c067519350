"""Cancellable work in a thread, with its progress: a file being scored, a map being computed.

    for event in tasks.run(owner, "Computing the map", lambda report_progress, should_stop: project(...)):
        if isinstance(event, TaskResult):
            use(event.value)
        else:
            show(event)  # a TaskProgress: what is being done, how much of it, the time that is left

An owner, such as a browser session and the name of a tab, has one task at a time: a new one stops the one before.
What a task downloads is a stage of it, in megabytes, and ends when the task is stopped.
"""

from __future__ import annotations

import atexit
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from training.errors import Stopped
from training.sources.progress import listening

POLL_SECONDS = 0.25  # between two progress events
CLOSE_SECONDS = 5.0  # that tasks have to end when the process does
MIN_FRACTION, MIN_SECONDS = 0.02, 0.5  # done, before the time left is estimated

ShouldStop = Callable[[], bool]


class ReportProgress(Protocol):
    """How a task reports progress; cheap enough to be called at every step."""

    def __call__(self, done: float, description: str | None = None, total: float = 1.0, /) -> None:
        """``done`` of ``total``; a new ``description`` begins a new stage, with its own rate and time left."""


class Superseded(Stopped):
    """The owner began another task."""


@dataclass(frozen=True)
class TaskProgress:
    """How far a stage of a task is."""

    description: str  # what is being done
    done: float
    total: float
    seconds: float  # since this stage began

    @property
    def fraction(self) -> float:
        """0 to 1."""
        return min(1.0, self.done / self.total) if self.total > 0 else 0.0

    @property
    def rate(self) -> float:
        """Done per second, on average over the stage."""
        return self.done / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """None as long as it is too early to estimate."""
        if self.fraction <= MIN_FRACTION or self.seconds <= MIN_SECONDS:
            return None
        return max(0.0, self.total - self.done) / self.rate


@dataclass(frozen=True)
class TaskResult:
    """What a task returned."""

    value: Any
    seconds: float


class TaskRunner:
    """Runs tasks, one for each owner. Thread-safe."""

    def __init__(self) -> None:
        self._stop_events: dict[str, threading.Event] = {}
        self._threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        atexit.register(self.close)

    def close(self) -> None:
        """Stop all tasks and wait a while for them to end, so that they remove what is half-written."""
        for stop in list(self._stop_events.values()):
            stop.set()
        deadline = time.monotonic() + CLOSE_SECONDS
        for thread in list(self._threads):
            thread.join(max(0.0, deadline - time.monotonic()))

    def run(
        self,
        owner: str,
        description: str,
        work: Callable[[ReportProgress, ShouldStop], Any],
        keeps_partial_result: bool = False,
    ) -> Iterator[TaskProgress | TaskResult]:
        """Run ``work(report_progress, should_stop)`` in a thread.

        Yields a `TaskProgress` a few times a second when there is something new, at last the `TaskResult`. Closing
        the iterator stops the task.

        Args:
            owner: who the task belongs to.
            description: what is being done, until ``work`` reports another description.
            work: has to return or raise `Stopped` soon after ``should_stop()`` is true.
            keeps_partial_result: after `stop`, wait for what ``work`` returns, and yield it. Otherwise raise
                `Stopped` at once and leave the thread to end by itself.

        Raises:
            Stopped: `stop` was called; its subclass Superseded: a new task of the owner began.
            Exception: whatever ``work`` raised.
        """
        self.stop(owner)
        stop = self._stop_events[owner] = threading.Event()
        stage = _Stage(description)
        outcomes: queue.SimpleQueue[TaskResult | BaseException] = queue.SimpleQueue()

        def target() -> None:
            started = time.perf_counter()
            try:
                with listening(stage.report_download, stop.is_set):
                    value = work(stage.report, stop.is_set)
            except BaseException as error:  # noqa: BLE001 - raised again in the thread that iterates
                outcomes.put(error)
            else:
                outcomes.put(TaskResult(value, time.perf_counter() - started))

        thread = threading.Thread(target=target, name=f"task: {description}", daemon=True)
        self._threads.add(thread)
        thread.start()
        try:
            yield from _events(outcomes, stage, stop, keeps_partial_result)
        except Stopped:
            if self._stop_events.get(owner) is not stop:
                raise Superseded from None
            raise
        finally:
            stop.set()  # also when the iterator is closed
            if self._stop_events.get(owner) is stop:
                del self._stop_events[owner]

    def stop(self, owner: str) -> None:
        """Ask the owner's task to stop, if there is one."""
        if (stop := self._stop_events.get(owner)) is not None:
            stop.set()

    def forget(self, session: str) -> None:
        """Stop every task whose owner begins with ``session``: its browser has left the page."""
        for owner in [owner for owner in list(self._stop_events) if owner.startswith(session)]:
            self.stop(owner)


class _Stage:
    """The latest report of a task. Written by its thread, read by the one that iterates."""

    def __init__(self, description: str) -> None:
        self._latest = (description, 0.0, 1.0, time.perf_counter())  # one tuple, replaced at once

    def report(self, done: float, description: str | None = None, total: float = 1.0, /) -> None:
        current, _, _, since = self._latest
        is_new = description is not None and description != current
        self._latest = (description or current, done, total, time.perf_counter() if is_new else since)

    def report_download(self, what: str, done: float, total: float) -> None:
        """Megabytes of what a loader fetches on its way."""
        self.report(done, f"Downloading {what}, {total:,.0f} MB", total)

    def progress(self) -> TaskProgress:
        description, done, total, since = self._latest
        return TaskProgress(description, done, total, time.perf_counter() - since)


def _events(
    outcomes: queue.SimpleQueue[TaskResult | BaseException],
    stage: _Stage,
    stop: threading.Event,
    keeps_partial_result: bool,
) -> Iterator[TaskProgress | TaskResult]:
    while True:
        try:
            outcome = outcomes.get(timeout=POLL_SECONDS)
        except queue.Empty:
            outcome = None
        if isinstance(outcome, BaseException):
            raise outcome
        if stop.is_set() and not keeps_partial_result:
            raise Stopped
        if outcome is None:
            yield stage.progress()
            continue
        yield outcome
        return
