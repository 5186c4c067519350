"""RecentEmbeddings: vectors by their sentences, as many as fit into 64 MB."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

CACHE_BYTES = 64 << 20  # of embeddings: 43,690 sentences in 384 dimensions
MAX_CACHED = 65_536  # sentences, however small their embeddings
MAX_CACHED_LENGTH = 400  # characters: longer sentences rarely repeat, and take more memory than their embedding


class RecentEmbeddings:
    """A cache of the embeddings of the most recently encoded sentences: a ring buffer of fixed size. Thread-safe."""

    def __init__(self, dimension: int, capacity: int | None = None) -> None:
        self.capacity = capacity or min(MAX_CACHED, max(1, CACHE_BYTES // (4 * dimension)))
        self._embeddings = np.empty((self.capacity, dimension), dtype=np.float32)
        self._texts: list[str | None] = [None] * self.capacity
        self._slots: dict[str, int] = {}
        self._next = 0
        self._lock = threading.Lock()  # not held while sentences are encoded

    def get(self, texts: list[str], encode: Callable[[list[str]], np.ndarray]) -> np.ndarray:
        """Embeddings (N, D) of distinct ``texts``; ``encode`` is called with those that are not cached."""
        result = np.empty((len(texts), self._embeddings.shape[1]), dtype=np.float32)
        with self._lock:
            slots = np.array([self._slots.get(text, -1) for text in texts], dtype=np.int64)
            is_cached = slots >= 0
            result[is_cached] = self._embeddings[slots[is_cached]]
        missing = np.flatnonzero(~is_cached)
        if len(missing):
            new = [texts[position] for position in missing]
            result[missing] = encode(new)
            with self._lock:
                self._add(new, result[missing])
        return result

    def _add(self, texts: list[str], embeddings: np.ndarray) -> None:
        short = [row for row, text in enumerate(texts) if len(text) <= MAX_CACHED_LENGTH][-self.capacity :]
        slots = (self._next + np.arange(len(short))) % self.capacity
        for slot, row in zip(slots.tolist(), short, strict=True):
            evicted = self._texts[slot]
            if evicted is not None and self._slots.get(evicted) == slot:  # else it was added again since
                del self._slots[evicted]
            self._texts[slot] = texts[row]
            self._slots[texts[row]] = slot
        self._embeddings[slots] = embeddings[short]
        self._next = int(self._next + len(short)) % self.capacity
