"""Models of words: TF-IDF and BM25, and what all models have whose vectors are weights of words, most of them 0.

BM25 is written here: scikit-learn counts the words, scipy multiplies, and one formula is left, which is no reason for
another dependency. Words are neither stemmed nor left out, as Lucene does, with which the BEIR paper measured.
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
MAX_DENSE_BYTES = 1 << 30  # of sparse vectors that are made dense
PROGRESS_EVERY = 4_096  # sentences between two calls of on_progress
PRODUCTS = 1 << 24  # scores of sparse vectors that are in memory at a time


class SparseModel(Model, Retriever):
    """A model with a number for each word or token, most of them 0."""

    kind = "sparse encoder"
    pooling = NO_POOLING

    @abstractmethod
    def encode_sparse(
        self, sentences: Sequence[str], on_progress: Progress | None = None, should_stop: ShouldStop | None = None
    ) -> csr_matrix:
        """Sentences -> float32 (N, V), in the caller's order."""

    @abstractmethod
    def weigh(self, queries: Sequence[str], documents: Sequence[str], **watch: Any) -> tuple[csr_matrix, csr_matrix]:
        """Queries and documents -> float32 (Q, V), (N, V), whose dot products rank the documents."""

    def encode(
        self,
        sentences: Sequence[str],
        normalize: bool | None = True,
        on_progress: Progress | None = None,
        should_stop: ShouldStop | None = None,
    ) -> np.ndarray:
        """Sentences -> dense float32 (N, V), of length 1 if ``normalize``. InputError above a gigabyte."""
        matrix = self.encode_sparse(sentences, on_progress, should_stop)
        if 4 * matrix.shape[0] * matrix.shape[1] > MAX_DENSE_BYTES:
            raise InputError(
                f"{ModelName(self.name).label} vectors of {matrix.shape[0]:,} sentences with {matrix.shape[1]:,} "
                "different words do not fit in memory; give fewer sentences"
            )
        return normalize_rows(matrix.toarray()) if normalize else matrix.toarray()

    def score(
        self, pairs: Sequence[Pair], on_progress: Progress | None = None, should_stop: ShouldStop | None = None
    ) -> np.ndarray:
        """The cosine of each pair, float32 (N,)."""
        matrix = self.encode_sparse([pair[side] for side in (0, 1) for pair in pairs], on_progress, should_stop)
        lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1))).ravel()
        products = np.asarray(matrix[: len(pairs)].multiply(matrix[len(pairs) :]).sum(axis=1)).ravel()
        return products / np.maximum(np.multiply(*np.split(lengths, 2)), 1e-12)

    def search(self, queries: Sequence[str], documents: Sequence[str], k: int, **watch: Any) -> Ranking:
        """The documents with the highest dot products with the query, of those above zero."""
        return highest_products(*self.weigh(queries, documents, **watch), k, should_stop=watch.get("should_stop"))


def highest_products(queries: csr_matrix, documents: csr_matrix, k: int, **watch: Any) -> Ranking:
    """For each row of (Q, V) the rows of (N, V) with the highest dot products, of those above zero."""
    columns = documents.T.tocsr()
    size = max(1, PRODUCTS // max(1, documents.shape[0]))
    blocks = (queries[start : start + size] @ columns for start in steps(range(0, queries.shape[0], size), **watch))
    parts = ((block, ends) for block in blocks for ends in pairwise(block.indptr))
    return [best_rows(block.indices[a:b], block.data[a:b], k) for block, (a, b) in parts]


class TfIdf(SparseModel):
    """Term frequency × inverse document frequency, each sentence scaled to length 1: scikit-learn's TfidfVectorizer.

    The weight of a word that occurs in d of n sentences is ln((1 + n) / (1 + d)) + 1. It is fitted on the sentences
    that are encoded: vectors of two calls cannot be compared.
    """

    name = TFIDF

    def encode_sparse(
        self, sentences: Sequence[str], on_progress: Progress | None = None, should_stop: ShouldStop | None = None
    ) -> csr_matrix:
        """Sentences -> float32 (N, V) with a column for each different word; a row without words is zero."""
        # They take a second to import.
        from scipy.sparse import csr_matrix
        from sklearn.feature_extraction.text import TfidfVectorizer

        # scikit-learn raises an error where there is no word.
        if not any(re.search(WORD_PATTERN, sentence) for sentence in sentences):
            return csr_matrix(np.zeros((len(sentences), 0), dtype=np.float32))
        parts = steps(range(0, len(sentences), PROGRESS_EVERY), on_progress, should_stop)
        read = chain.from_iterable(sentences[start : start + PROGRESS_EVERY] for start in parts)
        matrix = TfidfVectorizer(token_pattern=WORD_PATTERN).fit_transform(read)
        return csr_matrix(matrix, dtype=np.float32)

    def weigh(self, queries: Sequence[str], documents: Sequence[str], **watch: Any) -> tuple[csr_matrix, csr_matrix]:
        """The weights of both, fitted on them together."""
        matrix = self.encode_sparse([*queries, *documents], **watch)
        return matrix[: len(queries)], matrix[len(queries) :]


class Bm25(Model, Retriever):
    """BM25, which ranks documents for queries, and scores no pairs."""

    kind = "ranking by words"
    name = BM25

    def score(
        self, pairs: Sequence[Pair], on_progress: Progress | None = None, should_stop: ShouldStop | None = None
    ) -> np.ndarray:
        """InputError: its scores say which document answers a query, and not how similar two texts are."""
        raise InputError(
            f"{BM25} ranks documents for queries: choose it for data such as beir:FOLDER, or another model"
        )

    def search(self, queries: Sequence[str], documents: Sequence[str], k: int, **watch: Any) -> Ranking:
        """The documents with the highest weights of the query's words, of those that have one."""
        return highest_products(*bm25_weights(queries, documents), k, **watch)


def bm25_weights(
    queries: Sequence[str], documents: Sequence[str], k1: float = 0.9, b: float = 0.4
) -> tuple[csr_matrix, csr_matrix]:
    """How often each of V words occurs in the queries, (Q, V), and its weight in the documents, (N, V) float32.

    The weight of a word that occurs tf times in a document, and in n of N documents, is that of Lucene's BM25, with the
    BEIR paper's k1 and b: ln(1 + (N - n + 0.5) / (n + 0.5)) · tf · (k1 + 1) / (tf + k1 · (1 - b + b · length / mean)).
    Source: Robertson and Zaragoza 2009, "The Probabilistic Relevance Framework: BM25 and Beyond".
    """
    from sklearn.feature_extraction.text import CountVectorizer

    vectorizer = CountVectorizer(token_pattern=WORD_PATTERN, dtype=np.float32)
    has_words = any(re.search(WORD_PATTERN, document) for document in documents)
    counts = vectorizer.fit_transform(documents if has_words else ["none"] * len(documents))
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    n = np.bincount(counts.indices, minlength=counts.shape[1])
    idf = np.log1p((len(documents) - n + 0.5) / (n + 0.5))
    norms = np.repeat(k1 * (1 - b + b * lengths / lengths.mean()), np.diff(counts.indptr))
    counts.data = (idf[counts.indices] * counts.data * (k1 + 1) / (counts.data + norms)).astype(np.float32)
    return vectorizer.transform(queries), counts
