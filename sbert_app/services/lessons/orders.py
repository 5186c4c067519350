"""Lesson 6: for unit vectors, cosine, dot product and Euclidean distance give the same order.

If |u| = |v| = 1, then u·v = cos(u, v) and |u - v|² = 2 - 2 cos(u, v), which decreases as the cosine increases. Without
normalisation the dot product prefers long vectors and the distance short ones. Manhattan distance has no such
identity. Paper: section 4.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sbert_app.services.lessons.sample import EncodedCorpus, encode_corpus, encode_sample
from sbert_app.services.lessons.setup import STANDARD, Setup
from training.errors import InputError

if TYPE_CHECKING:
    from sbert_app.services.models.cache import ModelCache

SHOWN = 8
PAIRS = 200  # for ρ with the gold scores


@dataclass(frozen=True)
class Line:
    """A sentence of the corpus, and its rank under each similarity."""

    sentence: str
    length: float  # |v| before normalisation
    cosine: float
    ranks: dict[str, int]  # by similarity, from 1


@dataclass(frozen=True)
class Orders:
    """The corpus, ordered by similarity to a query in four ways."""

    lines: list[Line]  # the nearest by cosine, best first
    agreement: dict[str, float]  # Spearman between each order and the cosine's, over the whole corpus
    rho: dict[str, float]  # ×100 with gold scores
    lengths: tuple[float, float]  # shortest and longest vector of the corpus
    corpus: EncodedCorpus
    milliseconds: float  # query, four similarities, ranks


def measure(models: ModelCache, home: Path, query: str, normalised: bool, setup: Setup = STANDARD) -> Orders:
    """InputError if the query is empty, or the model or the data cannot be loaded."""
    from training.evaluation.diagnostics import unit
    from training.evaluation.metrics import SIMILARITIES, spearman

    if not query.strip():
        raise InputError("the query is empty; type a sentence to search for")
    corpus = encode_corpus(models, home, "examples", setup)
    lengths = np.linalg.norm(corpus.vectors, axis=1)
    started = time.perf_counter()
    query_vector = models.encoder(setup.model).encode([query], normalize=normalised)
    vectors = unit(corpus.vectors) if normalised else corpus.vectors
    scores = {name: of(np.broadcast_to(query_vector, vectors.shape), vectors) for name, of in SIMILARITIES.items()}
    rank_of = {name: ranks(values) for name, values in scores.items()}
    nearest = np.argsort(rank_of["cosine"])[:SHOWN]
    return Orders(
        lines=[
            Line(
                corpus.sentences[row],
                float(lengths[row]),
                float(scores["cosine"][row]),
                {name: int(values[row]) for name, values in rank_of.items()},
            )
            for row in nearest
        ],
        agreement={name: spearman(values, rank_of["cosine"]) for name, values in rank_of.items()},
        rho=_rho_with_gold(models, home, normalised, setup),
        lengths=(float(lengths.min()), float(lengths.max())),
        corpus=corpus,
        milliseconds=(time.perf_counter() - started) * 1000,
    )


def ranks(scores: np.ndarray) -> np.ndarray:
    """Ranks from 1, best first, (N,) int64. Scores are rounded to six decimals; ties keep the order of the corpus."""
    from scipy.stats import rankdata

    return rankdata(-np.round(scores.astype(np.float64), 6), method="ordinal")


@lru_cache(maxsize=4)
def _rho_with_gold(models: ModelCache, home: Path, normalised: bool, setup: Setup) -> dict[str, float]:
    from training.evaluation.diagnostics import unit
    from training.evaluation.metrics import SIMILARITIES, spearman

    sample = encode_sample(models, home, setup.model, PAIRS, setup)
    u, v = sample.by_pooling["mean"]
    u, v = (unit(u), unit(v)) if normalised else (u, v)
    return {name: 100 * spearman(of(u, v), sample.gold) for name, of in SIMILARITIES.items()}
