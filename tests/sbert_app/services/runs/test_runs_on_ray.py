"""Runs on Ray: what travels to a node, what comes back, and what becomes of a run whose node, or whose Ray, is gone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT, linked_home
from waiting import wait_until

from sbert_app.cli import main
from sbert_app.services.background.ray_cluster import Lost, RayCluster
from sbert_app.services.background.watch import RESUMABLE, State
from sbert_app.services.jobs import worker as worker_module
from sbert_app.services.jobs.queue import RunQueue, has_worker
from sbert_app.services.jobs.worker import Worker
from sbert_app.services.runs import on_ray
from sbert_app.services.runs.on_ray import RemoteRun, execute
from sbert_app.services.runs.record import Run
from sbert_app.services.runs.store import RunStore
from training.errors import InputError
from training.trainer.train import RunResult

# A node that does not answer is dead after a second and a half; by default after half a minute.
HEALTH = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 3}


@pytest.fixture
def store(home: Path, tmp_path: Path) -> RunStore:
    """A home folder that has the models and data of the tests' one."""
    return RunStore(linked_home(home, tmp_path / "home"))


def travel(actor: RemoteRun, store: RunStore, folder: Path, *begin: Any) -> RunResult:
    """Execute a run by an actor, whose news are written into a folder."""
    changes, result = actor.start(*begin, store.home, True)
    while result is None:
        for name, (start, content) in reversed(changes.items()):
            on_ray._write(folder / name, start, content)
        changes, result = actor.poll(None)
    return result


def test_files_and_runs_travel_by_their_content(store: RunStore, tiny: Any, tmp_path: Path):
    actor, base = RemoteRun(), store.create(tiny(), queue=False)
    travel(actor, store, base.folder, *on_ray._packed(base, store.home))
    run = store.create(tiny(base=f"run:{base.id}", teacher=None), queue=False)
    luggage = on_ray._packed(run, store.home)
    (tmp_path / "pairs.csv").unlink()
    (base.folder / "model").rename(tmp_path / "elsewhere")
    result = travel(actor, store, run.folder, *luggage)  # the same actor takes the next run
    assert (result.status, result.steps) == (State.FINISHED, 20)
    assert (run.folder / "model" / "modules.json").exists()
    assert store.events(run.id)[-1]["step"] == 20
    assert "finished after 20 steps" in store.log(run.id)


def test_bad_data_is_the_same_sentence_as_here(store: RunStore, tiny: Any, tmp_path: Path):
    (bad := tmp_path / "bad.csv").write_text("sentence1,sentence2,score\na,b,3\nc,d,plenty\n")
    run = store.create(tiny(train_data=str(bad)), queue=False)
    with pytest.raises(InputError, match="row 2"):
        travel(RemoteRun(), store, run.folder, *on_ray._packed(run, store.home))


@pytest.mark.parametrize("name", ["../outside", "/etc/outside", "model/../../outside"])
def test_no_file_of_a_node_leaves_the_runs_folder(tmp_path: Path, name: str):
    (tmp_path / "file").touch()
    archive = on_ray._pack({tmp_path / "file": name})
    on_ray._unpack(archive, tmp_path / "run")
    assert {path.name for path in tmp_path.iterdir()} <= {"file", "run"}
    assert not Path("/etc/outside").exists()


def test_a_ray_that_is_away_is_one_sentence_and_the_run_can_be_resumed(store: RunStore, tiny: Any):
    run = store.create(tiny())
    with pytest.raises(InputError, match=r"there is no Ray cluster at 127.0.0.1:9: nothing answers"):
        execute(store, run.id, RayCluster("127.0.0.1:9"))
    run = store.get(run.id)
    assert (run.state, run.record.reason) == (
        State.FAILED,
        "there is no Ray cluster at 127.0.0.1:9: nothing answers at 127.0.0.1:9",
    )
    assert store.requeue(run.id).state == State.QUEUED


