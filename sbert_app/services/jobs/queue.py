"""The queue that executes runs, outside the web process.

    app, command line  --start, resume-->  queue (Huey)  --run id-->  worker processes  -->  the run's folder

A worker (`sbert_app.services.jobs.worker`) is a process in a session of its own: it goes on when the page is
reloaded, the browser closed or the app killed. There is one for each GPU, one on a machine without; where runs go to
Ray there is one, which submits as many as the cluster has room for (`sbert_app.services.runs.on_ray`). It is started
when a run is queued and ends after some idle minutes. The state of each run is in the run's folder, from which a
lost queue is restored.

The queue is SQLite in the home folder. A message is JSON and holds only the id of a run, so that write access to the
queue does not let anybody execute code.
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
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout
from huey import Huey, SqliteHuey
from huey.registry import Message
from huey.serializer import Serializer

from sbert_app.child_process import child_environment, module_command
from sbert_app.process import PASSIVE_WAITING
from sbert_app.services.background.state import State
from sbert_app.services.runs.record import Run
from sbert_app.services.runs.store import RunStore
from training.errors import InputError
from training.sources.home import make_home
from training.trainer.config import RunConfig

log = logging.getLogger("sbert_lab.jobs")

MOST_WAITING = 1_000  # runs in the queue
MOST_WAITING_OF_ONE = 20  # runs in the queue that one visitor has started singly
MOST_GROUPED_OF_ONE = 700  # runs in the queue that are of one visitor's ablations and folds: the largest ablation
WATCH_SECONDS = 15.0  # between two looks whether queued runs have a worker
RELAUNCH_SECONDS = 3.0  # at least, between two starts of a worker, in case it crashes at once
REMOVED = ("SBERT_QUEUE", "SBERT_STORE")  # settings of an earlier way to several machines

WORKER_ENVIRONMENT = {**PASSIVE_WAITING, "TOKENIZERS_PARALLELISM": "false"}  # shares the machine with the app


def devices() -> list[str]:
    """The devices that get a worker each: the visible GPUs as CUDA names them, or [""] on a machine without one."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        gpus = Path("/proc/driver/nvidia/gpus")
        return [str(i) for i, _ in enumerate(gpus.iterdir())] if gpus.is_dir() else [""]
    return [name.strip() for name in visible.split(",")]


def worker_lock(home: Path, slot: int | str) -> FileLock:
    """Held by the worker of a device, an index into `devices`, or of "ray", as long as it runs."""
    return FileLock(home / f"worker-{slot}.lock", thread_local=False)


def has_worker(home: Path, slot: int | str) -> bool:
    """Whether this device has a worker, or Ray."""
    lock = worker_lock(home, slot)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False


class JsonSerializer(Serializer):
    """Huey's messages as JSON. Its default is pickle, which can execute code when it is read."""

    def _serialize(self, data: Message) -> bytes:
        return json.dumps(data).encode()

    def _deserialize(self, data: bytes) -> Message:
        return Message(*json.loads(bytes(data)))


def open_queue(home: Path, name: str) -> Huey:
    """A queue of this home folder. InputError if it cannot be opened."""
    check_removed()
    make_home(home)
    file = home / "jobs.sqlite"
    try:
        return SqliteHuey(name, filename=str(file), strict_fifo=True, results=False, serializer=JsonSerializer())
    except sqlite3.Error as error:
        raise InputError(
            f"the queue {file} cannot be opened ({error}); if it is damaged, delete it: it is restored from the runs",
            public="the queue of runs cannot be opened",
        ) from error


def check_removed() -> None:
    """InputError if a setting of earlier versions asks for workers on other machines."""
    for name in REMOVED:
        if os.environ.get(name):
            raise InputError(
                f"{name} is not used any more: unset it; runs on other machines go through Ray (docs/scale.md)"
            )


