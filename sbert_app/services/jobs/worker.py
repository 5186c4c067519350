"""The worker: takes runs from the queue and executes them, one after another, on one device.

``python -m sbert_app.services.jobs.worker`` is started by `sbert_app.services.jobs.queue` when there is work; where
the queue is Redis,
``python -m sbert_app worker`` is started by hand. It is polite (low priority, threads that sleep while they wait), so
that the page stays quick on the same machine, and ends after `IDLE_SECONDS` without work. SIGTERM, as at a shutdown:
the run writes a checkpoint, reads as interrupted, and can be resumed.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import threading
import time
from pathlib import Path

from filelock import Timeout

from sbert_app.process import configure_process
from sbert_app.services.jobs.queue import CALM, Jobs, devices, worker_lock
from sbert_app.services.runs.store import RunStore
from training.errors import InputError
from training.sources.home import home_folder

log = logging.getLogger("sbert_lab.worker")

IDLE_SECONDS = 600.0
POLL_SECONDS = 0.2
NICENESS = 5


class Worker:
    """One worker on one device, a place in `devices`."""

    def __init__(self, home: Path, slot: int, idle_seconds: float = IDLE_SECONDS) -> None:
        self.home = home
        self.slot = slot
        self.idle_seconds = idle_seconds
        self.store = RunStore(home)
        self.jobs = Jobs(self.store, do=self.execute)
        self.ending = threading.Event()

    def work(self) -> None:
        """Work until there has been nothing to do for a while. Returns at once if the device has a worker already.

        A run that is queued just when this worker ends is not lost: whoever queues it looks for a worker after
        that, and this one looks into the queue once more after it has given its place up.
        """
        lock = worker_lock(self.home, self.slot)
        while not self.ending.is_set():
            try:
                lock.acquire(timeout=1)  # others look for an instant only
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
        """Execute one run. Whatever comes of it is in the run's folder."""
        from sbert_app.services.jobs.execution import execute

        try:
            execute(self.store, run_id, should_end=self.ending.is_set)
        except InputError as error:  # stopped or deleted while it waited
            log.info("%s", error)

    def _work_until_idle(self) -> None:
        _warm_up()
        last = time.monotonic()
        while not self.ending.is_set() and time.monotonic() - last < self.idle_seconds:
            task = self.jobs.queue.dequeue()
            if task is None:
                self.ending.wait(POLL_SECONDS)
                continue
            self.jobs.queue.execute(task)
            last = time.monotonic()


def _warm_up() -> None:
    """The imports that a run needs take seconds: have them behind us when one comes."""
    import training.trainer.train  # noqa: F401


def run_worker(home: Path, slot: int, idle_seconds: float = IDLE_SECONDS) -> None:
    """Make this process a worker: calm, polite, bound to its device."""
    configure_process()
    for name, value in CALM.items():
        os.environ.setdefault(name, value)  # read when torch is loaded, which is later
    known = devices()
    if not 0 <= slot < len(known):
        raise InputError(f"device {slot} is not there; this machine has {len(known)}, counted from 0")
    if device := known[slot]:
        os.environ["CUDA_VISIBLE_DEVICES"] = device
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    logging.captureWarnings(True)
    worker = Worker(home, slot, idle_seconds)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.ending.set())
    worker.work()


def main() -> None:
    """The command line of ``python -m sbert_app.services.jobs.worker``."""
    parser = argparse.ArgumentParser(
        prog="sbert_app.services.jobs.worker", description="Execute queued runs on one device."
    )
    parser.add_argument("--home", type=home_folder, default=home_folder(), help="the home folder")
    parser.add_argument("--slot", type=int, default=0, help="which device, counted from 0")
    parser.add_argument("--idle-seconds", type=float, default=IDLE_SECONDS, help="end after so long without work")
    asked = parser.parse_args()
    run_worker(asked.home, asked.slot, asked.idle_seconds)


if __name__ == "__main__":
    main()
