"""Lesson 6: cosine, dot product and Euclidean distance order the same sentences alike, once all have length 1.

For |u| = |v| = 1: u·v = cos(u, v) and |u - v|² = 2 - 2 cos(u, v), which falls as the cosine rises. Without that, the
dot product prefers long vectors and the distance short ones. Manhattan has no such identity. Paper: section 4.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sbert_app.services.lessons.sample import EncodedCorpus, encoded, encoded_corpus
from training.errors import InputError
from training.registry import DEFAULT_MODEL

if TYPE_CHECKING:
    from sbert_app.services.models.cache import ModelCache

SHOWN = 8
PAIRS = 200  # of STSb dev, for ρ with the gold scores


@dataclass(frozen=True)
class Line:
    """A sentence of the corpus, and its place under each similarity."""

    sentence: str
    length: float  # |v| as the model gave it
    cosine: float
    ranks: dict[str, int]  # by similarity, from 1


@dataclass(frozen=True)
class Orders:
    """The corpus, ordered by likeness to a query in four ways."""

    lines: list[Line]  # the nearest by cosine, best first
    agreement: dict[str, float]  # Spearman of each order with the cosine's, over the whole corpus
    rho: dict[str, float]  # ×100 with STSb's gold scores
    lengths: tuple[float, float]  # shortest and longest vector of the corpus
    corpus: EncodedCorpus
    milliseconds: float  # query, four similarities, ranks


def measure(shelf: ModelCache, home: Path, query: str, normalised: bool) -> Orders:
    """InputError if the query is empty, or model or data cannot be had."""
    from training.evaluation.diagnostics import unit
    from training.evaluation.metrics import SIMILARITIES, spearman

    if not query.strip():
        raise InputError("the query is empty; type a sentence to search for")
    corpus = encoded_corpus(shelf, home, "examples")
    lengths = np.linalg.norm(corpus.vectors, axis=1)
    started = time.perf_counter()
    asked = shelf.encoder(DEFAULT_MODEL).encode([query], normalize=normalised)
    vectors = unit(corpus.vectors) if normalised else corpus.vectors
    scores = {name: of(np.broadcast_to(asked, vectors.shape), vectors) for name, of in SIMILARITIES.items()}
    places = {name: ranks(values) for name, values in scores.items()}
    nearest = np.argsort(places["cosine"])[:SHOWN]
    return Orders(
        lines=[
            Line(
                corpus.sentences[row],
                float(lengths[row]),
                float(scores["cosine"][row]),
                {name: int(place[row]) for name, place in places.items()},
            )
            for row in nearest
        ],
        agreement={name: spearman(place, places["cosine"]) for name, place in places.items()},
        rho=_with_people(shelf, home, normalised),
        lengths=(float(lengths.min()), float(lengths.max())),
        corpus=corpus,
        milliseconds=(time.perf_counter() - started) * 1000,
    )


def ranks(scores: np.ndarray) -> np.ndarray:
    """Places from 1, best first. Scores within 1e-6 of each other are rounding, and share the earlier order. (N,)."""
    order = np.argsort(-np.round(scores.astype(np.float64), 6), kind="stable")
    places = np.empty(len(scores), dtype=np.int64)
    places[order] = np.arange(1, len(scores) + 1)
    return places


@lru_cache(maxsize=4)
def _with_people(shelf: ModelCache, home: Path, normalised: bool) -> dict[str, float]:
    from training.evaluation.diagnostics import unit
    from training.evaluation.metrics import SIMILARITIES, spearman

    found = encoded(shelf, home, DEFAULT_MODEL, PAIRS)
    u, v = found.by_pooling["mean"]
    u, v = (unit(u), unit(v)) if normalised else (u, v)
    return {name: 100 * spearman(of(u, v), found.gold) for name, of in SIMILARITIES.items()}
