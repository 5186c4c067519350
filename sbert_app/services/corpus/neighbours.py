"""The nearest neighbours of every sentence of a corpus, and the sentences that stand out by them.

A sentence is a hub if it is among the ten nearest of far more sentences than is usual (Radovanović et al. 2010): every
search finds it. It is an outlier if even its own ten nearest are far from it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.store.cache import DiskCache, digest
from training.errors import InputError

ROWS = 4_096


def neighbours(vectors: np.ndarray, k: int, watch: Watch = UNWATCHED) -> tuple[np.ndarray, np.ndarray]:
    """The k ≤ N nearest of each unit vector of float32 (N, D), itself first.

    Returns their rows, int32 (N, k), and cosine distances, float32 (N, k).
    """
    # It imports torch, which takes seconds.
    from training.search import neighbour_index

    n = len(vectors)
    index = neighbour_index(vectors, n)
    rows = np.empty((n, k), dtype=np.int32)
    distances = np.empty((n, k), dtype=np.float32)
    for part, cosines, nearest in searched(index, vectors, k, watch):
        queries = np.arange(part.start, part.stop)[:, None]
        # Among many duplicates a vector may not find itself.
        missing = ~(nearest == queries).any(axis=1)
        nearest[missing, -1] = queries[missing, 0]
        # A vector comes before its duplicates.
        cosines[nearest == queries] = 2.0
        # The probed cells held fewer than k vectors.
        cosines[nearest < 0] = -1.0
        nearest = np.where(nearest < 0, queries, nearest)
        order = np.argsort(-cosines, axis=1, kind="stable")
        rows[queries[:, 0]] = np.take_along_axis(nearest, order, axis=1)
        distances[queries[:, 0]] = np.clip(1 - np.take_along_axis(cosines, order, axis=1), 0, 2)
    return rows, distances


def searched(index: Any, vectors: np.ndarray, k: int, watch: Watch) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Yields the rows, cosines (Q, k) and neighbours (Q, k) of one block of the vectors (N, D) after another."""
    for start in range(0, len(vectors), ROWS):
        watch.check()
        rows = slice(start, min(start + ROWS, len(vectors)))
        yield rows, *index.search(np.ascontiguousarray(vectors[rows], dtype=np.float32), k)
        watch.report(rows.stop, None, len(vectors))


NEAREST = 10
# The standard deviations above the mean from which on a sentence is a hub.
DEVIATIONS = 3.0
# The interquartile ranges below the first quartile from which on it is an outlier (Tukey).
FENCE = 1.5


@dataclass(frozen=True, eq=False)
class Unusual:
    """The number of sentences that have each among their k nearest, and its mean cosine with its own, (N,) each."""

    found_by: np.ndarray
    closeness: np.ndarray
    k: int

    @property
    def hubs(self) -> np.ndarray:
        """Rows of the hubs, those near to the most sentences first."""
        most = self.found_by.mean() + DEVIATIONS * self.found_by.std()
        order = np.argsort(-self.found_by, kind="stable")
        return order[self.found_by[order] > most]

    @property
    def remotest(self) -> np.ndarray:
        """All rows, the remotest first."""
        return np.argsort(self.closeness, kind="stable")

    @property
    def outliers(self) -> np.ndarray:
        """Rows of the outliers, the remotest first."""
        low, high = np.quantile(self.closeness, (0.25, 0.75))
        return self.remotest[self.closeness[self.remotest] < low - FENCE * (high - low)]


def find_unusual(embedded: EmbeddedCorpus, cache: DiskCache, watch: Watch = UNWATCHED) -> Unusual:
    """Count the neighbours of all sentences. InputError if there are too few sentences."""
    k = min(NEAREST, len(embedded) - 1)
    if k < 2:
        raise InputError("hubs and outliers need at least 3 sentences.")

    def compute() -> np.ndarray:
        rows, distances = neighbours(np.asarray(embedded.vectors), k + 1, watch)
        return np.stack([np.bincount(rows[:, 1:].ravel(), minlength=len(rows)), 1 - distances[:, 1:].mean(axis=1)])

    found_by, closeness = cache.get_or_compute(digest(["hubs and outliers", embedded.key, str(k)]), compute)
    return Unusual(found_by, closeness, k)
