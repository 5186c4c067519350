"""The worker: executes queued runs, one after another on one device, or several at once on Ray.

`jobs.queue` starts ``python -m sbert_app.services.jobs.worker HOME SLOT RAY`` when a run is queued.
RAY is the address of a cluster, or empty. The command does the same as ``sbert-lab worker`` in a
terminal. The worker has a low priority, and its idle threads sleep, so that the page stays
responsive on the same machine. It ends after some minutes without a run. On this machine each run
has its own process, which releases all memory, including GPU memory, when it ends. On SIGTERM, or if
the worker is killed, the run writes a checkpoint, becomes interrupted, and can be resumed.

`run_once` executes one run and ends, for a scheduler that starts processes itself (Slurm, Ray jobs,
SkyPilot).
"""

import logging
import math
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import Timeout

from sbert_app.process import configure_process, on_ending_signal
from sbert_app.services.background.ray_cluster import RayCluster
from sbert_app.services.background.watch import RESUMABLE, State
from sbert_app.services.jobs.queue import RunQueue, devices, worker_lock
from sbert_app.services.runs.execution import execute
from sbert_app.services.runs.on_ray import executor
from sbert_app.services.runs.record import QUEUED, RunNotFoundError
from sbert_app.services.runs.store import RunStore
from sbert_app.settings import Settings
from training.errors import InputError, UserFacingError

log = logging.getLogger("sbert_lab.worker")

# How long a worker that the app has started waits for a run before it ends.
IDLE_SECONDS = 600.0
POLL_SECONDS = 0.2
# The pause between two searches for runs, relative to the duration of a search: one second with
# 20,000 runs.
REST = 5
# A run that could not start, for example because the disk is full, is tried again after this time.
RETRY_SECONDS = 60.0
NICENESS = 5
LOG_FORMAT = "%(asctime)s %(name)s: %(message)s"
# The most runs at the same time. A thread waits for each run.
MOST_SUBMITTED = 256


class Worker:
    """A worker on the device ``slot``, an index into `devices`, or on a Ray cluster. It ends after ``idle_seconds``."""

    def __init__(
        self,
        home: Path,
        slot: int,
        idle_seconds: float = math.inf,
        cluster: RayCluster | None = None,
    ) -> None:
        self.slot: int | str = slot
        self.idle_seconds = idle_seconds
        self.cluster = cluster
        self.store = RunStore(home)
        # Executes a run: in a process of its own, or on the cluster.
        self._execute: Callable[..., object] = execute_apart
        address = ""
        if cluster is not None:
            self.slot = "ray"
            self._execute = executor(cluster)
            address = cluster.address
        self.jobs = RunQueue(self.store, ray=address)
        self.should_end = threading.Event()
        # When the runs that could not start were tried the last time (`time.monotonic`).
        self._tried: dict[str, float] = {}

    def work(self) -> None:
        """Executes runs until there is none for ``idle_seconds``. Returns at once if the device already has a worker.

        A run that is queued at the moment this worker ends is not lost: the process that queues it
        checks for a worker afterwards, and this worker looks for runs again after releasing its
        lock.
        """
        while not self.should_end.is_set():
            try:
                # `has_worker` takes the lock to see whether it is free, and may hold it for a moment.
                lock = worker_lock(self.store.home, self.slot).acquire(timeout=1)
            except Timeout:
                log.info("device %s has a worker already", self.slot)
                return
            with lock:
                self.jobs.reconcile()
                self._work_until_idle()
            # Otherwise a run was queued after the last search, and before the lock was released.
            if self._next_run(submitted=()) is None:
                return

    def _work_until_idle(self) -> None:
        """Executes runs until there is none for ``idle_seconds``, or the worker should end."""
        last_work = time.monotonic()
        with ThreadPoolExecutor(MOST_SUBMITTED, "run") as threads:
            submitted: dict[str, Future[None]] = {}
            while not self.should_end.is_set():
                if not submitted and time.monotonic() - last_work >= self.idle_seconds:
                    return
                runs = submitted.items()
                submitted = {run_id: future for run_id, future in runs if not future.done()}
                search_start = time.monotonic()
                has_room = len(submitted) < self._capacity(len(submitted))
                run_id = self._next_run(submitted) if has_room else None
                if run_id is not None:
                    submitted[run_id] = threads.submit(self._work_on, run_id)
                    last_work = time.monotonic()
                    continue
                # The cluster could execute another run, but there is none. Its idle actors are
                # ended, and the connection too, unless submitted runs use it.
                if self.cluster is not None and has_room:
                    self.cluster.release(is_over=not submitted)
                # A search takes longer the more runs there are, so the pause grows with it.
                pause = max(POLL_SECONDS, REST * (time.monotonic() - search_start))
                if submitted:
                    last_work = time.monotonic()
                    wait(submitted.values(), pause, FIRST_COMPLETED)
                else:
                    self.should_end.wait(pause)

    def _next_run(self, submitted: Collection[str]) -> str | None:
        """The run that has waited for the longest and is not submitted yet; None if there is none."""
        for run_id in self.jobs.queued():
            # A run that could not start rests before it is tried again.
            is_rested = time.monotonic() - self._tried.get(run_id, -math.inf) > RETRY_SECONDS
            if is_rested and run_id not in submitted:
                return run_id
        return None

    def _capacity(self, num_submitted: int) -> int:
        """The number of runs that may be executed at the same time, including the ``num_submitted`` runs."""
        # A worker on a device executes one run at a time. An idle one on Ray may submit the first
        # run without asking the cluster, as that would connect to it again.
        if self.cluster is None or not num_submitted:
            return 1
        try:
            return min(MOST_SUBMITTED, self.cluster.room())
        except InputError:
            # The cluster is gone. The submitted runs report that.
            return 0

    def _work_on(self, run_id: str) -> None:
        """Executes one run, whose folder records the outcome."""
        began = time.time()
        try:
            with self.store.claim(run_id):
                self._execute(self.store, run_id, should_end=self.should_end.is_set)
        except UserFacingError as error:
            # The run was stopped or deleted, another worker has it, or its input is wrong.
            log.info("%s", error)
        except Exception:
            # The run has failed because of a bug, and the worker continues.
            log.exception("the run ended with an error")
        self._tried.pop(run_id, None)
        with suppress(RunNotFoundError):
            run = self.store.get(run_id)
            # The run is still queued and did not start here, so it could not start, and rests. A
            # run that started here and is queued again was resumed by a user, and may be taken at
            # once.
            if run.state == State.QUEUED and (run.record.started or 0) < began:
                self._tried[run_id] = time.monotonic()


