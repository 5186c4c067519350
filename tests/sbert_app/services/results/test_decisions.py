"""Several models on pairs that match or do not: the best is named, with a reason that a paired test supports."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from sbert_app.services.results.decisions import decide_results, safest
from sbert_app.services.results.grid import with_scores
from sbert_app.services.results.results import EvalResult
from training.data.dataset import Dataset
from training.errors import InputError
from training.evaluation.bootstrap import resample_weights
from training.evaluation.thresholds import CRITERIA, average_precision_replicates
from training.names import ModelName

N = 400
RANDOM = np.random.default_rng(0)
LABELS = np.arange(N) % 2
PAIRS = Dataset.from_pairs([f"a {n}" for n in range(N)], [f"b {n}" for n in range(N)], labels=LABELS.tolist())


def result(noise: float, seconds: float = 1.0) -> EvalResult:
    scores = LABELS + noise * RANDOM.standard_normal(N)
    return EvalResult({"cosine": scores.astype(np.float32)}, 5.0 * LABELS, 2 * N, seconds)


def test_the_best_is_to_take_and_the_reason_is_a_paired_test():
    found = decide_results({ModelName("worse"): result(1.5), ModelName("better"): result(0.3)}, PAIRS, CRITERIA)
    assert [each.label for each in found.models] == ["better", "worse"]
    assert found.to_take.label == "better"
    assert "better is" in found.reason
    assert "better than worse in average precision (paired bootstrap" in found.reason
    assert found.models[0].rho.value > found.models[1].rho.value
    assert found.to_take.safest.criterion == "precision=0.95"


def test_of_models_that_cannot_be_told_apart_the_fastest_is_to_take():
    same = result(0.8)
    slow = EvalResult(same.scores, same.gold, same.num_sentences, 10.0)
    found = decide_results({ModelName("slow"): slow, ModelName("fast"): same}, PAIRS, CRITERIA)
    assert found.to_take.label == "fast"
    assert "do not differ significantly in average precision" in found.reason
    assert "fast reads 800 sentences/s, slow 80" in found.reason
    assert decide_results({ModelName("fast"): same}, PAIRS, CRITERIA).reason == ""


def test_resampled_average_precision_is_that_of_the_pairs_that_were_drawn():
    scores, matches = result(0.8).scores["cosine"].round(1), LABELS.astype(bool)
    weights = np.concatenate(list(resample_weights(N, 1_000)))[:20]
    expected = [average_precision_score(matches, scores, sample_weight=each) for each in weights]
    np.testing.assert_allclose(average_precision_replicates(scores, matches)[:20], expected)


def test_where_no_threshold_has_the_precision_the_best_f1_is_the_default():
    found = decide_results({ModelName("poor"): result(3.0)}, PAIRS, CRITERIA).to_take.on_data.decision
    assert not found.choice("precision=0.95").exists
    assert safest(found.choices).criterion == "best-f1"


def test_labels_are_read_as_scores():
    assert with_scores(PAIRS).scores == (5.0 * LABELS).tolist()
    kinds = ["entailment", "neutral", "contradiction"]
    inferred = Dataset.from_pairs(list("abc"), list("def"), labels=kinds)
    assert with_scores(inferred).scores == [5.0, 2.5, 0.0]
    unknown = Dataset.from_pairs(list("abc"), list("def"), labels=["red", "green", "blue"])
    with pytest.raises(InputError, match="do not say which pairs are matches"):
        with_scores(unknown)
