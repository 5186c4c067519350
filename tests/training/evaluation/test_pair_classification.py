"""Pair classification: average precision and the best F1, where equal scores cannot be told apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, f1_score

from training.evaluation.metrics import classify_pairs

# A few different scores, so that many are equal; both labels occur.
PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 1)), min_size=2, max_size=40).filter(
    lambda rows: len({label for _, label in rows}) == 2
)


@pytest.mark.parametrize("labels", [[1, 0], [0, 1]])
def test_equal_scores_are_on_one_side_of_every_threshold(labels):
    found = classify_pairs(np.array([0.5, 0.5]), np.array(labels))
    assert found.f1 == pytest.approx(2 / 3)
    assert found.average_precision == pytest.approx(0.5)
    assert (found.threshold, found.precision, found.recall) == (0.5, 0.5, 1.0)


def test_by_hand():
    found = classify_pairs(np.array([0.9, 0.8, 0.4, 0.1]), np.array([1, 1, 0, 0]))
    assert found == (1.0, 1.0, pytest.approx(0.6), 1.0, 1.0)
    found = classify_pairs(np.array([0.9, 0.8, 0.7]), np.array([1, 0, 1]))
    assert found.average_precision == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    assert (found.f1, found.threshold) == (pytest.approx(0.8), 0.7)


@given(PAIRS)
def test_average_precision_is_scikit_learns(rows):
    scores, labels = np.array(rows, dtype=float).T
    assert classify_pairs(scores, labels).average_precision == pytest.approx(average_precision_score(labels, scores))


@given(PAIRS)
def test_f1_is_the_highest_of_all_thresholds_and_that_of_its_own(rows):
    scores, labels = np.array(rows, dtype=float).T
    found = classify_pairs(scores, labels)
    assert found.f1 == pytest.approx(max(f1_score(labels, scores >= each) for each in set(scores)))
    assert f1_score(labels, scores >= found.threshold) == pytest.approx(found.f1)


@given(PAIRS, st.randoms())
def test_the_order_of_the_rows_does_not_matter(rows, random):
    shuffled = rows.copy()
    random.shuffle(shuffled)
    first, second = (classify_pairs(*np.array(each, dtype=float).T) for each in (rows, shuffled))
    assert first == pytest.approx(second)


@pytest.mark.parametrize(("scores", "labels"), [([0.1, 0.2], [1, 1]), ([0.1, 0.2], [0, 0]), ([0.1, np.nan], [1, 0])])
def test_without_both_labels_or_with_scores_that_are_no_numbers_there_is_no_answer(scores, labels):
    with pytest.raises(ValueError, match=r"both labels|not a number"):
        classify_pairs(np.array(scores), np.array(labels))
