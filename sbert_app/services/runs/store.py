"""RunStore: the runs on disk. A run's folder is the truth; whoever can read it can show the run.

    home/runs/<id>/config.json     the settings, a `training.trainer.config.RunConfig`; never changed
                   name.txt        what people call it
                   run.json        state, reason, times; written by the holder of the lock alone
                   events.jsonl    the figures, step by step (see `training.trainer.train`)
                   log.txt         what was done, and the traceback of what went wrong
                   checkpoint/     from where it can be resumed
                   model/          its best model so far
                   lock, stop      see below

    queued -> running -> finished | failed | stopped | interrupted

The process that works on a run holds the file ``lock``. The operating system takes it back when the process ends,
however it ends: so a run that says "running" and whose lock is free was interrupted. No heartbeat to miss, no
process number that another program has by now. Stop is a file: any process may leave it, the loop looks for it.
"""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from filelock import FileLock, Timeout

from sbert_app.services.runs.events import Event, EventReader, RunProgress
from sbert_app.services.runs.record import (
    AT_WORK,
    LONGEST_NAME,
    QUEUED,
    RESUMABLE,
    Record,
    Run,
    default_name,
    one_line,
    slug,
)
from training.atomic import recover, write_text
from training.errors import InputError
from training.trainer.config import RunConfig

CUT_OFF = "its process ended without a word: killed, out of memory, or the machine went down"
RESERVE = 64 * 1024  # bytes kept aside while a run is at work, so that on a full disk its end can still be written

_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,127}", re.ASCII)


