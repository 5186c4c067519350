"""Pusher: copies a run's folder into the store while a worker is at work on it, and tells the worker when to stop.

Every `PUSH_SECONDS` what has changed is copied: the events and the log, and new versions of checkpoint and model. Then
``status.json`` is written, which names the complete versions and counts up: the store says that the worker is alive.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sbert_app.services.jobs.remote.shared_store import SharedStore, StoreUnreachable
from sbert_app.services.runs.record import RunRecord

log = logging.getLogger("sbert_lab.remote")

FILES = ("events.jsonl", "log.txt", "negatives.jsonl")  # the last is `training.trainer.negatives.FILE`
FOLDERS = ("checkpoint", "model")
PUSH_SECONDS = 2.0


@dataclass
class Version:
    """A complete copy of a folder in the store."""

    number: int
    files: list[str]


@dataclass
class Status:
    """``status.json``: the run's record on the worker's machine, and what of its folder is in the store."""

    state: str
    reason: str | None
    started: float | None
    ended: float | None
    worker: str
    beat: int = 0  # counts up as long as the worker is alive
    files: dict[str, int] = field(default_factory=dict)  # name -> how often it has been written
    folders: dict[str, Version | None] = field(default_factory=dict)

    @classmethod
    def from_json(cls, values: dict[str, object]) -> Status:
        """The inverse of `asdict`."""
        status = cls(**values)  # type: ignore[arg-type]
        status.folders = {
            name: Version(**each) if isinstance(each, dict) else None for name, each in status.folders.items()
        }
        return status


class Pusher:
    """Copies one attempt.

    Args:
        shared: the store.
        place: the folder of the attempt in it.
        folder: the run's folder on this machine.
        worker: its name.
    """

    def __init__(self, shared: SharedStore, place: str, folder: Path, worker: str) -> None:
        self.shared, self.place, self.folder, self.worker = shared, place, folder, worker
        self.is_superseded = threading.Event()  # the attempt is gone: another worker has the run, or it was deleted
        self._beat = 0
        self._seen: dict[str, tuple[int, int]] = {}  # name -> what of it is in the store: inode, and size or time
        self._files: dict[str, int] = {}
        self._folders: dict[str, Version | None] = {}
        self._numbers: dict[str, int] = {}  # versions written of each folder
        self._ended = threading.Event()

    @contextmanager
    def pushing(self) -> Iterator[None]:
        """Push in a thread while the block lasts."""
        thread = threading.Thread(target=self._push_regularly, name=f"push {self.place}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def push(self) -> None:
        """Copy what has changed since the last call. Raises StoreUnreachable; the next call does what is missing."""
        record = RunRecord.read(self.folder)
        replaced = [old for name in FOLDERS if (old := self._push_folder(name))]
        for name in FILES:
            self._push_file(name)
        self._beat += 1
        status = Status(record.state, record.reason, record.started, record.ended, self.worker, self._beat)
        status.files, status.folders = self._files, self._folders
        self.shared.write_json(f"{self.place}/status.json", asdict(status))
        for old in replaced:
            self.shared.remove(old)

    def push_end(self, should_end: threading.Event) -> bool:
        """Copy the end of the run, however long the store does not answer -> whether it is there."""
        while not self.is_superseded.is_set():
            try:
                self.look()
                self.push()
            except StoreUnreachable as error:
                log.warning("%s; trying again", error)
                if should_end.wait(PUSH_SECONDS):
                    return False
            else:
                return True
        return True

    def look(self) -> None:
        """Look whether the run is to be stopped, or this attempt has been superseded."""
        if not self.shared.exists(f"{self.place}/job.json"):
            self.is_superseded.set()
        elif self.shared.exists(f"{self.place}/stop"):
            (self.folder / "stop").touch()

    def _push_regularly(self) -> None:
        is_unreachable = False
        while True:
            try:
                self.look()
                if self.is_superseded.is_set():
                    return
                self.push()
                is_unreachable = False
            except StoreUnreachable as error:  # the run needs no store; what is missing is copied later
                if not is_unreachable:
                    log.warning("%s; the run goes on", error)
                is_unreachable = True
            except Exception:  # such as a full disk, which the run itself reports
                log.exception("what has become of %s could not be copied", self.place)
            if self._ended.wait(PUSH_SECONDS):
                return

    def _push_file(self, name: str) -> None:
        file = self.folder / name
        if not file.exists():
            return
        status = file.stat()
        version = status.st_ino, status.st_size
        if self._seen.get(name) != version:
            self.shared.write(f"{self.place}/{name}", file.read_bytes())
            self._seen[name] = version
            self._files[name] = self._files.get(name, 0) + 1

    def _push_folder(self, name: str) -> str | None:
        """Copy a folder that has been replaced, or removed -> the older copy, which is not needed any more."""
        folder, before = self.folder / name, self._folders.get(name)
        old = None if before is None else f"{self.place}/{name}-{before.number}"
        if not folder.is_dir():
            self._folders[name] = None
            return old
        version = _version(folder)
        if self._seen.get(name) == version:
            return None
        # A copy of the names: the trainer may replace the folder at any moment.
        with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=self.folder) as scratch:
            snapshot = Path(scratch) / name
            try:
                shutil.copytree(folder, snapshot, copy_function=_link)
                is_whole = _version(folder) == version
            except (OSError, shutil.Error):  # replaced meanwhile
                is_whole = False
            if not is_whole:
                return None
            number = self._numbers[name] = self._numbers.get(name, 0) + 1
            self._folders[name] = Version(number, self.shared.put_folder(snapshot, f"{self.place}/{name}-{number}"))
        self._seen[name] = version
        return old


def _version(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_ino, status.st_mtime_ns


def _link(source: str, target: str) -> None:
    """A second name for a file; a copy where the file system has no such thing."""
    with suppress(OSError):
        os.link(source, target)
        return
    shutil.copy2(source, target)
