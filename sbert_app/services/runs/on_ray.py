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

import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbert_app.process import configure_process
from sbert_app.services.background.state import State
from sbert_app.services.runs.events import Event, EventReader
from sbert_app.services.runs.execution import PROCESS_ENDED
from sbert_app.services.runs.execution import execute as execute_here
from sbert_app.services.runs.record import QUEUED, RunRecord
from sbert_app.services.runs.store import RunLease, RunStore
from sbert_app.settings import Settings
from training.atomic import replace_folder, write_bytes, write_text
from training.errors import InputError, UserFacingError, first_line
from training.names import DataName, ModelName, join_names
from training.sources.home import home_folder, is_offline, set_offline
from training.sources.resolve import find_run
from training.trainer.config import RunConfig

if TYPE_CHECKING:
    from training.trainer.train import RunResult

# In this order: what the checkpoint refers to is read after it, and written before it.
FOLDERS = ("checkpoint", "model")
LOG = "log.txt"  # that of the actor is added to what this process writes
TEXTS = ("negatives.jsonl", "events.jsonl", LOG)  # the first is `training.trainer.negatives.FILE`
DATA, MODELS = ("train_data", "eval_data"), ("base", "teacher")
MOST_DEATHS = 3  # after which a run is not submitted again: it may be what they die of
POLL_SECONDS = 0.5
SILENCE_SECONDS = 30.0  # without an answer, after which a stopped run is given up, and a cluster that is gone

Files = dict[str, bytes]  # path below a folder -> content


MISSING = "Ray is not installed: pip install 'sbert-lab[ray]'"
CONNECT_SECONDS = 5.0

_connecting = threading.Lock()


class Lost(Exception):  # noqa: N818 - reads as a state
    """The actor of a run has died, alone or with its node."""


@dataclass(frozen=True)
class Cluster:
    """Where Ray runs, and what it gives each run.

    Args:
        address: auto, ray://host:10001; local starts Ray on this machine.
        gpus: of a run; None is one if the cluster has any.
        cpus: of a run; None is one beside a GPU, else as many as the smallest node has.
    """

    address: str
    gpus: float | None = None
    cpus: float | None = None
    _idle: list[Any] = field(default_factory=list)  # actors that have imported what a run needs

    def connect(self) -> Any:
        """The module ``ray``, connected. InputError if it is missing, or there is no cluster at the address."""
        return connect(self.address)

    def take(self) -> Any:
        """An actor for a run: one that is idle, or a new one, which waits for room."""
        ray = self.connect()
        try:
            return self._idle.pop()
        except IndexError:
            wanted = self.resources()
        options = {"num_cpus": wanted["CPU"], "num_gpus": wanted["GPU"], "max_restarts": 0, "max_task_retries": 0}
        return ray.remote(RemoteRun).options(**options).remote()

    def put(self, actor: Any) -> None:
        """Keep an actor for the next run. It holds its room until then."""
        self._idle.append(actor)

    def release(self, is_over: bool) -> None:
        """No run waits: give back the room of idle actors; if none is under way either, end the connection."""
        while self._idle:
            actor = self._idle.pop()
            with suppress(InputError), _ray_errors():
                self.connect().kill(actor)
        if is_over:
            disconnect()

    def resources(self) -> dict[str, float]:
        """What a run takes, as Ray names it: CPU, GPU. InputError as `connect`."""
        nodes = self._nodes()
        gpus = self.gpus if self.gpus is not None else float(any(node.get("GPU") for node in nodes))
        least = 1.0 if gpus else min((node["CPU"] for node in nodes if node.get("CPU")), default=1.0)
        return {"CPU": least if self.cpus is None else self.cpus, "GPU": gpus}

    def room(self) -> int:
        """How many runs it can execute at once, at least one. InputError as `connect`."""
        wanted = {name: amount for name, amount in self.resources().items() if amount}
        each = (min(node.get(name, 0) // amount for name, amount in wanted.items()) for node in self._nodes() if wanted)
        return max(1, int(sum(each)))

    def _nodes(self) -> list[dict[str, float]]:
        return [node["Resources"] for node in self.connect().nodes() if node["Alive"]]


def cluster_of(settings: Settings) -> Cluster | None:
    """The cluster that the settings name; None if runs are executed here."""
    return Cluster(settings.ray, settings.ray_gpus, settings.ray_cpus) if settings.ray else None


def executor(cluster: Cluster | None) -> Callable[..., RunResult]:
    """What executes a run: a cluster, or this process."""
    return execute_here if cluster is None else partial(execute, cluster=cluster)


def connect(address: str) -> Any:
    """The module ``ray``, connected to a cluster. InputError if Ray is missing, or there is no cluster."""
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")  # no call starts a Ray by itself
    try:
        import ray
        from ray._private import worker
    except ImportError as error:
        raise InputError(MISSING) from error
    with _connecting:
        if ray.is_initialized():
            return ray
        check_listening(address)
        worker.print_to_stdstream = lambda *_, **__: None  # of the end of a node it prints a page
        handler = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise InputError(f"there is no Ray cluster at {address}: {first_line(error)}") from error
        finally:  # Ray's own would end the process at once
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, handler)
    return ray


def disconnect() -> None:
    """End the connection if there is one, and with it a Ray that `connect` has started."""
    if (ray := sys.modules.get("ray")) is not None and ray.is_initialized():
        ray.shutdown()


def check_listening(address: str) -> None:
    """InputError at once if nothing answers at the address of a cluster. Ray itself would try for minutes.

    "auto" is $RAY_ADDRESS, else the cluster that was started last on this machine, which may have ended since.
    """
    place = address
    if address == "auto":
        last = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir())) / "ray" / "ray_current_cluster"
        place = os.environ.get("RAY_ADDRESS") or (last.read_text(encoding="utf-8").strip() if last.exists() else "")
    host, _, port = place.removeprefix("ray://").rpartition(":")
    if not port.isdecimal():  # "local", or a form that Ray judges
        return
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise InputError(f"there is no Ray cluster at {address}: nothing answers at {host}:{port}") from error


