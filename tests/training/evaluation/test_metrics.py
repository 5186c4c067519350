"""Correlations, F1 and alpha: those of scipy, scikit-learn, sentence-transformers and Krippendorff (2011)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sentence_transformers.sentence_transformer.evaluation import BinaryClassificationEvaluator
from sklearn.metrics import average_precision_score, f1_score

from training.agreement import krippendorff_alpha
from training.evaluation.metrics import classify_pairs, pearson, spearman

numbers = st.lists(st.integers(-1000, 1000), min_size=3, max_size=60)


@given(numbers, st.randoms())
def test_correlations_equal_scipys(x, random):
    y = [value + random.randint(-5, 5) for value in x]
    if len(set(x)) < 2 or len(set(y)) < 2:
        assert np.isnan(spearman(x, y))
        return
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-9)
    assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-9)


def test_constant_or_missing_values_have_no_correlation():
    assert np.isnan(spearman([1.0, np.nan, 2.0], [1, 2, 3]))
    assert np.isnan(spearman([1, 1, 1], [1, 2, 3]))
    assert np.isnan(pearson([1], [1]))


N = float("nan")
# Section C of the paper: four observers, twelve units, missing values; its results by level of
# measurement
FOUR_OBSERVERS = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, N, N, N],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, N, 3],
        [N, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, N],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, N],
    ]
)
# Section A: two observers, binary data, ten units
TWO_OBSERVERS = np.array([[0, 1, 0, 0, 0, 0, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]])


@pytest.mark.parametrize(
    ("level", "alpha"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)]
)
def test_alpha_of_the_papers_examples(level, alpha):
    """Binary data have one alpha at every level."""
    assert krippendorff_alpha(FOUR_OBSERVERS, level) == pytest.approx(alpha, abs=0.0005)
    assert krippendorff_alpha(TWO_OBSERVERS, level) == pytest.approx(0.095, abs=0.0005)


@pytest.mark.parametrize("ratings", [[[1, 1, 1], [1, 1, 1]], [[1, N, 3], [N, 2, N]], [[1, 2, 3]]])
def test_alpha_is_undefined_without_variation_or_two_ratings_of_an_item(ratings):
    assert np.isnan(krippendorff_alpha(np.array(ratings, dtype=float)))


# A few different scores, so that many are equal; both labels occur.
PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 1)), min_size=2, max_size=40).filter(
    lambda rows: len({label for _, label in rows}) == 2
)


@given(PAIRS, st.randoms())
def test_f1_and_average_precision_equal_those_of_the_referees(rows, random):
    """Where two thresholds are equally good, which one it is depends on rounding; the order of rows does not matter."""
    scores, labels = np.array(rows, dtype=float).T
    figures = classify_pairs(scores, labels)
    f1, *others = BinaryClassificationEvaluator.find_best_f1_and_threshold(
        scores, labels.astype(int), True
    )
    assert figures.f1 == pytest.approx(f1)
    assert figures.f1 == pytest.approx(f1_score(labels, scores >= figures.threshold))
    if sum(f1_score(labels, scores >= threshold) > f1 - 1e-9 for threshold in set(scores)) == 1:
        assert (figures.precision, figures.recall, figures.threshold) == pytest.approx(others)
    assert figures.average_precision == pytest.approx(average_precision_score(labels, scores))
    random.shuffle(rows)
    assert classify_pairs(*np.array(rows, dtype=float).T) == pytest.approx(figures)


def test_pair_classification_by_hand():
    """Equal scores are on one side of every threshold, and neighbouring numbers are not equal."""
    assert classify_pairs(np.array([0.9, 0.8, 0.4, 0.1]), np.array([1, 1, 0, 0])) == (
        1,
        1,
        pytest.approx(0.6),
        1,
        1,
    )
    for labels in ([1, 0], [0, 1]):
        figures = classify_pairs(np.array([0.5, 0.5]), np.array(labels))
        assert (figures.threshold, figures.precision, figures.recall) == (0.5, 0.5, 1.0)
        assert (figures.f1, figures.average_precision) == (pytest.approx(2 / 3), pytest.approx(0.5))
    high = np.nextafter(0.5, 1)
    figures = classify_pairs(np.array([high, 0.5]), np.array([1, 0]))
    assert (figures.f1, figures.threshold) == (1.0, high)


@pytest.mark.parametrize(
    ("scores", "labels"), [([0.1, 0.2], [1, 1]), ([0.1, 0.2], [0, 0]), ([0.1, np.nan], [1, 0])]
)
def test_classification_needs_both_labels_and_scores_that_are_numbers(scores, labels):
    with pytest.raises(ValueError, match=r"both labels|not a number"):
        classify_pairs(np.array(scores), np.array(labels))
