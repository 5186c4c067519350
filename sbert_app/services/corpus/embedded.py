"""A corpus with its vectors under one model and pooling."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from sbert_app.services.cache import DiskCache, digest
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.index import SearchIndex

SAMPLED = 256  # weights of each parameter that the fingerprint of an encoder reads


class SentenceEncoder(Protocol):
    """What a corpus needs of a bi-encoder."""

    @property
    def name(self) -> str: ...
    @property
    def pooling(self) -> str: ...
    def encode(
        self,
        sentences: Sequence[str],
        *,
        on_progress: Callable[[int, int | None], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class EmbeddedCorpus:
    """A corpus and its vectors under one model and pooling."""

    corpus: Corpus
    vectors: np.ndarray  # (N, D) float32, of length 1
    model: str
    pooling: str
    key: str  # the same for the same sentences under the same weights and pooling
    seconds: float  # that encoding took; 0 from the cache

    def __len__(self) -> int:
        return len(self.corpus)

    @cached_property
    def index(self) -> SearchIndex:
        """For searching; made at the first search."""
        return SearchIndex(self.vectors)


def encode(
    corpus: Corpus,
    encoder: SentenceEncoder,
    cache: DiskCache | None = None,
    on_progress: Callable[[int, int | None], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> EmbeddedCorpus:
    """Vectors of a corpus, from the cache where they are known.

    Raises:
        Stopped: ``should_stop`` said yes.
    """
    key = embedding_key(corpus, encoder)
    vectors = cache.get(key) if cache is not None else None
    started, known = time.perf_counter(), vectors is not None
    if vectors is None:
        vectors = encoder.encode(corpus.sentences, on_progress=on_progress, should_stop=should_stop)
        if cache is not None:
            cache.put(key, vectors)
    seconds = 0.0 if known else time.perf_counter() - started
    return EmbeddedCorpus(corpus, vectors, encoder.name, encoder.pooling, key, seconds)


def embedding_key(corpus: Corpus, encoder: SentenceEncoder) -> str:
    """What the vectors are kept under."""
    return digest([corpus.digest, fingerprint(encoder)])


def fingerprint(encoder: SentenceEncoder) -> str:
    """What an encoder's vectors depend on: its weights (a sample of each parameter), pooling and longest input.

    A run that is trained on, or a folder that is replaced, keeps its name; its weights do not stay the same.
    """
    parts = [encoder.name, encoder.pooling, str(getattr(encoder, "max_length", ""))]
    backbone = getattr(encoder, "backbone", None)
    for name, weights in sorted(backbone.state_dict().items()) if backbone is not None else ():
        flat = weights.reshape(-1)
        sample = flat[:: max(1, len(flat) // SAMPLED)].float().cpu().numpy()
        parts.append(f"{name} {tuple(weights.shape)} {sample.tobytes().hex()}")
    return digest(parts)
