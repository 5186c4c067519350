"""The queue that executes runs, outside the web process.

    app, command line  --start, resume-->  the run's folder, queued  -->  worker processes  -->  the run's folder

The folders of the runs are the queue: the next run is the queued run that has waited for the
longest. Nothing else is stored, so nothing can be lost or contradict the folders.

A worker (`jobs.worker`) is a process in its own session. It continues when the page is reloaded,
the browser closed or the app killed. There is one for each GPU, or a single one on a machine
without GPUs. For Ray there is one too, which submits as many runs as the cluster has room for
(`runs.on_ray`). A worker is started when a run is queued, and ends after some idle minutes.
"""

import math
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from filelock import FileLock, Timeout

from sbert_app.process import child_environment
from sbert_app.services.background.watch import State
from sbert_app.services.runs.record import Run, RunNotFoundError
from sbert_app.services.runs.store import RunStore
from training.errors import InputError
from training.sources.home import make_home
from training.trainer.config import SETTINGS, RunConfig

# The most runs in the queue.
MOST_WAITING = 1_000
# The most single runs of one visitor in the queue.
MOST_WAITING_OF_ONE = 20
# The most runs of one visitor's ablations and folds in the queue, which is the size of the largest
# ablation.
MOST_GROUPED_OF_ONE = 700
# The least time between two starts of a worker, in case it crashes at once.
RELAUNCH_SECONDS = 3.0
# A hash of the schema of a RunConfig. It is part of the names of locks, so that after an upgrade a
# worker of the earlier version, which cannot read new runs, does not prevent a new worker from
# starting.
_SCHEMA = repr([(name, *setting.choices) for name, setting in SETTINGS.items()])
FORMAT = blake2b(_SCHEMA.encode(), digest_size=4).hexdigest()


