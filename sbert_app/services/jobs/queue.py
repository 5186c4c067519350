"""The queue that executes runs, outside the web process.

    app, command line  --start, resume-->  queue (Huey)  --run id-->  worker processes  -->  the run's folder

A worker (`jobs.worker`) is a process in a session of its own, which goes on when the page is reloaded, the browser
closed or the app killed. There is one for each GPU, or one on a machine without; for Ray there is one, which submits as
many runs as the cluster has room for (`runs.on_ray`). It is started when a run is queued and ends after some idle
minutes. The state of a run is in its folder, from which a lost queue is restored.

The queue is an SQLite file in the home folder; a damaged one is deleted and made anew from the runs. A message is JSON
and holds only the id of a run, so that write access to the queue lets nobody execute code.
"""

import json
import logging
import math
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

from filelock import FileLock, Timeout
from huey import Huey, SqliteHuey
from huey.registry import Message
from huey.serializer import Serializer

from sbert_app.process import child_environment
from sbert_app.services.background.watch import State
from sbert_app.services.runs.record import Run
from sbert_app.services.runs.store import RunStore
from training.errors import InputError
from training.sources.home import make_home
from training.trainer.config import SETTINGS, RunConfig

log = logging.getLogger("sbert_lab.jobs")

MOST_WAITING = 1_000
# The most runs in the queue that one visitor has started singly.
MOST_WAITING_OF_ONE = 20
# The most runs in the queue of one visitor's ablations and folds: those of the largest ablation.
MOST_GROUPED_OF_ONE = 700
# The errors of a damaged file, whose message may quote bytes of it. An OperationalError is a subclass, and must be
# handled before: it says that the disk is full, or that the file is locked or may not be written.
DAMAGED = (sqlite3.DatabaseError, UnicodeDecodeError)
# The least time between two starts of a worker, in case it crashes at once.
RELAUNCH_SECONDS = 3.0
# Stands for what the config of a run can say: a worker of another version, which may still be at work after an upgrade,
# takes no runs that it cannot read.
FORMAT = blake2b(
    repr([(name, *setting.choices) for name, setting in SETTINGS.items()]).encode(), digest_size=4
).hexdigest()


def devices() -> list[str]:
    """The devices that have a worker each: the visible GPUs as CUDA names them, or [""] on a machine without one."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        gpus = Path("/proc/driver/nvidia/gpus")
        return [str(i) for i, _ in enumerate(gpus.iterdir())] if gpus.is_dir() else [""]
    return [name.strip() for name in visible.split(",")]


def worker_lock(home: Path, slot: int | str) -> FileLock:
    """The lock that the worker of a device, an index into `devices`, or of "ray" holds as long as it runs."""
    return FileLock(home / f"worker-{slot}-{FORMAT}.lock", thread_local=False)


def has_worker(home: Path, slot: int | str) -> bool:
    """Whether this device has a worker, or Ray."""
    try:
        with worker_lock(home, slot).acquire(timeout=0):
            return False
    except Timeout:
        return True


class JsonSerializer(Serializer):
    """Huey's messages as JSON. Its default is pickle, which can execute code when it is read."""

    def _serialize(self, data: Message) -> bytes:
        return json.dumps(data).encode()

    def _deserialize(self, data: bytes) -> Message:
        return Message(*json.loads(bytes(data)))


