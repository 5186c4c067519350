"""The scores of a pair as HTML: with their meaning, under each pooling, without each word; and its tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from sbert_app.formats import format_count, format_number
from sbert_app.pages.components.messages import note
from sbert_app.pages.components.templates import macro, render, tint
from sbert_app.services.compare.calibration import error_of_model
from sbert_app.services.compare.comparison import Comparison, LeftOut, Side
from sbert_app.services.compare.token_score import NUMBERS, TokenScore
from sbert_app.services.results.results import data_label
from training.evaluation.calibration import Calibration, meaning
from training.names import ModelName
from training.pooling import pooling_label

MEASURING, NOT_MEASURED = "being measured …", "not measured for this model"


@dataclass(frozen=True)
class ScoreCard:
    title: str
    figure: str
    meaning: str
    foot: str
    gold: float | None = None  # its place on the gold scale, 0–5; None: unknown
    error: str = ""  # how it differs from what people say
    basis: str = ""  # how sure the gold score is, and what it was fitted on


def result(
    comparisons: Sequence[Comparison],
    curves: Sequence[Calibration | None],
    gold: float | None,
    expected: tuple[float, float] | None = None,
    measuring: bool = False,
    errors: Sequence[str] = (),
    tokens: TokenScore | None = None,
) -> Markup:
    """The scores of a pair side by side, under the chosen model and the second one if there is one.

    ``expected`` is the range of scores that the scale's definitions allow the pair; ``measuring`` says whether curves
    that are missing are on their way; ``errors`` are HTML.
    """
    first = comparisons[0]
    cards = [
        _encoder_card(comparison, curve, gold, expected, measuring)
        for comparison, curve in zip(comparisons, curves, strict=True)
    ]
    if first.cross_score is not None:
        cards.insert(1, _cross_encoder_card(first, first.cross_score, gold, expected))
    if tokens is not None:
        foot = f"{tokens.milliseconds:.0f} ms for the pair · not on the gold scale"
        cards.append(ScoreCard(tokens.title, f"{tokens.score:.2f}", "the sum of the shares of tokens, below", foot))
    if gold is not None:
        cards.append(ScoreCard("Gold score", f"{gold:.1f}", meaning(gold), "human annotators, STSb dev", gold))
    return render("compare/templates/result.html", cards=cards, remarks=_remarks(comparisons), errors=errors)


def _remarks(comparisons: Sequence[Comparison]) -> list[str]:
    """What a model did not read, and sentences in a language that it was not made for."""
    remarks = []
    for comparison in comparisons:
        if comparison.sent_to:
            remarks.append(f"Both sentences were sent to {comparison.sent_to}.")
        if comparison.advice:
            remarks.append(f"{comparison.advice}, under “Dimensions, prompt and precision”.")
        for name, side in (("first", comparison.a), ("second", comparison.b)):
            if side.truncated:
                remarks.append(
                    f"The {name} sentence is longer than {comparison.model} reads: its last "
                    f"{format_count(side.unread, 'word')} had no effect."
                )
            if side.language:
                remarks.append(
                    f"The {name} sentence looks like {side.language}; {comparison.model} was trained on another "
                    "language, so its scores say little here."
                )
    return remarks


def token_map(score: TokenScore | None) -> Markup | str:
    """Which tokens make a score that compares tokens."""
    if score is None:
        return ""
    columns = [(name, "number" if name in NUMBERS else "") for name in score.columns]
    return macro("compare/ranked")(f"{score.title}. {score.what}.", columns, score.rows)


def poolings(comparison: Comparison, curves: Mapping[str, Calibration | None], measuring: bool = False) -> Markup:
    """The pair under mean, max, CLS and the model's own pooling. ``measuring``: missing curves are on their way."""
    rows = []  # (label, cosine, meaning, whether it is the chosen one)
    for name, cosine in comparison.by_pooling.items():
        words = MEASURING if measuring else NOT_MEASURED
        if curve := curves.get(name):
            gold = curve.gold_score(cosine)
            words = f"{gold:.1f} of 5: {meaning(gold)}"
        rows.append((pooling_label(name), cosine, words, name == comparison.pooling))
    return macro("compare/poolings")(rows)


