"""`runs/store.py` and `record.py`: the states of runs on disk, their events, and what may be done to them when."""

import json
import os
import shutil
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbert_app.services.results.grid import trained_on
from sbert_app.services.runs.archives import export
from sbert_app.services.runs.record import (
    EventReader,
    Run,
    RunBusyError,
    RunNotFoundError,
    RunProgress,
    RunStateError,
)
from sbert_app.services.runs.store import PROCESS_LOST, RunStore
from training.errors import InputError, UserFacingError
from training.names import ModelName
from training.trainer.config import RunConfig

CONFIG = RunConfig("regression", base="scratch:1x32", pooling="mean")


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "home")


def say(store: RunStore, run_id: str, *events: dict, end: str = "\n") -> None:
    """Append events to a run, as the loop does."""
    with (store.folder / run_id / "events.jsonl").open("a") as file:
        file.write("\n".join(json.dumps(event) for event in events) + end)


def evaluation(step: int, spearman: float, **more: object) -> dict:
    return {"t": 1.0, "step": step, "kind": "eval", "spearman": spearman, "seconds": 1.0, **more}


def test_a_new_run_waits_in_the_queue_with_an_id_of_its_own_and_a_name(store):
    run = store.create(CONFIG)
    assert (run.state, run.config) == ("queued", CONFIG)
    assert RunConfig.model_validate_json((run.folder / "config.json").read_text()) == CONFIG
    assert run.id.endswith("-regression-mean")
    assert store.create(RunConfig("mnrl", name="Ünïcode / näme!")).id[15:] == "-n-code-n-me"
    assert len({store.create(CONFIG).id for _ in range(20)}) == 20
    assert store.create(CONFIG).name == "regression · mean · scratch:1x32"
    assert store.create(RunConfig("classification", pooling="cls")).name == (
        "classification uv+diff · CLS · all-MiniLM-L6-v2"
    )


@pytest.mark.parametrize("name", ["run.json", "config.json"])
@pytest.mark.parametrize(
    "data",
    [
        None,
        b'{"state": "halted", "created": 1, "objective": "halted"}',
        b'{"state": "stopped", "created": 1e300, "objective": "regression", "epochs": 1e400}',
    ],
    ids=["no file", "another word", "a large number"],
)
def test_a_damaged_run_is_a_sentence_and_hides_no_other(store, name, data):
    """`test_home_files.py` has the other damages."""
    sound = store.create(CONFIG)
    broken = store.create(CONFIG)
    (broken.folder / name).unlink() if data is None else (broken.folder / name).write_bytes(data)
    fresh = RunStore(store.home)
    assert [run.id for run in fresh.list()] == [sound.id]
    assert sound.id in fresh.ids("queued")
    if (name, data) != ("run.json", None):  # a folder without any record
        (error,) = fresh.damaged()
        assert f"{broken.id}/{name} cannot be read" in str(error)
        assert str(store.home) not in error.public
    with pytest.raises(UserFacingError):
        fresh.get(broken.id)


@pytest.fixture
def runs(store: RunStore) -> list[Run]:
    """Twelve runs, the oldest first. Only the third is queued."""
    return [store.create(CONFIG, queue=number == 2) for number in range(12)]


def test_a_new_home_has_no_runs(store):
    assert store.list() == []


def test_the_list_of_runs_has_pages_with_the_newest_first(store, runs):
    (store.folder / "half-made").mkdir()
    newest = [run.id for run in reversed(runs)]
    pages = [store.list(5), store.list(5, newest[4]), store.list(5, newest[9])]
    assert (
        [run.id for page in pages for run in page]
        == newest
        == [run.id for run in RunStore(store.home).list()]
    )
    with pytest.raises(RunNotFoundError):
        store.list(5, "20200101-000000-gone")


def test_runs_at_work_are_listed_with_the_recent_ones(store, runs):
    newest = [run.id for run in reversed(runs)]
    listed = [run.id for run in store.recent([newest[-1]], limit=2)]
    assert listed == [
        run_id for run_id in newest if run_id in {*newest[:2], runs[2].id, newest[-1]}
    ]
    store.stop(runs[2].id)
    RunStore(store.home).requeue(runs[0].id)
    assert store.ids("queued") == [runs[0].id]
    assert runs[0].id in [run.id for run in store.recent(limit=2)]


