"""Follower: brings back into the home folder what workers elsewhere have put into the store, while they are at it.

Events and log come live, checkpoint and model when the run has ended; then the store's copy is removed. A worker whose
``status.json`` has not changed for `LOST_SECONDS` is taken for dead: its last checkpoint is fetched and the run is
interrupted, so that it can be queued again. Only this machine's clock is read, so clocks may differ.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sbert_app.services.jobs.remote.offer import CLAIM, prefix
from sbert_app.services.jobs.remote.push import FOLDERS, Status
from sbert_app.services.jobs.remote.shared_store import SharedStore, StoreUnreachable, open_store
from sbert_app.services.runs.errors import RunError
from sbert_app.services.runs.record import AT_WORK, RunRecord
from sbert_app.services.runs.store import PROCESS_LOST, RunStore
from training.atomic import replace_folder, write_bytes

log = logging.getLogger("sbert_lab.remote")

FOLLOW_SECONDS = 1.0
LOST_SECONDS = 60.0

Attempt = tuple[str, int]  # a run's id and the number


class Follower:
    """Follows all runs of a home folder that are in the store.

    Args:
        store: of the home folder.
        shared: the store.
    """

    def __init__(self, store: RunStore, shared: SharedStore) -> None:
        self.store, self.shared = store, shared
        self._beats: dict[Attempt, tuple[int, float]] = {}  # the last beat, and when it was new here
        self._files: dict[Attempt, dict[str, int]] = {}  # the versions that are in the home folder
        self._stopped: set[Attempt] = set()  # that have been told

    def look(self) -> None:
        """Bring everything up to date. A store that does not answer is logged."""
        for run_id in {run_id for state in AT_WORK for run_id in self.store.ids(state, lambda each: each.is_remote)}:
            try:
                self._follow(run_id)
            except StoreUnreachable as error:
                log.warning("%s", error)
                return
            except RunError:  # deleted meanwhile, or being changed
                continue

    def stop(self, run_id: str) -> None:
        """Tell the worker of a run, or the one that would take it, that it is to be stopped."""
        record = self.store.get(run_id).record
        if record.is_remote:
            self._tell_stop(run_id, record.attempt)

    def follow(self, then: Callable[[], object], ended: threading.Event) -> None:
        """Look every second, and call ``then``, until ``ended`` is set."""
        while not ended.wait(FOLLOW_SECONDS):
            try:
                self.look()
                then()
            except Exception:  # a full disk: it may be well again next time
                log.exception("the runs in the store could not be followed")

    def _follow(self, run_id: str) -> None:
        run = self.store.get(run_id)
        attempt, folder = run.record.attempt, run.folder
        place, key = prefix(run_id, attempt), (run_id, run.record.attempt)
        if (folder / "stop").exists():
            self._tell_stop(run_id, attempt)
        status = self._status(place)
        if status is None:  # nobody has taken it yet
            return
        beat, since = self._beats.get(key, (-1, 0.0))
        if status.beat != beat:
            since = time.monotonic()
            self._beats[key] = status.beat, since
        self._fetch_files(key, place, folder, status)
        if status.state in AT_WORK:
            if time.monotonic() - since > LOST_SECONDS:
                lost = replace(status, state="interrupted", reason=PROCESS_LOST)
                self._end(key, place, folder, status, lambda record: _ended(record, lost))
            elif run.state == "queued" and status.state == "running":
                self.store.update_remote(run_id, attempt, lambda record: _running(record, status))
        else:
            self._end(key, place, folder, status, lambda record: _ended(record, status))

    def _status(self, place: str) -> Status | None:
        """What the worker says; of one that has not said anything yet, that it has taken the run."""
        if (values := self.shared.read_json(f"{place}/status.json")) is not None:
            return Status.from_json(values)
        claim = self.shared.read_json(f"{place}/{CLAIM}")
        return None if claim is None else Status("queued", None, None, None, str(claim.get("worker")))

    def _tell_stop(self, run_id: str, attempt: int) -> None:
        if (run_id, attempt) not in self._stopped:
            self.shared.write(f"{prefix(run_id, attempt)}/stop", b"")
            self._stopped.add((run_id, attempt))

    def _fetch_files(self, key: Attempt, place: str, folder: Path, status: Status) -> None:
        known = self._files.setdefault(key, {})
        for name, version in status.files.items():
            if known.get(name) != version and (data := self.shared.read(f"{place}/{Path(name).name}")) is not None:
                write_bytes(folder / Path(name).name, data)
                known[name] = version

    def _end(
        self, key: Attempt, place: str, folder: Path, status: Status, change: Callable[[RunRecord], RunRecord]
    ) -> None:
        """Fetch checkpoint and model, note how the run has ended, and only then remove the store's copy."""
        for name in FOLDERS:
            version = status.folders.get(name)
            if version is not None:
                with replace_folder(folder / name) as fresh:
                    self.shared.get_folder(f"{place}/{name}-{version.number}", version.files, fresh)
        if status.state == "finished":
            shutil.rmtree(folder / "checkpoint", ignore_errors=True)
        if self.store.update_remote(*key, change):
            self.shared.remove(place)
        for seen in (self._beats, self._files):
            seen.pop(key, None)


def _running(record: RunRecord, status: Status) -> RunRecord:
    return replace(record, state="running", started=status.started or record.started, worker=status.worker)


def _ended(record: RunRecord, status: Status) -> RunRecord:
    record = replace(_running(record, status), is_remote=False)
    if status.state == "interrupted":
        return record.interrupted(status.reason)
    return replace(record, state=status.state, reason=status.reason, ended=status.ended)


def follower(store: RunStore) -> Follower | None:
    """The follower of a home folder; None if $SBERT_STORE names no store."""
    shared = open_store()
    return None if shared is None else Follower(store, shared)
