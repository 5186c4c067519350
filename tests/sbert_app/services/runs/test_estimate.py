"""What is known of a run before it starts: rows, steps, notes, time; and what is told when it cannot work."""

from pathlib import Path

import pytest
from paths import linked_home

from sbert_app.services.background.watch import State
from sbert_app.services.runs import estimate
from sbert_app.services.runs.estimate import (
    RunEstimate,
    TrainingRate,
    estimate_run,
    known_rate,
)
from sbert_app.services.runs.record import PRESETS, RunRecord, two_stage_base
from sbert_app.services.runs.store import RunStore
from training.catalogue import DEFAULT_MODEL
from training.errors import InputError, UserFacingError
from training.trainer.config import RunConfig


@pytest.fixture
def store(home: Path, tmp_path: Path) -> RunStore:
    return RunStore(linked_home(home, tmp_path))


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "pairs.csv"
    path.write_text("sentence1,sentence2,score\n" + "A cat sleeps.,A dog barks.,1.5\n" * 40)
    return str(path)


def test_rows_and_steps_of_data_on_this_machine_are_exact(store, file):
    found = estimate_run(RunConfig("regression", train_data=file, epochs=2.5), store)
    # 3 batches a pass
    assert (found.rows, found.columns, found.kind, found.steps) == (40, 2, "scored pairs", 8)
    assert estimate_run(RunConfig("regression", train_data=file, max_steps=500), store).steps == 500
    assert (
        estimate_run(RunConfig("regression", train_data=f"{file}+sts12"), store).rows == 40 + 3_108
    )


def test_a_file_that_has_changed_is_read_again(store, file):
    assert estimate_run(RunConfig("regression", train_data=file), store).rows == 40
    Path(file).write_text("sentence1,sentence2,score\na,b,1\n")
    assert estimate_run(RunConfig("regression", train_data=file), store).rows == 1


@pytest.mark.parametrize(("mix", "steps"), [("proportional", 4 + 3), ("round-robin", 3 + 3)])
def test_several_data_sets_add_up_by_their_batches(store, file, mix, steps):
    more = Path(file).with_name("together.csv")
    more.write_text("anchor,positive\n" + "A cat sleeps.,The cat is asleep.\n" * 50)
    config = RunConfig(train_data=f"{more}=mnrl+{file}=cosent", mix=mix)
    found = estimate_run(config, store)
    assert (found.rows, found.steps, found.kind) == (90, steps, "pairs and scored pairs")
    assert found.rows_of_parts == (50, 40)


def test_derived_mined_and_overlapping_rows_are_announced(store):
    found = estimate_run(RunConfig("triplet"), store)
    assert found.columns == 3
    assert "negatives" in found.notes[1]
    found = estimate_run(RunConfig("regression"), store)
    assert "7 of 1,500 scored pairs of stsb:dev are in the training data" in found.notes[0]
    assert "252 share a sentence with it" in found.notes[0]
    found = estimate_run(RunConfig("mnrl", mine_negatives=True), store)
    assert (found.columns, found.kind) == (3, "triplets")
    assert "mined by all-MiniLM-L6-v2 before the first step" in found.notes[-1]


def test_data_of_the_hub_is_judged_without_fetching_it(store):
    found = estimate_run(RunConfig("classification", train_data="all-nli:train"), store)
    assert (found.rows, found.steps) == (942_069, 58_880)
    assert "downloaded from the Hub" in found.notes[0]
    assert estimate_run(RunConfig("mnrl", train_data="snli", max_steps=10), store).steps == 10
    assert estimate_run(RunConfig("mnrl", train_data="snli"), store).steps is None, (
        "known when it has been fetched"
    )


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (
            {"objective": "regression", "train_data": "snli"},
            "snli holds labelled pairs; classification learns from",
        ),
        (
            {"objective": "classification", "train_data": "wiki-sections"},
            "holds triplets; triplet and mnrl learn",
        ),
        ({"objective": "regression", "train_data": "mine.csv"}, "neither a file nor a known set"),
        (
            {"objective": "regression", "train_data": "snli:half"},
            "no split 'half'; choose train, dev, test",
        ),
        ({"objective": "regression", "base": "run:none"}, "there is no run 'none'"),
    ],
)
def test_a_config_that_cannot_work_is_refused_with_one_that_can(store, config, told):
    with pytest.raises(UserFacingError, match=told):
        estimate_run(RunConfig(**config), store)


