"""The most similar pairs of a corpus, and the corpus without near duplicates, by `training.search`.

Two sentences are the same text if they have the same words, regardless of case, whitespace and punctuation. Such pairs
have a cosine near 1 and would crowd out the interesting ones, so only the first sentence of each text is compared.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.files.writers import Column, save_table, with_file_columns
from sbert_app.services.store.cache import DiskCache, digest
from training.errors import InputError

MAX_PAIRS = 10_000
BLOCK = 1_024
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class SimilarPairs:
    """The most similar pairs of a corpus.

    Attributes:
        pairs: positions in the corpus and cosine, best first.
        compared: the sentences that were compared with each other.
        same_text: the sentences that were left out because the same text came before.
        seconds: the time without encoding.
    """

    pairs: list[tuple[int, int, float]]
    compared: int
    same_text: int
    seconds: float

    @property
    def combinations(self) -> int:
        return self.compared * (self.compared - 1) // 2


@dataclass(frozen=True)
class NearDuplicates:
    """The sentences of a corpus that nearly duplicate an earlier one.

    ``original`` is the position of the earlier one, or the sentence's own, int64 (N,).
    """

    original: np.ndarray
    threshold: float
    seconds: float

    @property
    def originals(self) -> np.ndarray:
        """Positions of the sentences without an earlier near duplicate."""
        return np.flatnonzero(self.original == np.arange(len(self.original)))


def similar_pairs(
    embedded: EmbeddedCorpus, k: int, threshold: float = -1.0, hide_same: bool = True, watch: Watch = UNWATCHED
) -> SimilarPairs:
    """The k most similar pairs of a corpus with a cosine of ``threshold`` or more.

    Raises InputError if k is less than 1.
    """
    # It imports torch, which takes seconds.
    from training.search import most_similar_pairs

    started = time.perf_counter()
    rows = first_of_each_text(embedded.corpus.sentences) if hide_same else np.arange(len(embedded))
    vectors = embedded.vectors if len(rows) == len(embedded) else embedded.vectors[rows]
    best = most_similar_pairs(vectors, k, threshold, watch.on_progress, watch.should_stop)
    pairs = [(int(rows[i]), int(rows[j]), cosine) for i, j, cosine in best]
    return SimilarPairs(pairs, len(rows), len(embedded) - len(rows), time.perf_counter() - started)


def find_near_duplicates(embedded: EmbeddedCorpus, threshold: float, watch: Watch = UNWATCHED) -> NearDuplicates:
    """Find the sentences with a cosine of ``threshold`` or more with an earlier sentence that is no duplicate."""
    from training.clustering import near_duplicates

    started = time.perf_counter()
    original = near_duplicates(embedded.vectors, threshold, watch.on_progress, watch.should_stop)
    return NearDuplicates(original, threshold, time.perf_counter() - started)


@dataclass(frozen=True, eq=False)
class Nearest:
    """The nearest sentence in another corpus for each sentence: cosines (N,) and rows, int64 (N,)."""

    cosines: np.ndarray
    rows: np.ndarray

    def matches(self, threshold: float) -> np.ndarray:
        """The rows that both corpora share, with a cosine of ``threshold`` or more, the most similar first."""
        order = np.argsort(-self.cosines, kind="stable")
        return order[self.cosines[order] >= threshold]


def nearest_in(embedded: EmbeddedCorpus, other: EmbeddedCorpus, cache: DiskCache, watch: Watch = UNWATCHED) -> Nearest:
    """Find each sentence of a corpus in another one under the same model, or read the result from the cache.

    Raises InputError if the vectors have different dimensions.
    """
    if embedded.vectors.shape[1] != other.vectors.shape[1]:
        raise InputError(f"{embedded.corpus.name} and {other.corpus.name} have vectors of different dimensions.")

    def compute() -> np.ndarray:
        nearest = np.empty((2, len(embedded)))
        for start in range(0, len(embedded), BLOCK):
            watch.check()
            part = slice(start, start + BLOCK)
            cosines, rows = other.index.nearest(np.asarray(embedded.vectors[part]), 1)
            nearest[:, part] = cosines[:, 0], rows[:, 0]
            watch.report(start, None, len(embedded))
        return nearest

    cosines, rows = cache.get_or_compute(digest(["nearest in another", embedded.key, other.key]), compute)
    return Nearest(cosines, rows.astype(np.int64))


def first_of_each_text(sentences: Sequence[str]) -> np.ndarray:
    """Positions of the first sentence of each text: int64, ascending."""
    first: dict[str, int] = {}
    for position, sentence in enumerate(sentences):
        first.setdefault(normalize_text(sentence), position)
    return np.fromiter(first.values(), dtype=np.int64, count=len(first))


def normalize_text(sentence: str) -> str:
    """The words of a sentence in lower case, which are equal for the same text."""
    return " ".join(WORD.findall(sentence.casefold())) or sentence


def save_pairs(similar: SimilarPairs, corpus: Corpus, folder: Path) -> Path:
    """Write a CSV file of the pairs with row numbers from 1. Raises InputError if it cannot be written."""
    columns: dict[str, Column] = {
        "cosine": np.array([cosine for _, _, cosine in similar.pairs]),
        "row1": [i + 1 for i, _, _ in similar.pairs],
        "row2": [j + 1 for _, j, _ in similar.pairs],
        "sentence1": [corpus.sentences[i] for i, _, _ in similar.pairs],
        "sentence2": [corpus.sentences[j] for _, j, _ in similar.pairs],
    }
    return save_table(folder / "similar-pairs.csv", columns)


def save_rows(corpus: Corpus, rows: np.ndarray, folder: Path, name: str, **columns: Any) -> Path:
    """Write a CSV file of sentences with ``columns`` and those of the corpus. InputError if it cannot be written."""
    selected = corpus.select(rows.tolist())
    return save_table(folder / name, with_file_columns({**columns, "sentence": selected.sentences}, selected.columns))