def execute_apart(store: RunStore, run_id: str, should_end: Callable[[], bool]) -> None:
    """Executes a run in its own process. If the process dies, the run is interrupted."""
    context: Any
    if sys.platform == "win32":
        # Windows cannot fork.
        context = multiprocessing.get_context("spawn")
    else:
        context = multiprocessing.get_context("forkserver")
        # The imports take seconds, once for all runs.
        context.set_forkserver_preload(["training.trainer.train"])
    # The process records the outcome in the run's folder, so nothing is returned.
    process = context.Process(target=_execute_alone, args=(store.home, run_id), name=run_id)
    process.start()
    while process.is_alive():
        if should_end():
            process.terminate()
        process.join(POLL_SECONDS)
    if process.exitcode:
        log.error("the process of run %s has ended with exit code %s", run_id, process.exitcode)


def _execute_alone(home: Path, run_id: str) -> None:
    """Executes a run in the process that was started for it. The run is interrupted if the worker's process ends."""
    configure_process()
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    worker = multiprocessing.parent_process()
    ending = threading.Event()

    def should_end() -> bool:
        return ending.is_set() or worker is None or not worker.is_alive()

    with on_ending_signal(lambda *_: ending.set()):
        try:
            execute(RunStore(home), run_id, should_end=should_end)
        except UserFacingError as error:
            log.info("%s", error)


def run_worker(
    home: Path, slot: int, idle_seconds: float = math.inf, cluster: RayCluster | None = None
) -> None:
    """Makes this process a worker with a low priority and, unless it works for a cluster, one visible device."""
    _prepare_process(slot if cluster is None else None)
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    logging.captureWarnings(True)
    worker = Worker(home, slot, idle_seconds, cluster)
    with on_ending_signal(lambda *_: worker.should_end.set()):
        worker.work()


def run_once(home: Path, slot: int, run_id: str) -> State:
    """Executes one run, which is queued or can be resumed, in this process. Returns the state in which it ends.

    Another call resumes an interrupted run, and leaves a finished run as it is. Raises RunError if
    the run does not exist, or another process works on it; InputError if its config, base or data
    cannot be used.
    """
    _prepare_process(slot)
    store = RunStore(home)
    ending = threading.Event()
    if store.get(run_id).state == State.FINISHED:
        return State.FINISHED
    with on_ending_signal(lambda *_: ending.set()):
        execute(store, run_id, should_end=ending.is_set, states=QUEUED | RESUMABLE)
    return store.get(run_id).state


def _prepare_process(slot: int | None) -> None:
    """Sets environment variables before torch is imported and reads them.

    Idle threads sleep, and only the device ``slot`` is visible; None leaves all devices visible.
    """
    configure_process()
    # The worker shares the machine with the app.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if slot is None:
        return
    all_devices = devices()
    if not 0 <= slot < len(all_devices):
        raise InputError(
            f"there is no device {slot}; this machine has {len(all_devices)}, counted from 0"
        )
    device = all_devices[slot]
    # The only device of a machine without a GPU is "".
    if device:
        os.environ["CUDA_VISIBLE_DEVICES"] = device


if __name__ == "__main__":
    _home, _slot, _ray = sys.argv[1:]
    _cluster = RayCluster.of(Settings.gather(home=Path(_home), ray=_ray)) if _ray else None
    # For Ray the slot is a word, which `Worker` knows by the cluster.
    run_worker(Path(_home), 0 if _ray else int(_slot), IDLE_SECONDS, _cluster)
