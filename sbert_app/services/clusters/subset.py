"""Some sentences of a corpus, such as those that were selected on its map: how alike they are, and what they are about.

subset = describe_subset(embedded, [3, 14, 15])
subset.cosine, subset.keywords
save_subset(subset, embedded.corpus, folder) -> a CSV file
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sbert_app.services.clusters.keywords import keywords
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.corpus.export import Column, save_csv, with_file_columns

KEYWORD_SENTENCES = 20_000  # of the subset, and of the others, that keywords are counted in
SEED = 0


@dataclass(frozen=True, eq=False)
class Subset:
    """Sentences of a corpus."""

    rows: np.ndarray  # positions in the corpus, int64, ascending
    cosines: np.ndarray  # (n,) float32: the mean cosine of each with the others; NaN for a single sentence
    cosine: float | None  # the mean over all pairs; None for a single sentence
    keywords: list[str]  # that set these sentences apart from the others

    def __len__(self) -> int:
        return len(self.rows)


def describe_subset(embedded: EmbeddedCorpus, rows: Iterable[int]) -> Subset:
    """Describe the sentences at ``rows``; repeated rows count once, rows that the corpus does not have not at all."""
    chosen = np.unique(np.fromiter(rows, dtype=np.int64))
    chosen = chosen[(chosen >= 0) & (chosen < len(embedded))]
    vectors = np.asarray(embedded.vectors[chosen])
    cosine = mean_pair_cosine(vectors)
    if cosine is None:
        cosines = np.full(len(chosen), np.nan, dtype=np.float32)
    else:
        total = vectors.sum(axis=0, dtype=np.float64)
        own = np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64)
        cosines = ((vectors @ total - own) / (len(chosen) - 1)).astype(np.float32)
    return Subset(chosen, cosines, cosine, _keywords(embedded.corpus, chosen))


def mean_pair_cosine(vectors: np.ndarray) -> float | None:
    """The mean cosine over all pairs of unit vectors (n, D); None if there is no pair.

    The squared norm of the sum is the sum of the cosines of all pairs, twice, and of each vector with itself.
    """
    n = len(vectors)
    if n < 2:
        return None
    total = vectors.sum(axis=0, dtype=np.float64)
    return float(total @ total - n) / (n * (n - 1))


def containing(corpus: Corpus, text: str) -> np.ndarray:
    """The rows whose sentence contains a text, in upper or lower case: int64, ascending."""
    wanted = " ".join(text.casefold().split())
    rows = (row for row, sentence in enumerate(corpus.sentences) if wanted in sentence.casefold())
    return np.fromiter(rows if wanted else (), dtype=np.int64)


def save_subset(subset: Subset, corpus: Corpus, folder: Path) -> Path:
    """A CSV file: row numbers from 1, sentences, mean cosines with the others, and the other columns of the corpus.

    Raises:
        InputError: the file cannot be written.
    """
    rows = subset.rows.tolist()
    columns: dict[str, Column] = {
        "row": [row + 1 for row in rows],
        "sentence": [corpus.sentences[row] for row in rows],
        "mean_cosine": subset.cosines,
    }
    own = {name: [values[row] for row in rows] for name, values in corpus.columns.items()}
    return save_csv(folder, "selected.csv", with_file_columns(columns, own))


def _keywords(corpus: Corpus, rows: np.ndarray) -> list[str]:
    """The words that set these sentences apart; of very many, a sample is counted."""
    if not len(rows):
        return []
    random = np.random.default_rng(SEED)
    others = np.setdiff1d(np.arange(len(corpus)), rows, assume_unique=True)
    parts = [
        part if len(part) <= KEYWORD_SENTENCES else np.sort(random.choice(part, KEYWORD_SENTENCES, replace=False))
        for part in (rows, others)
    ]
    sentences = [corpus.sentences[row] for part in parts for row in part.tolist()]
    return keywords(sentences, np.repeat([1, 0], list(map(len, parts))))[1]
