"""The question and the answer of the tab Two sentences: as HTML, as a link, as Python and as curl."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlencode

from markupsafe import Markup

from sbert_app.figures.compare import condense
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

# Explanations of the terms on the page.
COSINE_TERM = (
    "The cosine of the angle between the vectors of the two sentences. 1: they point the same way. Each model has a "
    "range of its own, so the axis converts it."
)
CROSS_TERM = "A model that reads both sentences at once: slower than comparing two vectors, and mostly more accurate."
PEOPLE_TERM = "The mean of several people’s judgements on a scale from 0 (nothing in common) to 5 (the same meaning)."
TOKENS_TERM = (
    "A score from the tokens of both sentences. It is not on the scale of people’s judgements."
)
# Labels of the axis that are nearer to each other than this, in points, are put on different lines.
LABEL_WIDTH = 1.7
# The maximum length of a query, in characters. Servers and proxies refuse addresses of more than
# about 8,000.
LONGEST_LINK = 4_000
# If the average word is longer than this, in characters, the text does not separate its words by
# white space.
LONGEST_WORD = 10
MEASURING = "calibrating …"
NOT_MEASURED = "not calibrated for this model"
# The maximum number of unknown words that are named.
MOST_UNKNOWN = 6
SAYS_NOTHING = "says nothing about this pair"
# The maximum number of words, in both sentences, that are left out without a click. On two cores
# with AVX2, the cosines of these variants take about as long as the pair itself, and the scores of
# the cross-encoder twice as long.
MOST_AUTOMATIC = 30
# The number of left-out words that are shown; the others are in a fold.
MOST_LEFT_OUT = 6
# A word is called decisive only if the cosine changes by this much without it.
LEAST_CHANGE = 0.02


@dataclass(frozen=True)
class Question:
    """Two sentences and the models that compare them. The fields are also the query parameters of a link.

    Attributes:
        cross: the text in the picker of cross-encoders; "" for none.
        second: another model, which is used with its own pooling.
    """

    a: str
    b: str
    model: ModelName
    pooling: str = ""
    cross: str = ""
    second: str = ""

    @classmethod
    def parse(
        cls,
        a: str,
        b: str,
        model: str,
        pooling: str,
        cross: str | None,
        second: str | None,
    ) -> Question:
        """Returns the question in the fields of the page. Raises InputError for an invalid name of the first model."""
        if cross == NO_CROSS_ENCODER:
            cross = ""
        return cls(a, b, named_model(model), pooling, cross or "", second or "")

    @property
    def models(self) -> list[ModelName]:
        """The models that are needed. Invalid names are left out here, and reported by `compute`."""
        names = [self.model]
        for name in (self.second, self.cross):
            if name:
                with suppress(InputError):
                    names.append(ModelName.parse(name))
        return names


@dataclass(frozen=True)
class Answer:
    """The results for a question. They stay in the session, and are shown again when more results are known.

    Attributes:
        second: the pair under the second model, if that compares vectors.
        example: the example pair with these sentences, if there is one.
        errors: the reasons for missing scores, as HTML.
        tokens: the score of the second model, if that compares tokens.
        changes: the effect of leaving out each word; None until it is measured.
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
        if self.second is None:
            return [self.comparison]
        return [self.comparison, self.second]

    @property
    def word_count(self) -> int:
        """The number of words that can be left out."""
        first = words_in_text(self.comparison.a.words)
        second = words_in_text(self.comparison.b.words)
        return len(first) + len(second)


