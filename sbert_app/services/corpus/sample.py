"""A random sample of a large corpus, as a corpus of its own: what is too slow for all sentences is done for some."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sbert_app.services.cache import digest
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus

SEED = 0


class Sample(NamedTuple):
    """Some sentences of a corpus."""

    embedded: EmbeddedCorpus
    rows: np.ndarray  # int64 (n,), ascending: their positions in the corpus


def sample_rows(count: int, size: int) -> np.ndarray:
    """``size`` of ``count`` rows, always the same ones: int64, ascending."""
    if count <= size:
        return np.arange(count, dtype=np.int64)
    return np.sort(np.random.default_rng(SEED).choice(count, size, replace=False)).astype(np.int64)


def sample_of(embedded: EmbeddedCorpus, size: int) -> Sample:
    """At most ``size`` sentences of a corpus with their vectors, in memory; a smaller corpus as it is."""
    rows = sample_rows(len(embedded), size)
    if len(rows) == len(embedded):
        return Sample(embedded, rows)
    corpus = embedded.corpus
    at = rows.tolist()
    columns = {name: [values[row] for row in at] for name, values in corpus.columns.items()}
    sampled = Corpus(corpus.name, [corpus.sentences[row] for row in at], columns)
    key = digest([embedded.key, f"sample {size} {SEED}"])
    vectors = np.array(embedded.vectors[rows])
    return Sample(EmbeddedCorpus(sampled, vectors, embedded.model, embedded.pooling, key, 0.0), rows)
