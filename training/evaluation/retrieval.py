"""Evaluation of retrieval: the ranks of the relevant documents for each query.

    evaluate_retrieval(load_retriever("bm25"), "beir:scifact").estimate("ndcg@10")      0.662 (0.615, 0.708)

    ndcg@k      discounted cumulative gain, Σ grade / log2(rank + 1) over the relevant documents among the best k,
                divided by the gain of the best order (Järvelin and Kekäläinen 2002)
    mrr@k       1 / the rank of the first relevant document; 0 if none is among the best k
    map@k       average precision: the sum of the precisions at the ranks of relevant documents among the best k,
                divided by the number of all relevant documents
    recall@k    the share of the relevant documents that are among the best k

Each is a mean over queries, in 0 to 1, as in trec_eval, which BEIR's leaderboard uses. nDCG counts
a document by its grade. The others count every document with a grade above 0, or of at least
``relevant_from``. Without grades the figures equal the ones of sentence-transformers'
InformationRetrievalEvaluator, except that its MAP divides by k if more than k documents are
relevant. Among equal scores the document with the lower id comes first; in trec_eval it is the
higher id. Documents with the id of the query are kept; BEIR removes them in ArguAna and Quora.

Intervals come from the bootstrap over queries. For few queries they cover too little: if 85% of the
nDCG are 1, they contain the true mean in 86% of samples of 20 queries and in 93% of samples of 50.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from training.data.dataset import Dataset
from training.data.load import RetrievalData, load_retrieval
from training.errors import InputError
from training.evaluation.bootstrap import (
    RESAMPLES,
    SHARE,
    Difference,
    Estimate,
    Statistic,
    resample_weights,
)
from training.models.model import Model, Retriever
from training.models.retrievers import as_retriever

CUTOFFS = (10, 100)
# With fewer queries an interval covers too little.
FEW_QUERIES = 50

# Functions of three arguments: whether the document at each rank is relevant (Q, k), the ranks 1 to
# k, and the number of relevant documents (Q,). They return (Q,).
METRICS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
    "mrr": lambda hits, ranks, relevant: (hits / ranks).max(axis=1),
    "map": lambda hits, ranks, relevant: (
        (hits * np.cumsum(hits, axis=1) / ranks).sum(axis=1) / relevant
    ),
    "recall": lambda hits, ranks, relevant: hits.sum(axis=1) / relevant,
}


@dataclass(frozen=True, eq=False)
class RetrievalResult:
    """The figures of a retriever for each query of the data, by name such as ndcg@10: float64 (Q,) in 0 to 1."""

    model: str
    data: RetrievalData
    values: dict[str, np.ndarray]
    seconds: float

    @cached_property
    def statistics(self) -> dict[str, Statistic]:
        """The mean of each figure over the queries, with 1,000 bootstrap resamples, the same for every model."""
        columns = np.stack(list(self.values.values()), axis=1)  # (Q, figures)
        n = len(columns)
        sums = [weights @ columns for weights in resample_weights(n, RESAMPLES)]
        means = np.concatenate(sums) / n  # (resamples, figures)
        statistics = {}
        for column, (figure, values) in enumerate(self.values.items()):
            mean = float(values.mean())
            influence = (values - mean) / n
            statistics[figure] = Statistic(mean, means[:, column], influence, limits=SHARE)
        return statistics

    def estimate(self, figure: str) -> Estimate:
        """Returns the mean over the queries, with the 95% percentile interval of the bootstrap."""
        return self.statistics[figure].estimate()

    def difference(self, other: RetrievalResult, figure: str) -> Difference | None:
        """Compares with another result on the same data, by a paired bootstrap test over the queries."""
        return Difference.of(self.statistics[figure], other.statistics[figure])

    def to_dict(self) -> dict[str, Any]:
        """Returns the result of `training.evaluation.scoring.evaluate`, as plain values."""
        values = {}
        intervals = {}
        for figure in self.values:
            value, low, high = self.estimate(figure)
            values[figure] = value
            intervals[figure] = {"low": low, "high": high}
        method = f"bootstrap over queries, {RESAMPLES:,} resamples"
        if len(self.data.queries) < FEW_QUERIES:
            method += f"; of fewer than {FEW_QUERIES} queries it is too narrow"
        return {
            "model": self.model,
            "data": self.data.name,
            "queries": len(self.data.queries),
            "documents": len(self.data.documents),
            **values,
            "intervals": intervals,
            "method": method,
            "seconds": round(self.seconds, 3),
        }


def find_partners(pairs: Dataset, vectors: Sequence[np.ndarray]) -> dict[str, float]:
    """Measures how well the first sentence of each pair finds one of its partners among all second sentences.

    The partners of a sentence are the second sentences of all pairs that it is the first of.
    ``vectors`` are the vectors of both columns, (N, D) each, compared by cosine. Returns
    accuracy@1, the share of first sentences whose nearest sentence is a partner; mrr@10; and
    ``queries``, the number of pairs.
    """
    # training.search imports torch, which takes seconds.
    from training.search import SearchIndex

    first, second = pairs.columns
    partners = set(zip(first, second, strict=True))
    _, rankings = SearchIndex(vectors[1]).nearest(vectors[0], min(10, len(second)))
    hits: np.ndarray = np.zeros(rankings.shape, dtype=bool)  # (N, up to 10)
    for query, sentence in enumerate(first):
        hits[query] = [(sentence, second[row]) in partners for row in rankings[query]]
    reciprocal = (hits / np.arange(1, rankings.shape[1] + 1)).max(axis=1)
    return {
        "accuracy@1": float(hits[:, 0].mean()),
        "mrr@10": float(reciprocal.mean()),
        "queries": len(hits),
    }


def evaluate_retrieval(
    model: Model | Retriever,
    data: RetrievalData | str,
    home: str | Path | None = None,
    cutoffs: Sequence[int] = CUTOFFS,
    relevant_from: float = 0.0,
    **watch: Any,
) -> RetrievalResult:
    """Ranks the documents for each query, and computes each figure at each cutoff.

    Args:
        model: a retriever or a bi-encoder.
        data: queries and documents, or a name for `load_retrieval`.
        cutoffs: the values of k.
        relevant_from: the least grade of a relevant document, in all figures but nDCG, which counts
            the grades.
        watch: on_progress, which is called with (done, all) of each stage, and should_stop.

    Raises:
        InputError: the data cannot be read, the model is a cross-encoder, or a cutoff is less than
            1.
    """
    if not cutoffs or min(cutoffs) < 1:
        raise InputError(f"the cutoffs are {tuple(cutoffs)}; each must be at least 1")
    started = time.perf_counter()
    retriever = as_retriever(model)
    if isinstance(data, str):
        data = load_retrieval(data, home)
    depth = max(cutoffs)
    rankings = retriever.search(data.queries, data.documents, depth, **watch)
    # The grades of the documents in the order of the ranking, and in the best order.
    gains = np.zeros((len(rankings), depth))
    best_gains = np.zeros((len(rankings), depth))
    # The number of relevant documents of each query.
    relevant = np.zeros(len(rankings))
    for row, (rows, grades) in enumerate(zip(rankings, data.relevant, strict=True)):
        gains[row, : len(rows)] = [grades.get(int(document), 0.0) for document in rows]
        highest = sorted(grades.values(), reverse=True)
        best_gains[row, : len(highest)] = highest[:depth]
        # All grades of the data are above 0.
        relevant[row] = sum(grade >= relevant_from for grade in highest)
    # A gain is 0 where the document has no grade.
    hits = (gains > 0) & (gains >= relevant_from)
    values: dict[str, np.ndarray] = {}
    for k in cutoffs:
        ranks = np.arange(1, k + 1)
        discounts = 1 / np.log2(ranks + 1)
        # Each query has at least one document with a grade, so its best gain is above 0.
        values[f"ndcg@{k}"] = (gains[:, :k] @ discounts) / (best_gains[:, :k] @ discounts)
        for name, metric in METRICS.items():
            # A query without relevant documents has the value 0.
            values[f"{name}@{k}"] = metric(hits[:, :k], ranks, np.maximum(relevant, 1))
    return RetrievalResult(retriever.name, data, values, time.perf_counter() - started)
