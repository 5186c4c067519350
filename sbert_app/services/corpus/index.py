"""The search index: FAISS over unit vectors, whose dot product is the cosine.

Up to 200,000 vectors every one is compared (IndexFlatIP: exact, a few milliseconds). Above, an HNSW graph is searched
(IndexHNSWFlat: approximate, and not slower with a million vectors).
"""

from __future__ import annotations

from typing import Any

import numpy as np

MAX_EXACT = 200_000  # vectors up to which every one is compared
HNSW_M, HNSW_EF_CONSTRUCTION, HNSW_EF_SEARCH = 32, 80, 128


class SearchIndex:
    """Vectors to search in. Immutable, thread-safe."""

    def __init__(self, vectors: np.ndarray) -> None:
        """``vectors``: float32 (N, D), unit length."""
        import faiss

        self.exact = len(vectors) <= MAX_EXACT
        dimension = vectors.shape[1]
        if self.exact:
            self._index: Any = faiss.IndexFlatIP(dimension)
        else:
            self._index = faiss.IndexHNSWFlat(dimension, HNSW_M, faiss.METRIC_INNER_PRODUCT)
            self._index.hnsw.efConstruction = HNSW_EF_CONSTRUCTION
            self._index.hnsw.efSearch = HNSW_EF_SEARCH
        self._index.add(np.ascontiguousarray(vectors, dtype=np.float32))

    def nearest(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k nearest of each query (Q, D), best first: cosines (Q, k) float32 and rows (Q, k) int64; k ≤ N.

        A row is −1 where the graph found fewer than k.
        """
        cosines, rows = self._index.search(np.ascontiguousarray(queries, dtype=np.float32), k)
        return np.minimum(cosines, 1), rows
