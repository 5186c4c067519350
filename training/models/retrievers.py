"""Retrievers that are made of others: rankings that are fused, and rankings that another model ranks again.

load_retriever("all-MiniLM-L6-v2")             the documents nearest to the query, by exact search
load_retriever("bm25")                         by the words that they share with it
load_retriever("maxsim:all-MiniLM-L6-v2")      by late interaction: MaxSim of the query's tokens
load_retriever("all-MiniLM-L6-v2+bm25")        both, fused by reciprocal rank
load_retriever("bm25?rerank=minilm-stsb")      the best hundred of BM25, ranked again by a cross-encoder
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from training.catalogue import BM25
from training.errors import InputError
from training.models.lexical import Bm25
from training.models.model import Model, Ranking, Retriever, VectorModel, best_rows, open_model
from training.progress import steps

FUSED = f"+{BM25}"
RERANK = "?rerank="
DEPTH = 100  # documents that a ranking gives to a fusion, and that a cross-encoder ranks again
RANK_CONSTANT = 60  # of reciprocal rank fusion, as in its paper


def load_retriever(name: str, load: Callable[[str], Model] | None = None) -> Retriever:
    """A retriever by name: MODEL, bm25 or MODEL+bm25, each perhaps with ?rerank=CROSS_ENCODER (or late interaction).

    ``load`` opens the models in it, in place of ``open_model``. InputError if one cannot be opened, or is not of the
    kind that its place in the name asks for.
    """
    load = load or open_model
    first, mark, cross_encoder = name.strip().partition(RERANK)
    model = first.removesuffix(FUSED)
    retriever: Retriever = Bm25() if model == BM25 else as_retriever(load(model))
    if model != first:
        retriever = Hybrid([retriever, Bm25()])
    if not mark:
        return retriever
    reranker = load(cross_encoder)
    if isinstance(reranker, VectorModel):
        raise InputError(f"{cross_encoder} is no cross-encoder; choose one such as minilm-stsb, or maxsim:NAME")
    return Reranked(retriever, reranker)


def as_retriever(model: Model | Retriever) -> Retriever:
    """The model, which ranks documents. InputError for a cross-encoder."""
    if isinstance(model, Retriever):
        return model
    raise InputError(
        f"{model.name} is a {model.kind}, which would read each document beside each query; let it rank the best of "
        f"another model again: {BM25}{RERANK}{model.name}"
    )


class Hybrid(Retriever):
    """The documents by the sum of 1 / (60 + rank) over the rankings of several retrievers, ranks from 1.

    Source: Cormack, Clarke and Büttcher 2009, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank
    Learning Methods".
    """

    def __init__(self, parts: Sequence[Retriever]) -> None:
        self.parts = parts
        self.name = "+".join(part.name for part in parts)

    def search(self, queries: Sequence[str], documents: Sequence[str], k: int, **watch: Any) -> Ranking:
        depth = max(k, DEPTH)
        fused = []
        rankings = [part.search(queries, documents, depth, **watch) for part in self.parts]
        for ranked in zip(*rankings, strict=True):
            rows, places = np.unique(np.concatenate(ranked), return_inverse=True)
            weights = np.concatenate([1 / (RANK_CONSTANT + np.arange(1, len(part) + 1)) for part in ranked])
            fused.append(best_rows(rows, np.bincount(places, weights, len(rows)), k))
        return fused


@dataclass(frozen=True)
class Reranked(Retriever):
    """The best ``depth`` documents of a retriever, ranked again by a model; those below keep their places."""

    first: Retriever
    model: Model
    depth: int = DEPTH

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name that `load_retriever` takes."""
        return f"{self.first.name}{RERANK}{self.model.name}"

    def search(self, queries: Sequence[str], documents: Sequence[str], k: int, **watch: Any) -> Ranking:
        ranking = self.first.search(queries, documents, max(k, self.depth), **watch)
        for query in steps(range(len(queries)), **watch):
            head, rest = np.split(ranking[query], [self.depth])
            if isinstance(self.model, Retriever):
                [best] = self.model.search([queries[query]], [documents[row] for row in head], self.depth)
            else:
                scores = self.model.score([(queries[query], documents[row]) for row in head])
                best = np.argsort(-scores, kind="stable")
            ranking[query] = np.concatenate([head[best], rest])[:k]
        return ranking
