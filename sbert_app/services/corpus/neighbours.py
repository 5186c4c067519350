"""The nearest neighbours of every sentence of a corpus, and the hubs and outliers among the sentences.

A hub is among the ten nearest neighbours of far more sentences than usual (Radovanović et al.
2010), so every search finds it. An outlier is far even from its own ten nearest neighbours.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.store.cache import DiskCache, digest
from training.errors import InputError

# The number of rows of a block.
ROWS = 4_096


def neighbours(
    vectors: np.ndarray, k: int, watch: Watch = UNWATCHED
) -> tuple[np.ndarray, np.ndarray]:
    """The k ≤ N nearest neighbours of each unit vector of float32 (N, D), the vector itself first.

    Returns their rows, int32 (N, k), and cosine distances, float32 (N, k).
    """
    # The import of torch takes seconds.
    from training.search import neighbour_index

    n = len(vectors)
    index = neighbour_index(vectors, queries=n)
    rows = np.empty((n, k), dtype=np.int32)
    distances = np.empty((n, k), dtype=np.float32)
    for part, cosines, nearest in searched(index, vectors, k, watch):
        queries = np.arange(part.start, part.stop)[:, None]  # (Q, 1)
        # Among many duplicates a vector may not find itself, so it replaces the last neighbour.
        lacks_itself = ~(nearest == queries).any(axis=1)
        nearest[lacks_itself, -1] = queries[lacks_itself, 0]
        # A cosine above 1 puts a vector before its duplicates. Its distance is clipped to 0 below.
        cosines[nearest == queries] = 2.0
        # The index returns the row −1 where the cells that it probed hold fewer than k vectors. The
        # vector itself, at the largest distance, takes this place.
        cosines[nearest < 0] = -1.0
        nearest = np.where(nearest < 0, queries, nearest)
        order = np.argsort(-cosines, axis=1, kind="stable")
        rows[queries[:, 0]] = np.take_along_axis(nearest, order, axis=1)
        distances[queries[:, 0]] = np.clip(1 - np.take_along_axis(cosines, order, axis=1), 0, 2)
    return rows, distances


def searched(
    index: Any, vectors: np.ndarray, k: int, watch: Watch
) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Searches the vectors (N, D) in the index, block by block.

    Yields the rows of a block, and the cosines and rows of its neighbours, (Q, k) each. A row is −1
    where the index found too few neighbours.
    """
    for start in range(0, len(vectors), ROWS):
        watch.check()
        rows = slice(start, min(start + ROWS, len(vectors)))
        cosines, nearest = index.search(np.ascontiguousarray(vectors[rows], dtype=np.float32), k)
        yield rows, cosines, nearest
        # None keeps the description of the stage.
        watch.report(rows.stop, None, len(vectors))


# The number of neighbours by which hubs and outliers are found.
NEAREST = 10
# A hub is found by more sentences than the mean plus this number of standard deviations.
DEVIATIONS = 3.0
# An outlier is less close than the first quartile minus this number of interquartile ranges
# (Tukey's fence).
FENCE = 1.5


@dataclass(frozen=True, eq=False)
class Unusual:
    """The hubs and outliers of a corpus.

    Attributes:
        found_by: the number of sentences that have each sentence among their k nearest, (N,), as
            floats, as the cache stores them in one array with ``closeness``.
        closeness: the mean cosine of each sentence with its k nearest, (N,).
    """

    found_by: np.ndarray
    closeness: np.ndarray
    k: int

    @property
    def hubs(self) -> np.ndarray:
        """Rows of the hubs, the hub that is found by the most sentences first."""
        threshold = self.found_by.mean() + DEVIATIONS * self.found_by.std()
        order = np.argsort(-self.found_by, kind="stable")
        return order[self.found_by[order] > threshold]

    @property
    def remotest(self) -> np.ndarray:
        """All rows, the remotest first."""
        return np.argsort(self.closeness, kind="stable")

    @property
    def outliers(self) -> np.ndarray:
        """Rows of the outliers, the remotest first."""
        low, high = np.quantile(self.closeness, (0.25, 0.75))
        fence = low - FENCE * (high - low)
        # ``remotest`` has all rows, the remotest first, so it begins with the outliers.
        return self.remotest[: np.count_nonzero(self.closeness < fence)]


def find_unusual(embedded: EmbeddedCorpus, cache: DiskCache, watch: Watch = UNWATCHED) -> Unusual:
    """Finds the hubs and outliers of a corpus, or reads them from the cache. InputError below three sentences."""
    k = min(NEAREST, len(embedded) - 1)
    if k < 2:
        raise InputError("hubs and outliers need at least 3 sentences.")

    def compute() -> np.ndarray:
        rows, distances = neighbours(np.asarray(embedded.vectors), k + 1, watch)
        # Each sentence is its own first neighbour, and takes the places of missing ones.
        others = rows[:, 1:]
        is_other = others != np.arange(len(rows))[:, None]
        found_by = np.bincount(others[is_other], minlength=len(rows))
        closeness = 1 - distances[:, 1:].mean(axis=1)
        # The cache stores one array, so the counts become floats.
        return np.stack([found_by, closeness])

    key = digest(["hubs and outliers", embedded.key, str(k)])
    found_by, closeness = cache.get_or_compute(key, compute)
    return Unusual(found_by, closeness, k)
