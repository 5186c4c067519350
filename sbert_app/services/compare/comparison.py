"""The comparison of two sentences in detail, and of a few hundred with each other.

`compare` pools the token vectors of both sentences in three ways, from one pass of the encoder, and attributes the
cosine to words. `leave_one_out` measures the effect of each word, and `compare_all` the contrast of the paper's
introduction: N encodings or N(N-1)/2 passes of a cross-encoder.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sbert_app.formats import format_count
from sbert_app.services.corpus.embedded import weights_key
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.models.function_words import other_language
from sbert_app.services.models.unknown import check_finite, unknown_warnings
from training.errors import InputError
from training.evaluation.attribution import (
    Attribution,
    Word,
    attribute_tokens,
    has_exact_map,
    pairs_without,
    words_in_text,
    words_of,
)
from training.models.model import Model, PairModel, VectorModel, vectors_only
from training.models.texts import ReadReport
from training.names import BY_ROLE, ModelName
from training.pooling import PAPER_POOLINGS

if TYPE_CHECKING:
    from training.models.encoder import Encoder

THE_PAIR = "this pair"
MAX_LINES = 500
# The most lines for a cross-encoder: 435 pairs take it seconds.
MAX_CROSS_LINES = 30
# The most words of both sentences together that are left out in turn.
MAX_WORDS_LEFT_OUT = 120


@dataclass(frozen=True)
class Side:
    """One sentence as the encoder reads it.

    Attributes:
        truncated: whether the sentence exceeds the maximum length; ``unread`` words at its end were not read.
        language: the language of the sentence, if the model was made for another one.
        unknown: the words that the model does not know, such as emoji, which it all reads as one and the same token.
        is_unknown: whether it does not know most of the words, so that no score of the sentence says anything.
    """

    text: str
    tokens: list[str]
    words: list[Word]
    truncated: bool
    unread: int = 0
    language: str = ""
    unknown: tuple[str, ...] = ()
    is_unknown: bool = False


@dataclass(frozen=True)
class Comparison:
    """A sentence pair under one model, and optionally a cross-encoder.

    Attributes:
        attribution: the exact map of the words; None where there is none, such as under CLS pooling.
        no_map: the reason why nothing can be said of the words at all.
        cross_score: the score of the cross-encoder from 0 to 1.
        card: the training data and measured correlations of the cross-encoder.
        own_pooling: the pooling that the model was made with.
        prompts: the texts before each sentence.
        advice: a hint where the model was trained with prompts and none is used.
        cross_is_blind: whether the cross-encoder does not know most words of one of the sentences.
        cross_is_cut: whether the pair is longer than the cross-encoder reads.
        sent_to: the host that the sentences were sent to; "" if they stayed on this machine.
        weights: the key of the encoder's weights, see `weights_key`.
        warnings: sentences about text that the models do not know.
    """

    model: str
    pooling: str
    a: Side
    b: Side
    cosine: float
    by_pooling: dict[str, float]
    encoder_ms: float
    attribution: Attribution | None
    no_map: str = ""
    cross_encoder: str | None = None
    cross_score: float | None = None
    cross_ms: float | None = None
    cross_is_blind: bool = False
    cross_is_cut: bool = False
    card: dict[str, Any] | None = None
    own_pooling: str = ""
    dimension: int = 0
    prompts: tuple[str, str] = ("", "")
    advice: str = ""
    sent_to: str = ""
    weights: str = ""
    warnings: list[str] = field(default_factory=list)

    @property
    def is_blind(self) -> bool:
        """Whether the model does not know most words of one of the sentences, so that the cosine says nothing."""
        return self.a.is_unknown or self.b.is_unknown

    def to_json(self) -> dict[str, Any]:
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
            "usage": dict.fromkeys(("prompt_tokens", "total_tokens"), len(self.a.tokens) + len(self.b.tokens)),
            "dimension": self.dimension,
            "prompts": list(self.prompts),
            "remark": self.advice,
            "warnings": self.warnings,
            "milliseconds": {
                "encoder": round(self.encoder_ms, 2),
                "cross_encoder": None if self.cross_ms is None else round(self.cross_ms, 2),
            },
        }


def compare(
    encoder: VectorModel, cross_encoder: PairModel | None, a: str, b: str, second: VectorModel | None = None
) -> Comparison:
    """Compare a pair. Raises InputError if a sentence is empty.

    ``second`` is the same encoder with the prompt for the second sentence, if that differs.
    """
    # It imports torch, which takes seconds.
    from training.models.encoder import Encoder

    _check(a, "first")
    _check(b, "second")
    started = time.perf_counter()
    other = encoder if second is None else second
    if isinstance(encoder, Encoder) and isinstance(other, Encoder):
        encoded, by_pooling, sides, attribution, no_map = _read_tokens((encoder, other), a, b)
    else:
        encoded, by_pooling, sides, attribution, no_map = _read_whole((encoder, other), a, b)
    check_finite(encoder, np.array([by_pooling[encoder.pooling]]), [THE_PAIR])
    cross_score, cross_ms, crossed = None, None, ReadReport()
    if cross_encoder is not None:
        crossing = time.perf_counter()
        cross_score = float(check_finite(cross_encoder, cross_encoder.predict([(a, b)], report=crossed), [THE_PAIR])[0])
        cross_ms = (time.perf_counter() - crossing) * 1000
    return Comparison(
        model=encoder.name,
        pooling=encoder.pooling,
        a=_with_unknown(sides[0], encoder),
        b=_with_unknown(sides[1], other),
        cosine=by_pooling[encoder.pooling],
        by_pooling=by_pooling,
        encoder_ms=(encoded - started) * 1000,
        attribution=attribution,
        no_map=no_map,
        dimension=encoder.dimension,
        prompts=(encoder.prompt, other.prompt),
        advice="" if encoder.prompt or other.prompt else encoder.prompt_advice,
        cross_encoder=cross_encoder.name if cross_encoder else None,
        cross_score=cross_score,
        cross_ms=cross_ms,
        cross_is_blind=cross_encoder is not None
        and any(_are_most(_unknown_words(side, cross_encoder), side) for side in sides),
        cross_is_cut=crossed.truncated > 0,
        card=cross_encoder.card if cross_encoder else None,
        sent_to=encoder.sent_to,
        weights=weights_key(encoder),
        warnings=unknown_warnings([encoder, cross_encoder], [a, b], ["sentence A", "sentence B"]),
    )


def _with_unknown(side: Side, encoder: VectorModel) -> Side:
    """The sentence with its words that the model does not know."""
    unknown = _unknown_words(side, encoder)
    return replace(side, unknown=tuple(dict.fromkeys(unknown)), is_unknown=_are_most(unknown, side))


def _unknown_words(side: Side, model: Model) -> list[str]:
    """The words of a sentence that a model does not know."""
    words = [word.text for word in words_in_text(side.words)]
    return [word for word, is_unknown in zip(words, model.is_unknown(words), strict=True) if is_unknown]


def _are_most(unknown: Sequence[str], side: Side) -> bool:
    """Whether the unknown words are most of those that say something: all but punctuation that is known."""
    words = [word.text for word in words_in_text(side.words)]
    saying = [word for word in words if word in unknown or any(map(str.isalnum, word))]
    return 2 * len(unknown) > len(saying)


# The time of the cosines, the cosines by pooling, both sentences as they were read, the exact map of their words, and
# the reason why nothing can be said of these.
_Read = tuple[float, dict[str, float], list[Side], "Attribution | None", str]


def _read_tokens(encoders: tuple[Encoder, Encoder], a: str, b: str) -> _Read:
    """Read the tokens by one pass of the encoder, or of each if their prompts differ."""
    encoder, texts = encoders[0], (a, b)
    if encoders[1] is encoder:
        vectors = encoder.token_vectors([a, b])
    else:
        vectors = [model.token_vectors([text])[0] for model, text in zip(encoders, texts, strict=True)]
    by_pooling = {}
    for name in dict.fromkeys((*PAPER_POOLINGS, encoder.pooling)):
        with suppress(InputError):
            first = encoder.with_pooling(name)
            second = first if encoders[1] is encoder else encoders[1].with_pooling(name)
            by_pooling[name] = _cosine(_pool(first, vectors[0].hidden), _pool(second, vectors[1].hidden))
    encoded, sides = time.perf_counter(), []
    for model, text, vector in zip(encoders, texts, vectors, strict=True):
        is_cut = bool(model.read_tokens([text])[1])
        words, vocabulary = words_of(text, vector), model.vocabulary_size
        read = max((word.end for word in words), default=0)
        language = other_language(text[:read], sum(len(word.tokens) for word in words if word.end), vocabulary)
        unread = len(text[read:].split()) if is_cut else 0
        sides.append(Side(text, vector.tokens, words, is_cut, unread, language))
    exact = attribute_tokens(encoder, a, b, *vectors) if has_exact_map(encoder) else None
    return encoded, by_pooling, sides, exact, ""


def _read_whole(encoders: tuple[VectorModel, VectorModel], a: str, b: str) -> _Read:
    """Read the sentences by a model whose tokens are unknown; their words are separated by white space."""
    cosine = _cosine(*(encoder.encode([text])[0] for encoder, text in zip(encoders, (a, b), strict=True)))
    encoded = time.perf_counter()
    words = [[Word(match[0], *match.span(), ()) for match in re.finditer(r"\S+", text)] for text in (a, b)]
    sides = [Side(text, [], of_text, truncated=False) for text, of_text in zip((a, b), words, strict=True)]
    return encoded, {encoders[0].pooling: cosine}, sides, None, str(vectors_only(encoders[0]))


def compare_by_name(
    models: ModelCache, a: str, b: str, model: ModelName, pooling: str = "", cross_encoder: str = ""
) -> Comparison:
    """Compare with models by name. By default the pooling is that of the name, or else the model's own.

    A model whose name ends in ?prompt_name=query|document reads the first sentence with its prompt for queries, and
    the second with that for documents.
    """
    _check(a, "first")
    _check(b, "second")
    model, pooling = replace(model, pooling=None), pooling or model.pooling or ""
    first, second = _by_role(models, model, pooling)
    crosser = models.cross_encoder_or_none(cross_encoder)
    comparison = compare(first, crosser, a, b, second)
    return replace(comparison, model=str(model), own_pooling=models.get(model.weights, VectorModel).pooling)


class LeftOut(NamedTuple):
    """The effect of leaving out one word of side "a" or "b": a positive change makes the pair more similar."""

    side: str
    word: str
    cosine_change: float
    cross_change: float | None

    @property
    def has_letters(self) -> bool:
        """Whether it is more than a punctuation mark."""
        return any(map(str.isalnum, self.word))


def leave_one_out(
    encoder: VectorModel,
    cross_encoder: PairModel | None,
    comparison: Comparison,
    second: VectorModel | None = None,
) -> list[LeftOut]:
    """Leave out each word in turn and score the pair again, all variants in one batch.

    It is the same question to any model and any pooling. Special tokens stay, and only the first 120 words are left
    out. ``second`` reads the second sentence, as in `compare`.
    """
    a, b = comparison.a, comparison.b
    words_a = words_in_text(a.words)[:MAX_WORDS_LEFT_OUT]
    words_b = words_in_text(b.words)[: MAX_WORDS_LEFT_OUT - len(words_a)]
    if not (words_a or words_b):
        return []
    variants = [(a.text, b.text), *pairs_without(a.text, b.text, words_a, words_b)]
    first_texts, second_texts = zip(*variants, strict=True)
    if second is None:
        cosines = encoder.score(variants)
    else:
        cosines = (encoder.encode(first_texts) * second.encode(second_texts)).sum(axis=1)
    cosine_changes = (cosines[1:] - cosines[0]).tolist()
    cross_changes: list[float | None] = [None] * len(cosine_changes)
    if cross_encoder is not None:
        scores = cross_encoder.predict(variants)
        cross_changes = (scores[1:] - scores[0]).tolist()
    words = [("a", word.text) for word in words_a] + [("b", word.text) for word in words_b]
    changes = zip(words, cosine_changes, cross_changes, strict=True)
    return [LeftOut(side, word, cosine, cross) for (side, word), cosine, cross in changes]


def leave_one_out_by_name(models: ModelCache, comparison: Comparison) -> list[LeftOut]:
    """`leave_one_out` with the models of a comparison."""
    first, second = _by_role(models, ModelName.parse(comparison.model), comparison.pooling)
    crosser = models.cross_encoder_or_none(comparison.cross_encoder)
    return leave_one_out(first, crosser, comparison, second)


def _by_role(models: ModelCache, model: ModelName, pooling: str) -> tuple[VectorModel, VectorModel | None]:
    """The encoder of the first sentence, and that of the second one if it has another prompt."""
    if model.prompt_name != BY_ROLE:
        return models.get(model, VectorModel, pooling), None
    query, document = (models.get(model, VectorModel, pooling, role) for role in ("query", "document"))
    return query, document


@dataclass(frozen=True)
class AllPairs:
    """The similarities of all lines, symmetric float32 (N, N), and the time that they took."""

    lines: list[str]
    cosine: np.ndarray
    encode_seconds: float
    product_seconds: float
    cross: np.ndarray | None = None
    cross_seconds: float | None = None
    notes: list[str] = field(default_factory=list)

    def ranked(self, limit: int = 100) -> list[tuple[float, float | None, str, str]]:
        """The cosine, the score of the cross-encoder and the lines of each pair, most similar first."""
        first, second = np.triu_indices(len(self.lines), k=1)
        order = np.argsort(-self.cosine[first, second], kind="stable")[:limit]
        pairs = zip(first[order], second[order], strict=True)
        cross = self.cross
        return [
            (float(self.cosine[i, j]), None if cross is None else float(cross[i, j]), self.lines[i], self.lines[j])
            for i, j in pairs
        ]


def compare_all(
    encoder: VectorModel, cross_encoder: PairModel | None, text: str, should_stop: Callable[[], bool] | None = None
) -> AllPairs:
    """Compare all pairs of lines and measure the time. Raises InputError below 2 or above 500 lines."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if not 2 <= len(lines) <= MAX_LINES:
        count = format_count(len(lines), "line with text", "lines with text")
        raise InputError(f"got {count}; paste 2 to {MAX_LINES} sentences, one per line")
    started = time.perf_counter()
    vectors = check_finite(encoder, encoder.encode(lines, should_stop=should_stop))
    encoded = time.perf_counter()
    cosine = vectors @ vectors.T
    multiplied = time.perf_counter()
    notes, cross_scores, cross_seconds = unknown_warnings([encoder, cross_encoder], lines), None, None
    if cross_encoder is not None and len(lines) > MAX_CROSS_LINES:
        notes.append(
            f"The cross-encoder is run on up to {MAX_CROSS_LINES} lines; {len(lines)} lines would take "
            f"{len(lines) * (len(lines) - 1) // 2:,} passes."
        )
    elif cross_encoder is not None:
        cross_scores = np.ones((len(lines), len(lines)), dtype=np.float32)
        first, second = np.triu_indices(len(lines), k=1)
        started_cross = time.perf_counter()
        pairs = [(lines[i], lines[j]) for i, j in zip(first, second, strict=True)]
        scores = cross_encoder.predict(pairs, should_stop=should_stop)
        cross_seconds = time.perf_counter() - started_cross
        cross_scores[first, second] = cross_scores[second, first] = scores
    return AllPairs(lines, cosine, encoded - started, multiplied - encoded, cross_scores, cross_seconds, notes)


def _check(sentence: str, which: str) -> None:
    if not sentence or not sentence.strip():
        raise InputError(f"the {which} sentence is empty: type one")


def _pool(encoder: Encoder, hidden: np.ndarray) -> np.ndarray:
    """The vector of one sentence from those of its tokens: (T, H) -> (D,)."""
    import torch

    with torch.inference_mode():
        states = torch.from_numpy(hidden)[None].to(encoder.device)
        return encoder.pool(states, None)[0, : encoder.dimension].cpu().numpy()


def _cosine(u: np.ndarray, v: np.ndarray) -> float:
    return float(np.clip(u @ v / (np.linalg.norm(u) * np.linalg.norm(v) or 1), -1, 1))
