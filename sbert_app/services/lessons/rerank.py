"""Lesson 7: retrieve with the bi-encoder, then re-rank with the cross-encoder.

The bi-encoder compares the query with every sentence by one dot product each; the cross-encoder then reads the query
beside the best k. Each does what it is good at: the first is fast, the second exact. Paper: sections 1 and 4.2,
Table 2.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sbert_app.services.lessons.sample import EncodedCorpus, encoded, encoded_corpus, gold_sample
from training.errors import InputError
from training.registry import DEFAULT_CROSS_ENCODER, DEFAULT_MODEL

if TYPE_CHECKING:
    from sbert_app.services.models.cache import ModelCache

PAIRS = 200  # of STSb dev, to say how good each of the two is


@dataclass(frozen=True)
class Candidate:
    """A sentence that the bi-encoder found, and where the cross-encoder puts it."""

    sentence: str
    cosine: float
    cross: float  # 0..1
    rank: int  # by cosine, from 1
    cross_rank: int  # among the candidates, from 1


@dataclass(frozen=True)
class Reranked:
    """Candidates in the order of the cosine, and what each step took."""

    candidates: list[Candidate]
    corpus: EncodedCorpus
    retrieve_ms: float
    rerank_ms: float

    @property
    def exhaustive_ms(self) -> float:
        """Extrapolated: the cross-encoder beside every sentence of the corpus."""
        return self.rerank_ms * len(self.corpus.sentences) / len(self.candidates)


def measure(shelf: ModelCache, home: Path, query: str, k: int) -> Reranked:
    """The k nearest sentences of STSb dev in both orders. InputError if the query is empty."""
    from training.evaluation.diagnostics import unit

    if not query.strip():
        raise InputError("the query is empty; type a sentence to search for")
    corpus = encoded_corpus(shelf, home, "stsb")
    index = unit(corpus.vectors)
    crosser = shelf.cross_encoder(DEFAULT_CROSS_ENCODER)
    started = time.perf_counter()
    cosines = index @ shelf.encoder(DEFAULT_MODEL).encode([query])[0]
    nearest = np.argsort(-cosines, kind="stable")[:k]
    retrieved = time.perf_counter()
    scores = crosser.predict([(query, corpus.sentences[row]) for row in nearest])
    done = time.perf_counter()
    places = np.empty(len(nearest), dtype=int)
    places[np.argsort(-scores, kind="stable")] = np.arange(1, len(nearest) + 1)
    found = [
        Candidate(corpus.sentences[row], float(cosines[row]), float(scores[at]), at + 1, int(places[at]))
        for at, row in enumerate(nearest)
    ]
    return Reranked(found, corpus, (retrieved - started) * 1000, (done - retrieved) * 1000)


@lru_cache(maxsize=2)
def quality(shelf: ModelCache, home: Path) -> tuple[float, float]:
    """Spearman ×100 on the same pairs of STSb dev: bi-encoder, cross-encoder."""
    from training.evaluation.metrics import spearman

    sample = gold_sample(home, PAIRS)
    crossed = shelf.cross_encoder(DEFAULT_CROSS_ENCODER).predict(list(zip(sample.first, sample.second, strict=True)))
    return encoded(shelf, home, DEFAULT_MODEL, PAIRS).rho("mean"), 100 * spearman(crossed, sample.gold)
