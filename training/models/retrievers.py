"""Retrievers: what ranks documents for queries.

    load_retriever("all-MiniLM-L6-v2")             the documents nearest to the query, by exact search
    load_retriever("bm25")                         by the words that they share with it
    load_retriever("maxsim:all-MiniLM-L6-v2")      by late interaction: MaxSim of the query's tokens
    load_retriever("all-MiniLM-L6-v2+bm25")        both, fused by reciprocal rank
    load_retriever("bm25?rerank=minilm-stsb")      the best hundred of BM25, ranked again by a cross-encoder

BM25 is written here: scikit-learn counts the words, scipy multiplies, and one formula is left, which is no reason for
another dependency. Words are neither stemmed nor left out, as Lucene does, with which the BEIR paper measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from training.catalogue import BM25, TFIDF
from training.errors import InputError
from training.models.baselines import WORD_PATTERN, SparseVectors, TfIdf
from training.models.scorer import load_scorer
from training.names import ModelName
from training.progress import Progress, steps

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from training.models.cross_encoder import CrossEncoder
    from training.models.late_interaction import LateInteraction
    from training.models.scorer import BiEncoder, Scorer
    from training.models.sparse import SparseEncoder

Texts = Sequence[str]
Ranking = list[np.ndarray]  # for each query the rows of its best documents, int64 (≤ k,); equal ones by their row
Weigh = Callable[[Texts, Texts], "tuple[csr_matrix, csr_matrix]"]  # queries, documents -> (Q, V), (N, V)

FUSED, RERANK = f"+{BM25}", "?rerank="
CHUNK = 50_000  # documents whose vectors are in memory at a time
PRODUCTS = 1 << 24  # scores of sparse vectors that are in memory at a time
DEPTH = 100  # documents that a ranking gives to a fusion, and that a cross-encoder ranks again
RANK_CONSTANT = 60  # of reciprocal rank fusion, as in its paper


class Retriever(NamedTuple):
    """``search(queries, documents, k)`` -> the `Ranking`; it also takes ``on_progress`` and ``should_stop``."""

    name: str
    search: Callable[..., Ranking]


def load_retriever(name: str, load: Callable[[str], Scorer] | None = None) -> Retriever:
    """A retriever by name: MODEL, bm25 or MODEL+bm25, each perhaps with ?rerank=CROSS_ENCODER (or late interaction).

    ``load`` opens the models in it; None = `load_scorer`.

    Raises:
        InputError: a model cannot be opened, or is not of the kind that its place in the name asks for.
    """
    load = load or load_scorer
    first, mark, cross_encoder = name.strip().partition(RERANK)
    model, words = first.removesuffix(FUSED), sparse(BM25, bm25_weights)
    found = words if first == BM25 else as_retriever(load(model))
    found = hybrid([found, words]) if model != first else found
    reranker: Any = load(cross_encoder) if mark else None
    if mark and not hasattr(reranker, "predict"):
        raise InputError(f"{cross_encoder} is no cross-encoder; choose one such as minilm-stsb, or maxsim:NAME")
    return reranked(found, reranker) if mark else found


def as_retriever(scorer: Scorer | Retriever) -> Retriever:
    """A model as a retriever. InputError for a cross-encoder."""
    if isinstance(scorer, Retriever):
        return scorer
    if isinstance(scorer, TfIdf):
        return sparse(TFIDF, _tfidf_weights)
    if isinstance(scorer, SparseVectors):
        return splade(scorer)
    if hasattr(scorer, "encode"):
        return dense(cast("BiEncoder", scorer))
    if hasattr(scorer, "similarity"):
        return late(cast("LateInteraction", scorer))
    raise InputError(
        f"{scorer.name} is a cross-encoder, which would read each document beside each query; let it rank the best of "
        f"another model again: {BM25}{RERANK}{scorer.name}"
    )


def dense(encoder: BiEncoder) -> Retriever:
    """The nearest documents by the similarity that the encoder's folder names, 50,000 vectors in memory at a time.

    Queries and documents have the prompts that the folder has for them, unless the encoder's name states one.
    """
    of_role: Any = getattr(encoder, "for_role", None)
    has_roles = of_role is not None and not ModelName.parse(encoder.name).states_prompt
    for_query, for_document = map(of_role, ("query", "document")) if has_roles else (encoder, encoder)
    similarity = getattr(getattr(encoder, "model_format", None), "similarity", "cosine")

    def search(
        queries: Texts, documents: Texts, k: int, on_progress: Progress | None = None, should_stop: Any = None
    ) -> Ranking:
        from training.search import SearchIndex  # imports torch

        asked = for_query.encode(queries, normalize=None, should_stop=should_stop)
        scores, rows = np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.int64)
        for start in range(0, len(documents), CHUNK):

            def progress(done: int, _: int | None, start: int = start) -> None:
                if on_progress is not None:
                    on_progress(start + done, len(documents))

            part = documents[start : start + CHUNK]
            vectors = for_document.encode(part, normalize=None, on_progress=progress, should_stop=should_stop)
            found = SearchIndex(vectors, similarity).nearest(asked, min(k, len(part)))
            scores, rows = np.hstack([scores, found[0]]), np.hstack([rows, found[1] + start])
            best = np.lexsort((rows, -scores))[:, :k]
            scores, rows = np.take_along_axis(scores, best, 1), np.take_along_axis(rows, best, 1)
        return list(rows)

    return Retriever(encoder.name, search)


def sparse(name: str, weigh: Weigh) -> Retriever:
    """The documents with the highest dot products with the query, of those above zero, by vectors of V words."""

    def search(queries: Texts, documents: Texts, k: int, **watch: Any) -> Ranking:
        asked, weights = weigh(queries, documents)
        columns, size = weights.T.tocsr(), max(1, PRODUCTS // max(1, len(documents)))  # (V, N)
        blocks = (asked[start : start + size] @ columns for start in steps(range(0, len(queries), size), **watch))
        parts = ((block, ends) for block in blocks for ends in pairwise(block.indptr))
        return [_best(block.indices[a:b], block.data[a:b], k) for block, (a, b) in parts]

    return Retriever(name, search)


def splade(encoder: SparseEncoder) -> Retriever:
    """The documents with the highest dot products. Each side has the prompt that the folder has for it."""

    def search(queries: Texts, documents: Texts, k: int, **watch: Any) -> Ranking:
        weights = encoder.for_role("document").encode_sparse(documents, **watch)
        asked = encoder.for_role("query").encode_sparse(queries)
        return sparse(encoder.name, lambda *_: (asked, weights)).search(queries, documents, k)

    return Retriever(encoder.name, search)


def late(model: LateInteraction) -> Retriever:
    """The documents with the highest MaxSim of the query's tokens; all scores are in memory, (Q, N) float32."""

    def search(queries: Texts, documents: Texts, k: int, **watch: Any) -> Ranking:
        scores = model.similarity(queries, documents, **watch)
        return [_best(np.arange(len(documents)), row, k) for row in scores]

    return Retriever(model.name, search)


