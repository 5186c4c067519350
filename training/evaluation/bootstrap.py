"""Resampling and confidence intervals: the one place where the uncertainty of a figure is computed.

A `Statistic` is a figure of N rows with its bootstrap replicates. Resamples draw the same pairs for every model that is
scored on the same data, so that the difference of two statistics is a paired bootstrap (`Difference`). Sorting each
resample would take most of the time. A resample is instead a weight for each pair (how often it was drawn); the ranks
of weighted values follow from one sort of the original values and a cumulative sum.

Pairs that share a sentence are not independent, so that the bootstrap over pairs alone gives too narrow intervals. They
are widened by `dependence`: the standard error that allows for shared sentences (Aronow, Samii & Assenova 2015,
"Cluster-Robust Variance Estimation for Dyadic Data"), divided by that of independent pairs, with the two corrections
that are usual for few clusters (Cameron & Miller 2015, "A Practitioner's Guide to Cluster-Robust Inference").
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from training.evaluation.metrics import pearson, spearman, why_undefined

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
NORMAL = NormalDist()
NORMAL_975 = NORMAL.inv_cdf(0.975)
# The share of the rows from which on a sentence is no more influential to `dependence`.
MOST_OF_ROWS = 0.5
# The limits of precision, recall, F1 and other shares.
SHARE = (0.0, 1.0)
# The relative size of the rounding errors in a variance that is zero.
ROUNDING = 1e-20
# The `sentence_keys` of N rows; None where these count as independent.
Keys = np.ndarray | None


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


def sentence_keys(columns: Sequence[Sequence[Hashable]]) -> np.ndarray:
    """Numbers of the first sentence, of the second and of the pair of both in each row, int (N, 3).

    Equal sentences have equal numbers, in either column, and so have equal pairs, in either order. Where both sentences
    of a row are equal, the second has a number of its own.
    """
    place: dict[Hashable, int] = {}
    first, second = (np.array([place.setdefault(text, len(place)) for text in column]) for column in columns)
    second = np.where(first == second, second + len(place), second)
    pairs = np.minimum(first, second) * 2 * len(place) + np.maximum(first, second)
    return np.stack([first, second, np.unique(pairs, return_inverse=True)[1]], axis=1)


def dependence(influence: np.ndarray, keys: Keys) -> float:
    """The factor by which shared sentences widen the standard error of a figure, at least 1.

    ``influence`` (N,) is how far each row moves the figure.
    """
    from scipy.stats import t

    independent = float((influence**2).sum())
    if keys is None or not independent > 0 or (rows := np.bincount(keys[:, :2].ravel())).max() < 2:
        return 1.0
    # The figure follows the rows of a sentence, the more of them there are: what is left of their influence is enlarged
    # by their share, as the jackknife does. A sentence of most rows would leave nothing.
    enlarged = 1 / (1 - np.minimum(rows / len(keys), MOST_OF_ROWS))
    # The products of the influences of all rows that share a sentence. Equal pairs share two, and count once.
    by_sentence = enlarged * np.bincount(keys[:, :2].ravel(), np.repeat(influence, 2))
    shared = (by_sentence**2).sum() - (np.bincount(keys[:, 2], influence) ** 2).sum()
    # The error is estimated from as many values as there are sentences.
    quantile = t.ppf(1 - ALPHA / 2, np.count_nonzero(rows) - 1) / NORMAL_975
    return float(quantile * np.sqrt(max(shared / independent, 1.0)))


@dataclass(frozen=True, eq=False)
class Statistic:
    """A figure of N rows, its values (R,) in bootstrap resamples, and how far each row moves it, (N,).

    The intervals allow for ``keys``. ``limits`` are the least and the greatest value that the figure can have.
    Statistics of the same rows can be subtracted.
    """

    value: float
    replicates: np.ndarray
    influence: np.ndarray
    keys: Keys = None
    limits: tuple[float, float] = (-np.inf, np.inf)

    def __sub__(self, other: Statistic) -> Statistic:
        replicates = self.replicates - other.replicates
        influence = self.influence - other.influence
        return Statistic(self.value - other.value, replicates, influence, self.keys)

    @classmethod
    def mean(cls, statistics: Sequence[Statistic]) -> Statistic:
        """The mean of statistics of different rows, each counting the same."""
        n = len(statistics)
        parts = []
        start = 0
        for statistic in statistics:
            keys = np.arange(3 * len(statistic.influence)).reshape(-1, 3) if statistic.keys is None else statistic.keys
            parts.append(keys + start)
            start += int(keys.max()) + 1
        return cls(
            float(np.mean([statistic.value for statistic in statistics])),
            np.mean([statistic.replicates for statistic in statistics], axis=0),
            np.concatenate([statistic.influence for statistic in statistics]) / n,
            np.concatenate(parts),
            statistics[0].limits,
        )

    def estimate(self, scale: float = 1.0) -> Estimate:
        """The figure with the 95% percentile interval of its replicates, which is NaN where none is defined."""
        if np.isnan(self.value) or np.isnan(self.replicates).all():
            return Estimate(scale * self.value, np.nan, np.nan)
        factor = dependence(self.influence, self.keys)
        ends = self.value + factor * (np.nanpercentile(self.replicates, [2.5, 97.5]) - self.value)
        return Estimate(*(scale * float(figure) for figure in (self.value, *np.clip(ends, *self.limits))))


def correlation(
    x: np.ndarray, y: np.ndarray, statistic: str = "spearman", resamples: int = RESAMPLES, keys: Keys = None
) -> Statistic:
    """Spearman's or Pearson's correlation of (N,) and (N,); NaN where either is constant."""
    value = spearman(x, y) if statistic == "spearman" else pearson(x, y)
    influence = np.zeros(len(x)) if np.isnan(value) else _influence(x, y, statistic) / len(x)
    return Statistic(value, bootstrap_replicates(x, y, statistic, resamples), influence, keys, (-1.0, 1.0))


def ratio(numerators: np.ndarray, denominators: np.ndarray) -> tuple[float, np.ndarray]:
    """The sum of (N,) divided by that of (N,), and how far each row moves it, (N,). NaN where the latter sum is 0."""
    total = denominators.sum()
    if not total:
        return np.nan, np.zeros(len(numerators))
    value = float(numerators.sum() / total)
    return value, (numerators - value * denominators) / total


def bootstrap_interval(
    x: np.ndarray, y: np.ndarray, statistic: str = "spearman", resamples: int = RESAMPLES, keys: Keys = None
) -> Interval:
    """95% bootstrap interval of the correlation of scores ``x`` and gold scores ``y``, pairs drawn with replacement.

    Spearman's is the percentile interval. Pearson's is studentised on Fisher's z scale (Efron & Tibshirani 1993,
    chapter 12), as the percentile interval of few pairs covers too little. From 20,000 pairs on both come from a
    normal distribution on that scale, with the variance of the correlation's influence function, which is right for
    rare labels too, where Fisher's 1/(N - 3) is not. With ``keys`` (`sentence_keys`) they allow for shared sentences.
    NaN for fewer than four pairs and for constant values.
    """
    value = spearman(x, y) if statistic == "spearman" else pearson(x, y)
    if np.isnan(value) or len(x) < 4:
        return Interval(np.nan, np.nan, why_undefined(x, y) or "too few pairs")
    # All pairs are on one line, and so are those of every resample.
    if abs(value) > 1 - 1e-12:
        return Interval(value, value, "exact")
    x = np.asarray(x, dtype=np.float64)
    y = np.asarray(y, dtype=np.float64)
    influence = _influence(x, y, statistic)
    allows = "" if keys is None else ", allows for shared sentences"
    factor = dependence(influence, keys)
    if len(x) >= ASYMPTOTIC_FROM:
        z = np.arctanh(value)
        error = factor * influence.std() / np.sqrt(len(x)) / (1 - value**2)
        low, high = np.tanh(z + np.array([-NORMAL_975, NORMAL_975]) * error)
        return Interval(float(low), float(high), f"Fisher z{allows}")
    if statistic == "spearman":
        replicates = bootstrap_replicates(x, y, statistic, resamples)
        _, low, high = Statistic(value, replicates, influence, keys, (-1.0, 1.0)).estimate()
        return Interval(low, high, f"bootstrap, {resamples:,} resamples{allows}")
    (z,), (error,) = _z_and_error(x, y, np.ones((1, len(x))))
    resampled = [_z_and_error(x, y, weights) for weights in resample_weights(len(x), resamples)]
    # Resamples of two different pairs have no error.
    with np.errstate(invalid="ignore", divide="ignore"):
        off = np.concatenate([(replicates - z) / errors for replicates, errors in resampled])
    low, high = np.tanh(z - factor * error * np.percentile(off[np.isfinite(off)], [97.5, 2.5]))
    return Interval(float(low), float(high), f"studentised bootstrap, {resamples:,} resamples{allows}")


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


def _influence(x: np.ndarray, y: np.ndarray, statistic: str) -> np.ndarray:
    """The influence function of a correlation at each pair, (N,), whose mean is 0.

    Ranks are estimated too: a pair moves its own product of ranks, and the ranks of all pairs above it.
    """
    from scipy.stats import rankdata

    x, y = (rankdata(x), rankdata(y)) if statistic == "spearman" else (x, y)
    (a, of_a), (b, of_b) = ((values - values.mean(), values.std()) for values in (x, y))
    a = a / of_a
    b = b / of_b
    n = len(x)
    r = float((a * b).mean())
    if statistic == "pearson":
        return a * b - r * (a * a + b * b) / 2
    product = a * b + n / of_a * _above(x, b) + n / of_b * _above(y, a)
    squares = a * a + b * b + 2 * n / of_a * _above(x, a) + 2 * n / of_b * _above(y, b)
    influence = product - r * squares / 2
    return influence - influence.mean()


def _above(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The sum of the weights of higher values, and half those of equal ones, for each value, divided by N: (N,)."""
    _, group = np.unique(values, return_inverse=True)
    sums = np.bincount(group, weights)
    return (np.cumsum(sums[::-1])[::-1] - sums / 2)[group] / len(values)


