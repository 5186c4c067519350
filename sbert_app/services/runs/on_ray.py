"""Runs on Ray: `execute` does the work of `runs.execution.execute` on any machine of a cluster.

An actor gets the config, its files and models that only this home folder has, and the last checkpoint. It executes the
run in a temporary folder of its node, as ``worker --once`` does. Twice a second this process fetches its news into the
run's folder, which stays the truth: events and log as they grow, checkpoint and model when they are new. Nothing else
is shared. If the actor dies, alone or with its node, the run is submitted again from the checkpoint that has arrived,
and its curve goes on.
"""

from __future__ import annotations

import io
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from zipfile import ZipFile

from sbert_app.process import configure_process
from sbert_app.services.background.ray_cluster import ActorLostError, RayCluster, ray_errors
from sbert_app.services.background.watch import State
from sbert_app.services.runs.execution import execute as execute_here
from sbert_app.services.runs.record import QUEUED, Event, Run, RunRecord
from sbert_app.services.runs.store import RunStore
from training.atomic import replace_folder, write_bytes, write_text
from training.errors import InputError
from training.names import DataName, ModelName
from training.sources.home import home_folder, is_offline, set_offline
from training.sources.resolve import run_folder
from training.trainer.config import RunConfig

if TYPE_CHECKING:
    from training.trainer.train import RunResult

LOG = "log.txt"
# The checkpoint refers to what follows, so it is read first and written last.
FILES = ("checkpoint", "model", "negatives.jsonl", "events.jsonl", LOG)
# A run that has lost so many actors may be the cause.
MOST_DEATHS = 3
POLL_SECONDS = 0.5

# The new bytes of files, and of folders as archives, with their start, by name; and at last the end of the run.
News = tuple[dict[str, tuple[int, bytes]], "RunResult | None"]


def executor(cluster: RayCluster | None) -> Callable[..., RunResult]:
    """The function that executes a run: on a cluster, or in this process."""
    return execute_here if cluster is None else partial(execute, cluster=cluster)


class RemoteRun:
    """An actor on a node that executes one run after the other."""

    def __init__(self) -> None:
        configure_process()
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

    def start(self, run: Run, luggage: bytes, home: Path, is_offline: bool) -> News:
        """Begin a run, whose config names files and models of ``luggage`` (`_packed`).

        The home folder is that of the user, if the nodes share it, or else that of this machine.
        """
        self._scratch = tempfile.TemporaryDirectory(prefix="sbert-lab-")
        scratch = Path(self._scratch.name)
        if is_offline:
            set_offline(True)
        _unpack(luggage, scratch)
        self.store = RunStore(home if home.is_dir() else home_folder(), scratch / "runs")
        self.folder = self.store.folder / run.id
        self.folder.mkdir(parents=True, exist_ok=True)
        config = _renamed(run.config, lambda name, _: str(scratch / name) if (scratch / name).exists() else name)
        write_text(self.folder / "config.json", config.to_json() + "\n")
        write_text(self.folder / "name.txt", run.name)
        # A run that has a time of its start continues from its checkpoint, if there is one.
        RunRecord(State.QUEUED, time.time(), started=time.time()).write(self.folder)
        self._should_end = threading.Event()
        # The inode of each file, or the time of a folder, and the size of the file, when they were sent last.
        self._sent = dict[str, tuple[int, int]]()
        _note(self.folder, f"executed on {socket.gethostname()}")
        self._outcome: Future[RunResult] = ThreadPoolExecutor(1).submit(
            execute_here, self.store, run.id, should_end=self._should_end.is_set
        )
        return self.poll(None)

    def poll(self, end: State | None) -> News:
        """The news of half a second, or the error of the run, which is to end in the state ``end`` if there is one."""
        if end == State.STOPPED:
            (self.folder / "stop").touch()
        elif end == State.INTERRUPTED:
            self._should_end.set()
        wait([self._outcome], POLL_SECONDS)
        # This comes first, so that everything that the run has written is read after it.
        has_ended = self._outcome.done()
        changes = {name: change for name in FILES if (change := self._change(self.folder / name))}
        if changes or not has_ended:
            return changes, None
        self._scratch.cleanup()
        return {}, self._outcome.result()

    def _change(self, path: Path) -> tuple[int, bytes] | None:
        """The news of a file or folder, unless the trainer is replacing the folder."""
        before, size = self._sent.get(path.name, (0, 0))
        with suppress(FileNotFoundError):
            if path.is_dir():
                time_ns = path.stat().st_mtime_ns
                archive = b"" if time_ns == before else _pack({path: "."})
                if archive and path.stat().st_mtime_ns == time_ns:
                    self._sent[path.name] = time_ns, 0
                    return 0, archive
                return None
            with path.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                start = file.seek(size if inode == before else 0)
                content = file.read()
            self._sent[path.name] = inode, start + len(content)
            return (start, content) if content or inode != before else None
        return None


