"""Resampling and confidence intervals: the one place where the uncertainty of a figure is computed.

A `Statistic` is a figure of N rows with its bootstrap replicates. Resamples draw the same pairs for
every model that is scored on the same data, so that the difference of two statistics is a paired
bootstrap (`Difference`). Sorting each resample would take most of the time. Instead, a resample is
a weight for each pair (how often it was drawn). The ranks of weighted values follow from one sort
of the original values and a cumulative sum.

Pairs that share a sentence are not independent, so the intervals of the bootstrap over pairs are
too narrow. They are widened by `dependence`, the ratio of two standard errors: one that allows for
shared sentences (Aronow, Samii & Assenova 2015, "Cluster-Robust Variance Estimation for Dyadic
Data"), and one for independent pairs. It includes the two usual corrections for few clusters
(Cameron & Miller 2015, "A Practitioner's Guide to Cluster-Robust Inference").
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import scipy

from training.evaluation.metrics import pearson, spearman, why_undefined
from training.models.texts import numbered

RESAMPLES = 1_000
ALPHA = 0.05
# At most this many resamples, and weights, are computed at a time, to limit the memory.
BLOCK = 50
BLOCK_VALUES = 1_000_000
FEWER_RESAMPLES = (1_000, 500, 200)
# The most rows in all resamples of a bootstrap, so that an interval takes less than a second.
RESAMPLED_PAIRS = 2_000_000
# With this many pairs an interval is computed by a formula instead of resampling.
ASYMPTOTIC_FROM = 20_000
NORMAL = NormalDist()
NORMAL_975 = NORMAL.inv_cdf(0.975)
# In `dependence` a sentence counts as if it were in at most this share of the rows.
MOST_OF_ROWS = 0.5
# The limits of precision, recall, F1 and other shares.
SHARE = (0.0, 1.0)
# The relative size of the rounding errors in a variance that is zero.
ROUNDING = 1e-20
CORRELATIONS = {"spearman": spearman, "pearson": pearson}
# The `sentence_keys` of N rows; None if the rows count as independent.
Keys = np.ndarray | None


class Estimate(NamedTuple):
    """A figure and its 95% interval, NaN if undefined."""

    value: float
    low: float
    high: float


NO_ESTIMATE = Estimate(np.nan, np.nan, np.nan)


class Interval(NamedTuple):
    """A 95% confidence interval and its method."""

    low: float
    high: float
    method: str


def sentence_keys(columns: Sequence[Sequence[Hashable]]) -> np.ndarray:
    """Numbers the first sentence, the second sentence and the pair of each row, int (N, 3).

    Equal sentences have equal numbers in both columns, and equal pairs have equal numbers in either
    order. If both sentences of a row are equal, the second one gets another number, so that the row
    does not count twice for its sentence.
    """
    distinct, numbers = numbered(chain(columns[0], columns[1]))
    first, second = np.array(numbers, dtype=np.int64).reshape(2, -1)
    second = np.where(first == second, second + len(distinct), second)
    # One number for each unordered pair, as all numbers are below 2 len(distinct).
    pairs = np.minimum(first, second) * 2 * len(distinct) + np.maximum(first, second)
    _, pair = np.unique(pairs, return_inverse=True)
    return np.stack([first, second, pair], axis=1)


def dependence(influence: np.ndarray, keys: Keys) -> float:
    """Computes the factor, at least 1, by which shared sentences widen the standard error of a figure.

    ``influence`` (N,) is how far each row moves the figure.
    """
    independent = float((influence**2).sum())
    # All influences of an undefined figure are 0. NaN is not above 0 either.
    if keys is None or not independent > 0:
        return 1.0
    # The number of rows of each sentence.
    rows = np.bincount(keys[:, :2].ravel())
    if rows.max() < 2:
        return 1.0
    # The more rows a sentence has, the closer the figure follows these rows, and the smaller their
    # influence seems. As in the jackknife, it is divided by 1 - the share of these rows. The share
    # is limited, as the divisor would be 0 for a sentence in all rows.
    enlarged = 1 / (1 - np.minimum(rows / len(keys), MOST_OF_ROWS))
    # The products of the influences of all rows that share a sentence, as the square of a sum
    # contains the product of any two of its terms. Equal pairs share two sentences and count once.
    by_sentence = enlarged * np.bincount(keys[:, :2].ravel(), np.repeat(influence, 2))
    by_pair = np.bincount(keys[:, 2], influence)
    shared = (by_sentence**2).sum() - (by_pair**2).sum()
    # The error is estimated from one value for each sentence, so the interval is as wide as by
    # Student's t with this number of values.
    quantile = scipy.stats.t.ppf(1 - ALPHA / 2, np.count_nonzero(rows) - 1) / NORMAL_975
    return float(quantile * np.sqrt(max(shared / independent, 1.0)))


@dataclass(frozen=True, eq=False)
class Statistic:
    """A figure of N rows, its values (R,) in bootstrap resamples, and how far each row moves it, (N,).

    The intervals allow for sentences that rows share, by their ``keys``. ``limits`` are the least
    and the greatest possible value of the figure. Statistics of the same rows can be subtracted.
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
        """Averages statistics of different rows, with equal weights."""
        n = len(statistics)
        parts = []
        start = 0
        for statistic in statistics:
            keys = statistic.keys
            if keys is None:
                # Every row has sentences that no other row has.
                keys = np.arange(3 * len(statistic.influence)).reshape(-1, 3)
            # Sentences of different data sets count as different.
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
        """Returns the figure with a 95% interval, NaN if no replicate is defined.

        It is the percentile interval of the replicates, widened by `dependence`.
        """
        if np.isnan(self.value) or np.isnan(self.replicates).all():
            return Estimate(scale * self.value, np.nan, np.nan)
        factor = dependence(self.influence, self.keys)
        ends = self.value + factor * (np.nanpercentile(self.replicates, [2.5, 97.5]) - self.value)
        low, high = np.clip(ends, *self.limits).tolist()
        return Estimate(scale * self.value, scale * low, scale * high)


