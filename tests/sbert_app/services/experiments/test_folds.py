"""Every pair is held out once; each fold is an ordinary run."""

import csv
from dataclasses import replace

import pytest

from sbert_app.services.experiments import folds
from sbert_app.services.experiments.experiment import FOLDS, Experiments
from sbert_app.services.jobs.queue import RunQueue
from sbert_app.services.runs.store import RunStore
from training.data.dataset import Dataset
from training.data.load import load_data
from training.data.overlap import Overlap
from training.errors import InputError


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "arguments.csv"
    with path.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["sentence1", "sentence2", "score", "Topic"])
        for number in range(60):
            topic = ("guns", "marriage", "penalty")[number % 3]
            writer.writerow(
                [f"{topic} claim {number}", f"claim {number + 1}, again", number % 6, topic]
            )
    return path


@pytest.fixture
def experiments(tmp_path, monkeypatch):
    jobs = RunQueue(RunStore(tmp_path / "home"))
    jobs.starts_workers = False  # nobody works on them here
    return Experiments(jobs)


def test_k_folds_hold_out_every_pair_once(file):
    for k in (2, 6):
        data, found = folds.split(file, k)
        assert sorted(row for test in found.values() for row in test) == list(range(len(data)))


def test_folds_that_are_too_small_are_refused(file):
    for k, complaint in ((1, "choose 2 to 20"), (7, "7 folds need 70 at least")):
        with pytest.raises(InputError, match=complaint):
            folds.split(file, k)


def test_pairs_that_share_a_sentence_are_in_one_fold():
    first = [f"claim {number // 4}" for number in range(80)]  # each of 20 sentences in four pairs
    data = Dataset("mine", (first, [f"answer {number}" for number in range(80)]), scores=[1.0] * 80)
    found = folds.k_folds(data, 5)
    assert [len(test) for test in found.values()] == [16] * 5
    for test in found.values():
        assert not {first[row] for row in test} & {
            first[row] for row in range(80) if row not in test
        }
    connected = Dataset("mine", (["one claim"] * 80, data.columns[1]), scores=[1.0] * 80)
    with pytest.raises(InputError, match="80 of its 80 pairs are in one fold"):
        folds.k_folds(connected, 2)


def test_a_topic_that_is_held_out_is_not_trained_on(file, experiments):
    found = folds.start(file, None, experiments, base="scratch:1x32", max_steps=2)
    assert [cell.plan.label for cell in found.cells] == ["guns", "marriage", "penalty"]
    for cell in found.cells:
        training = load_data(cell.run.config.train_data)
        test = load_data(cell.run.config.eval_data)
        assert (len(training), len(test)) == (40, 20) == (60 - cell.plan.pairs, cell.plan.pairs)
        assert all(text.startswith(cell.plan.label) for text in test.columns[0])
        assert not any(text.startswith(cell.plan.label) for text in training.columns[0])
        assert cell.run.config.max_steps == 2
        assert cell.run.name == f"arguments, without {cell.plan.label}"


def test_resume_creates_a_deleted_run_of_an_experiment_anew(file, experiments):
    found = folds.start(file, 3, experiments, base="scratch:1x32", max_steps=2)
    assert [(each.record.name, each.record.by) for each in experiments.list(FOLDS)] == [
        ("arguments.csv", "3 folds")
    ]
    assert experiments.list(FOLDS) == [found]
    assert [cell.state for cell in found.cells] == ["queued"] * 3
    experiments.stop(found.id)
    experiments.store.delete(found.cells[0].run.id)
    assert [cell.state for cell in experiments.get(found.id).cells] == [
        "deleted",
        "stopped",
        "stopped",
    ]
    resumed = experiments.resume(found.id)
    assert resumed.cells[0].run.config == found.cells[0].run.config
    assert resumed.counts == {"queued": 3}


def test_a_wrong_setting_writes_nothing(file, experiments):
    with pytest.raises(InputError, match="max_steps"):
        folds.start(file, None, experiments, max_steps=-1)
    assert not (experiments.store.home / "data").exists()
    assert not (experiments.store.home / "experiments").exists()
    assert experiments.store.list() == []


def test_a_file_without_topics_needs_a_number_of_folds(tmp_path):
    path = tmp_path / "plain.csv"
    path.write_text("sentence1,sentence2,score\n" + "a,b,1\n" * 30)
    with pytest.raises(InputError, match="no column topic"):
        folds.split(path, None)


def test_a_fold_is_not_tested_on_what_its_base_was_trained_on(file, experiments, monkeypatch):
    read = Overlap("arguments.csv", "scored pairs", 60, 3, 3, None, frozenset({0, 3, 6}))
    monkeypatch.setattr(folds, "overlap_with", lambda *_: read)
    started = folds.start(file, None, experiments, base="scratch:1x32", max_steps=2)
    assert [cell.plan.pairs for cell in started.cells] == [17, 20, 20]
    assert len(load_data(started.record.runs[0].config["train_data"])) == 40
    monkeypatch.setattr(folds, "overlap_with", lambda *_: replace(read, read=frozenset(range(40))))
    with pytest.raises(InputError, match="too few are left to judge it by"):
        folds.start(file, None, experiments, base="scratch:1x32", max_steps=2)
