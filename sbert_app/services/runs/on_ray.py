"""Runs on Ray: `execute` does the work of `runs.execution.execute` on any machine of a cluster.

An actor receives the config, the last checkpoint, and the files and models that only this home
folder has. It executes the run in a temporary folder of its node, as ``worker --once`` does. Twice
a second this process fetches what has changed into the folder of the run, which stays the truth:
events and log as they grow, checkpoint and model when they are new. Nothing else is shared. If the
actor dies, alone or with its node, the run is submitted again from the last checkpoint that
arrived, and its curve goes on.
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
# The checkpoint refers to the other files, so it is read first and written last.
FILES = ("checkpoint", "model", "negatives.jsonl", "events.jsonl", LOG)
# The number of dead actors after which the run itself may be the cause.
MOST_DEATHS = 3
POLL_SECONDS = 0.5

# By name: the position of new bytes of a file, and the bytes; 0 and an archive for a folder.
Changes = dict[str, tuple[int, bytes]]


def executor(cluster: RayCluster | None) -> Callable[..., RunResult]:
    """The function that executes a run: on a cluster, or in this process."""
    return execute_here if cluster is None else partial(execute, cluster=cluster)


class RemoteRun:
    """An actor on a node. It executes one run after another."""

    def __init__(self) -> None:
        configure_process()
        # As for a worker on this machine (`jobs.worker`).
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

    def start(
        self, run: Run, inputs: bytes, home: Path, is_offline: bool
    ) -> tuple[Changes, RunResult | None]:
        """Starts a run, whose config names files and models of the archive ``inputs`` (`_packed`).

        ``home`` is used if the nodes share it, or else the home folder of this node.
        """
        self._scratch = tempfile.TemporaryDirectory(prefix="sbert-lab-")
        scratch = Path(self._scratch.name)
        if is_offline:
            set_offline(True)
        _unpack(inputs, scratch)
        if not home.is_dir():
            home = home_folder()
        self.store = RunStore(home, scratch / "runs")
        self.folder = self.store.folder / run.id
        self.folder.mkdir(parents=True, exist_ok=True)

        def unpacked(name: str) -> str:
            """The path of a file of the archive; a name of anything else stays as it is."""
            path = scratch / name
            return str(path) if path.exists() else name

        config = _renamed(run.config, unpacked, unpacked)
        write_text(self.folder / "config.json", config.to_json() + "\n")
        write_text(self.folder / "name.txt", run.name)
        # With a start time, the run continues from its checkpoint, if there is one.
        RunRecord(State.QUEUED, time.time(), started=time.time()).write(self.folder)
        self._should_end = threading.Event()
        # What was sent last, by name: the inode and the size of a file, or the modification time of
        # a folder and 0.
        self._sent = dict[str, tuple[int, int]]()
        _note(self.folder, f"executed on {socket.gethostname()}")
        self._outcome: Future[RunResult] = ThreadPoolExecutor(1).submit(
            execute_here, self.store, run.id, should_end=self._should_end.is_set
        )
        return self.poll(end=None)

    def poll(self, end: State | None) -> tuple[Changes, RunResult | None]:
        """The changes of the next half second, and after the last of them the result or the error of the run.

        With ``end`` the run is asked to end in this state.
        """
        if end == State.STOPPED:
            (self.folder / "stop").touch()
        elif end == State.INTERRUPTED:
            self._should_end.set()
        wait([self._outcome], POLL_SECONDS)
        # Asked before the files are read, so that what the run writes at its end is not missed.
        has_ended = self._outcome.done()
        changes = {}
        for name in FILES:
            change = self._change(self.folder / name)
            if change is not None:
                changes[name] = change
        # The result has a poll of its own: if it is an error, changes would be lost with it.
        if changes or not has_ended:
            return changes, None
        self._scratch.cleanup()
        return {}, self._outcome.result()

    def _change(self, path: Path) -> tuple[int, bytes] | None:
        """The change of a file or folder since the last call: a position and bytes.

        The bytes continue a file at the position; at 0 they are the whole file, or a ZIP archive of
        the folder. None if nothing has changed, or the trainer is just replacing the folder.
        """
        sent_version, sent_size = self._sent.get(path.name, (0, 0))
        with suppress(FileNotFoundError):
            if path.is_dir():
                modified = path.stat().st_mtime_ns
                if modified == sent_version:
                    return None
                archive = _pack({path: "."})
                if path.stat().st_mtime_ns != modified:
                    return None
                self._sent[path.name] = (modified, 0)
                return 0, archive
            with path.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                # A file with another inode has replaced the one that was sent.
                is_new = inode != sent_version
                start = file.seek(0 if is_new else sent_size)
                content = file.read()
            self._sent[path.name] = (inode, start + len(content))
            if content or is_new:
                return start, content
        return None


def execute(
    store: RunStore,
    run_id: str,
    cluster: RayCluster,
    on_event: Callable[[Event], object] = lambda event: None,
    should_end: Callable[[], bool] = lambda: False,
    states: Collection[str] = QUEUED,
) -> RunResult:
    """Executes a run that is in one of ``states`` on the cluster, from its checkpoint if it has one.

    When ``should_end`` returns True, the run writes a checkpoint and is interrupted. Raises RunError
    if the run is in another state, or another process works on it; InputError if its config, base
    or data cannot be used, or the cluster cannot be reached or is gone. The run has then failed, and
    can be resumed.
    """
    with store.lease(run_id, states) as lease:
        for _ in range(MOST_DEATHS + 1):
            try:
                return lease.end(_submit(store, lease.run, cluster, on_event, should_end))
            except ActorLostError as error:
                _note(lease.run.folder, f"lost: {error}")
                reason = error
        raise InputError(
            f"Ray has lost the run {MOST_DEATHS + 1} times ({reason}): resume it to try again"
        )


def _submit(
    store: RunStore,
    run: Run,
    cluster: RayCluster,
    on_event: Callable[[Event], object],
    should_end: Callable[[], bool],
) -> RunResult:
    """Executes a run on one actor. Raises ActorLostError if the actor dies."""
    # The import of torch takes seconds.
    from training.trainer.train import RunResult

    def requested_end() -> State | None:
        """The state in which the run has to end; None while it may continue."""
        if (run.folder / "stop").exists():
            return State.STOPPED
        return State.INTERRUPTED if should_end() else None

    ray = cluster.connect()
    # Whether the cluster had room for the run.
    has_begun = False
    result = None
    # The events of an earlier start were reported then.
    num_reported = len(store.events(run.id))
    _note(run.folder, f"submitted to Ray at {cluster.address}")
    with ray_errors():
        actor = cluster.take(RemoteRun)
        try:
            packed_run, inputs = _packed(run, store.home)
            answer = actor.start.remote(packed_run, inputs, store.home, is_offline())
            while result is None:
                while not ray.wait([answer], timeout=1)[0]:
                    cluster.check()
                    if not has_begun and requested_end():
                        _note(run.folder, "ended before there was room for it")
                        step = store.get(run.id).progress.step
                        path = str(run.folder / "model") if run.has_model else None
                        # Without the file ``stop``, `RunLease.end` makes the run interrupted.
                        return RunResult(run.id, State.STOPPED, step, seconds=0.0, path=path)
                changes, result = ray.get(answer)
                has_begun = True
                # The checkpoint, the first of `FILES`, is written last, as it refers to the others.
                for name, (start, content) in reversed(changes.items()):
                    _write(run.folder / name, start, content)
                for event in store.events(run.id, num_reported):
                    on_event(event)
                # Counted anew, as a resumed run may have withdrawn events.
                num_reported = len(store.events(run.id))
                if result is None:
                    answer = actor.poll.remote(requested_end())
            # The next run may take this actor.
            cluster.idle.append(actor)
        finally:
            # An actor that has not sent a result must not go on with the run.
            if result is None:
                ray.kill(actor)
    # A finished run has removed its checkpoint on the node. The changes do not include removals.
    if result.status == State.FINISHED:
        shutil.rmtree(run.folder / "checkpoint", ignore_errors=True)
    if result.path is None:
        return result
    # The result has the path on the node.
    return replace(result, path=str(run.folder / "model"))


def _write(path: Path, start: int, content: bytes) -> None:
    """Writes a change of a file or folder of `FILES`, as `RemoteRun.poll` returns it.

    With a ``start`` above 0, ``content`` is appended to the file. The log of the actor is always
    appended, to the log of this process.
    """
    # Of `FILES`, only the folders have names without an ending.
    is_folder = not path.suffix
    if is_folder:
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
    """The run with a config that names files of an archive, and the archive.

    The archive has the files of the run's folder (`FILES`, without the log), and the local files
    and models that the config names.
    """
    # The names in the archive, by path.
    packed: dict[Path, str] = {}
    for name in FILES:
        path = run.folder / name
        # The log stays here: `_write` appends the lines of the actor to it.
        if name != LOG and path.exists():
            packed[path] = f"runs/{run.id}/{name}"

    def add(path: Path) -> str:
        return packed.setdefault(path, f"inputs/{len(packed)}/{path.name}")

    def pack_data(name: str) -> str:
        path = Path(name).expanduser()
        return add(path) if path.is_file() else name

    def pack_model(name: str) -> str:
        run_id = ModelName(name).run_id
        # `run_folder` returns the folder of the run's model.
        path = Path(name).expanduser() if run_id is None else run_folder(run_id, home)
        return add(path) if path.exists() else name

    config = _renamed(run.config, pack_data, pack_model)
    return replace(run, config=config), _pack(packed)


def _renamed(
    config: RunConfig, rename_data: Callable[[str], str], rename_model: Callable[[str], str]
) -> RunConfig:
    """The config with other names of data and models.

    ``rename_data`` and ``rename_model`` take and return names without their settings.
    """
    names = {}
    for key in ("train_data", "eval_data"):
        data = getattr(config, key)
        if data:
            parts = []
            for part in DataName.parse_joined(data):
                parts.append(str(replace(part, name=rename_data(part.name))))
            names[key] = "+".join(parts)
    for key in ("base", "teacher"):
        name = getattr(config, key)
        if name:
            model = ModelName.parse(name)
            names[key] = str(replace(model, name=rename_model(model.name)))
    return config.replace(**names)


def _pack(paths: Mapping[Path, str]) -> bytes:
    """A ZIP archive of files and folders under other names. Links are followed."""
    buffer = io.BytesIO()
    # A ZIP file cannot store dates before 1980. With strict timestamps, such a file is an error.
    with ZipFile(buffer, "w", strict_timestamps=False) as archive:
        for path, name in paths.items():
            if path.is_file():
                archive.write(path, name)
            # A path that is a file has nothing to walk through.
            for folder, _, files in os.walk(path, followlinks=True):
                for file_name in files:
                    file = Path(folder, file_name)
                    archive.write(file, PurePosixPath(name, file.relative_to(path)))
    return buffer.getvalue()


def _unpack(archive: bytes, folder: Path) -> None:
    """Writes the files of an archive into a folder, and never outside it."""
    with ZipFile(io.BytesIO(archive)) as files:
        files.extractall(folder)
