"""The most similar pairs of a corpus, as its reader wants them: without the same text twice, and the corpus without
its repetitions.

Two sentences are the same text if their words are: upper and lower case, spaces and punctuation aside. Such pairs
have a cosine near 1 and would hide what is worth reading, so they can be left out: of each text the first counts.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sbert_app.services.corpus.export import save_csv, with_others
from sbert_app.services.corpus.pairs import OnBlock, ShouldStop, most_similar_pairs, near_duplicates

if TYPE_CHECKING:
    from sbert_app.services.corpus.corpus import Corpus
    from sbert_app.services.corpus.embedded import EmbeddedCorpus

MOST_PAIRS = 10_000
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class SimilarPairs:
    """What was found."""

    pairs: list[tuple[int, int, float]]  # positions in the corpus and their cosine, best first
    compared: int  # sentences, each with each
    same_text: int  # sentences that were left out because their text came before
    seconds: float  # for the pairs, without encoding

    @property
    def combinations(self) -> int:
        """How many pairs there are."""
        return self.compared * (self.compared - 1) // 2


@dataclass(frozen=True)
class NearDuplicates:
    """Which sentences of a corpus repeat an earlier one."""

    owner: np.ndarray  # (N,) int64: the position of the earlier one, or its own
    threshold: float
    seconds: float

    @property
    def kept(self) -> np.ndarray:
        """Positions of the sentences that repeat none."""
        return np.flatnonzero(self.owner == np.arange(len(self.owner)))


def similar_pairs(
    space: EmbeddedCorpus,
    k: int,
    threshold: float = -1.0,
    hide_same: bool = True,
    on_progress: OnBlock | None = None,
    should_stop: ShouldStop | None = None,
) -> SimilarPairs:
    """The k most similar pairs of a corpus with a cosine of ``threshold`` or more.

    Raises:
        InputError: k is less than 1.
        Stopped: ``should_stop`` said yes.
    """
    started = time.perf_counter()
    rows = first_of_each_text(space.corpus.sentences) if hide_same else np.arange(len(space))
    vectors = space.vectors if len(rows) == len(space) else space.vectors[rows]
    found = most_similar_pairs(vectors, k, threshold, on_progress, should_stop)
    pairs = [(int(rows[i]), int(rows[j]), cosine) for i, j, cosine in found]
    return SimilarPairs(pairs, len(rows), len(space) - len(rows), time.perf_counter() - started)


def find_near_duplicates(
    space: EmbeddedCorpus, threshold: float, on_progress: OnBlock | None = None, should_stop: ShouldStop | None = None
) -> NearDuplicates:
    """Which sentences have a cosine of ``threshold`` or more with an earlier one that is kept.

    Raises:
        Stopped: ``should_stop`` said yes.
    """
    started = time.perf_counter()
    owner = near_duplicates(space.vectors, threshold, on_progress, should_stop)
    return NearDuplicates(owner, threshold, time.perf_counter() - started)


def first_of_each_text(sentences: Sequence[str]) -> np.ndarray:
    """Positions, int64 and rising, of the sentences whose words have not come before."""
    seen: dict[str, int] = {}
    for position, sentence in enumerate(sentences):
        seen.setdefault(same_words(sentence), position)
    return np.fromiter(seen.values(), dtype=np.int64, count=len(seen))


def same_words(sentence: str) -> str:
    """What two sentences share that differ in case, spaces and punctuation alone."""
    return " ".join(WORD.findall(sentence.casefold())) or sentence


def save_pairs(found: SimilarPairs, corpus: Corpus, folder: Path) -> Path:
    """A CSV file of the pairs: cosine, both rows (from 1) and both sentences. InputError if it cannot be written."""
    return save_csv(
        folder,
        "similar-pairs.csv",
        {
            "cosine": np.array([cosine for _, _, cosine in found.pairs]),
            "row1": [i + 1 for i, _, _ in found.pairs],
            "row2": [j + 1 for _, j, _ in found.pairs],
            "sentence1": [corpus.sentences[i] for i, _, _ in found.pairs],
            "sentence2": [corpus.sentences[j] for _, j, _ in found.pairs],
        },
    )


def save_without_near_duplicates(found: NearDuplicates, corpus: Corpus, folder: Path) -> Path:
    """A CSV file of the sentences that are kept, with their other columns. InputError if it cannot be written."""
    kept = found.kept.tolist()
    others = {name: [values[at] for at in kept] for name, values in corpus.columns.items()}
    own = {"sentence": [corpus.sentences[at] for at in kept]}
    return save_csv(folder, "without-repeats.csv", with_others(own, others))
