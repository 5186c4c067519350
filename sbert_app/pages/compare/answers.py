"""The question and the answer of the tab Two sentences: as HTML, as a link, as Python and as curl."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import NamedTuple
from urllib.parse import urlencode

from markupsafe import Markup

from sbert_app.figures.compare import condensed
from sbert_app.figures.style import model_colours
from sbert_app.formats import format_count, format_number, model_label
from sbert_app.pages.components.messages import attribution, error_message
from sbert_app.pages.components.pickers import NO_CROSS_ENCODER, named_model
from sbert_app.pages.components.templates import macro, render
from sbert_app.services.compare.calibration import MEASURED_ELSEWHERE
from sbert_app.services.compare.comparison import Comparison, LeftOut, compare_by_name
from sbert_app.services.compare.examples import ExamplePair, error_of_model, example_of
from sbert_app.services.compare.token_score import NUMBERS, TokenScore, score_tokens
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.models.function_words import MULTILINGUAL
from sbert_app.services.results.results import data_label
from training.errors import InputError, UserFacingError
from training.evaluation.attribution import words_in_text
from training.evaluation.calibration import FITTED_ON, Calibration, meaning
from training.names import ModelName
from training.pooling import pooling_label

# The explanations of the terms on the page.
COSINE_TERM = (
    "The cosine of the angle between the vectors of the two sentences. 1: they point the same way. Each model has a "
    "range of its own, so the axis converts it."
)
CROSS_TERM = "A model that reads both sentences at once: slower than comparing two vectors, and mostly more accurate."
PEOPLE_TERM = "The mean of several people’s judgements on a scale from 0 (nothing in common) to 5 (the same meaning)."
TOKENS_TERM = "A score from the tokens of both sentences. It is not on the scale of people’s judgements."
# Labels of the axis that are nearer than this, in points, stand on different lines.
NEAR = 1.7
# The characters of a query: servers and proxies refuse addresses of more than about 8,000.
LONGEST_LINK = 4_000
# Characters of a word, on average, above which white space does not divide a text into words.
LONGEST_WORDS = 10
MEASURING, NOT_MEASURED = "calibrating …", "not calibrated for this model"
# So many unknown words are named.
MOST_UNKNOWN = 6
SAYS_NOTHING = "says nothing about this pair"
# So many words of both sentences are left out in turn without a click: on two cores with AVX2 their variants take the
# cosine about as long as the pair itself, and the cross-encoder twice as long.
MOST_AUTOMATIC = 30
# So many words are shown with the scores without them, before a fold with the rest.
MOST_LEFT_OUT = 6
# The least change of a cosine by which a word is said to decide.
LEAST_CHANGE = 0.02


@dataclass(frozen=True)
class Question:
    """Two sentences and the models that compare them. The fields are also the query parameters of a link.

    ``cross`` is the text in the picker; ``second`` is a model beside the first, with its own pooling.
    """

    a: str
    b: str
    model: ModelName
    pooling: str = ""
    cross: str = ""
    second: str = ""

    @classmethod
    def parse(cls, a: str, b: str, model: str, pooling: str, cross: str | None, second: str | None) -> Question:
        """The question in the fields of the page. InputError if the name of the first model is invalid."""
        return cls(a, b, named_model(model), pooling, "" if cross in (None, NO_CROSS_ENCODER) else cross, second or "")

    @property
    def models(self) -> list[ModelName]:
        """The necessary models, without those whose names are invalid, which `compute` reports."""
        names = [self.model]
        for typed in filter(None, (self.second, self.cross)):
            with suppress(InputError):
                names.append(ModelName.parse(typed))
        return names


@dataclass(frozen=True)
class Answer:
    """The results for a question, which stay in the session and are shown again when more of them are known.

    Attributes:
        example: the example pair of the question, if it is one.
        errors: the reasons for missing scores, as HTML.
        tokens: the score of a second model that compares tokens.
        changes: the scores without each word; None until they are measured.
        base_url: the address of the page.
    """

    inputs: Question
    comparison: Comparison
    second: Comparison | None = None
    example: ExamplePair | None = None
    errors: tuple[str, ...] = ()
    tokens: TokenScore | None = None
    changes: Sequence[LeftOut] | None = None
    base_url: str = ""

    @property
    def comparisons(self) -> list[Comparison]:
        return [comparison for comparison in (self.comparison, self.second) if comparison is not None]

    @property
    def words(self) -> int:
        """The number of words that can be left out."""
        return sum(len(words_in_text(side.words)) for side in (self.comparison.a, self.comparison.b))


def compute(models: ModelCache, inputs: Question, pair: ExamplePair | None, base_url: str = "") -> Answer:
    """The answer. Raises UserFacingError if the sentences or the first model cannot be used."""
    errors = []
    cross_encoder, second, tokens = inputs.cross, None, None
    try:
        models.cross_encoder_or_none(cross_encoder)
    except UserFacingError as unusable:
        # The cosine is worth showing without the cross-encoder.
        errors.append(error_message(unusable))
        cross_encoder = ""
    comparison = compare_by_name(models, inputs.a, inputs.b, inputs.model, inputs.pooling, cross_encoder)
    if inputs.second:
        try:
            name = ModelName.parse(inputs.second)
            tokens = score_tokens(models, name, inputs.a, inputs.b)
            if tokens is None:
                second = compare_by_name(models, inputs.a, inputs.b, name)
        except UserFacingError as unusable:
            errors.append(error_message(unusable))
    example = example_of(inputs.a, inputs.b, pair)
    return Answer(inputs, comparison, second, example, tuple(errors), tokens, base_url=base_url)


def link(base_url: str, question: Question) -> str:
    """A link that opens the page with a question, or a sentence that the question is too long for one."""
    query = {field.name: getattr(question, field.name) for field in fields(question)}
    encoded = urlencode({name: str(value) for name, value in query.items() if value})
    if len(encoded) > LONGEST_LINK:
        return "These sentences are too long for a link."
    return f"{base_url.rstrip('/')}/?{encoded}"


def as_python(question: Question) -> str:
    """The question as a program."""
    lines = [
        f"from sbert_lab import {'CrossEncoder, ' if question.cross else ''}open_model\n",
        f"a, b = {question.a!r}, {question.b!r}",
        f"encoder = open_model({str(question.model)!r}, pooling={question.pooling!r})",
        "u, v = encoder.encode([a, b])",
        'print("cosine", float(u @ v))',
    ]
    if question.cross:
        lines.append(f'print("cross-encoder", float(CrossEncoder({question.cross!r}).predict([(a, b)])[0]))')
    return "\n".join(lines)


def as_curl(base_url: str, question: Question) -> str:
    """The question as a command that calls the HTTP API."""
    models = {"model": str(question.model), "pooling": question.pooling}
    models["cross_encoder"] = question.cross or NO_CROSS_ENCODER
    body = json.dumps({"sentence_a": question.a, "sentence_b": question.b, **models}, ensure_ascii=False)
    address = shlex.quote(base_url.rstrip("/") + "/api/compare")
    return f"curl -s {address} \\\n  -H 'Content-Type: application/json' \\\n  -d {shlex.quote(body)}"


@dataclass
class ScoreCard:
    """A score with its meaning.

    Attributes:
        label: its name on the axis.
        term: the explanation of its title.
        gold: its place on the gold scale, 0–5, if that is known.
        cut: the part of the sentences that it stands for, if they are longer than the model reads.
        error: its difference from the score of human annotators.
        basis: the uncertainty of the gold score.
        colour: the palette colour of its model; green for people.
        is_repeated: whether an earlier card has the same meaning.
    """

    title: str
    label: str
    term: str
    figure: str
    meaning: str
    foot: str = ""
    gold: float | None = None
    cut: str = ""
    error: str = ""
    basis: str = ""
    colour: str = "green"
    is_repeated: bool = False


def result(
    answer: Answer,
    curves: Sequence[Mapping[str, Calibration | None]],
    measuring: bool = False,
    errors: Sequence[str] = (),
) -> Markup:
    """Everything that the page says of a pair: the scores on one axis and as figures, their reason, and the details.

    Args:
        curves: the calibration by pooling of each comparison.
        measuring: whether missing curves are being measured.
        errors: what went wrong, as HTML.
    """
    first, comparisons = answer.comparison, answer.comparisons
    cards = _cards(answer, curves, measuring)
    is_blind = any(comparison.is_blind for comparison in comparisons)
    expected = answer.example.expected if answer.example and not is_blind else None
    blind = [f"{_unknown(comparison)} Its score says nothing." for comparison in comparisons if comparison.is_blind]
    exact = None if is_blind else first.attribution
    return render(
        "compare/templates/result.html",
        answer=answer,
        cards=cards,
        levels=_levels([*(card.gold for card in cards), expected[0] if expected else None]),
        expected=expected,
        blind=blind,
        reason=None if is_blind else reason(answer),
        most=MOST_LEFT_OUT,
        remarks=_remarks(comparisons),
        errors=errors,
        exact=exact and condensed(exact),
        legend=attribution(exact) if exact else "",
        poolings=[] if is_blind else poolings(first, curves[0], measuring),
        pooling=pooling_label(first.pooling),
        token_map=token_map(answer.tokens),
        sides=[] if first.no_map else [("First", first.a), ("Second", first.b)],
        link=link(answer.base_url, answer.inputs),
        as_python=as_python(answer.inputs),
        as_curl=as_curl(answer.base_url, answer.inputs),
    )


def _cards(answer: Answer, curves: Sequence[Mapping[str, Calibration | None]], measuring: bool) -> list[ScoreCard]:
    """A card for each score. A verdict that an earlier card has is not repeated."""
    first, example = answer.comparison, answer.example
    colours = iter(model_colours(_models(answer)))
    own_curves = [by_pooling[item.pooling] for item, by_pooling in zip(answer.comparisons, curves, strict=True)]
    cards = [_encoder_card(first, own_curves[0], example, measuring, next(colours))]
    if first.cross_score is not None:
        cards.append(_cross_encoder_card(first, first.cross_score, example, next(colours)))
    if answer.second is not None:
        cards.append(_encoder_card(answer.second, own_curves[1], example, measuring, next(colours)))
    if answer.tokens is not None:
        sums = "the sum of the shares of tokens, below"
        title, figure = answer.tokens.title, f"{answer.tokens.score:.2f}"
        cards.append(ScoreCard(title, "tokens", TOKENS_TERM, figure, sums, colour=next(colours)))
    if example and example.gold is not None:
        gold = example.gold
        cards.append(ScoreCard("People", "people", PEOPLE_TERM, f"{gold:.1f}", meaning(gold), "STSb dev", gold))
    verdicts: list[str] = []
    for card in cards:
        card.is_repeated = card.meaning in verdicts
        verdicts.append(card.meaning)
    return cards


def _models(answer: Answer) -> list[str]:
    """The names of the models, without settings, in the order of their cards."""
    names = [answer.comparison.model]
    if answer.comparison.cross_encoder:
        names.append(answer.comparison.cross_encoder)
    if answer.second or answer.tokens:
        names.append(answer.inputs.second)
    return [ModelName.parse(name).name for name in names]


class WithoutWord(NamedTuple):
    """A word, and both scores of the pair without it."""

    word: str
    sentence: str
    cosine: float
    cosine_change: float
    cross: float | None
    cross_change: float | None
    # Whether no other word changes the score as much.
    decides: bool
    decides_cross: bool


class Reason(NamedTuple):
    """The scores without each word, the word that changes the cosine most first, and what they say."""

    sentence: str
    rows: list[WithoutWord]
    cosine: float
    cross: float | None
    # The rows that will come, while the scores are not measured.
    pending: int = 0


def reason(answer: Answer) -> Reason | None:
    """Returns the scores without each word; None where nothing can be left out, or it takes a click."""
    comparison = answer.comparison
    scores = comparison.cosine, comparison.cross_score
    if answer.changes is None:
        return Reason("", [], *scores, pending=min(answer.words, MOST_LEFT_OUT)) if is_automatic(answer) else None
    changes = [change for change in answer.changes if change.has_letters] or answer.changes
    changes = sorted(changes, key=lambda change: -abs(change.cosine_change))
    if not changes:
        return None
    largest_cross = max(abs(change.cross_change or 0) for change in changes)
    rows = [
        WithoutWord(
            word=change.word,
            sentence="first" if change.side == "a" else "second",
            cosine=comparison.cosine + change.cosine_change,
            cosine_change=change.cosine_change,
            cross=None if change.cross_change is None else (comparison.cross_score or 0) + change.cross_change,
            cross_change=change.cross_change,
            decides=change is changes[0] and abs(change.cosine_change) >= LEAST_CHANGE,
            decides_cross=abs(change.cross_change or 0) == largest_cross >= LEAST_CHANGE,
        )
        for change in changes
    ]
    opposite = _opposite(rows)
    if opposite in rows[MOST_LEFT_OUT:]:
        # The sentence names it, so it is not in the fold.
        rows.remove(opposite)
        rows.insert(MOST_LEFT_OUT - 1, opposite)
    return Reason(why(rows), rows, *scores)


def is_automatic(answer: Answer) -> bool:
    """Whether each word is left out without a click: the pair is short, and stays on this machine."""
    comparison = answer.comparison
    is_blind = any(item.is_blind for item in answer.comparisons)
    return 0 < answer.words <= MOST_AUTOMATIC and not comparison.sent_to and not is_blind


def why(rows: Sequence[WithoutWord]) -> str:
    """A sentence on the word that changes the cosine most, and on the one that changes it most the other way."""
    first = rows[0]
    if not first.decides:
        most = format_number(abs(first.cosine_change))
        return f"No single word decides: without any one of them the cosine changes by at most {most}."
    rises = first.cosine_change > 0
    sentence = (
        f"{_named(first, rows)} {'lowers' if rises else 'raises'} the cosine most: without it {first.cosine:.2f}."
    )
    if other := _opposite(rows):
        sentence += f" {_named(other, rows)} {'raises' if rises else 'lowers'} it most: without it {other.cosine:.2f}."
    return sentence


def _opposite(rows: Sequence[WithoutWord]) -> WithoutWord | None:
    """The row that changes the cosine most in the other direction than the first, if it does so at all."""
    rises = rows[0].cosine_change > 0
    others = [row for row in rows if (row.cosine_change > 0) != rises and abs(row.cosine_change) >= LEAST_CHANGE]
    return max(others, key=lambda row: abs(row.cosine_change), default=None)


def _named(row: WithoutWord, rows: Sequence[WithoutWord]) -> str:
    """The word in quotation marks, with its sentence if both have it."""
    is_twice = sum(other.word == row.word for other in rows) > 1
    return f"“{row.word}”" + (f" in the {row.sentence} sentence" if is_twice else "")


def _levels(places: Sequence[float | None]) -> list[int]:
    """The line above the axis on which the label of each place stands, so that no two overlap."""
    levels, earlier = [0] * len(places), list[tuple[float, int]]()
    for place, card in sorted((place, card) for card, place in enumerate(places) if place is not None):
        taken = {levels[other] for at, other in earlier if place - at < NEAR}
        levels[card] = min(set(range(len(places))) - taken)
        earlier.append((place, card))
    return levels


def _unknown(comparison: Comparison) -> str:
    """A sentence on the first words that a model does not know; "" if it knows all."""
    words = list(dict.fromkeys([*comparison.a.unknown, *comparison.b.unknown]))
    first = ", ".join(words[:MOST_UNKNOWN]) + (" and others" if len(words) > MOST_UNKNOWN else "")
    sentence = f"{model_label(comparison.model)} does not know {first}: it reads each as the same unknown token, [UNK]."
    return sentence if words else ""


def _remarks(comparisons: Sequence[Comparison]) -> list[str]:
    """Remarks on words and languages that a model does not know, and on where sentences were sent."""
    remarks = []
    for comparison in comparisons:
        remarks += [] if comparison.is_blind else comparison.warnings
        if comparison.sent_to:
            remarks.append(f"Both sentences were sent to {comparison.sent_to}.")
        if comparison.advice:
            remarks.append(f"{comparison.advice}, under “Dimensions, prompt and precision”.")
        if (unknown := _unknown(comparison)) and not comparison.is_blind:
            remarks.append(unknown)
        first, second = comparison.a.language, comparison.b.language
        languages = {"The first sentence looks": first, "The second sentence looks": second}
        if first == second:
            languages = {"Both sentences look": first}
        for subject, language in languages.items():
            if language:
                remarks.append(
                    f"{subject} like {language}. {model_label(comparison.model)} was trained on English, so do not "
                    f"trust its score; try a multilingual model, such as {MULTILINGUAL}."
                )
    return remarks


def token_map(score: TokenScore | None) -> Markup | str:
    """A table of the tokens that make a score by tokens; empty without one."""
    if score is None:
        return ""
    columns = [(name, "number" if name in NUMBERS else "") for name in score.columns]
    return macro("compare/ranked")(f"{score.title}. {score.what}.", columns, score.rows)


def poolings(
    comparison: Comparison, curves: Mapping[str, Calibration | None], measuring: bool = False
) -> list[tuple[str, float, str, bool]]:
    """The pair under mean, max, CLS and the model's own pooling: name, cosine, meaning, and whether it is chosen."""
    rows = []
    for name, cosine in comparison.by_pooling.items():
        words = MEASURING if measuring else NOT_MEASURED
        if curve := curves.get(name):
            gold = curve.gold_score(cosine)
            words = f"{gold:.1f} of 5: {meaning(gold)}"
        rows.append((pooling_label(name), cosine, words, name == comparison.pooling))
    return rows