def compute(
    models: ModelCache, inputs: Question, pair: ExamplePair | None, base_url: str = ""
) -> Answer:
    """Returns the answer. Raises UserFacingError if the sentences or the first model cannot be used.

    ``pair`` is the last random pair. It is the example of the answer if both sentences are unchanged.
    """
    errors = []
    cross_encoder = inputs.cross
    try:
        # Opened here only so that its error can be told from an error of the first model. Later,
        # `compare_by_name` takes it from the cache.
        models.cross_encoder_or_none(cross_encoder)
    except UserFacingError as error:
        # The cosine is worth showing without the cross-encoder.
        errors.append(error_message(error))
        cross_encoder = ""
    comparison = compare_by_name(
        models, inputs.a, inputs.b, inputs.model, inputs.pooling, cross_encoder
    )
    second = None
    tokens = None
    if inputs.second:
        try:
            name = ModelName.parse(inputs.second)
            tokens = score_tokens(models, name, inputs.a, inputs.b)
            if tokens is None:
                # The model compares vectors. No pooling is given, so it uses its own.
                second = compare_by_name(models, inputs.a, inputs.b, name)
        except UserFacingError as error:
            errors.append(error_message(error))
    example = example_of(inputs.a, inputs.b, pair)
    return Answer(inputs, comparison, second, example, tuple(errors), tokens, base_url=base_url)


def link(base_url: str, question: Question) -> str:
    """Returns a link that opens the page with a question, or a sentence if it would be too long."""
    # The fields have the names of the query parameters.
    query = urlencode({name: value for name, value in vars(question).items() if value})
    if len(query) > LONGEST_LINK:
        return "These sentences are too long for a link."
    return f"{base_url.rstrip('/')}/?{query}"


def as_python(question: Question) -> str:
    """Returns the question as a Python program."""
    names = "CrossEncoder, open_model" if question.cross else "open_model"
    lines = [
        f"from sbert_lab import {names}\n",
        f"a, b = {question.a!r}, {question.b!r}",
        f"encoder = open_model({str(question.model)!r}, pooling={question.pooling!r})",
        "u, v = encoder.encode([a, b])",
        'print("cosine", float(u @ v))',
    ]
    if question.cross:
        lines.append(
            f'print("cross-encoder", float(CrossEncoder({question.cross!r}).predict([(a, b)])[0]))'
        )
    return "\n".join(lines)


def as_curl(base_url: str, question: Question) -> str:
    """Returns the question as a command that calls the HTTP API."""
    body = {
        "sentence_a": question.a,
        "sentence_b": question.b,
        "model": str(question.model),
        "pooling": question.pooling,
        "cross_encoder": question.cross or NO_CROSS_ENCODER,
    }
    data = shlex.quote(json.dumps(body, ensure_ascii=False))
    address = shlex.quote(base_url.rstrip("/") + "/api/compare")
    return f"curl -s {address} \\\n  -H 'Content-Type: application/json' \\\n  -d {data}"


