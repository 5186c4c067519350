"""Correlations equal scipy's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from training.evaluation.metrics import pearson, spearman

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


def test_what_is_no_number_or_never_varies_has_no_rank_or_correlation():
    assert np.isnan(spearman([1.0, np.nan, 2.0], [1, 2, 3]))
    assert np.isnan(spearman([1, 1, 1], [1, 2, 3]))
    assert np.isnan(pearson([1], [1]))