def _encoder_card(
    comparison: Comparison, curve: Calibration | None, example: ExamplePair | None, measuring: bool, colour: str
) -> ScoreCard:
    curve = None if comparison.is_blind else curve
    score = curve.gold_score(comparison.cosine) if curve else None
    unknown = SAYS_NOTHING if comparison.is_blind else MEASURING if measuring else NOT_MEASURED
    foot = ""
    if comparison.own_pooling and comparison.pooling != comparison.own_pooling:
        foot = f"trained with {pooling_label(comparison.own_pooling)} pooling, not {pooling_label(comparison.pooling)}"
    how = "" if comparison.sent_to else f" · {pooling_label(comparison.pooling)} pooling"
    label = model_label(comparison.model)
    return ScoreCard(
        title=f"Cosine · {label}{how}",
        label=label if len(label) < 20 else "cosine",
        term=f"{COSINE_TERM} The model is {comparison.model}.",
        figure=format_number(comparison.cosine),
        meaning=unknown if score is None else meaning(score),
        foot=foot,
        gold=score,
        cut=_cut(comparison),
        error="" if score is None else _error(score, example),
        basis="" if curve is None else _basis(curve, comparison),
        colour=colour,
    )


def _cut(comparison: Comparison) -> str:
    """The part of the sentences that a cosine stands for, if the model does not read them whole; else ""."""
    parts = []
    for name, side in (("first", comparison.a), ("second", comparison.b)):
        count = len(side.text.split())
        # Chinese and Japanese write no spaces, so their words are not counted.
        has_words = len(side.text) < LONGEST_WORDS * count and side.unread < count
        part = f"first {format_count(count - side.unread, 'word')}" if has_words else "beginning"
        parts += [f"the {part} of the {name} sentence"] if side.truncated else []
    return f"The model reads only {' and '.join(parts)}." if parts else ""


