"""Lesson 4: what a collapse looks like, and which metrics detect it.

Unit vectors u are moved towards their mean direction m: w = (1 - t) u + t m, normalised. All cosines approach 1, but
their order hardly changes, so ρ, which depends on the order only, stays. `training.evaluation.diagnostics` detects it.
The paper has no such metrics; uniformity is by Wang & Isola (2020), effective rank by Roy & Vetterli (2007).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sbert_app.services.lessons.sample import EncodedSample, encode_sample
from sbert_app.services.lessons.setup import STANDARD, Setup
from sbert_app.services.lessons.without_tuning import RANDOM_WEIGHTS

if TYPE_CHECKING:
    from sbert_app.services.models.cache import ModelCache

PAIRS = 200
SIMILAR_FROM = 4.0  # gold score
SOURCES = ("trained", "random")  # the setup's model with mean pooling; random weights with CLS


@dataclass(frozen=True)
class LessonVectors:
    """The distribution of the vectors of 200 pairs."""

    rho: float  # Spearman ×100 between cosine and gold score
    random_cosine: float
    random_std: float
    uniformity: float
    effective_rank: float
    dimension: int
    unrelated: np.ndarray  # cosines of sentences from different pairs
    similar: np.ndarray  # cosines of pairs with a gold score of 4 or more
    vectors: EncodedSample

    @property
    def collapsed(self) -> bool:
        """Whether the app would flag a run with these vectors."""
        from training.evaluation.diagnostics import COLLAPSED_FROM

        return self.random_cosine > COLLAPSED_FROM


def measure(models: ModelCache, home: Path, source: str, pull: float, setup: Setup = STANDARD) -> LessonVectors:
    """The vectors of ``source`` (one of `SOURCES`), moved by ``pull`` 0..1.

    InputError if the model or the data cannot be loaded.
    """
    from training.evaluation.diagnostics import effective_rank, random_cosines, uniformity
    from training.evaluation.metrics import cosine, spearman

    model, pooling = (RANDOM_WEIGHTS, "cls") if source == "random" else (setup.model, "mean")
    sample = encode_sample(models, home, model, PAIRS, setup)
    u, v = np.split(pulled(np.concatenate(sample.by_pooling[pooling]), pull), 2)
    cosines = cosine(u, v)
    mean, std = random_cosines(u)
    return LessonVectors(
        rho=100 * spearman(cosines, sample.gold),
        random_cosine=mean,
        random_std=std,
        uniformity=uniformity(u),
        effective_rank=effective_rank(u),
        dimension=u.shape[1],
        unrelated=(u @ u.T)[np.triu_indices(len(u), k=1)],
        similar=cosines[sample.gold >= SIMILAR_FROM],
        vectors=sample,
    )


def pulled(vectors: np.ndarray, pull: float) -> np.ndarray:
    """(N, D) -> (N, D) unit vectors, moved by ``pull`` 0..1 towards their mean direction."""
    from training.evaluation.diagnostics import unit

    directions = unit(vectors.astype(np.float64))
    mean = unit(directions.mean(axis=0, keepdims=True))
    return unit((1 - pull) * directions + pull * mean)
