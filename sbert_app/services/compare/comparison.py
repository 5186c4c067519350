"""Two sentences under the glass, and a few hundred side by side.

``compare`` answers everything the Compare page shows of one pair from one pass of the encoder: the token vectors
of both sentences, pooled three ways and taken apart by words. ``leave_one_out`` asks what each word does, and
``compare_all`` measures what the paper's introduction is about: N encodings against N(N-1)/2 cross-encoder passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from training.errors import InputError
from training.registry import DEFAULT_MODEL

if TYPE_CHECKING:
    from sbert_app.services.models.cache import ModelCache
    from training.evaluation.attribution import Attribution, Word
    from training.models.cross_encoder import CrossEncoder
    from training.models.encoder import Encoder

MOST_LINES = 500  # of the many-sentences view
MOST_CROSS_LINES = 30  # 435 pairs: a cross-encoder needs seconds for them
MOST_WORDS_LEFT_OUT = 120  # words of both sentences together


@dataclass(frozen=True)
class Side:
    """One sentence as the encoder reads it."""

    text: str
    tokens: list[str]
    words: list[Word]
    truncated: bool  # longer than the encoder's longest input: the rest was not read


@dataclass(frozen=True)
class Comparison:
    """What is known of one sentence pair."""

    model: str
    pooling: str
    a: Side
    b: Side
    cosine: float
    by_pooling: dict[str, float]
    encoder_ms: float
    attribution: Attribution | None  # None under CLS pooling
    cross_encoder: str | None = None
    cross_score: float | None = None  # 0..1
    cross_ms: float | None = None
    card: dict[str, Any] | None = None  # the cross-encoder's measured figures

    def to_json(self) -> dict[str, Any]:
        """The answer of the API: plain numbers and words."""
        exact = self.attribution
        return {
            "cosine": round(self.cosine, 6),
            "cross_encoder": None if self.cross_score is None else round(self.cross_score, 6),
            "model": self.model,
            "pooling": self.pooling,
            "cross_encoder_model": self.cross_encoder,
            "by_pooling": {name: round(value, 6) for name, value in self.by_pooling.items()},
            "words_a": exact.words_a if exact else [word.text for word in self.a.words],
            "words_b": exact.words_b if exact else [word.text for word in self.b.words],
            "matrix": exact.matrix.round(6).tolist() if exact else None,
            "truncated": [self.a.truncated, self.b.truncated],
            "milliseconds": {
                "encoder": round(self.encoder_ms, 2),
                "cross_encoder": None if self.cross_ms is None else round(self.cross_ms, 2),
            },
        }


def compare(encoder: Encoder, cross_encoder: CrossEncoder | None, a: str, b: str) -> Comparison:
    """Everything about one pair. InputError if a sentence is empty."""
    from training.evaluation.attribution import attribute_tokens, words_of
    from training.models.encoder import EncodeReport

    _check(a, "first")
    _check(b, "second")
    started = time.perf_counter()
    vectors = encoder.token_vectors([a, b])
    by_pooling = {name: _cosine(*(_pool(name, v.hidden) for v in vectors)) for name in ("mean", "max", "cls")}
    encoder_ms = (time.perf_counter() - started) * 1000
    sides = []
    for text, vector in zip((a, b), vectors, strict=True):
        report = EncodeReport()
        encoder.tokenize([text], report)
        sides.append(Side(text, vector.tokens, words_of(text, vector), report.truncated > 0))
    cross_score, cross_ms = None, None
    if cross_encoder is not None:
        started = time.perf_counter()
        cross_score = float(cross_encoder.predict([(a, b)])[0])
        cross_ms = (time.perf_counter() - started) * 1000
    return Comparison(
        model=encoder.name,
        pooling=encoder.pooling,
        a=sides[0],
        b=sides[1],
        cosine=by_pooling[encoder.pooling],
        by_pooling=by_pooling,
        encoder_ms=encoder_ms,
        attribution=None if encoder.pooling == "cls" else attribute_tokens(encoder.pooling, a, b, *vectors),
        cross_encoder=cross_encoder.name if cross_encoder else None,
        cross_score=cross_score,
        cross_ms=cross_ms,
        card=cross_encoder.card if cross_encoder else None,
    )


def compare_by_name(
    shelf: ModelCache, a: str, b: str, model: str = "", pooling: str = "", cross_encoder: str | None = None
) -> Comparison:
    """Compare with models by name; empty names mean the default model and its own pooling, no cross-encoder."""
    _check(a, "first")
    _check(b, "second")
    encoder = shelf.encoder(model or DEFAULT_MODEL, pooling or None)
    return compare(encoder, shelf.cross_encoder_or_none(cross_encoder), a, b)


class LeftOut(NamedTuple):
    """What happens when one word is left out."""

    side: str  # "a" or "b"
    word: str
    start: int
    end: int
    cosine_change: float
    cross_change: float | None


def leave_one_out(encoder: Encoder, cross_encoder: CrossEncoder | None, comparison: Comparison) -> list[LeftOut]:
    """Leave out each word in turn and score again, all variants in one batch.

    A positive change means that the pair is more similar without the word. Explains what has no exact map: CLS
    pooling and the cross-encoder. Special tokens stay. Beyond 120 words only the first are tried.
    """
    cuts = [
        (side, word)
        for side, part in (("a", comparison.a), ("b", comparison.b))
        for word in part.words
        if word.end > word.start
    ][:MOST_WORDS_LEFT_OUT]
    if not cuts:
        return []
    a, b = comparison.a.text, comparison.b.text
    pairs = [(_without(a, word), b) if side == "a" else (a, _without(b, word)) for side, word in cuts]
    whole = [(a, b), *pairs]
    vectors = encoder.encode([sentence for pair in whole for sentence in pair])
    cosines = (vectors[0::2] * vectors[1::2]).sum(axis=1)
    crossed = None if cross_encoder is None else cross_encoder.predict(whole)
    return [
        LeftOut(
            side,
            word.text,
            word.start,
            word.end,
            float(cosines[i] - cosines[0]),
            None if crossed is None else float(crossed[i] - crossed[0]),
        )
        for i, (side, word) in enumerate(cuts, start=1)
    ]


@dataclass(frozen=True)
class AllPairs:
    """Every line with every other line."""

    lines: list[str]
    cosine: np.ndarray  # (N, N) float32
    encode_seconds: float
    product_seconds: float
    cross: np.ndarray | None = None  # (N, N) float32, symmetric, diagonal 1
    cross_seconds: float | None = None
    notes: list[str] = field(default_factory=list)

    def ranked(self, most: int = 100) -> list[tuple[float, float | None, str, str]]:
        """(cosine, cross-encoder score, line, line), most similar first."""
        first, second = np.triu_indices(len(self.lines), k=1)
        order = np.argsort(-self.cosine[first, second], kind="stable")[:most]
        return [
            (
                float(self.cosine[i, j]),
                None if self.cross is None else float(self.cross[i, j]),
                self.lines[i],
                self.lines[j],
            )
            for i, j in zip(first[order], second[order], strict=True)
        ]


def compare_all(
    encoder: Encoder,
    cross_encoder: CrossEncoder | None,
    text: str,
    should_stop: Callable[[], bool] | None = None,
) -> AllPairs:
    """One sentence a line -> all pairs, with the measured times. InputError below 2 or above 500 lines."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not 2 <= len(lines) <= MOST_LINES:
        raise InputError(f"there are {len(lines)} lines with text; paste 2 to {MOST_LINES} sentences, one a line")
    started = time.perf_counter()
    vectors = encoder.encode(lines, should_stop=should_stop)
    encoded = time.perf_counter()
    cosine = vectors @ vectors.T
    multiplied = time.perf_counter()
    notes, crossed, cross_seconds = [], None, None
    if cross_encoder is not None and len(lines) > MOST_CROSS_LINES:
        notes.append(
            f"The cross-encoder's matrix is made for up to {MOST_CROSS_LINES} lines; {len(lines)} lines would take "
            f"{len(lines) * (len(lines) - 1) // 2:,} passes."
        )
    elif cross_encoder is not None:
        crossed = np.ones((len(lines), len(lines)), dtype=np.float32)
        first, second = np.triu_indices(len(lines), k=1)
        started_cross = time.perf_counter()
        scores = cross_encoder.predict(
            [(lines[i], lines[j]) for i, j in zip(first, second, strict=True)], should_stop=should_stop
        )
        cross_seconds = time.perf_counter() - started_cross
        crossed[first, second] = crossed[second, first] = scores
    return AllPairs(lines, cosine, encoded - started, multiplied - encoded, crossed, cross_seconds, notes)


def _check(sentence: str, which: str) -> None:
    if not sentence or not sentence.strip():
        raise InputError(f"the {which} sentence is empty; type one")


def _pool(pooling: str, hidden: np.ndarray) -> np.ndarray:
    """(T, D) -> (D,), the pooling of one unpadded sentence."""
    import torch

    from training.models.pooling import POOLINGS

    return POOLINGS[pooling](torch.from_numpy(hidden)[None], None)[0].numpy()


def _cosine(u: np.ndarray, v: np.ndarray) -> float:
    from training.evaluation.metrics import cosine

    return float(np.clip(cosine(u[None], v[None])[0], -1, 1))


def _without(sentence: str, word: Word) -> str:
    """The sentence less one word, and less one of the two spaces around it."""
    before, after = sentence[: word.start], sentence[word.end :]
    return before + (after.lstrip(" ") if before.endswith(" ") or not before else after)
