"""The question and the answer of the tab Two sentences: as HTML, as a link, as Python and as curl."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from urllib.parse import urlencode

from markupsafe import Markup

from sbert_app.figures.compare import MOST_WORDS
from sbert_app.formats import format_count, format_number, model_label
from sbert_app.pages.components.messages import error_message, note
from sbert_app.pages.components.pickers import NO_CROSS_ENCODER, named_model
from sbert_app.pages.components.templates import macro, render, tint
from sbert_app.services.compare.comparison import Comparison, LeftOut, compare_by_name
from sbert_app.services.compare.examples import ExamplePair, error_of_model, example_of
from sbert_app.services.compare.token_score import NUMBERS, TokenScore, score_tokens
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.models.function_words import MULTILINGUAL
from sbert_app.services.results.results import data_label
from training.errors import InputError, UserFacingError
from training.evaluation.attribution import Attribution
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
    """The results for a question, which stay in the session and are shown again once a curve is measured.

    ``example`` is the example pair of the question if it is one; ``errors`` are reasons for missing scores, as HTML;
    ``tokens`` is the score of a second model that compares tokens.
    """

    inputs: Question
    comparison: Comparison
    second: Comparison | None
    example: ExamplePair | None
    errors: tuple[str, ...]
    tokens: TokenScore | None = None

    @property
    def comparisons(self) -> list[Comparison]:
        return [comparison for comparison in (self.comparison, self.second) if comparison is not None]


def compute(models: ModelCache, inputs: Question, pair: ExamplePair | None) -> Answer:
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
    return Answer(inputs, comparison, second, example_of(inputs.a, inputs.b, pair), tuple(errors), tokens)


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
        f"from training import {'CrossEncoder, ' if question.cross else ''}open_model\n",
        f"a, b = {question.a!r}, {question.b!r}",
        f"encoder = open_model({str(question.model)!r}, pooling={question.pooling!r})",
        "u, v = encoder.encode([a, b])",
        'print("cosine", float(u @ v))',
    ]
    if question.cross:
        lines.append(f'print("cross-encoder", float(CrossEncoder.load({question.cross!r}).predict([(a, b)])[0]))')
    return "\n".join(lines)


def as_curl(base_url: str, question: Question) -> str:
    """The question as a command that calls the HTTP API."""
    models = {"model": str(question.model), "pooling": question.pooling}
    models["cross_encoder"] = question.cross or NO_CROSS_ENCODER
    body = json.dumps({"sentence_a": question.a, "sentence_b": question.b, **models}, ensure_ascii=False)
    address = shlex.quote(base_url.rstrip("/") + "/api/compare")
    return f"curl -s {address} \\\n  -H 'Content-Type: application/json' \\\n  -d {shlex.quote(body)}"


@dataclass(frozen=True)
class ScoreCard:
    """A score with its meaning.

    Attributes:
        label: its name on the axis.
        term: the explanation of its title.
        gold: its place on the gold scale, 0–5, if that is known.
        cut: the part of the sentences that it stands for, if they are longer than the model reads.
        error: its difference from the score of human annotators.
        basis: the uncertainty of the gold score.
        mark: the class of its colour.
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
    mark: str = ""


def result(
    comparisons: Sequence[Comparison],
    curves: Sequence[Calibration | None],
    example: ExamplePair | None = None,
    measuring: bool = False,
    errors: Sequence[str] = (),
    tokens: TokenScore | None = None,
) -> Markup:
    """The scores of a pair by the first model, and a second one if there is one, on one axis, and as figures below it.

    ``example`` has the gold score of the pair, or the range of scores that the definitions of the scale allow;
    ``measuring`` says whether missing curves are being measured; ``errors`` are HTML.
    """
    first = comparisons[0]
    gold, expected = (example.gold, example.expected) if example else (None, None)
    cards = [
        _encoder_card(comparison, curve, example, measuring)
        for comparison, curve in zip(comparisons, curves, strict=True)
    ]
    if first.cross_score is not None:
        cards.insert(1, _cross_encoder_card(first, first.cross_score, example))
    if tokens is not None:
        meant = "the sum of the shares of tokens, below"
        cards.append(ScoreCard(tokens.title, "tokens", TOKENS_TERM, f"{tokens.score:.2f}", meant))
    if gold is not None:
        people = ("People", "people", PEOPLE_TERM, f"{gold:.1f}", meaning(gold), "STSb dev", gold)
        cards.append(ScoreCard(*people, mark="mark-people"))
    cards = [card if card.mark else replace(card, mark=f"mark-{place}") for place, card in enumerate(cards, 1)]
    expected = None if any(comparison.is_blind for comparison in comparisons) else expected
    blind = [f"{_unknown(comparison)} Its score says nothing." for comparison in comparisons if comparison.is_blind]
    return render(
        "compare/templates/result.html",
        cards=cards,
        levels=_levels([*(card.gold for card in cards), expected[0] if expected else None]),
        expected=expected,
        asked=(first.a.text, first.b.text, example.name if example else ""),
        blind=blind,
        why="" if blind else why(first.attribution),
        remarks=_remarks(comparisons),
        errors=errors,
    )


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