def test_a_page_of_the_list_reads_no_other_run(store, runs, monkeypatch):
    newest = [run.id for run in reversed(runs)]
    reads = []
    get = RunStore.get
    monkeypatch.setattr(
        RunStore, "get", lambda store, run_id: reads.append(run_id) or get(store, run_id)
    )
    RunStore(store.home).list(5)
    assert reads == newest[:5], "a look at a page reads no other run"


def test_what_killed_processes_have_left_is_swept(store):
    run = store.create(CONFIG)
    deleted, restored, new = (
        store.folder / name for name in (".deleted-x", ".x.abc.fresh", ".y.abc.fresh")
    )
    for folder in (deleted, restored, new):
        (folder / "model").mkdir(parents=True)
    os.utime(restored, (0, 0))
    store.sweep()
    assert {path.name for path in store.folder.iterdir()} == {run.id, new.name}


def test_a_run_may_be_called_as_its_base_and_bases_may_form_a_ring(store):
    first = store.create(CONFIG, queue=False)
    store.rename(first.id, "x")
    second = store.create(CONFIG.replace(base="run:x", name="x"))
    assert second.config.base == f"run:{first.id}"
    (first.folder / "config.json").write_text(
        first.config.replace(base=f"run:{second.id}").to_json()
    )
    assert len(trained_on(ModelName.parse(f"run:{second.id}"), store.home)) == 2


@given(
    st.text(max_size=30)
    | st.sampled_from(["..", "../x", "/etc", ".", "", "a/b", "x" * 500, "a\0b", ".hidden"])
)
def test_an_id_that_is_none_is_said_so(tmp_path_factory, run_id):
    """Above all, no id leads out of the folder of runs."""
    store = RunStore(tmp_path_factory.mktemp("home"))
    (store.home / "run.json").write_text("{}")
    for act in (store.get, store.stop, store.requeue, store.delete, store.log, store.events):
        with pytest.raises(RunNotFoundError, match="there is no run"):
            act(run_id)


def test_a_leased_run_is_running_and_ends_as_its_process_says(store):
    run = store.create(CONFIG)
    with store.lease(run.id) as work:
        assert RunStore(store.home).get(run.id).state == "running"
        work.state = "finished"
    ended = store.get(run.id)
    assert ended.state == "finished"
    assert ended.record.created <= ended.record.started <= ended.record.ended


def test_an_exception_fails_a_leased_run_with_its_reason(store):
    run = store.create(CONFIG)
    with pytest.raises(OSError), store.lease(run.id):
        raise OSError("no space\nleft on device")
    assert (store.get(run.id).state, store.get(run.id).record.reason) == (
        "failed",
        "no space left on device",
    )


def test_ctrl_c_interrupts_a_leased_run(store):
    run = store.create(CONFIG)
    with pytest.raises(KeyboardInterrupt), store.lease(run.id):
        raise KeyboardInterrupt
    assert store.get(run.id).state == "interrupted"


def test_a_run_is_worked_on_by_one_process(store):
    run = store.create(CONFIG)
    with (
        store.lease(run.id),
        pytest.raises(RunBusyError, match="worked on by another"),
        store.lease(run.id),
    ):
        pass
    with pytest.raises(RunStateError, match="is interrupted, not queued"), store.lease(run.id):
        pass


def test_after_a_reboot_a_running_run_is_interrupted(store):
    # Nobody holds its lock, whatever process numbers there are now.
    run = store.create(CONFIG)
    (run.folder / "run.json").write_text(
        json.dumps({"state": "running", "created": 1.0, "started": 2.0})
    )
    run = store.get(run.id)
    assert (run.state, run.record.reason) == ("interrupted", PROCESS_LOST)


@pytest.mark.parametrize("state", ["stopped", "failed", "interrupted"])
def test_a_run_that_ended_early_can_be_queued_again(store, state):
    run = store.create(CONFIG)
    with store.lease(run.id) as work:
        store.stop(run.id)
        work.state = state
        work.reason = "a reason"
    again = store.requeue(run.id)
    assert (again.state, again.record.reason) == ("queued", None)
    with store.lease(run.id) as work:
        assert work.resume, "it goes on from its checkpoint"
        assert not store.get(run.id).is_stopping, "the old request to stop is forgotten"