class RunQueue:
    """Starts, stops and resumes runs without waiting for one. Thread-safe. InputError if it cannot be opened.

    Args:
        execute: the work of a worker with a run's id; None in every other process.
        ray: the address of a cluster that executes the runs, "" for this machine; by default $SBERT_RAY.
    """

    def __init__(self, store: RunStore, execute: Callable[[str], object] | None = None, ray: str | None = None) -> None:
        self.store = store
        self.ray = os.environ.get("SBERT_RAY", "") if ray is None else ray
        make_home(store.home)
        self._file = store.home / "jobs.sqlite"
        self.starts_workers = True
        self._execute = execute
        self._started: dict[int | str, tuple[float, subprocess.Popen[bytes]]] = {}
        self._enqueueing = threading.Lock()
        self._starting = threading.RLock()
        # The runs of each visitor, grouped or not, that may still be queued.
        self._started_by: dict[tuple[str, bool], list[str]] = {}
        try:
            self._open()
        except (sqlite3.OperationalError, OSError) as error:
            raise InputError(
                f"the queue {self._file} cannot be opened: {error}", public="the queue of runs cannot be opened"
            ) from error
        except DAMAGED:
            self.renew()

    def start(self, config: RunConfig, visitor: str = "", grouped: bool = False) -> Run:
        """Queue a new run. InputError if too many are waiting, of this visitor or of all.

        ``visitor`` is an address, or "" for the owner of the home folder, who has no limit. ``grouped`` runs are
        those of an ablation or of folds.
        """
        with self._starting:
            self.check_room(1, visitor, grouped)
            return self.resume(self.store.create(config, queue=False).id, visitor, grouped)

    def check_room(self, runs: int, visitor: str = "", grouped: bool = True) -> None:
        """Raises InputError if so many more runs do not fit into the queue, or are too many of one visitor."""
        started = self._started_by.pop((visitor, grouped), [])
        most = MOST_GROUPED_OF_ONE if grouped else MOST_WAITING_OF_ONE
        if theirs := [run_id for run_id in started if self.store.state(run_id) == State.QUEUED]:
            self._started_by[visitor, grouped] = theirs
        if visitor and len(theirs) + runs > most:
            raise InputError(
                f"{len(theirs)} runs from your address are waiting in the queue, and at most {most} of this kind "
                "may; wait until some have started, or stop some"
            )
        try:
            waiting = len(self.queued())
        except sqlite3.Error:
            # The disk is full or read-only, which the error of writing the run says.
            return
        if waiting + runs > MOST_WAITING:
            raise InputError(
                f"{waiting:,} runs are waiting, and at most {MOST_WAITING:,} may: stop some, or wait for some to end"
            )

    def resume(self, run_id: str, visitor: str = "", grouped: bool = False) -> Run:
        """Queue a run again, to be resumed from its checkpoint. Raises as `start` and `RunStore.requeue`."""
        with self._starting:
            self.check_room(1, visitor, grouped)
            run = self.store.requeue(run_id)
            if visitor:
                self._started_by.setdefault((visitor, grouped), []).append(run_id)
        self._enqueue(run_id)
        return run

    @property
    def queue(self) -> Huey:
        """The queue in the current file, which another process may have replaced."""
        if _inode(self._file) != self._inode:
            self._open()
        return self._huey

    def queued(self) -> list[str]:
        """The ids of the runs in the queue, the next one first."""
        try:
            pending = self.queue.pending()
        except sqlite3.OperationalError:
            raise
        except DAMAGED:
            self.renew()
            pending = self.queue.pending()
        return [task.args[0] for task in pending]

    def renew(self) -> None:
        """Delete the damaged file, and queue all runs in a new one that are queued by their folders."""
        with FileLock(self._file.with_suffix(".lock")):
            # Another process may have replaced it already.
            if _inode(self._file) == self._inode:
                log.warning("%s is damaged; a new queue is made from the runs", self._file)
                for suffix in ("-wal", "-shm", ""):
                    self._file.with_name(self._file.name + suffix).unlink(missing_ok=True)
            self._open()
        self._fill()

    def reconcile(self) -> None:
        """Fill the queue with the runs that are queued by their folders, and start a worker for them."""
        self.store.sweep()
        with self._enqueueing:
            waiting = self._fill()
        if waiting:
            self.start_workers()

    def start_workers(self) -> None:
        """Start a worker for every device that has none, or for Ray. Returns at once."""
        if not self.starts_workers:
            return
        for slot in ["ray"] if self.ray else range(len(devices())):
            last, process = self._started.get(slot, (-math.inf, None))
            if process is not None:
                process.poll()
            if time.monotonic() - last > RELAUNCH_SECONDS and not has_worker(self.store.home, slot):
                self._started[slot] = time.monotonic(), self._launch(slot)

    def _launch(self, slot: int | str) -> subprocess.Popen[bytes]:
        # With -P, as the working directory is the user's: a folder named ``training`` there must not be imported.
        command = [sys.executable, "-P", "-m", "sbert_app.services.jobs.worker", str(self.store.home), str(slot)]
        with (self.store.home / f"worker-{slot}.log").open("wb") as log:
            return subprocess.Popen(
                [*command, self.ray],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C in the terminal of the app does not end it.
                start_new_session=True,
                env=child_environment(),
            )

    def _work(self, run_id: str) -> None:
        """Execute the run of a message, whose task has the same name in every process."""
        if self._execute is None:
            raise RuntimeError(f"run {run_id} was taken from the queue by a process that is not a worker")
        self._execute(run_id)

    def _enqueue(self, run_id: str) -> None:
        with self._enqueueing:
            try:
                self._queue_run(run_id)
            except sqlite3.OperationalError as error:
                raise InputError(f"run {run_id} cannot be queued ({error}): is the disk full?") from error
            except DAMAGED:
                self.renew()
        self.start_workers()

    def _fill(self) -> bool:
        """Put all queued runs into the queue. Returns whether there are any."""
        waiting = self.store.ids(State.QUEUED)
        in_queue = set(self.queued()) if waiting else set()
        for run_id in waiting:
            if run_id not in in_queue:
                self._queue_run(run_id)
        return bool(waiting)

    def _open(self) -> None:
        # A worker of this machine, which may have been started before, takes no runs that are to go to Ray.
        name = f"sbert-lab-{FORMAT}{'-ray' if self.ray else ''}"
        try:
            self._huey = SqliteHuey(
                name, filename=str(self._file), strict_fifo=True, results=False, serializer=JsonSerializer()
            )
        finally:
            self._inode = _inode(self._file)
        self._queue_run = self._huey.task(name="work")(self._work)


def _inode(file: Path) -> int:
    return file.stat().st_ino if file.exists() else 0
