"""RecentEmbeddings: the vectors of the most recent sentences, as many as fit into 64 MB."""

import threading
from collections import OrderedDict
from collections.abc import Callable

import numpy as np

# 43,690 sentences in 384 dimensions.
CACHE_BYTES = 64 << 20
# The limit for vectors of fewer than 256 dimensions.
MOST_SENTENCES = 65_536
# Longer sentences rarely repeat, and take more memory than their embedding.
LONGEST_SENTENCE = 400


class RecentEmbeddings:
    """A cache of the embeddings of the most recently encoded sentences. The oldest are dropped first. Thread-safe."""

    def __init__(self, dimension: int, capacity: int | None = None) -> None:
        self.dimension = dimension
        self.capacity = capacity or min(MOST_SENTENCES, max(1, CACHE_BYTES // (4 * dimension)))
        self._embeddings: OrderedDict[str, np.ndarray] = OrderedDict()
        # The lock is not held while sentences are encoded.
        self._lock = threading.Lock()

    def get(self, texts: list[str], encode: Callable[[list[str]], np.ndarray]) -> np.ndarray:
        """Returns embeddings (N, D) float32 of distinct ``texts``. ``encode`` computes the ones that are not cached."""
        result = np.empty((len(texts), self.dimension), dtype=np.float32)
        missing = []
        with self._lock:
            for row, text in enumerate(texts):
                embedding = self._embeddings.get(text)
                if embedding is None:
                    missing.append(row)
                else:
                    result[row] = embedding
        if missing:
            result[missing] = encode([texts[row] for row in missing])
            with self._lock:
                for row in missing:
                    # A text that got NaN, as a server refused it, may get a vector next time.
                    has_vector = np.isfinite(result[row]).all()
                    if has_vector and len(texts[row]) <= LONGEST_SENTENCE:
                        # A view would keep all of ``result`` in memory.
                        self._embeddings[texts[row]] = result[row].copy()
                while len(self._embeddings) > self.capacity:
                    # The text that was encoded first is removed, even if it was found again since.
                    self._embeddings.popitem(last=False)
        return result