def test_stop_and_resume_are_refused_where_the_state_forbids_them(store):
    run = store.create(CONFIG)
    with pytest.raises(RunStateError, match="is queued; there is nothing to resume"):
        store.requeue(run.id)
    assert store.stop(run.id).state == "stopped"
    run = store.create(CONFIG)
    with store.lease(run.id) as work:
        assert store.stop(run.id).is_stopping, "it has left a note for the process at work"
        work.state = "finished"
    assert not store.get(run.id).is_stopping
    with pytest.raises(RunStateError, match="is finished; there is nothing to resume"):
        store.requeue(run.id)
    with pytest.raises(RunStateError, match="is finished; there is nothing to stop"):
        store.stop(run.id)


def test_renaming_a_run_does_not_touch_its_state(store):
    run = store.create(CONFIG)
    with store.lease(run.id) as work:
        assert store.rename(run.id, "  my \n run ").name == "my run"
        work.state = "finished"
    assert (store.get(run.id).name, store.get(run.id).state) == ("my run", "finished")
    assert ModelName.parse(f"run:{run.id}:cls").label == "my run, CLS pooling"


def test_a_name_is_1_to_80_whole_characters(store):
    run = store.create(CONFIG.replace(name="my run"))
    with pytest.raises(InputError, match="1 to 80 characters"):
        store.rename(run.id, "  ")
    with pytest.raises(InputError, match="the name has half a character"):
        store.rename(run.id, "a \ud800")
    with pytest.raises(InputError, match="the config has half a character"):
        store.create(CONFIG.replace(name="a \ud800"))
    assert [run.name for run in store.list()] == ["my run"]


def test_half_a_character_in_a_reason_is_replaced(store):
    run = store.create(CONFIG)
    with pytest.raises(ValueError, match="no"), store.lease(run.id):
        raise ValueError("no \ud800")
    assert (store.get(run.id).state, store.get(run.id).reason) == ("failed", "no ?")


def test_only_a_run_that_is_not_at_work_can_be_deleted(store):
    run = store.create(CONFIG)
    other = store.create(CONFIG)
    with store.lease(run.id), pytest.raises(RunBusyError, match="stop it before you delete it"):
        store.delete(run.id)
    say(store, run.id, {"kind": "train", "step": 1, "loss": 0.5})
    before = store.get(run.id)
    store.delete(run.id)
    assert [event["step"] for event in before.events] == [before.progress.step] == [1]
    assert [left.id for left in store.list()] == [other.id]
    assert sorted(path.name for path in store.folder.iterdir()) == [other.id]


@pytest.mark.parametrize(
    "act",
    [
        RunStore.get,
        RunStore.stop,
        RunStore.requeue,
        RunStore.delete,
        partial(RunStore.rename, name="x"),
    ],
    ids=["get", "stop", "requeue", "delete", "rename"],
)
def test_an_action_on_a_run_that_is_being_deleted_finds_no_run(store, monkeypatch, act):
    """Whenever that happens: after the first look for its folder, after the second, …"""
    found = RunStore._run_folder
    moment = -1
    while True:
        moment += 1
        looks = 0
        run = store.create(CONFIG)
        if act is RunStore.requeue:
            store.stop(run.id)

        def deleted_after(self, run_id, folder=run.folder, moment=moment):
            nonlocal looks
            found(self, run_id)
            looks += 1
            if looks == moment + 1:
                shutil.rmtree(folder)
            return folder

        with monkeypatch.context() as patched:
            patched.setattr(RunStore, "_run_folder", deleted_after)
            try:
                act(store, run.id)
            except (UserFacingError, OSError) as error:
                assert (
                    "there is no run" in str(error)
                    or "gone" in str(error)
                    or isinstance(error, FileNotFoundError)
                )
        if looks <= moment:
            break
        assert not run.folder.exists(), "nothing has made it anew"
    assert moment > 0


def test_a_run_is_deleted_while_another_thread_lists_it(store):
    """The list has it or does not, and never fails."""
    runs = [store.create(CONFIG) for _ in range(40)]
    is_over = threading.Event()

    def look() -> int:
        looks = 0
        while not is_over.is_set():
            assert all(run.id for run in store.list())
            looks += 1
        return looks

    with ThreadPoolExecutor(2) as threads:
        looking = [threads.submit(look) for _ in range(2)]
        for run in runs:
            store.delete(run.id)
        is_over.set()
        assert all(each.result() for each in looking)
    assert store.list() == [] and store.damaged() == []


def test_a_file_that_is_deleted_before_it_is_opened_has_no_events(tmp_path, monkeypatch):
    file = tmp_path / "events.jsonl"
    file.write_text('{"kind": "train", "step": 1}\n')
    reader = EventReader(file)
    is_file = Path.is_file
    monkeypatch.setattr(Path, "is_file", lambda path: is_file(path) and (path.unlink(), True)[1])
    assert reader.read() == []