def execute(
    store: RunStore,
    run_id: str,
    cluster: RayCluster,
    on_event: Callable[[Event], object] = lambda event: None,
    should_end: Callable[[], bool] = lambda: False,
    states: Collection[str] = QUEUED,
) -> RunResult:
    """Execute a run on the cluster, as `runs.execution.execute` does in this process.

    InputError also if there is no cluster, or it is gone. The run has then failed, and can be resumed.
    """
    with store.lease(run_id, states) as lease:
        for _ in range(MOST_DEATHS + 1):
            try:
                return lease.end(_submit(store, lease.run, cluster, on_event, should_end))
            except ActorLostError as error:
                _note(lease.run.folder, f"lost: {error}")
                reason = error
        raise InputError(f"Ray has lost the run {MOST_DEATHS + 1} times ({reason}): resume it to try again")


def _submit(
    store: RunStore, run: Run, cluster: RayCluster, on_event: Callable[[Event], object], should_end: Callable[[], bool]
) -> RunResult:
    """Execute a run by one actor, as long as that lives."""
    from training.trainer.train import RunResult

    def end() -> State | None:
        """The state in which the run is to end; None while it may go on."""
        if (run.folder / "stop").exists():
            return State.STOPPED
        return State.INTERRUPTED if should_end() else None

    ray = cluster.connect()
    has_begun = False
    result = None
    reported = len(store.events(run.id))
    _note(run.folder, f"submitted to Ray at {cluster.address}")
    with ray_errors():
        actor = cluster.take(RemoteRun)
        try:
            answer = actor.start.remote(*_packed(run, store.home), store.home, is_offline())
            while result is None:
                while not ray.wait([answer], timeout=1)[0]:
                    cluster.check()
                    if not has_begun and end():
                        _note(run.folder, "ended before there was room for it")
                        path = str(run.folder / "model") if run.has_model else None
                        return RunResult(run.id, State.STOPPED, store.get(run.id).progress.step, 0.0, path=path)
                (changes, result), has_begun = ray.get(answer), True
                for name, (start, content) in reversed(changes.items()):
                    _write(run.folder / name, start, content)
                for event in store.events(run.id, reported):
                    on_event(event)
                reported = len(store.events(run.id))
                answer = actor.poll.remote(end()) if result is None else None
            cluster.idle.append(actor)
        finally:
            if result is None:
                ray.kill(actor)
    if result.status == State.FINISHED:
        shutil.rmtree(run.folder / "checkpoint", ignore_errors=True)
    return replace(result, path=result.path and str(run.folder / "model"))


def _write(path: Path, start: int, content: bytes) -> None:
    """Write the news of a file or folder. The log of the actor is added to that of this process."""
    if not path.suffix:
        with replace_folder(path) as fresh:
            _unpack(content, fresh)
    elif start or path.name == LOG:
        with path.open("ab") as file:
            file.write(content)
    else:
        write_bytes(path, content)


def _note(folder: Path, line: str) -> None:
    with (folder / LOG).open("a", encoding="utf-8") as file:
        file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {line}\n")


def _packed(run: Run, home: Path) -> tuple[Run, bytes]:
    """A run whose config has the names in an archive, and this archive of its folder and of local files and models."""
    paths = (run.folder / name for name in FILES[:-1])
    packed = {path: f"runs/{run.id}/{path.name}" for path in paths if path.exists()}

    def pack(name: str, is_model: bool) -> str:
        run_id = ModelName(name).run_id
        path = Path(name).expanduser()
        if is_model and run_id is not None:
            path = run_folder(run_id, home)
        if path.is_file() or (is_model and path.is_dir()):
            name = packed.setdefault(path, f"inputs/{len(packed)}/{path.name}")
        return name

    config = _renamed(run.config, pack)
    return replace(run, config=config), _pack(packed)


def _renamed(config: RunConfig, rename: Callable[[str, bool], str]) -> RunConfig:
    """The config with other names of files and models, by a function of a name and whether it is a model's."""
    names = {}
    for key in filter(config.to_dict().get, ("train_data", "eval_data")):
        parts = DataName.parse_joined(getattr(config, key))
        names[key] = "+".join(str(replace(part, name=rename(part.name, False))) for part in parts)
    for key in filter(config.to_dict().get, ("base", "teacher")):
        model = ModelName.parse(getattr(config, key))
        names[key] = str(replace(model, name=rename(model.name, True)))
    return config.replace(**names)


def _pack(paths: Mapping[Path, str]) -> bytes:
    """A ZIP archive of files and folders under other names, with what their links lead to."""
    archive = io.BytesIO()
    with ZipFile(archive, "w", strict_timestamps=False) as files:
        for path, name in paths.items():
            inside = [Path(folder, file) for folder, _, names in os.walk(path, followlinks=True) for file in names]
            for file in inside or [path]:
                files.write(file, PurePosixPath(name, file.relative_to(path)))
    return archive.getvalue()


def _unpack(archive: bytes, folder: Path) -> None:
    """Write the files of an archive into a folder and never outside it."""
    with ZipFile(io.BytesIO(archive)) as files:
        files.extractall(folder)