def wilson_interval(successes: float, n: float) -> Interval:
    """Wilson's 95% interval (1927) of a proportion."""
    z2 = NORMAL_975**2
    centre = successes + z2 / 2
    margin = float(np.sqrt(z2 * (successes * (n - successes) / n + z2 / 4)))
    return Interval(max(0.0, (centre - margin) / (n + z2)), min(1.0, (centre + margin) / (n + z2)), "Wilson")


def bootstrap_replicates(
    x: np.ndarray, y: np.ndarray, statistic: str = "spearman", resamples: int = RESAMPLES, seed: int = 0
) -> np.ndarray:
    """Computes the correlation of x (N,) and y (N,) in each resample: float64 (resamples,), NaN for constant values.

    ``statistic`` is spearman or pearson. Which pairs are drawn depends only on N and ``seed``.
    """
    x = np.asarray(x, dtype=np.float64)
    y = np.asarray(y, dtype=np.float64)
    ranks_of_x = _weighted_ranks(x)
    ranks_of_y = _weighted_ranks(y)
    replicates = []
    for weights in resample_weights(len(x), resamples, seed):
        a = x[None]
        b = y[None]
        if statistic == "spearman":
            a = ranks_of_x(weights)
            b = ranks_of_y(weights)
        replicates.append(_weighted_correlations(a, b, weights))
    return np.concatenate(replicates)


