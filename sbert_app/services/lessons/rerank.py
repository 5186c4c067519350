"""Lesson 7: retrieve with the bi-encoder, then re-rank with the cross-encoder.

The bi-encoder compares the query with every sentence by a dot product; the cross-encoder then scores the query with
each of the k best. The first is fast, the second accurate. Paper: sections 1 and 4.2, Table 2.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sbert_app.services.lessons.sample import EncodedCorpus, encode_corpus, encode_sample, gold_sample
from sbert_app.services.lessons.setup import STANDARD, Setup
from training.errors import InputError
from training.registry import DEFAULT_CROSS_ENCODER

if TYPE_CHECKING:
    from sbert_app.services.models.cache import ModelCache

PAIRS = 200  # to measure the quality of both


@dataclass(frozen=True)
class Candidate:
    """A retrieved sentence with its cosine, its cross-encoder score and both ranks."""

    sentence: str
    cosine: float
    cross: float  # 0..1
    rank: int  # by cosine, from 1
    cross_rank: int  # among the candidates, from 1


@dataclass(frozen=True)
class Reranked:
    """Candidates in the order of the cosine, and the time of each step."""

    candidates: list[Candidate]
    corpus: EncodedCorpus
    retrieve_ms: float
    rerank_ms: float

    @property
    def exhaustive_ms(self) -> float:
        """Extrapolated time to score the query with every sentence of the corpus."""
        return self.rerank_ms * len(self.corpus.sentences) / len(self.candidates)


def measure(models: ModelCache, home: Path, query: str, k: int, setup: Setup = STANDARD) -> Reranked:
    """The k nearest sentences of the data in both orders. InputError if the query is empty."""
    from scipy.stats import rankdata

    from training.evaluation.diagnostics import unit

    if not query.strip():
        raise InputError("the query is empty; type a sentence to search for")
    corpus = encode_corpus(models, home, "stsb", setup)
    index = unit(corpus.vectors)
    cross_encoder = models.cross_encoder(DEFAULT_CROSS_ENCODER)
    started = time.perf_counter()
    cosines = index @ models.encoder(setup.model).encode([query])[0]
    nearest = np.argsort(-cosines, kind="stable")[:k]
    retrieved = time.perf_counter()
    scores = cross_encoder.predict([(query, corpus.sentences[row]) for row in nearest])
    done = time.perf_counter()
    cross_ranks = rankdata(-scores, method="ordinal")
    candidates = [
        Candidate(corpus.sentences[row], float(cosines[row]), float(scores[i]), i + 1, int(cross_ranks[i]))
        for i, row in enumerate(nearest)
    ]
    return Reranked(candidates, corpus, (retrieved - started) * 1000, (done - retrieved) * 1000)


@lru_cache(maxsize=2)
def quality(models: ModelCache, home: Path, setup: Setup = STANDARD) -> tuple[float, float]:
    """Spearman ×100 of bi-encoder and cross-encoder on the same pairs."""
    from training.evaluation.metrics import spearman

    sample = gold_sample(home, PAIRS, setup)
    cross_scores = models.cross_encoder(DEFAULT_CROSS_ENCODER).predict(
        list(zip(sample.first, sample.second, strict=True))
    )
    bi = encode_sample(models, home, setup.model, PAIRS, setup).rho("mean")
    return bi, 100 * spearman(cross_scores, sample.gold)
