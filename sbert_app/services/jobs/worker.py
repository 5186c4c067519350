"""The worker: takes runs from the queue and executes them, one after another on one device, or several at once on Ray.

``sbert-lab worker`` is started by `sbert_app.services.jobs.queue` when a run is queued. It runs at low priority, with
idle threads that sleep, so that the page stays responsive on the same machine, and ends after some minutes without a
run. On SIGTERM, as at a shutdown, the run writes a checkpoint, becomes interrupted, and can be resumed.

`run_once` executes one run and ends, for a scheduler that starts processes itself (Slurm, Ray jobs, SkyPilot).
"""

from __future__ import annotations

import logging
import math
import os
import sqlite3
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from filelock import Timeout
from huey.exceptions import HueyException

from sbert_app.process import configure_process, release_memory
from sbert_app.services.background.state import RESUMABLE, State
from sbert_app.services.jobs.queue import WORKER_ENVIRONMENT, RunQueue, check_removed, devices, worker_lock
from sbert_app.services.ray_cluster import Cluster
from sbert_app.services.runs.execution import execute
from sbert_app.services.runs.on_ray import executor
from sbert_app.services.runs.record import QUEUED
from sbert_app.services.runs.store import RunStore
from sbert_app.signals import on_ending_signal
from training.errors import InputError, UserFacingError

log = logging.getLogger("sbert_lab.worker")

POLL_SECONDS = 0.2
NICENESS = 5
MOST_SUBMITTED = 256  # runs at once, each with a thread that waits


class Worker:
    """One worker: on the device ``slot``, an index into `devices`, or of a Ray cluster; ends when idle so long."""

    def __init__(self, home: Path, slot: int, idle_seconds: float = math.inf, cluster: Cluster | None = None) -> None:
        self.home = home
        self.slot = slot if cluster is None else "ray"
        self.idle_seconds = idle_seconds
        self.cluster = cluster
        self.store = RunStore(home)
        self.jobs = RunQueue(self.store, execute=self.execute, ray=cluster.address if cluster else "")
        self._execute = executor(cluster)
        self.should_end = threading.Event()

    def work(self) -> None:
        """Execute runs until there is none for `idle_seconds`. Returns at once if the device has a worker already.

        A run that is queued just when this worker ends is not lost: the process that queues it checks for a worker
        afterwards, and this worker checks the queue again after it has released its lock.
        """
        lock = worker_lock(self.home, self.slot)
        while not self.should_end.is_set():
            try:
                lock.acquire(timeout=1)  # `has_worker` holds it for an instant
            except Timeout:
                log.info("device %s has a worker already", self.slot)
                return
            try:
                self.jobs.reconcile()
                self._work_until_idle()
            finally:
                lock.release()
            if not self.jobs.queued():
                return

    def execute(self, run_id: str) -> None:
        """Execute one run. Its outcome is recorded in its folder."""
        try:
            self._execute(self.store, run_id, should_end=self.should_end.is_set)
        except UserFacingError as error:  # it was stopped or deleted meanwhile, or its input is wrong
            log.info("%s", error)

    def _work_until_idle(self) -> None:
        import training.trainer.train  # noqa: F401 - what a run needs, which takes seconds

        last = time.monotonic()
        with ThreadPoolExecutor(MOST_SUBMITTED, "run") as threads:  # of runs that are executed elsewhere
            submitted = set[Future[None]]()
            while not self.should_end.is_set() and (submitted or time.monotonic() - last < self.idle_seconds):
                submitted = {each for each in submitted if not each.done()}
                room = self._room(len(submitted))
                task = self._next_task() if len(submitted) < room else None
                if task is None:
                    if self.cluster is not None and len(submitted) < room:
                        self.cluster.release(is_over=not submitted)
                    wait(submitted, POLL_SECONDS, FIRST_COMPLETED) if submitted else self.should_end.wait(POLL_SECONDS)
                elif self.cluster is not None:
                    submitted.add(threads.submit(self._work_on, task))
                else:
                    self._work_on(task)
                    release_memory()  # hundreds of megabytes, which the next run would add to
                if task is not None or submitted:
                    last = time.monotonic()

    def _room(self, submitted: int) -> int:
        """How many runs may be under way at once."""
        if self.cluster is None or not submitted:
            return 1
        try:
            return min(MOST_SUBMITTED, self.cluster.room())
        except InputError:  # it is gone; the runs that are under way say so
            return 0

    def _work_on(self, task: Any) -> None:
        try:
            task.execute()
        except Exception:  # a fault of the program fails the run, and the worker goes on
            log.exception("the run ended with an error")

    def _next_task(self) -> Any:
        """The next message of the queue; None if there is none."""
        try:
            return self.jobs.queue.dequeue()
        except sqlite3.DatabaseError:
            if not self.jobs.mend():
                raise
            self.jobs.reconcile()
            return None
        except (ValueError, TypeError, HueyException):  # something else has written into the queue
            log.exception("a message of the queue cannot be read; it is left out")
            return None


def run_worker(home: Path, slot: int, idle_seconds: float = math.inf, cluster: Cluster | None = None) -> None:
    """Make this process a worker: low priority, passive waiting, and one visible device unless it is of a cluster."""
    _prepare_process(slot if cluster is None else None)
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    logging.captureWarnings(True)
    worker = Worker(home, slot, idle_seconds, cluster)
    with on_ending_signal(lambda *_: worker.should_end.set()):
        worker.work()


def run_once(home: Path, slot: int, run_id: str) -> State:
    """Execute one run in this process, whether it is queued or can be resumed -> the state in which it ended.

    The same command again resumes what was interrupted; of a finished run it does nothing. Raises as `execute`.
    """
    check_removed()
    _prepare_process(slot)
    store, ending = RunStore(home), threading.Event()
    if store.get(run_id).state == State.FINISHED:
        return State.FINISHED
    with on_ending_signal(lambda *_: ending.set()):
        execute(store, run_id, should_end=ending.is_set, states=QUEUED | RESUMABLE)
    return store.get(run_id).state


def _prepare_process(slot: int | None) -> None:
    """Passive waiting, and at most one visible device. Before torch is imported, which reads the variables."""
    configure_process()
    for name, value in WORKER_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if slot is None:
        return
    known = devices()
    if not 0 <= slot < len(known):
        raise InputError(f"there is no device {slot}; this machine has {len(known)}, counted from 0")
    if device := known[slot]:
        os.environ["CUDA_VISIBLE_DEVICES"] = device
