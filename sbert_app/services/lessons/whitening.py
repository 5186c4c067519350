"""Lesson 10: vectors that share a direction (anisotropy), and ten lines that remove it (whitening).

Su, Cao, Liu & Ou 2021, arXiv 2103.15316: subtract the mean of all sentence vectors and multiply by W = U Λ^(-1/2) of
their covariance U Λ Uᵀ; its first k columns also reduce the dimension. No labels are used. Here, as in the paper's
"target" rows, the covariance is that of the sentences that are then compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sbert_app.services.lessons.collapse import SIMILAR_FROM
from sbert_app.services.lessons.sample import EncodedSample, encode_sample
from sbert_app.services.lessons.setup import STANDARD, Setup
from sbert_app.services.lessons.without_tuning import RANDOM_WEIGHTS

if TYPE_CHECKING:
    from sbert_app.services.models.cache import ModelCache

PAIRS = 500
# (model, None for the setup's; pooling)
SOURCES: dict[str, tuple[str | None, str]] = {
    "trained": (None, "mean"),
    "random": (RANDOM_WEIGHTS, "mean"),
    "random cls": (RANDOM_WEIGHTS, "cls"),
}
DIMENSIONS = (16, 32, 64, 128, 256)  # kept, in the figure, beside all and those that the reader keeps


@dataclass(frozen=True)
class Spread:
    """The distribution of one set of vectors."""

    rho: float  # Spearman ×100 between cosine and gold score
    random_cosine: float  # mean over sentences of different pairs
    effective_rank: float
    dimensions: int


@dataclass(frozen=True)
class Whitened:
    """The same vectors before and after."""

    before: Spread
    after: Spread
    rho_by_dimension: dict[int, float]  # after, for each number of dimensions kept
    unrelated: np.ndarray  # cosines after, of sentences of different pairs
    similar: np.ndarray  # cosines after, of pairs with a gold score of 4 or more
    sample: EncodedSample


def measure(models: ModelCache, home: Path, source: str, keep: int, setup: Setup = STANDARD) -> Whitened:
    """Whiten the vectors of ``source`` (a key of `SOURCES`) and keep so many dimensions, or as many as there are.

    InputError if the model or the data cannot be loaded.
    """
    from training.evaluation.diagnostics import unit
    from training.evaluation.metrics import cosine

    sample, u, v = _vectors(models, home, source, setup)
    kernel, mean = whitening(np.concatenate([u, v]))
    keep = max(1, min(keep, kernel.shape[1]))
    white_u, white_v = (u - mean) @ kernel, (v - mean) @ kernel
    gold = sample.gold
    kept_u, kept_v = white_u[:, :keep], white_v[:, :keep]
    directions = unit(kept_u)
    return Whitened(
        before=_spread(u, v, gold),
        after=_spread(kept_u, kept_v, gold),
        rho_by_dimension={
            k: _rho(white_u[:, :k], white_v[:, :k], gold)
            for k in sorted({*(k for k in DIMENSIONS if k < kernel.shape[1]), keep, kernel.shape[1]})
        },
        unrelated=(directions @ directions.T)[np.triu_indices(len(directions), k=1)],
        similar=cosine(kept_u, kept_v)[gold >= SIMILAR_FROM],
        sample=sample,
    )


def whitening(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vectors (N, D) -> the kernel (D, R) and the mean (D,); (vectors - mean) @ kernel has covariance I.

    Columns in descending order of variance. R is the rank, at most D and N - 1: along the other directions the vectors
    do not vary, and nothing can be scaled to variance 1.
    """
    mean = vectors.mean(axis=0)
    _, singular, directions = np.linalg.svd(vectors - mean, full_matrices=False)
    rank = int((singular > singular[0] * 1e-6).sum())
    return directions[:rank].T / singular[:rank] * np.sqrt(len(vectors) - 1), mean


@lru_cache(maxsize=4)
def _vectors(models: ModelCache, home: Path, source: str, setup: Setup) -> tuple[EncodedSample, np.ndarray, np.ndarray]:
    model, pooling = SOURCES[source]
    sample = encode_sample(models, home, model or setup.model, PAIRS, setup)
    u, v = (vectors.astype(np.float64) for vectors in sample.by_pooling[pooling])
    return sample, u, v


def _spread(u: np.ndarray, v: np.ndarray, gold: np.ndarray) -> Spread:
    from training.evaluation.diagnostics import effective_rank, random_cosines

    return Spread(_rho(u, v, gold), random_cosines(u)[0], effective_rank(u), u.shape[1])


def _rho(u: np.ndarray, v: np.ndarray, gold: np.ndarray) -> float:
    from training.evaluation.metrics import cosine, spearman

    return 100 * spearman(cosine(u, v), gold)