# ------------------------------------------------------------ on a node


@dataclass(frozen=True)
class Start:
    """What an actor gets. ``begun`` are the files of the run's folder if it has been worked on before."""

    run_id: str
    config: RunConfig
    name: str
    inputs: dict[str, Files]  # a name in the config -> a file, or the folder of a model
    begun: Files | None
    home: Path
    is_offline: bool


@dataclass
class News:
    """What is new since the last question."""

    texts: dict[str, tuple[bool, bytes]] = field(default_factory=dict)  # name -> whether from its beginning; content
    folders: dict[str, Files] = field(default_factory=dict)  # in the order of `FOLDERS`
    record: RunRecord | None = None  # as it has ended
    result: RunResult | None = None
    error: str | None = None  # in place of a result


class RemoteRun:
    """An actor that executes one run after the other."""

    def __init__(self) -> None:
        configure_process()
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

    def start(self, start: Start) -> News:
        """Begin with a run."""
        self._scratch = tempfile.TemporaryDirectory(prefix="sbert-lab-")
        place = Path(self._scratch.name)
        # The home folder that the user has named, where the nodes share it; else that of this machine.
        home = start.home if start.home.is_dir() else home_folder()
        if start.is_offline:
            set_offline(True)
        self.store = RunStore(home, place / "runs")
        self.folder = self.store.folder / start.run_id
        self.folder.mkdir(parents=True)
        _write_files(self.folder, start.begun or {})
        paths = {}
        for name, files in start.inputs.items():
            _write_files(place / name, files)
            paths[name] = str(next((place / name).iterdir()))
        config = _renamed(start.config, lambda name, _: paths.get(name, name))
        write_text(self.folder / "config.json", config.to_json() + "\n")
        write_text(self.folder / "name.txt", start.name)
        now = time.time()
        RunRecord(State.QUEUED, now, started=None if start.begun is None else now).write(self.folder)
        self._should_end = threading.Event()
        self._ended = News()
        self._sent: dict[str, tuple[int, int]] = {}  # name -> inode, and the size or the time of what was sent last
        self._thread = threading.Thread(target=self._execute, name=start.run_id, daemon=True)
        self._thread.start()
        return News()

    def poll(self, is_stopped: bool, should_end: bool) -> News:
        """What is new, half a second later; ``is_stopped`` by a user, ``should_end`` to be resumed elsewhere."""
        if is_stopped:
            (self.folder / "stop").touch()
        if should_end:
            self._should_end.set()
        self._thread.join(POLL_SECONDS)
        has_ended = not self._thread.is_alive()
        news = replace(self._ended) if has_ended else News()
        news.folders = {name: files for name in FOLDERS if (files := self._new_folder(name))}
        news.texts = {name: new for name in TEXTS if (new := self._new_text(name))}
        if has_ended:
            news.record = RunRecord.read(self.folder)
            self._scratch.cleanup()
        return news

    def _execute(self) -> None:
        try:
            _note(self.folder, f"executed on {socket.gethostname()}")
            self._ended.result = execute_here(self.store, self.folder.name, should_end=self._should_end.is_set)
        except UserFacingError as error:
            self._ended.error = str(error)
        except BaseException as error:  # noqa: BLE001 - a fault of the program, whose traceback is in the log
            self._ended.error = f"{type(error).__name__}: {first_line(error)}"

    def _new_folder(self, name: str) -> Files | None:
        """The files of a folder if it is another one than before; the trainer replaces it, at any moment."""
        while (folder := self.folder / name).exists():
            try:
                version = _version(folder)
                if self._sent.get(name) == version:
                    return None
                files = _read_files(folder)
                if _version(folder) == version:
                    self._sent[name] = version
                    return files
            except FileNotFoundError:  # replaced meanwhile
                continue
        return None

    def _new_text(self, name: str) -> tuple[bool, bytes] | None:
        """What has been appended to a file; all of it if it is another one than before."""
        if not (file := self.folder / name).exists():
            return None
        with file.open("rb") as opened:
            inode, (known, size) = os.fstat(opened.fileno()).st_ino, self._sent.get(name, (0, 0))
            is_new = inode != known
            opened.seek(0 if is_new else size)
            added = opened.read()
            self._sent[name] = inode, opened.tell()
        return (is_new, added) if is_new or added else None


