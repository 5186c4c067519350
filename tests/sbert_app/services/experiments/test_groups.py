"""Runs of one experiment belong together; a filter finds runs by what is said about them."""

import pytest

from sbert_app.services.experiments.experiment import ExperimentRecord, PlannedRun
from sbert_app.services.experiments.groups import matches, run_groups
from sbert_app.services.runs.store import RunStore
from sbert_app.services.store.documents import write_document
from training.trainer.config import RunConfig


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path)


def new_run(store, name, **settings):
    return store.create(
        RunConfig(**{"objective": "regression", "name": name, **settings}), queue=False
    )


def test_cells_of_a_sweep_and_folds_are_groups_and_other_runs_have_none(store):
    cell, fold, single = (new_run(store, name) for name in ("cell", "fold", "single"))
    folder = store.home / "experiments"
    folder.mkdir()
    cells = PlannedRun(label="mean", config={}, run=cell.id), PlannedRun(label="max", config={})
    write_document(
        folder / "20261121-pooling.json", ExperimentRecord(kind="sweep", name="pooling", runs=cells)
    )
    (folder / "damaged.json").write_text("{")
    plan = PlannedRun(label="news", config={}, run=fold.id)
    folds = ExperimentRecord(kind="folds", name="my.csv", by="topic", runs=(plan,))
    write_document(folder / "x.json", folds)
    groups = run_groups(store.home)
    assert groups[cell.id].name == "sweep: pooling 20261121-pooling"
    assert groups[cell.id].label == "sweep: pooling"
    assert groups[fold.id].label == "folds: my.csv by topic"
    assert groups[fold.id].name == "folds: my.csv by topic x"
    assert single.id not in groups
    assert matches(cell, groups[cell.id], "sweep: pooling 20261121")
    assert not matches(single, None, "sweep")


def test_a_filter_by_the_name_of_folds_finds_no_other_folds_of_the_file(store):
    folder = store.home / "experiments"
    folder.mkdir()
    runs = {}
    for key in ("20261121-my", "20261122-my"):
        run = runs[key] = new_run(store, "fold")
        plan = PlannedRun(label="fold 1", config={}, run=run.id)
        folds = ExperimentRecord(kind="folds", name="my.csv", by="5 folds", runs=(plan,))
        write_document(folder / f"{key}.json", folds)
    groups = run_groups(store.home)
    first, second = runs.values()
    assert matches(first, groups[first.id], groups[first.id].name)
    assert not matches(second, groups[second.id], groups[first.id].name)


def test_a_filter_looks_at_name_id_state_and_settings(store):
    run = new_run(store, "My first run", pooling="max", base="scratch:1x32")
    for wanted in (
        "",
        "  ",
        "FIRST my",
        run.id,
        "stopped",
        "regression max",
        "scratch",
        "stsb:train",
    ):
        assert matches(run, None, wanted), wanted
    assert not matches(run, None, "first cls")
