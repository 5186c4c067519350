"""The most similar pairs among N sentences, exactly: the paper's 65 hours of BERT, in a second (section 1).

For vectors of length 1 the cosine of all pairs is one matrix product. It is computed in blocks of the upper
triangle, so that memory stays flat: 10,000 sentences are 50 million cosines, 100,000 are five billion. Each block
is compared with the worst of the best k so far, and only what beats it is looked at.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from training.errors import InputError, Stopped

BLOCK = 2_048  # rows and columns of a block: 16 MB of cosines

OnBlock = Callable[[int, int], None]  # (blocks done, blocks in all)
ShouldStop = Callable[[], bool]


def most_similar_pairs(
    vectors: np.ndarray,
    k: int,
    threshold: float = -1.0,
    on_progress: OnBlock | None = None,
    should_stop: ShouldStop | None = None,
) -> list[tuple[int, int, float]]:
    """The k pairs of highest cosine: (i, j, cosine) with i < j, best first.

    Exact in float32. Among equal cosines those come first that were found first: block by block, row by row.

    Args:
        vectors: float32 (N, D) of length 1.
        k: how many pairs at most; there are only N(N−1)/2.
        threshold: the lowest cosine that counts.
        on_progress: called after each block.
        should_stop: asked before each block.

    Raises:
        InputError: k is less than 1.
        Stopped: ``should_stop`` said yes.
    """
    if k < 1:
        raise InputError(f"{k} pairs were asked for; ask for at least one.")
    starts = range(0, len(vectors), BLOCK)
    blocks = [(top, left) for top in starts for left in starts if top <= left]
    cosine = np.empty(0, dtype=np.float32)
    pairs = np.empty((2, 0), dtype=np.int64)
    for done, (top, left) in enumerate(blocks, start=1):
        if should_stop is not None and should_stop():
            raise Stopped
        block = vectors[top : top + BLOCK] @ vectors[left : left + BLOCK].T
        beats = block > cosine.min() if len(cosine) == k else block >= threshold
        if top == left:
            beats &= np.triu(np.ones_like(beats), 1)  # each pair once, nothing with itself
        found = np.flatnonzero(beats)
        if len(found):
            i, j = np.divmod(found, block.shape[1])
            cosine = np.concatenate([cosine, block.ravel()[found]])
            pairs = np.concatenate([pairs, np.stack([i + top, j + left])], axis=1)
            kept = _highest(cosine, k)
            cosine, pairs = cosine[kept], pairs[:, kept]
        if on_progress is not None:
            on_progress(done, len(blocks))
    order = np.argsort(-cosine, kind="stable")
    columns = (pairs[0, order], pairs[1, order], np.minimum(cosine[order], 1))
    return list(zip(*(column.tolist() for column in columns), strict=True))


def repeats(
    vectors: np.ndarray,
    threshold: float,
    on_progress: OnBlock | None = None,
    should_stop: ShouldStop | None = None,
) -> np.ndarray:
    """Which sentence each one repeats: int64 (N,), the position of an earlier one, or its own.

    Read in order, a sentence is kept unless it has a cosine of at least ``threshold`` with one that is kept. So no
    two that are kept are that similar, and each that is dropped has its likeness among them.

    Args:
        vectors: float32 (N, D) of length 1.
        threshold: from which cosine on a sentence is a repetition.
        on_progress: called after each block of rows.
        should_stop: asked before each block of rows.

    Raises:
        Stopped: ``should_stop`` said yes.
    """
    owner = np.arange(len(vectors))
    kept = np.empty(0, dtype=np.int64)
    starts = range(0, len(vectors), BLOCK)
    for done, start in enumerate(starts, start=1):
        if should_stop is not None and should_stop():
            raise Stopped
        rows = np.arange(start, min(start + BLOCK, len(vectors)))
        for before in range(0, len(kept), BLOCK):
            earlier = kept[before : before + BLOCK]
            likeness = vectors[rows] @ vectors[earlier].T >= threshold
            repeated = likeness.any(axis=1)
            owner[rows[repeated]] = earlier[likeness[repeated].argmax(axis=1)]
            rows = rows[~repeated]
        kept = np.concatenate([kept, _first_of_each(vectors, rows, threshold, owner)])
        if on_progress is not None:
            on_progress(done, len(starts))
    return owner


def _first_of_each(vectors: np.ndarray, rows: np.ndarray, threshold: float, owner: np.ndarray) -> np.ndarray:
    """Among ``rows``, those that repeat none before them; the others get their ``owner``."""
    likeness = vectors[rows] @ vectors[rows].T >= threshold
    is_kept = np.ones(len(rows), dtype=bool)
    for at in range(len(rows)):
        if is_kept[at]:
            later = at + 1 + np.flatnonzero(likeness[at, at + 1 :] & is_kept[at + 1 :])
            is_kept[later] = False
            owner[rows[later]] = rows[at]
    return rows[is_kept]


def _highest(values: np.ndarray, k: int) -> np.ndarray:
    """Positions of the k highest; among equals the earlier ones."""
    if len(values) <= k:
        return np.arange(len(values))
    worst = np.partition(values, len(values) - k)[len(values) - k]
    above = np.flatnonzero(values > worst)
    return np.concatenate([above, np.flatnonzero(values == worst)[: k - len(above)]])