def correlation(
    x: np.ndarray,
    y: np.ndarray,
    statistic: str = "spearman",
    resamples: int = RESAMPLES,
    keys: Keys = None,
) -> Statistic:
    """Computes Spearman's or Pearson's correlation of x (N,) and y (N,); NaN if either is constant."""
    value = CORRELATIONS[statistic](x, y)
    # The influence function is N times how far a row moves the figure.
    influence = np.zeros(len(x)) if np.isnan(value) else _influence(x, y, statistic) / len(x)
    replicates = bootstrap_replicates(x, y, statistic, resamples)
    return Statistic(value, replicates, influence, keys, limits=(-1.0, 1.0))


def ratio(numerators: np.ndarray, denominators: np.ndarray) -> tuple[float, np.ndarray]:
    """Divides the sum of numerators (N,) by the sum of denominators (N,), NaN if the denominators sum to 0.

    Also returns how far each row moves the result, (N,).
    """
    total = denominators.sum()
    if not total:
        return np.nan, np.zeros(len(numerators))
    value = float(numerators.sum() / total)
    return value, (numerators - value * denominators) / total


def bootstrap_interval(
    x: np.ndarray,
    y: np.ndarray,
    statistic: str = "spearman",
    resamples: int = RESAMPLES,
    keys: Keys = None,
) -> Interval:
    """Computes a 95% bootstrap interval of the correlation of scores ``x`` and gold scores ``y``.

    Spearman's is the percentile interval. For Pearson's the percentile interval of few pairs covers
    too little, so it is studentised on Fisher's z scale (Efron & Tibshirani 1993, chapter 12). From
    20,000 pairs on, both are normal intervals on the z scale. Their variance is the variance of the
    correlation's influence function. Unlike Fisher's 1/(N - 3), it is also correct for rare labels.
    With ``keys`` (`sentence_keys`) they allow for shared sentences. NaN for fewer than four pairs
    and for constant values.
    """
    value = CORRELATIONS[statistic](x, y)
    if np.isnan(value) or len(x) < 4:
        # In place of a method, the reason.
        return Interval(np.nan, np.nan, why_undefined(x, y) or "too few pairs")
    # All pairs are on one line, and so are the pairs of every resample.
    if abs(value) > 1 - 1e-12:
        return Interval(value, value, "exact")
    x = np.asarray(x, dtype=np.float64)
    y = np.asarray(y, dtype=np.float64)
    influence = _influence(x, y, statistic)
    allowance = "" if keys is None else ", allows for shared sentences"
    factor = dependence(influence, keys)
    if len(x) >= ASYMPTOTIC_FROM:
        z = np.arctanh(value)
        # The derivative of arctanh is 1 / (1 - r²).
        error = factor * influence.std() / np.sqrt(len(x)) / (1 - value**2)
        low, high = np.tanh([z - NORMAL_975 * error, z + NORMAL_975 * error])
        return Interval(float(low), float(high), f"Fisher z{allowance}")
    if statistic == "spearman":
        # `Statistic.estimate` itself widens the interval by the factor.
        _, low, high = correlation(x, y, statistic, resamples, keys).estimate()
        return Interval(low, high, f"bootstrap, {resamples:,} resamples{allowance}")
    # The correlation of the pairs themselves, each drawn once.
    [z], [error] = _z_and_error(x, y, np.ones((1, len(x))))
    deviations = []
    for weights in resample_weights(len(x), resamples):
        replicates, errors = _z_and_error(x, y, weights)
        # A resample of only two different pairs is on one line, so its error is not finite.
        with np.errstate(invalid="ignore", divide="ignore"):
            deviations.append((replicates - z) / errors)
    studentised = np.concatenate(deviations)
    # The lower end of the interval comes from the upper quantile.
    quantiles = np.percentile(studentised[np.isfinite(studentised)], [97.5, 2.5])
    low, high = np.tanh(z - factor * error * quantiles)
    method = f"studentised bootstrap, {resamples:,} resamples{allowance}"
    return Interval(float(low), float(high), method)


