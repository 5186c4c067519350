"""The worker: takes runs from the queue and executes them, one after another, on one device.

``python -m sbert_app.services.jobs.worker`` is started by `sbert_app.services.jobs.queue` when a run is queued; with
a Redis queue ``python -m sbert_app worker`` is started by hand. It runs at low priority, with idle threads that
sleep, so that the page stays responsive on the same machine, and ends after `IDLE_SECONDS` without a run. On SIGTERM,
as at a shutdown, the run writes a checkpoint, becomes interrupted, and can be resumed.
"""

from __future__ import annotations

import argparse
import logging
import os
import threading
import time
from pathlib import Path

from filelock import Timeout

from sbert_app.process import configure_process
from sbert_app.services.jobs.queue import WORKER_ENVIRONMENT, Jobs, devices, worker_lock
from sbert_app.services.runs.store import RunStore
from sbert_app.signals import on_ending_signal
from training.errors import InputError, UserFacingError
from training.sources.home import home_folder

log = logging.getLogger("sbert_lab.worker")

IDLE_SECONDS = 600.0
POLL_SECONDS = 0.2
NICENESS = 5


class Worker:
    """One worker on one device; ``slot`` is an index into `devices`."""

    def __init__(self, home: Path, slot: int, idle_seconds: float = IDLE_SECONDS) -> None:
        self.home = home
        self.slot = slot
        self.idle_seconds = idle_seconds
        self.store = RunStore(home)
        self.jobs = Jobs(self.store, execute=self.execute)
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
        from sbert_app.services.jobs.execution import execute

        try:
            execute(self.store, run_id, should_end=self.should_end.is_set)
        except UserFacingError as error:  # it was stopped or deleted meanwhile, or its input is wrong
            log.info("%s", error)

    def _work_until_idle(self) -> None:
        _warm_up()
        last = time.monotonic()
        while not self.should_end.is_set() and time.monotonic() - last < self.idle_seconds:
            task = self.jobs.queue.dequeue()
            if task is None:
                self.should_end.wait(POLL_SECONDS)
                continue
            self.jobs.queue.execute(task)
            last = time.monotonic()


def _warm_up() -> None:
    """Import now what a run needs, which takes seconds."""
    import training.trainer.train  # noqa: F401


def run_worker(home: Path, slot: int, idle_seconds: float = IDLE_SECONDS) -> None:
    """Make this process a worker: low priority, passive waiting, one visible device."""
    configure_process()
    for name, value in WORKER_ENVIRONMENT.items():
        os.environ.setdefault(name, value)  # before torch is imported, which reads them
    known = devices()
    if not 0 <= slot < len(known):
        raise InputError(f"there is no device {slot}; this machine has {len(known)}, counted from 0")
    if device := known[slot]:
        os.environ["CUDA_VISIBLE_DEVICES"] = device
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    logging.captureWarnings(True)
    worker = Worker(home, slot, idle_seconds)
    with on_ending_signal(lambda *_: worker.should_end.set()):
        worker.work()


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
