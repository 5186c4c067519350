"""Similarities of sentence vectors, and correlations with gold scores.

The paper scores STS by Spearman's rank correlation between cosine and gold score (section 4.1). Pearson's, "badly
suited" for this (Reimers et al. 2016), is reported beside it for completeness. Distances are negated, so that larger
always means more similar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from training.models.scorer import Vectors

Similarity = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (N, D), (N, D) -> (N,)
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


SIMILARITIES: dict[str, Similarity] = {
    "cosine": cosine,
    "dot": dot,
    "euclidean": euclidean,
    "manhattan": manhattan,
}


def similarities(u: Vectors, v: Vectors) -> dict[str, np.ndarray]:
    """Each of ``SIMILARITIES`` row by row: (N, D), (N, D), dense or both sparse -> (N,) each."""
    blocks = list(_dense_blocks(u, v))
    return {
        name: np.concatenate([similarity(a, b) for a, b in blocks]) if len(blocks) != 1 else similarity(*blocks[0])
        for name, similarity in SIMILARITIES.items()
    }


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


def _dense_blocks(u: Vectors, v: Vectors) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    if isinstance(u, np.ndarray) or isinstance(v, np.ndarray):
        yield np.asarray(u), np.asarray(v)
        return
    for start in range(0, u.shape[0], DENSE_ROWS):
        yield u[start : start + DENSE_ROWS].toarray(), v[start : start + DENSE_ROWS].toarray()
