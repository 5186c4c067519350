"""How well an encoder does: Spearman and Pearson under four similarities, and how sure that is.

The paper scores STS by Spearman's rank correlation between cosine and gold score (section 4.1); Pearson is
"badly suited" (Reimers et al. 2016), and stands beside for completeness. Distances are negated, so that larger
always means more similar. Triplets are scored by accuracy: how often the anchor is nearer to the positive
(section 4.4).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from training.errors import InputError

if TYPE_CHECKING:
    from training.data.load import Dataset
    from training.models.scorer import Scorer

Similarity = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (N, D), (N, D) -> (N,)
ASYMPTOTIC_FROM = 20_000  # pairs from which an interval comes from the formula instead of resampling
RESAMPLES = 1_000


class Interval(NamedTuple):
    """A 95% confidence interval and how it was found."""

    low: float
    high: float
    method: str


def cosine(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Row-wise cosine, 0 where a vector is zero. (N, D), (N, D) -> (N,) float32."""
    lengths = np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1)
    return np.einsum("nd,nd->n", u, v) / np.where(lengths == 0, 1, lengths)


def dot(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Row-wise dot product."""
    return np.einsum("nd,nd->n", u, v)


def euclidean(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Negative Euclidean distance, row by row."""
    return -np.linalg.norm(u - v, axis=1)


def manhattan(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Negative Manhattan distance, row by row."""
    return -np.abs(u - v).sum(axis=1)


SIMILARITIES: dict[str, Similarity] = {
    "cosine": cosine,
    "dot": dot,
    "euclidean": euclidean,
    "manhattan": manhattan,
}


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's rank correlation in -1..1; NaN when either side is constant or shorter than two."""
    return pearson(ranks(x), ranks(y))


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1, ties at their mean: (N,) -> (N,) float64; all NaN where one is, which has no rank.

    What scipy.stats.rankdata gives, which takes as long to import as a thousand sentences to encode.
    """
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    found = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return np.where(np.isnan(values).any(), np.nan, found)


def pearson(x: np.ndarray, y: np.ndarray) -> float:
    """Pearson's correlation in -1..1; NaN when either side is constant or shorter than two."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(_correlations(x[None], y[None])[0])


def bootstrap_interval(
    x: np.ndarray, y: np.ndarray, statistic: str = "spearman", resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """95% percentile bootstrap interval of the correlation of ``x`` and ``y``, pairs drawn with replacement.

    From 20,000 pairs on the interval comes from Fisher's z transformation (with Bonett & Wright's variance
    for Spearman), which agrees with the bootstrap at that size and costs nothing.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    whole = spearman(x, y) if statistic == "spearman" else pearson(x, y)
    if np.isnan(whole) or len(x) < 4:
        return Interval(float("nan"), float("nan"), "too few pairs")
    if len(x) >= ASYMPTOTIC_FROM:
        spread = np.sqrt((1 + whole**2 / 2 if statistic == "spearman" else 1) / (len(x) - 3))
        low, high = np.tanh(np.arctanh(min(whole, 1 - 1e-12)) + np.array([-1.959964, 1.959964]) * spread)
        return Interval(float(low), float(high), "Fisher z")
    from scipy.stats import rankdata

    random = np.random.default_rng(seed)
    found = []
    for start in range(0, resamples, 50):  # in blocks: the memory of 50 resamples, not of a thousand
        draw = random.integers(len(x), size=(min(50, resamples - start), len(x)))
        a, b = x[draw], y[draw]
        if statistic == "spearman":
            a, b = rankdata(a, axis=1), rankdata(b, axis=1)
        found.append(_correlations(a, b))
    values = np.concatenate(found)
    low, high = np.nanpercentile(values, [2.5, 97.5])
    return Interval(float(low), float(high), f"bootstrap, {resamples} resamples")


def evaluate(
    encoder: Scorer,
    data: Dataset | str,
    home: str | Path | None = None,
    on_progress: Callable[[int, int | None], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> dict[str, Any]:
    """Score a model (`training.models.scorer`) on scored pairs (correlations) or triplets (accuracy).

    The vectors are the model's own output: of length 1 only if its folder says so. A cross-encoder has one
    ``score`` in place of the four similarities.

    Returns:
        ``{"model", "pooling", "data", "n", "spearman": {cosine, dot, euclidean, manhattan}, "pearson": {…},
        "interval": {"low", "high", "method"}, "seconds"}`` with correlations in -1..1, the interval being that
        of the first similarity's Spearman; for triplets ``"accuracy": {…}`` in 0..1 in place of the correlations.

    Raises:
        InputError: the data has neither scores nor triplets.
    """
    from training.data.load import SCORED, TRIPLETS, load_data
    from training.models.scorer import row_scores

    started = time.perf_counter()
    if isinstance(data, str):
        data = load_data(data, home, split="test")
    if data.kind not in (SCORED, TRIPLETS):
        raise InputError(f"{data.name} holds {data.kind}; an evaluation needs scored pairs or triplets")
    pairs = ((0, 1),) if data.kind == SCORED else ((0, 1), (0, 2))
    first, *others = row_scores(encoder, data.columns, pairs, on_progress, should_stop)
    return {
        "model": encoder.name,
        "pooling": getattr(encoder, "pooling", None),
        "data": data.name,
        "n": len(data),
        **(_correlate(first, data) if data.kind == SCORED else _triplet_accuracy(first, *others)),
        "seconds": round(time.perf_counter() - started, 3),
    }


def _correlate(values: dict[str, np.ndarray], data: Dataset) -> dict[str, Any]:
    gold = np.asarray(data.scores, dtype=np.float64)
    return {
        "spearman": {name: spearman(value, gold) for name, value in values.items()},
        "pearson": {name: pearson(value, gold) for name, value in values.items()},
        "interval": bootstrap_interval(next(iter(values.values())), gold)._asdict(),
    }


def _triplet_accuracy(nearer: dict[str, np.ndarray], further: dict[str, np.ndarray]) -> dict[str, Any]:
    return {"accuracy": {name: float((nearer[name] > further[name]).mean()) for name in nearer}}


def _correlations(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Row-wise Pearson. (R, N), (R, N) -> (R,), NaN where a row is constant."""
    a = a - a.mean(axis=1, keepdims=True)
    b = b - b.mean(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (a * b).sum(axis=1) / np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
