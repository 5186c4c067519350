"""Runs on Ray: `execute` does what `sbert_app.services.runs.execution.execute` does, on any machine of a cluster.

    cluster = Cluster("auto")
    execute(store, run_id, cluster)

An actor gets the config, the files and models that it names and only this home folder has, and the last checkpoint. It
executes the run in a temporary folder of its node, as ``worker --once`` does. Twice a second this process asks it what
is new, and writes that into the run's folder, which stays the truth: events and log as they grow, checkpoint and model
when there is a newer one. Nothing else is shared. The run of an actor that dies, alone or with its node, is submitted
again from the checkpoint that has arrived, and its curve goes on as if nothing had happened.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbert_app.process import configure_process
from sbert_app.services.background.state import State
from sbert_app.services.ray_cluster import SILENCE_SECONDS, Cluster, Lost, ray_errors
from sbert_app.services.runs.events import Event
from sbert_app.services.runs.execution import execute as execute_here
from sbert_app.services.runs.record import QUEUED, Run, RunRecord
from sbert_app.services.runs.store import RunLease, RunStore
from training.atomic import replace_folder, write_bytes, write_text
from training.errors import InputError, UserFacingError, first_line
from training.names import DataName, ModelName, join_names
from training.sources.home import home_folder, is_offline, set_offline
from training.sources.resolve import run_folder
from training.trainer.config import RunConfig

if TYPE_CHECKING:
    from training.trainer.train import RunResult

# In this order: what the checkpoint refers to is read after it, and written before it.
FOLDERS = ("checkpoint", "model")
LOG = "log.txt"  # that of the actor is added to what this process writes
TEXTS = ("negatives.jsonl", "events.jsonl", LOG)  # the first is `training.trainer.negatives.FILE`
MOST_DEATHS = 3  # after which a run is not submitted again: it may be what they die of
POLL_SECONDS = 0.5

Files = dict[str, bytes]  # path below a folder -> content


def executor(cluster: Cluster | None) -> Callable[..., RunResult]:
    """What executes a run: a cluster, or this process."""
    return execute_here if cluster is None else partial(execute, cluster=cluster)


# ------------------------------------------------------------ on a node


@dataclass
class News:
    texts: dict[str, tuple[bool, bytes]] = field(default_factory=dict)  # name -> whether from its beginning; content
    folders: dict[str, Files] = field(default_factory=dict)  # in the order of `FOLDERS`
    outcome: RunResult | str | None = None  # how it has ended, or the sentence that says why it failed


class RemoteRun:
    """An actor that executes one run after the other."""

    def __init__(self) -> None:
        configure_process()
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

    def start(self, run: Run, inputs: dict[str, Files], begun: Files, home: Path, is_offline: bool) -> News:
        """Begin with a run whose config has names of its own for ``inputs``: files, or the folders of models.

        ``begun``: the files of the run's folder; none of a new run. ``home``: that of the user, if the nodes share it;
        else it is that of this machine.
        """
        self._scratch = tempfile.TemporaryDirectory(prefix="sbert-lab-")
        place = Path(self._scratch.name)
        if is_offline:
            set_offline(True)
        self.store = RunStore(home if home.is_dir() else home_folder(), place / "runs")
        self.folder = self.store.folder / run.id
        self.folder.mkdir(parents=True)
        _write_files(self.folder, begun)
        paths = {}
        for name, files in inputs.items():
            _write_files(place / name, files)
            paths[name] = str(next((place / name).iterdir()))
        config = _renamed(run.config, lambda name, _: paths.get(name, name))
        write_text(self.folder / "config.json", config.to_json() + "\n")
        write_text(self.folder / "name.txt", run.name)
        now = time.time()
        RunRecord(State.QUEUED, now, started=now).write(self.folder)  # started: from the checkpoint, if there is one
        self._should_end = threading.Event()
        self._times: dict[str, int] = {}  # folder -> when the one that was sent last was made
        self._ends: dict[str, tuple[int, int]] = {}  # text file -> its inode, and how much of it has been sent
        self._outcome: Future[RunResult | str] = ThreadPoolExecutor(1).submit(self._execute)
        return News()

    def poll(self, asked: State | None) -> News:
        """What is new, half a second later; ``asked``: the state in which the run is to end."""
        if asked == State.STOPPED:
            (self.folder / "stop").touch()
        elif asked == State.INTERRUPTED:
            self._should_end.set()
        wait([self._outcome], POLL_SECONDS)
        outcome = self._outcome.result() if self._outcome.done() else None  # before what it has written is read
        folders = {name: files for name in FOLDERS if (files := self._new_folder(name))}
        texts = {name: new for name in TEXTS if (new := self._new_text(name))}
        if outcome is not None:
            self._scratch.cleanup()
        return News(texts, folders, outcome)

    def _execute(self) -> RunResult | str:
        try:
            _note(self.folder, f"executed on {socket.gethostname()}")
            return execute_here(self.store, self.folder.name, should_end=self._should_end.is_set)
        except UserFacingError as error:
            return str(error)
        except BaseException as error:  # noqa: BLE001 - a fault of the program, whose traceback is in the log
            return f"{type(error).__name__}: {first_line(error)}"

    def _new_folder(self, name: str) -> Files | None:
        """The files of a folder if it is another one than before. While the trainer replaces it: at the next poll."""
        with suppress(FileNotFoundError):
            folder = self.folder / name
            made = folder.stat().st_mtime_ns
            if self._times.get(name) != made:
                files = _read_files(folder)
                if folder.stat().st_mtime_ns == made:
                    self._times[name] = made
                    return files
        return None

    def _new_text(self, name: str) -> tuple[bool, bytes] | None:
        """What has been appended to a file; all of it if it is another one than before."""
        with suppress(FileNotFoundError), (self.folder / name).open("rb") as file:
            inode, (known, size) = os.fstat(file.fileno()).st_ino, self._ends.get(name, (0, 0))
            is_new = inode != known
            file.seek(0 if is_new else size)
            added = file.read()
            self._ends[name] = inode, file.tell()
            return (is_new, added) if is_new or added else None
        return None


def _renamed(config: RunConfig, rename: Callable[[str, bool], str]) -> RunConfig:
    """The config with other names of files and models; ``rename`` gets a name, and whether it is a model's."""
    changed = config.to_dict()
    for key in filter(changed.get, ("train_data", "eval_data")):
        parts = DataName.parse_joined(changed[key])
        changed[key] = join_names(tuple(replace(part, name=rename(part.name, False)) for part in parts))
    for key in filter(changed.get, ("base", "teacher")):
        model = ModelName.parse(changed[key])
        changed[key] = str(replace(model, name=rename(model.name, True)))
    return RunConfig(**changed)