@pytest.mark.parametrize(
    ("objective", "train_data", "columns", "rows"),
    [
        ("classification", "snli:train+mnli", 2, 942_069),
        ("classification", "snli+mnli:dev", 2, None),
        ("simcse", "snli", 2, None),
        ("mse", "wiki-sections", 3, 1_779_417),
        ("margin-mse", "snli", 3, None),
        ("cosent", "sickr", 2, 9_927),
    ],
)
def test_data_sets_of_the_hub_have_known_columns_and_row_counts(
    store, objective, train_data, columns, rows
):
    teacher = {"teacher": "minilm-stsb"} if "mse" in objective else {}
    found = estimate_run(RunConfig(objective, train_data=train_data, **teacher), store)
    assert (found.columns, found.rows) == (columns, rows)


def test_a_teacher_is_announced_and_checked_as_a_base_is(store, file):
    found = estimate_run(RunConfig("mse", train_data=file, teacher="minilm-stsb"), store)
    assert (found.rows, found.columns, found.kind) == (40, 2, "pairs")
    assert found.notes[-1] == "the teacher minilm-stsb computes the targets before the first step"
    with pytest.raises(UserFacingError, match="there is no run 'none' in"):
        estimate_run(RunConfig("mse", train_data=file, teacher="run:none"), store)
    run = store.create(RunConfig("regression"))
    with pytest.raises(InputError, match="has no model yet"):
        estimate_run(RunConfig("regression", base=f"run:{run.id}"), store)


def test_time_is_steps_and_evaluations_at_their_rates():
    found = RunEstimate(
        RunConfig("regression", max_steps=100, batch_size=16),
        rows=5_000,
        columns=2,
        kind="scored pairs",
    )
    measured = TrainingRate(
        sentences_per_second=320, evaluation_seconds=2, source="", other_seconds=65
    )
    assert measured.seconds(found) == pytest.approx(65 + 100 * 32 / 320 + 5 * 2)
    assert measured.seconds(RunEstimate(RunConfig("regression"), None, 2, "scored pairs")) is None


def test_the_rate_is_that_of_the_newest_run_of_its_kind(store, file):
    config = RunConfig("regression", train_data=file, base="scratch:1x32")
    assert known_rate(config, store.list()) is None
    for speed in (100.0, 300.0):
        run = store.create(config)
        lines = [
            f'{{"kind": "train", "step": {step}, "sentences_per_second": {speed}}}'
            for step in (1, 2)
        ]
        lines.insert(0, '{"kind": "state", "step": 0, "state": "running", "t": 22}')
        lines.append('{"kind": "eval", "step": 2, "seconds": 0.5, "t": 70}')
        lines.append('{"kind": "test", "step": 2, "t": 123}')
        (run.folder / "events.jsonl").write_text("\n".join([*lines, ""]))
        RunRecord(State.FINISHED, created=9.0, started=10.0).write(run.folder)
    known = known_rate(config, store.list())
    assert known.sentences_per_second == 300
    assert known.other_seconds == 12 + 53, "the start and the test evaluation"
    assert known_rate(config.replace(batch_size=32), store.list()) == known
    for change in ({"base": "scratch:2x64"}, {"batch_size": 64}, {"objective": "cosent"}):
        assert known_rate(config.replace(**change), store.list()) is None, change


def test_of_data_that_is_not_here_no_overlap_is_claimed(store):
    for train_data in ("snli", "snli=classification+stsb:train=regression"):
        found = estimate_run(
            RunConfig("classification", train_data=train_data, eval_data="stsb:dev"), store
        )
        assert "downloaded" in " ".join(found.notes) and "share a sentence" not in " ".join(
            found.notes
        )


def test_word_vectors_that_are_not_here_are_announced_and_not_fetched(store, file, monkeypatch):
    config = RunConfig("regression", train_data=file, eval_data=file, base="scratch:dan")
    for is_here in (False, True):
        monkeypatch.setattr(estimate, "has_glove", lambda home, is_here=is_here: is_here)
        notes = " ".join(estimate_run(config, store).notes)
        assert ("GloVe, 76 MB from the package index" in notes) != is_here


@pytest.mark.parametrize("name", PRESETS)
def test_each_preset_fills_every_field_of_the_form_and_can_be_started(store, name):
    assert PRESETS[name].fields().keys() == RunConfig("regression").to_dict().keys()
    assert name == "mine" or estimate_run(PRESETS[name].config(), store).steps > 0


def test_the_second_stage_starts_from_the_newest_run_on_nli(store):
    assert two_stage_base(store.list()) == DEFAULT_MODEL
    runs = [
        store.create(RunConfig("classification", train_data=data))
        for data in ("snli", "all-nli:train", "stsb")
    ]
    for run in runs[1:]:
        (run.folder / "model").mkdir()
        (run.folder / "model/modules.json").write_text("[]")
    assert two_stage_base(store.list()) == f"run:{runs[1].id}"