class Jobs:
    """Starts, stops and resumes runs. Thread-safe. Nothing here waits for a run.

    Args:
        store: where the runs are.
        execute: what a worker does with a run's id; None in every other process.
        ray: the address of a Ray cluster that executes the runs; None = $SBERT_RAY, "" for this machine.
    """

    def __init__(self, store: RunStore, execute: Callable[[str], object] | None = None, ray: str | None = None) -> None:
        self.store = store
        self.ray = os.environ.get("SBERT_RAY", "") if ray is None else ray
        # A worker of this machine, which may have been started before, takes no runs that are to go to Ray.
        self.queue = open_queue(store.home, "sbert-lab-ray" if self.ray else "sbert-lab")
        self.starts_workers = True
        self._queue_run = _register_task(self.queue, execute)
        self._started: dict[int | str, tuple[float, subprocess.Popen[bytes]]] = {}  # by slot: start time, process
        self._enqueueing, self._starting = threading.Lock(), threading.Lock()
        self._single, self._grouped = _OfVisitors(), _OfVisitors()

    def start(self, config: RunConfig, visitor: str = "", grouped: bool = False) -> Run:
        """Queue a new run.

        Args:
            visitor: who starts it, such as an address; "" for the owner of the home folder, who has no limit of
                their own.
            grouped: whether it is one of several of an ablation or of folds.

        Raises:
            InputError: too many runs are waiting, of this visitor or of all.
        """
        with self._starting:
            self.check_room(1, visitor, grouped)
            run = self.store.create(config)
            (self._grouped if grouped else self._single).add(visitor, run.id)
        self._enqueue(run.id)
        return run

    def check_room(self, runs: int, visitor: str = "", grouped: bool = True) -> None:
        """InputError if so many more runs do not fit into the queue, or are too many of one visitor."""
        theirs, most = (self._grouped, MOST_GROUPED_OF_ONE) if grouped else (self._single, MOST_WAITING_OF_ONE)
        theirs.check(visitor, runs, most, self.store)
        try:
            waiting = len(self.queued())
        except sqlite3.Error:  # a disk that is full or read-only: what writes the run says so
            return
        if waiting + runs > MOST_WAITING:
            raise InputError(
                f"{waiting:,} runs are waiting, and at most {MOST_WAITING:,} may: stop some, or wait for some to end"
            )

    def resume(self, run_id: str) -> Run:
        """Queue a run again that did not finish; it is resumed from its checkpoint.

        Raises:
            InputError: too many runs are waiting.
            RunError: as `RunStore.requeue`.
        """
        self.check_room(1)
        run = self.store.requeue(run_id)
        self._enqueue(run_id)
        return run

    def queued(self) -> list[str]:
        """The ids of the runs in the queue, the next one first."""
        return [task.args[0] for task in self.queue.pending()]

    def reconcile(self) -> None:
        """Put runs into the queue whose folder says that they are queued, and start a worker for them."""
        with self._enqueueing:
            waiting = self.store.ids(State.QUEUED)
            known = set(self.queued()) if waiting else set()
            for run_id in waiting:
                if run_id not in known:
                    self._queue_run(run_id)
        if waiting:
            self.start_workers()

    def start_workers(self) -> None:
        """Start a worker for every device that has none, or for Ray. Returns at once."""
        if not self.starts_workers:
            return
        for slot in ["ray"] if self.ray else range(len(devices())):
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
                    self.reconcile()
                except Exception:  # a full disk, a database that is locked: it may be well again next time
                    log.exception("the queue could not be checked")

        threading.Thread(target=look, name="watch the queue", daemon=True).start()

    def _launch(self, slot: int | str) -> subprocess.Popen[bytes]:
        where = ("--ray", self.ray) if self.ray else ("--slot", slot)
        with (self.store.home / f"worker-{slot}.log").open("wb") as log:
            return subprocess.Popen(
                module_command("sbert_app.services.jobs.worker", "--home", self.store.home, *where),
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


class _OfVisitors:
    """The runs that each visitor has started and that may still be queued."""

    def __init__(self) -> None:
        self._ids: dict[str, list[str]] = {}

    def check(self, visitor: str, more: int, most: int, store: RunStore) -> None:
        """InputError if with so many more the visitor had more than ``most`` waiting."""
        if not visitor:
            return
        waiting = [run_id for run_id in self._ids.pop(visitor, ()) if store.state(run_id) == State.QUEUED]
        if waiting:
            self._ids[visitor] = waiting
        if len(waiting) + more > most:
            raise InputError(
                f"{len(waiting)} runs from your address are waiting in the queue, and at most {most} of this kind "
                "may; wait until some have started, or stop some"
            )

    def add(self, visitor: str, run_id: str) -> None:
        if visitor:
            self._ids.setdefault(visitor, []).append(run_id)


def _register_task(queue: Huey, execute: Callable[[str], object] | None) -> Callable[..., object]:
    """Register ``execute`` as the queue's task, under the same name in every process. The result puts a run in it."""

    def work(run_id: str) -> None:
        if execute is None:
            raise RuntimeError(f"run {run_id} was taken from the queue by a process that is not a worker")
        execute(run_id)

    return queue.task(name="work")(work)