@dataclass
class ScoreCard:
    """A score with its meaning.

    Attributes:
        label: the name on the axis.
        term: the explanation of the title.
        gold: the place on the gold scale, 0–5, if it is known.
        cut: which part of the sentences the model has read, if they are too long for it.
        error: a sentence if people judge the pair otherwise.
        basis: the uncertainty of the gold score.
        colour: the palette colour of the model; green for people.
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
    is_measuring: bool = False,
    errors: Sequence[str] = (),
) -> Markup:
    """Renders everything about a pair: the scores on one axis and as figures, their reason, and the details.

    Args:
        curves: for each of `Answer.comparisons`, the calibration by pooling; None for a pooling
            without one.
        is_measuring: whether missing curves are being measured.
        errors: what went wrong, as HTML.
    """
    first = answer.comparison
    cards = _cards(answer, curves, is_measuring)
    # The places of the labels on the axis, from 0 to 5; None for a card that is not on it.
    places = [card.gold for card in cards]
    blind = [
        f"{_unknown(comparison)} Its score says nothing."
        for comparison in answer.comparisons
        if comparison.is_blind
    ]
    # A score that says nothing is not explained.
    expected = None
    exact = None
    explanation = None
    by_pooling = []
    if not blind:
        # The contribution of each pair of words to the cosine; None if it is not defined, as under
        # CLS pooling.
        exact = first.attribution
        explanation = reason(answer)
        by_pooling = poolings(first, curves[0], is_measuring)
        if answer.example:
            expected = answer.example.expected
    # The expected range, from the example, has the last label, at its lower bound.
    places.append(expected[0] if expected else None)
    return render(
        "compare/templates/result.html",
        answer=answer,
        cards=cards,
        levels=_levels(places),
        expected=expected,
        blind=blind,
        reason=explanation,
        most=MOST_LEFT_OUT,
        remarks=_remarks(answer.comparisons),
        errors=errors,
        exact=condense(exact) if exact else None,
        legend=attribution(exact) if exact else "",
        poolings=by_pooling,
        pooling=pooling_label(first.pooling),
        token_map=token_map(answer.tokens),
        # The tokens of each sentence, unless the model returns vectors only.
        sides=[] if first.no_map else [("First", first.a), ("Second", first.b)],
        link=link(answer.base_url, answer.inputs),
        as_python=as_python(answer.inputs),
        as_curl=as_curl(answer.base_url, answer.inputs),
    )


def _cards(
    answer: Answer, curves: Sequence[Mapping[str, Calibration | None]], is_measuring: bool
) -> list[ScoreCard]:
    """Returns a card for each score. A card with the same meaning as an earlier one is marked.

    ``curves`` has the calibration of each of `Answer.comparisons` by pooling; ``is_measuring`` tells
    whether missing calibrations are being measured.
    """
    first = answer.comparison
    second = answer.second
    example = answer.example
    # Each model takes the next colour, in the order of `_models`.
    colours = iter(model_colours(_models(answer)))
    cards = [_encoder_card(first, curves[0][first.pooling], example, is_measuring, next(colours))]
    if first.cross_score is not None:
        cards.append(_cross_encoder_card(first, first.cross_score, example, next(colours)))
    if second is not None:
        cards.append(
            _encoder_card(second, curves[1][second.pooling], example, is_measuring, next(colours))
        )
    if answer.tokens is not None:
        cards.append(
            ScoreCard(
                title=answer.tokens.title,
                label="tokens",
                term=TOKENS_TERM,
                figure=f"{answer.tokens.score:.2f}",
                meaning="the sum of the shares of tokens, below",
                colour=next(colours),
            )
        )
    if example and example.gold is not None:
        gold = example.gold
        cards.append(
            ScoreCard(
                title="People",
                label="people",
                term=PEOPLE_TERM,
                figure=f"{gold:.1f}",
                meaning=meaning(gold),
                foot="STSb dev",
                gold=gold,
            )
        )
    meanings = set()
    for card in cards:
        card.is_repeated = card.meaning in meanings
        meanings.add(card.meaning)
    return cards


def _models(answer: Answer) -> list[str]:
    """Returns the names of the models, without settings, in the order of their cards."""
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
    # Whether no word changes the cosine more, and the change is at least `LEAST_CHANGE`.
    decides: bool
    # The same for the score of the cross-encoder.
    decides_cross: bool


class Reason(NamedTuple):
    """The scores of the pair without each word, and a sentence about them.

    Attributes:
        rows: the word that changes the cosine most comes first.
        cosine: the cosine of the whole pair.
        cross: the score of the cross-encoder for the whole pair.
        pending: the number of rows for which there is a place while they are being measured.
    """

    sentence: str
    rows: list[WithoutWord]
    cosine: float
    cross: float | None
    pending: int = 0


def reason(answer: Answer) -> Reason | None:
    """Returns the scores without each word.

    Returns None if no word can be left out, or if the scores are measured only after a click.
    """
    cosine = answer.comparison.cosine
    cross = answer.comparison.cross_score
    if answer.changes is None:
        # Not measured yet. An automatic answer gets a place for the rows that will follow.
        if not is_automatic(answer):
            return None
        return Reason("", [], cosine, cross, pending=min(answer.word_count, MOST_LEFT_OUT))
    changes = [change for change in answer.changes if change.has_letters]
    # All may be punctuation marks.
    changes = changes or list(answer.changes)
    if not changes:
        return None
    changes.sort(key=lambda change: -abs(change.cosine_change))
    cross_changes = [abs(change.cross_change or 0) for change in changes]
    # The largest change, unless that is too small. Without a cross-encoder all changes are 0, so no
    # word decides.
    decisive_cross_change = max(LEAST_CHANGE, *cross_changes)
    rows = []
    for change in changes:
        cross_change = change.cross_change
        cross_without = None
        if cross is not None and cross_change is not None:
            cross_without = cross + cross_change
        rows.append(
            WithoutWord(
                word=change.word,
                sentence="first" if change.side == "a" else "second",
                cosine=cosine + change.cosine_change,
                cosine_change=change.cosine_change,
                cross=cross_without,
                cross_change=cross_change,
                # The changes are sorted by the cosine, so the first one is the largest. The largest
                # one of the cross-encoder may be anywhere.
                decides=change is changes[0] and abs(change.cosine_change) >= LEAST_CHANGE,
                decides_cross=abs(cross_change or 0) >= decisive_cross_change,
            )
        )
    opposite = _opposite(rows)
    if opposite in rows[MOST_LEFT_OUT:]:
        # Rows after the first `MOST_LEFT_OUT` are in a fold, but the sentence of `why` names the
        # opposite word, so its row becomes the last one outside of the fold.
        rows.remove(opposite)
        rows.insert(MOST_LEFT_OUT - 1, opposite)
    return Reason(why(rows), rows, cosine, cross)


def is_automatic(answer: Answer) -> bool:
    """Whether each word is left out without a click.

    The pair is short and stays on this machine, and no model is blind (`Comparison.is_blind`).
    """
    is_short = 0 < answer.word_count <= MOST_AUTOMATIC
    is_blind = any(comparison.is_blind for comparison in answer.comparisons)
    return is_short and not answer.comparison.sent_to and not is_blind


def why(rows: Sequence[WithoutWord]) -> str:
    """Returns a sentence on the word that changes the cosine most, and on the one that changes it the other way."""
    first = rows[0]
    if not first.decides:
        most = format_number(abs(first.cosine_change))
        return (
            f"No single word decides: without any one of them the cosine changes by at most {most}."
        )
    if first.cosine_change > 0:
        # The cosine rises without a word that lowers it.
        verb = "lowers"
        opposite_verb = "raises"
    else:
        verb = "raises"
        opposite_verb = "lowers"
    sentence = (
        f"{_quoted(first, rows)} {verb} the cosine most: without it {format_number(first.cosine)}."
    )
    other = _opposite(rows)
    if other:
        without = format_number(other.cosine)
        sentence += f" {_quoted(other, rows)} {opposite_verb} it most: without it {without}."
    return sentence


def _opposite(rows: Sequence[WithoutWord]) -> WithoutWord | None:
    """Returns the word that changes the cosine most in the other direction than the first word, if there is one."""
    # Multiplied by this sign, changes in the direction of the first word are positive.
    sign = 1 if rows[0].cosine_change > 0 else -1
    # The most negative one is the largest in the other direction.
    other = min(rows, key=lambda row: sign * row.cosine_change)
    return other if sign * other.cosine_change <= -LEAST_CHANGE else None


def _quoted(row: WithoutWord, rows: Sequence[WithoutWord]) -> str:
    """Returns the word in quotation marks, with its sentence if the word occurs twice."""
    words = [other.word for other in rows]
    if words.count(row.word) > 1:
        return f"“{row.word}” in the {row.sentence} sentence"
    return f"“{row.word}”"


def _levels(places: Sequence[float | None]) -> list[int]:
    """Returns the line above the axis for the label at each place, so that labels do not overlap; 0 without a place."""
    levels = [0] * len(places)
    # The place of the rightmost label on each line.
    ends = [-math.inf] * len(places)
    # (place, number of the label)
    labels = [(place, label) for label, place in enumerate(places) if place is not None]
    # From left to right, each label takes the lowest line on which there is room. There are as many
    # lines as labels, so one is always free.
    for place, label in sorted(labels):
        level = next(level for level, end in enumerate(ends) if place - end >= LABEL_WIDTH)
        levels[label] = level
        ends[level] = place
    return levels


def _unknown(comparison: Comparison) -> str:
    """Returns a sentence on the first words that a model does not know, or "" if it knows all words."""
    words = list(dict.fromkeys([*comparison.a.unknown, *comparison.b.unknown]))
    if not words:
        return ""
    named = ", ".join(words[:MOST_UNKNOWN])
    if len(words) > MOST_UNKNOWN:
        named += " and others"
    return f"{model_label(comparison.model)} does not know {named}: it reads each as the same unknown token, [UNK]."


def _remarks(comparisons: Sequence[Comparison]) -> list[str]:
    """Returns remarks on words and languages that a model does not know, and on servers that got the sentences."""
    remarks = []
    for comparison in comparisons:
        # The score of a model that does not know enough of the words is meaningless, and `result`
        # says so beside the score.
        if not comparison.is_blind:
            remarks += comparison.warnings
        if comparison.sent_to:
            remarks.append(f"Both sentences were sent to {comparison.sent_to}.")
        if comparison.advice:
            remarks.append(f"{comparison.advice}, under “Dimensions, prompt and precision”.")
        unknown = _unknown(comparison)
        if unknown and not comparison.is_blind:
            remarks.append(unknown)
        first = comparison.a.language
        second = comparison.b.language
        # A language is "" if the model was made for it.
        if first == second:
            languages = {"Both sentences look": first}
        else:
            languages = {"The first sentence looks": first, "The second sentence looks": second}
        for subject, language in languages.items():
            if language:
                remarks.append(
                    f"{subject} like {language}. {model_label(comparison.model)} was trained on English, so do not "
                    f"trust its score; try a multilingual model, such as {MULTILINGUAL}."
                )
    return remarks


def token_map(score: TokenScore | None) -> Markup | str:
    """Renders a table of the tokens that make up a score; "" without a score."""
    if score is None:
        return ""
    # (heading, class of its cells)
    columns = [(name, "number" if name in NUMBERS else "") for name in score.columns]
    return macro("compare/ranked")(f"{score.title}. {score.what}.", columns, score.rows)


def poolings(
    comparison: Comparison, curves: Mapping[str, Calibration | None], is_measuring: bool = False
) -> list[tuple[str, float, str, bool]]:
    """Returns the name, the cosine and the meaning of each pooling, and whether it is the selected one."""
    rows = []
    for name, cosine in comparison.by_pooling.items():
        curve = curves.get(name)
        if curve:
            gold = curve.gold_score(cosine)
            verdict = f"{gold:.1f} of 5: {meaning(gold)}"
        else:
            verdict = MEASURING if is_measuring else NOT_MEASURED
        rows.append((pooling_label(name), cosine, verdict, name == comparison.pooling))
    return rows


def _encoder_card(
    comparison: Comparison,
    curve: Calibration | None,
    example: ExamplePair | None,
    is_measuring: bool,
    colour: str,
) -> ScoreCard:
    """Returns the card of a bi-encoder, with the gold score that ``curve`` predicts from the cosine.

    ``curve`` is None if the model is not calibrated; ``is_measuring`` tells whether it is being
    calibrated. If people judge the ``example`` otherwise, the card says so.
    """
    pooling = pooling_label(comparison.pooling)
    label = model_label(comparison.model)
    title = f"Cosine · {label}"
    if not comparison.sent_to:
        # The pooling on a server is not known.
        title += f" · {pooling} pooling"
    card = ScoreCard(
        title=title,
        # There is little room on the axis.
        label=label if len(label) < 20 else "cosine",
        term=f"{COSINE_TERM} The model is {comparison.model}.",
        figure=format_number(comparison.cosine),
        meaning=NOT_MEASURED,
        cut=_cut(comparison),
        colour=colour,
    )
    if comparison.own_pooling and comparison.pooling != comparison.own_pooling:
        card.foot = f"trained with {pooling_label(comparison.own_pooling)} pooling, not {pooling}"
    if comparison.is_blind:
        # The model does not know most words of a sentence, or the words in which the sentences
        # differ.
        card.meaning = SAYS_NOTHING
    elif curve:
        card.gold = curve.gold_score(comparison.cosine)
        card.meaning = _meaning(card.gold, card.cut)
        card.error = _error(card.gold, example)
        card.basis = _basis(curve, comparison)
    elif is_measuring:
        card.meaning = MEASURING
    return card


def _meaning(gold: float, cut: str) -> str:
    """Returns the meaning of a score, with a reservation if the pair is ``cut``."""
    words = meaning(gold)
    return f"{words}, as far as it was read" if cut else words


def _cut(comparison: Comparison) -> str:
    """Returns a sentence on the part of the sentences that the model has read; "" if it has read them whole."""
    parts = []
    for name, side in (("first", comparison.a), ("second", comparison.b)):
        if not side.truncated:
            continue
        count = len(side.text.split())
        # Chinese and Japanese do not separate words by spaces, so their words are not counted.
        has_words = len(side.text) < LONGEST_WORD * count
        part = "beginning"
        # If the model has not read a whole word, the words are not counted, either.
        if has_words and side.unread < count:
            part = f"first {format_count(count - side.unread, 'word')}"
        parts.append(f"the {part} of the {name} sentence")
    if not parts:
        return ""
    return f"The model reads only {' and '.join(parts)}."


def _basis(curve: Calibration, comparison: Comparison) -> str:
    """Returns a sentence on the uncertainty of a calibrated score, from the pairs that its curve was fitted on."""
    low, high = (f"{score:.1f}" for score in curve.band(comparison.cosine))
    if low == high:
        # The score is certain, as for equal sentences.
        return ""
    if curve.fitted_on != FITTED_ON:
        # The user's own curve.
        data = data_label(curve.fitted_on)
    elif (comparison.model, comparison.pooling) == MEASURED_ELSEWHERE:
        # Only for this model and pooling, the range was also checked on other text.
        data = "STSb; on other text about 6 of 10"
    else:
        data = "STSb; other text not measured"
    return f"People scored 8 of 10 such pairs between {low} and {high} ({data})."


def _error(score: float, example: ExamplePair | None) -> str:
    return error_of_model(score, example.gold, example.expected) if example else ""


def _cross_encoder_card(
    comparison: Comparison, score: float, example: ExamplePair | None, colour: str
) -> ScoreCard:
    """Returns the card of the cross-encoder, whose ``score`` is shown on the gold scale as well."""
    card = ScoreCard(
        title=f"Cross-encoder · {model_label(comparison.cross_encoder)}",
        label="cross-encoder",
        term=CROSS_TERM,
        figure=f"{score:.2f}",
        # Replaced below, unless the model does not know most words of a sentence, or the words in
        # which the sentences differ (`cross_is_blind`).
        meaning=SAYS_NOTHING,
        colour=colour,
    )
    if comparison.cross_is_blind:
        return card
    # ``comparison.card`` has the measured correlations of the model; it is not a card of the page.
    spearman = (comparison.card or {}).get("spearman", {}).get("test")
    if spearman is not None:
        card.term += f" This one reaches Spearman’s ρ {spearman:.1f} on STSb test."
    if comparison.cross_is_cut:
        card.cut = "Only the beginnings were compared: the model reads no more."
    # The score is from 0 to 1, the gold scale from 0 to 5.
    card.gold = score * 5
    card.meaning = _meaning(card.gold, card.cut)
    card.error = _error(card.gold, example)
    return card
