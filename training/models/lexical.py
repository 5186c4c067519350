"""TF-IDF and BM25, and SparseModel, the base class of models whose vectors are weights of words, most of them 0.

BM25 is implemented here: scikit-learn counts the words, scipy multiplies, and a single formula does
not justify another dependency. Unlike in Lucene, which the BEIR paper used, words are not stemmed,
and stop words are kept.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from training.catalogue import BM25, TFIDF
from training.errors import InputError
from training.models.model import Model, Pair, Ranking, Retriever, best_rows
from training.names import ModelName
from training.pooling import NO_POOLING, normalize_rows
from training.progress import Progress, ShouldStop, steps

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

WORD_PATTERN = r"\w+"
MAX_DENSE_BYTES = 1 << 30  # the largest dense array that `SparseModel.encode` makes
PROGRESS_EVERY = 4_096  # sentences between two calls of on_progress
PRODUCTS = 1 << 24  # dot products in memory at a time


class SparseModel(Model, Retriever):
    """A model that encodes a text as a number for each word or token, most of them 0."""

    kind = "sparse encoder"
    pooling = NO_POOLING

    @abstractmethod
    def encode_sparse(
        self,
        sentences: Sequence[str],
        on_progress: Progress | None = None,
        should_stop: ShouldStop | None = None,
    ) -> csr_matrix:
        """Encodes sentences: sparse float32 (N, V), in their order."""

    @abstractmethod
    def weigh(
        self, queries: Sequence[str], documents: Sequence[str], **watch: Any
    ) -> tuple[csr_matrix, csr_matrix]:
        """Computes weights (Q, V) and (N, V) float32 whose dot products rank the documents.

        ``watch``: on_progress and should_stop of `Model.score`.
        """

    def encode(
        self,
        sentences: Sequence[str],
        normalize: bool | None = True,
        on_progress: Progress | None = None,
        should_stop: ShouldStop | None = None,
    ) -> np.ndarray:
        """Encodes sentences as dense vectors: float32 (N, V), of length 1 if ``normalize``. InputError above 1 GB."""
        matrix = self.encode_sparse(sentences, on_progress, should_stop)
        rows, words = matrix.shape
        if 4 * rows * words > MAX_DENSE_BYTES:
            raise InputError(
                f"{ModelName(self.name).label} vectors of {rows:,} sentences with {words:,} "
                "different words do not fit in memory; give fewer sentences"
            )
        vectors = matrix.toarray()
        return normalize_rows(vectors) if normalize else vectors

    def score(
        self,
        pairs: Sequence[Pair],
        on_progress: Progress | None = None,
        should_stop: ShouldStop | None = None,
    ) -> np.ndarray:
        """Computes the cosine of each pair, float32 (N,)."""
        sentences = [first for first, _ in pairs] + [second for _, second in pairs]
        matrix = self.encode_sparse(sentences, on_progress, should_stop)
        u = matrix[: len(pairs)]
        v = matrix[len(pairs) :]
        lengths = np.sqrt(_row_products(u, u)) * np.sqrt(_row_products(v, v))
        # A text without weights has the length 0 and gets the cosine 0.
        return _row_products(u, v) / np.maximum(lengths, 1e-12)

    def search(
        self, queries: Sequence[str], documents: Sequence[str], k: int, **watch: Any
    ) -> Ranking:
        """Finds the documents with the highest dot products with the query, among those above zero."""
        query_weights, document_weights = self.weigh(queries, documents, **watch)
        # `weigh` has already reported the whole progress.
        return highest_products(
            query_weights, document_weights, k, should_stop=watch.get("should_stop")
        )


def _row_products(u: csr_matrix, v: csr_matrix) -> np.ndarray:
    """Computes the dot products of the rows of (N, V) and (N, V): (N,)."""
    return np.asarray(u.multiply(v).sum(axis=1)).ravel()


def highest_products(queries: csr_matrix, documents: csr_matrix, k: int, **watch: Any) -> Ranking:
    """Finds for each row of (Q, V) the rows of (N, V) with the highest dot products, among those above zero.

    ``watch``: on_progress and should_stop of `Model.score`.
    """
    columns = documents.T.tocsr()  # (V, N)
    # The number of queries at a time.
    size = max(1, PRODUCTS // max(1, documents.shape[0]))
    ranking = []
    for start in steps(range(0, queries.shape[0], size), **watch):
        products = queries[start : start + size] @ columns  # sparse (size, N)
        # The values of a sparse matrix are stored row after row. All weights are above 0, so
        # exactly the products above 0 are stored.
        for first, last in pairwise(products.indptr):
            ranking.append(best_rows(products.indices[first:last], products.data[first:last], k))
    return ranking


class TfIdf(SparseModel):
    """Term frequency × inverse document frequency, each sentence scaled to length 1: scikit-learn's TfidfVectorizer.

    The weight of a word that occurs in d of n sentences is ln((1 + n) / (1 + d)) + 1. It is fitted
    on the sentences of a call, so vectors of two calls cannot be compared.
    """

    name = TFIDF

    def encode_sparse(
        self,
        sentences: Sequence[str],
        on_progress: Progress | None = None,
        should_stop: ShouldStop | None = None,
    ) -> csr_matrix:
        """Encodes sentences: float32 (N, V), with a column for each different word. A row without words is zero."""
        # scipy.sparse and scikit-learn take a second to import.
        from scipy.sparse import csr_matrix
        from sklearn.feature_extraction.text import TfidfVectorizer

        # scikit-learn raises an error for an empty vocabulary.
        if not any(re.search(WORD_PATTERN, sentence) for sentence in sentences):
            return csr_matrix(np.zeros((len(sentences), 0), dtype=np.float32))
        # scikit-learn takes sentences from the stream one by one, which reports the progress.
        starts = steps(range(0, len(sentences), PROGRESS_EVERY), on_progress, should_stop)
        stream = chain.from_iterable(sentences[start : start + PROGRESS_EVERY] for start in starts)
        matrix = TfidfVectorizer(token_pattern=WORD_PATTERN).fit_transform(stream)
        return csr_matrix(matrix, dtype=np.float32)

    def weigh(
        self, queries: Sequence[str], documents: Sequence[str], **watch: Any
    ) -> tuple[csr_matrix, csr_matrix]:
        """Computes the weights of the queries and of the documents, fitted on all these texts."""
        matrix = self.encode_sparse([*queries, *documents], **watch)
        return matrix[: len(queries)], matrix[len(queries) :]


class Bm25(Model, Retriever):
    """BM25, which ranks documents for queries but cannot score pairs."""

    kind = "ranking by words"
    name = BM25

    def score(
        self,
        pairs: Sequence[Pair],
        on_progress: Progress | None = None,
        should_stop: ShouldStop | None = None,
    ) -> np.ndarray:
        """Raises InputError, as BM25 measures which document answers a query, not how similar two texts are."""
        raise InputError(
            f"{BM25} ranks documents for queries: choose it for data such as beir:FOLDER, or another model"
        )

    def search(
        self, queries: Sequence[str], documents: Sequence[str], k: int, **watch: Any
    ) -> Ranking:
        """Finds the documents with the highest weights of the query's words, among documents with such a word."""
        query_counts, document_weights = bm25_weights(queries, documents)
        return highest_products(query_counts, document_weights, k, **watch)


