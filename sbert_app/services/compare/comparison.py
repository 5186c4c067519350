"""Compares two sentences in detail, and a few hundred sentences with each other.

`compare` pools the token vectors of both sentences in three ways, from one pass of the encoder, and
attributes the cosine to words. `leave_one_out` measures the effect of each word. `compare_all`
measures what the paper's introduction compares: N sentences take N encodings, or N(N-1)/2 passes of a
cross-encoder.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import compress
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
    from training.models.tokenization import TokenVectors

THE_PAIR = "this pair"
MAX_LINES = 500
# The maximum number of lines for a cross-encoder, which takes seconds for their 435 pairs.
MAX_CROSS_LINES = 30
# The maximum number of words that are left out in turn, of both sentences together.
MAX_WORDS_LEFT_OUT = 120


@dataclass(frozen=True)
class Side:
    """One sentence as the encoder reads it.

    Attributes:
        truncated: whether the sentence exceeds the maximum length.
        unread: the number of words at its end that were not read.
        language: the language of the sentence, if the model was made for another one; otherwise "".
        unknown: the words that the model does not know, such as emoji. It reads all of them as the
            same token.
    """

    text: str
    tokens: list[str]
    words: list[Word]
    truncated: bool
    unread: int = 0
    language: str = ""
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """A sentence pair under one model, and optionally a cross-encoder.

    Attributes:
        attribution: the exact map of the words; None if there is none, as under CLS pooling.
        no_map: why the words cannot be examined at all; "" if they can.
        cross_score: the score of the cross-encoder from 0 to 1; None without a cross-encoder.
        card: the training data and measured correlations of the cross-encoder.
        own_pooling: the pooling that the model was trained with.
        prompts: the texts before each sentence.
        advice: a hint if the model was trained with prompts and none is used.
        is_blind: whether the cosine is meaningless, because the model does not know the words that
            matter (`_is_blind`).
        cross_is_blind: the same for the score of the cross-encoder.
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
    is_blind: bool = False
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

    def to_json(self) -> dict[str, Any]:
        """The comparison as JSON values, for the command line and the HTTP API."""
        attribution = self.attribution
        tokens = len(self.a.tokens) + len(self.b.tokens)
        return {
            "cosine": round(self.cosine, 6),
            "cross_encoder": None if self.cross_score is None else round(self.cross_score, 6),
            "model": self.model,
            "pooling": self.pooling,
            "cross_encoder_model": self.cross_encoder,
            "by_pooling": {name: round(value, 6) for name, value in self.by_pooling.items()},
            "words_a": attribution.words_a if attribution else [word.text for word in self.a.words],
            "words_b": attribution.words_b if attribution else [word.text for word in self.b.words],
            "matrix": attribution.matrix.round(6).tolist() if attribution else None,
            "truncated": [self.a.truncated, self.b.truncated],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
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
    encoder: VectorModel,
    cross_encoder: PairModel | None,
    a: str,
    b: str,
    second: VectorModel | None = None,
) -> Comparison:
    """Compares a pair of sentences.

    Args:
        second: the same encoder with the prompt for the second sentence, if that differs.

    Raises:
        InputError: a sentence is empty, or a model gives a score that is not finite.
    """
    # Imported here because it imports torch, which takes seconds.
    from training.models.encoder import Encoder

    _check(a, "first")
    _check(b, "second")
    started = time.perf_counter()
    second = second or encoder
    if isinstance(encoder, Encoder) and isinstance(second, Encoder):
        reading = _read_tokens(encoder, second, a, b)
    else:
        reading = _read_whole(encoder, second, a, b)
    # The pooling of the encoder is always among the cosines.
    cosine = reading.cosines[encoder.pooling]
    check_finite(encoder, np.array([cosine]), [THE_PAIR])
    cross_score = None
    cross_ms = None
    cross_is_blind = False
    # `predict` counts here the pairs that it has cut.
    cross_report = ReadReport()
    if cross_encoder is not None:
        cross_started = time.perf_counter()
        scores = cross_encoder.predict([(a, b)], report=cross_report)
        cross_score = float(check_finite(cross_encoder, scores, [THE_PAIR])[0])
        cross_ms = (time.perf_counter() - cross_started) * 1000
        cross_is_blind = _is_blind(reading.a, reading.b, cross_encoder)
    advice = ""
    if not (encoder.prompt or second.prompt):
        advice = encoder.prompt_advice
    return Comparison(
        model=encoder.name,
        pooling=encoder.pooling,
        a=_with_unknown(reading.a, encoder),
        b=_with_unknown(reading.b, second),
        cosine=cosine,
        by_pooling=reading.cosines,
        encoder_ms=(reading.ended - started) * 1000,
        attribution=reading.attribution,
        no_map=reading.no_map,
        dimension=encoder.dimension,
        prompts=(encoder.prompt, second.prompt),
        advice=advice,
        cross_encoder=cross_encoder.name if cross_encoder else None,
        cross_score=cross_score,
        cross_ms=cross_ms,
        is_blind=_is_blind(reading.a, reading.b, encoder),
        cross_is_blind=cross_is_blind,
        cross_is_cut=cross_report.truncated > 0,
        card=cross_encoder.card if cross_encoder else None,
        sent_to=encoder.sent_to,
        weights=weights_key(encoder),
        warnings=unknown_warnings([encoder, cross_encoder], [a, b], ["sentence A", "sentence B"]),
    )


