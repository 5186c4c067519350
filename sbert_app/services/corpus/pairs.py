"""The most similar pairs among N sentences, exactly: the paper's 65 hours of BERT, in a fraction of a second.

For vectors of length 1 the cosines of all pairs are one matrix product (section 1 of the paper). It is computed in
blocks of the upper triangle, so that memory stays flat: 10,000 sentences are 50 million cosines, 100,000 are five
billion. Most of a block cannot beat the worst of the best k so far, and a rough product in bfloat16, four times as
fast where the processor has it, says so: only rows in which it comes within ``SLACK`` are computed again in float32.

SLACK makes that exact. A bfloat16 is within u = 2⁻⁸ of the number that it rounds, relatively. So the product of
two rounded vectors of length 1 is within 2u + u² of their cosine, and its own rounding adds u(1 + u)²: together less
than 0.0118. The other 0.0038 of SLACK is more than summing up in float32 can add below 60,000 dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from training.errors import InputError, Stopped

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 1_024  # rows and columns of a block: what stays in a core's cache beside its operands
SLACK = 2**-6  # how far a rough cosine may lie from the true one

OnBlock = Callable[[int, int], None]  # (blocks done, blocks in all)
ShouldStop = Callable[[], bool]


def most_similar_pairs(
    vectors: np.ndarray,
    k: int,
    threshold: float = -1.0,
    on_progress: OnBlock | None = None,
    should_stop: ShouldStop | None = None,
) -> list[tuple[int, int, float]]:
    """The k pairs of highest cosine: (i, j, cosine) with i < j, best first; among equals by i, then j.

    Exact in float32. Where more than k pairs share the lowest cosine, those are in that are found first.

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
        raise InputError(f"{k:,} pairs were asked for; ask for at least one.")
    products = _Products(vectors)
    starts = range(0, len(vectors), BLOCK)
    blocks = [(top, left) for top in starts for left in starts if top <= left]
    cosine = np.empty(0, dtype=np.float32)
    pairs = np.empty((2, 0), dtype=np.int64)
    for done, (top, left) in enumerate(blocks, start=1):
        if should_stop is not None and should_stop():
            raise Stopped
        full = len(cosine) == k
        bound = float(cosine.min()) if full else threshold
        rows, block = products.rows_from(bound, slice(top, top + BLOCK), slice(left, left + BLOCK))
        beats = block > bound if full else block >= bound
        if top == left:
            beats &= np.arange(block.shape[1]) > rows[:, None] - top  # each pair once, nothing with itself
        found = np.flatnonzero(beats)
        if len(found):
            i, j = np.divmod(found, block.shape[1])
            cosine = np.concatenate([cosine, block.ravel()[found]])
            pairs = np.concatenate([pairs, np.stack([rows[i], j + left])], axis=1)
            kept = _highest(cosine, k)
            cosine, pairs = cosine[kept], pairs[:, kept]
        if on_progress is not None:
            on_progress(done, len(blocks))
    order = np.lexsort((pairs[1], pairs[0], -cosine))
    columns = (pairs[0, order], pairs[1, order], cosine[order])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def near_duplicates(
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
    products = _Products(vectors)
    owner = np.arange(len(vectors))
    is_kept = np.ones(len(vectors), dtype=bool)
    starts = range(0, len(vectors), BLOCK)
    for done, top in enumerate(starts, start=1):
        if should_stop is not None and should_stop():
            raise Stopped
        own = slice(top, top + BLOCK)
        for left in range(0, top, BLOCK):
            _drop_repeats(products, own, slice(left, left + BLOCK), threshold, owner, is_kept)
        _drop_within(products, own, threshold, owner, is_kept)
        if on_progress is not None:
            on_progress(done, len(starts))
    return owner


class _Products:
    """Cosines between rows of unit vectors, blocks of them, as cheaply as the processor can prove them."""

    def __init__(self, vectors: np.ndarray) -> None:
        import torch

        from training.device import has_native_bfloat16

        self.exact = torch.from_numpy(np.ascontiguousarray(vectors, dtype=np.float32))
        self.rough: Tensor | None = self.exact.bfloat16() if has_native_bfloat16("cpu") else None

    def rows_from(self, bound: float, own: slice, others: slice) -> tuple[np.ndarray, np.ndarray]:
        """The rows of ``own`` that can have a cosine of ``bound`` with ``others`` (all, where nothing is known).

        Returns their positions int64 (R,) and their cosines float32 (R, others), none above 1. A row's cosine with
        itself does not count as one.
        """
        import torch

        with torch.inference_mode():
            rows = torch.arange(own.start, min(own.stop, len(self.exact)))
            if self.rough is not None and bound > -1:
                product = self.rough[own] @ self.rough[others].T
                if own == others:
                    product.fill_diagonal_(-2)
                rows = rows[product.amax(1).float() >= bound - SLACK]
            whole = len(rows) == min(own.stop, len(self.exact)) - own.start
            cosines = (self.exact[own] if whole else self.exact[rows]) @ self.exact[others].T
            return rows.numpy(), cosines.clamp_(max=1).numpy()


def _drop_repeats(
    products: _Products, own: slice, earlier: slice, threshold: float, owner: np.ndarray, is_kept: np.ndarray
) -> None:
    """Drop those of ``own`` that repeat a kept sentence of an earlier block."""
    if not is_kept[own].any():
        return
    rows, cosines = products.rows_from(threshold, own, earlier)
    likeness = (cosines >= threshold) & is_kept[earlier] & is_kept[rows][:, None]
    repeated = likeness.any(axis=1)
    owner[rows[repeated]] = earlier.start + likeness[repeated].argmax(axis=1)
    is_kept[rows[repeated]] = False


def _drop_within(products: _Products, own: slice, threshold: float, owner: np.ndarray, is_kept: np.ndarray) -> None:
    """Drop those of ``own`` that repeat a kept sentence before them in the same block."""
    rows, cosines = products.rows_from(threshold, own, own)
    for row, likeness in zip(rows.tolist(), cosines >= threshold, strict=True):
        if is_kept[row]:
            later = row + 1 + np.flatnonzero(likeness[row + 1 - own.start :])
            later = later[is_kept[later]]
            is_kept[later] = False
            owner[later] = row


def _highest(values: np.ndarray, k: int) -> np.ndarray:
    """Positions of the k highest; among equals the earlier ones."""
    if len(values) <= k:
        return np.arange(len(values))
    worst = np.partition(values, len(values) - k)[len(values) - k]
    above = np.flatnonzero(values > worst)
    return np.concatenate([above, np.flatnonzero(values == worst)[: k - len(above)]])
