"""UMAP's layout of one map, or of two maps of the same sentences drawn together, on neighbours that are known.

The steps and their functions are umap-learn's (McInnes et al. 2018): the graph, the spectral start, the curve, how
often each edge pulls. The loop is ours, for three reasons: it can be stopped between two epochs, it compiles in a
second, and it draws two maps at once. umap-learn's AlignedUMAP serves any number of maps with any relation between
their points and takes a minute for two of 10,000 sentences. Here the relation is "the same row": the weight that holds
a sentence near its other self (the overlap of its two neighbourhoods, Jaccard) is a product of two sparse matrices,
and an epoch (`_epoch`, compiled by numba) is umap-learn's with that one pull added, a map at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

HOLD = 1e-2  # how strongly a sentence is held near its other self: AlignedUMAP's default
EXTENT = 10.0  # of a start, as umap-learn's
PUSHES = 5  # sentences drawn at random that each pull is followed by: UMAP's negative samples


def graph(rows: np.ndarray, distances: np.ndarray, random: np.random.RandomState) -> Any:
    """UMAP's weighted graph of neighbours: sparse (N, N), from int32 and float32 (N, k)."""
    from umap.umap_ import fuzzy_simplicial_set

    unused = np.empty((len(rows), 1), dtype=np.float32)  # only its length is read, as the neighbours are known
    found, *_ = fuzzy_simplicial_set(
        unused, rows.shape[1], random, "cosine", knn_indices=rows, knn_dists=distances, return_dists=False
    )
    return found


def start(
    vectors: np.ndarray, graph: Any, dimensions: int, random: np.random.RandomState, spectral: bool
) -> np.ndarray:
    """Where the drawing begins: the spectral layout of the graph, or the principal components. (N, dimensions)"""
    from umap.spectral import spectral_layout

    if spectral:
        points = spectral_layout(vectors, graph, dimensions, random, metric="cosine")
    else:
        centred = vectors - vectors.mean(axis=0)
        points = centred @ np.linalg.eigh(centred.T @ centred)[1][:, : -dimensions - 1 : -1]
    points = points * (EXTENT / max(np.abs(points).max(), 1e-9))
    return np.ascontiguousarray(points + random.normal(scale=1e-4, size=points.shape), dtype=np.float32)


@dataclass(frozen=True)
class _Drawing:
    """One of the two maps while it is drawn."""

    points: np.ndarray  # (N, dimensions) float32, changed in place
    heads: np.ndarray  # (E,) int32: the two ends of each edge
    tails: np.ndarray
    wait: np.ndarray  # (E,) float64: epochs between two pulls along an edge
    next_pull: np.ndarray
    next_push: np.ndarray

    @classmethod
    def of(cls, points: np.ndarray, graph: Any, epochs: int) -> _Drawing:
        from umap.umap_ import make_epochs_per_sample

        edges = graph.tocoo()
        edges.sum_duplicates()
        edges.data[edges.data < edges.data.max() / epochs] = 0.0  # too weak to be drawn even once
        edges.eliminate_zeros()
        wait = make_epochs_per_sample(edges.data, epochs).astype(np.float64)
        return cls(points, edges.row.astype(np.int32), edges.col.astype(np.int32), wait, wait.copy(), wait / PUSHES)


def optimise(
    starts: Sequence[np.ndarray],
    graphs: Sequence[Any],
    min_dist: float,
    epochs: int,
    random: np.random.RandomState,
    on_share: Callable[[float], None],
) -> list[np.ndarray]:
    """Draw one map, or two together -> float32 (N, dimensions) each."""
    from umap.umap_ import find_ab_params

    a, b = find_ab_params(1.0, min_dist)
    points = [starts[0].copy(), *(_turned(start, starts[0]) for start in starts[1:])]
    drawings = [_Drawing.of(*one, epochs) for one in zip(points, graphs, strict=True)]
    hold = np.float32(HOLD) * _overlap(*graphs) if len(graphs) == 2 else np.zeros(len(points[0]), dtype=np.float32)
    state = random.randint(1, np.iinfo(np.int64).max, 1, dtype=np.int64).astype(np.uint64)
    epoch = _compiled_epoch()
    for n in range(epochs):
        on_share(n / epochs)
        for one, other in zip(drawings, drawings[::-1], strict=True):
            edges = (one.heads, one.tails, one.wait, one.next_pull, one.next_push)
            epoch(one.points, other.points, hold, *edges, a, b, 1.0 - n / epochs, n, state)
    on_share(1.0)
    return points


def _epoch(
    points: np.ndarray,
    other: np.ndarray,
    hold: np.ndarray,
    heads: np.ndarray,
    tails: np.ndarray,
    wait: np.ndarray,
    next_pull: np.ndarray,
    next_push: np.ndarray,
    a: float,
    b: float,
    alpha: float,
    n: int,
    state: np.ndarray,
) -> None:
    """One epoch of one map: edges pull, random others push, the other self in ``other`` holds. For numba."""
    dimensions = points.shape[1]
    for edge in range(len(heads)):
        if next_pull[edge] > n:
            continue
        j, k = heads[edge], tails[edge]
        apart = 0.0
        for d in range(dimensions):
            apart += (points[j, d] - points[k, d]) ** 2
        pull = 0.0
        if apart > 0.0:
            power = apart**b
            pull = -2.0 * a * b * power / apart / (a * power + 1.0)
        for d in range(dimensions):
            step = min(4.0, max(-4.0, pull * (points[j, d] - points[k, d])))
            points[j, d] += alpha * (step - hold[j] * (points[j, d] - other[j, d]))
            points[k, d] -= alpha * (step + hold[k] * (points[k, d] - other[k, d]))
        next_pull[edge] += wait[edge]
        pushes = int((n - next_push[edge]) / (wait[edge] / PUSHES))
        for _ in range(pushes):
            state[0] ^= state[0] << np.uint64(13)  # xorshift64 (Marsaglia 2003)
            state[0] ^= state[0] >> np.uint64(7)
            state[0] ^= state[0] << np.uint64(17)
            k = np.int64(state[0] % np.uint64(len(points)))
            if k == j:
                continue
            apart = 0.0
            for d in range(dimensions):
                apart += (points[j, d] - points[k, d]) ** 2
            push = 0.0
            if apart > 0.0:
                push = 2.0 * b / ((0.001 + apart) * (a * apart**b + 1.0))
            for d in range(dimensions):
                step = min(4.0, max(-4.0, push * (points[j, d] - points[k, d])))
                points[j, d] += alpha * (step - hold[j] * (points[j, d] - other[j, d]))
        next_push[edge] += pushes * wait[edge] / PUSHES


def _turned(points: np.ndarray, onto: np.ndarray) -> np.ndarray:
    """Turned and mirrored so that it lies best on ``onto`` (orthogonal Procrustes)."""
    left, _, right = np.linalg.svd(points.T @ onto)
    return np.ascontiguousarray(points @ left @ right, dtype=np.float32)


def _overlap(first: Any, second: Any) -> np.ndarray:
    """Of each sentence, the neighbours that both graphs have, among those that either has: float32 (N,)."""
    first, second = (first > 0).astype(np.float32), (second > 0).astype(np.float32)
    shared = np.asarray(first.multiply(second).sum(axis=1)).ravel()
    either = np.asarray(first.sum(axis=1) + second.sum(axis=1)).ravel() - shared
    return (shared / np.maximum(either, 1)).astype(np.float32)


@cache
def _compiled_epoch() -> Any:
    import numba

    return numba.njit(_epoch, fastmath=True, cache=True)
