"""The search index over unit vectors, whose dot product is the cosine.

Up to 200,000 vectors every one is compared: exact, a few milliseconds. More are quantized to one bit or one byte a
dimension, and the best compared again in float32.

Every quantized vector is compared with the query, which reads 32 or 4 times less memory than the vectors themselves.
The best of them, the candidates, are then compared exactly ("rescoring"). The cosines that are returned are exact; a
neighbour is missed only if it is not among the candidates.

One bit is the sign of a dimension less its mean over all vectors; such vectors are compared by the number of bits in
which they differ (Hamming distance). One byte divides the range of a dimension into 256 steps.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

MAX_EXACT = 200_000  # vectors up to which every one is compared


class SearchIndex:
    """Vectors that are all compared: exact. Immutable, thread-safe."""

    exact = True

    def __init__(self, vectors: np.ndarray) -> None:
        """``vectors``: float32 (N, D), unit length."""
        import faiss

        self._index: Any = faiss.IndexFlatIP(vectors.shape[1])
        self._index.add(np.ascontiguousarray(vectors, dtype=np.float32))

    def nearest(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k nearest of each query (Q, D), best first: cosines (Q, k) float32 and rows (Q, k) int64; k ≤ N."""
        cosines, rows = self._index.search(np.ascontiguousarray(queries, dtype=np.float32), k)
        return np.minimum(cosines, 1), rows


BITS = (1, 8)  # a dimension
CANDIDATES = {1: 1_000, 8: 100}  # at least so many are rescored
CANDIDATES_PER_RESULT = {1: 40, 8: 4}  # or so many times k, if that is more
MIN_PART = 50_000  # vectors that are worth a thread of their own
CHUNK = 65_536  # vectors that are quantized at a time


class QuantizedIndex:
    """Unit vectors to search in. Immutable, thread-safe.

    Beside ``vectors``, which are not copied and may be a memory map, it holds ``bits`` / 32 of their size.
    """

    exact = False

    def __init__(self, vectors: np.ndarray, bits: int = 1) -> None:
        """``vectors``: float32 (N, D), unit length. ``bits``: 1 or 8. Raises ValueError for another number."""
        from training import parallel

        if bits not in BITS:
            raise ValueError(f"vectors are quantized to {' or '.join(map(str, BITS))} bits a dimension, not {bits}")
        self._vectors, self.bits = vectors, bits
        self._mean = vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
        parts = max(1, min(parallel.num_threads(), len(vectors) // MIN_PART))
        edges = np.linspace(0, len(vectors), parts + 1, dtype=np.int64)
        self._parts = [(int(a), self._quantized(vectors[a:b])) for a, b in pairwise(edges)]

    def nearest(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k nearest of each query (Q, D), best first: cosines (Q, k) float32 and rows (Q, k) int64; k ≤ N."""
        from training import parallel

        queries = np.ascontiguousarray(queries, dtype=np.float32)
        count = min(max(CANDIDATES[self.bits], k * CANDIDATES_PER_RESULT[self.bits]), len(self._vectors))
        searches = [partial(self._candidates, queries, count, first, part) for first, part in self._parts]
        candidates = np.concatenate(parallel.run_parallel(searches), axis=1)
        found = [self._rescore(query, rows, k) for query, rows in zip(queries, candidates, strict=True)]
        return np.stack([cosines for cosines, _ in found]), np.stack([rows for _, rows in found])

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
        """What FAISS takes: bits as uint8 (N, D/8), or float32 (N, D), which it quantizes itself."""
        if self.bits == 1:
            return np.packbits(vectors > self._mean, axis=1)
        return np.ascontiguousarray(vectors, dtype=np.float32)

    def _candidates(self, queries: np.ndarray, count: int, first: int, part: Any) -> np.ndarray:
        """The rows of the ``count`` best quantized vectors of a part, or all of it: int64 (Q, C)."""
        return part.search(self._encoded(queries), min(count, part.ntotal))[1] + first

    def _rescore(self, query: np.ndarray, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k nearest of the candidates by their exact cosine; of equal ones the first."""
        rows = np.sort(rows)  # in the order in which they lie in memory
        cosines = self._vectors[rows] @ query
        best = np.lexsort((rows, -cosines))[:k]
        return np.minimum(cosines[best], 1), rows[best]
