"""The nearest neighbours of every sentence of a corpus: what a map is drawn from.

Up to 20,000 sentences every pair is compared. Above, the corpus is parted into cells (k-means) and each sentence
looks into the nearest few: 97 of 100 neighbours are found in a tenth of the time. Both give the same result each
time, which is why the graph of search.py, built by threads that race, is not used here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from training.errors import Stopped

MOST_COMPARED = 20_000
CELLS_VISITED = 16
ROWS = 4_096  # rows between two looks at the Stop button
SEED = 1_234


def neighbours(
    vectors: np.ndarray,
    k: int,
    on_progress: Callable[[float], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest of each vector, itself first: rows int32 (N, k) and cosine distances float32 (N, k).

    Args:
        vectors: float32 (N, D) of length 1.
        k: at most N.
        on_progress: called with the share that is done.
        should_stop: asked every 4,096 rows.

    Raises:
        Stopped: ``should_stop`` said yes.
    """
    n = len(vectors)
    index = _index(vectors)
    rows = np.empty((n, k), dtype=np.int32)
    distances = np.empty((n, k), dtype=np.float32)
    for start in range(0, n, ROWS):
        if should_stop is not None and should_stop():
            raise Stopped
        own = np.arange(start, min(start + ROWS, n))[:, None]
        cosines, found = index.search(vectors[start : start + ROWS], k)
        missing = ~(found == own).any(axis=1)  # among many equals a sentence may not find itself
        found[missing, -1] = own[missing, 0]
        cosines[found == own] = 2.0  # before all others
        cosines[found < 0] = -1.0  # a cell held fewer than k
        found = np.where(found < 0, own, found)
        order = np.argsort(-cosines, axis=1, kind="stable")
        rows[own[:, 0]] = np.take_along_axis(found, order, axis=1)
        distances[own[:, 0]] = np.clip(1 - np.take_along_axis(cosines, order, axis=1), 0, 2)
        if on_progress is not None:
            on_progress(min(start + ROWS, n) / n)
    return rows, distances


def _index(vectors: np.ndarray) -> Any:
    import faiss

    n, dimension = vectors.shape
    flat = faiss.IndexFlatIP(dimension)
    if n <= MOST_COMPARED:
        flat.add(vectors)
        return flat
    cells = faiss.IndexIVFFlat(flat, dimension, round(3.2 * math.sqrt(n)), faiss.METRIC_INNER_PRODUCT)
    cells.cp.niter, cells.cp.max_points_per_centroid, cells.cp.seed = 6, 64, SEED
    cells.train(vectors)
    cells.add(vectors)
    cells.nprobe = CELLS_VISITED
    return cells
