"""The search among sentence vectors: similarities, the nearest to a query, the most similar pairs.

    similarity(u, v)                                 (N, M): each with each
    semantic_search(queries, corpus, top_k=10)       for each query the nearest of the corpus
    paraphrase_mining(encoder, sentences)            the most similar pairs of all

**Search.** `SearchIndex` compares every vector. `QuantizedIndex` compares every vector too, quantized to one bit or one
byte a dimension, which reads 32 or 4 times less memory. The best of them, the candidates, are then compared exactly
("rescoring"). The cosines that are returned are exact; a neighbour is missed only if it is not among the candidates.
One bit is the sign of a dimension less its mean over all vectors; such vectors are compared by the number of bits in
which they differ (Hamming distance). One byte divides the range of a dimension into 256 steps.

**Pairs.** For unit vectors the cosines of all pairs are one matrix product (section 1 of the paper). It is computed in
blocks of the upper triangle, so memory is bounded: 10,000 sentences have 50 million cosines, 100,000 have five billion.
"""

import math
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from training import parallel
from training.errors import InputError
from training.pooling import normalize_rows
from training.progress import steps
from training.similarities import SIMILARITIES, Similarity

Vectors = TypeVar("Vectors", np.ndarray, Tensor)
ScoreFunction = Callable[[Tensor, Tensor], Tensor]  # (N, D), (M, D) -> (N, M); larger = more similar


def similarity(u: Vectors, v: Vectors, function: str = "cosine") -> Vectors:
    """The similarity of each vector with each: float32 (N, D), (M, D) -> (N, M); one vector (D,) counts as (1, D).

    Args:
        u: NumPy or tensor; the result is of the same kind.
        v: NumPy or tensor; InputError if its vectors have another length.
        function: cosine, dot, or a negative distance, euclidean or manhattan (`SIMILARITIES`). InputError for another.
    """
    first = as_rows(u)
    second = as_rows(v)
    check_dimensions(first, second)
    similarities = _score_function(function)(first, second)
    return similarities if isinstance(u, Tensor) else similarities.numpy()


def pairwise_similarity(u: Vectors, v: Vectors, function: str = "cosine") -> Vectors:
    """The similarity of the vectors row by row: float32 (N, D), (N, D) -> (N,).

    The arguments are those of `similarity`. InputError also if the numbers of vectors differ.
    """
    first = as_rows(u)
    second = as_rows(v)
    check_dimensions(first, second)
    if len(first) != len(second):
        raise InputError(f"{len(first):,} and {len(second):,} vectors cannot be compared row by row")
    similarities = _named(function).tensor_rows(first, second)
    return similarities if isinstance(u, Tensor) else similarities.numpy()


def _score_function(function: str | ScoreFunction) -> ScoreFunction:
    return function if callable(function) else _named(function).matrix


def _named(function: str) -> Similarity:
    if function not in SIMILARITIES:
        raise InputError(f"similarity {function!r} is unknown; choose {', '.join(SIMILARITIES)}")
    return SIMILARITIES[function]


def as_rows(vectors: np.ndarray | Tensor) -> Tensor:
    """Vectors as a float32 tensor (N, D), not copied if they are float32; one vector (D,) becomes (1, D)."""
    with warnings.catch_warnings():
        # The warning is about a read-only memory map, to which nothing is written.
        warnings.simplefilter("ignore")
        rows = vectors if isinstance(vectors, Tensor) else torch.from_numpy(np.asarray(vectors, dtype=np.float32))
    return rows.float() if rows.ndim == 2 else rows.float()[None]


def check_dimensions(first: Tensor | np.ndarray, second: Tensor | np.ndarray) -> None:
    """InputError unless the rows of both have the same length."""
    if first.shape[1] != second.shape[1]:
        raise InputError(
            f"vectors of {first.shape[1]} and of {second.shape[1]} dimensions cannot be compared; encode both with one "
            "model"
        )


QUERIES = 128
ROWS = 65_536
# The bits of a dimension.
BITS = (1, 8)
# The fewest candidates that are rescored, by bits.
CANDIDATES = {1: 1_000, 8: 100}
# Candidates for each of the k results, if these are more.
CANDIDATES_PER_RESULT = {1: 40, 8: 4}
# The queries that an index of one bit is checked with, and the recall that it must have.
CHECKED = 20
MIN_RECALL = 0.95
# The vectors that are worth a thread of their own.
MIN_PART = 50_000
CHUNK = 65_536