def bm25_weights(queries: Texts, documents: Texts, k1: float = 0.9, b: float = 0.4) -> tuple[csr_matrix, csr_matrix]:
    """How often each of V words occurs in the queries, (Q, V), and its weight in the documents, (N, V) float32.

    The weight of a word that occurs tf times in a document, and in n of N documents, is that of Lucene's BM25, with the
    BEIR paper's k1 and b: ln(1 + (N - n + 0.5) / (n + 0.5)) · tf · (k1 + 1) / (tf + k1 · (1 - b + b · length / mean)).
    Source: Robertson and Zaragoza 2009, "The Probabilistic Relevance Framework: BM25 and Beyond".
    """
    from sklearn.feature_extraction.text import CountVectorizer  # takes a second to import

    vectorizer = CountVectorizer(token_pattern=WORD_PATTERN, dtype=np.float32)
    has_words = any(re.search(WORD_PATTERN, document) for document in documents)
    counts = vectorizer.fit_transform(documents if has_words else ["none"] * len(documents))
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    n = np.bincount(counts.indices, minlength=counts.shape[1])
    idf = np.log1p((len(documents) - n + 0.5) / (n + 0.5))
    norms = np.repeat(k1 * (1 - b + b * lengths / lengths.mean()), np.diff(counts.indptr))
    counts.data = (idf[counts.indices] * counts.data * (k1 + 1) / (counts.data + norms)).astype(np.float32)
    return vectorizer.transform(queries), counts


def _tfidf_weights(queries: Texts, documents: Texts) -> tuple[csr_matrix, csr_matrix]:
    vectors = TfIdf().encode_sparse([*documents, *queries])
    return vectors[len(documents) :], vectors[: len(documents)]


def hybrid(parts: Sequence[Retriever]) -> Retriever:
    """The documents by the sum of 1 / (60 + rank) over the rankings of several retrievers, ranks from 1.

    Source: Cormack, Clarke and Büttcher 2009, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank
    Learning Methods".
    """

    def search(queries: Texts, documents: Texts, k: int, **watch: Any) -> Ranking:
        fused, rankings = [], [part.search(queries, documents, max(k, DEPTH), **watch) for part in parts]
        for found in zip(*rankings, strict=True):
            rows, places = np.unique(np.concatenate(found), return_inverse=True)
            weights = np.concatenate([1 / (RANK_CONSTANT + np.arange(1, len(each) + 1)) for each in found])
            fused.append(_best(rows, np.bincount(places, weights, len(rows)), k))
        return fused

    return Retriever("+".join(part.name for part in parts), search)


def reranked(first: Retriever, model: CrossEncoder | LateInteraction, depth: int = DEPTH) -> Retriever:
    """The best ``depth`` documents of a retriever, ranked again by another model; those below keep their places."""
    rank: Any = getattr(model, "rank", None)  # of cross-encoders

    def order(query: str, documents: Texts) -> list[int] | np.ndarray:
        if rank is None:
            return late(cast("LateInteraction", model)).search([query], documents, depth)[0]
        return [each["corpus_id"] for each in rank(query, documents)]

    def search(queries: Texts, documents: Texts, k: int, **watch: Any) -> Ranking:
        found = first.search(queries, documents, max(k, depth), **watch)
        for query in steps(range(len(queries)), **watch):
            head, rest = np.split(found[query], [depth])
            best = order(queries[query], [documents[row] for row in head])
            found[query] = np.concatenate([head[best], rest])[:k]
        return found

    return Retriever(f"{first.name}{RERANK}{model.name}", search)


def _best(rows: np.ndarray, scores: np.ndarray, k: int) -> np.ndarray:
    """The k of ``rows`` (n,) with the highest scores, best first; of equal ones the first rows."""
    if len(rows) > k:
        enough = scores >= np.partition(scores, len(scores) - k)[len(scores) - k]
        rows, scores = rows[enough], scores[enough]
    return rows[np.lexsort((rows, -scores))[:k]].astype(np.int64)
