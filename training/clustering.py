"""Sentence vectors that belong together, without a number of clusters: near duplicates, and communities.

    near_duplicates(vectors, threshold=0.95)            for each vector the earlier one that it nearly repeats
    near_duplicates(vectors, 0.95, others=more)         for each vector the most similar of ``more``
    community_detection(vectors, threshold=0.75)        vectors around a centre

Near duplicates are found among a million vectors in seconds, without comparing each with each.

**Short vectors.** u and v are unit vectors, u' and v' their coordinates in the few directions in which all vectors have
most of their length, with one more: the length of what is left. By Cauchy and Schwarz u'·v' ≥ u·v, so pairs whose short
vectors have a product below the threshold t are dismissed, which a millionth survives. The others are compared exactly.

**Cells.** Short vectors lie in the cells of their nearest centres. Two with a product of t or more are at most
r = √(2 − 2t) apart. If their nearest centres a and b differ, the plane halfway between a and b separates them, and the
distance of u' from it is (u'·a − u'·b) / |a − b|. A cell has, beside its own vectors, those of other cells that are
within MARGIN · r of that plane; pairs are looked for among the own ones, and between own and such near ones. With a
margin of 1/2 none can be missed, as one of the two is within r / 2. That is rarely needed: it takes a step across the
plane at a right angle. With the smaller MARGIN a pair is missed if both are farther from the plane. Up to MIN_CELLS ·
SIZE vectors, and where cells would save little, each is compared with each, and nothing is missed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from training import parallel
from training.device import has_native_bfloat16
from training.errors import InputError
from training.progress import Progress, ShouldStop, progress_bar, steps
from training.search import TOLERANCE, as_rows, check_dimensions

# About the number of vectors of a cell.
SIZE = 1_000
MIN_CELLS, MOST_CELLS = 32, 1_024
# If vectors are near to a larger share of the cells on average, each is compared with each.
MAX_NEAR = 1 / 16
# The margin of a cell, relative to the distance of near duplicates.
MARGIN = 0.3
DIMENSIONS = 48
# The vectors for each centre, and the rounds, of k-means.
SAMPLE, ROUNDS = 32, 4
# The vectors that are compared with the centres at a time.
ROWS = 2_048
# The rows and columns of a product, which fits in a core's cache together with its operands.
TILE = 1_024
# The vectors of the first batch that is decided on; the next batches end at 4, 16 … times as many.
FIRST_BATCH = 16_384
# The bits of a position, where cell and position are one number.
BITS = 40
# Allows for the rounding of float32.
SLACK = 1e-5

# The places of rows and of columns, int64 (R,) and (C,).
Block = tuple[np.ndarray, np.ndarray]


def near_duplicates(
    vectors: np.ndarray,
    threshold: float = 0.95,
    on_progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
    others: np.ndarray | None = None,
) -> np.ndarray:
    """The earlier vector that each one nearly duplicates: int64 (N,), its position, or the vector's own.

    In order, a vector stays unless it has a cosine of at least ``threshold`` with one that stays. So no two of those
    are that similar, and every other vector is similar to one of them. Exact up to 32,000 vectors; of more, a pair
    that lies far across the border of two cells may be missed, see above.

    Args:
        vectors: float32 (N, D), unit length.
        threshold: the least cosine of near duplicates.
        others: float32 (M, D), unit length: find for each of ``vectors`` the most similar of these instead, with a
            cosine of at least ``threshold``. Returns its position, or −1 if there is none. InputError if they have
            another number of dimensions.
    """
    rows = as_rows(np.ascontiguousarray(vectors, dtype=np.float32))
    if others is not None:
        second = as_rows(np.ascontiguousarray(others, dtype=np.float32))
        return _nearest_of(rows, second, threshold, on_progress, should_stop)
    n = len(rows)
    original = np.arange(n)
    if not n:
        return original
    short = _shortened(rows, _basis(rows))
    cells = _Cells(rows, short, _choose_centres(short, threshold), threshold)
    # By place: the position of a vector that stays, n + that of an undecided one, else 2n.
    ranks = np.full(n, 2 * n)
    batches = [0, *(FIRST_BATCH << i for i in range(0, 60, 2) if FIRST_BATCH << i < n), n]
    for start, stop in steps(list(pairwise(batches)), on_progress, should_stop):
        undecided = cells.place[start:stop]
        ranks[undecided] = n + cells.position[undecided]
        while len(undecided):
            # By place: the least rank of the earlier vectors that it is similar to.
            first = np.full(n, 2 * n)
            blocks = _undecided_blocks(cells, ranks, should_stop)
            for places, ranks_before in parallel.imap(partial(_least_ranks, cells, ranks, threshold), blocks):
                np.minimum.at(first, places, ranks_before)
            ranks_before = first[undecided]
            is_kept = ranks_before == 2 * n
            ranks[undecided[is_kept]] -= n
            is_dropped = ~is_kept & (ranks[cells.place[ranks_before % n]] < n)
            original[cells.position[undecided[is_dropped]]] = ranks_before[is_dropped] % n
            ranks[undecided[is_dropped]] = 2 * n
            undecided = undecided[~is_kept & ~is_dropped]
    return original


def _undecided_blocks(cells: _Cells, ranks: np.ndarray, should_stop: ShouldStop | None) -> Iterator[Block]:
    """Blocks (rows, columns) with all pairs of an undecided vector and an earlier one that stays or is undecided."""
    n = len(cells)
    for cell in steps(range(cells.count), should_stop=should_stop):
        own, near = cells.own(cell), cells.near(cell)
        own, near = own[ranks[own] < 2 * n], near[ranks[near] < 2 * n]
        new, is_new = own[ranks[own] >= n], ranks[near] >= n
        for rows, columns in _tiles(new, own):
            # Both are in the order of their positions.
            if cells.position[columns[0]] < cells.position[rows[-1]]:
                yield rows, columns
        yield from _tiles(near[is_new], own)
        yield from _tiles(near[~is_new], new)


def _least_ranks(cells: _Cells, ranks: np.ndarray, threshold: float, block: Block) -> tuple[np.ndarray, np.ndarray]:
    """The places in a block that are similar to an earlier one, and the least rank of those earlier ones."""
    similar_places = _similar(cells, block[0], cells, block[1], threshold)
    if similar_places is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    rows, columns, cosines = similar_places
    above, left = cells.position[rows][:, None], cells.position[columns]
    is_similar, none = cosines >= threshold, 2 * len(cells)
    of_rows = np.where(is_similar & (left < above), ranks[columns], none).min(axis=1)
    of_columns = np.where(is_similar & (above < left), ranks[rows][:, None], none).min(axis=0)
    return np.concatenate([rows, columns]), np.concatenate([of_rows, of_columns])


def _nearest_of(
    vectors: Tensor, others: Tensor, threshold: float, on_progress: Progress | None, should_stop: ShouldStop | None
) -> np.ndarray:
    """`near_duplicates` of ``vectors`` among ``others``."""
    check_dimensions(vectors, others)
    nearest, highest = np.full(len(vectors), -1), np.full(len(vectors), -np.inf, np.float32)
    if not len(vectors) or not len(others):
        return nearest
    larger = max(vectors, others, key=len)
    basis = _basis(larger)
    centres = _choose_centres(_shortened(larger, basis), threshold)
    mine = _Cells(vectors, _shortened(vectors, basis), centres, threshold)
    theirs = _Cells(others, _shortened(others, basis), centres, threshold)

    def blocks() -> Iterator[Block]:
        for cell in steps(range(mine.count), on_progress, should_stop):
            yield from _tiles(np.concatenate([mine.own(cell), mine.near(cell)]), theirs.own(cell))
            yield from _tiles(mine.own(cell), theirs.near(cell))

    for similar_places in parallel.imap(lambda block: _similar(mine, block[0], theirs, block[1], threshold), blocks()):
        if similar_places is not None:
            rows, columns, cosines = similar_places
            best = cosines.argmax(axis=1)
            best, cosines = theirs.position[columns[best]], cosines.max(axis=1)
            rows = mine.position[rows]
            is_better = (cosines >= threshold) & (cosines > highest[rows])
            nearest[rows[is_better]], highest[rows[is_better]] = best[is_better], cosines[is_better]
    return nearest


def _basis(vectors: Tensor) -> Tensor:
    """The directions in which vectors (N, D) have most of their length: (D, DIMENSIONS − 1) orthonormal, or all D."""
    sample = vectors[:: 1 + len(vectors) // (SAMPLE * SIZE)]
    return torch.linalg.eigh(sample.T @ sample).eigenvectors[:, 1 - DIMENSIONS :].contiguous()


def _shortened(vectors: Tensor, basis: Tensor) -> Tensor:
    """Vectors (N, D) in the directions of a basis (D, d), and the length of what is left: (N, d + 1)."""
    short = torch.empty(len(vectors), basis.shape[1] + 1)
    for start in range(0, len(vectors), ROWS):
        part, coordinates = vectors[start : start + ROWS], short[start : start + ROWS]
        torch.mm(part, basis, out=coordinates[:, :-1])
        left = part.square().sum(dim=1) - coordinates[:, :-1].square().sum(dim=1)
        coordinates[:, -1] = left.clamp_(min=0).sqrt_()
    return short


def _choose_centres(short: Tensor, threshold: float) -> Tensor:
    """The centres (C, d) of N short vectors (N, d), by k-means; one alone, if cells save little."""
    count = min(len(short) // SIZE, MOST_CELLS)
    if count < MIN_CELLS:
        return short[:1]
    order = torch.randperm(len(short), generator=torch.Generator().manual_seed(0))
    sample = short[order[: SAMPLE * count].sort().values]
    centres = sample[torch.linspace(0, len(sample) - 1, count).long()]
    for _ in range(ROUNDS):
        nearest = (sample @ centres.T).argmax(dim=1)
        sums = torch.zeros_like(centres).index_add_(0, nearest, sample)
        centres = torch.where(sums.any(dim=1, keepdim=True), F.normalize(sums, dim=1), centres)
    near = _near(sample[:: 1 + len(sample) // ROWS], centres, _reach(centres, threshold))[1]
    return centres if near.float().mean() <= MAX_NEAR else short[:1]


def _reach(centres: Tensor, threshold: float) -> Tensor:
    """The products with centres that a vector near a cell may lack beside that with its own centre: (C, C)."""
    margin = MARGIN * math.sqrt(max(0.0, 2 - 2 * threshold) + SLACK)
    return margin * torch.cdist(centres, centres) + SLACK


def _near(short: Tensor, centres: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
    """The cell of each vector, int64 (N,), and the cells that it is near to, its own among them, bool (N, C)."""
    products = short @ centres.T
    highest, own = products.max(dim=1)
    return own, products >= highest[:, None] - reach[own]


class _Cells:
    """Unit vectors in the order of their cells; a place is a position in that order. Immutable, thread-safe."""

    def __init__(self, vectors: Tensor, short: Tensor, centres: Tensor, threshold: float) -> None:
        """``vectors``: float32 (N, D); ``short``: (N, d). ``threshold``: the least cosine of a pair that matters."""
        self.exact, self.count = vectors, len(centres)
        reach = _reach(centres, threshold)

        def assign(start: int) -> tuple[Tensor, Tensor]:
            own, near = _near(short[start : start + ROWS], centres, reach)
            row, cell = near.scatter_(1, own[:, None], False).nonzero().unbind(dim=1)
            return own, cell << BITS | row + start

        with torch.inference_mode():
            parts = parallel.imap(assign, range(0, len(vectors), ROWS))
            own, near = (torch.cat(columns) for columns in zip(*parts, strict=True))
            order = own.argsort(stable=True)
            self.short = short[order].to(torch.bfloat16 if has_native_bfloat16("cpu") else torch.float32)
        # The row of ``vectors`` at each place.
        self.position = order.numpy()
        self.place = np.empty_like(self.position)
        self.place[self.position] = np.arange(len(order))
        edges = np.arange(self.count + 1)
        self._own = np.searchsorted(own[order].numpy(), edges)
        keys = near.numpy()
        # The keys are sorted by cell.
        keys.sort()
        self._near_of = np.searchsorted(keys, edges << BITS)
        keys &= (1 << BITS) - 1
        self._near = self.place.astype(np.int32)[keys]

    def __len__(self) -> int:
        return len(self.exact)

    def own(self, cell: int) -> np.ndarray:
        """The places of a cell's own vectors, in the order of their positions."""
        return np.arange(self._own[cell], self._own[cell + 1])

    def near(self, cell: int) -> np.ndarray:
        """The places of other cells' vectors that may be near one of its own."""
        return self._near[self._near_of[cell] : self._near_of[cell + 1]]