def _z_and_error(
    x: np.ndarray, y: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Computes weighted Pearson correlations on Fisher's z scale, and the errors by the influence function.

    x (N,), y (N,) and weights (R, N) -> (R,), (R,); not finite if the drawn values are constant or
    on one line.
    """
    total = weights.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        a = _standardized(x, weights, total)
        b = _standardized(y, weights, total)
        r = (weights * a * b).sum(axis=1, keepdims=True) / total
        influence = a * b - r * (a**2 + b**2) / 2
        # The derivative of arctanh is 1 / (1 - r²).
        error = np.sqrt((weights * influence**2).sum(axis=1)) / total[:, 0] / (1 - r[:, 0] ** 2)
        return np.arctanh(np.clip(r[:, 0], -1, 1)), error


def _standardized(values: np.ndarray, weights: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Shifts and scales values (N,) to weighted mean 0 and variance 1: (R, N)."""
    centred = values - (weights * values).sum(axis=1, keepdims=True) / total
    return centred / np.sqrt((weights * centred**2).sum(axis=1, keepdims=True) / total)


def _influence(x: np.ndarray, y: np.ndarray, statistic: str) -> np.ndarray:
    """Computes the influence function of a correlation at each pair, (N,), with mean 0.

    Ranks are estimated too: a pair moves its own product of ranks, and the ranks of all pairs above
    it.
    """
    if statistic == "spearman":
        x = scipy.stats.rankdata(x)
        y = scipy.stats.rankdata(y)
    n = len(x)
    std_x = x.std()
    std_y = y.std()
    a = (x - x.mean()) / std_x
    b = (y - y.mean()) / std_y
    r = float((a * b).mean())
    if statistic == "pearson":
        return a * b - r * (a * a + b * b) / 2
    # In the influence function a pair raises the ranks of all higher values by n, and so their a or
    # b by n / std. The influences on the mean of a b, and on the sum of the means of a² and b²:
    product = a * b + n / std_x * _above(x, b) + n / std_y * _above(y, a)
    squares = a * a + b * b + 2 * n / std_x * _above(x, a) + 2 * n / std_y * _above(y, b)
    influence = product - r * squares / 2
    return influence - influence.mean()


def _above(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Sums for each value the weights of higher values, and half the weights of equal ones, divided by N: (N,)."""
    _, group = np.unique(values, return_inverse=True)
    sums = np.bincount(group, weights)
    equal_and_higher = np.cumsum(sums[::-1])[::-1]
    return (equal_and_higher - sums / 2)[group] / len(values)


def wilson_interval(successes: float, n: float) -> Interval:
    """Computes Wilson's 95% interval (1927) of the proportion ``successes`` / ``n``.

    Both may be fractions: the numbers of independent pairs that dependent ones are worth.
    """
    z2 = NORMAL_975**2
    centre = successes + z2 / 2
    margin = float(np.sqrt(z2 * (successes * (n - successes) / n + z2 / 4)))
    low = max(0.0, (centre - margin) / (n + z2))
    high = min(1.0, (centre + margin) / (n + z2))
    return Interval(low, high, "Wilson")


def bootstrap_replicates(
    x: np.ndarray,
    y: np.ndarray,
    statistic: str = "spearman",
    resamples: int = RESAMPLES,
    seed: int = 0,
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
    """Yields how often each resample contains each of ``n`` rows, in blocks of resamples: float64 (R, n) each."""
    random = np.random.default_rng(seed)
    block = max(1, min(BLOCK, BLOCK_VALUES // n))
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        # The rows of each resample have their own numbers, so that one call counts all of them.
        rows = random.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
        counts = np.bincount(rows.ravel(), minlength=size * n)
        yield counts.reshape(size, n).astype(np.float64)


def resamples_for(n: int) -> int:
    """Returns the number of resamples that keeps the runtime below about a second: 200 to 1,000."""
    for count in FEWER_RESAMPLES:
        if count * n <= RESAMPLED_PAIRS:
            return count
    return FEWER_RESAMPLES[-1]


def _weighted_ranks(values: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function from weights (R, N), how often each value was drawn, to ranks (R, N). Ties share a rank."""
    order = np.argsort(values, kind="stable")
    differs = np.concatenate([[True], np.diff(values[order]) != 0])
    group_starts = np.flatnonzero(differs)
    # The number of each value's group of equal values, in ascending order.
    group = np.empty(len(values), dtype=np.int64)
    group[order] = np.cumsum(differs) - 1

    def ranks(weights: np.ndarray) -> np.ndarray:
        sizes = np.add.reduceat(weights[:, order], group_starts, axis=1)  # (R, groups)
        # The last rank of a group is the number of values up to it, and its mean rank lies
        # (size - 1) / 2 below. Values that were not drawn have a rank too, but their weight is 0.
        mean_ranks = np.cumsum(sizes, axis=1) - (sizes - 1) / 2
        return mean_ranks[:, group]

    return ranks


def _weighted_correlations(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Computes weighted Pearson correlations of rows, (R, N) or (1, N): (R,), NaN if the drawn values are constant."""
    total = weights.sum(axis=1, keepdims=True)
    a = x - (weights * x).sum(axis=1, keepdims=True) / total
    b = y - (weights * y).sum(axis=1, keepdims=True) / total
    variance_a = (weights * a * a).sum(axis=1)
    variance_b = (weights * b * b).sum(axis=1)
    # The computed variance of equal values may be above 0, as the sums are rounded.
    varies_a = variance_a > ROUNDING * (weights * x * x).sum(axis=1)
    varies_b = variance_b > ROUNDING * (weights * y * y).sum(axis=1)
    correlations = np.full(len(weights), np.nan)
    covariance = (weights * a * b).sum(axis=1)
    deviations = np.sqrt(variance_a * variance_b)
    np.divide(covariance, deviations, out=correlations, where=varies_a & varies_b)
    return correlations


class Difference(NamedTuple):
    """The difference of two figures in points (×100), positive if the first is better, and its 95% interval."""

    points: float
    low: float
    high: float

    @classmethod
    def of(cls, a: Statistic, b: Statistic) -> Difference | None:
        """Subtracts two statistics of the same rows; None if one is undefined."""
        estimate = (a - b).estimate(scale=100)
        return None if np.isnan(estimate.low) else cls(*estimate)

    @property
    def p_value(self) -> float:
        """The two-sided p-value, below 0.05 if 0 lies outside the interval.

        It comes from a normal distribution, with the error implied by the end of the interval on
        the side of 0, because 1,000 resamples cannot show a value below 0.002, and tests of many
        models need smaller ones.
        """
        if self.points == 0:
            return 1.0
        half_width = self.points - self.low if self.points > 0 else self.high - self.points
        # All resamples have the same difference.
        if half_width <= 0:
            return 0.0
        return 2 * NORMAL.cdf(-NORMAL_975 * abs(self.points) / half_width)

    def describe(self, a: str, b: str, data: str, p_value: float | None = None) -> str:
        """Describes in a sentence how the models ``a`` and ``b`` differ on ``data``, such as "on STSb".

        ``p_value`` is a corrected value, if the test is one of several.
        """
        # The sentence names the better model first.
        if self.points < 0:
            return Difference(-self.points, -self.high, -self.low).describe(b, a, data, p_value)
        corrected = ", corrected"
        if p_value is None:
            p_value = self.p_value
            corrected = ""
        p_text = f"= {p_value:.3f}" if p_value >= 0.001 else "< 0.001"
        interval = (
            f"95% {self.low:+.1f} to {self.high:+.1f}; paired bootstrap{corrected}, p {p_text}"
        )
        interval = interval.replace("-", "−")
        if p_value >= ALPHA:
            return f"{a} and {b} do not differ significantly {data}: {self.points:+.1f} points ({interval})"
        return f"{a} is {self.points:.1f} points better than {b} {data} ({interval})"
