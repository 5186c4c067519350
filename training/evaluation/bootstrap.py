"""Bootstrap replicates and confidence intervals: the one place where the uncertainty of a figure is computed.

``bootstrap_replicates`` draws the same pairs for every model that is scored on the same data, so that two models can
be compared replicate by replicate, a paired bootstrap (`Difference`). Sorting each resample would take most of the
time. A resample is instead a weight for each pair (how often it was drawn); the ranks of weighted values follow from
one sort of the original values and a cumulative sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from training.evaluation.metrics import pearson, spearman

RESAMPLES = 1_000
ALPHA = 0.05
# The resamples that are computed at a time, which bounds the memory.
BLOCK = 50
# The weights that are computed at a time, where 50 resamples have more.
BLOCK_VALUES = 1_000_000
FEWER_RESAMPLES = (1_000, 500, 200)
# The rows of all resamples of a bootstrap together, so that an interval takes less than a second.
RESAMPLED_PAIRS = 2_000_000
# The number of pairs from which on an interval comes from a formula instead of resampling.
ASYMPTOTIC_FROM = 20_000
NORMAL_975 = 1.959964
# The relative size of the rounding errors in a variance that is zero.
ROUNDING = 1e-20


class Estimate(NamedTuple):
    """A figure and its 95% interval; NaN where there is none."""

    value: float
    low: float
    high: float


NO_ESTIMATE = Estimate(np.nan, np.nan, np.nan)


class Interval(NamedTuple):
    """A 95% confidence interval and the method that gave it."""

    low: float
    high: float
    method: str


def bootstrap_interval(
    x: np.ndarray, y: np.ndarray, statistic: str = "spearman", resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """95% bootstrap interval of the correlation of ``x`` and ``y``, pairs drawn with replacement.

    Spearman's is the percentile interval. Pearson's is studentised on Fisher's z scale (Efron & Tibshirani 1993,
    chapter 12), as the percentile interval of few pairs covers too little. From 20,000 pairs on both come from a
    normal distribution on that scale, with the variance of the correlation's influence function, which is right for
    rare labels too, where Fisher's 1/(N - 3) is not. NaN for fewer than four pairs and for constant values.
    """
    correlation = spearman(x, y) if statistic == "spearman" else pearson(x, y)
    if np.isnan(correlation) or len(x) < 4:
        return Interval(float("nan"), float("nan"), "too few pairs")
    # All pairs are on one line, and so are those of every resample.
    if abs(correlation) > 1 - 1e-12:
        return Interval(correlation, correlation, "exact")
    if len(x) >= ASYMPTOTIC_FROM:
        return Interval(*_asymptotic(x, y, statistic), "Fisher z")
    if statistic == "spearman":
        _, low, high = percentile_interval(correlation, bootstrap_replicates(x, y, statistic, resamples, seed))
        return Interval(low, high, f"bootstrap, {resamples:,} resamples")
    pairs = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    (z,), (error,) = _z_and_error(*pairs, np.ones((1, len(x))))
    resampled = [_z_and_error(*pairs, weights) for weights in resample_weights(len(x), resamples, seed)]
    # Resamples of two different pairs have no error.
    with np.errstate(invalid="ignore", divide="ignore"):
        off = np.concatenate([(replicates - z) / errors for replicates, errors in resampled])
    low, high = np.tanh(z - error * np.percentile(off[np.isfinite(off)], [97.5, 2.5]))
    return Interval(float(low), float(high), f"studentised bootstrap, {resamples:,} resamples")


def _z_and_error(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted Pearson on Fisher's z scale, and its standard error by its influence function.

    (N,), (N,) and weights (R, N) -> (R,), (R,); not finite where the drawn values are constant or on one line.
    """
    total = weights.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        a, b = (values - (weights * values).sum(axis=1, keepdims=True) / total for values in (x, y))
        a, b = (values / np.sqrt((weights * values**2).sum(axis=1, keepdims=True) / total) for values in (a, b))
        r = (weights * a * b).sum(axis=1, keepdims=True) / total
        influence = a * b - r * (a**2 + b**2) / 2
        error = np.sqrt((weights * influence**2).sum(axis=1)) / total[:, 0] / (1 - r[:, 0] ** 2)
        return np.arctanh(np.clip(r[:, 0], -1, 1)), error


def _asymptotic(x: np.ndarray, y: np.ndarray, statistic: str) -> tuple[float, float]:
    """The interval of a correlation of many pairs: normal on Fisher's z scale.

    Ranks are estimated too: a pair moves its own product of ranks, and the ranks of all pairs above it.
    """
    from scipy.stats import rankdata

    if statistic == "pearson":
        (z,), (error,) = _z_and_error(x, y, np.ones((1, len(x))))
    else:
        (a, of_a), (b, of_b) = ((values - values.mean(), values.std()) for values in (rankdata(x), rankdata(y)))
        a, b, n = a / of_a, b / of_b, len(x)
        r = float((a * b).mean())
        product = a * b + n / of_a * _above(x, b) + n / of_b * _above(y, a)
        squares = a * a + b * b + 2 * n / of_a * _above(x, a) + 2 * n / of_b * _above(y, b)
        influence = product - r * squares / 2
        z, error = np.arctanh(r), influence.std() / np.sqrt(n) / (1 - r**2)
    low, high = np.tanh(z + np.array([-NORMAL_975, NORMAL_975]) * error)
    return float(low), float(high)


