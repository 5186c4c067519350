"""Sentences that stand out of a corpus: hubs, which are near to too many others, and outliers, which are near to none.

A sentence is a hub if it is among the ten nearest of far more sentences than is usual (Radovanović et al. 2010): a
search finds it whatever the query is. It is an outlier if even its own ten nearest are far from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.corpus.neighbours import neighbours
from sbert_app.services.store.cache import DiskCache, digest
from training.errors import InputError

NEAREST = 10
DEVIATIONS = 3.0  # above the mean, from which on a sentence is a hub
FENCE = 1.5  # interquartile ranges below the first quartile (Tukey), from which on it is an outlier


@dataclass(frozen=True, eq=False)
class Unusual:
    found_by: np.ndarray  # (N,): of how many sentences each is among the k nearest
    closeness: np.ndarray  # (N,): its mean cosine with its own k nearest
    k: int

    @property
    def hubs(self) -> np.ndarray:
        """Rows, those first that are found by the most."""
        most = self.found_by.mean() + DEVIATIONS * self.found_by.std()
        order = np.argsort(-self.found_by, kind="stable")
        return order[self.found_by[order] > most]

    @property
    def outliers(self) -> np.ndarray:
        """Rows, the remotest first."""
        low, high = np.quantile(self.closeness, (0.25, 0.75))
        order = np.argsort(self.closeness, kind="stable")
        return order[self.closeness[order] < low - FENCE * (high - low)]


def find_unusual(embedded: EmbeddedCorpus, cache: DiskCache, watch: Watch = UNWATCHED) -> Unusual:
    """The neighbours of all sentences, counted. InputError if there are too few sentences."""
    k = min(NEAREST, len(embedded) - 1)
    if k < 2:
        raise InputError("hubs and outliers need at least 3 sentences.")

    def compute() -> np.ndarray:
        rows, distances = neighbours(np.asarray(embedded.vectors), k + 1, watch)
        return np.stack([np.bincount(rows[:, 1:].ravel(), minlength=len(rows)), 1 - distances[:, 1:].mean(axis=1)])

    found_by, closeness = cache.get_or_compute(digest(["hubs and outliers", embedded.key, str(k)]), compute)
    return Unusual(found_by, closeness, k)
