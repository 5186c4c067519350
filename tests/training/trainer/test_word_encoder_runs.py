"""`trainer/`, with scratch:bilstm and scratch:dan: what they learn, what a run keeps, what it says of words."""

import json
from pathlib import Path

import numpy as np
import pytest
from run_helpers import curve, of_kind, run, stop_and_resume

from training.catalogue import BILSTM, DAN, WORD_ENCODERS
from training.errors import InputError
from training.models.model import VectorModel, open_model, required
from training.trainer.config import RunConfig

SENTENCES = [
    "A man is playing a guitar.",
    "The woman eats",
    "a dog runs in the snow",
    "Two men talk.",
]


@pytest.fixture
def short(alone, pairs, monkeypatch) -> RunConfig:
    """A few steps where there is no GloVe, and nothing to fetch it from."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("training.models.random_weights.LSTM_DIMENSION", 24)
    monkeypatch.setattr("training.models.random_weights.DENSE_DIMENSION", 24)
    return RunConfig(
        "regression", base=BILSTM, train_data=pairs, eval_data=pairs, max_steps=30, eval_every=15
    )


def test_word_encoders_have_a_learning_rate_of_their_own():
    assert [RunConfig("regression", base=name).learning_rate for name in WORD_ENCODERS] == [
        1e-3,
        1e-3,
    ]
    assert (
        RunConfig("regression", base="scratch:6x384").learning_rate
        == RunConfig("regression").learning_rate
        == 2e-5
    )
    assert [
        RunConfig("mlm", base=base).learning_rate
        for base in ("scratch:2x32", " scratch:2x32", "all-MiniLM-L6-v2")
    ] == [1e-3, 1e-3, 1e-4]
    assert RunConfig("mlm", base=" scratch:2x32", vocabulary_size=200).vocabulary_size == 200
    assert (
        RunConfig("regression", base=DAN, learning_rate=5e-4).replace(seed=1).learning_rate == 5e-4
    )


def test_word_encoders_have_no_words_of_the_dev_data(short, tmp_path):
    dev = tmp_path / "dev.csv"
    dev.write_text(
        "sentence1,sentence2,score\nZyzzyva,A man,1\nA dog,A cat,3\nIt rains,It snows,4\n"
    )
    result, _ = run(short.replace(eval_data=str(dev), max_steps=1), tmp_path / "run")
    words = json.loads((Path(result.path) / "whitespacetokenizer_config.json").read_text())["vocab"]
    assert "guitar" in words
    assert "zyzzyva" not in words


@pytest.mark.parametrize(("name", "pooling"), [(BILSTM, "max"), (DAN, "mean_sqrt_len_tokens")])
def test_word_encoders_learn_and_are_saved_with_the_same_vectors(short, tmp_path, name, pooling):
    result, events = run(short.replace(base=name), tmp_path / "run")
    opening = of_kind(events, "state")[0]
    assert (opening["pooling"], opening["dtype"]) == (pooling, "float32")
    assert any("random word vectors, as GloVe is not here" in note for note in opening["notes"])
    assert result.status == "finished"
    assert result.final["spearman"] > result.baseline["spearman"] + 0.1
    encoder = required(open_model(result.path), VectorModel)
    assert np.isfinite(encoder.encode(SENTENCES)).all()
    card = (Path(result.path) / "README.md").read_text()
    assert "from sentence_transformers import" in card
    # What sentence-transformers opens is not trained here.
    with pytest.raises(
        InputError, match="train other models by sentence-transformers' own trainer"
    ):
        run(short.replace(base=result.path), tmp_path / "again")


def test_a_stopped_run_resumes_to_the_same_end(short, tmp_path):
    config = short.replace(dtype="float32", max_steps=12, eval_every=12)
    assert curve(stop_and_resume(config, tmp_path / "run", 5)) == curve(run(config)[1])
