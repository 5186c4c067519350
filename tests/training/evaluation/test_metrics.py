"""Correlations equal scipy's; Krippendorff's alpha, the worked examples of Krippendorff (2011)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from training.evaluation.metrics import krippendorff_alpha, pearson, spearman

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


N = float("nan")
# Section C of the paper: four observers, twelve units, missing values; its results by level of measurement
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


@pytest.mark.parametrize(("level", "alpha"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_four_observers_with_missing_values(level, alpha):
    assert krippendorff_alpha(FOUR_OBSERVERS, level) == pytest.approx(alpha, abs=0.0005)


@pytest.mark.parametrize("level", ["nominal", "ordinal", "interval"])
def test_two_observers_with_binary_data_have_one_alpha_at_every_level(level):
    assert krippendorff_alpha(TWO_OBSERVERS, level) == pytest.approx(0.095, abs=0.0005)


def test_perfect_agreement_is_one_and_reversed_scales_are_negative():
    ratings = np.arange(6.0)
    assert krippendorff_alpha(np.array([ratings, ratings])) == pytest.approx(1)
    assert krippendorff_alpha(np.array([ratings, ratings[::-1]])) < -0.5


@pytest.mark.parametrize("ratings", [[[1, 1, 1], [1, 1, 1]], [[1, N, 3], [N, 2, N]], [[1, 2, 3]]])
def test_without_variation_or_without_two_ratings_of_an_item_it_is_undefined(ratings):
    assert np.isnan(krippendorff_alpha(np.array(ratings, dtype=float)))


@given(st.integers(0, 10_000))
def test_interval_alpha_is_one_minus_the_ratio_of_mean_squared_differences(seed):
    random = np.random.default_rng(seed)
    ratings = random.integers(0, 6, size=(3, 15)).astype(float)
    ratings[random.random(ratings.shape) < 0.2] = np.nan
    units = [unit[~np.isnan(unit)] for unit in ratings.T]
    units = [unit for unit in units if len(unit) > 1]
    everything = np.concatenate(units)
    if np.ptp(everything) == 0:
        return
    observed = sum(np.square(unit[:, None] - unit[None]).sum() / (len(unit) - 1) for unit in units) / len(everything)
    n = len(everything)
    expected = np.square(everything[:, None] - everything[None]).sum() / (n * (n - 1))
    assert krippendorff_alpha(ratings) == pytest.approx(1 - observed / expected)