class RunStore:
    """All runs of a home folder. Thread-safe; any number of processes may have one on the same folder."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "runs"
        self._tails: dict[str, EventReader] = {}
        self._configs: dict[str, RunConfig] = {}
        self._reading = threading.Lock()

    # ------------------------------------------------------------ reading

    def get(self, run_id: str) -> Run:
        """InputError if there is no such run."""
        folder = self._folder(run_id)
        return Run(
            id=run_id,
            folder=folder,
            name=(folder / "name.txt").read_text(encoding="utf-8"),
            config=self._config(run_id, folder),
            record=self._settled(folder),
            progress=RunProgress.of(self.events(run_id)),
        )

    def list(self) -> list[Run]:
        """Every run, the newest first."""
        found = []
        for file in self.folder.glob("[!.]*/run.json"):
            with suppress(InputError, FileNotFoundError):  # deleted meanwhile
                found.append(self.get(file.parent.name))
        return sorted(found, key=lambda run: (run.record.created, run.id), reverse=True)

    def events(self, run_id: str, since: int = 0) -> Sequence[Event]:
        """The events of a run from number ``since`` on. A resumed run takes events back: then from the first."""
        folder = self._folder(run_id)
        with self._reading:
            events = self._tails.setdefault(run_id, EventReader(folder / "events.jsonl")).read()
            return events[since if since <= len(events) else 0 :]

    def log(self, run_id: str, lines: int = 200) -> str:
        """The last lines of the run's log."""
        file = self._folder(run_id) / "log.txt"
        if not file.exists():
            return ""
        with file.open("rb") as log:
            log.seek(max(0, file.stat().st_size - 200 * lines))
            return "\n".join(log.read().decode("utf-8", errors="replace").splitlines()[-lines:])

    # ------------------------------------------------------------ changing

    def create(self, config: RunConfig, queue: bool = True) -> Run:
        """A new run. Its id is the date, the time and a word or two: 20261121-034512-regression-mean.

        It is queued, for any worker to take; without ``queue`` it is stopped before it began, for the caller.
        InputError if the disk is full or the home folder may not be written.
        """
        words = slug(config.name) or slug(f"{config.objective} {config.pooling or config.base}")
        try:
            run_id, folder = self._make_folder(f"{time.strftime('%Y%m%d-%H%M%S')}-{words}")
            write_text(folder / "config.json", config.to_json() + "\n")
            write_text(folder / "name.txt", config.name or default_name(config))
            Record("queued" if queue else "stopped", created=time.time()).write(folder)
        except OSError as error:
            raise InputError(f"no run can be written to {self.folder}: {error.strerror or error}") from error
        return self.get(run_id)

    def rename(self, run_id: str, name: str) -> Run:
        """Call a run something else; its id stays."""
        name = " ".join(name.split())
        if not name or len(name) > LONGEST_NAME:
            raise InputError(f"a run's name has 1 to {LONGEST_NAME} characters")
        write_text(self._folder(run_id) / "name.txt", name)
        return self.get(run_id)

    def stop(self, run_id: str) -> Run:
        """Stop a run: at once if it is queued; if it runs, its process sees it at the next step."""
        folder = self._folder(run_id)
        state = self._settled(folder).state
        if state not in AT_WORK:
            raise InputError(f"run {run_id} is {state}; there is nothing to stop")
        (folder / "stop").touch()
        with suppress(InputError), self._held(folder, "its process has it and will see the file"):
            record = self._settled(folder, held=True)
            if record.state == "queued":
                replace(record, state="stopped", ended=time.time()).write(folder)
        return self.get(run_id)

    def requeue(self, run_id: str) -> Run:
        """Queue a run again that failed, was stopped or interrupted; it will go on from its checkpoint."""
        folder = self._folder(run_id)
        with self._held(folder, f"run {run_id} is running; there is nothing to resume"):
            record = self._settled(folder, held=True)
            if record.state not in RESUMABLE:
                raise InputError(f"run {run_id} is {record.state}; there is nothing to resume")
            (folder / "stop").unlink(missing_ok=True)
            replace(record, state="queued", ended=None, reason=None).write(folder)
        return self.get(run_id)

    def delete(self, run_id: str) -> None:
        """Remove a run and its model. InputError while it runs."""
        folder = self._folder(run_id)
        with self._held(folder, f"run {run_id} is running; stop it before you delete it"):
            going = self.folder / f".deleted-{run_id}"
            folder.rename(going)  # it is gone at once, however long the removal takes
        shutil.rmtree(going)
        self._tails.pop(run_id, None)
        self._configs.pop(run_id, None)

    @contextmanager
    def lease(self, run_id: str, states: Collection[str] = QUEUED) -> Iterator[RunLease]:
        """Work on a run in one of ``states``: it is running inside the block, and has ended after it.

        An exception out of the block makes it failed (an interrupt or an exit: interrupted) and goes on.
        InputError if the run is in another state, or another process has it.
        """
        folder = self._folder(run_id)
        with self._held(folder, f"run {run_id} is being worked on by another process", patience=2):
            record = self._settled(folder, held=True)
            if record.state not in states:
                raise InputError(f"run {run_id} is {record.state}, not {' or '.join(sorted(states))}")
            if record.state != "queued":
                (folder / "stop").unlink(missing_ok=True)  # it was about the time before
            work = RunLease(self.get(run_id), resume=record.started is not None)
            record = replace(record, state="running", started=time.time(), ended=None, reason=None)
            record.write(folder)
            try:
                (folder / "reserve").write_bytes(bytes(RESERVE))
                yield work
            except BaseException as error:
                work.state = "failed" if isinstance(error, Exception) else "interrupted"
                work.reason = one_line(error)
                raise
            finally:
                (folder / "reserve").unlink(missing_ok=True)
                replace(record, state=work.state, reason=work.reason, ended=time.time()).write(folder)

    # ------------------------------------------------------------ within

    def _settled(self, folder: Path, held: bool = False) -> Record:
        """The record. A running run whose lock is free has lost its process: here it becomes interrupted, and whole."""
        record = Record.read(folder)
        if record.state != "running":
            return record
        if held:
            record = replace(record, state="interrupted", ended=time.time(), reason=CUT_OFF)
            record.write(folder)
            recover(folder / "model")
            return record
        try:
            with self._held(folder, "it is running indeed", patience=0):
                return self._settled(folder, held=True)
        except InputError:
            return record

    @contextmanager
    def _held(self, folder: Path, otherwise: str, patience: float = 0.1) -> Iterator[None]:
        """Hold the run's lock. InputError with ``otherwise`` if another process has it for longer than an instant."""
        lock = FileLock(folder / "lock", thread_local=False)
        try:
            lock.acquire(timeout=patience, poll_interval=0.02)
        except Timeout as error:
            raise InputError(otherwise) from error
        try:
            yield
        finally:
            lock.release()

    def _folder(self, run_id: str) -> Path:
        folder = self.folder / run_id
        if not _ID.fullmatch(run_id) or not (folder / "run.json").exists():
            raise InputError(f"there is no run {run_id[:100]!r}; `runs list` shows them all")
        return folder

    def _config(self, run_id: str, folder: Path) -> RunConfig:
        if run_id not in self._configs:
            self._configs[run_id] = RunConfig.from_json((folder / "config.json").read_text(encoding="utf-8"))
        return self._configs[run_id]

    def _make_folder(self, stem: str) -> tuple[str, Path]:
        """A folder that was not there before, though two be made in the same second."""
        for number in count(1):
            run_id = stem if number == 1 else f"{stem}-{number}"
            with suppress(FileExistsError):
                (self.folder / run_id).mkdir(parents=True)
                return run_id, self.folder / run_id
        raise AssertionError("numbers do not end")


@dataclass
class RunLease:
    """A run in the hands of this process. What it says at the end of the block is how the run ended."""

    run: Run
    resume: bool  # whether a process has worked on it before
    state: str = "interrupted"
    reason: str | None = None
