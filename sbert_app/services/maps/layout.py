"""UMAP's optimisation of one map, or of two aligned maps of the same sentences, from given neighbours.

The functions for the graph, the spectral initialisation, the curve parameters and the sampling rates are umap-learn's
(McInnes et al. 2018). The optimisation loop is our own, for three reasons: it can be stopped between epochs, it
compiles in a second, and it optimises two maps together. umap-learn's AlignedUMAP supports any number of maps and any
relation between their points, and takes a minute for two maps of 10,000 sentences. Here row i of one map corresponds
to row i of the other: the weight of the attraction between them (the Jaccard overlap of the sentence's two
neighbourhoods) is a product of two sparse matrices, and an epoch (`_epoch`, compiled by numba) is umap-learn's with
that attraction added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

ALIGNMENT_STRENGTH = 1e-2  # AlignedUMAP's default for alignment_regularisation
INITIAL_EXTENT = 10.0  # of the initial coordinates, as in umap-learn
NEGATIVE_SAMPLES = 5  # for each sampled edge: umap-learn's negative_sample_rate


def neighbour_graph(rows: np.ndarray, distances: np.ndarray, random: np.random.RandomState) -> Any:
    """UMAP's weighted neighbour graph, sparse (N, N), from rows int32 (N, k) and distances float32 (N, k)."""
    from umap.umap_ import fuzzy_simplicial_set

    unused = np.empty((len(rows), 1), dtype=np.float32)  # with given neighbours only its length is read
    graph, *_ = fuzzy_simplicial_set(
        unused, rows.shape[1], random, "cosine", knn_indices=rows, knn_dists=distances, return_dists=False
    )
    return graph


def initial_points(
    vectors: np.ndarray, graph: Any, dimensions: int, random: np.random.RandomState, spectral: bool
) -> np.ndarray:
    """The initial coordinates, (N, dimensions) float32: the graph's spectral layout, or the principal components."""
    from umap.spectral import spectral_layout

    if spectral:
        points = spectral_layout(vectors, graph, dimensions, random, metric="cosine")
    else:
        centred = vectors - vectors.mean(axis=0)
        points = centred @ np.linalg.eigh(centred.T @ centred)[1][:, : -dimensions - 1 : -1]
    points = points * (INITIAL_EXTENT / max(np.abs(points).max(), 1e-9))
    return np.ascontiguousarray(points + random.normal(scale=1e-4, size=points.shape), dtype=np.float32)


@dataclass(frozen=True)
class _MapState:
    """A map during the optimisation."""

    points: np.ndarray  # (N, dimensions) float32, updated in place
    heads: np.ndarray  # (E,) int32: the two nodes of each edge
    tails: np.ndarray
    epochs_per_sample: np.ndarray  # (E,) float64: epochs between two samples of an edge
    next_sample: np.ndarray  # (E,) float64: epoch of the edge's next sample
    next_negative: np.ndarray  # (E,) float64: the same for its negative samples

    @classmethod
    def of(cls, points: np.ndarray, graph: Any, epochs: int) -> _MapState:
        from umap.umap_ import make_epochs_per_sample

        edges = graph.tocoo()
        edges.sum_duplicates()
        edges.data[edges.data < edges.data.max() / epochs] = 0.0  # too weak to be sampled even once
        edges.eliminate_zeros()
        interval = make_epochs_per_sample(edges.data, epochs).astype(np.float64)
        heads, tails = edges.row.astype(np.int32), edges.col.astype(np.int32)
        return cls(points, heads, tails, interval, interval.copy(), interval / NEGATIVE_SAMPLES)


def optimise(
    starts: Sequence[np.ndarray],
    graphs: Sequence[Any],
    min_dist: float,
    epochs: int,
    random: np.random.RandomState,
    on_epoch: Callable[[float], None],
) -> list[np.ndarray]:
    """Optimise one map, or two together -> float32 (N, dimensions) each. ``on_epoch`` gets the fraction done."""
    from umap.umap_ import find_ab_params

    a, b = find_ab_params(1.0, min_dist)
    points = [starts[0].copy(), *(_rotate_onto(start, starts[0]) for start in starts[1:])]
    states = [_MapState.of(*pair, epochs) for pair in zip(points, graphs, strict=True)]
    alignment = np.zeros(len(points[0]), dtype=np.float32)
    if len(graphs) == 2:
        alignment = np.float32(ALIGNMENT_STRENGTH) * neighbourhood_overlap(*graphs)
    rng_state = random.randint(1, np.iinfo(np.int64).max, 1, dtype=np.int64).astype(np.uint64)
    epoch = _compiled_epoch()
    for n in range(epochs):
        on_epoch(n / epochs)
        for this, other in zip(states, states[::-1], strict=True):
            edges = (this.heads, this.tails, this.epochs_per_sample, this.next_sample, this.next_negative)
            epoch(this.points, other.points, alignment, *edges, a, b, 1.0 - n / epochs, n, rng_state)
    on_epoch(1.0)
    return points


