"""Runs through a store, in one process: what travels, what comes back, what is left alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_models import make_model

from sbert_app.services.jobs.remote import follow
from sbert_app.services.jobs.remote.follow import Follower
from sbert_app.services.jobs.remote.offer import Job, offer, offered, prefix
from sbert_app.services.jobs.remote.push import FILES, Pusher
from sbert_app.services.jobs.remote.shared_store import SharedStore, StoreUnreachable
from sbert_app.services.jobs.remote.work import fetch_job, recover, work
from sbert_app.services.runs.errors import RunBusy, RunStateError
from sbert_app.services.runs.record import RunRecord
from sbert_app.services.runs.store import PROCESS_LOST, RunStore
from training.errors import InputError
from training.trainer.config import RunConfig

NOBODY = threading.Event()


@pytest.fixture(params=["folder", "memory"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SharedStore]:
    """A folder, and a store that has nothing of a folder."""
    import fsspec

    yield SharedStore(str(tmp_path / "store") if request.param == "folder" else f"memory://{tmp_path.name}")
    fsspec.filesystem("memory").store.clear()


def linked(home: Path, own: Path) -> Path:
    own.mkdir()
    for kind in ("models", "data"):
        (own / kind).symlink_to(home / kind)
    return own


@pytest.fixture
def store(home: Path, tmp_path: Path) -> RunStore:
    """The runs of the home folder where they are queued."""
    return RunStore(linked(home, tmp_path / "a"))


@pytest.fixture
def elsewhere(home: Path, tmp_path: Path) -> Path:
    """The home folder of a worker."""
    return linked(home, tmp_path / "b")


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """A file that only the first home folder has."""
    folder = tmp_path / "a file+s"
    folder.mkdir()
    rows = [f"a man plays {i % 7},the dog runs over {i % 5},{i % 6}" for i in range(64)]
    (folder / "pairs.csv").write_text("\n".join(["sentence1,sentence2,score", *rows]))
    return folder / "pairs.csv"


def config(pairs: Path, **more: object) -> RunConfig:
    settings = {"train_data": str(pairs), "eval_data": str(pairs), "base": "scratch:1x32", "dtype": "float32"}
    return RunConfig("regression", **{"max_steps": 6, "eval_every": 3, **settings, **more})


def test_a_run_is_executed_without_the_home_folder(store, shared, elsewhere, pairs, tmp_path):
    """Data with an encoding and a base that only the first home folder has; the result is what it would be there."""
    base = make_model(tmp_path / "base")
    pairs.write_text(pairs.read_text().replace("dog", "пёс"), encoding="koi8-r")
    data = f"{pairs}?encoding=koi8-r"
    settings = config(pairs, base=f"{base}?dim=16", train_data=data, eval_data=data)
    run_id = store.create(settings).id
    job = offer(store, shared, run_id)
    assert (job.attempt, job.config) == (1, settings.to_dict())
    moved, kept = tmp_path / "base-elsewhere", tmp_path / "pairs-elsewhere.csv"
    base.rename(moved)
    pairs.rename(kept)
    assert work(shared, elsewhere, run_id, Job(**json.loads(json.dumps(job.__dict__))), "b", NOBODY) == "finished"
    Follower(store, shared).look()
    run = store.get(run_id)
    assert (run.state, run.has_model, run.record.worker, run.record.is_remote) == ("finished", True, "b", False)
    assert run.config == settings
    assert [event["step"] for event in store.events(run_id) if event["kind"] == "eval"] == [0, 3, 6]
    assert "worker: b" in store.log(run_id)
    assert not shared.exists(prefix(run_id, 1)), "the home folder has it"
    assert not (run.folder / "checkpoint").exists()
    assert list((elsewhere / "remote/001").iterdir()) == []
    moved.rename(base)
    kept.rename(pairs)
    from training.trainer.train import train

    here = train(settings, lambda event: None, tmp_path / "here", home=store.home)
    assert (run.progress.latest or {})["spearman"] == pytest.approx(here.final["spearman"], abs=1e-6)  # type: ignore[index]


def test_a_run_goes_on_from_the_checkpoint_of_another_machine(store, shared, elsewhere, pairs):
    run_id = store.create(config(pairs, max_steps=300, eval_every=100)).id
    job, ending = offer(store, shared, run_id), threading.Event()
    follower = Follower(store, shared)
    worker = threading.Thread(target=work, args=(shared, elsewhere, run_id, job, "b", ending))
    worker.start()
    while store.get(run_id).progress.step < 20:
        follower.look()
    assert store.get(run_id).state == "running"
    assert store.get(run_id).record.worker == "b"
    ending.set()  # as by SIGTERM
    worker.join()
    follower.look()
    run = store.get(run_id)
    assert (run.state, run.record.losses) == ("interrupted", 1)
    stopped_at = json.loads((run.folder / "checkpoint/state.json").read_text())["step"]
    store.requeue(run_id, is_lost=True)
    job = offered(store, shared, run_id)
    assert job is not None
    assert job.attempt == 2
    assert work(shared, elsewhere, run_id, job, "c", NOBODY) == "finished"
    follower.look()
    events = store.events(run_id)
    assert [event["resumed_from"] for event in events if event.get("state") == "running"] == [None, stopped_at]
    steps = [event["step"] for event in events if event["kind"] == "train"]
    assert steps == sorted(set(steps))
    assert store.log(run_id, 1_000).count("worker: ") == 2


def test_an_attempt_has_one_worker(store, shared, elsewhere, pairs):
    run_id = store.create(config(pairs)).id
    job = offer(store, shared, run_id)
    assert work(shared, elsewhere, run_id, job, "b", NOBODY) == "finished"
    assert work(shared, elsewhere, run_id, job, "c", NOBODY) is None
    assert offered(store, shared, run_id) is None, "it is not queued again before its end has come back"


def test_a_run_that_was_stopped_while_it_waited_never_begins(store, shared, elsewhere, pairs):
    run_id = store.create(config(pairs)).id
    job = offer(store, shared, run_id)
    store.stop(run_id)
    Follower(store, shared).stop(run_id)
    assert work(shared, elsewhere, run_id, job, "b", NOBODY) is None
    assert store.get(run_id).state == "stopped"
    store.requeue(run_id)
    again = offered(store, shared, run_id)
    assert again is not None
    assert again.attempt == 2
    assert work(shared, elsewhere, run_id, again, "b", NOBODY) == "finished"


def test_a_running_run_is_stopped_from_afar_and_cannot_be_deleted_before(store, shared, elsewhere, pairs, monkeypatch):
    monkeypatch.setattr("sbert_app.services.jobs.remote.push.PUSH_SECONDS", 0.05)
    run_id = store.create(config(pairs, max_steps=1_000_000, eval_every=10**6)).id
    job, follower = offer(store, shared, run_id), Follower(store, shared)
    worker = threading.Thread(target=work, args=(shared, elsewhere, run_id, job, "b", NOBODY))
    worker.start()
    while store.get(run_id).progress.step < 3:
        follower.look()
    with pytest.raises(RunBusy, match="running on another machine; stop it"):
        store.delete(run_id)
    store.stop(run_id)
    assert store.get(run_id).is_stopping
    follower.look()
    worker.join()
    follower.look()
    run = store.get(run_id)
    assert (run.state, (run.folder / "checkpoint/state.json").exists()) == ("stopped", True)
    with pytest.raises(RunStateError):
        store.requeue(run_id, is_lost=True)


def test_a_worker_that_says_nothing_more_is_lost_with_its_last_checkpoint(store, shared, elsewhere, pairs, monkeypatch):
    """Its machine has lost its power. When it comes back, what it writes is not read, and it ends."""
    monkeypatch.setattr(follow, "LOST_SECONDS", 0.2)
    run_id = store.create(config(pairs)).id
    offer(store, shared, run_id)
    folder = elsewhere / "remote/001" / run_id
    (folder / "checkpoint").mkdir(parents=True)
    (folder / "checkpoint/state.json").write_text('{"step": 3}')
    (folder / "events.jsonl").write_text('{"kind": "state", "state": "running", "step": 0}\n')
    RunRecord("running", 1.0, started=2.0, worker="b").write(folder)
    pusher, follower = Pusher(shared, prefix(run_id, 1), folder, "b"), Follower(store, shared)
    for _ in range(3):
        pusher.push()
        follower.look()
        assert store.get(run_id).state == "running"
    threading.Event().wait(0.3)
    follower.look()
    run = store.get(run_id)
    assert (run.state, run.record.reason, run.record.losses) == ("interrupted", PROCESS_LOST, 1)
    assert (run.folder / "checkpoint/state.json").read_text() == '{"step": 3}'
    pusher.look()
    assert pusher.is_superseded.is_set()


def test_versions_of_a_folder_replace_each_other(shared, tmp_path):
    """The store has at no time less than one complete checkpoint."""
    from training.atomic import replace_folder

    folder = tmp_path / "run"
    folder.mkdir()
    RunRecord("running", 1.0).write(folder)
    pusher = Pusher(shared, "runs/x/001", folder, "b")
    for step in range(3):
        with replace_folder(folder / "checkpoint") as fresh:
            (fresh / "state.json").write_text(str(step))
        pusher.push()
        pusher.push()  # nothing has changed
        status = shared.read_json("runs/x/001/status.json")
        assert status is not None
        version = status["folders"]["checkpoint"]
        assert version == {"number": step + 1, "files": ["state.json"]}
        assert shared.read(f"runs/x/001/checkpoint-{step + 1}/state.json") == str(step).encode()
        assert [name for name in shared.names("runs/x/001") if "-" in name] == [f"checkpoint-{step + 1}"]


def test_what_cannot_be_used_fails_the_run_with_the_reason(store, shared, elsewhere, pairs):
    pairs.write_text("sentence1,sentence2,score\na,b,3\nc,d,plenty\n")
    run_id = store.create(config(pairs)).id
    with pytest.raises(InputError, match="row 2"):
        work(shared, elsewhere, run_id, offer(store, shared, run_id), "b", NOBODY)
    Follower(store, shared).look()
    assert store.get(run_id).state == "failed"
    assert "row 2" in str(store.get(run_id).record.reason)


def test_the_end_of_a_run_survives_a_store_that_is_away(store, shared, elsewhere, pairs, monkeypatch):
    """The worker is asked to end meanwhile; the next one of its home folder brings the run back."""
    run_id = store.create(config(pairs)).id
    job, ending = offer(store, shared, run_id), threading.Event()

    def away(*_: object) -> None:
        ending.set()
        raise StoreUnreachable("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(SharedStore, "write_json", away)
        work(shared, elsewhere, run_id, job, "b", ending)
    assert RunRecord.read(elsewhere / "remote/001" / run_id).state in ("finished", "interrupted")
    Follower(store, shared).look()
    assert store.get(run_id).state == "queued"
    recover(shared, elsewhere, "b", NOBODY)
    Follower(store, shared).look()
    assert store.get(run_id).state in ("finished", "interrupted")
    assert (store.get(run_id).folder / "events.jsonl").exists()


def test_a_scheduler_finds_the_last_job(store, shared, pairs):
    run_id = store.create(config(pairs)).id
    assert fetch_job(shared, run_id) is None
    assert fetch_job(shared, offer(store, shared, run_id) and run_id) == offered(store, shared, run_id)


def test_a_file_is_created_by_one_of_several(shared):
    assert [shared.create("x/claim.json", b"1"), shared.create("x/claim.json", b"2")] == [True, False]
    assert shared.read("x/claim.json") == b"1"


def test_mined_negatives_travel_too():
    from training.trainer.negatives import FILE

    assert FILE in FILES


def test_a_store_that_cannot_be_used_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnreachable, match=r"the store .*file.* cannot be used"):
        SharedStore(str(tmp_path / "file")).check()
    with pytest.raises(InputError, match="nosuch://x cannot be opened"):
        SharedStore("nosuch://x")


def test_names_from_the_store_stay_in_their_folder(shared, tmp_path):
    shared.write("evil", b"")
    with pytest.raises(InputError, match="names a file outside of its folder"):
        shared.get_folder("runs/x", ["../../evil"], tmp_path / "into")
