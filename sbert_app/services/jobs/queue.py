"""The queue that executes runs, outside the web process.

    app, command line  --start, resume-->  queue (Huey)  --run id-->  worker processes  -->  the run's folder

A worker (`sbert_app.services.jobs.worker`) is a process in a session of its own: it goes on when the page is
reloaded, the browser closed or the app killed. There is one for each GPU, one on a machine without. It is started
when a run is queued and ends after some idle minutes. The state of each run is in the run's folder, from which a
lost queue is restored.

The queue is SQLite in the home folder. With ``SBERT_QUEUE=redis://host/0`` it is Redis: then workers are started by
hand (``python -m sbert_app worker``), on any machine that has access to the home folder, and a run whose worker is
lost is resumed by another one. A message is JSON and holds only the id of a run, so that write access to the queue does
not let anybody execute code. With ``SBERT_STORE`` too, workers need no access to the home folder: see
`sbert_app.services.jobs.remote`; a message then also holds the config.
"""

from __future__ import annotations

import logging
import math
import os
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from huey import Huey

from sbert_app.child_process import child_environment, module_command
from sbert_app.process import PASSIVE_WAITING
from sbert_app.services.jobs.backend import QueueUnreachable, is_shared, open_queue, reachable
from sbert_app.services.jobs.remote.follow import follower
from sbert_app.services.jobs.remote.offer import offered
from sbert_app.services.jobs.remote.shared_store import StoreUnreachable
from sbert_app.services.runs.errors import RunError
from sbert_app.services.runs.record import Run, slug
from sbert_app.services.runs.store import RunStore
from training.errors import InputError, UserFacingError
from training.trainer.config import RunConfig

log = logging.getLogger("sbert_lab.jobs")

MOST_WAITING = 1_000  # runs in the queue
MOST_WAITING_OF_ONE = 20  # runs in the queue that one visitor has started singly
MOST_GROUPED_OF_ONE = 700  # runs in the queue that are of one visitor's ablations and folds: the largest ablation
WATCH_SECONDS = 15.0  # between two looks whether queued runs have a worker
RELAUNCH_SECONDS = 3.0  # at least, between two starts of a worker, in case it crashes at once
MOST_LOSSES = 3  # workers that a run may lose before somebody has to look at it

WORKER_ENVIRONMENT = {**PASSIVE_WAITING, "TOKENIZERS_PARALLELISM": "false"}  # shares the machine with the app