def _with_unknown(side: Side, encoder: VectorModel) -> Side:
    """Returns the sentence with the words that the model does not know."""
    return replace(side, unknown=tuple(dict.fromkeys(_unknown_words(side, encoder))))


def _unknown_words(side: Side, model: Model) -> list[str]:
    """Returns the words of a sentence that a model does not know."""
    words = [word.text for word in words_in_text(side.words)]
    return list(compress(words, model.is_unknown(words)))


def _is_blind(a: Side, b: Side, model: Model) -> bool:
    """Whether a score of the model is meaningless.

    It does not know most words of one of the sentences, or the sentences differ only in words that
    it does not know, so that it reads the same twice.
    """
    words = []
    read_words = []
    for side in (a, b):
        unknown = _unknown_words(side, model)
        texts = [word.text for word in words_in_text(side.words)]
        # Known punctuation does not count as a word.
        count = sum(text in unknown or any(map(str.isalnum, text)) for text in texts)
        if 2 * len(unknown) > count:
            return True
        words.append(texts)
        read_words.append(["" if text in unknown else text for text in texts])
    return words[0] != words[1] and read_words[0] == read_words[1]


class _Reading(NamedTuple):
    """Two sentences as an encoder has read them.

    Attributes:
        ended: the time at which the cosines were known.
        cosines: the cosine by pooling.
        attribution: the exact map of the words, if there is one.
        no_map: why the words cannot be examined at all; "" if they can.
    """

    ended: float
    cosines: dict[str, float]
    a: Side
    b: Side
    attribution: Attribution | None = None
    no_map: str = ""


def _read_tokens(encoder: Encoder, second: Encoder, a: str, b: str) -> _Reading:
    """Reads the tokens by one pass of the encoder, or by two if the prompts differ."""
    if second is encoder:
        first_tokens, second_tokens = encoder.token_vectors([a, b])
    else:
        [first_tokens] = encoder.token_vectors([a])
        [second_tokens] = second.token_vectors([b])
    cosines = {}
    for pooling in dict.fromkeys((*PAPER_POOLINGS, encoder.pooling)):
        # A model may refuse a pooling of the paper, but not its own.
        with suppress(InputError):
            u = _pool(encoder.with_pooling(pooling), first_tokens.hidden)
            v = _pool(second.with_pooling(pooling), second_tokens.hidden)
            cosines[pooling] = _cosine(u, v)
    # The time of the attribution is not measured.
    ended = time.perf_counter()
    attribution = None
    if has_exact_map(encoder):
        attribution = attribute_tokens(encoder, a, b, first_tokens, second_tokens)
    return _Reading(
        ended,
        cosines,
        _side(encoder, a, first_tokens),
        _side(second, b, second_tokens),
        attribution,
    )


def _side(encoder: Encoder, text: str, tokens: TokenVectors) -> Side:
    """Returns a sentence as the encoder has read it."""
    # The positions of the texts that are cut: [0] or [].
    _, truncated_rows = encoder.read_tokens([text])
    is_cut = bool(truncated_rows)
    words = words_of(text, tokens)
    # Words of the prompt and special tokens end at 0. What follows the last word was not read.
    end = max((word.end for word in words), default=0)
    subwords = sum(len(word.tokens) for word in words if word.end)
    language = other_language(text[:end], subwords, encoder.vocabulary_size)
    unread = len(text[end:].split()) if is_cut else 0
    return Side(text, tokens.tokens, words, is_cut, unread, language)