def why(exact: Attribution | None) -> str:
    """A sentence on the words that add most and least to the cosine; empty without an exact map of some words."""
    if exact is None or max(exact.matrix.shape) > MOST_WORDS:
        return ""
    added = [*zip(exact.matrix.sum(axis=1).tolist(), exact.words_a, strict=True)]
    added += zip(exact.matrix.sum(axis=0).tolist(), exact.words_b, strict=True)
    words = sorted((value, word) for value, word in added if word.isalnum())
    if len(words) < 3 or words[0][1] == words[-1][1]:
        return ""
    (least, worst), (most, best) = words[0], words[-1]
    takes = f"takes {format_number(-least)} away" if least <= -0.005 else f"adds least, {format_number(least)}"
    share = f"{format_number(most)} of {format_number(exact.cosine)}"
    return f"“{best}” adds most to the cosine, {share}; “{worst}” {takes}."


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


def poolings(comparison: Comparison, curves: Mapping[str, Calibration | None], measuring: bool = False) -> Markup:
    """The pair under mean, max, CLS and the model's own pooling; ``measuring`` as in `result`."""
    if comparison.is_blind:
        return Markup()
    rows = []
    for name, cosine in comparison.by_pooling.items():
        words = MEASURING if measuring else NOT_MEASURED
        if curve := curves.get(name):
            gold = curve.gold_score(cosine)
            words = f"{gold:.1f} of 5: {meaning(gold)}"
        rows.append((pooling_label(name), cosine, words, name == comparison.pooling))
    return macro("compare/poolings")(rows)


def left_out(changes: Sequence[LeftOut], comparison: Comparison) -> Markup:
    """Both sentences with each word coloured by what it adds, that is, what is lost without it, and a table of it."""
    if not changes:
        return note("There is no word to leave out.")
    largest = max(abs(change.cosine_change) for change in changes)
    texts = {"a": comparison.a.text, "b": comparison.b.text}
    sentences = [_tinted(texts[side], [c for c in changes if c.side == side], largest) for side in texts]
    columns = [("word", ""), ("sentence", ""), ("adds to cosine", "number")]
    if changes[0].cross_change is not None:
        columns.append(("to cross-encoder", "number"))
    rows = []
    for change in sorted(changes, key=lambda change: change.cosine_change):
        row = [change.word, "first" if change.side == "a" else "second", format_number(-change.cosine_change, 3, "+")]
        rows.append([*row, format_number(-change.cross_change, 3, "+")] if change.cross_change is not None else row)
    return macro("compare/left_out")(sentences=sentences, columns=columns, rows=rows)


def _encoder_card(
    comparison: Comparison, curve: Calibration | None, example: ExamplePair | None, measuring: bool
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
        basis="" if curve is None else _basis(curve, comparison.cosine),
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


def _basis(curve: Calibration, cosine: float) -> str:
    """The uncertainty of a calibrated score, by the pairs on which its curve was fitted."""
    low, high = (f"{score:.1f}" for score in curve.band(cosine))
    pairs = f"pairs of {data_label(curve.fitted_on)}"
    # As measured on the SemEval sets and SICK-R, without the pairs of STSb.
    holds = " (8 of 10 on STSb, 6 of 10 on other text)" if curve.fitted_on == FITTED_ON else ""
    return "" if low == high else f"People gave 80% of such {pairs} between {low} and {high}{holds}"


def _error(score: float, example: ExamplePair | None) -> str:
    return error_of_model(score, example.gold, example.expected) if example else ""


def _cross_encoder_card(comparison: Comparison, score: float, example: ExamplePair | None) -> ScoreCard:
    spearman = (comparison.card or {}).get("spearman", {}).get("test")
    title, figure = f"Cross-encoder · {model_label(comparison.cross_encoder)}", f"{score:.2f}"
    if comparison.cross_is_blind:
        return ScoreCard(title, "cross-encoder", CROSS_TERM, figure, SAYS_NOTHING)
    return ScoreCard(
        title=title,
        label="cross-encoder",
        term=CROSS_TERM + ("" if spearman is None else f" This one reaches Spearman’s ρ {spearman:.1f} on STSb test."),
        figure=figure,
        meaning=meaning(score * 5),
        gold=score * 5,
        cut="Only the beginnings were compared: the model reads no more." if comparison.cross_is_cut else "",
        error=_error(score * 5, example),
    )


def _tinted(sentence: str, changes: Sequence[LeftOut], largest: float) -> list[tuple[str, str, str]]:
    """The sentence in pieces (text, colour, title); a word's colour is what it adds, relative to the ``largest``."""
    pieces, end = [], 0
    for change in sorted(changes, key=lambda change: change.start):
        colour = tint(-change.cosine_change, largest)
        pieces.append((sentence[end : change.start], "", ""))
        pieces.append((sentence[change.start : change.end], colour, format_number(-change.cosine_change, 3, "+")))
        end = change.end
    return [*pieces, (sentence[end:], "", "")]
