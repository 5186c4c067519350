"""The evaluation of retrieval: the ranks of the relevant documents for each query.

    evaluate_retrieval(load_retriever("bm25"), "beir:scifact").estimate("ndcg@10")      0.662 (0.615, 0.708)

    ndcg@k      discounted cumulative gain, Σ grade / log2(rank + 1) over the relevant documents among the best k,
                divided by that of the best order (Järvelin and Kekäläinen 2002)
    mrr@k       1 / the rank of the first relevant document; 0 if none is among the best k
    map@k       average precision: the precisions at the ranks of relevant documents among the best k, divided by the
                number of all relevant documents
    recall@k    the share of the relevant documents that are among the best k

Each is a mean over queries, in 0 to 1, as in trec_eval, with which BEIR's leaderboard is computed: nDCG counts a
document by its grade, the others every document with a grade above 0, or of at least ``relevant_from``. Without grades
they are those of sentence-transformers' InformationRetrievalEvaluator, whose MAP divides by k where more than k are
relevant. Among equal scores the document with the lower id comes first, in trec_eval the one with the higher. A
document with the id of the query stays, which BEIR leaves out in ArguAna and Quora.

An interval is that of the bootstrap over queries. Of few queries it covers too little: with 85% of the nDCG at 1 it
holds the true mean in 86% of samples of 20 queries and in 93% of 50.
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
from training.evaluation.bootstrap import RESAMPLES, SHARE, Difference, Estimate, Statistic, resample_weights
from training.models.model import Model, Retriever
from training.models.retrievers import as_retriever

CUTOFFS = (10, 100)
# The number of queries below which an interval covers too little.
FEW_QUERIES = 50

# Whether the document at each rank is relevant (Q, k), the ranks 1 to k, the number of relevant documents (Q,) -> (Q,).
METRICS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
    "mrr": lambda hits, ranks, relevant: (hits / ranks).max(axis=1),
    "map": lambda hits, ranks, relevant: (hits * np.cumsum(hits, axis=1) / ranks).sum(axis=1) / relevant,
    "recall": lambda hits, ranks, relevant: hits.sum(axis=1) / relevant,
}


@dataclass(frozen=True, eq=False)
class RetrievalResult:
    """The figures of one retriever for each query of the data: by name such as ndcg@10, float64 (Q,) in 0 to 1."""

    model: str
    data: RetrievalData
    values: dict[str, np.ndarray]
    seconds: float

    @cached_property
    def statistics(self) -> dict[str, Statistic]:
        """Each mean over the queries, with 1,000 bootstrap resamples of the queries, the same for every model."""
        columns = np.stack(list(self.values.values()), axis=1)
        resampled = [weights @ columns for weights in resample_weights(len(columns), RESAMPLES)]
        means = np.concatenate(resampled).T / len(columns)
        return {
            figure: Statistic(float(own.mean()), replicates, (own - own.mean()) / len(own), None, SHARE)
            for figure, own, replicates in zip(self.values, columns.T, means, strict=True)
        }

    def estimate(self, figure: str) -> Estimate:
        """The mean over the queries, with the 95% percentile interval of the bootstrap."""
        return self.statistics[figure].estimate()

    def difference(self, other: RetrievalResult, figure: str) -> Difference | None:
        """The lead over another result on the same data, by a paired bootstrap test over the queries."""
        return Difference.of(self.statistics[figure], other.statistics[figure])

    def to_dict(self) -> dict[str, Any]:
        """The result of `training.evaluation.scoring.evaluate`, as plain values."""
        estimates = {figure: self.estimate(figure) for figure in self.values}
        method = f"bootstrap over queries, {RESAMPLES:,} resamples"
        if len(self.data.queries) < FEW_QUERIES:
            method += f"; of fewer than {FEW_QUERIES} queries it is too narrow"
        return {
            "model": self.model,
            "data": self.data.name,
            "queries": len(self.data.queries),
            "documents": len(self.data.documents),
            **{figure: estimate.value for figure, estimate in estimates.items()},
            "intervals": {figure: {"low": low, "high": high} for figure, (_, low, high) in estimates.items()},
            "method": method,
            "seconds": round(self.seconds, 3),
        }


def find_partners(pairs: Dataset, vectors: Sequence[np.ndarray]) -> dict[str, float]:
    """How well the first sentence of each pair finds one of its partners among all second sentences, by cosine.

    ``vectors`` are those of both columns, (N, D) each. Returns accuracy@1, the share whose nearest sentence is a
    partner; mrr@10; and ``queries``, the number of pairs.
    """
    # It imports torch, which takes seconds.
    from training.search import SearchIndex

    first, second = pairs.columns
    are_partners = set(zip(first, second, strict=True))
    _, rankings = SearchIndex(vectors[1]).nearest(vectors[0], min(10, len(second)))
    ranked = zip(first, rankings, strict=True)
    hits = np.array([[(query, second[row]) in are_partners for row in ranking] for query, ranking in ranked])
    reciprocal = (hits / np.arange(1, hits.shape[1] + 1)).max(axis=1)
    return {"accuracy@1": float(hits[:, 0].mean()), "mrr@10": float(reciprocal.mean()), "queries": len(hits)}


def evaluate_retrieval(
    model: Model | Retriever,
    data: RetrievalData | str,
    home: str | Path | None = None,
    cutoffs: Sequence[int] = CUTOFFS,
    relevant_from: float = 0.0,
    **watch: Any,
) -> RetrievalResult:
    """Ranks the documents for each query by a retriever or a bi-encoder, and computes each figure at each cutoff.

    ``relevant_from`` is the grade from which a document is relevant, in all but nDCG, which counts the grades.
    ``watch`` has on_progress, called with (done, all) of each stage, and should_stop. InputError if the data, which may
    be a name for `load_retrieval`, cannot be read, the model is a cross-encoder, or a cutoff is less than 1.
    """
    if not cutoffs or min(cutoffs) < 1:
        raise InputError(f"the cutoffs are {tuple(cutoffs)}; each must be at least 1")
    started = time.perf_counter()
    retriever = as_retriever(model)
    data = data if isinstance(data, RetrievalData) else load_retrieval(data, home)
    rankings = retriever.search(data.queries, data.documents, max(cutoffs), **watch)
    best, gains = np.zeros((2, len(rankings), max(cutoffs)))
    for row, (rows, grades) in enumerate(zip(rankings, data.relevant, strict=True)):
        gains[row, : len(rows)] = [grades.get(int(document), 0.0) for document in rows]
        highest = sorted(grades.values(), reverse=True)[: max(cutoffs)]
        best[row, : len(highest)] = highest
    hits = (gains > 0) & (gains >= relevant_from)
    values = dict[str, np.ndarray]()
    # A query without a document of this grade has the value 0.
    relevant = np.array([sum(grade >= relevant_from for grade in grades.values()) for grades in data.relevant])
    for k in cutoffs:
        ranks = np.arange(1, k + 1)
        discounts = 1 / np.log2(ranks + 1)
        values[f"ndcg@{k}"] = (gains[:, :k] @ discounts) / (best[:, :k] @ discounts)
        for name, metric in METRICS.items():
            values[f"{name}@{k}"] = metric(hits[:, :k], ranks, np.maximum(relevant, 1))
    return RetrievalResult(retriever.name, data, values, time.perf_counter() - started)