# ------------------------------------------------------------ here


def execute(
    store: RunStore,
    run_id: str,
    cluster: Cluster,
    on_event: Callable[[Event], object] = lambda event: None,
    should_end: Callable[[], bool] = lambda: False,
    states: Collection[str] = QUEUED,
) -> RunResult:
    """Execute a run on the cluster, as `sbert_app.services.runs.execution.execute` does here.

    InputError also if there is no cluster, or it is there no more. The run is then failed, and can be resumed.
    """
    with store.lease(run_id, states) as lease:
        submission = _Submission(store, lease, cluster, on_event, should_end)
        for _ in range(MOST_DEATHS + 1):
            try:
                return lease.end(submission.submit(cluster.connect()))
            except Lost as error:
                _note(lease.run.folder, f"lost: {error}")
                reason = error
        raise InputError(f"Ray has lost the run {MOST_DEATHS + 1} times ({reason}): resume it to try again")


@dataclass
class _Submission:
    """One run that is executed elsewhere."""

    store: RunStore
    lease: RunLease
    cluster: Cluster
    on_event: Callable[[Event], object]
    should_end: Callable[[], bool]
    _told: int = 0  # events

    @property
    def folder(self) -> Path:
        return self.lease.run.folder

    def submit(self, ray: Any) -> RunResult:
        """Execute it by one actor, as far as that lives."""
        _note(self.folder, f"submitted to Ray at {self.cluster.address}")
        run, inputs = _packed(self.lease.run, self.store.home)
        begun = _read_files(self.folder, (*FOLDERS, *TEXTS[:-1]))
        with ray_errors():
            actor, is_free = self.cluster.take(RemoteRun), False
            try:
                answer, has_begun = actor.start.remote(run, inputs, begun, self.store.home, is_offline()), False
                while (news := self._wait(ray, answer, has_begun)) is not None:
                    has_begun = True
                    self._write(news)
                    if is_free := news.outcome is not None:
                        return self._result(news.outcome)
                    answer = actor.poll.remote(self._asked())
                return self._given_up()
            finally:
                if is_free:
                    self.cluster.put(actor)
                else:
                    ray.kill(actor)

    def _wait(self, ray: Any, answer: Any, has_begun: bool) -> News | None:
        """The answer of the actor; None if the run is to end and there will be none."""
        silent_since = time.monotonic()
        while not ray.wait([answer], timeout=1)[0]:
            is_silent = time.monotonic() - silent_since > SILENCE_SECONDS
            if self._asked() and (is_silent or not has_begun):
                return None
            self.cluster.check(silent_since)
        news: News = ray.get(answer)
        return news

    def _asked(self) -> State | None:
        """The state in which the run is to end; None while it may go on."""
        if (self.folder / "stop").exists():
            return State.STOPPED
        return State.INTERRUPTED if self.should_end() else None

    def _write(self, news: News) -> None:
        """What is new into the run's folder, the checkpoint last."""
        for name, (is_new, content) in news.texts.items():
            if is_new and name != LOG:
                write_bytes(self.folder / name, content)
            else:
                with (self.folder / name).open("ab") as file:
                    file.write(content)
        for name, files in reversed(news.folders.items()):
            with replace_folder(self.folder / name) as fresh:
                _write_files(fresh, files)
        for event in self.store.events(self.lease.run.id, self._told):
            self.on_event(event)
        self._told = len(self.store.events(self.lease.run.id))

    def _result(self, outcome: RunResult | str) -> RunResult:
        if isinstance(outcome, str):
            raise InputError(outcome)
        if outcome.status == State.FINISHED:
            shutil.rmtree(self.folder / "checkpoint", ignore_errors=True)
        return replace(outcome, path=outcome.path and str(self.folder / "model"))

    def _given_up(self) -> RunResult:
        """The end of a run whose actor has not begun, or does not answer."""
        from training.trainer.train import RunResult

        run = self.store.get(self.lease.run.id)
        _note(self.folder, "ended without an answer of its node")
        path = str(self.folder / "model") if run.has_model else None
        return RunResult(run.id, State.STOPPED, run.progress.step, 0.0, path=path)


def _note(folder: Path, line: str) -> None:
    with (folder / LOG).open("a", encoding="utf-8") as file:
        file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {line}\n")


def _packed(run: Run, home: Path) -> tuple[Run, dict[str, Files]]:
    """The run with names in its config for what only this machine has, and by these names what that is."""
    inputs = dict[str, Files]()

    def pack(name: str, is_model: bool) -> str:
        run_id, path = ModelName(name).run_id, Path(name).expanduser()
        if is_model and run_id is not None:
            path = run_folder(run_id, home)
        if not path.is_file() and not (is_model and path.is_dir()):
            return name
        inputs[f"input-{len(inputs)}"] = _read_files(path.parent, (path.name,))
        return f"input-{len(inputs) - 1}"

    return replace(run, config=_renamed(run.config, pack)), inputs


def _read_files(folder: Path, names: Collection[str] = (".",)) -> Files:
    """All files below these names in a folder."""
    found = (file for name in names for file in [folder / name, *(folder / name).rglob("*")] if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in found}


def _write_files(folder: Path, files: Files) -> None:
    """InputError if a name leads out of the folder."""
    for name, content in files.items():
        target = folder / name
        if not target.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"a file of a run on Ray would lie outside of its folder: {name}")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