def _above(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The sum of the weights of higher values, and half those of equal ones, for each value, divided by N: (N,)."""
    _, group = np.unique(values, return_inverse=True)
    sums = np.bincount(group, weights)
    return (np.cumsum(sums[::-1])[::-1] - sums / 2)[group] / len(values)


def percentile_interval(value: float, replicates: np.ndarray) -> Estimate:
    """A figure with the 95% percentile interval of its bootstrap replicates (R,), of which some may be NaN."""
    if np.isnan(value) or np.isnan(replicates).all():
        return Estimate(value, float("nan"), float("nan"))
    low, high = np.nanpercentile(replicates, [2.5, 97.5])
    return Estimate(value, float(low), float(high))


def wilson_interval(successes: float, n: int) -> Interval:
    """Wilson's 95% interval (1927) of a proportion."""
    z2 = NORMAL_975**2
    centre = successes + z2 / 2
    margin = float(np.sqrt(z2 * (successes * (n - successes) / n + z2 / 4)))
    return Interval(max(0.0, (centre - margin) / (n + z2)), min(1.0, (centre + margin) / (n + z2)), "Wilson")


def bootstrap_replicates(
    x: np.ndarray, y: np.ndarray, statistic: str = "spearman", resamples: int = RESAMPLES, seed: int = 0
) -> np.ndarray:
    """The correlation of (N,) and (N,) in each resample, float64 (resamples,); NaN where the values are constant.

    ``statistic`` is spearman or pearson. N and ``seed`` alone decide which pairs are drawn.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if statistic == "spearman":
        of_x, of_y = _weighted_ranks(x), _weighted_ranks(y)
    else:
        of_x, of_y = (lambda weights: x[None]), (lambda weights: y[None])
    blocks = resample_weights(len(x), resamples, seed)
    return np.concatenate([_weighted_correlations(of_x(weights), of_y(weights), weights) for weights in blocks])


def resample_weights(n: int, resamples: int = RESAMPLES, seed: int = 0) -> Iterator[np.ndarray]:
    """The number of times that each resample has each of ``n`` rows, in blocks of resamples: float64 (R, n) each."""
    random, block = np.random.default_rng(seed), max(1, min(BLOCK, BLOCK_VALUES // n))
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        rows = random.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
        yield np.bincount(rows.ravel(), minlength=size * n).reshape(size, n).astype(np.float64)


def affordable_resamples(n: int) -> int:
    """The number of resamples of ``n`` rows that takes no noticeable time: 1,000 up to 2,000 rows, at least 200."""
    return next((count for count in FEWER_RESAMPLES if count * n <= RESAMPLED_PAIRS), FEWER_RESAMPLES[-1])


def _weighted_ranks(values: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """A function from weights (R, N), the numbers of each of ``values``, to their ranks (R, N); ties share a rank."""
    order = np.argsort(values, kind="stable")
    differs = np.concatenate([[True], np.diff(values[order]) != 0])
    group_starts = np.flatnonzero(differs)
    # The number of the group of equal values, in ascending order.
    group = np.empty(len(values), dtype=np.int64)
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


class Difference(NamedTuple):
    """The difference of two correlations in points (×100), positive if the first is better; p is two-sided."""

    points: float
    ci_half_width: float
    p_value: float
    resamples: int

    @classmethod
    def of(
        cls, value_a: float, value_b: float, replicates_a: np.ndarray, replicates_b: np.ndarray
    ) -> Difference | None:
        """The difference of two correlations with replicates (R,) on the same resamples; None if one is undefined."""
        differences = replicates_a - replicates_b
        differences = differences[~np.isnan(differences)]
        if np.isnan(value_a - value_b) or not len(differences):
            return None
        low, high = np.percentile(differences, [2.5, 97.5])
        smaller_tail = min((differences <= 0).sum(), (differences >= 0).sum())
        p_value = min(1.0, 2 * (1 + int(smaller_tail)) / (1 + len(differences)))
        return cls(100 * (value_a - value_b), 50 * float(high - low), p_value, len(differences))

    def describe(self, a: str, b: str, data: str) -> str:
        """A sentence about the models ``a`` and ``b`` on ``data``, such as "on STSb"."""
        # The smallest p-value that so many resamples can show.
        smallest = round(2 / (1 + self.resamples), 3)
        p_value = f"p {'≤' if round(self.p_value, 3) <= smallest else '='} {self.p_value:.3f}"
        test = f"paired bootstrap, {self.resamples:,} resamples, {p_value}"
        margin = f"± {self.ci_half_width:.1f} points"
        if self.p_value >= ALPHA:
            return f"{a} and {b} do not differ significantly {data}: {self.points:+.1f} {margin} ({test})"
        better, worse = (a, b) if self.points > 0 else (b, a)
        return f"{better} is {abs(self.points):.1f} {margin} better than {worse} {data} ({test})"