def _epoch(
    points: np.ndarray,
    other: np.ndarray,
    alignment: np.ndarray,
    heads: np.ndarray,
    tails: np.ndarray,
    epochs_per_sample: np.ndarray,
    next_sample: np.ndarray,
    next_negative: np.ndarray,
    a: float,
    b: float,
    alpha: float,
    n: int,
    rng_state: np.ndarray,
) -> None:
    """One epoch of one map, to be compiled by numba.

    Nodes of an edge attract each other, negative samples repel, and each sentence is attracted to its position on the
    ``other`` map with its weight in ``alignment`` (N,); all zero for a single map. ``alpha`` is the learning rate.
    """
    dimensions = points.shape[1]
    for edge in range(len(heads)):
        if next_sample[edge] > n:
            continue
        j, k = heads[edge], tails[edge]
        squared_distance = 0.0
        for d in range(dimensions):
            squared_distance += (points[j, d] - points[k, d]) ** 2
        attraction = 0.0
        if squared_distance > 0.0:
            power = squared_distance**b
            attraction = -2.0 * a * b * power / squared_distance / (a * power + 1.0)
        for d in range(dimensions):
            step = min(4.0, max(-4.0, attraction * (points[j, d] - points[k, d])))
            points[j, d] += alpha * (step - alignment[j] * (points[j, d] - other[j, d]))
            points[k, d] -= alpha * (step + alignment[k] * (points[k, d] - other[k, d]))
        next_sample[edge] += epochs_per_sample[edge]
        negatives = int((n - next_negative[edge]) / (epochs_per_sample[edge] / NEGATIVE_SAMPLES))
        for _ in range(negatives):
            rng_state[0] ^= rng_state[0] << np.uint64(13)  # xorshift64 (Marsaglia 2003)
            rng_state[0] ^= rng_state[0] >> np.uint64(7)
            rng_state[0] ^= rng_state[0] << np.uint64(17)
            k = np.int64(rng_state[0] % np.uint64(len(points)))
            if k == j:
                continue
            squared_distance = 0.0
            for d in range(dimensions):
                squared_distance += (points[j, d] - points[k, d]) ** 2
            repulsion = 0.0
            if squared_distance > 0.0:
                repulsion = 2.0 * b / ((0.001 + squared_distance) * (a * squared_distance**b + 1.0))
            for d in range(dimensions):
                step = min(4.0, max(-4.0, repulsion * (points[j, d] - points[k, d])))
                points[j, d] += alpha * (step - alignment[j] * (points[j, d] - other[j, d]))
        next_negative[edge] += negatives * epochs_per_sample[edge] / NEGATIVE_SAMPLES


def _rotate_onto(points: np.ndarray, onto: np.ndarray) -> np.ndarray:
    """Rotated and reflected to fit ``onto`` best (orthogonal Procrustes)."""
    left, _, right = np.linalg.svd(points.T @ onto)
    return np.ascontiguousarray(points @ left @ right, dtype=np.float32)


def neighbourhood_overlap(first: Any, second: Any) -> np.ndarray:
    """The Jaccard overlap of each row's neighbours in two sparse (N, N) graphs: float32 (N,)."""
    first, second = (first > 0).astype(np.float32), (second > 0).astype(np.float32)
    shared = np.asarray(first.multiply(second).sum(axis=1)).ravel()
    either = np.asarray(first.sum(axis=1) + second.sum(axis=1)).ravel() - shared
    return (shared / np.maximum(either, 1)).astype(np.float32)


@cache
def _compiled_epoch() -> Any:
    import numba

    return numba.njit(_epoch, fastmath=True, cache=True)
