"""The most similar pairs among N sentences, exactly, and the sentences without their near duplicates.

For unit vectors the cosines of all pairs are one matrix product (section 1 of the paper). It is computed in blocks of
the upper triangle, so memory is bounded: 10,000 sentences have 50 million cosines, 100,000 have five billion. Most
rows of a block cannot improve on the k best pairs so far. A bfloat16 product, four times as fast on processors that
support it, identifies the rows that may; only those are recomputed in float32.

TOLERANCE makes that exact. Rounding to bfloat16 has a relative error of at most u = 2⁻⁸. The product of two rounded
unit vectors is therefore within 2u + u² of their cosine, and rounding the product adds u(1 + u)²: together less than
0.0118. The remaining 0.0038 of TOLERANCE exceeds the error of summing in float32 below 60,000 dimensions.

Two sentences are the same text if they have the same words, regardless of case, whitespace and punctuation. Such pairs
have a cosine near 1 and would crowd out the interesting ones, so only the first sentence of each text is compared.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.files.writers import save_csv, with_file_columns
from training.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor


MAX_PAIRS = 10_000
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class SimilarPairs:
    """The most similar pairs of a corpus."""

    pairs: list[tuple[int, int, float]]  # positions in the corpus and cosine, best first
    compared: int  # sentences, each with every other
    same_text: int  # sentences left out because the same text came before
    seconds: float  # without encoding

    @property
    def combinations(self) -> int:
        """The number of pairs that were compared."""
        return self.compared * (self.compared - 1) // 2


@dataclass(frozen=True)
class NearDuplicates:
    """The sentences of a corpus that nearly duplicate an earlier one."""

    original: np.ndarray  # (N,) int64: the position of the earlier one, or the sentence's own
    threshold: float
    seconds: float

    @property
    def kept(self) -> np.ndarray:
        """Positions of the sentences without an earlier near duplicate."""
        return np.flatnonzero(self.original == np.arange(len(self.original)))


def similar_pairs(
    embedded: EmbeddedCorpus, k: int, threshold: float = -1.0, hide_same: bool = True, watch: Watch = UNWATCHED
) -> SimilarPairs:
    """The k most similar pairs of a corpus with a cosine of ``threshold`` or more.

    Raises InputError if k is less than 1.
    """
    started = time.perf_counter()
    rows = first_of_each_text(embedded.corpus.sentences) if hide_same else np.arange(len(embedded))
    vectors = embedded.vectors if len(rows) == len(embedded) else embedded.vectors[rows]
    best = most_similar_pairs(vectors, k, threshold, watch)
    pairs = [(int(rows[i]), int(rows[j]), cosine) for i, j, cosine in best]
    return SimilarPairs(pairs, len(rows), len(embedded) - len(rows), time.perf_counter() - started)


def find_near_duplicates(embedded: EmbeddedCorpus, threshold: float, watch: Watch = UNWATCHED) -> NearDuplicates:
    """Find the sentences with a cosine of ``threshold`` or more with an earlier sentence that is kept."""
    started = time.perf_counter()
    original = near_duplicates(embedded.vectors, threshold, watch)
    return NearDuplicates(original, threshold, time.perf_counter() - started)


def first_of_each_text(sentences: Sequence[str]) -> np.ndarray:
    """Positions of the first sentence of each text: int64, ascending."""
    seen: dict[str, int] = {}
    for position, sentence in enumerate(sentences):
        seen.setdefault(normalize_text(sentence), position)
    return np.fromiter(seen.values(), dtype=np.int64, count=len(seen))


def normalize_text(sentence: str) -> str:
    """The words of a sentence in lower case: equal for sentences that are the same text."""
    return " ".join(WORD.findall(sentence.casefold())) or sentence


def save_pairs(similar: SimilarPairs, corpus: Corpus, folder: Path) -> Path:
    """A CSV file of the pairs: cosine, row numbers from 1, sentences. Raises InputError if it cannot be written."""
    return save_csv(
        folder,
        "similar-pairs.csv",
        {
            "cosine": np.array([cosine for _, _, cosine in similar.pairs]),
            "row1": [i + 1 for i, _, _ in similar.pairs],
            "row2": [j + 1 for _, j, _ in similar.pairs],
            "sentence1": [corpus.sentences[i] for i, _, _ in similar.pairs],
            "sentence2": [corpus.sentences[j] for _, j, _ in similar.pairs],
        },
    )


def save_without_near_duplicates(duplicates: NearDuplicates, corpus: Corpus, folder: Path) -> Path:
    """A CSV file of the kept sentences with their other columns. Raises InputError if it cannot be written."""
    kept = corpus.select(duplicates.kept.tolist())
    return save_csv(folder, "without-repeats.csv", with_file_columns({"sentence": kept.sentences}, kept.columns))


BLOCK = 1_024  # rows and columns of a block: fits in a core's cache together with its operands
SAMPLED_BLOCKS = 4  # rows of blocks whose time tells that of all
TOLERANCE = 2**-6  # bound on the error of a bfloat16 cosine


def most_similar_pairs(
    vectors: np.ndarray, k: int, threshold: float = -1.0, watch: Watch = UNWATCHED
) -> list[tuple[int, int, float]]:
    """The k pairs of highest cosine: (i, j, cosine) with i < j, best first; among equals by i, then j.

    Exact for unit vectors, float32 (N, D), and a cosine of ``threshold`` or more. If more than k pairs share the lowest
    cosine, the ones found first are returned. Raises InputError if k is less than 1.
    """
    if k < 1:
        raise InputError(f"the number of pairs is {k:,}; it must be at least 1.")
    products = _Products(vectors)
    blocks = _triangle(len(vectors))
    cosine = np.empty(0, dtype=np.float32)
    pairs = np.empty((2, 0), dtype=np.int64)
    for done, (rows_of, columns) in enumerate(blocks, start=1):
        watch.check()
        full = len(cosine) == k
        bound = float(cosine.min()) if full else threshold
        rows, block = products.rows_from(bound, rows_of, columns)
        is_better = block > bound if full else block >= bound
        if rows_of == columns:  # each pair once, no sentence with itself
            is_better &= np.arange(block.shape[1]) > rows[:, None] - columns.start
        better = np.flatnonzero(is_better)
        if len(better):
            i, j = np.divmod(better, block.shape[1])
            cosine = np.concatenate([cosine, block.ravel()[better]])
            pairs = np.concatenate([pairs, np.stack([rows[i], j + columns.start])], axis=1)
            kept = _highest(cosine, k)
            cosine, pairs = cosine[kept], pairs[:, kept]
        watch.report(done, None, len(blocks))
    order = np.lexsort((pairs[1], pairs[0], -cosine))
    best = (pairs[0, order], pairs[1, order], cosine[order])
    return list(zip(*(column.tolist() for column in best), strict=True))


def estimate_seconds(vectors: np.ndarray) -> float:
    """About how long comparing each vector with each takes on this machine, from the time of a few blocks."""
    n = min(len(vectors), SAMPLED_BLOCKS * BLOCK)
    sample = np.array(vectors[:n])
    started = time.perf_counter()
    products = _Products(sample)
    for block, columns in (blocks := _triangle(n)):
        products.rows_from(1.0, block, columns)
    count = -(-len(vectors) // BLOCK)
    return (time.perf_counter() - started) / max(len(blocks), 1) * count * (count + 1) / 2


def _triangle(n: int) -> list[tuple[slice, slice]]:
    """The blocks (rows, columns) of the upper triangle of n cosines by n."""
    parts = [slice(start, start + BLOCK) for start in range(0, n, BLOCK)]
    return [(block, columns) for i, block in enumerate(parts) for columns in parts[i:]]


def near_duplicates(vectors: np.ndarray, threshold: float, watch: Watch = UNWATCHED) -> np.ndarray:
    """The earlier sentence that each one nearly duplicates: int64 (N,), its position, or the sentence's own.

    In order, a sentence is kept unless it has a cosine of at least ``threshold`` with a kept one. So no two kept
    sentences are that similar, and each dropped sentence is similar to a kept one. ``vectors``: float32 (N, D), unit
    length.
    """
    products = _Products(vectors)
    original = np.arange(len(vectors))
    is_kept = np.ones(len(vectors), dtype=bool)
    starts = range(0, len(vectors), BLOCK)
    for done, top in enumerate(starts, start=1):
        watch.check()
        block = slice(top, top + BLOCK)
        for left in range(0, top, BLOCK):
            _drop_duplicates(products, block, slice(left, left + BLOCK), threshold, original, is_kept)
        _drop_within(products, block, threshold, original, is_kept)
        watch.report(done, None, len(starts))
    return original


class _Products:
    """Blocks of the matrix of cosines; rows that cannot reach a bound are skipped after a bfloat16 product."""

    def __init__(self, vectors: np.ndarray) -> None:
        import torch

        from training.device import has_native_bfloat16

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a read-only memory map: nothing is written to it
            self.exact = torch.from_numpy(np.ascontiguousarray(vectors, dtype=np.float32))
        self.bfloat16: Tensor | None = self.exact.bfloat16() if has_native_bfloat16("cpu") else None

    def rows_from(self, bound: float, block: slice, columns: slice) -> tuple[np.ndarray, np.ndarray]:
        """The rows that may have a cosine of at least ``bound`` with one of ``columns``, themselves excepted.

        Returns their positions int64 (R,) and their cosines with ``columns``, float32 (R, C), at most 1.
        """
        import torch

        with torch.inference_mode():
            rows = torch.arange(block.start, min(block.stop, len(self.exact)))
            if self.bfloat16 is not None and bound > -1:
                product = self.bfloat16[block] @ self.bfloat16[columns].T
                if block == columns:
                    product.fill_diagonal_(-2)
                rows = rows[product.amax(1).float() >= bound - TOLERANCE]
            all_rows = len(rows) == min(block.stop, len(self.exact)) - block.start
            cosines = (self.exact[block] if all_rows else self.exact[rows]) @ self.exact[columns].T
            return rows.numpy(), cosines.clamp_(max=1).numpy()


def _drop_duplicates(
    products: _Products, block: slice, earlier: slice, threshold: float, original: np.ndarray, is_kept: np.ndarray
) -> None:
    """Drop the rows of ``block`` that are similar to a kept sentence of an earlier block."""
    if not is_kept[block].any():
        return
    rows, cosines = products.rows_from(threshold, block, earlier)
    similar = (cosines >= threshold) & is_kept[earlier] & is_kept[rows][:, None]
    is_duplicate = similar.any(axis=1)
    original[rows[is_duplicate]] = earlier.start + similar[is_duplicate].argmax(axis=1)
    is_kept[rows[is_duplicate]] = False


def _drop_within(
    products: _Products, block: slice, threshold: float, original: np.ndarray, is_kept: np.ndarray
) -> None:
    """Drop the rows of ``block`` that are similar to a kept sentence before them in the same block."""
    rows, cosines = products.rows_from(threshold, block, block)
    for row, similar in zip(rows.tolist(), cosines >= threshold, strict=True):
        if is_kept[row]:
            later = row + 1 + np.flatnonzero(similar[row + 1 - block.start :])
            later = later[is_kept[later]]
            is_kept[later] = False
            original[later] = row


def _highest(values: np.ndarray, k: int) -> np.ndarray:
    """Positions of the k highest values; of equal values the first."""
    if len(values) <= k:
        return np.arange(len(values))
    lowest = np.partition(values, len(values) - k)[len(values) - k]
    above = np.flatnonzero(values > lowest)
    return np.concatenate([above, np.flatnonzero(values == lowest)[: k - len(above)]])
