"""Bootstrap replicates and confidence intervals of a correlation.

``bootstrap_replicates`` draws the same pairs for every model that is scored on the same data, so that two models can
be compared replicate by replicate (a paired bootstrap). Sorting each resample would take most of the time. A resample
is instead a weight for each pair (how often it was drawn); the ranks of weighted values follow from one sort of the
original values and a cumulative sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from training.evaluation.metrics import pearson, spearman

RESAMPLES = 1_000
BLOCK = 50  # resamples that are computed at a time: the memory of 50, not of a thousand
BLOCK_VALUES = 1_000_000  # weights that are computed at a time, where 50 resamples have more
FEWER_RESAMPLES = (1_000, 500, 200)  # of large data; see `affordable_resamples`
RESAMPLED_PAIRS = 2_000_000  # that all resamples of a bootstrap hold together: nobody waits a second for an interval
ASYMPTOTIC_FROM = 20_000  # pairs from which an interval comes from a formula instead of resampling
NORMAL_975 = 1.959964  # the 97.5th percentile of the standard normal distribution
ROUNDING = 1e-20  # relative size of what rounding errors leave of a variance that is zero


class Interval(NamedTuple):
    """A 95% confidence interval and the method that gave it."""

    low: float
    high: float
    method: str


def bootstrap_interval(
    x: np.ndarray, y: np.ndarray, statistic: str = "spearman", resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """95% percentile bootstrap interval of the correlation of ``x`` and ``y``, pairs drawn with replacement.

    From 20,000 pairs on the interval comes from Fisher's z transformation (with the variance of Bonett & Wright 2000
    for Spearman), which agrees with the bootstrap at that size and costs nothing. NaN for fewer than four pairs and
    for constant values.
    """
    correlation = spearman(x, y) if statistic == "spearman" else pearson(x, y)
    if np.isnan(correlation) or len(x) < 4:
        return Interval(float("nan"), float("nan"), "too few pairs")
    if len(x) >= ASYMPTOTIC_FROM:
        error = np.sqrt((1 + correlation**2 / 2 if statistic == "spearman" else 1) / (len(x) - 3))
        low, high = np.tanh(np.arctanh(min(correlation, 1 - 1e-12)) + np.array([-NORMAL_975, NORMAL_975]) * error)
        return Interval(float(low), float(high), "Fisher z")
    low, high = np.nanpercentile(bootstrap_replicates(x, y, statistic, resamples, seed), [2.5, 97.5])
    return Interval(float(low), float(high), f"bootstrap, {resamples:,} resamples")


def bootstrap_replicates(
    x: np.ndarray, y: np.ndarray, statistic: str = "spearman", resamples: int = RESAMPLES, seed: int = 0
) -> np.ndarray:
    """The correlation of (N,) and (N,) in each resample -> float64 (resamples,); NaN where drawn values are constant.

    ``statistic`` is spearman or pearson. N and ``seed`` alone decide which pairs are drawn.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    transform = _weighted_ranks if statistic == "spearman" else _unchanged
    transform_x, transform_y = transform(x), transform(y)
    return np.concatenate(
        [
            _weighted_correlations(transform_x(weights), transform_y(weights), weights)
            for weights in resample_weights(len(x), resamples, seed)
        ]
    )


def resample_weights(n: int, resamples: int = RESAMPLES, seed: int = 0) -> Iterator[np.ndarray]:
    """How often each of ``n`` rows is drawn in each resample, a block of resamples at a time: float64 (R, n) each."""
    random, block = np.random.default_rng(seed), max(1, min(BLOCK, BLOCK_VALUES // n))
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        drawn = random.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
        yield np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n).astype(np.float64)


def affordable_resamples(n: int) -> int:
    """The number of resamples of ``n`` rows that takes no noticeable time: 1,000 up to 2,000 rows, at least 200."""
    return next((count for count in FEWER_RESAMPLES if count * n <= RESAMPLED_PAIRS), FEWER_RESAMPLES[-1])


Transform = Callable[[np.ndarray], np.ndarray]  # weights (R, N) -> the values to correlate, (R, N) or (1, N)


def _unchanged(values: np.ndarray) -> Transform:
    return lambda weights: values[None]


def _weighted_ranks(values: np.ndarray) -> Transform:
    """A function from weights (R, N) to the ranks (R, N) of ``values``, of which each occurs so often; ties share."""
    order = np.argsort(values, kind="stable")
    differs = np.concatenate([[True], np.diff(values[order]) != 0])
    group_starts = np.flatnonzero(differs)
    group = np.empty(len(values), dtype=np.int64)  # of equal values, in ascending order
    group[order] = np.cumsum(differs) - 1

    def ranks(weights: np.ndarray) -> np.ndarray:
        sizes = np.add.reduceat(weights[:, order], group_starts, axis=1)
        return (np.cumsum(sizes, axis=1) - (sizes - 1) / 2)[:, group]

    return ranks


def _weighted_correlations(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted Pearson, row by row. (R, N) or (1, N) each -> (R,); NaN where the drawn values are constant."""
    total = weights.sum(axis=1, keepdims=True)
    a = x - (weights * x).sum(axis=1, keepdims=True) / total
    b = y - (weights * y).sum(axis=1, keepdims=True) / total
    variance_a, variance_b = (weights * a * a).sum(axis=1), (weights * b * b).sum(axis=1)
    varies_a = variance_a > ROUNDING * (weights * x * x).sum(axis=1)
    varies_b = variance_b > ROUNDING * (weights * y * y).sum(axis=1)
    correlations = np.full(len(weights), np.nan)
    covariance = (weights * a * b).sum(axis=1)
    np.divide(covariance, np.sqrt(variance_a * variance_b), out=correlations, where=varies_a & varies_b)
    return correlations