class SearchIndex:
    """Vectors that are all compared: exact. Immutable, thread-safe."""

    exact = True

    def __init__(
        self,
        vectors: np.ndarray | Tensor,
        function: str | ScoreFunction = "cosine",
        query_chunk_size: int = QUERIES,
        corpus_chunk_size: int = ROWS,
    ) -> None:
        """``vectors``: (N, D). ``function``: one of `SIMILARITIES`, or a function (Q, D), (N, D) -> (Q, N).

        The chunks are the queries and the vectors that are compared at a time.
        """
        self._query_chunk_size = query_chunk_size
        self._corpus_chunk_size = corpus_chunk_size
        self._is_cosine = function == "cosine"
        self._score = SIMILARITIES["dot"].matrix if self._is_cosine else _score_function(function)
        self._vectors = F.normalize(as_rows(vectors), dim=1) if self._is_cosine else as_rows(vectors)

    def __len__(self) -> int:
        return len(self._vectors)

    @torch.inference_mode()
    def nearest(self, queries: np.ndarray | Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k nearest of each query (Q, D), best first: scores (Q, k) float32 and rows (Q, k) int64; k ≤ N.

        The first of equal ones comes first. InputError if the queries have another number of dimensions.
        """
        rows_of_queries = as_rows(queries).to(self._vectors.device)
        check_dimensions(rows_of_queries, self._vectors)
        rows_of_queries = F.normalize(rows_of_queries, dim=1) if self._is_cosine else rows_of_queries
        neighbours = [self._nearest(part, k) for part in rows_of_queries.split(self._query_chunk_size)]
        scores, rows = (np.concatenate(parts) for parts in zip(*neighbours, strict=True))
        order = np.lexsort((rows, -scores))
        scores = np.take_along_axis(scores, order, 1)
        rows = np.take_along_axis(rows, order, 1)
        return np.minimum(scores, 1) if self._is_cosine else scores, rows

    def _nearest(self, queries: Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
        scores = queries.new_empty(len(queries), 0)
        rows = torch.empty(len(queries), 0, dtype=torch.int64, device=queries.device)
        for start in range(0, len(self), self._corpus_chunk_size):
            block = self._score(queries, self._vectors[start : start + self._corpus_chunk_size])
            best = block.topk(min(k, block.shape[1]))
            scores = torch.cat([scores, best.values], 1)
            rows = torch.cat([rows, best.indices + start], 1)
            scores, places = scores.topk(min(k, scores.shape[1]))
            rows = rows.gather(1, places)
        return scores.cpu().numpy(), rows.cpu().numpy()


class QuantizedIndex:
    """Unit vectors to search in. Immutable, thread-safe.

    Beside ``vectors``, which are not copied and may be a memory map, it holds ``bits`` / 32 of their size.
    """

    exact = False

    def __init__(self, vectors: np.ndarray, bits: int = 1) -> None:
        """``vectors``: float32 (N, D), unit length. ``bits``: 1 or 8. Raises ValueError for another number."""
        # The result of `checked_index` in words.
        self.note = ""
        if bits not in BITS:
            raise ValueError(f"vectors are quantized to {' or '.join(map(str, BITS))} bits a dimension, not {bits}")
        self._vectors = vectors
        self.bits = bits
        self._mean = vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
        parts = max(1, min(parallel.num_threads(), len(vectors) // MIN_PART))
        edges = np.linspace(0, len(vectors), parts + 1, dtype=np.int64)
        self._parts = [(int(a), self._quantized(vectors[a:b])) for a, b in pairwise(edges)]

    def __len__(self) -> int:
        return len(self._vectors)

    def nearest(self, queries: np.ndarray | Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k nearest of each query (Q, D), best first: cosines (Q, k) float32 and rows (Q, k) int64; k ≤ N."""
        queries = np.ascontiguousarray(normalize_rows(as_rows(queries).cpu().numpy()))
        count = min(max(CANDIDATES[self.bits], k * CANDIDATES_PER_RESULT[self.bits]), len(self._vectors))
        searches = [partial(self._candidates, queries, count, first, part) for first, part in self._parts]
        candidates = np.concatenate(parallel.run_parallel(searches), axis=1)
        neighbours = []
        for query, rows in zip(queries, candidates, strict=True):
            # In the order in which they lie in memory.
            rows = np.sort(rows)
            cosines = self._vectors[rows] @ query
            best = np.lexsort((rows, -cosines))[:k]
            neighbours.append((np.minimum(cosines[best], 1), rows[best]))
        return np.stack([cosines for cosines, _ in neighbours]), np.stack([rows for _, rows in neighbours])

    def _quantized(self, vectors: np.ndarray) -> Any:
        """A FAISS index of one part of the vectors."""
        import faiss

        dimension = vectors.shape[1]
        index: Any
        if self.bits == 8:
            index = faiss.IndexScalarQuantizer(dimension, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT)
            index.train(np.ascontiguousarray(vectors[:: max(1, len(vectors) // CHUNK)], dtype=np.float32))
        else:
            index = faiss.IndexBinaryFlat(-(-dimension // 8) * 8)
        for start in range(0, len(vectors), CHUNK):
            index.add(self._encoded(vectors[start : start + CHUNK]))
        return index

    def _encoded(self, vectors: np.ndarray) -> np.ndarray:
        """The input of FAISS: bits as uint8 (N, D/8), or float32 (N, D), which it quantizes itself."""
        if self.bits == 1:
            return np.packbits(vectors > self._mean, axis=1)
        return np.ascontiguousarray(vectors, dtype=np.float32)

    def _candidates(self, queries: np.ndarray, count: int, first: int, part: Any) -> np.ndarray:
        """The rows of the ``count`` best quantized vectors of a part, or all of it: int64 (Q, C)."""
        return part.search(self._encoded(queries), min(count, part.ntotal))[1] + first


def checked_index(vectors: np.ndarray) -> QuantizedIndex:
    """An index of unit vectors (N, D) by one bit; by one byte where that finds less than 95% of the nearest ten.

    Twenty of the vectors are the queries. The check is needed, as signs say little about vectors whose variance lies
    in a few dimensions. The ``note`` of the index reports the result.
    """
    index = QuantizedIndex(vectors)
    queries = np.array(vectors[np.linspace(0, len(vectors) - 1, CHECKED).astype(np.int64)])
    # A query finds itself too.
    count = min(11, len(vectors))
    exact = SearchIndex(vectors, "dot").nearest(queries, count)[0][:, 1:]
    cosines = index.nearest(queries, count)[0][:, 1:]
    # Equal cosines count as hits.
    recall = float((cosines >= exact[:, -1:] - 1e-6).mean()) if count > 1 else 1.0
    is_enough = recall >= MIN_RECALL
    index = index if is_enough else QuantizedIndex(vectors, bits=8)
    finding = f"By one bit a dimension {CHECKED} queries found {recall:.0%} of their ten nearest"
    index.note = f"{finding}." if is_enough else f"{finding}, which is too few; this index has one byte a dimension."
    return index


def semantic_search(
    query_embeddings: np.ndarray | Tensor,
    corpus_embeddings: np.ndarray | Tensor | SearchIndex | QuantizedIndex,
    top_k: int = 10,
    score_function: str | ScoreFunction = "cosine",
    query_chunk_size: int = QUERIES,
    corpus_chunk_size: int = ROWS,
) -> list[list[dict[str, Any]]]:
    """For each query the ``top_k`` nearest of the corpus, best first: ``corpus_id`` (row) and ``score``.

    Args:
        query_embeddings: float32 (Q, D); one query may be (D,). InputError if the corpus has another D.
        corpus_embeddings: float32 (N, D), or an index of them, which serves any number of calls: a `SearchIndex`, or a
            `QuantizedIndex` of vectors of length 1, which compares one bit or one byte a dimension and then the best
            candidates exactly.
        top_k: the number of results; a smaller corpus has fewer. InputError if it is less than 1.
        score_function: cosine, dot, euclidean, manhattan, or a function (Q, D), (N, D) -> (Q, N) of tensors. An
            index has its own.
        query_chunk_size: the queries that are compared at a time.
        corpus_chunk_size: the vectors that they are compared with at a time. An index has its own.
    """
    if top_k < 1:
        raise InputError(f"top_k is {top_k}; it must be at least 1")
    index = corpus_embeddings
    if not isinstance(index, SearchIndex | QuantizedIndex):
        index = SearchIndex(index, score_function, query_chunk_size, corpus_chunk_size)
    queries = as_rows(query_embeddings)
    if not len(index) or not len(queries):
        return [[] for _ in queries]
    neighbours = index.nearest(queries, min(top_k, len(index)))
    return [
        [{"corpus_id": row, "score": score} for score, row in zip(*hits, strict=True)]
        for hits in zip(*(column.tolist() for column in neighbours), strict=True)
    ]


# The rows and columns of a block, which fits in a core's cache together with its operands.
BLOCK = 1_024
# The time of all blocks is estimated from those of so many rows of blocks.
SAMPLED_BLOCKS = 4


def paraphrase_mining(
    encoder: Any, sentences: Sequence[str], max_pairs: int = 500_000, threshold: float = -1.0, **options: Any
) -> list[tuple[float, int, int]]:
    """The most similar of all pairs of sentences: (cosine, i, j) with i < j, best first.

    Args:
        encoder: a bi-encoder: an `Encoder`, or another model with ``encode(sentences)``.
        sentences: N of them; each pair is compared exactly, N(N−1)/2 in all.
        max_pairs: the most pairs to return. InputError if it is less than 1.
        threshold: the lowest cosine.
        options: the options of ``encode``.
    """
    vectors = normalize_rows(encoder.encode(sentences, **options))
    return [(cosine, i, j) for i, j, cosine in most_similar_pairs(vectors, max_pairs, threshold)]


def most_similar_pairs(
    vectors: np.ndarray, k: int, threshold: float = -1.0, **watch: Any
) -> list[tuple[int, int, float]]:
    """The k pairs of highest cosine: (i, j, cosine) with i < j, best first; among equals by i, then j.

    Exact for unit vectors, float32 (N, D), and a cosine of ``threshold`` or more. If more than k pairs share the lowest
    cosine, the ones found first are returned. ``watch`` has on_progress and should_stop. InputError if k is below 1.
    """
    if k < 1:
        raise InputError(f"the number of pairs is {k:,}; it must be at least 1.")
    exact = as_rows(np.ascontiguousarray(vectors, dtype=np.float32))
    cosine = np.empty(0, dtype=np.float32)
    pairs = np.empty((2, 0), dtype=np.int64)
    for rows, columns in steps(_triangle(len(vectors)), **watch):
        full = len(cosine) == k
        bound = float(cosine.min()) if full else threshold
        block = _cosines(exact, rows, columns)
        is_better = block > bound if full else block >= bound
        # Each pair counts once, and no sentence is paired with itself.
        if rows == columns:
            is_better = np.triu(is_better, 1)
        better = np.flatnonzero(is_better)
        if len(better):
            i, j = np.divmod(better, block.shape[1])
            cosine = np.concatenate([cosine, block.ravel()[better]])
            pairs = np.concatenate([pairs, np.stack([i + rows.start, j + columns.start])], axis=1)
            if len(cosine) > k:
                lowest = np.partition(cosine, len(cosine) - k)[len(cosine) - k]
                above = np.flatnonzero(cosine > lowest)
                # The first of equal ones stay.
                highest = np.concatenate([above, np.flatnonzero(cosine == lowest)[: k - len(above)]])
                cosine = cosine[highest]
                pairs = pairs[:, highest]
    order = np.lexsort((pairs[1], pairs[0], -cosine))
    best = (pairs[0, order], pairs[1, order], cosine[order])
    return list(zip(*(column.tolist() for column in best), strict=True))


def estimate_seconds(vectors: np.ndarray) -> float:
    """About how long comparing each vector with each takes on this machine, from the time of a few blocks."""
    n = min(len(vectors), SAMPLED_BLOCKS * BLOCK)
    sample = as_rows(np.array(vectors[:n]))
    started = time.perf_counter()
    blocks = _triangle(n)
    for rows, columns in blocks:
        _cosines(sample, rows, columns)
    count = -(-len(vectors) // BLOCK)
    return (time.perf_counter() - started) / max(len(blocks), 1) * count * (count + 1) / 2


def _triangle(n: int) -> list[tuple[slice, slice]]:
    """The blocks (rows, columns) of the upper triangle of n cosines by n."""
    parts = [slice(start, start + BLOCK) for start in range(0, n, BLOCK)]
    return [(block, columns) for i, block in enumerate(parts) for columns in parts[i:]]


@torch.inference_mode()
def _cosines(vectors: Tensor, rows: slice, columns: slice) -> np.ndarray:
    """The cosines of some unit vectors with others, float32 (R, C), at most 1."""
    return (vectors[rows] @ vectors[columns].T).clamp_(max=1).numpy()


# The most vectors of which all pairs are compared, and the cells that are searched among more.
MAX_EXACT = 50_000
PROBED_CELLS = 16
SEED = 1_234


def neighbour_index(vectors: np.ndarray, queries: int, is_filled: bool = True) -> Any:
    """A FAISS index of float32 (N, D) by dot product for so many queries; empty, but trained, unless ``is_filled``.

    It is exact up to as many comparisons as those of all pairs of 50,000 vectors. Beyond, it is an inverted file
    (k-means cells, 16 of them probed), which finds 92 of 100 neighbours (k = 15, 26,745 sentences of STS) in a tenth of
    the time, and is deterministic.
    """
    import faiss

    n, dimension = vectors.shape
    index: Any = faiss.IndexFlatIP(dimension)
    if n * queries > MAX_EXACT**2:
        index = faiss.IndexIVFFlat(index, dimension, round(3.2 * math.sqrt(n)), faiss.METRIC_INNER_PRODUCT)
        index.cp.niter = 6
        index.cp.max_points_per_centroid = 64
        index.cp.seed = SEED
        index.train(vectors)
        index.nprobe = PROBED_CELLS
    if is_filled:
        index.add(vectors)
    return index