def devices() -> list[str]:
    """The devices that get a worker each: the visible GPUs as CUDA names them, or [""] on a machine without one."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        gpus = Path("/proc/driver/nvidia/gpus")
        return [str(i) for i, _ in enumerate(gpus.iterdir())] if gpus.is_dir() else [""]
    return [name.strip() for name in visible.split(",")]


def worker_lock(home: Path, slot: int, name: str = "") -> FileLock:
    """Held by the worker of a device as long as it runs.

    Args:
        slot: an index into `devices`.
        name: of the worker, where those of several machines share the home folder.
    """
    stem = f"worker-{slug(name)}-{slot}" if name else f"worker-{slot}"
    return FileLock(home / f"{stem}.lock", thread_local=False)


def has_worker(home: Path, slot: int) -> bool:
    """Whether this device has a worker."""
    lock = worker_lock(home, slot)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False


Execute = Callable[[str, dict[str, Any] | None], object]  # a run's id; what else is in the message


class Jobs:
    """Starts, stops and resumes runs. Thread-safe. Nothing here waits for a run.

    Args:
        store: where the runs are.
        execute: what a worker does with a run's id; None in every other process.
    """

    def __init__(self, store: RunStore, execute: Execute | None = None) -> None:
        self.store = store
        self.queue = open_queue(store.home)
        self.follower = follower(store)
        self.starts_workers = not is_shared(self.queue)
        if self.follower is not None and self.starts_workers:
            raise InputError("SBERT_STORE is for workers on other machines: set SBERT_QUEUE=redis://… too")
        self._queue_run = _register_task(self.queue, execute)
        self._started: dict[int, tuple[float, subprocess.Popen[bytes]]] = {}  # by slot: start time, process
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
        if self.follower is not None:
            self.follower.shared.check()
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

    def stop(self, run_id: str) -> Run:
        """Stop a run, see `RunStore.stop`."""
        run = self.store.stop(run_id)
        if self.follower is not None:
            self.follower.stop(run_id)
        return run

    def queued(self) -> list[str]:
        """The ids of the runs in the queue, the next one first. QueueUnreachable if its server does not answer."""
        with reachable():
            return [task.args[0] for task in self.queue.pending()]

    def reconcile(self) -> None:
        """Put runs into the queue whose folder says that they are queued, and start a worker for them.

        A server that does not answer is logged: the next call, of a page or a worker, does what this one could not.
        """
        with self._enqueueing:
            waiting = self.store.ids("queued")
            try:
                known = set(self.queued()) if waiting else set()
                for run_id in waiting:
                    if run_id not in known:
                        self._send_again(run_id)
            except (QueueUnreachable, StoreUnreachable) as error:
                log.warning("%s", error)
        if waiting:
            self.start_workers()

    def resume_lost(self) -> None:
        """Queue again the runs whose workers were lost: killed, asked to end, or on a machine that went down.

        Only what a worker of a shared queue had taken, and no run that has lost `MOST_LOSSES` workers since somebody
        queued it: it may be what they die of.
        """
        for run_id in self.store.ids("interrupted", lambda record: 1 <= record.losses <= MOST_LOSSES):
            try:
                self.store.requeue(run_id, is_lost=True)
                with self._enqueueing:
                    self._send(run_id)
            except (QueueUnreachable, StoreUnreachable) as error:  # its folder says that it is queued
                log.warning("%s", error)
            except RunError:  # another worker was quicker
                continue
            log.info("run %s has lost its worker and is queued again", run_id)

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

        With a store, also `follow` it. In threads that end with the process.
        """

        def look() -> None:
            while True:
                time.sleep(seconds)
                try:
                    self.reconcile()
                except Exception:  # a full disk, a database that is locked: it may be well again next time
                    log.exception("the queue could not be checked")

        if self.starts_workers:
            threading.Thread(target=look, name="watch the queue", daemon=True).start()
        if self.follower is not None:
            threading.Thread(target=self.follow, name="follow the store", daemon=True).start()

    def follow(self, ended: threading.Event | None = None) -> None:
        """Until ``ended`` is set, bring runs on other machines up to date, and queue again those that were lost."""

        def queue_lost() -> None:
            self.resume_lost()
            self.reconcile()

        assert self.follower is not None  # noqa: S101 - called where there is a store
        self.follower.follow(queue_lost, threading.Event() if ended is None else ended)

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
                self._send(run_id)
            except sqlite3.Error as error:
                raise InputError(f"run {run_id} cannot be queued ({error}): is the disk full?") from error
        self.start_workers()

    def _send_again(self, run_id: str) -> None:
        """Put a run into the queue that was in it, unless it has been taken or stopped just now."""
        try:
            self._send(run_id)
        except (QueueUnreachable, StoreUnreachable):
            raise
        except UserFacingError as error:
            log.warning("run %s cannot be queued: %s", run_id, error)

    def _send(self, run_id: str) -> None:
        """Put a run into the queue, and into the store if there is one."""
        message: tuple[Any, ...] = (run_id,)
        if self.follower is not None:
            job = offered(self.store, self.follower.shared, run_id)
            if job is None:  # a worker has taken it
                return
            message = (run_id, asdict(job))
        with reachable():
            self._queue_run(*message)


class _OfVisitors:
    """The runs that each visitor has started and that may still be queued."""

    def __init__(self) -> None:
        self._ids: dict[str, list[str]] = {}

    def check(self, visitor: str, more: int, most: int, store: RunStore) -> None:
        """InputError if with so many more the visitor had more than ``most`` waiting."""
        if not visitor:
            return
        waiting = [run_id for run_id in self._ids.pop(visitor, ()) if store.state(run_id) == "queued"]
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


def _register_task(queue: Huey, execute: Execute | None) -> Callable[..., object]:
    """Register ``execute`` as the queue's task, under the same name in every process. The result puts a run in it."""

    def work(run_id: str, job: dict[str, Any] | None = None) -> None:
        if execute is None:
            raise RuntimeError(f"run {run_id} was taken from the queue by a process that is not a worker")
        execute(run_id, job)

    return queue.task(name="work")(work)
