"""UMAP's graph and the optimisation of one map, or of two aligned maps of the same sentences, from given neighbours.

As umap-learn computes them (McInnes et al. 2018), with the same names and the same results (`test_projection` compares
both): the graph, its spectral layout, the curve of attraction, the sampling of edges. umap-learn itself compiles 45
seconds of code at its first use, a hundred times what a map needs: here numba compiles one function, the epoch.

The loop can be stopped between epochs, and optimises two maps together. umap-learn's AlignedUMAP supports any number of
maps and any relation between their points, and takes a minute for two maps of 10,000 sentences. Here row i of one map
corresponds to row i of the other: the weight of the attraction between them (the Jaccard overlap of the sentence's two
neighbourhoods) is a product of two sparse matrices, and an epoch is umap-learn's with that attraction added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

ALIGNMENT_STRENGTH = 1e-2  # AlignedUMAP's default for alignment_regularisation
INITIAL_EXTENT = 10.0  # of the initial coordinates, as in umap-learn
NEGATIVE_SAMPLES = 5  # for each sampled edge: umap-learn's negative_sample_rate
BISECTIONS, SCALE_TOLERANCE = 64, 1e-5  # of the search for σ
LEAST_SCALE = 1e-3  # σ, relative to the mean distance


def neighbour_graph(rows: np.ndarray, distances: np.ndarray) -> Any:
    """UMAP's weighted neighbour graph, sparse (N, N), from rows int32 (N, k) and distances float32 (N, k)."""
    from scipy.sparse import csr_array

    n, k = rows.shape
    nearest, scale = _local_scales(distances)
    weights = np.exp(-np.maximum(distances - nearest, 0) / np.where(scale > 0, scale, 1))
    weights[rows == np.arange(n)[:, None]] = 0  # a sentence is no neighbour of itself
    graph = csr_array((weights.ravel(), (np.repeat(np.arange(n), k), rows.ravel())), (n, n))
    graph = graph + graph.T - graph * graph.T  # a neighbour of either: the probability that one edge or both exist
    graph.eliminate_zeros()
    return graph


