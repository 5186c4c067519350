"""The threshold of a model, and what that of another model becomes under it, on the same pairs."""

import json

import numpy as np
import pytest
from bag_encoder import BagEncoder

from sbert_app.services.results.carry import ModelThreshold, advise
from training.data.dataset import Dataset
from training.errors import InputError
from training.evaluation.thresholds import carry_threshold, choose_threshold
from training.models.lexical import TfIdf
from training.names import ModelName

NEW = ModelName.parse("new")
OLD = ModelName.parse("old")


@pytest.fixture
def pairs() -> Dataset:
    words = np.random.default_rng(0).choice(
        ["red", "blue", "cat", "dog", "house", "tree", "car", "sea"], (120, 5)
    )
    first = [" ".join(row) for row in words]
    second = [text if i % 3 == 0 else first[(i + 1) % 120] for i, text in enumerate(first)]
    labels = [int(i % 3 == 0) for i in range(120)]
    return Dataset("mine", (first, second), labels=labels, label_names=("no", "yes"))


def test_a_threshold_is_carried_over_by_its_share_and_by_its_precision():
    """Twice the scores are the same order: the threshold is twice as high by either."""
    random = np.random.default_rng(0)
    matches = np.arange(900) % 3 == 0
    was = np.where(matches, random.normal(0.4, 0.1, 900), random.normal(0.2, 0.1, 900))
    carried = carry_threshold(2 * was, matches, was, 0.35)
    assert carried.accepted == (was >= 0.35).mean()
    assert carried.precision.value == matches[was >= 0.35].mean()
    assert ((2 * was >= carried.same_share) == (was >= 0.35)).all()
    same = carry_threshold(was[::-1], matches[::-1], was, 0.35)
    assert (was[::-1] >= same.same_share).mean() == pytest.approx(carried.accepted, abs=1 / 900)
    above = 2 * was >= carried.same_precision
    assert matches[above].mean() >= carried.precision.value
    assert choose_threshold(2 * was, matches, was=(was, 0.35)) == carried.same_precision


def test_a_threshold_that_accepts_nothing_is_carried_and_told():
    scores = np.linspace(0, 1, 90)
    matches = np.arange(90) % 3 == 0
    nothing = carry_threshold(scores, matches, scores, 2.0)
    assert (nothing.accepted, np.isnan(nothing.same_share)) == (0, True)


def test_a_precision_that_no_threshold_reaches_is_refused():
    scores = np.linspace(0, 1, 90)
    matches = np.arange(90) % 3 == 0
    with pytest.raises(InputError, match=r"has the precision that 0\.5 had on these pairs"):
        choose_threshold(scores, matches, was=(matches.astype(float), 0.5))


def test_both_models_score_the_same_pairs_and_the_answer_is_plain_json(pairs, tmp_path):
    models = {NEW: BagEncoder(), OLD: TfIdf()}
    was = ModelThreshold(OLD, 0.9)
    advice = advise(NEW, pairs, models.__getitem__, tmp_path, ["precision=0.5"], was)
    assert advice.carried_sentence.startswith(
        "0.9 under old accepts 34.2% of these pairs, of which 98% match (95% 92 to"
    )
    assert f"the same precision {advice.carried.same_precision:.3f}" in advice.carried_sentence
    answer = json.loads(json.dumps(advice.to_dict()))
    assert answer["was"] == {"model": "old", "threshold": 0.9}
    assert answer["choices"][0]["criterion"] == "precision=0.5"
    assert answer["carried"]["accepted"] == pytest.approx(41 / 120)
    assert advise(NEW, pairs, models.__getitem__, tmp_path).carried_sentence == ""


@pytest.mark.parametrize(
    "text", ["", "0.82", "@0.82", "model", "model@", "model@high", "model@nan"]
)
def test_a_model_and_its_threshold_are_a_name_and_a_number(text):
    assert ModelThreshold.parse("org/name@0.82") == (ModelName.parse("org/name"), 0.82)
    with pytest.raises(InputError, match=r"such as all-mpnet-base-v2@0\.82"):
        ModelThreshold.parse(text)
