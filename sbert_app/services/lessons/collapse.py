"""Lesson 4: what a collapse looks like, and which figures see it.

Vectors of length 1 are pulled towards their common direction m: w = (1 - t) u + t m, scaled to length 1 again. All
cosines go to 1, but their order hardly changes; so ρ, which sees only the order, stays.
`training.evaluation.diagnostics` sees it.
The paper has no such figures; uniformity is Wang & Isola's (2020), effective rank Roy & Vetterli's (2007).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sbert_app.services.lessons.sample import Encoded, encoded
from sbert_app.services.lessons.without_tuning import RANDOM_WEIGHTS
from training.registry import DEFAULT_MODEL

if TYPE_CHECKING:
    from sbert_app.services.models.cache import ModelCache

PAIRS = 200
SIMILAR_FROM = 4.0  # gold score
SOURCES = {"trained": (DEFAULT_MODEL, "mean"), "random": (RANDOM_WEIGHTS, "cls")}  # model, pooling


@dataclass(frozen=True)
class LessonVectors:
    """How the vectors of 200 pairs lie."""

    rho: float  # Spearman ×100 of cosine and gold score
    random_cosine: float
    random_std: float
    uniformity: float
    effective_rank: float
    dimension: int
    unrelated: np.ndarray  # cosines of sentences of different pairs
    similar: np.ndarray  # cosines of pairs with gold score 4 and more
    vectors: Encoded

    @property
    def collapsed(self) -> bool:
        """Whether the app would flag a run whose vectors lie like that."""
        from training.evaluation.diagnostics import COLLAPSED_FROM

        return self.random_cosine > COLLAPSED_FROM


def measure(shelf: ModelCache, home: Path, source: str, pull: float) -> LessonVectors:
    """The space of `SOURCES` ``source`` after a pull of 0..1. InputError if model or data cannot be had."""
    from training.evaluation.diagnostics import effective_rank, random_cosines, uniformity
    from training.evaluation.metrics import cosine, spearman

    model, pooling = SOURCES[source]
    found = encoded(shelf, home, model, PAIRS)
    u, v = np.split(pulled(np.concatenate(found.by_pooling[pooling]), pull), 2)
    cosines = cosine(u, v)
    mean, std = random_cosines(u)
    return LessonVectors(
        rho=100 * spearman(cosines, found.gold),
        random_cosine=mean,
        random_std=std,
        uniformity=uniformity(u),
        effective_rank=effective_rank(u),
        dimension=u.shape[1],
        unrelated=(u @ u.T)[np.triu_indices(len(u), k=1)],
        similar=cosines[found.gold >= SIMILAR_FROM],
        vectors=found,
    )


def pulled(vectors: np.ndarray, pull: float) -> np.ndarray:
    """(N, D) -> (N, D) of length 1, moved by ``pull`` 0..1 towards the direction of their mean."""
    from training.evaluation.diagnostics import unit

    directions = unit(vectors.astype(np.float64))
    middle = unit(directions.mean(axis=0, keepdims=True))
    return unit((1 - pull) * directions + pull * middle)
