"""Models for tests that need scores but no transformer: a bag of words, hashed; and a word-overlap cross-encoder."""

import zlib
from collections.abc import Sequence

import numpy as np

from training.errors import StoppedError
from training.models.model import VectorModel


class BagEncoder(VectorModel):
    """Sentence -> unit vector of hashed words: the same words give 1, no common word about 0. 512 words are read."""

    name = "bag-of-words"
    pooling = "mean"
    dimension = 64
    max_length = 512

    def __init__(self) -> None:
        self.seen: list[str] = []

    def encode(
        self,
        sentences: Sequence[str],
        normalize=True,
        on_progress=None,
        should_stop=None,
        report=None,
    ) -> np.ndarray:
        self.seen.extend(sentences)
        if report is not None:
            cut = [sentence for sentence in sentences if len(sentence.split()) > self.max_length]
            report.add_cut(cut, len(cut))
        vectors = np.zeros((len(sentences), self.dimension), dtype=np.float32)
        for row, sentence in enumerate(sentences):
            if should_stop is not None and should_stop():
                raise StoppedError
            assert isinstance(sentence, str)
            for word in sentence.lower().split()[:512]:
                vectors[row, zlib.crc32(word.encode("utf-8", "replace")) % self.dimension] += 1
            if on_progress is not None:
                on_progress(row + 1, len(sentences))
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


class OverlapCrossEncoder:
    """Pair -> the share of words in common."""

    name = "overlap"

    def is_unknown(self, sentences: Sequence[str]) -> list[bool]:
        return [False] * len(sentences)

    def predict(
        self, pairs: Sequence[tuple[str, str]], on_progress=None, should_stop=None, report=None
    ) -> np.ndarray:
        words = [(set(first.split()), set(second.split())) for first, second in pairs]
        if on_progress is not None:
            on_progress(len(pairs), len(pairs))
        return np.array([len(a & b) / max(len(a | b), 1) for a, b in words], dtype=np.float32)


class AnyModel:
    """A cache of models that has one encoder under any name."""

    def __init__(self, encoder: BagEncoder | None = None) -> None:
        self.one = encoder or BagEncoder()

    def get(self, name, type_, pooling=None, role=None) -> BagEncoder:
        return self.one

    def cross_encoder_or_none(self, name) -> OverlapCrossEncoder | None:
        return OverlapCrossEncoder() if name and name != "none" else None