def _basis(curve: Calibration, comparison: Comparison) -> str:
    """The uncertainty of a calibrated score, by the pairs on which its curve was fitted."""
    low, high = (f"{score:.1f}" for score in curve.band(comparison.cosine))
    if low == high:
        return ""
    holds = data_label(curve.fitted_on)
    if curve.fitted_on == FITTED_ON:
        is_measured = (comparison.model, comparison.pooling) == MEASURED_ELSEWHERE
        holds = "STSb; on other text about 6 of 10" if is_measured else "STSb; other text not measured"
    return f"People scored 8 of 10 such pairs between {low} and {high} ({holds})."


def _error(score: float, example: ExamplePair | None) -> str:
    return error_of_model(score, example.gold, example.expected) if example else ""


def _cross_encoder_card(comparison: Comparison, score: float, example: ExamplePair | None, colour: str) -> ScoreCard:
    spearman = (comparison.card or {}).get("spearman", {}).get("test")
    title, figure = f"Cross-encoder · {model_label(comparison.cross_encoder)}", f"{score:.2f}"
    if comparison.cross_is_blind:
        return ScoreCard(title, "cross-encoder", CROSS_TERM, figure, SAYS_NOTHING, colour=colour)
    return ScoreCard(
        title=title,
        label="cross-encoder",
        term=CROSS_TERM + ("" if spearman is None else f" This one reaches Spearman’s ρ {spearman:.1f} on STSb test."),
        figure=figure,
        meaning=meaning(score * 5),
        gold=score * 5,
        cut="Only the beginnings were compared: the model reads no more." if comparison.cross_is_cut else "",
        error=_error(score * 5, example),
        colour=colour,
    )