def left_out(changes: Sequence[LeftOut], comparison: Comparison) -> Markup:
    """Both sentences, each word coloured by what leaving it out changes, and the changes in a table."""
    if not changes:
        return note("There is no word to leave out.")
    largest = max(abs(change.cosine_change) for change in changes)
    texts = {"a": comparison.a.text, "b": comparison.b.text}
    sentences = [_tinted(texts[side], [c for c in changes if c.side == side], largest) for side in texts]
    columns = [("word", ""), ("sentence", ""), ("cosine", "number")]
    has_cross_encoder = changes[0].cross_change is not None
    if has_cross_encoder:
        columns.append(("cross-encoder", "number"))
    rows = []
    for change in sorted(changes, key=lambda change: change.cosine_change):
        row = [change.word, "first" if change.side == "a" else "second", format_number(change.cosine_change, 3, "+")]
        rows.append([*row, format_number(change.cross_change, 3, "+")] if change.cross_change is not None else row)
    return macro("compare/left_out")(sentences=sentences, columns=columns, rows=rows)


def tokens(a: Side, b: Side) -> Markup:
    """Both sentences as the model reads them."""
    return macro("compare/tokens")(sides=[("First", a), ("Second", b)])


def _encoder_card(
    comparison: Comparison,
    curve: Calibration | None,
    gold: float | None,
    expected: tuple[float, float] | None,
    measuring: bool,
) -> ScoreCard:
    score = curve.gold_score(comparison.cosine) if curve else None
    unknown = "being measured: what this cosine means for this model" if measuring else NOT_MEASURED
    foot = f"{comparison.encoder_ms:.0f} ms for both sentences"
    if comparison.own_pooling and comparison.pooling != comparison.own_pooling:
        foot += f" · the model was made with {pooling_label(comparison.own_pooling)} pooling, not with this one"
    how = "" if comparison.sent_to else f" · {pooling_label(comparison.pooling)} pooling"
    return ScoreCard(
        title=f"Cosine · {ModelName.parse(comparison.model).label}{how}",
        figure=format_number(comparison.cosine),
        meaning=unknown if score is None else meaning(score),
        foot=foot,
        gold=score,
        error="" if score is None else error_of_model(score, gold, expected),
        basis="" if curve is None else _basis(curve, comparison.cosine),
    )


def _basis(curve: Calibration, cosine: float) -> str:
    """How sure a calibrated score is, and what its curve was fitted on."""
    count = f"{format_count(curve.pairs, 'pair')} of " if curve.pairs else ""
    low, high = curve.band(cosine)
    fitted = f"fitted on {count}{data_label(curve.fitted_on)}"
    return f"8 of 10 pairs with this cosine lie from {low:.1f} to {high:.1f}; {fitted}"


def _cross_encoder_card(
    comparison: Comparison, score: float, gold: float | None, expected: tuple[float, float] | None
) -> ScoreCard:
    foot = f"{comparison.cross_ms:.0f} ms for the pair"
    spearman = (comparison.card or {}).get("spearman", {}).get("test")
    if spearman is not None:
        foot += f" · Spearman {spearman:.1f} on STSb test"
    return ScoreCard(
        title=f"Cross-encoder · {comparison.cross_encoder}",
        figure=f"{score:.2f}",
        meaning=meaning(score * 5),
        foot=foot,
        gold=score * 5,
        error=error_of_model(score * 5, gold, expected),
    )


def _tinted(sentence: str, changes: Sequence[LeftOut], largest: float) -> list[tuple[str, str, str]]:
    """The sentence in (text, colour, title), each word's colour as strong as its change relative to the ``largest``."""
    pieces, end = [], 0
    for change in sorted(changes, key=lambda change: change.start):
        colour = tint(-change.cosine_change, largest)
        pieces.append((sentence[end : change.start], "", ""))
        pieces.append((sentence[change.start : change.end], colour, format_number(change.cosine_change, 3, "+")))
        end = change.end
    return [*pieces, (sentence[end:], "", "")]
