"""Clusters of sentence vectors without a number of clusters: communities around a centre."""

from __future__ import annotations

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from training.errors import InputError
from training.progress import Progress, ShouldStop, progress_bar, steps
from training.search import as_rows


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
    results are those of ``community_detection`` of sentence-transformers.

    Args:
        embeddings: float32 (N, D).
        threshold: the lowest cosine with the centre.
        min_community_size: the fewest rows, the centre among them.
        batch_size: rows that are compared with all others at a time.
        show_progress_bar: draw one, in a terminal or a notebook.
        on_progress: called with (batches done, all) after each.
        should_stop: asked before each batch; if it says yes, ``Stopped`` is raised.

    Raises:
        InputError: ``min_community_size`` is less than 1.
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
    """Of centres with their rows: each row in the first community that has it, the largest first."""
    is_taken, found = np.zeros(n, dtype=bool), []
    for centre, rows in sorted(around, key=lambda each: -len(each[1])):
        free = rows[~is_taken[rows]]
        if not is_taken[centre] and len(free) >= smallest:
            community = [centre, *free[free != centre].tolist()]
            is_taken[community] = True
            found.append(community)
    return sorted(found, key=len, reverse=True)
