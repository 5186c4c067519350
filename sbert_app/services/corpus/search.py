"""Semantic search: the sentences of a corpus that are nearest to a query, optionally re-ranked by a cross-encoder."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sbert_app.services.corpus.embedded import EmbeddedCorpus
from training.errors import InputError

if TYPE_CHECKING:
    from training.models.cross_encoder import CrossEncoder
    from training.models.model import VectorModel


MAX_K = 100
# A sentence is similar from this cosine on, and if it is so far above that of random pairs.
UNLIKE, ABOVE_RANDOM = 0.25, 0.1
# The cross-encoder reads so many times k sentences.
CANDIDATES = 4


@dataclass(frozen=True)
class Hit:
    """A sentence that a search finds.

    Attributes:
        row: the position in the corpus, from 0.
        rank: the rank by cosine, from 1.
        cross_score: the score of the cross-encoder from 0 to 1.
        cross_rank: the rank by the cross-encoder among the candidates.
    """

    row: int
    sentence: str
    cosine: float
    rank: int
    cross_score: float | None = None
    cross_rank: int | None = None


@dataclass(frozen=True)
class SearchResult:
    """The sentences nearest to a query.

    Attributes:
        by_cosine: the k nearest.
        searched: the number of sentences in the corpus.
        by_cross: the k best candidates in the order of the cross-encoder.
        candidates: the number of sentences that the cross-encoder read.
        index_note: the measured recall of an index that is not exact.
        random_cosine: the mean cosine of two sentences of the corpus.
    """

    query: str
    by_cosine: list[Hit]
    searched: int
    exact: bool
    encode_ms: float
    search_ms: float
    by_cross: list[Hit] = field(default_factory=list)
    cross_ms: float | None = None
    candidates: int = 0
    cross_encoder: str | None = None
    index_note: str = ""
    random_cosine: float = 0.0

    @property
    def finds_nothing(self) -> bool:
        """Whether not even the nearest sentence is similar to the query."""
        return self.by_cosine[0].cosine < max(UNLIKE, self.random_cosine + ABOVE_RANDOM)

    @property
    def hits(self) -> list[Hit]:
        """The hits in the order of the cross-encoder if there is one, else by cosine."""
        return self.by_cross if self.cross_encoder else self.by_cosine

    def to_json(self) -> dict[str, Any]:
        """The hits in their final order and the time of each step, as JSON values."""
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
    """Raises InputError if the query is empty, or k is not between 1 and 100."""
    if not query.strip():
        raise InputError("the query is empty: type a sentence to search for.")
    if not 1 <= k <= MAX_K:
        raise InputError(f"k is {k:,}; it must be from 1 to {MAX_K}.")


def search(
    embedded: EmbeddedCorpus,
    query: str,
    encoder: VectorModel,
    k: int = 10,
    cross_encoder: CrossEncoder | None = None,
) -> SearchResult:
    """The k sentences of a corpus nearest to a query.

    A cross-encoder scores the 4k nearest against the query, and its k best are returned. Raises InputError if the query
    is empty, or k is not between 1 and 100.
    """
    check_query(query, k)
    index = embedded.index
    started = time.perf_counter()
    vector = encoder.encode([query])
    encoded = time.perf_counter()
    count = min(k * CANDIDATES if cross_encoder else k, len(embedded))
    cosines, rows = index.nearest(vector, count)
    seconds = time.perf_counter() - encoded
    nearest = [
        Hit(int(row), embedded.corpus.sentences[row], float(cosine), rank)
        for rank, (row, cosine) in enumerate(zip(rows[0], cosines[0], strict=True), start=1)
    ]
    encode_ms, search_ms = (encoded - started) * 1e3, seconds * 1e3
    result = SearchResult(query, nearest[:k], len(embedded), index.exact, encode_ms, search_ms)
    result = replace(result, index_note=getattr(index, "note", ""), random_cosine=embedded.random_cosine)
    return result if cross_encoder is None else _rerank(result, nearest, k, cross_encoder)


def _rerank(result: SearchResult, candidates: list[Hit], k: int, cross_encoder: CrossEncoder) -> SearchResult:
    started = time.perf_counter()
    scores = cross_encoder.predict([(result.query, hit.sentence) for hit in candidates])
    milliseconds = (time.perf_counter() - started) * 1e3
    order = np.argsort(-scores, kind="stable")
    by_position = {
        int(i): replace(candidates[i], cross_score=float(scores[i]), cross_rank=rank)
        for rank, i in enumerate(order, start=1)
    }
    return replace(
        result,
        by_cosine=[by_position[i] for i in range(len(result.by_cosine))],
        by_cross=list(by_position.values())[:k],
        cross_ms=milliseconds,
        candidates=len(candidates),
        cross_encoder=cross_encoder.name,
    )
