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

import numpy as np

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.files.writers import save_csv, with_file_columns

MAX_PAIRS = 10_000
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class SimilarPairs:
    pairs: list[tuple[int, int, float]]  # positions in the corpus and cosine, best first
    compared: int  # sentences, each with every other
    same_text: int  # sentences left out because the same text came before
    seconds: float  # without encoding

    @property
    def combinations(self) -> int:
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
    from training.search import most_similar_pairs  # torch takes seconds to import

    started = time.perf_counter()
    rows = first_of_each_text(embedded.corpus.sentences) if hide_same else np.arange(len(embedded))
    vectors = embedded.vectors if len(rows) == len(embedded) else embedded.vectors[rows]
    best = most_similar_pairs(vectors, k, threshold, watch.on_progress, watch.should_stop)
    pairs = [(int(rows[i]), int(rows[j]), cosine) for i, j, cosine in best]
    return SimilarPairs(pairs, len(rows), len(embedded) - len(rows), time.perf_counter() - started)


def find_near_duplicates(embedded: EmbeddedCorpus, threshold: float, watch: Watch = UNWATCHED) -> NearDuplicates:
    """Find the sentences with a cosine of ``threshold`` or more with an earlier sentence that is kept."""
    from training.search import near_duplicates

    started = time.perf_counter()
    original = near_duplicates(embedded.vectors, threshold, watch.on_progress, watch.should_stop)
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