def _read_whole(encoder: VectorModel, second: VectorModel, a: str, b: str) -> _Reading:
    """Reads the sentences by a model whose tokens are not accessible. White space separates their words."""
    cosine = _cosine(encoder.encode([a])[0], second.encode([b])[0])
    ended = time.perf_counter()
    # The text of the error for models without tokens says why there is no map.
    no_map = str(vectors_only(encoder))
    return _Reading(ended, {encoder.pooling: cosine}, _whole_side(a), _whole_side(b), no_map=no_map)


def _whole_side(text: str) -> Side:
    words = [Word(match[0], *match.span(), tokens=()) for match in re.finditer(r"\S+", text)]
    return Side(text, [], words, truncated=False)


def compare_by_name(
    models: ModelCache,
    a: str,
    b: str,
    model: ModelName,
    pooling: str = "",
    cross_encoder: str = "",
) -> Comparison:
    """Compares a pair with models by name. The default pooling is the one in the name, or else the model's own.

    If the name of the model ends in ?prompt_name=query|document, the first sentence is read with
    the prompt for queries, and the second one with the prompt for documents.
    """
    # Checked here too, so that an empty sentence is reported before a model is loaded.
    _check(a, "first")
    _check(b, "second")
    pooling = pooling or model.pooling or ""
    # A `Comparison` has the pooling in a field of its own, so its name of the model leaves it out.
    model = replace(model, pooling=None)
    first, second = _by_role(models, model, pooling)
    comparison = compare(first, models.cross_encoder_or_none(cross_encoder), a, b, second)
    # By the name without its settings, a model opens with the pooling that it was trained with.
    own_pooling = models.get(model.weights, VectorModel).pooling
    # `compare` gives the name of the first sentence's encoder. The name that was asked for may
    # stand for two encoders, and `leave_one_out_by_name` opens both again.
    return replace(comparison, model=str(model), own_pooling=own_pooling)


class LeftOut(NamedTuple):
    """The effect of leaving out one word of side "a" or "b". A positive change makes the pair more similar."""

    side: str
    word: str
    cosine_change: float
    cross_change: float | None

    @property
    def has_letters(self) -> bool:
        """Whether the word is more than a punctuation mark."""
        return any(map(str.isalnum, self.word))


def leave_one_out(
    encoder: VectorModel,
    cross_encoder: PairModel | None,
    comparison: Comparison,
    second: VectorModel | None = None,
) -> list[LeftOut]:
    """Leaves out each word in turn and scores the pair again, all variants in one batch.

    This works for any model and any pooling. Special tokens stay. At most 120 words are left out,
    first of the first sentence, then of the second. ``second`` is the encoder of the second
    sentence; None if it is ``encoder``.
    """
    a = comparison.a
    b = comparison.b
    words_a = words_in_text(a.words)[:MAX_WORDS_LEFT_OUT]
    words_b = words_in_text(b.words)[: MAX_WORDS_LEFT_OUT - len(words_a)]
    if not (words_a or words_b):
        return []
    # The first variant is the pair itself.
    variants = [(a.text, b.text), *pairs_without(a.text, b.text, words_a, words_b)]
    if second is None:
        cosines = encoder.score(variants)
    else:
        first_texts, second_texts = zip(*variants, strict=True)
        # The vectors have unit length.
        cosines = (encoder.encode(first_texts) * second.encode(second_texts)).sum(axis=1)
    cosine_changes = (cosines[1:] - cosines[0]).tolist()
    cross_changes: list[float | None] = [None] * len(cosine_changes)
    if cross_encoder is not None:
        scores = cross_encoder.predict(variants)
        cross_changes = (scores[1:] - scores[0]).tolist()
    sides = ["a"] * len(words_a) + ["b"] * len(words_b)
    words = [word.text for word in (*words_a, *words_b)]
    return list(map(LeftOut, sides, words, cosine_changes, cross_changes))


def leave_one_out_by_name(models: ModelCache, comparison: Comparison) -> list[LeftOut]:
    """Calls `leave_one_out` with the models of a comparison."""
    first, second = _by_role(models, ModelName.parse(comparison.model), comparison.pooling)
    cross_encoder = models.cross_encoder_or_none(comparison.cross_encoder)
    return leave_one_out(first, cross_encoder, comparison, second)


