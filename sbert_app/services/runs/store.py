"""The runs on disk. A run's folder is the truth; any process that can read it can show the run.

    home/runs/<id>/config.json     the settings, a `training.trainer.config.RunConfig`; never changed
                   name.txt        its name, which the user can change
                   run.json        state, reason, times; written only by the holder of the lock
                   events.jsonl    the figures, step by step (see `training.trainer.events`)
                   log.txt         what was done, and the traceback of an error
                   checkpoint/     the state of training, from which the run can be resumed
                   model/          its best model so far
                   ray             exists while the run is queued for Ray
                   lock, stop      see below

    queued -> running -> finished | failed | stopped | interrupted

The process that works on a run holds a file lock on ``lock``. The operating system releases the
lock however the process ends, so a run whose state is "running" and whose lock is free was
interrupted. Any process may create the file ``stop``, which ends the training loop.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from sbert_app.services.background.watch import AT_WORK, RESUMABLE, State
from sbert_app.services.runs.record import (
    LONGEST_NAME,
    QUEUED,
    Event,
    EventReader,
    Run,
    RunBusyError,
    RunNotFoundError,
    RunProgress,
    RunRecord,
    RunStateError,
    default_name,
    newest_first,
    stamp_of,
)
from sbert_app.services.store.documents import check_text, read_document, unreadable
from training.atomic import FRESH, LEFTOVER_SECONDS, recover, write_text
from training.errors import InputError, UserFacingError
from training.names import RENAMED_RUNS, RUN, ModelName, is_id
from training.sources.resolve import find_run
from training.trainer.config import RunConfig
from training.trainer.run_extras import check_queueable, new_run_folder

if TYPE_CHECKING:
    from training.trainer.train import RunResult

PROCESS_ENDED = "its process was asked to end; it can be resumed"
PROCESS_LOST = "its process ended unexpectedly: killed, out of memory, or the machine went down"
# Disk space that is reserved while a run is running, so that its end can be recorded on a full
# disk.
RESERVED_BYTES = 64 * 1024
# The file that marks a run that is queued for Ray.
FOR_RAY = "ray"
# The number of runs on a page of the list, and in a picker.
PAGE = 50
PICKED = 200
# How often `recent` looks for runs that another process has started.
SCAN_SECONDS = 20.0


class RunStore:
    """All runs of a home folder. Thread-safe; any number of processes may use the same folder.

    Methods that take a run's id raise `RunNotFoundError` if the run does not exist.
    """

    def __init__(self, home: Path, folder: Path | None = None) -> None:
        self.home = home
        self.folder = home / "runs" if folder is None else folder
        self._event_readers: dict[str, EventReader] = {}
        self._configs: dict[str, RunConfig] = {}
        # Held while events are read, as an `EventReader` is not thread-safe.
        self._reading = threading.Lock()
        self._damaged: Sequence[UserFacingError] = ()
        # The modification time of the folder, and the ids of its runs, the newest first. With None
        # in place of the time, the folder is read again.
        self._order: tuple[float | None, Sequence[str]] = (None, ())
        # The runs that are not at work, with the stamps of their folders (`stamp_of`).
        self._ended: dict[str, tuple[object, Run]] = {}
        # The stamps of run.json of the runs that are not at work, so that `ids` does not read these
        # files again.
        self._ended_stamps: dict[str, tuple[int, int]] = {}
        # The runs at work when `ids` last looked for them: the ids of all runs at that time, the
        # time, and the ids of the runs at work.
        self._at_work: tuple[Sequence[str], float, Sequence[str]] = ((), 0.0, ())

    def get(self, run_id: str) -> Run:
        """The run as its folder has it now. Raises InputError if its config or events cannot be read."""
        folder = self._run_folder(run_id)
        config = self._config(run_id, folder)
        record = self._current_record(folder)
        events = self.events(run_id)
        first_name = config.name or default_name(config)
        name = first_name
        # A run is usable without its name.
        with suppress(OSError):
            name = (folder / "name.txt").read_bytes().decode(errors="replace") or first_name
        # The labels of models look up the names of renamed runs.
        if name != first_name:
            RENAMED_RUNS[run_id] = name
        else:
            RENAMED_RUNS.pop(run_id, None)
        return Run(run_id, folder, name, config, record, events, RunProgress.from_events(events))

    def state(self, run_id: str) -> State | None:
        """The state of a run, or None if the run does not exist. Quicker than `get`."""
        try:
            return self._current_record(self._run_folder(run_id)).state
        except RunNotFoundError:
            return None

    def list(self, limit: int | None = None, cursor: str = "") -> list[Run]:
        """The newest ``limit`` runs, or all of them, the newest first. With ``cursor``, only runs older than that run.

        Raises RunNotFoundError if ``cursor`` is not the id of a run.
        """
        return list(self._read(self._older(cursor)[:limit]))

    def recent(self, also: Collection[str] = (), limit: int = PICKED) -> Sequence[Run]:
        """The newest runs, all runs at work, and ``also``, the newest first. Quick with any number of runs."""
        ids = self._ids()
        known_ids, scan_time, _ = self._at_work
        # `_ids` returns the same list until a run is created or deleted.
        if known_ids is not ids or time.monotonic() - scan_time > SCAN_SECONDS:
            # For any state, this looks for all runs at work, and keeps their ids in ``_at_work``.
            self.ids(State.QUEUED)
        _, _, at_work = self._at_work
        selected = {*ids[:limit], *at_work, *also}
        return self._read([run_id for run_id in ids if run_id in selected])

    def count(self, cursor: str = "") -> int:
        """The number of runs. With ``cursor``, only of the runs older than that run."""
        return len(self._older(cursor))

    def damaged(self) -> Sequence[UserFacingError]:
        """The errors of the runs that the last `list` left out."""
        return self._damaged

    def _ids(self) -> Sequence[str]:
        """The ids of all runs, the newest first. They are read again when a run was created or deleted."""
        try:
            changed = self.folder.stat().st_mtime
        except FileNotFoundError:
            return []
        known_change, ids = self._order
        if known_change != changed:
            folders = self.folder.iterdir()
            ids = newest_first(folder for folder in folders if not folder.name.startswith("."))
            # Deleted runs are dropped.
            self._ended = {run_id: self._ended[run_id] for run_id in ids if run_id in self._ended}
            # File systems round the modification time, so a run that is created right after this
            # reading may not change it. The list is kept only if the last change is a second old.
            is_settled = time.time() - changed > 1
            self._order = (changed if is_settled else None, ids)
        return ids

    def _older(self, cursor: str) -> Sequence[str]:
        """The ids of the runs older than the run ``cursor``, or of all runs for "", the newest first."""
        ids = self._ids()
        if not cursor:
            return ids
        # Raises RunNotFoundError.
        self._run_folder(cursor)
        return ids[ids.index(cursor) + 1 :]

    def _read(self, ids: Sequence[str]) -> Sequence[Run]:
        """The runs of these ids, without damaged ones. A run that is not at work is read again if it has changed."""
        runs = []
        damaged = []
        for run_id in ids:
            folder = self.folder / run_id
            try:
                # Taken before the run is read, so that a change in the meantime is found next time.
                stamp = stamp_of(folder)
                old_stamp, run = self._ended.get(run_id, (None, None))
                if run is None or old_stamp != stamp:
                    run = self.get(run_id)
                if run.state not in AT_WORK:
                    self._ended[run_id] = stamp, run
                runs.append(run)
            except (UserFacingError, OSError) as error:
                # Unless the run was deleted in the meantime, it is damaged.
                if os.path.lexists(folder / "run.json"):
                    if not isinstance(error, UserFacingError):
                        error = unreadable(folder, error)
                    damaged.append(error)
        self._damaged = damaged
        return runs

    def ids(self, state: State) -> Sequence[str]:
        """The ids of the runs in a state, QUEUED or RUNNING; the run that has been in it the longest comes first.

        Quicker than `list`.
        """
        ids = self._ids()
        entries = []
        at_work = list[str]()
        for run_id in ids:
            # Damaged runs cannot be executed, and others may be deleted while this loop runs.
            with suppress(UserFacingError, OSError):
                status = os.stat(f"{self.folder}/{run_id}/run.json")  # noqa: PTH116 - quicker than Path
                stamp = status.st_ino, status.st_ctime_ns
                if self._ended_stamps.get(run_id) == stamp:
                    continue
                record = self._current_record(self.folder / run_id)
                if record.state not in AT_WORK:
                    self._ended_stamps[run_id] = stamp
                    continue
                # Raises an error if the config is damaged.
                self._config(run_id, self.folder / run_id)
                at_work.append(run_id)
                if record.state == state:
                    # The record was last written when the run entered this state.
                    entries.append((status.st_mtime_ns, record.created, run_id))
        self._at_work = ids, time.monotonic(), at_work
        return [run_id for *_, run_id in sorted(entries)]

    def events(self, run_id: str, since: int = 0) -> Sequence[Event]:
        """The events of a run from index ``since`` on; all of them if a resumed run has withdrawn some."""
        folder = self._run_folder(run_id)
        with self._reading:
            new_reader = EventReader(folder / "events.jsonl")
            events = self._event_readers.setdefault(run_id, new_reader).read()
            start = since if since <= len(events) else 0
            return events[start:]

    def log(self, run_id: str, lines: int = 200) -> str:
        """The last lines of the run's log; "" without a log."""
        file = self._run_folder(run_id) / "log.txt"
        if not file.is_file():
            return ""
        with file.open("rb") as log:
            # A line is assumed to have at most 200 bytes on average.
            log.seek(max(0, file.stat().st_size - 200 * lines))
            text = log.read().decode("utf-8", errors="replace")
        return "\n".join(text.rstrip("\n").split("\n")[-lines:])

    def create(self, config: RunConfig, queue: bool = True) -> Run:
        """Creates a run. Its id is made of date, time and a few words: 20261121-034512-regression-mean.

        The run is queued for any worker, or else stopped, so that the caller can execute it. Raises
        InputError if the disk is full or the home folder is not writable, and for a config with
        Python objects, which only the program that made the config has.
        """
        check_queueable(config)
        # A run that is named by its title is stored by its id, as another run may be given the same
        # title.
        for key in ("base", "teacher"):
            name = getattr(config, key)
            if not name:
                continue
            model = ModelName.parse(name)
            if model.run_id:
                by_id = replace(model, name=RUN + find_run(model.run_id, self.home))
                config = config.replace(**{key: str(by_id)})
        text = check_text(config.to_json() + "\n", "the config")
        folder = None
        try:
            folder = new_run_folder(self.folder, config)
            write_text(folder / "config.json", text)
            write_text(folder / "name.txt", config.name or default_name(config))
            RunRecord(State.QUEUED if queue else State.STOPPED, created=time.time()).write(folder)
        except OSError as error:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            why = error.strerror or error
            raise InputError(
                f"no run can be written to {self.folder}: {why}",
                public=f"no run can be written: {why}",
            ) from error
        return self.get(folder.name)

    def rename(self, run_id: str, name: str) -> Run:
        name = check_text(" ".join(name.split()), "the name")
        if not name or len(name) > LONGEST_NAME:
            raise InputError(f"a run's name has 1 to {LONGEST_NAME} characters")
        write_text(self._run_folder(run_id) / "name.txt", name)
        return self.get(run_id)

    def stop(self, run_id: str) -> Run:
        """Stops a queued run at once, a running one at its next step. Raises RunStateError for any other."""
        folder = self._run_folder(run_id)
        state = self._current_record(folder).state
        if state not in AT_WORK:
            raise RunStateError(f"run {run_id} is {state}; there is nothing to stop")
        (folder / "stop").touch()
        # If a process is working on the run, it will see the file.
        with suppress(RunBusyError), self._lock(folder, "it is running"):
            record = self._locked_record(folder)
            if record.state == State.QUEUED:
                replace(record, state=State.STOPPED, ended=time.time()).write(folder)
        return self.get(run_id)

    def requeue(self, run_id: str) -> Run:
        """Queues a run again that has failed, or was stopped or interrupted.

        Raises RunBusyError or RunStateError for any other run, and InputError if the run has Python
        objects of the program that started it.
        """
        folder = self._run_folder(run_id)
        check_queueable(self._config(run_id, folder), folder)
        with self._lock(folder, f"run {run_id} is running; there is nothing to resume"):
            record = self._locked_record(folder)
            if record.state not in RESUMABLE:
                raise RunStateError(f"run {run_id} is {record.state}; there is nothing to resume")
            (folder / "stop").unlink(missing_ok=True)
            replace(record, state=State.QUEUED, ended=None, reason=None).write(folder)
        return self.get(run_id)

    def assign(self, run_id: str, to_ray: bool) -> None:
        """Records whether a run waits for Ray or for this machine once it is queued."""
        marker = self._run_folder(run_id) / FOR_RAY
        if to_ray:
            marker.touch()
        else:
            marker.unlink(missing_ok=True)

    def is_for_ray(self, run_id: str) -> bool:
        return (self.folder / run_id / FOR_RAY).exists()

    @contextmanager
    def claim(self, run_id: str) -> Iterator[None]:
        """Keeps other workers from taking a queued run inside the block.

        Raises RunBusyError if another worker has it.
        """
        folder = self._run_folder(run_id)
        # The lock is the file ``worker``, as `lease` takes the file ``lock`` when the run is executed
        # inside the block.
        message = f"run {run_id} is taken by another worker"
        with self._lock(folder, message, timeout=0, name="worker"):
            yield

    def delete(self, run_id: str) -> None:
        """Removes a run and its model. Raises RunBusyError while it is running."""
        folder = self._run_folder(run_id)
        with self._lock(folder, f"run {run_id} is running; stop it before you delete it"):
            deleted = self.folder / f".deleted-{run_id}"
            # Renamed first, so that the run disappears at once, however long the removal takes.
            folder.rename(deleted)
        shutil.rmtree(deleted, ignore_errors=True)
        self._event_readers.pop(run_id, None)
        self._configs.pop(run_id, None)

    def sweep(self) -> None:
        """Removes what an interrupted deletion or restoration left behind."""
        for leftover in self.folder.glob(".*"):
            with suppress(OSError):
                is_old = time.time() - leftover.stat().st_mtime > LEFTOVER_SECONDS
                is_incomplete = leftover.name.endswith(FRESH) and is_old
                if is_incomplete or leftover.name.startswith(".deleted-"):
                    shutil.rmtree(leftover, ignore_errors=True)

    @contextmanager
    def lease(self, run_id: str, states: Collection[str] = QUEUED) -> Iterator[RunLease]:
        """Works on a run that is in one of ``states``. It is running inside the block, and has ended after it.

        An exception in the block makes it failed; KeyboardInterrupt and SystemExit make it
        interrupted. Raises RunStateError if the run is in another state; RunBusyError if another
        process works on it.
        """
        folder = self._run_folder(run_id)
        with self._lock(folder, f"run {run_id} is being worked on by another process", timeout=2):
            record = self._locked_record(folder)
            if record.state not in states:
                raise RunStateError(
                    f"run {run_id} is {record.state}, not {' or '.join(sorted(states))}"
                )
            if record.state != State.QUEUED:
                # The file may be left over from the last time. For a queued run it is a new request.
                (folder / "stop").unlink(missing_ok=True)
            lease = RunLease(self.get(run_id), resume=record.started is not None)
            record = replace(
                record, state=State.RUNNING, started=time.time(), ended=None, reason=None
            )
            record.write(folder)
            try:
                # This space is freed at the end, so that the end can be recorded on a full disk.
                (folder / "reserve").write_bytes(bytes(RESERVED_BYTES))
                yield lease
            except BaseException as error:
                # KeyboardInterrupt and SystemExit are not derived from Exception.
                lease.state = State.FAILED if isinstance(error, Exception) else State.INTERRUPTED
                lease.reason = " ".join(str(error).split()) or type(error).__name__
                raise
            finally:
                (folder / "reserve").unlink(missing_ok=True)
                record = replace(record, state=lease.state, reason=lease.reason, ended=time.time())
                record.write(folder)

    def _current_record(self, folder: Path) -> RunRecord:
        """The record of a run. A run that is recorded as running but whose lock is free becomes interrupted."""
        record = RunRecord.read(folder)
        if record.state == State.RUNNING:
            with suppress(RunBusyError), self._lock(folder, "it is running", timeout=0):
                return self._locked_record(folder)
        return record

    def _locked_record(self, folder: Path) -> RunRecord:
        """The record, for the holder of the lock. A run in the state running has lost its process."""
        record = RunRecord.read(folder)
        if record.state == State.RUNNING:
            record = replace(
                record, state=State.INTERRUPTED, reason=PROCESS_LOST, ended=time.time()
            )
            record.write(folder)
            # The process may have ended while it replaced the model.
            recover(folder / "model")
        return record

    @contextmanager
    def _lock(
        self, folder: Path, message: str, timeout: float = 0.1, name: str = "lock"
    ) -> Iterator[None]:
        """Holds a lock of the run.

        Raises RunBusyError with ``message`` if another process keeps it for ``timeout`` seconds.
        """
        try:
            # A thread other than the one that took the lock may release it.
            file_lock = FileLock(folder / name, thread_local=False)
            lock = file_lock.acquire(timeout=timeout, poll_interval=0.02)
        except Timeout as error:
            raise RunBusyError(message) from error
        with lock:
            # If the run was deleted in the meantime, acquiring the lock has created its folder
            # again.
            if not os.path.lexists(folder / "run.json"):
                shutil.rmtree(folder, ignore_errors=True)
            # Raises RunNotFoundError if the run was deleted.
            self._run_folder(folder.name)
            yield

    def _run_folder(self, run_id: str) -> Path:
        """The folder of a run. Raises RunNotFoundError if there is none."""
        folder = self.folder / run_id
        if not is_id(run_id) or not os.path.lexists(folder / "run.json"):
            message = f"there is no run {run_id[:100]!r}; `runs list` shows them all"
            raise RunNotFoundError(message, public=message)
        return folder

    def _config(self, run_id: str, folder: Path) -> RunConfig:
        """The settings of a run. Raises InputError if they are missing or damaged."""
        # A config never changes, so it is read once.
        config = self._configs.get(run_id)
        if config is None:
            file = folder / "config.json"
            try:
                config = read_document(file, RunConfig)
            except FileNotFoundError as error:
                raise unreadable(file, "it is gone") from error
            self._configs[run_id] = config
        return config


@dataclass
class RunLease:
    """A run that this process works on. It ends with ``state`` and ``reason``.

    ``resume`` says that a process has worked on it before.
    """

    run: Run
    resume: bool
    state: State = State.INTERRUPTED
    reason: str | None = None

    def end(self, result: RunResult) -> RunResult:
        """Ends the run with a result. A run that stopped without the file ``stop`` was interrupted."""
        self.state = State(result.status)
        self.reason = result.reason
        if self.state == State.STOPPED and not (self.run.folder / "stop").exists():
            self.state = State.INTERRUPTED
            self.reason = PROCESS_ENDED
        return result