def test_half_written_events_are_awaited_and_broken_ones_left_out(store):
    run = store.create(CONFIG)
    say(
        store,
        run.id,
        {"kind": "train", "step": 1},
        {"kind": "train", "step": 2},
        end='\n{"kind": "tra',
    )
    assert [event["step"] for event in store.events(run.id)] == [1, 2]
    with (run.folder / "events.jsonl").open("a") as file:
        file.write('in", "step": 3}\n{"kind": "tra\n{"kind": "train", "step": 4}\n')
    assert [event["step"] for event in store.events(run.id)] == [1, 2, 3, 4]
    assert [event["step"] for event in store.events(run.id, since=2)] == [3, 4]


def test_events_that_a_resumed_run_takes_back_are_forgotten(store):
    run = store.create(CONFIG)
    say(store, run.id, *({"kind": "train", "step": step} for step in range(1, 6)))
    assert len(store.events(run.id)) == 5
    fresh = run.folder / "events.tmp"
    fresh.write_text(
        "".join(f'{{"kind": "train", "step": {step}, "again": true}}\n' for step in range(1, 8))
    )
    fresh.replace(run.folder / "events.jsonl")  # longer than before, and yet another file
    assert all(event["again"] for event in store.events(run.id))
    assert len(store.events(run.id, since=99)) == 7, "who has seen more than there is begins anew"


def test_progress_is_the_sum_of_the_events(store):
    run = store.create(CONFIG)
    say(
        store,
        run.id,
        {
            "kind": "state",
            "step": 0,
            "state": "running",
            "steps": 20,
            "device": "cpu",
            "notes": ["thirds"],
        },
        evaluation(0, 0.80),
        {
            "kind": "train",
            "step": 10,
            "loss": 0.5,
            "sentences_per_second": 300.0,
            "seconds_left": 7.0,
        },
        evaluation(10, 0.85, best=True),
        evaluation(15, 0.84, collapsed="collapsed: random pairs …"),
    )
    progress = store.get(run.id).progress
    assert (progress.step, progress.steps, progress.loss, progress.seconds_left) == (
        15,
        20,
        0.5,
        7.0,
    )
    assert progress.notes == ("thirds",)
    assert progress.measure == "spearman"
    assert [progress.figure(event) for event in (progress.baseline, progress.best)] == [80.0, 85.0]
    assert progress.collapsed.startswith("collapsed")
    assert RunProgress.from_events([evaluation(0, 0.9, best=True)]).best is None
    # The correlation of a collapsed model is undefined.
    end = {"kind": "eval", "step": 5, "spearman": None, "loss": 0.3, "best": False}
    collapsed = RunProgress.from_events([evaluation(0, 0.9), end])
    assert (collapsed.measure, collapsed.figure(collapsed.latest)) == ("spearman", None)
    # Resumed before its first checkpoint
    again = RunProgress.from_events([evaluation(0, 0.7), evaluation(0, 0.8)])
    assert again.figure(again.baseline) == 80.0
    progress = RunProgress.from_events(
        [{"kind": "eval", "step": 5, "random_cosine": 0.1, "best": True}]
    )
    assert (progress.measure, progress.figure(progress.best)) == (None, None)


def test_an_export_is_one_folder_with_the_model_its_card_and_the_settings(store, tmp_path):
    run = store.create(RunConfig("regression", name="My run"))
    (run.folder / "model/1_Pooling").mkdir(parents=True)
    for name in ("modules.json", "README.md", "1_Pooling/config.json"):
        (run.folder / "model" / name).write_text(name)
    with pytest.raises(RunBusyError, match="is queued; export it when it has ended"):
        export(store, run.id, tmp_path)
    store.stop(run.id)
    file = export(store, run.id, tmp_path)
    assert file == tmp_path / "my-run.zip"
    with zipfile.ZipFile(file) as packed:
        inside = [
            "my-run/1_Pooling/config.json",
            "my-run/README.md",
            "my-run/modules.json",
            "my-run/run.json",
        ]
        assert packed.namelist() == inside
        assert json.loads(packed.read("my-run/run.json"))["config"]["objective"] == "regression"
    other = store.create(CONFIG, queue=False)
    with pytest.raises(RunStateError, match="has no model"):
        export(store, other.id, tmp_path)
    assert [path.name for path in tmp_path.glob("*.zip")] == ["my-run.zip"]
