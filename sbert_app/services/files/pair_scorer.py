"""PairScorer: columns of sentences in, cosines (and cross-encoder scores) out; repeated sentences are encoded once.

In a file of pairs sentences repeat: one premise with three hypotheses, one query with a hundred passages. Within a
call each distinct sentence is encoded once; `RecentEmbeddings` caches the most recent ones across calls. A cache
look-up takes a microsecond, an encoding half a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sbert_app.services.models.protocols import PairPredictor, SentenceEncoder

CACHE_BYTES = 64 << 20  # of embeddings: 43,690 sentences in 384 dimensions
MAX_CACHED = 65_536  # sentences, however small their embeddings
MAX_CACHED_LENGTH = 400  # characters: longer sentences rarely repeat, and take more memory than their embedding

ShouldStop = Callable[[], bool]
OnFraction = Callable[[float], None]  # how much of the work is done, 0 to 1


class RecentEmbeddings:
    """A cache of the embeddings of the most recently encoded sentences: a ring buffer of fixed size."""

    def __init__(self, dimension: int, capacity: int | None = None) -> None:
        self.capacity = capacity or min(MAX_CACHED, max(1, CACHE_BYTES // (4 * dimension)))
        self._embeddings = np.empty((self.capacity, dimension), dtype=np.float32)
        self._texts: list[str | None] = [None] * self.capacity
        self._slots: dict[str, int] = {}
        self._next = 0

    def get(self, texts: list[str], encode: Callable[[list[str]], np.ndarray]) -> np.ndarray:
        """Embeddings (N, D) of distinct ``texts``; ``encode`` is called with those that are not cached."""
        slots = np.array([self._slots.get(text, -1) for text in texts], dtype=np.int64)
        is_cached = slots >= 0
        result = np.empty((len(texts), self._embeddings.shape[1]), dtype=np.float32)
        result[is_cached] = self._embeddings[slots[is_cached]]
        missing = np.flatnonzero(~is_cached)
        if len(missing):
            new = [texts[position] for position in missing]
            result[missing] = encode(new)
            self._add(new, result[missing])
        return result

    def _add(self, texts: list[str], embeddings: np.ndarray) -> None:
        short = [row for row, text in enumerate(texts) if len(text) <= MAX_CACHED_LENGTH][-self.capacity :]
        slots = (self._next + np.arange(len(short))) % self.capacity
        for slot, row in zip(slots.tolist(), short, strict=True):
            evicted = self._texts[slot]
            if evicted is not None:
                del self._slots[evicted]
            self._texts[slot] = texts[row]
            self._slots[texts[row]] = slot
        self._embeddings[slots] = embeddings[short]
        self._next = int(self._next + len(short)) % self.capacity


class PairScorer:
    """Scores pairs by the cosine of an encoder's embeddings and, if there is one, by a cross-encoder."""

    def __init__(self, encoder: SentenceEncoder, cross_encoder: PairPredictor | None = None) -> None:
        self.encoder = encoder
        self.cross_encoder = cross_encoder
        self.encoded = 0  # sentences that went through the encoder
        self._cache = RecentEmbeddings(encoder.dimension)

    def score(
        self, firsts: list[str], seconds: list[str], on_fraction: OnFraction, should_stop: ShouldStop
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Returns cosines (N,) float32, and the cross-encoder's scores (N,) float32 or None.

        Raises:
            Stopped: ``should_stop`` became true.
        """
        encoder_part = 0.5 if self.cross_encoder is not None else 1.0  # of the work
        positions: dict[str, int] = {}  # of the distinct sentences
        rows = [positions.setdefault(text, len(positions)) for text in (*firsts, *seconds)]

        def encode(texts: list[str]) -> np.ndarray:
            self.encoded += len(texts)
            return self.encoder.encode(
                texts,
                normalize=True,
                on_progress=lambda done, _: on_fraction(encoder_part * done / len(texts)),
                should_stop=should_stop,
            )

        embeddings = self._cache.get(list(positions), encode)
        u, v = embeddings[rows[: len(firsts)]], embeddings[rows[len(firsts) :]]
        cosine = np.clip(np.einsum("nd,nd->n", u, v), -1, 1).astype(np.float32, copy=False)
        if self.cross_encoder is None:
            return cosine, None
        return cosine, self.cross_encoder.predict(
            list(zip(firsts, seconds, strict=True)),
            on_progress=lambda done, total: on_fraction(encoder_part + (1 - encoder_part) * done / total),
            should_stop=should_stop,
        )
