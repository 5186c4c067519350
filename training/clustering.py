"""Sentence vectors that belong together, without a number of clusters: near duplicates, and communities.

near_duplicates(vectors, threshold=0.95)            for each vector an earlier one that it nearly repeats
near_duplicates(vectors, 0.95, others=more)         for each vector the most similar of ``more``
community_detection(vectors, threshold=0.75)        vectors around a centre
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from training.errors import InputError
from training.progress import Progress, ShouldStop, progress_bar, steps
from training.search import as_rows, check_dimensions, neighbour_index

# The vectors that are compared with the others at a time.
ROWS = 2_048


def near_duplicates(
    vectors: np.ndarray,
    threshold: float = 0.95,
    on_progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
    others: np.ndarray | None = None,
) -> np.ndarray:
    """The earlier vector that each one nearly duplicates: int64 (N,), its position, or the vector's own.

    In order, a vector stays unless it has a cosine of at least ``threshold`` with one that stays. So no two of those
    are that similar, and every other vector is similar to one of them. Exact up to 25,000 vectors; among more, FAISS
    looks for each vector in the nearest cells of an inverted file, and may miss a pair.

    Args:
        vectors: float32 (N, D), unit length.
        threshold: the least cosine of near duplicates.
        others: float32 (M, D), unit length: find for each of ``vectors`` the most similar of these instead, with a
            cosine of at least ``threshold``. Returns its position, or −1 if there is none. InputError if they have
            another number of dimensions.
    """
    rows = as_rows(np.ascontiguousarray(vectors, dtype=np.float32)).numpy()
    blocks = steps(range(0, len(rows), ROWS), on_progress, should_stop)
    if others is not None:
        second = as_rows(np.ascontiguousarray(others, dtype=np.float32)).numpy()
        check_dimensions(rows, second)
        index = neighbour_index(second, len(rows))
        parts = [_most_similar(index, rows[start : start + ROWS], threshold) for start in blocks]
        return np.concatenate([np.empty(0, np.int64), *parts])

    original = np.arange(len(rows))
    index = neighbour_index(rows, 4 * len(rows), is_filled=False)
    # The positions of the vectors in the index, which are those that stay.
    kept = np.empty(0, dtype=np.int64)
    for start in blocks:
        block = rows[start : start + ROWS]
        nearest = _most_similar(index, block, threshold)
        is_repeat = nearest >= 0
        original[start : start + ROWS][is_repeat] = kept[nearest[is_repeat]]
        new = start + np.flatnonzero(~is_repeat)
        new = new[_first_of_similar(rows[new], new, threshold, original)]
        index.add(rows[new])
        kept = np.concatenate([kept, new])
    return original


def _most_similar(index: Any, vectors: np.ndarray, threshold: float) -> np.ndarray:
    """The place in the index of the most similar vector to each, int64 (n,), or −1 where none reaches the threshold."""
    cosines, places = index.search(vectors, 1)
    return np.where(cosines[:, 0] >= threshold, places[:, 0], -1)


def _first_of_similar(vectors: np.ndarray, positions: np.ndarray, threshold: float, original: np.ndarray) -> np.ndarray:
    """Whether each of a few vectors stays, bool (n,); ``original`` gets the positions that the others repeat."""
    stays = np.ones(len(vectors), dtype=bool)
    is_similar = np.tril(vectors @ vectors.T >= threshold, -1)
    for row in np.flatnonzero(is_similar.any(axis=1)):
        earlier = np.flatnonzero(is_similar[row] & stays)
        if len(earlier):
            stays[row] = False
            original[positions[row]] = positions[earlier[0]]
    return stays


def community_detection(
    embeddings: np.ndarray | Tensor,
    threshold: float = 0.75,
    min_community_size: int = 10,
    batch_size: int = 1_024,
    show_progress_bar: bool = False,
    on_progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
) -> list[list[int]]:
    """Communities of vectors that have a cosine of ``threshold`` or more with their centre, the largest first.

    Each is a list of rows: the centre, then the others, the nearest first. No row is in two of them, and many are in
    none. Every vector is tried as a centre; of those that overlap the one with the most neighbours keeps them. The
    results are those of ``community_detection`` of sentence-transformers. InputError if ``min_community_size`` is less
    than 1.

    Args:
        embeddings: float32 (N, D).
        threshold: the lowest cosine with the centre.
        min_community_size: the fewest rows, the centre among them.
        batch_size: rows that are compared with all others at a time.
    """
    if min_community_size < 1:
        raise InputError(f"the smallest community has {min_community_size} vectors; it must be at least 1")
    vectors = F.normalize(as_rows(embeddings), dim=1)
    batches = range(0, len(vectors), batch_size)
    around: list[tuple[int, np.ndarray]] = []
    with progress_bar(show_progress_bar, "Finding communities", on_progress) as progress:
        for start in steps(batches, progress, should_stop):
            cosines = vectors[start : start + batch_size] @ vectors.T
            counts = (cosines >= threshold).sum(dim=1)
            for row in (counts >= min_community_size).nonzero()[:, 0].tolist():
                nearest = cosines[row].topk(int(counts[row])).indices
                around.append((start + row, nearest.cpu().numpy().astype(np.uint32)))
    return _without_overlaps(around, len(vectors), min_community_size)


def _without_overlaps(around: list[tuple[int, np.ndarray]], n: int, smallest: int) -> list[list[int]]:
    """The communities, the largest first, from centres and their rows; a row stays in the first that has it."""
    is_taken, communities = np.zeros(n, dtype=bool), []
    for centre, rows in sorted(around, key=lambda community: -len(community[1])):
        free = rows[~is_taken[rows]]
        if not is_taken[centre] and len(free) >= smallest:
            community = [centre, *free[free != centre].tolist()]
            is_taken[community] = True
            communities.append(community)
    return sorted(communities, key=len, reverse=True)
