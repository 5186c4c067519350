"""PairScorer: columns of sentences in, cosines (and cross-encoder scores) out, with a memory for what repeats.

In a file of pairs sentences come back: one premise with three hypotheses, one query with a hundred passages.
Within a call each different sentence is encoded once; ``RecentVectors`` remembers the latest of them across
calls. A look-up costs a microsecond, an encoding half a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

REMEMBERED_BYTES = 64 << 20  # of vectors: 43,690 sentences in 384 dimensions
MOST_REMEMBERED = 65_536  # sentences, however small their vectors
LONGEST_REMEMBERED = 400  # characters: longer sentences rarely repeat, and their text would cost more than the vector

Stop = Callable[[], bool]
Share = Callable[[float], None]  # how much of the work is done, 0 to 1


class SentenceEncoder(Protocol):
    """What scoring needs of an encoder; ``training.models.encoder.Encoder`` has it."""

    @property
    def name(self) -> str: ...
    @property
    def pooling(self) -> str: ...
    @property
    def dimension(self) -> int: ...
    def encode(
        self,
        sentences: Sequence[str],
        normalize: bool | None = True,
        on_progress: Callable[[int, int | None], None] | None = None,
        should_stop: Stop | None = None,
    ) -> np.ndarray: ...


class PairPredictor(Protocol):
    """What scoring needs of a cross-encoder; ``training.models.cross_encoder.CrossEncoder`` has it."""

    @property
    def name(self) -> str: ...
    def predict(
        self,
        pairs: Sequence[tuple[str, str]],
        on_progress: Callable[[int, int], None] | None = None,
        should_stop: Stop | None = None,
    ) -> np.ndarray: ...


class RecentVectors:
    """The vectors of the sentences encoded last, in a ring of fixed size."""

    def __init__(self, dimension: int, capacity: int | None = None) -> None:
        self.capacity = capacity or min(MOST_REMEMBERED, max(1, REMEMBERED_BYTES // (4 * dimension)))
        self._vectors = np.empty((self.capacity, dimension), dtype=np.float32)
        self._texts: list[str | None] = [None] * self.capacity
        self._slots: dict[str, int] = {}
        self._next = 0

    def vectors(self, texts: list[str], encode: Callable[[list[str]], np.ndarray]) -> np.ndarray:
        """Different ``texts`` -> (N, D), of which ``encode`` is asked only for those not remembered."""
        slots = np.array([self._slots.get(text, -1) for text in texts], dtype=np.int64)
        missing = np.flatnonzero(slots < 0)
        found = np.empty((len(texts), self._vectors.shape[1]), dtype=np.float32)
        known = slots >= 0
        found[known] = self._vectors[slots[known]]
        if len(missing):
            new = [texts[at] for at in missing]
            found[missing] = encode(new)
            self._remember(new, found[missing])
        return found

    def _remember(self, texts: list[str], vectors: np.ndarray) -> None:
        short = [at for at, text in enumerate(texts) if len(text) <= LONGEST_REMEMBERED][-self.capacity :]
        places = (self._next + np.arange(len(short))) % self.capacity
        for place, at in zip(places.tolist(), short, strict=True):
            forgotten = self._texts[place]
            if forgotten is not None:
                del self._slots[forgotten]
            self._texts[place] = texts[at]
            self._slots[texts[at]] = place
        self._vectors[places] = vectors[short]
        self._next = int(self._next + len(short)) % self.capacity


class PairScorer:
    """Scores pairs by the cosine of an encoder's vectors and, where there is one, by a cross-encoder."""

    def __init__(self, encoder: SentenceEncoder, cross_encoder: PairPredictor | None = None) -> None:
        self.encoder = encoder
        self.cross_encoder = cross_encoder
        self.encoded = 0  # sentences that went through the encoder
        self._recent = RecentVectors(encoder.dimension)

    def score(
        self, firsts: list[str], seconds: list[str], on_share: Share, should_stop: Stop
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Pairs -> cosines (N,) float32, and the cross-encoder's scores (N,) float32 or None.

        ``Stopped`` is raised as soon as ``should_stop`` says yes.
        """
        halves = 0.5 if self.cross_encoder is not None else 1.0
        positions: dict[str, int] = {}
        at = [positions.setdefault(text, len(positions)) for text in (*firsts, *seconds)]

        def encode(texts: list[str]) -> np.ndarray:
            self.encoded += len(texts)
            return self.encoder.encode(
                texts,
                normalize=True,
                on_progress=lambda done, _: on_share(halves * done / len(texts)),
                should_stop=should_stop,
            )

        vectors = self._recent.vectors(list(positions), encode)
        u, v = vectors[at[: len(firsts)]], vectors[at[len(firsts) :]]
        cosine = np.clip(np.einsum("nd,nd->n", u, v), -1, 1).astype(np.float32, copy=False)
        if self.cross_encoder is None:
            return cosine, None
        return cosine, self.cross_encoder.predict(
            list(zip(firsts, seconds, strict=True)),
            on_progress=lambda done, all_pairs: on_share(0.5 + 0.5 * done / all_pairs),
            should_stop=should_stop,
        )