def _tiles(rows: np.ndarray, columns: np.ndarray) -> Iterator[Block]:
    """All pairs of two lists of places, as parts of both."""
    for top in range(0, len(rows), TILE):
        for left in range(0, len(columns), TILE):
            yield rows[top : top + TILE], columns[left : left + TILE]


def _similar(
    first: _Cells, rows: np.ndarray, second: _Cells, columns: np.ndarray, threshold: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """The places that have a cosine of ``threshold`` or more with one of the other list, if there are any.

    Returns the rows (R,), the columns (C,) and their cosines, float32 (R, C). Most places are dismissed by the
    products of short vectors.
    """
    with torch.inference_mode():
        product, bound = first.short[rows] @ second.short[columns].T, threshold - TOLERANCE
        # Positive numbers are in the order of their bits, and integers are compared five times as fast.
        if product.dtype == torch.bfloat16 and bound > 0:
            product = product.view(torch.int16)
            bound = int(np.float32(bound).view(np.int32)) >> 16
        similar_rows = (product.amax(dim=1) >= bound).nonzero()[:, 0]
        if not len(similar_rows):
            return None
        similar_columns = (product[similar_rows].amax(dim=0) >= bound).nonzero()[:, 0]
        rows, columns = rows[similar_rows.numpy()], columns[similar_columns.numpy()]
        u, v = first.exact[first.position[rows]], second.exact[second.position[columns]]
        return rows, columns, (u @ v.T).numpy()


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
