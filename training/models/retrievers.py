"""Retrievers made of others: rankings that are fused, and rankings that another model reranks.

load_retriever("all-MiniLM-L6-v2")             the documents nearest to the query, by exact search
load_retriever("bm25")                         the documents that share words with the query
load_retriever("maxsim:all-MiniLM-L6-v2")      late interaction: MaxSim of the query's tokens
load_retriever("all-MiniLM-L6-v2+bm25")        two rankings, fused by reciprocal rank
load_retriever("bm25?rerank=minilm-stsb")      the best hundred of BM25, reranked by a cross-encoder
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
DEPTH = 100  # documents of each ranking that are fused, or that a cross-encoder reranks
RANK_CONSTANT = 60  # of reciprocal rank fusion, as in its paper


def load_retriever(name: str, load: Callable[[str], Model] | None = None) -> Retriever:
    """Loads a retriever by name: MODEL, bm25 or MODEL+bm25, optionally with ?rerank=CROSS_ENCODER.

    Args:
        name: the name. A late-interaction model can rerank too.
        load: opens the models in the name; None for `open_model`.

    Returns:
        A retriever, whose ``search`` ranks documents for queries.

    Raises:
        InputError: a model cannot be opened, or cannot be used at its place in the name.

    Example::

        from sbert_lab import load_retriever

        documents = ["It snows.", "A man eats food.", "A dog runs."]
        retriever = load_retriever("all-MiniLM-L6-v2+bm25")
        [rows] = retriever.search(["A man is eating."], documents, k=2)
        print([documents[row] for row in rows])
    """
    load = load or open_model
    first_name, rerank, reranker_name = name.strip().partition(RERANK)
    model_name = first_name.removesuffix(FUSED)
    # BM25 has no files to open.
    retriever: Retriever = Bm25() if model_name == BM25 else as_retriever(load(model_name))
    if first_name.endswith(FUSED):
        retriever = Hybrid([retriever, Bm25()])
    if not rerank:
        return retriever
    reranker = load(reranker_name)
    if isinstance(reranker, VectorModel):
        raise InputError(
            f"{reranker_name} is no cross-encoder; choose one such as minilm-stsb, or maxsim:NAME"
        )
    return Reranked(retriever, reranker)


def as_retriever(model: Model | Retriever) -> Retriever:
    """Returns the model, if it ranks documents. InputError for a cross-encoder."""
    if isinstance(model, Retriever):
        return model
    raise InputError(
        f"{model.name} is a {model.kind}, which would read each document beside each query; let it rank the best of "
        f"another model again: {BM25}{RERANK}{model.name}"
    )


class Hybrid(Retriever):
    """Ranks documents by the sum of 1 / (60 + rank) over the rankings of several retrievers, with ranks from 1.

    Source: Cormack, Clarke and Büttcher 2009, "Reciprocal Rank Fusion outperforms Condorcet and
    individual Rank Learning Methods".
    """

    def __init__(self, parts: Sequence[Retriever]) -> None:
        self.parts = parts
        self.name = "+".join(part.name for part in parts)

    def search(
        self, queries: Sequence[str], documents: Sequence[str], k: int, **watch: Any
    ) -> Ranking:
        depth = max(k, DEPTH)
        rankings = [part.search(queries, documents, depth, **watch) for part in self.parts]
        fused = []
        for rankings_of_query in zip(*rankings, strict=True):
            # The distinct documents of all rankings, and for each entry of the rankings, one after
            # the other, the position of its document among them.
            rows, positions = np.unique(np.concatenate(rankings_of_query), return_inverse=True)
            weights = []
            for ranking in rankings_of_query:
                ranks = np.arange(1, len(ranking) + 1)
                weights.append(1 / (RANK_CONSTANT + ranks))
            # The sum of the weights of each distinct document.
            scores = np.bincount(positions, weights=np.concatenate(weights))
            fused.append(best_rows(rows, scores, k))
        return fused


@dataclass(frozen=True)
class Reranked(Retriever):
    """Ranks the best ``depth`` documents of a retriever again with a model. The documents below keep their places."""

    first: Retriever
    model: Model
    depth: int = DEPTH

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name that `load_retriever` takes."""
        return f"{self.first.name}{RERANK}{self.model.name}"

    def search(
        self, queries: Sequence[str], documents: Sequence[str], k: int, **watch: Any
    ) -> Ranking:
        ranking = self.first.search(queries, documents, max(k, self.depth), **watch)
        # The first search has reported its own progress, so the progress starts from 0 again.
        for query in steps(range(len(queries)), **watch):
            head, rest = np.split(ranking[query], [self.depth])
            candidates = [documents[row] for row in head]
            if isinstance(self.model, Retriever):
                [best] = self.model.search([queries[query]], candidates, self.depth)
            else:
                scores = self.model.score([(queries[query], document) for document in candidates])
                best = np.argsort(-scores, kind="stable")
            # ``best`` has positions in ``head``. A retriever may leave documents out, such as the
            # ones without a word of the query; they follow in their old order.
            others = np.setdiff1d(np.arange(len(head)), best)
            ranking[query] = np.concatenate([head[best], head[others], rest])[:k]
        return ranking
