"""`trainer/train.py`: where a run is kept, that it replaces no other unasked, and which data judges it."""

from pathlib import Path

import pytest
from run_helpers import of_kind, run

from sbert_app.services.runs.store import RunStore
from training import Encoder, InputError, RunConfig, train
from training.data.load import load_data
from training.data.overlap import overlap
from training.objectives.base import HELD_OUT, hold_out


@pytest.fixture
def short(config: RunConfig) -> RunConfig:
    return config.replace(max_steps=2, eval_every=1)


def test_a_run_without_a_folder_is_kept_in_the_home_folder(short, tmp_path):
    results = [train(short, print, home=tmp_path) for _ in range(2)]
    store = RunStore(tmp_path)
    assert {stored.id for stored in store.list()} == {result.id for result in results}
    assert {stored.state for stored in store.list()} == {"finished"}
    encoder = results[0].encoder
    assert isinstance(encoder, Encoder)
    assert Path(encoder.name) == tmp_path / "runs" / results[0].id / "model"


def test_no_folder_keeps_no_model(short, tmp_path):
    result, _ = run(short, None, home=tmp_path)
    with pytest.raises(InputError, match="has no model"):
        _ = result.encoder
    assert not (tmp_path / "runs").exists()


def test_a_run_replaces_another_only_where_it_is_told_to(short, tmp_path):
    first, _ = run(short, tmp_path / "run")
    weights = Path(str(first.path), "model.safetensors").read_bytes()
    other = short.replace(seed=1)
    with pytest.raises(
        InputError,
        match="holds another run: name another folder, or pass resume=True or overwrite=",
    ):
        run(other, tmp_path / "run")
    assert Path(str(first.path), "model.safetensors").read_bytes() == weights
    run(other, tmp_path / "run", overwrite=True)
    assert Path(str(first.path), "model.safetensors").read_bytes() != weights


def test_a_tenth_of_own_data_judges_the_run_unless_other_data_is_named(short, pairs):
    assert RunConfig("mnrl").eval_data == "stsb:dev"
    own = RunConfig("regression", base="scratch:1x32", train_data=Path(pairs), max_steps=1)
    assert own.eval_data == HELD_OUT
    _, events = run(own)
    [note] = [note for note in of_kind(events, "state")[0]["notes"] if "held out" in note]
    assert (
        note
        == "16 of 162 rows, which share no sentence with the rest, are held out to judge the run"
    )
    assert of_kind(events, "state")[0]["rows"] == 146
    assert of_kind(events, "eval")[0]["spearman"] is not None

    _, in_memory = run(
        RunConfig("regression", base="scratch:1x32", max_steps=1), train_data=load_data(pairs)
    )
    assert of_kind(in_memory, "eval")[0]["spearman"] == of_kind(events, "eval")[0]["spearman"]
    _, unjudged = run(own, eval_data=None)
    assert "spearman" not in of_kind(unjudged, "eval")[0]


def test_held_out_rows_share_no_sentence_with_the_rest(pairs):
    data = load_data(pairs)
    rest, held = hold_out(data, "regression")
    assert held is not None
    assert len(rest) + len(held) == len(data)
    assert overlap(held, [rest]).shared == 0


def test_few_rows_are_not_held_out(pairs):
    few = load_data(pairs).select(range(20))
    assert hold_out(few, "regression")[1] is None
    assert "name dev data" in hold_out(few, "regression")[0].notes[-1]
