"""Correlations equal scipy's; similarities grow with likeness, for dense and sparse vectors alike."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from training.evaluation.metrics import SIMILARITIES, pearson, ranks, similarities, spearman
from training.models.lexical import TfIdf

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
        assert similarity.of(near, near * 1.01)[0] > similarity.of(near, far)[0]


def test_a_zero_vector_has_cosine_zero_with_everything():
    assert SIMILARITIES["cosine"].of(np.zeros((1, 3)), np.ones((1, 3)))[0] == 0


def test_sparse_vectors_are_compared_as_dense_ones_are(monkeypatch):
    monkeypatch.setattr("training.evaluation.metrics.DENSE_ROWS", 2)  # several blocks
    texts = ["a man plays", "a man sings", "the dog", "a dog", "", "a guitar"]
    sparse, dense = TfIdf().encode_sparse(texts), TfIdf().encode(texts)
    found = similarities(sparse[:3], sparse[3:])
    for name, similarity in SIMILARITIES.items():
        assert found[name] == pytest.approx(similarity.of(dense[:3], dense[3:]), abs=1e-6)
