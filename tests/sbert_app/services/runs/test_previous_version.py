"""Run folders written by the previous version (``previous_version/``, without weights) still open."""

import shutil
from pathlib import Path

import pytest

from sbert_app.services.runs.record import RunStateError
from sbert_app.services.runs.store import RunStore

RUN_ID = "20261122-015226-to-export"


@pytest.fixture
def store(tmp_path):
    shutil.copytree(Path(__file__).parent / "previous_version", tmp_path / "runs" / RUN_ID)
    return RunStore(tmp_path)


def test_settings_state_and_figures_are_read(store):
    [run] = store.list()
    assert (run.id, run.name, run.state) == (RUN_ID, "to export", "finished")
    assert (run.config.objective, run.config.base, run.config.max_steps) == ("regression", "scratch:1x32", 20)
    assert (run.progress.step, run.progress.steps, run.progress.rows, run.progress.pooling) == (20, 20, 64, "mean")
    assert run.progress.figure(run.progress.baseline) == pytest.approx(7.1232, abs=1e-4)
    assert run.progress.figure(run.progress.latest) == pytest.approx(6.9096, abs=1e-4)
    assert run.progress.collapsed.startswith("collapsed: random pairs")
    assert len(store.events(RUN_ID)) == 27
    assert store.log(RUN_ID).endswith("finished after 20 steps")


def test_the_run_can_be_renamed_and_deleted_and_is_not_resumed(store):
    assert store.rename(RUN_ID, "an old run").name == "an old run"
    with pytest.raises(RunStateError, match="is finished"):
        store.requeue(RUN_ID)
    store.delete(RUN_ID)
    assert store.list() == []


def test_a_run_that_the_previous_version_left_running_is_interrupted_and_can_be_resumed(store):
    record = store.folder / RUN_ID / "run.json"
    record.write_text(record.read_text().replace('"finished"', '"running"'))
    assert store.get(RUN_ID).state == "interrupted"
    assert store.requeue(RUN_ID).state == "queued"