def test_a_run_that_its_nodes_die_of_is_given_up(store: RunStore, tiny: Any, monkeypatch: pytest.MonkeyPatch):
    begun: list[object] = []

    def dies(store: RunStore, run: Run, *_: Any) -> None:
        begun.append(run)
        raise Lost("the node has died")

    monkeypatch.setattr(on_ray, "_submit", dies)
    monkeypatch.setattr(RayCluster, "connect", lambda self: None)
    run = store.create(tiny())
    with pytest.raises(InputError, match=r"Ray has lost the run 4 times \(the node has died\): resume it"):
        execute(store, run.id, RayCluster("auto"))
    assert len(begun) == 4
    assert store.get(run.id).state == State.FAILED


def test_the_worker_submits_as_many_runs_as_there_is_room_for(
    store: RunStore, tiny: Any, monkeypatch: pytest.MonkeyPatch
):
    under_way, most, lock = [0], [0], threading.Lock()

    def executes(store: RunStore, run_id: str, should_end: Any) -> None:
        with lock:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        wait_until(lambda: most[0] == 3)
        with lock, store.lease(run_id) as lease:
            under_way[0] -= 1
            lease.state = State.FINISHED

    monkeypatch.setattr(worker_module, "executor", lambda cluster: executes)
    monkeypatch.setattr(RayCluster, "room", lambda self: 3)
    jobs = RunQueue(store, ray="auto")
    jobs.starts_workers = False
    runs = [jobs.start(tiny()) for _ in range(7)]
    assert RunQueue(store).queued() == [], "a worker of this machine gets none of them"
    Worker(store.home, 0, idle_seconds=0.5, cluster=RayCluster("auto")).work()
    assert [store.get(run.id).state for run in runs] == [State.FINISHED] * 7
    assert most == [3]
    assert not has_worker(store.home, "ray")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--engine", "slurm"), "there is no engine 'slurm'; choose local or ray"),
        (("--address", "auto"), "--address is an option of --engine ray"),
        (("--engine", "ray", "--address", "127.0.0.1:9"), "there is no Ray cluster at 127.0.0.1:9: nothing answers"),
    ],
)
def test_train_says_what_it_cannot_do(
    store: RunStore, tiny: Any, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], said: str
):
    data = str(tiny().train_data)
    command = ["train", "--objective", "regression", "--base", "scratch:1x32", "--train-data", data, "--max-steps", "1"]
    assert main([*command, "--home", str(store.home), *options]) == 2
    assert f"error: {said}" in capsys.readouterr().err


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A head that executes nothing; a test adds nodes of one core, on this machine."""
    pytest.importorskip("ray", reason="Ray is not installed")
    import ray
    from ray.cluster_utils import Cluster as Nodes

    nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": HEALTH})
    try:
        yield nodes
    finally:
        ray.shutdown()
        nodes.shutdown()


@pytest.fixture
def cluster(nodes: Any) -> Iterator[RayCluster]:
    cluster = RayCluster(nodes.address, cpus=1)
    yield cluster
    cluster.release(is_over=False)


class InThread:
    """`execute` in a thread."""

    def __init__(self, store: RunStore, run_id: str, cluster: RayCluster) -> None:
        self.should_end = threading.Event()
        self._arguments = store, run_id, cluster
        self._thread = threading.Thread(target=self._execute)
        self._thread.start()

    def _execute(self) -> None:
        execute(*self._arguments, should_end=self.should_end.is_set, states=RESUMABLE)

    def wait(self) -> None:
        self._thread.join(300)
        assert not self._thread.is_alive()


def curve(store: RunStore, run_id: str) -> list[Any]:
    """The figures of a run without times."""
    timed = {"t", "seconds", "seconds_left", "sentences_per_second", "memory_gb"}
    return [
        {key: value for key, value in event.items() if key not in timed}
        for event in store.events(run_id)
        if event["kind"] in ("train", "eval")
    ]


def step_of(store: RunStore, run_id: str) -> int:
    return store.get(run_id).progress.step


@pytest.mark.slow
def test_a_run_whose_node_is_killed_goes_on_from_its_checkpoint(
    nodes: Any, cluster: RayCluster, store: RunStore, tiny: Any
):
    config = tiny(max_steps=2_000, eval_every=200)
    first = nodes.add_node(num_cpus=1)
    run = store.create(config, queue=False)
    execution = InThread(store, run.id, cluster)
    wait_until(lambda: step_of(store, run.id) > 3)
    store.stop(run.id)  # which writes a checkpoint, as half a minute would
    execution.wait()
    stopped = step_of(store, run.id)
    execution = InThread(store, run.id, cluster)
    wait_until(lambda: store.get(run.id).state == State.RUNNING and step_of(store, run.id) > stopped)
    nodes.remove_node(first, allow_graceful=False)
    second = nodes.add_node(num_cpus=1)
    execution.wait()
    found = store.get(run.id)
    assert (found.state, found.has_model, found.config) == (State.FINISHED, True, config)
    assert not (run.folder / "checkpoint").exists()
    resumed = [event["resumed_from"] for event in store.events(run.id) if event.get("state") == "running"]
    assert resumed == [None, stopped, stopped]
    assert "lost: " in store.log(run.id)
    straight = store.create(config, queue=False)
    InThread(store, straight.id, cluster).wait()
    assert curve(store, run.id) == curve(store, straight.id)
    cluster.release(is_over=False)
    nodes.remove_node(second)


@pytest.mark.slow
def test_a_run_is_stopped_interrupted_and_resumed_as_here(nodes: Any, cluster: RayCluster, store: RunStore, tiny: Any):
    node = nodes.add_node(num_cpus=1)
    run = store.create(tiny(max_steps=1_000_000, eval_every=1_000), queue=False)

    def is_beyond(step: int) -> bool:
        return store.get(run.id).state == State.RUNNING and step_of(store, run.id) > step

    execution = InThread(store, run.id, cluster)
    wait_until(lambda: is_beyond(3))
    store.stop(run.id)
    execution.wait()
    stopped = store.get(run.id)
    assert (stopped.state, (run.folder / "checkpoint/state.json").exists()) == (State.STOPPED, True)
    execution = InThread(store, run.id, cluster)
    stopped_at = step_of(store, run.id)
    wait_until(lambda: is_beyond(stopped_at))
    execution.should_end.set()
    execution.wait()
    found = store.get(run.id)
    assert (found.state, "can be resumed" in (found.record.reason or "")) == (State.INTERRUPTED, True)
    cluster.release(is_over=False)
    nodes.remove_node(node)
    waiting = InThread(store, run.id, cluster)  # there is no node now
    wait_until(lambda: "submitted to Ray" in store.log(run.id))
    time.sleep(1)
    store.stop(run.id)
    waiting.wait()
    assert store.get(run.id).state == State.STOPPED
    assert (run.folder / "checkpoint/state.json").exists()


@pytest.mark.slow
def test_the_ray_of_this_machine_listens_on_loopback_and_refuses_whoever_has_no_token():
    own = """
import os, subprocess, sys
import psutil
from sbert_app.services.background.ray_cluster import RayCluster
ray = RayCluster("local").connect()
environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
code = f"import ray; ray.init(address='{ray.get_runtime_context().gcs_address}'); print('in')"
other = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
refuses = other.returncode != 0 and "token" in other.stderr.lower() and "in" not in other.stdout.split()
processes = psutil.Process().children(recursive=True)
sockets = [socket for process in processes for socket in process.net_connections("tcp") if socket.status == "LISTEN"]
print(refuses, len(sockets) > 3, {socket.laddr.ip.removeprefix("::ffff:") for socket in sockets} == {"127.0.0.1"})
ray.shutdown()"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    ended = subprocess.run([sys.executable, "-c", own], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ended.stdout.split()[-3:] == ["True"] * 3, ended.stderr[-2000:]
