"""The queue that executes runs, outside the web process.

    app, command line  --start, resume-->  queue (Huey)  --run id-->  worker processes  -->  the run's folder

A worker (`sbert_app.services.jobs.worker`) is a process in a session of its own: it goes on when the page is
reloaded, the browser closed or the app killed. There is one for each GPU, one on a machine without. It is started
when a run is queued and ends after some idle minutes. The state of each run is in the run's folder, from which a
lost queue is restored.

The queue is SQLite in the home folder. With ``SBERT_QUEUE=redis://host/0`` it is Redis: then workers are started by
hand (``python -m sbert_app worker``), on any machine that has access to the home folder. A message is JSON and holds
only the id of a run, so that write access to the queue does not let anybody execute code.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sqlite3
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout
from huey import Huey, SqliteHuey
from huey.registry import Message
from huey.serializer import Serializer

from sbert_app.child_process import child_environment, module_command
from sbert_app.process import PASSIVE_WAITING
from sbert_app.services.runs.record import Run
from sbert_app.services.runs.store import RunStore
from training.errors import InputError
from training.sources.home import make_home
from training.trainer.config import RunConfig

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("sbert_lab.jobs")

NAME = "sbert-lab"
MOST_WAITING = 1_000  # runs in the queue
MOST_WAITING_OF_ONE = 20  # runs in the queue that one visitor has started singly
WATCH_SECONDS = 15.0  # between two looks whether queued runs have a worker
RELAUNCH_SECONDS = 3.0  # at least, between two starts of a worker, in case it crashes at once

WORKER_ENVIRONMENT = {**PASSIVE_WAITING, "TOKENIZERS_PARALLELISM": "false"}  # shares the machine with the app


class JsonSerializer(Serializer):
    """Huey's messages as JSON. Its default is pickle, which can execute code when it is read."""

    def _serialize(self, data: Message) -> bytes:
        return json.dumps(data).encode()

    def _deserialize(self, data: bytes) -> Message:
        return Message(*json.loads(bytes(data)))


def open_queue(home: Path) -> Huey:
    """The queue of this home folder, or the one in $SBERT_QUEUE. InputError if it cannot be opened."""
    options: dict[str, Any] = {"results": False, "serializer": JsonSerializer()}
    address = os.environ.get("SBERT_QUEUE", "")
    if not address:
        make_home(home)
        return SqliteHuey(NAME, filename=str(home / "jobs.sqlite"), strict_fifo=True, **options)
    if not address.startswith(("redis://", "rediss://", "unix://")):
        raise InputError(f"SBERT_QUEUE is {address!r}; it must look like redis://host:6379/0")
    from huey import RedisHuey
    from huey.exceptions import ConfigurationError

    try:
        return RedisHuey(NAME, url=address, **options)
    except ConfigurationError as error:
        raise InputError("SBERT_QUEUE names a Redis server, but the package redis is missing: install it") from error


