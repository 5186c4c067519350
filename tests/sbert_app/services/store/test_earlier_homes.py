"""A home folder that an earlier version has written opens: ``home-2026-11-23`` is one, without models and logs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sbert_app.cli import main
from sbert_app.services.annotations.project import Projects
from sbert_app.services.annotations.quality import last_training
from sbert_app.services.clusters.edits import edit_store
from sbert_app.services.corpus.groups import group_store
from sbert_app.services.experiments.experiment import FOLDS, SWEEP, Experiments
from sbert_app.services.experiments.groups import run_groups
from sbert_app.services.jobs.queue import RunQueue
from sbert_app.services.runs.store import RunStore

POOLING, CONCAT = "20261123-154241-pooling", "20261123-154307-concat"


@pytest.fixture
def earlier_home(tmp_path) -> Path:
    return shutil.copytree(Path(__file__).parent / "home-2026-11-23", tmp_path / "home")


@pytest.fixture
def experiments(earlier_home, monkeypatch) -> Experiments:
    monkeypatch.setattr(RunQueue, "start_workers", lambda self: None)
    return Experiments(RunQueue(RunStore(earlier_home)))


def test_every_run_is_read(experiments):
    runs = {run.id: run for run in experiments.store.list()}
    assert len(runs) == 10
    finished = runs["20261123-154241-pooling-mean-seed-0"]
    assert (finished.state, finished.name, finished.progress.step) == ("finished", "pooling: mean, seed 0", 2)


def test_sweeps_are_experiments_and_go_on(experiments):
    assert [sweep.id for sweep in experiments.list(SWEEP)] == [CONCAT, POOLING]
    assert experiments.damaged() == []
    sweep = experiments.get(POOLING)
    assert (sweep.state, sweep.counts, sweep.seeds) == ("stopped", {"finished": 4, "stopped": 2}, [0, 1])
    assert [row.summary and row.summary.n for row in sweep.rows] == [2, None, 2]
    [max_1] = [plan for plan in sweep.record.runs if (plan.label, plan.seed) == ("max", 1)]
    assert max_1.run == "20261123-154241-pooling-max-seed-1"
    assert sweep.record.changes["base"] == "scratch:1x32"
    for cell in sweep.cells:
        assert cell.run.config == type(cell.run.config)(**cell.plan.config)  # what the file implies is what was run
    assert experiments.resume(POOLING).counts == {"finished": 4, "queued": 2}
    experiments.stop(POOLING)
    experiments.store.delete("20261123-154241-pooling-max-seed-1")
    assert experiments.get(POOLING).cells[4].state == "deleted"
    assert experiments.resume(POOLING).cells[4].run.config == sweep.cells[4].run.config
    experiments.stop(POOLING)
    experiments.delete(POOLING)
    assert [each.id for each in experiments.list(SWEEP)] == [CONCAT]
    assert {cell.state for cell in experiments.get(CONCAT).cells} == {"deleted"}  # it had no run yet


def test_folds_are_experiments(experiments, earlier_home):
    by_topic, by_number = sorted(experiments.list(FOLDS), key=lambda each: each.record.by, reverse=True)
    assert (by_topic.record.name, by_topic.record.by, by_number.record.by) == ("arguments.csv", "topic", "2 folds")
    assert [(cell.plan.label, cell.plan.pairs, cell.state) for cell in by_topic.cells] == [
        *(("guns", 15, "finished"), ("marriage", 15, "stopped"))
    ]
    assert (round(by_topic.cells[0].before, 2), round(by_topic.cells[0].value, 2)) == (32.13, 30.24)
    assert [cell.state for cell in by_number.cells] == ["stopped", "deleted"]
    assert experiments.resume(by_number.id).counts == {"queued": 1, "deleted": 1}
    group = run_groups(earlier_home)[by_topic.cells[0].run.id]
    assert group.name == "folds: arguments.csv by topic"
    experiments.stop(by_number.id)
    experiments.delete(by_number.id)
    assert [each.id for each in experiments.list(FOLDS)] == [by_topic.id]


def test_folds_are_no_sweep_for_ablate(earlier_home, capsys):
    assert main(["ablate", "--resume", "20261123-154307-arguments", "--home", str(earlier_home)]) == 2
    assert "20261123-154307-arguments is no sweep" in capsys.readouterr().err


def test_projects_and_their_ratings_are_read(earlier_home):
    projects = Projects(earlier_home)
    ((project_id, info),) = projects.list()
    assert (project_id, info.name, info.second_model) == ("news-pairs", "News pairs", "minilm-stsb")
    project = projects.open(project_id)
    assert (len(project.pairs), project.pairs[0].first) == (60, "Sätze 0 a b")
    assert {rater: len(scores) for rater, scores in project.ratings().items()} == {"Ada": 50, "Bob": 1}
    training = last_training(project)
    assert (training.train, training.dev, len(training.held_out)) == (30, 10, 10)
    assert training.held_out[0] == ("Sätze 19 a b", "sentence 19 b a", 1.0)


def test_groups_and_names_of_clusters_are_read(earlier_home):
    (group,) = group_store(earlier_home).get("0123456789abcdef").groups
    assert (group.name, group.rows) == ("to check", (3, 14))
    edits = edit_store(earlier_home).get("fedcba9876543210")
    assert (edits.names, edits.merged) == ({0: "finance"}, {3: 0})
