"""FAISS over unit vectors: exact up to 200,000 of them, an HNSW graph above."""

from __future__ import annotations

from typing import Any

import numpy as np

MOST_COMPARED = 200_000  # sentences up to which every one is compared
HNSW_LINKS, HNSW_BUILD, HNSW_SEARCH = 32, 80, 128  # links a node; candidates while building and while searching


class SearchIndex:
    """Vectors that can be searched. Thread-safe once it is made."""

    def __init__(self, vectors: np.ndarray) -> None:
        """``vectors``: float32 (N, D) of length 1."""
        import faiss

        self.exact = len(vectors) <= MOST_COMPARED
        dimension = vectors.shape[1]
        if self.exact:
            self._index: Any = faiss.IndexFlatIP(dimension)
        else:
            self._index = faiss.IndexHNSWFlat(dimension, HNSW_LINKS, faiss.METRIC_INNER_PRODUCT)
            self._index.hnsw.efConstruction = HNSW_BUILD
            self._index.hnsw.efSearch = HNSW_SEARCH
        self._index.add(np.ascontiguousarray(vectors, dtype=np.float32))

    def nearest(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k nearest of each query, best first: cosines (Q, k) float32 and rows (Q, k) int64; k ≤ N."""
        cosines, rows = self._index.search(np.ascontiguousarray(queries, dtype=np.float32), k)
        return np.minimum(cosines, 1), rows
