"""Evaluation: correlations equal scipy's and sentence-transformers', intervals cover, triplets are counted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import SHARED_DATA
from scipy import stats

from training.data.load import Dataset, load_data
from training.errors import InputError
from training.evaluation.metrics import SIMILARITIES, bootstrap_interval, evaluate, pearson, ranks, spearman
from training.models.encoder import Encoder
from training.sources.resolve import model_folder

numbers = st.lists(st.integers(-1000, 1000), min_size=3, max_size=60)


@given(numbers, st.randoms())
def test_correlations_equal_scipys(x, random):
    y = [value + random.randint(-5, 5) for value in x]
    if len(set(x)) < 2 or len(set(y)) < 2:
        assert np.isnan(spearman(x, y))
        return
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-9)
    assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-9)


@given(numbers)
def test_spearman_sees_only_the_order(x):
    if len(set(x)) > 1:
        assert spearman(x, np.arctan(np.asarray(x) / 100)) == pytest.approx(1)


@given(st.lists(st.floats(allow_nan=False), max_size=60) | numbers)
def test_ranks_equal_scipys(values):
    assert ranks(np.array(values, dtype=float)).tolist() == stats.rankdata(values).tolist()


def test_what_is_no_number_has_no_rank():
    assert np.isnan(ranks(np.array([1.0, np.nan, 2.0]))).all()
    assert np.isnan(spearman([1.0, np.nan, 2.0], [1, 2, 3]))


def test_a_constant_side_has_no_correlation():
    assert np.isnan(spearman([1, 1, 1], [1, 2, 3]))
    assert np.isnan(pearson([1], [1]))


def test_similarities_grow_with_likeness():
    near, far = np.array([[1.0, 2.0]]), np.array([[-3.0, 0.5]])
    for similarity in SIMILARITIES.values():
        assert similarity(near, near * 1.01)[0] > similarity(near, far)[0]


def test_a_zero_vector_has_cosine_zero_with_everything():
    assert SIMILARITIES["cosine"](np.zeros((1, 3)), np.ones((1, 3)))[0] == 0


@pytest.mark.parametrize("statistic", ["spearman", "pearson"])
def test_intervals_cover_the_truth_about_19_times_in_20(statistic):
    random, covered, truth = np.random.default_rng(0), 0, 0.6
    for draw in range(60):
        x = random.standard_normal(120)
        y = truth * x + np.sqrt(1 - truth**2) * random.standard_normal(120)
        # Spearman's ρ of a bivariate normal is 6/π asin(r/2)
        target = 6 / np.pi * np.arcsin(truth / 2) if statistic == "spearman" else truth
        low, high, _ = bootstrap_interval(x, y, statistic, resamples=300, seed=draw)
        covered += low <= target <= high
    assert 50 <= covered <= 60


def test_the_formula_takes_over_where_it_agrees_with_the_bootstrap(monkeypatch):
    random = np.random.default_rng(1)
    x = random.standard_normal(20_000)
    y = x + random.standard_normal(20_000)
    formula = bootstrap_interval(x, y)
    monkeypatch.setattr("training.evaluation.metrics.ASYMPTOTIC_FROM", 10**9)
    resampled = bootstrap_interval(x, y, resamples=300)
    assert formula.method == "Fisher z"
    assert formula[:2] == pytest.approx(resampled[:2], abs=0.002)


def test_the_default_model_on_the_sts_benchmark():
    """82.03 is what the model scores on STSb test, measured with sentence-transformers."""
    found = evaluate(Encoder.load("all-MiniLM-L6-v2", dtype="float32"), "stsb:test")
    assert found["n"] == 1379
    assert found["spearman"]["cosine"] == pytest.approx(0.8203, abs=0.0005)
    assert found["interval"]["low"] < 0.8203 < found["interval"]["high"]


def test_the_referee_agrees_under_each_similarity():
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    data = load_data("stsb:test").select(range(0, 1379, 5))
    gold = [score / 5 for score in data.scores]
    found = evaluate(Encoder.load("all-MiniLM-L6-v2", dtype="float32"), data)
    referee = EmbeddingSimilarityEvaluator(*data.columns, gold, similarity_fn_names=list(SIMILARITIES))
    theirs = referee(SentenceTransformer(str(model_folder("all-MiniLM-L6-v2").path), device="cpu"))
    for name in SIMILARITIES:
        assert found["spearman"][name] == pytest.approx(theirs[f"spearman_{name}"], abs=1e-4)
        assert found["pearson"][name] == pytest.approx(theirs[f"pearson_{name}"], abs=1e-4)


PUBLISHED = {"sts12": 0.7237, "sts14": 0.7560, "sts16": 0.7899}


@pytest.mark.skipif(not SHARED_DATA.exists(), reason="needs the SemEval files")
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_default_model_on_semeval(name):
    found = evaluate(Encoder.load("all-MiniLM-L6-v2"), str(SHARED_DATA / f"{name}.csv"))
    assert found["spearman"]["cosine"] == pytest.approx(PUBLISHED[name], abs=0.0005)


def test_triplets_are_scored_by_accuracy():
    triplets = Dataset(
        "mine",
        (["A dog runs."] * 2, ["A hound is running.", "Stocks fell."], ["Stocks fell.", "A hound is running."]),
    )
    found = evaluate(Encoder.load("all-MiniLM-L6-v2"), triplets)
    assert found["accuracy"]["cosine"] == 0.5


def test_pairs_without_scores_are_refused_in_one_sentence():
    with pytest.raises(InputError, match="needs scored pairs or triplets"):
        evaluate(Encoder.load("scratch:1x32"), Dataset("mine", (["a"], ["b"])))
