"""Bootstrap draws of a correlation, the same draws for every model: so that two models can be compared pair by pair.

A draw takes N of N pairs with replacement. Sorting each draw would take most of the time; but a draw is a weight
(how often) for each pair, and the ranks of weighted values follow from one sort and a running sum. The draws are
those of `training.evaluation.metrics.bootstrap_interval`, so that the page and the command print the same interval.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

DRAWS = 1_000
NOISE = 1e-20  # relative: what rounding leaves of a variance that is zero
BLOCK = 50  # draws at a time, as in bootstrap_interval


def replicates(values: np.ndarray, gold: np.ndarray, statistic: str, draws: int = DRAWS) -> np.ndarray:
    """The correlation of (N,) and (N,) in each draw -> float64 (draws,), NaN where a draw has but one value.

    ``statistic``: spearman or pearson.
    """
    random, n, found = np.random.default_rng(0), len(values), []
    x, y = np.asarray(values, dtype=np.float64), np.asarray(gold, dtype=np.float64)
    rank = _ranker if statistic == "spearman" else _as_they_are
    rank_x, rank_y = rank(x), rank(y)
    for start in range(0, draws, BLOCK):
        size = min(BLOCK, draws - start)
        drawn = random.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
        weights = np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n).astype(np.float64)
        found.append(_correlations(rank_x(weights), rank_y(weights), weights))
    return np.concatenate(found)


Ranks = Callable[[np.ndarray], np.ndarray]  # weights (R, N) -> what is correlated, (R, N) or (1, N)


def _as_they_are(values: np.ndarray) -> Ranks:
    return lambda weights: values[None]


def _ranker(values: np.ndarray) -> Ranks:
    """What gives the ranks of the values, equal ones sharing theirs, if each occurs ``weights`` times."""
    order = np.argsort(values, kind="stable")
    is_new = np.concatenate([[True], np.diff(values[order]) != 0])
    starts = np.flatnonzero(is_new)
    group = np.empty(len(values), dtype=np.int64)  # of each value, by size
    group[order] = np.cumsum(is_new) - 1

    def ranks(weights: np.ndarray) -> np.ndarray:
        sizes = np.add.reduceat(weights[:, order], starts, axis=1)
        return (np.cumsum(sizes, axis=1) - (sizes - 1) / 2)[:, group]

    return ranks


def _correlations(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted Pearson, row by row. (R, N) or (1, N) each -> (R,); NaN where the drawn values do not vary."""
    total = weights.sum(axis=1, keepdims=True)
    a = x - (weights * x).sum(axis=1, keepdims=True) / total
    b = y - (weights * y).sum(axis=1, keepdims=True) / total
    spread_a, spread_b = (weights * a * a).sum(axis=1), (weights * b * b).sum(axis=1)
    varies = (spread_a > NOISE * (weights * x * x).sum(axis=1)) & (spread_b > NOISE * (weights * y * y).sum(axis=1))
    together = (weights * a * b).sum(axis=1)
    found = np.full(len(weights), np.nan)
    np.divide(together, np.sqrt(spread_a * spread_b), out=found, where=varies)
    return found