def _local_scales(distances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """ρ and σ of each sentence, float64 (N, 1): the distance of its nearest neighbour, and the scale of the others.

    σ is such that the k weights exp(−(d − ρ) / σ) sum to log₂ k, found by bisection.
    """
    distances = distances.astype(np.float64)
    nearest = np.where(distances > 0, distances, np.inf).min(axis=1, keepdims=True)
    nearest[np.isinf(nearest)] = 0  # all neighbours are equal to it
    beyond, target = np.maximum(distances[:, 1:] - nearest, 0), math.log2(distances.shape[1])
    low, high, scale = np.zeros_like(nearest), np.full_like(nearest, np.inf), np.ones_like(nearest)
    for _ in range(BISECTIONS):
        excess = np.exp(-beyond / scale).sum(axis=1, keepdims=True) - target
        is_large, is_small = excess > SCALE_TOLERANCE, excess < -SCALE_TOLERANCE
        if not (is_large | is_small).any():
            break
        high, low = np.where(is_large, scale, high), np.where(is_small, scale, low)
        middle = np.where(np.isinf(high), scale * 2, (low + high) / 2)
        scale = np.where(is_large | is_small, middle, scale)
    mean = np.where(nearest > 0, distances.mean(axis=1, keepdims=True), distances.mean())
    return nearest, np.maximum(scale, LEAST_SCALE * mean)


def initial_points(
    vectors: np.ndarray, graph: Any, dimensions: int, random: np.random.RandomState, spectral: bool
) -> np.ndarray:
    """The initial coordinates, (N, dimensions) float32: the graph's spectral layout, or the principal components.

    A graph in several parts has no spectral layout that says where they lie.
    """
    from scipy.sparse.csgraph import connected_components

    if spectral and len(vectors) > 4 * dimensions and connected_components(graph)[0] == 1:
        points = _eigenvectors(graph, dimensions)
    else:
        centred = vectors - vectors.mean(axis=0)
        points = centred @ np.linalg.eigh(centred.T @ centred)[1][:, : -dimensions - 1 : -1]
    points = points * (INITIAL_EXTENT / max(np.abs(points).max(), 1e-9))
    return np.ascontiguousarray(points + random.normal(scale=1e-4, size=points.shape), dtype=np.float32)


def _eigenvectors(graph: Any, count: int) -> np.ndarray:
    """The eigenvectors of the normalised graph Laplacian with the lowest eigenvalues but the first: (N, count)."""
    from scipy.sparse import diags_array
    from scipy.sparse.linalg import eigsh

    n = graph.shape[0]
    root = diags_array(1 / np.sqrt(graph.sum(axis=0)))
    lanczos = min(n - 1, max(2 * count + 3, int(n**0.5)))
    values, vectors = eigsh(root @ graph @ root, count + 1, which="LA", v0=np.ones(n), ncv=lanczos, tol=1e-4)
    return vectors[:, np.argsort(-values)[1:]]  # its eigenvalues are one less those of the Laplacian


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
        edges = graph.tocoo()
        edges.sum_duplicates()
        edges.data[edges.data < edges.data.max() / epochs] = 0.0  # too weak to be sampled even once
        edges.eliminate_zeros()
        interval = edges.data.max() / edges.data.astype(np.float64)
        heads, tails = edges.row.astype(np.int32), edges.col.astype(np.int32)
        return cls(points, heads, tails, interval, interval.copy(), interval / NEGATIVE_SAMPLES)


def optimise(
    starts: Sequence[np.ndarray],
    graphs: Sequence[Any],
    min_dist: float,
    epochs: int,
    random: np.random.RandomState,
    home: Path,
    on_epoch: Callable[[float], None],
) -> list[np.ndarray]:
    """Optimise one map, or two together -> float32 (N, dimensions) each.

    ``home``: the folder where compiled code is kept. ``on_epoch`` gets the fraction done.
    """
    a, b = map(np.float32, _curve(min_dist))
    points = [starts[0].copy(), *(_rotate_onto(start, starts[0]) for start in starts[1:])]
    states = [_MapState.of(*pair, epochs) for pair in zip(points, graphs, strict=True)]
    alignment = np.zeros(len(points[0]), dtype=np.float32)
    if len(graphs) == 2:
        alignment = np.float32(ALIGNMENT_STRENGTH) * neighbourhood_overlap(*graphs)
    rng_state = random.randint(1, np.iinfo(np.int64).max, 1, dtype=np.int64).astype(np.uint64)
    epoch = _compiled_epoch(home)
    for n in range(epochs):
        on_epoch(n / epochs)
        for this, other in zip(states, states[::-1], strict=True):
            edges = (this.heads, this.tails, this.epochs_per_sample, this.next_sample, this.next_negative)
            epoch(this.points, other.points, alignment, *edges, a, b, np.float32(1 - n / epochs), n, rng_state)
    on_epoch(1.0)
    return points


def _curve(min_dist: float) -> tuple[float, float]:
    """a and b of 1 / (1 + a d²ᵇ), fitted to 1 up to ``min_dist`` and exp(min_dist − d) beyond."""
    from scipy.optimize import curve_fit

    distance = np.linspace(0, 3, 300)
    wanted = np.exp(-np.maximum(distance - min_dist, 0))
    (a, b), _ = curve_fit(lambda d, a, b: 1 / (1 + a * d ** (2 * b)), distance, wanted)
    return float(a), float(b)


def _epoch(
    points: np.ndarray,
    other: np.ndarray,
    alignment: np.ndarray,
    heads: np.ndarray,
    tails: np.ndarray,
    epochs_per_sample: np.ndarray,
    next_sample: np.ndarray,
    next_negative: np.ndarray,
    a: np.float32,
    b: np.float32,
    alpha: np.float32,
    n: int,
    rng_state: np.ndarray,
) -> None:
    """One epoch of one map, to be compiled by numba.

    Nodes of an edge attract each other, negative samples repel, and each sentence is attracted to its position on the
    ``other`` map with its weight in ``alignment`` (N,); all zero for a single map. ``alpha`` is the learning rate.
    All forces are float32, a quarter faster than float64: a float64 constant would make what it is added to float64.
    """
    dimensions = points.shape[1]
    zero, one, least, most = np.float32(0), np.float32(1), np.float32(0.001), np.float32(4)
    attracting, repelling = np.float32(-2) * a * b, np.float32(2) * b
    for edge in range(len(heads)):
        if next_sample[edge] > n:
            continue
        j, k = heads[edge], tails[edge]
        squared_distance = zero
        for d in range(dimensions):
            squared_distance += (points[j, d] - points[k, d]) ** 2
        attraction = zero
        if squared_distance > zero:
            power = squared_distance**b
            attraction = attracting * power / (squared_distance * (a * power + one))
        for d in range(dimensions):
            step = min(most, max(-most, attraction * (points[j, d] - points[k, d])))
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
            squared_distance = zero
            for d in range(dimensions):
                squared_distance += (points[j, d] - points[k, d]) ** 2
            repulsion = zero
            if squared_distance > zero:
                repulsion = repelling / ((least + squared_distance) * (a * squared_distance**b + one))
            for d in range(dimensions):
                step = min(most, max(-most, repulsion * (points[j, d] - points[k, d])))
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
def _compiled_epoch(home: Path) -> Any:
    """`_epoch`, compiled once for each processor and home folder."""
    import numba

    numba.config.CACHE_DIR = str(home / "numba")
    return numba.njit(_epoch, fastmath=True, cache=True, nogil=True)