def bm25_weights(
    queries: Sequence[str], documents: Sequence[str], k1: float = 0.9, b: float = 0.4
) -> tuple[csr_matrix, csr_matrix]:
    """Counts each of V words in the queries, (Q, V), and computes its weight in the documents, (N, V) float32.

    The weight of a word that occurs tf times in a document, and in n of N documents, is the same as
    in Lucene's BM25, with the BEIR paper's k1 and b:

        ln(1 + (N - n + 0.5) / (n + 0.5)) · tf · (k1 + 1) / (tf + k1 · (1 - b + b · length / mean))

    Source: Robertson and Zaragoza 2009, "The Probabilistic Relevance Framework: BM25 and Beyond".
    """
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import CountVectorizer

    # scikit-learn raises an error for an empty vocabulary.
    if not any(re.search(WORD_PATTERN, document) for document in documents):
        empty = np.zeros((len(queries) + len(documents), 0), dtype=np.float32)
        return csr_matrix(empty[: len(queries)]), csr_matrix(empty[len(queries) :])
    vectorizer = CountVectorizer(token_pattern=WORD_PATTERN, dtype=np.float32)
    counts = vectorizer.fit_transform(documents)
    lengths = np.asarray(counts.sum(axis=1)).ravel()  # (N,)
    # A word is stored once for each document that has it.
    n = np.bincount(counts.indices, minlength=counts.shape[1])  # (V,)
    idf = np.log1p((len(documents) - n + 0.5) / (n + 0.5))  # (V,)
    # The term of the equation that is added to tf, for each stored value.
    norms = np.repeat(k1 * (1 - b + b * lengths / lengths.mean()), np.diff(counts.indptr))
    weights = idf[counts.indices] * counts.data * (k1 + 1) / (counts.data + norms)
    counts.data = weights.astype(np.float32)
    return vectorizer.transform(queries), counts
