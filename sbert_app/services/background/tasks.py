"""Cancellable work in threads, with progress: a file that is scored, a map that is computed.

    for event in tasks.run(owner, "Computing the map", lambda watch: project(..., watch)):
        if isinstance(event, TaskResult):
            use(event.value)
        else:
            show(event)    # a TaskProgress, with a description, a fraction and the remaining time

An owner, such as a browser session and the name of a tab, has one task at a time: a new task stops
the earlier one. A download is a stage of its task, in megabytes, and ends when the task is stopped.
A `Task` continues even if nobody follows it.
"""

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from sbert_app.services.background.watch import Watch
from training.errors import StoppedError
from training.progress import listening

POLL_SECONDS = 0.25
# How long tasks may take to end when the process ends.
CLOSE_SECONDS = 5.0
# The fraction and the seconds of a stage after which its remaining time is estimated.
MIN_FRACTION = 0.02
MIN_SECONDS = 0.5


class SupersededError(StoppedError):
    """The owner began another task."""


@dataclass(frozen=True)
class TaskProgress:
    """The progress of one stage of a task that began ``seconds`` ago."""

    description: str
    done: float
    total: float
    seconds: float

    @property
    def fraction(self) -> float:
        return min(1.0, self.done / self.total) if self.total > 0 else 0.0

    @property
    def rate(self) -> float:
        """The progress per second, on average over the stage."""
        return self.done / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """The remaining time of the stage; None while it is too early for an estimate."""
        if self.fraction <= MIN_FRACTION or self.seconds <= MIN_SECONDS:
            return None
        return max(0.0, self.total - self.done) / self.rate


@dataclass(frozen=True)
class TaskResult:
    value: Any
    seconds: float


class Task(threading.Thread):
    """``work(watch)`` in a daemon thread.

    The work has to return or raise `StoppedError` soon after ``watch.should_stop()`` returns True.
    """

    def __init__(self, description: str, work: Callable[[Watch], Any]) -> None:
        # In the context of a Gradio handler, creating a component means an update. Without the
        # context it would become part of a page that is being built at the same time.
        super().__init__(
            target=copy_context().run,
            args=(self._compute,),
            name=f"task: {description}",
            daemon=True,
        )
        self._work = work
        # Set by whoever stops the task, and by `TaskRunner.run` when nobody follows the task any
        # more.
        self.stopping = threading.Event()
        # Whether the task was stopped because its owner began another one.
        self.is_superseded = False
        self._outcome: Future[TaskResult] = Future()
        # The description of the stage, how much of it is done, its total, and the time at which it
        # began. The tuple is replaced as a whole, as other threads read it.
        self._latest = (description, 0.0, 1.0, time.perf_counter())

    @property
    def progress(self) -> TaskProgress:
        description, done, total, started = self._latest
        return TaskProgress(description, done, total, time.perf_counter() - started)

    def follow(self) -> Iterator[TaskProgress]:
        """Yields the progress a few times a second until the task ends. Any number of threads may follow a task."""
        self.join(POLL_SECONDS)
        while self.is_alive():
            yield self.progress
            self.join(POLL_SECONDS)

    def result(self) -> TaskResult:
        """The result of a task that has ended. Raises the error of ``work``."""
        return self._outcome.result(timeout=0)

    def _compute(self) -> None:
        """Does the work, and keeps its result or its error for `result`."""
        started = time.perf_counter()

        def report_download(what: str, done: float, total: float) -> None:
            self._report(done, f"Downloading {what}, {total:,.0f} MB", total)

        try:
            with listening(report_download, self.stopping.is_set):
                value = self._work(Watch(self._report, self.stopping.is_set))
            self._outcome.set_result(TaskResult(value, time.perf_counter() - started))
        except BaseException as error:  # noqa: BLE001 - raised again by `result`
            self._outcome.set_exception(error)

    def _report(self, done: float, description: str | None = None, total: float = 1.0, /) -> None:
        current, _, _, started = self._latest
        # A new description starts a stage.
        if description is not None and description != current:
            started = time.perf_counter()
        self._latest = (description or current, done, total, started)


def run_apart(watch: Watch, description: str, work: Callable[[Watch], Any]) -> Any:
    """Runs work that may not stop at once, such as loading a model, as a stage of the task of ``watch``.

    The work gets a watch of its own. Raises StoppedError as soon as ``watch`` does: the work goes on
    in its thread until it asks its own watch, or ends. Raises the error of ``work``.
    """
    task = Task(description, work)
    task.start()
    try:
        for progress in task.follow():
            watch.check()
            watch.report(progress.done, progress.description, progress.total)
    finally:
        # This stops work that goes on after ``watch.check`` has raised an error.
        task.stopping.set()
    return task.result().value


# A name, or the session of a page and the name of the work.
Owner = str | tuple[str, str]


class TaskRunner:
    """Runs tasks, one for each owner. Thread-safe."""

    def __init__(self) -> None:
        # The latest task of each owner.
        self._tasks: dict[Owner, Task] = {}
        # All tasks that are still running, also tasks whose owner began another one. A task is a
        # thread: `threading` refers to it until it has ended, and then it leaves the set.
        self._running: weakref.WeakSet[Task] = weakref.WeakSet()
        self._lock = threading.Lock()
        atexit.register(self.close)

    def close(self) -> None:
        """Stops all tasks, and gives them time to remove incomplete files."""
        tasks = list(self._running)
        deadline = time.monotonic() + CLOSE_SECONDS
        for task in tasks:
            task.stopping.set()
        for task in tasks:
            task.join(max(0.0, deadline - time.monotonic()))

    def start(self, owner: Owner, description: str, work: Callable[[Watch], Any]) -> Task:
        """Starts a task that replaces the owner's earlier task."""
        task = Task(description, work)
        with self._lock:
            earlier = self._tasks.get(owner)
            if earlier is not None:
                # Set first, as `run` looks at it as soon as the task is stopping.
                earlier.is_superseded = True
                earlier.stopping.set()
            # Tasks that have ended are dropped.
            self._tasks = {**self.at_work(), owner: task}
            self._running.add(task)
            task.start()
        return task

    def at_work(self) -> dict[Owner, Task]:
        """The running task of each owner that has one."""
        return {owner: task for owner, task in list(self._tasks.items()) if task.is_alive()}

    def run(
        self, owner: Owner, description: str, work: Callable[[Watch], Any]
    ) -> Iterator[TaskProgress | TaskResult]:
        """Starts a task and yields its progress, followed by its result. Closing the iterator stops the task.

        Raises the error of ``work``; StoppedError after `stop`, and SupersededError when the owner
        starts another task. The thread then ends by itself.
        """
        task = self.start(owner, description, work)
        try:
            for progress in task.follow():
                # A task that is stopped may take a while to end.
                if task.stopping.is_set():
                    break
                yield progress
            if task.stopping.is_set():
                if task.is_superseded:
                    raise SupersededError
                raise StoppedError
            yield task.result()
        finally:
            task.stopping.set()

    def stop(self, owner: Owner) -> None:
        task = self._tasks.get(owner)
        if task is not None:
            task.stopping.set()

    def forget(self, session: str) -> None:
        """Stops all tasks of a session, whose browser has left the page."""
        for owner in list(self._tasks):
            if isinstance(owner, tuple) and owner[0] == session:
                self.stop(owner)