def devices() -> list[str]:
    """The devices that have a worker each: the visible GPUs as CUDA names them, or "" alone without a GPU."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        # An empty variable hides all GPUs, and becomes [""].
        return [name.strip() for name in visible.split(",")]
    gpus = Path("/proc/driver/nvidia/gpus")
    if not gpus.is_dir():
        return [""]
    return [str(number) for number, _ in enumerate(gpus.iterdir())]


def worker_lock(home: Path, slot: int | str) -> FileLock:
    """The lock that a worker holds while it runs. The slot is an index into `devices`, or "ray"."""
    return FileLock(home / f"worker-{slot}-{FORMAT}.lock", thread_local=False)


def has_worker(home: Path, slot: int | str) -> bool:
    """Whether a worker of this slot is running."""
    try:
        with worker_lock(home, slot).acquire(timeout=0):
            return False
    except Timeout:
        return True


class RunQueue:
    """Queues and resumes runs, and starts workers for them. Thread-safe.

    ``ray`` is the address of a cluster that executes the runs, or "" for this machine. The default
    is $SBERT_RAY.
    """

    def __init__(self, store: RunStore, ray: str | None = None) -> None:
        self.store = store
        if ray is None:
            ray = os.environ.get("SBERT_RAY", "")
        self.ray = ray
        make_home(store.home)
        # Measurements and tests set it to False, to queue runs that nobody executes.
        self.starts_workers = True
        # When the last worker of each slot was started, and its process.
        self._started: dict[int | str, tuple[float, subprocess.Popen[bytes]]] = {}
        # Reentrant, as `start` calls `resume`. Between the check for room and the queueing, no
        # other thread may queue a run.
        self._starting = threading.RLock()
        # The runs that may still be queued, by visitor and whether they are grouped.
        self._started_by: dict[tuple[str, bool], list[str]] = {}

    def start(self, config: RunConfig, visitor: str = "", grouped: bool = False) -> Run:
        """Queues a new run. Raises InputError if too many runs are waiting, in total or for this visitor.

        ``visitor`` is an address, or "" for the owner of the home folder, who has no limit. Runs of
        an ablation or of folds are ``grouped``.
        """
        with self._starting:
            # `resume` checks this too, but a run that does not fit must not be created.
            self.check_room(1, visitor, grouped)
            # The run is created as stopped, and `resume` queues it.
            return self.resume(self.store.create(config, queue=False).id, visitor, grouped)

    def check_room(self, runs: int, visitor: str = "", grouped: bool = True) -> None:
        """Raises InputError if this number of runs does not fit into the queue, or exceeds the visitor's limit.

        ``visitor`` is an address, or "" for the owner of the home folder, who has no limit. Several
        runs at once are ``grouped``, which is the default, and have another limit than single runs.
        """
        # These runs were queued by the visitor; some of them have started since, or were stopped.
        run_ids = self._started_by.pop((visitor, grouped), [])
        most = MOST_GROUPED_OF_ONE if grouped else MOST_WAITING_OF_ONE
        queued = [run_id for run_id in run_ids if self.store.state(run_id) == State.QUEUED]
        # Visitors without queued runs are forgotten.
        if queued:
            self._started_by[visitor, grouped] = queued
        if visitor and len(queued) + runs > most:
            raise InputError(
                f"{len(queued)} runs from your address are waiting in the queue, and at most {most} of this kind "
                "may; wait until some have started, or stop some"
            )
        waiting = len(self.store.ids(State.QUEUED))
        if waiting + runs > MOST_WAITING:
            raise InputError(
                f"{waiting:,} runs are waiting, and at most {MOST_WAITING:,} may: stop some, or wait for some to end"
            )

    def resume(self, run_id: str, visitor: str = "", grouped: bool = False) -> Run:
        """Queues a run, which continues from its checkpoint if it has one.

        ``visitor`` is an address, or "" for the owner of the home folder. Runs of an ablation or of
        folds are ``grouped``. Raises InputError if too many runs are waiting, and RunError if the
        run is queued, running or finished, or does not exist.
        """
        with self._starting:
            self.check_room(1, visitor, grouped)
            # Records whether workers of this machine or of Ray may take the run.
            self.store.assign(run_id, bool(self.ray))
            run = self.store.requeue(run_id)
            if visitor:
                self._started_by.setdefault((visitor, grouped), []).append(run_id)
        self.start_workers()
        return run

    def queued(self) -> list[str]:
        """The ids of the queued runs that this queue executes, on this machine or on Ray, the next run first."""
        ids = self.store.ids(State.QUEUED)
        return [run_id for run_id in ids if self.store.is_for_ray(run_id) == bool(self.ray)]

    def reconcile(self) -> None:
        """Takes over all queued runs, and starts workers for them."""
        # What an interrupted deletion left behind is removed first.
        self.store.sweep()
        # All queued runs, including those that another queue has assigned to Ray or to this machine.
        waiting = self.store.ids(State.QUEUED)
        for run_id in waiting:
            # The run may have been deleted in the meantime.
            with suppress(RunNotFoundError):
                self.store.assign(run_id, bool(self.ray))
        if waiting:
            self.start_workers()

    def start_workers(self) -> None:
        """Starts a worker for every device without one, or for Ray. Returns at once."""
        if not self.starts_workers:
            return
        slots = ["ray"] if self.ray else range(len(devices()))
        for slot in slots:
            last_start, process = self._started.get(slot, (-math.inf, None))
            # A child process that has ended remains a zombie until its exit code is read, by
            # `poll`.
            if process is not None:
                process.poll()
            is_recent = time.monotonic() - last_start <= RELAUNCH_SECONDS
            if not is_recent and not has_worker(self.store.home, slot):
                self._started[slot] = (time.monotonic(), self._launch(slot))

    def _launch(self, slot: int | str) -> subprocess.Popen[bytes]:
        """Starts the process of a worker."""
        module = "sbert_app.services.jobs.worker"
        with (self.store.home / f"worker-{slot}.log").open("wb") as log:
            return subprocess.Popen(
                # With -P, a folder named ``training`` in the user's working directory is not
                # imported.
                [sys.executable, "-P", "-m", module, str(self.store.home), str(slot), self.ray],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C in the terminal of the app does not end the worker.
                start_new_session=True,
                env=child_environment(),
            )
