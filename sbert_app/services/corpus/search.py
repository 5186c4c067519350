"""Semantic search: the sentences of a corpus that are nearest to a query, and their order after a second look.

FAISS over vectors of length 1, where the dot product is the cosine. Up to 200,000 sentences every one is compared
(IndexFlatIP: exact, a few milliseconds); above, a graph of neighbours is followed (HNSW: nearly exact, and no
slower with a million). A cross-encoder, which reads query and sentence together, may put the best candidates in a
new order: retrieve, then re-rank.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from sbert_app.services.corpus.embedded import EmbeddedCorpus, SentenceEncoder
from training.errors import InputError

MOST_HITS = 100
CANDIDATES = 4  # times k: how many the cross-encoder reads


class PairPredictor(Protocol):
    """What re-ranking needs of a cross-encoder."""

    @property
    def name(self) -> str: ...
    def predict(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray: ...


@dataclass(frozen=True)
class Hit:
    """A sentence that was found."""

    row: int  # its position in the corpus, from 0
    sentence: str
    cosine: float
    rank: int  # by cosine, from 1
    cross_score: float | None = None  # of the cross-encoder, 0–1
    cross_rank: int | None = None  # by the cross-encoder, among the candidates


@dataclass(frozen=True)
class SearchResult:
    """The answer to a query."""

    query: str
    by_cosine: list[Hit]  # the k nearest
    searched: int  # sentences in the corpus
    exact: bool
    encode_ms: float
    search_ms: float
    by_cross: list[Hit] = field(default_factory=list)  # the best k candidates in the cross-encoder's order
    cross_ms: float | None = None
    candidates: int = 0  # that the cross-encoder read
    cross_encoder: str | None = None

    @property
    def hits(self) -> list[Hit]:
        """In the order of the cross-encoder if there is one, else of the cosine."""
        return self.by_cross if self.cross_encoder else self.by_cosine

    def to_json(self) -> dict[str, Any]:
        """Plain JSON: the hits in their last order, and what each step took."""
        return {
            "query": self.query,
            "searched": self.searched,
            "exact": self.exact,
            "cross_encoder": self.cross_encoder,
            "candidates": self.candidates,
            "milliseconds": {"encode": self.encode_ms, "search": self.search_ms, "cross_encoder": self.cross_ms},
            "hits": [asdict(hit) for hit in self.hits],
        }


def check_query(query: str, k: int) -> None:
    """InputError if the query is empty, or k is not between 1 and 100."""
    if not query.strip():
        raise InputError("the query is empty: type a sentence to search for.")
    if not 1 <= k <= MOST_HITS:
        raise InputError(f"k is {k:,}; it must be from 1 to {MOST_HITS}.")


def search(
    space: EmbeddedCorpus, query: str, encoder: SentenceEncoder, k: int = 10, cross_encoder: PairPredictor | None = None
) -> SearchResult:
    """The k sentences of a corpus nearest to a query.

    With a cross-encoder, the 4k nearest are read by it beside the query, and its order decides which k are given.

    Raises:
        InputError: the query is empty, or k is not between 1 and 100.
    """
    check_query(query, k)
    index = space.index
    started = time.perf_counter()
    vector = encoder.encode([query])
    encoded = time.perf_counter()
    wanted = min(k * CANDIDATES if cross_encoder else k, len(space))
    cosines, rows = index.nearest(vector, wanted)
    seconds = time.perf_counter() - encoded
    nearest = [
        Hit(int(row), space.corpus.sentences[row], float(cosine), rank)
        for rank, (row, cosine) in enumerate(zip(rows[0], cosines[0], strict=True), start=1)
        if row >= 0  # the graph may find fewer
    ]
    found = SearchResult(query, nearest[:k], len(space), index.exact, (encoded - started) * 1e3, seconds * 1e3)
    return found if cross_encoder is None else _reranked(found, nearest, k, cross_encoder)


def _reranked(found: SearchResult, candidates: list[Hit], k: int, cross_encoder: PairPredictor) -> SearchResult:
    started = time.perf_counter()
    scores = cross_encoder.predict([(found.query, hit.sentence) for hit in candidates])
    milliseconds = (time.perf_counter() - started) * 1e3
    order = np.argsort(-scores, kind="stable")
    read = {
        int(at): replace(candidates[at], cross_score=float(scores[at]), cross_rank=rank)
        for rank, at in enumerate(order, start=1)
    }
    return replace(
        found,
        by_cosine=[read[at] for at in range(len(found.by_cosine))],
        by_cross=list(read.values())[:k],
        cross_ms=milliseconds,
        candidates=len(candidates),
        cross_encoder=cross_encoder.name,
    )
