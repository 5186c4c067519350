"""Runs on Ray: what travels to a node, what comes back, and what becomes of a run whose Ray is gone."""

import threading
from pathlib import Path
from typing import Any

import pytest
from paths import linked_home
from waiting import wait_until

from sbert_app.cli import main
from sbert_app.services.background.ray_cluster import ActorLostError, RayCluster
from sbert_app.services.background.watch import State
from sbert_app.services.jobs import worker as worker_module
from sbert_app.services.jobs.queue import RunQueue, has_worker
from sbert_app.services.jobs.worker import Worker
from sbert_app.services.runs import on_ray
from sbert_app.services.runs.on_ray import RemoteRun, execute
from sbert_app.services.runs.record import Run
from sbert_app.services.runs.store import RunStore
from training.errors import InputError
from training.trainer.train import RunResult


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


def test_files_and_runs_travel_by_their_content_and_errors_as_they_are(
    store: RunStore, tiny: Any, tmp_path: Path
):
    actor = RemoteRun()
    base = store.create(tiny(), queue=False)
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
    (bad := tmp_path / "bad.csv").write_text("sentence1,sentence2,score\na,b,3\nc,d,plenty\n")
    run = store.create(tiny(train_data=str(bad)), queue=False)
    with pytest.raises(InputError, match="row 2"):
        travel(actor, store, run.folder, *on_ray._packed(run, store.home))


@pytest.mark.parametrize("name", ["../outside", "/etc/outside", "model/../../outside"])
def test_no_file_of_a_node_leaves_the_runs_folder(tmp_path: Path, name: str):
    (tmp_path / "file").touch()
    archive = on_ray._pack({tmp_path / "file": name})
    on_ray._unpack(archive, tmp_path / "run")
    assert {path.name for path in tmp_path.iterdir()} <= {"file", "run"}
    assert not Path("/etc/outside").exists()


def test_a_ray_that_is_away_is_one_sentence_and_the_run_can_be_resumed(store: RunStore, tiny: Any):
    run = store.create(tiny())
    with pytest.raises(
        InputError, match=r"there is no Ray cluster at 127.0.0.1:9: nothing answers"
    ) as raised:
        execute(store, run.id, RayCluster("127.0.0.1:9"))
    run = store.get(run.id)
    assert (run.state, run.record.reason) == (State.FAILED, str(raised.value))
    assert store.requeue(run.id).state == State.QUEUED


def test_a_run_that_its_nodes_die_of_is_given_up(
    store: RunStore, tiny: Any, monkeypatch: pytest.MonkeyPatch
):
    begun: list[object] = []

    def dies(store: RunStore, run: Run, *_: Any) -> None:
        begun.append(run)
        raise ActorLostError("the node has died")

    monkeypatch.setattr(on_ray, "_submit", dies)
    monkeypatch.setattr(RayCluster, "connect", lambda self: None)
    run = store.create(tiny())
    with pytest.raises(
        InputError, match=r"Ray has lost the run 4 times \(the node has died\): resume it"
    ):
        execute(store, run.id, RayCluster("auto"))
    assert len(begun) == 4
    assert store.get(run.id).state == State.FAILED


def test_the_worker_submits_as_many_runs_as_there_is_room_for(
    store: RunStore, tiny: Any, monkeypatch: pytest.MonkeyPatch
):
    under_way = [0]
    most = [0]
    lock = threading.Lock()

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
    ],
)
def test_train_says_what_it_cannot_do(
    store: RunStore,
    tiny: Any,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    said: str,
):
    data = str(tiny().train_data)
    command = [
        "train",
        "--objective",
        "regression",
        "--base",
        "scratch:1x32",
        "--train-data",
        data,
        "--max-steps",
        "1",
    ]
    assert main([*command, "--home", str(store.home), *options]) == 2
    assert f"error: {said}" in capsys.readouterr().err