def _by_role(
    models: ModelCache, model: ModelName, pooling: str
) -> tuple[VectorModel, VectorModel | None]:
    """Returns the encoder of the first sentence, and the one of the second sentence if it has another prompt."""
    if model.prompt_name != BY_ROLE:
        return models.get(model, VectorModel, pooling), None
    query = models.get(model, VectorModel, pooling, "query")
    document = models.get(model, VectorModel, pooling, "document")
    return query, document


@dataclass(frozen=True)
class AllPairs:
    """The similarities of all lines, symmetric float32 (N, N), and the time to compute them.

    ``cross`` has the scores of a cross-encoder; None if it was not run.
    """

    lines: list[str]
    cosine: np.ndarray
    encode_seconds: float
    product_seconds: float
    cross: np.ndarray | None = None
    cross_seconds: float | None = None
    notes: list[str] = field(default_factory=list)

    def ranked(self, limit: int = 100) -> list[tuple[float, float | None, str, str]]:
        """Returns the cosine, the score of the cross-encoder and both lines of each pair, most similar first.

        The score is None if the cross-encoder was not run.
        """
        first, second = np.triu_indices(len(self.lines), k=1)
        order = np.argsort(-self.cosine[first, second], kind="stable")[:limit]
        rows = []
        for i, j in zip(first[order], second[order], strict=True):
            cosine = float(self.cosine[i, j])
            cross_score = None if self.cross is None else float(self.cross[i, j])
            rows.append((cosine, cross_score, self.lines[i], self.lines[j]))
        return rows


def compare_all(
    encoder: VectorModel,
    cross_encoder: PairModel | None,
    text: str,
    should_stop: Callable[[], bool] | None = None,
) -> AllPairs:
    """Compares all pairs of lines and measures the time. Raises InputError for fewer than 2 or more than 500 lines."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if not 2 <= len(lines) <= MAX_LINES:
        count = format_count(len(lines), "line with text", "lines with text")
        raise InputError(f"got {count}; paste 2 to {MAX_LINES} sentences, one per line")
    started = time.perf_counter()
    vectors = check_finite(encoder, encoder.encode(lines, should_stop=should_stop))
    encode_seconds = time.perf_counter() - started
    started = time.perf_counter()
    cosine = vectors @ vectors.T
    product_seconds = time.perf_counter() - started
    notes = unknown_warnings([encoder, cross_encoder], lines)
    cross = None
    cross_seconds = None
    first, second = np.triu_indices(len(lines), k=1)
    if cross_encoder is not None and len(lines) > MAX_CROSS_LINES:
        notes.append(
            f"The cross-encoder is run on up to {MAX_CROSS_LINES} lines; {len(lines)} lines would take "
            f"{len(first):,} passes."
        )
    elif cross_encoder is not None:
        started = time.perf_counter()
        pairs = [(lines[i], lines[j]) for i, j in zip(first, second, strict=True)]
        scores = cross_encoder.predict(pairs, should_stop=should_stop)
        cross_seconds = time.perf_counter() - started
        # The diagonal, each line with itself, is set to 1.
        cross = np.ones((len(lines), len(lines)), dtype=np.float32)
        cross[first, second] = scores
        # Each pair was scored in one order only.
        cross[second, first] = scores
    return AllPairs(lines, cosine, encode_seconds, product_seconds, cross, cross_seconds, notes)


def _check(sentence: str, which: str) -> None:
    if not sentence or not sentence.strip():
        raise InputError(f"the {which} sentence is empty: type one")


def _pool(encoder: Encoder, hidden: np.ndarray) -> np.ndarray:
    """Pools the token vectors of one sentence, (T, H) -> (D,)."""
    import torch

    with torch.inference_mode():
        states = torch.from_numpy(hidden)[None].to(encoder.device)  # (1, T, H)
        # One sentence is not padded, so it needs no mask. An encoder with ?dim= returns the first
        # dimensions.
        vectors = encoder.pool(states, None)  # (1, all dimensions)
        return vectors[0, : encoder.dimension].cpu().numpy()


def _cosine(u: np.ndarray, v: np.ndarray) -> float:
    norms = np.linalg.norm(u) * np.linalg.norm(v)
    # The cosine with a zero vector is 0.
    return float(np.clip(u @ v / (norms or 1), -1, 1))
