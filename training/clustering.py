"""Near duplicates among sentence vectors.

near_duplicates(vectors, threshold=0.95)            for each vector an earlier one that it nearly repeats
near_duplicates(vectors, 0.95, others=more)         for each vector the most similar one of ``more``
community_detection(vectors, threshold=0.75)        groups of vectors around a centre (sentence-transformers)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from training.progress import Progress, ShouldStop, steps
from training.search import as_rows, check_dimensions, neighbour_index

# The number of vectors that are compared with the others at a time.
ROWS = 2_048


def near_duplicates(
    vectors: np.ndarray,
    threshold: float = 0.95,
    on_progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
    others: np.ndarray | None = None,
) -> np.ndarray:
    """Finds near duplicates among vectors.

    In order, a vector is kept unless it has a cosine of at least ``threshold`` with an earlier
    vector that is kept. So no two kept vectors are that similar, and every other vector is similar
    to one of them. The search is exact up to 25,000 vectors. Among more, FAISS searches the nearest
    cells of an inverted file, and may miss a pair.

    Args:
        vectors: float32 (N, D), unit length.
        threshold: the least cosine of near duplicates.
        others: float32 (M, D), unit length, to search for near duplicates of ``vectors`` in.

    Returns:
        int64 (N,): for each vector the position of the kept vector that it repeats, its own if it
        is kept. With ``others``, the position of the most similar of these, −1 if its cosine is
        below ``threshold``.

    Raises:
        InputError: the numbers of dimensions differ.

    Example::

        from sbert_lab import Encoder, near_duplicates

        sentences = ["A man is eating food.", "It snows.", "A man is eating some food."]
        embeddings = Encoder("all-MiniLM-L6-v2").encode(sentences)
        print(near_duplicates(embeddings, threshold=0.9))  # [0 1 0]
    """
    rows = as_rows(np.ascontiguousarray(vectors, dtype=np.float32)).numpy()
    starts = steps(range(0, len(rows), ROWS), on_progress, should_stop)
    if others is not None:
        other_rows = as_rows(np.ascontiguousarray(others, dtype=np.float32)).numpy()
        check_dimensions(rows, other_rows)
        index = neighbour_index(other_rows, len(rows))
        # Without vectors the result is empty too.
        parts = [np.empty(0, np.int64)]
        for start in starts:
            parts.append(_most_similar(index, rows[start : start + ROWS], threshold))
        return np.concatenate(parts)

    original = np.arange(len(rows))
    # `neighbour_index` is exact up to 50,000² comparisons. With four times the number of queries, it
    # is exact up to 25,000 vectors, and not up to 50,000.
    index = neighbour_index(rows, 4 * len(rows), is_filled=False)
    # Only kept vectors are added to the index. These are their positions among all vectors.
    positions = np.empty(0, dtype=np.int64)
    for start in starts:
        block = rows[start : start + ROWS]
        # −1 for a vector that is similar to no kept one.
        nearest = _most_similar(index, block, threshold)
        is_repeat = nearest >= 0
        # A slice of an array is a view, so this changes ``original``.
        original[start : start + ROWS][is_repeat] = positions[nearest[is_repeat]]
        new = start + np.flatnonzero(~is_repeat)
        # New vectors of the block may repeat each other.
        stays = _first_of_similar(rows[new], new, threshold, original)
        new = new[stays]
        index.add(rows[new])
        positions = np.concatenate([positions, new])
    return original


def _most_similar(index: Any, vectors: np.ndarray, threshold: float) -> np.ndarray:
    """Finds for each vector the place of the most similar one in the index, int64 (n,), −1 below the threshold."""
    # In an empty index FAISS finds nothing: the place −1, with the lowest float as its cosine.
    cosines, places = index.search(vectors, 1)
    return np.where(cosines[:, 0] >= threshold, places[:, 0], -1)


def _first_of_similar(
    vectors: np.ndarray, positions: np.ndarray, threshold: float, original: np.ndarray
) -> np.ndarray:
    """Decides which vectors of a block are kept, bool (n,). For the others, sets ``original`` to the kept position."""
    stays = np.ones(len(vectors), dtype=bool)
    # (n, n): the vector of the row and the earlier one of the column are similar.
    is_similar = np.tril(vectors @ vectors.T >= threshold, -1)
    for row in np.flatnonzero(is_similar.any(axis=1)):
        earlier = np.flatnonzero(is_similar[row] & stays)
        if len(earlier):
            stays[row] = False
            original[positions[row]] = positions[earlier[0]]
    return stays
