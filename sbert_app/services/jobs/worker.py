"""The worker: takes runs from the queue and executes them, one after another, on one device.

``python -m sbert_app.services.jobs.worker`` is started by `sbert_app.services.jobs.queue` when a run is queued; with
a Redis queue ``python -m sbert_app worker`` is started by hand, on any number of machines. It runs at low priority,
with idle threads that sleep, so that the page stays responsive on the same machine, and ends after `IDLE_SECONDS`
without a run. On SIGTERM, as at a shutdown, the run writes a checkpoint, becomes interrupted, and can be resumed.

Workers of a Redis queue look after each other: every `LOOK_SECONDS` each queues the runs whose workers were lost, and
those that a Redis server has forgotten. While the server does not answer they wait; a run that is going on needs no
queue.

`run_once` executes one run and ends, for a scheduler that starts processes itself (Slurm, Ray, SkyPilot).
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

from filelock import Timeout

from sbert_app.process import configure_process, release_memory
from sbert_app.services.jobs.backend import QueueUnreachable, reachable
from sbert_app.services.jobs.queue import WORKER_ENVIRONMENT, Jobs, devices, worker_lock
from sbert_app.services.jobs.remote.offer import Job
from sbert_app.services.jobs.remote.shared_store import open_store
from sbert_app.services.jobs.remote.work import fetch_job, recover, work
from sbert_app.services.runs.errors import RunBusy
from sbert_app.services.runs.record import QUEUED, RESUMABLE
from sbert_app.services.runs.store import RunStore
from sbert_app.signals import on_ending_signal
from training.errors import InputError, UserFacingError
from training.sources.home import home_folder

log = logging.getLogger("sbert_lab.worker")

IDLE_SECONDS = 600.0
POLL_SECONDS = 0.2
LOOK_SECONDS = 15.0  # between two looks after the runs of lost workers
NICENESS = 5


class Worker:
    """One worker on one device.

    Args:
        home: the home folder.
        slot: an index into `devices`.
        idle_seconds: it ends after so long without a run.
        name: what it is called among the workers of a shared queue; None = the name of this machine.
    """

    def __init__(self, home: Path, slot: int, idle_seconds: float = IDLE_SECONDS, name: str | None = None) -> None:
        self.home = home
        self.slot = slot
        self.idle_seconds = idle_seconds
        self.store = RunStore(home)
        self.jobs = Jobs(self.store, execute=self.execute)
        self.name = None if self.jobs.starts_workers else name or socket.gethostname()
        self.should_end = threading.Event()
        self._looked = -math.inf  # when, by the monotonic clock
        self._is_unreachable = False

    def work(self) -> None:
        """Execute runs until there is none for `idle_seconds`. Returns at once if the device has a worker already.

        A run that is queued just when this worker ends is not lost: the process that queues it checks for a worker
        afterwards, and this worker checks the queue again after it has released its lock.

        Raises:
            InputError: of a shared queue: another worker has this name, or the server does not answer.
        """
        lock = worker_lock(self.home, self.slot, self.name or "")
        if self.name:
            self.jobs.queued()  # a server that is not there is a mistake now, and something to wait for later
        while not self.should_end.is_set():
            try:
                lock.acquire(timeout=1)  # `has_worker` holds it for an instant
            except Timeout:
                if self.name:
                    raise InputError(
                        f"a worker {self.name} has device {self.slot} already: give this one another --name"
                    ) from None
                log.info("device %s has a worker already", self.slot)
                return
            try:
                self.jobs.reconcile()
                if self.jobs.follower is not None:
                    recover(self.jobs.follower.shared, self.home, self.name or "", self.should_end)
                self._work_until_idle()
            finally:
                lock.release()
            if self.name or not self.jobs.queued():
                return

    def execute(self, run_id: str, job: dict[str, Any] | None = None) -> None:
        """Execute one run. Its outcome is recorded in its folder, or in the store if a ``job`` comes with it."""
        from sbert_app.services.jobs.execution import execute

        try:
            if job is None:
                execute(self.store, run_id, should_end=self.should_end.is_set, worker=self.name)
            elif self.jobs.follower is None:
                log.error("run %s is of another home folder: set SBERT_STORE here as it is set there", run_id)
            else:
                work(self.jobs.follower.shared, self.home, run_id, Job(**job), self.name or "", self.should_end)
        except UserFacingError as error:  # it was stopped or deleted meanwhile, or its input is wrong
            log.info("%s", error)

    def _work_until_idle(self) -> None:
        _warm_up()
        last = time.monotonic()
        while not self.should_end.is_set() and time.monotonic() - last < self.idle_seconds:
            task = self._next_task()
            if task is None:
                self.should_end.wait(POLL_SECONDS)
                continue
            try:
                task.execute()  # Huey.execute would ask the server whether the task was revoked
            except Exception:  # a fault of the program fails the run, and the worker goes on
                log.exception("the run ended with an error")
            release_memory()  # hundreds of megabytes, which the next run would add to
            last = time.monotonic()

    def _next_task(self) -> Any:
        """The next message of the queue; None if there is none, or the server does not answer."""
        try:
            if self.name and time.monotonic() - self._looked > LOOK_SECONDS:
                self._looked = time.monotonic()
                self.jobs.resume_lost()
                self.jobs.reconcile()
            with reachable():
                task = self.jobs.queue.dequeue()
        except QueueUnreachable as error:
            if not self._is_unreachable:
                log.warning("%s; waiting for it", error)
            self._is_unreachable = True
            self.should_end.wait(1)
            return None
        if self._is_unreachable:
            log.info("the queue answers again")
            self._is_unreachable, self._looked = False, -math.inf  # it may have forgotten runs
        return task


def _warm_up() -> None:
    """Import now what a run needs, which takes seconds."""
    import training.trainer.train  # noqa: F401


def run_worker(home: Path, slot: int, idle_seconds: float = IDLE_SECONDS, name: str | None = None) -> None:
    """Make this process a worker: low priority, passive waiting, one visible device. InputError as `Worker.work`."""
    _prepare_process(slot)
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    logging.captureWarnings(True)
    worker = Worker(home, slot, idle_seconds, name)
    with on_ending_signal(lambda *_: worker.should_end.set()):
        worker.work()


def run_once(home: Path, slot: int, run_id: str) -> str:
    """Execute one run in this process, whether it is queued or can be resumed -> the state in which it ended.

    The same command again resumes what was interrupted; of a finished run it does nothing.

    Raises:
        RunError: there is no such run, or another process works on it.
        InputError: its config, base or data cannot be used.
    """
    from sbert_app.services.jobs.execution import execute

    _prepare_process(slot)
    store, shared, ending = RunStore(home), open_store(), threading.Event()
    if shared is not None and store.state(run_id) is None and (job := fetch_job(shared, run_id)) is not None:
        with on_ending_signal(lambda *_: ending.set()):
            state = work(shared, home, run_id, job, socket.gethostname(), ending)
        if state is None:
            raise RunBusy(f"run {run_id} has been taken by another worker, or was stopped")
        return state
    if store.get(run_id).state == "finished":
        return "finished"
    with on_ending_signal(lambda *_: ending.set()):
        execute(store, run_id, should_end=ending.is_set, states=QUEUED | RESUMABLE)
    return store.get(run_id).state


def _prepare_process(slot: int) -> None:
    """Passive waiting, and one visible device. Before torch is imported, which reads the variables."""
    configure_process()
    for name, value in WORKER_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    known = devices()
    if not 0 <= slot < len(known):
        raise InputError(f"there is no device {slot}; this machine has {len(known)}, counted from 0")
    if device := known[slot]:
        os.environ["CUDA_VISIBLE_DEVICES"] = device


def main() -> None:
    """The command line of ``python -m sbert_app.services.jobs.worker``."""
    parser = argparse.ArgumentParser(
        prog="sbert_app.services.jobs.worker", description="Execute queued runs on one device."
    )
    parser.add_argument("--home", type=home_folder, default=home_folder(), help="the home folder")
    parser.add_argument("--slot", type=int, default=0, help="index of the device, from 0")
    parser.add_argument(
        "--idle-seconds", type=float, default=IDLE_SECONDS, help="end after so many seconds without a run"
    )
    arguments = parser.parse_args()
    run_worker(arguments.home, arguments.slot, arguments.idle_seconds)


if __name__ == "__main__":
    main()
