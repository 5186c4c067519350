"""The queue that executes runs, outside the web process.

    app, command line  --start, resume-->  the run's folder, queued  -->  worker processes  -->  the run's folder

The state of a run is in its folder, and the runs that are queued there are the queue: the next one is the one that has
waited for the longest. Nothing else is stored, so nothing can be lost or contradict the folders.

A worker (`jobs.worker`) is a process in a session of its own, which goes on when the page is reloaded, the browser
closed or the app killed. There is one for each GPU, or one on a machine without; for Ray there is one, which submits as
many runs as the cluster has room for (`runs.on_ray`). It is started when a run is queued and ends after some idle
minutes.
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

MOST_WAITING = 1_000
# The most runs in the queue that one visitor has started singly.
MOST_WAITING_OF_ONE = 20
# The most runs in the queue of one visitor's ablations and folds: those of the largest ablation.
MOST_GROUPED_OF_ONE = 700
# The least time between two starts of a worker, in case it crashes at once.
RELAUNCH_SECONDS = 3.0
# A hash of what the config of a run can say. It is part of the names of locks: after an upgrade a worker of the earlier
# version, which takes no runs that it cannot read, does not keep a new one from starting.
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


class RunQueue:
    """Starts, stops and resumes runs without waiting for one. Thread-safe.

    ``ray`` is the address of a cluster that executes the runs, "" for this machine; by default $SBERT_RAY.
    """

    def __init__(self, store: RunStore, ray: str | None = None) -> None:
        self.store = store
        self.ray = os.environ.get("SBERT_RAY", "") if ray is None else ray
        make_home(store.home)
        self.starts_workers = True
        self._started: dict[int | str, tuple[float, subprocess.Popen[bytes]]] = {}
        self._starting = threading.RLock()
        # The runs of each visitor, grouped or not, that may still be queued.
        self._started_by: dict[tuple[str, bool], list[str]] = {}

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
        waiting = len(self.store.ids(State.QUEUED))
        if waiting + runs > MOST_WAITING:
            raise InputError(
                f"{waiting:,} runs are waiting, and at most {MOST_WAITING:,} may: stop some, or wait for some to end"
            )

    def resume(self, run_id: str, visitor: str = "", grouped: bool = False) -> Run:
        """Queue a run again, to be resumed from its checkpoint. Raises as `start` and `RunStore.requeue`."""
        with self._starting:
            self.check_room(1, visitor, grouped)
            self.store.assign(run_id, bool(self.ray))
            run = self.store.requeue(run_id)
            if visitor:
                self._started_by.setdefault((visitor, grouped), []).append(run_id)
        self.start_workers()
        return run

    def queued(self) -> list[str]:
        """The ids of the runs that wait for this machine, or for Ray, the next one first."""
        return [run_id for run_id in self.store.ids(State.QUEUED) if self.store.is_for_ray(run_id) == bool(self.ray)]

    def reconcile(self) -> None:
        """Take over all runs that are queued, and start a worker for them."""
        self.store.sweep()
        waiting = self.store.ids(State.QUEUED)
        for run_id in waiting:
            # It may be deleted meanwhile.
            with suppress(RunNotFoundError):
                self.store.assign(run_id, bool(self.ray))
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