def _version(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_ino, status.st_mtime_ns


def _renamed(config: RunConfig, rename: Callable[[str, bool], str]) -> RunConfig:
    """The config with other names of files and models; ``rename`` gets a name, and whether it is a model's."""
    changed = config.to_dict()
    for key in filter(changed.get, DATA):
        parts = DataName.parse_joined(changed[key])
        changed[key] = join_names(tuple(replace(part, name=rename(part.name, False)) for part in parts))
    for key in filter(changed.get, MODELS):
        model = ModelName.parse(changed[key])
        changed[key] = str(replace(model, name=rename(model.name, True)))
    return RunConfig.from_dict(changed)


# ------------------------------------------------------------ here


def execute(
    store: RunStore,
    run_id: str,
    cluster: Cluster,
    on_event: Callable[[Event], object] = lambda event: None,
    should_end: Callable[[], bool] = lambda: False,
    states: Collection[str] = QUEUED,
) -> RunResult:
    """Execute a run on the cluster.

    Args as `sbert_app.services.runs.execution.execute`, which says what it raises. Also:

    Raises:
        InputError: there is no cluster, or it is there no more. The run is then failed, and can be resumed.
    """
    with store.lease(run_id, states) as lease:
        return _Submission(store, lease, cluster, on_event, should_end).execute()


class _Submission:
    """One run that is executed elsewhere."""

    def __init__(
        self,
        store: RunStore,
        lease: RunLease,
        cluster: Cluster,
        on_event: Callable[[Event], object],
        should_end: Callable[[], bool],
    ) -> None:
        self.store, self.lease, self.cluster = store, lease, cluster
        self.folder = lease.run.folder
        self._on_event, self._should_end = on_event, should_end
        self._reader = EventReader(self.folder / "events.jsonl")
        self._told = 0  # events

    def execute(self) -> RunResult:
        ray = self.cluster.connect()
        for deaths in range(MOST_DEATHS + 1):
            try:
                return self._submit(ray, is_begun=self.lease.resume or deaths > 0)
            except Lost as error:
                _note(self.folder, f"lost: {error}")
                reason = str(error)
        raise InputError(f"Ray has lost the run {MOST_DEATHS + 1} times ({reason}): resume it to try again")

    def _submit(self, ray: Any, is_begun: bool) -> RunResult:
        """Execute it by one actor, as far as that lives."""
        run = self.store.get(self.lease.run.id)
        _note(self.folder, f"submitted to Ray at {self.cluster.address}")
        begun = _read_files(self.folder, (*FOLDERS, *TEXTS[:-1])) if is_begun else None
        config, inputs = _packed(run.config, self.store.home)
        start = Start(run.id, config, run.name, inputs, begun, self.store.home, is_offline())
        with _ray_errors():
            actor = self.cluster.take()
            answer, has_begun, is_free = actor.start.remote(start), False, False
            try:
                while (news := self._wait(ray, answer, has_begun)) is not None:
                    has_begun = True
                    self._write(news)
                    if is_free := news.record is not None:
                        return self._ended(news)
                    asked = self._asked()
                    answer = actor.poll.remote(asked == State.STOPPED, asked == State.INTERRUPTED)
                return self._given_up(self._asked() or State.INTERRUPTED)
            finally:
                if is_free:
                    self.cluster.put(actor)
                else:
                    ray.kill(actor)

    def _wait(self, ray: Any, answer: Any, has_begun: bool) -> News | None:
        """The answer of the actor; None if the run is to end and there will be none."""
        silent_since = time.monotonic()
        while not ray.wait([answer], timeout=1)[0]:
            silence = time.monotonic() - silent_since
            if self._asked() and (not has_begun or silence > SILENCE_SECONDS):
                return None
            if silence > SILENCE_SECONDS:
                self._check(ray)
        news: News = ray.get(answer)
        return news

    def _check(self, ray: Any) -> None:
        """InputError if nothing answers where Ray is. Ray itself would end this process after a minute."""
        try:
            address = self.cluster.address
            check_listening(address if "://" in address else str(ray.get_runtime_context().gcs_address))
        except InputError as error:
            raise InputError(f"Ray does not answer any more: {error}; resume the run when it is back") from error

    def _asked(self) -> State | None:
        """The state in which the run is to end; None while it may go on."""
        if (self.folder / "stop").exists():
            return State.STOPPED
        return State.INTERRUPTED if self._should_end() else None

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
        events = self._reader.read()
        for event in events[self._told if self._told <= len(events) else 0 :]:
            self._on_event(event)
        self._told = len(events)

    def _ended(self, news: News) -> RunResult:
        if news.error is not None or news.result is None or news.record is None:
            raise InputError(news.error)
        if news.record.state == State.FINISHED:
            shutil.rmtree(self.folder / "checkpoint", ignore_errors=True)
        self.lease.state, self.lease.reason = news.record.state, news.record.reason
        return replace(news.result, path=news.result.path and str(self.folder / "model"))

    def _given_up(self, state: State) -> RunResult:
        """The end of a run whose actor has not begun, or does not answer."""
        from training.trainer.train import RunResult

        reason = PROCESS_ENDED if state == State.INTERRUPTED else None
        self.lease.state, self.lease.reason = state, reason
        _note(self.folder, state)
        run = self.store.get(self.lease.run.id)
        path = str(self.folder / "model") if run.has_model else None
        return RunResult(run.id, "stopped", run.progress.step, 0.0, path=path, reason=reason)


def _note(folder: Path, line: str) -> None:
    """Into the log of a run."""
    with (folder / LOG).open("a", encoding="utf-8") as file:
        file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {line}\n")


@contextmanager
def _ray_errors() -> Iterator[None]:
    """Turn what Ray raises into `Lost`, if the actor has died, and sentences."""
    from ray.exceptions import RayActorError, RayError, RayTaskError

    try:
        yield
    except (RayError, ConnectionError) as error:
        said = str(error).strip().splitlines()
        if isinstance(error, RayTaskError) or "creation task" in str(error):  # what `RemoteRun` raised comes last
            raise InputError(f"the run cannot be executed on a node of Ray: {said[-1][:200]}") from error
        if isinstance(error, RayActorError):
            raise Lost(first_line(error)) from error
        raise InputError(f"Ray cannot go on: {first_line(error)}; resume the run when it is back") from error


def _packed(config: RunConfig, home: Path) -> tuple[RunConfig, dict[str, Files]]:
    """The config with names of its own for what only this machine has, and what that is."""
    inputs = dict[str, Files]()

    def pack(name: str, is_model: bool) -> str:
        run_id, path = ModelName(name).run_id, Path(name).expanduser()
        if is_model and run_id is not None:
            path = home / "runs" / find_run(run_id, home) / "model"
        if not path.is_file() and not (is_model and path.is_dir()):
            return name
        inputs[f"input-{len(inputs)}"] = _read_files(path.parent, (path.name,))
        return f"input-{len(inputs) - 1}"

    return _renamed(config, pack), inputs


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
