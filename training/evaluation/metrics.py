"""Similarities of sentence vectors, and correlations with gold scores.

The paper scores STS by Spearman's rank correlation between cosine and gold score (section 4.1). Pearson's, "badly
suited" for this (Reimers et al. 2016), is reported beside it for completeness. Distances are negated, so that larger
always means more similar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from training.models.model import Vectors

DENSE_ROWS = 512  # rows of sparse vectors that are made dense at a time


def cosine(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Row-wise cosine, 0 where a vector is zero. (N, D), (N, D) -> (N,) float32."""
    norms = np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1)
    return np.einsum("nd,nd->n", u, v) / np.where(norms == 0, 1, norms)


def dot(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Row-wise dot product. (N, D), (N, D) -> (N,)."""
    return np.einsum("nd,nd->n", u, v)


def euclidean(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Row-wise negative Euclidean distance. (N, D), (N, D) -> (N,)."""
    return -np.linalg.norm(u - v, axis=1)


def manhattan(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Row-wise negative Manhattan distance. (N, D), (N, D) -> (N,)."""
    return -np.abs(u - v).sum(axis=1)


class Similarity(NamedTuple):
    """A similarity of the rows of two matrices, and its words."""

    of: Callable[[np.ndarray, np.ndarray], np.ndarray]  # (N, D), (N, D) -> (N,); larger = more similar
    label: str


SIMILARITIES = {
    "cosine": Similarity(cosine, "cosine"),
    "dot": Similarity(dot, "dot product"),
    "euclidean": Similarity(euclidean, "negative Euclidean"),
    "manhattan": Similarity(manhattan, "negative Manhattan"),
}


def similarities(u: Vectors, v: Vectors) -> dict[str, np.ndarray]:
    """Each of ``SIMILARITIES`` row by row: (N, D), (N, D), dense or both sparse -> (N,) each."""
    if isinstance(u, np.ndarray) or isinstance(v, np.ndarray):
        return {name: each.of(np.asarray(u), np.asarray(v)) for name, each in SIMILARITIES.items()}
    parts = [slice(start, start + DENSE_ROWS) for start in range(0, u.shape[0], DENSE_ROWS)]
    blocks = [(u[part].toarray(), v[part].toarray()) for part in parts]
    return {name: np.concatenate([each.of(a, b) for a, b in blocks]) for name, each in SIMILARITIES.items()}


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's rank correlation in -1..1; NaN when either side is constant or shorter than two."""
    return pearson(ranks(x), ranks(y))


def pearson(x: np.ndarray, y: np.ndarray) -> float:
    """Pearson's correlation in -1..1; NaN when either side is constant or shorter than two."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    a, b = x - x.mean(), y - y.mean()
    with np.errstate(invalid="ignore"):
        return float((a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum()))


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1, ties at their mean: (N,) -> (N,) float64; all NaN if one value is NaN.

    Equals scipy.stats.rankdata, whose import (0.6 s) would take longer than encoding a thousand sentences.
    """
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    mean_ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return np.where(np.isnan(values).any(), np.nan, mean_ranks)


# ---------------------------------------------------------------- agreement of raters

# Do raters agree? Krippendorff's alpha, for any number of raters and with missing ratings.
#
# alpha = 1 - observed disagreement / disagreement by chance: 1 for perfect agreement, 0 for chance, negative for
# systematic disagreement. Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability"; the worked examples of that
# paper are in the tests. Krippendorff calls 0.8 reliable and 0.667 the least from which tentative conclusions follow.


Metric = Callable[[np.ndarray, np.ndarray], np.ndarray]  # values (V,), how often each occurs (V,) -> distances² (V, V)

RELIABLE, TENTATIVE = 0.8, 0.667


def _ordinal(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Squared number of ratings between two values, each end counting half; ``values`` ascend."""
    middle = np.cumsum(counts) - counts / 2
    return np.square(middle[:, None] - middle[None])


METRICS: dict[str, Metric] = {
    "nominal": lambda values, _: (values[:, None] != values[None]).astype(np.float64),
    "ordinal": _ordinal,
    "interval": lambda values, _: np.square(values[:, None] - values[None]),
}


def krippendorff_alpha(ratings: np.ndarray, level: str = "interval") -> float:
    """Ratings (raters, items), NaN where one is missing -> alpha.

    NaN if no item has two ratings, or if all ratings that can be compared are equal: without variation nothing can be
    said about reliability.

    Args:
        level: of measurement: nominal, ordinal or interval.
    """
    ratings = np.asarray(ratings, dtype=np.float64)
    pairable = ratings[:, (~np.isnan(ratings)).sum(axis=0) >= 2]
    values = np.unique(pairable[~np.isnan(pairable)])
    if len(values) < 2:
        return float("nan")
    occurs = (pairable[None] == values[:, None, None]).sum(axis=1).astype(np.float64)  # (V, items)
    raters = occurs.sum(axis=0)  # of each item, 2 or more
    # Coincidences: how often two values are given to one item; an item with m ratings has m (m - 1) ordered pairs.
    coincidences = (occurs / (raters - 1)) @ occurs.T - np.diag((occurs / (raters - 1)).sum(axis=1))
    counts = coincidences.sum(axis=1)
    distances = METRICS[level](values, counts)
    expected = float((np.outer(counts, counts) * distances).sum()) / (counts.sum() - 1)
    return 1.0 - float((coincidences * distances).sum()) / expected


# ---------------------------------------------------------------- pairs with labels

# Pair classification: how well a similarity separates pairs that belong together from pairs that do not.
#
#     average precision   Σ (R_n - R_{n-1}) P_n over the thresholds n, from the highest: 0 to 1, needs no threshold
#     F1                  of the threshold at which it is highest
#
# A threshold cannot separate equal scores, so pairs with the same score are on the same side of every threshold; scores
# [.5, .5] with labels [1, 0] give an average precision of 1/2 and an F1 of 2/3, in whichever order. Average precision
# equals scikit-learn's ``average_precision_score``; mteb's and sentence-transformers' F1 sort equal scores in the order
# of the rows, and may separate them.


class PairClassification(NamedTuple):
    """The figures of one similarity; all but the threshold in 0 to 1."""

    average_precision: float
    f1: float  # the highest
    threshold: float  # of that F1, in units of the similarity: pairs from here on belong together
    precision: float  # at the threshold
    recall: float


class PrecisionRecall(NamedTuple):
    """Precision and recall at every threshold that separates different scores, from the highest threshold: (T,) each.

    ``predicted`` and ``hits`` are counts: the pairs from the threshold on, and those of them that belong together.
    """

    threshold: np.ndarray
    precision: np.ndarray
    recall: np.ndarray
    predicted: np.ndarray
    hits: np.ndarray

    @property
    def f1(self) -> np.ndarray:
        """The harmonic mean of precision and recall, (T,)."""
        return 2 * self.hits / (self.predicted + self.hits[-1])

    @property
    def average_precision(self) -> float:
        """Σ (R_n - R_{n-1}) P_n."""
        return float((np.diff(self.recall, prepend=0.0) * self.precision).sum())


def precision_recall(scores: np.ndarray, labels: np.ndarray) -> PrecisionRecall:
    """The curve of scores (N,) against labels (N,), 1 for together and 0 for apart. At most N thresholds.

    A threshold lies half-way between the lowest score above it and the highest below it (on the former, where rounding
    would put it on the latter); where all are above, it is the lowest score.

    ValueError if there is no pair of one of the two labels, or a score is not a number.
    """
    scores, together = np.asarray(scores, dtype=np.float64), np.asarray(labels).astype(bool)
    if together.all() or not together.any():
        raise ValueError("both labels are needed, 1 and 0")
    if np.isnan(scores).any():
        raise ValueError("a score is not a number")
    order = np.argsort(-scores, kind="stable")
    ordered, hits = scores[order], np.cumsum(together[order])
    last = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))  # of each group of equal scores
    lowest = ordered[last]
    below = np.append(lowest[1:], lowest[-1])
    middle = lowest + (below - lowest) / 2
    threshold = np.where(middle > below, middle, lowest)
    return PrecisionRecall(threshold, hits[last] / (last + 1), hits[last] / hits[-1], last + 1, hits[last])


def classify_pairs(scores: np.ndarray, labels: np.ndarray) -> PairClassification:
    """The figures of scores (N,) against labels (N,), 1 for together and 0 for apart.

    Of several thresholds with the same F1 it is the highest. ValueError as `precision_recall`.
    """
    curve = precision_recall(scores, labels)
    best = int(curve.f1.argmax())
    figures = (curve.f1, curve.threshold, curve.precision, curve.recall)
    return PairClassification(curve.average_precision, *(float(figure[best]) for figure in figures))


# ---------------------------------------------------------------- bootstrap intervals

# Bootstrap replicates and confidence intervals of a correlation.
#
# ``bootstrap_replicates`` draws the same pairs for every model that is scored on the same data, so that two models can
# be compared replicate by replicate (a paired bootstrap). Sorting each resample would take most of the time. A resample
# is instead a weight for each pair (how often it was drawn); the ranks of weighted values follow from one sort of the
# original values and a cumulative sum.


RESAMPLES = 1_000
BLOCK = 50  # resamples that are computed at a time: the memory of 50, not of a thousand
BLOCK_VALUES = 1_000_000  # weights that are computed at a time, where 50 resamples have more
FEWER_RESAMPLES = (1_000, 500, 200)  # of large data; see `affordable_resamples`
RESAMPLED_PAIRS = 2_000_000  # that all resamples of a bootstrap hold together: nobody waits a second for an interval
ASYMPTOTIC_FROM = 20_000  # pairs from which an interval comes from a formula instead of resampling
NORMAL_975 = 1.959964  # the 97.5th percentile of the standard normal distribution
ROUNDING = 1e-20  # relative size of what rounding errors leave of a variance that is zero


class Estimate(NamedTuple):
    """A figure and its 95% interval; NaN where there is none."""

    value: float
    low: float
    high: float


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
    if abs(correlation) > 1 - 1e-12:  # all pairs on one line, so are those of every resample
        return Interval(correlation, correlation, "exact")
    if len(x) >= ASYMPTOTIC_FROM:
        return Interval(*_asymptotic(x, y, statistic), "Fisher z")
    if statistic == "spearman":
        _, low, high = percentile_interval(correlation, bootstrap_replicates(x, y, statistic, resamples, seed))
        return Interval(low, high, f"bootstrap, {resamples:,} resamples")
    pairs = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    (z,), (error,) = _z_and_error(*pairs, np.ones((1, len(x))))
    found = [_z_and_error(*pairs, weights) for weights in resample_weights(len(x), resamples, seed)]
    with np.errstate(invalid="ignore", divide="ignore"):  # resamples of two different pairs have no error
        off = np.concatenate([(replicates - z) / errors for replicates, errors in found])
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
    if statistic == "pearson":
        (z,), (error,) = _z_and_error(x, y, np.ones((1, len(x))))
    else:
        (a, of_a), (b, of_b) = ((values - values.mean(), values.std()) for values in (ranks(x), ranks(y)))
        a, b, n = a / of_a, b / of_b, len(x)
        r = float((a * b).mean())
        product = a * b + n / of_a * _above(x, b) + n / of_b * _above(y, a)
        squares = a * a + b * b + 2 * n / of_a * _above(x, a) + 2 * n / of_b * _above(y, b)
        influence = product - r * squares / 2
        z, error = np.arctanh(r), influence.std() / np.sqrt(n) / (1 - r**2)
    low, high = np.tanh(z + np.array([-NORMAL_975, NORMAL_975]) * error)
    return float(low), float(high)


def _above(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """For each pair the sum of weights over those with a higher value, and half of those with its own; / N. (N,)."""
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
    """The correlation of (N,) and (N,) in each resample -> float64 (resamples,); NaN where drawn values are constant.

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
    """How often each of ``n`` rows is drawn in each resample, a block of resamples at a time: float64 (R, n) each."""
    random, block = np.random.default_rng(seed), max(1, min(BLOCK, BLOCK_VALUES // n))
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        drawn = random.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
        yield np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n).astype(np.float64)


def affordable_resamples(n: int) -> int:
    """The number of resamples of ``n`` rows that takes no noticeable time: 1,000 up to 2,000 rows, at least 200."""
    return next((count for count in FEWER_RESAMPLES if count * n <= RESAMPLED_PAIRS), FEWER_RESAMPLES[-1])


def _weighted_ranks(values: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
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