def resample_weights(n: int, resamples: int = RESAMPLES, seed: int = 0) -> Iterator[np.ndarray]:
    """The number of times that each resample has each of ``n`` rows, in blocks of resamples: float64 (R, n) each."""
    random = np.random.default_rng(seed)
    block = max(1, min(BLOCK, BLOCK_VALUES // n))
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
    variance_a = (weights * a * a).sum(axis=1)
    variance_b = (weights * b * b).sum(axis=1)
    varies_a = variance_a > ROUNDING * (weights * x * x).sum(axis=1)
    varies_b = variance_b > ROUNDING * (weights * y * y).sum(axis=1)
    correlations = np.full(len(weights), np.nan)
    covariance = (weights * a * b).sum(axis=1)
    np.divide(covariance, np.sqrt(variance_a * variance_b), out=correlations, where=varies_a & varies_b)
    return correlations


class Difference(NamedTuple):
    """The difference of two figures in points (×100), positive if the first is better, and its 95% interval."""

    points: float
    low: float
    high: float

    @classmethod
    def of(cls, a: Statistic, b: Statistic) -> Difference | None:
        """The difference of two statistics of the same rows; None if one is undefined."""
        estimate = (a - b).estimate(100)
        return None if np.isnan(estimate.low) else cls(*estimate)

    @property
    def p_value(self) -> float:
        """The two-sided p-value, below 0.05 where 0 lies outside the interval.

        It is normal, with the error that the end of the interval on the side of 0 implies: 1,000 resamples show none
        below 0.002, and tests of many models need smaller ones.
        """
        if self.points == 0:
            return 1.0
        to_zero = self.points - self.low if self.points > 0 else self.high - self.points
        return 2 * NORMAL.cdf(-NORMAL_975 * abs(self.points) / to_zero) if to_zero > 0 else 0.0

    def describe(self, a: str, b: str, data: str, p_value: float | None = None) -> str:
        """A sentence about the models ``a`` and ``b`` on ``data``, such as "on STSb".

        ``p_value`` is the corrected one, where the test is one of several.
        """
        p = self.p_value if p_value is None else p_value
        test = f"paired bootstrap{'' if p_value is None else ', corrected'}, p {'=' if p >= 0.001 else '<'} "
        test += f"{max(p, 0.001):.3f}"
        better = a
        worse = b
        points, low, high = self
        if points < 0:
            better, worse, points, low, high = b, a, -points, -high, -low
        interval = f"95% {low:+.1f} to {high:+.1f}; {test}".replace("-", "−")
        if p >= ALPHA:
            return f"{better} and {worse} do not differ significantly {data}: {points:+.1f} points ({interval})"
        return f"{better} is {points:.1f} points better than {worse} {data} ({interval})"