def devices() -> list[str]:
    """The devices that get a worker each: the visible GPUs as CUDA names them, or [""] on a machine without one."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        gpus = Path("/proc/driver/nvidia/gpus")
        return [str(i) for i, _ in enumerate(gpus.iterdir())] if gpus.is_dir() else [""]
    return [name.strip() for name in visible.split(",")]


def worker_lock(home: Path, slot: int) -> FileLock:
    """Held by the worker of a device as long as it runs. ``slot`` is an index into `devices`."""
    return FileLock(home / f"worker-{slot}.lock", thread_local=False)


def has_worker(home: Path, slot: int) -> bool:
    """Whether this device has a worker."""
    lock = worker_lock(home, slot)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False


class Jobs:
    """Starts, stops and resumes runs. Thread-safe. Nothing here waits for a run.

    Args:
        store: where the runs are.
        execute: what a worker does with a run's id; None in every other process.
    """

    def __init__(self, store: RunStore, execute: Callable[[str], object] | None = None) -> None:
        self.store = store
        self.queue = open_queue(store.home)
        self.starts_workers = isinstance(self.queue, SqliteHuey)
        self._queue_run = _register_task(self.queue, execute)
        self._started: dict[int, tuple[float, subprocess.Popen[bytes]]] = {}  # by slot: start time, process
        self._enqueueing, self._starting = threading.Lock(), threading.Lock()
        self._by_visitor: dict[str, list[str]] = {}  # the runs that each has started and that may still be queued

    def start(self, config: RunConfig, visitor: str = "") -> Run:
        """Queue a new run.

        Args:
            visitor: who starts it, such as an address; "" for the owner of the home folder, who has no limit of
                their own.

        Raises:
            InputError: too many runs are waiting, of this visitor or of all.
        """
        with self._starting:
            self.check_room(1)
            self._check_visitor(visitor)
            run = self.store.create(config)
            if visitor:
                self._by_visitor[visitor].append(run.id)
        self._enqueue(run.id)
        return run

    def check_room(self, runs: int) -> None:
        """InputError if so many more runs do not fit into the queue."""
        try:
            waiting = len(self.queued())
        except sqlite3.Error:  # a disk that is full or read-only: what writes the run says so
            return
        if waiting + runs > MOST_WAITING:
            raise InputError(
                f"{waiting:,} runs are waiting, and at most {MOST_WAITING:,} may: stop some, or wait for some to end"
            )

    def _check_visitor(self, visitor: str) -> None:
        """InputError if the visitor has started as many runs as may wait at a time."""
        if not visitor:
            return
        ids = self._by_visitor.get(visitor, [])
        waiting = [run_id for run_id in ids if self.store.state(run_id) == "queued"]
        self._by_visitor[visitor] = waiting
        if len(waiting) >= MOST_WAITING_OF_ONE:
            raise InputError(
                f"{len(waiting)} runs from your address are waiting in the queue, which is as many as may; wait until "
                "one has started, or stop one"
            )

    def resume(self, run_id: str) -> Run:
        """Queue a run again that did not finish; it is resumed from its checkpoint. Raises as `RunStore.requeue`."""
        run = self.store.requeue(run_id)
        self._enqueue(run_id)
        return run

    def stop(self, run_id: str) -> Run:
        """Stop a run, see `RunStore.stop`."""
        return self.store.stop(run_id)

    def queued(self) -> list[str]:
        """The ids of the runs in the queue, the next one first."""
        return [task.args[0] for task in self.queue.pending()]

    def reconcile(self) -> None:
        """Put runs into the queue whose folder says that they are queued, and start a worker for them."""
        with self._enqueueing:
            waiting = [run.id for run in reversed(self.store.list()) if run.state == "queued"]
            known = set(self.queued()) if waiting else set()
            for run_id in waiting:
                if run_id not in known:
                    self._queue_run(run_id)
        if waiting:
            self.start_workers()

    def start_workers(self) -> None:
        """Start a worker for every device that has none. Returns at once."""
        if not self.starts_workers:
            return
        for slot, _ in enumerate(devices()):
            last, process = self._started.get(slot, (-math.inf, None))
            if process is not None:
                process.poll()  # reap it if it has ended
            if time.monotonic() - last > RELAUNCH_SECONDS and not has_worker(self.store.home, slot):
                self._started[slot] = time.monotonic(), self._launch(slot)

    def watch(self, seconds: float = WATCH_SECONDS) -> None:
        """From now on, start a worker whenever runs are queued and none is there: one may be killed at any time.

        In a thread that ends with the process.
        """

        def look() -> None:
            while True:
                time.sleep(seconds)
                try:
                    if self.queued():
                        self.start_workers()
                except Exception:  # a full disk, a database that is locked: it may be well again next time
                    log.exception("the queue could not be checked")

        if self.starts_workers:
            threading.Thread(target=look, name="watch the queue", daemon=True).start()

    def _launch(self, slot: int) -> subprocess.Popen[bytes]:
        with (self.store.home / f"worker-{slot}.log").open("wb") as log:
            return subprocess.Popen(
                module_command("sbert_app.services.jobs.worker", "--home", self.store.home, "--slot", slot),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # not ended by Ctrl-C in the app's terminal
                env=child_environment(WORKER_ENVIRONMENT),
            )

    def _enqueue(self, run_id: str) -> None:
        with self._enqueueing:
            try:
                self._queue_run(run_id)
            except sqlite3.Error as error:
                raise InputError(f"run {run_id} cannot be queued ({error}): is the disk full?") from error
        self.start_workers()


def _register_task(queue: Huey, execute: Callable[[str], object] | None) -> Callable[[str], object]:
    """Register ``execute`` as the queue's task, under the same name in every process. The result puts a run in it."""

    def work(run_id: str) -> None:
        if execute is None:
            raise RuntimeError(f"run {run_id} was taken from the queue by a process that is not a worker")
        execute(run_id)

    return queue.task(name="work")(work)
