"""The layout of AlignedUMAP for two maps of the same sentences, on neighbours that are already known.

umap-learn's AlignedUMAP serves any number of maps with any relation between their points. For two maps of the same
N sentences the relation is "the same row", which makes two of its steps much shorter: the weight that holds a sentence
near its other self (the overlap of its two neighbourhoods, Jaccard) is a product of two sparse matrices instead of
N sets of N elements, and the compiled epoch can be kept instead of compiled at each call. The epoch itself is
umap-learn's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

HOLD = 1e-2  # how strongly a sentence is held near its other self: AlignedUMAP's default
WINDOW = 2  # the epoch looks from -2 to +1 maps away: enough for two maps to see each other
EXTENT = 10.0  # of a start, as umap-learn's


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


def optimise(
    starts: Sequence[np.ndarray],
    graphs: Sequence[Any],
    min_dist: float,
    epochs: int,
    random: np.random.RandomState,
    on_share: Callable[[float], None],
) -> list[np.ndarray]:
    """Draw both maps together -> two float32 (N, dimensions)."""
    from numba import types
    from numba.typed import List
    from umap.umap_ import find_ab_params, make_epochs_per_sample

    a, b = find_ab_params(1.0, min_dist)
    edges = [_edges(one, epochs) for one in graphs]
    heads, tails = (List([getattr(one, name).astype(np.int32) for one in edges]) for name in ("row", "col"))
    waits = [make_epochs_per_sample(one.data, epochs) for one in edges]
    per_sample = List([wait.astype(np.float64) for wait in waits])
    next_sample = List([wait.astype(np.float32) for wait in waits])
    per_negative = List([(wait / 5).astype(np.float32) for wait in waits])
    next_negative = List([(wait / 5).astype(np.float32) for wait in waits])
    maps = List.empty_list(types.float32[:, ::1])
    maps.append(starts[0].copy())
    maps.append(_turned(starts[1], starts[0]))
    relations = _same_row(len(starts[0]))
    hold = np.where(relations >= 0, _overlap(*graphs), np.float32(0)).astype(np.float32)
    state = random.randint(np.iinfo(np.int32).min + 1, np.iinfo(np.int32).max - 1, 3).astype(np.int64)
    epoch, alpha = _compiled_epoch(), 1.0
    for n in range(epochs):
        on_share(n / epochs)
        epoch(
            *(maps, maps, heads, tails, per_sample, a, b, hold, relations, state, 1.0, HOLD, starts[0].shape[1]),
            *(True, alpha, per_negative, next_negative, next_sample, n),
        )
        alpha = 1.0 - n / epochs
    return [np.array(points) for points in maps]


def _edges(graph: Any, epochs: int) -> Any:
    """The edges that are strong enough to be drawn at least once, as UMAP takes them."""
    edges = graph.tocoo()
    edges.sum_duplicates()
    edges.data[edges.data < edges.data.max() / epochs] = 0.0
    edges.eliminate_zeros()
    return edges


def _turned(points: np.ndarray, onto: np.ndarray) -> np.ndarray:
    """Turned and mirrored so that it lies best on ``onto`` (orthogonal Procrustes)."""
    left, _, right = np.linalg.svd(points.T @ onto)
    return np.ascontiguousarray(points @ left @ right, dtype=np.float32)


def _same_row(n: int) -> np.ndarray:
    """Which point of which map is the same sentence: int32 (2 maps, 5 maps around it, N), -1 for none."""
    relations = np.full((2, 2 * WINDOW + 1, n), -1, dtype=np.int32)
    relations[0, WINDOW + 1] = relations[1, WINDOW - 1] = np.arange(n)
    return relations


def _overlap(first: Any, second: Any) -> np.ndarray:
    """Of each sentence, the neighbours that both graphs have, among those that either has: float32 (N,)."""
    first, second = (first > 0).astype(np.float32), (second > 0).astype(np.float32)
    shared = np.asarray(first.multiply(second).sum(axis=1)).ravel()
    either = np.asarray(first.sum(axis=1) + second.sum(axis=1)).ravel() - shared
    return (shared / np.maximum(either, 1)).astype(np.float32)


@cache
def _compiled_epoch() -> Any:
    import numba
    from umap.layouts import _optimize_layout_aligned_euclidean_single_epoch

    return numba.njit(_optimize_layout_aligned_euclidean_single_epoch, fastmath=True, cache=True)
