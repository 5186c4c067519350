"""What the Compare page shows, as HTML: plain values for the templates in ``templates/``. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from sbert_app.pages.components.messages import note
from sbert_app.pages.components.pickers import POOLING_LABELS
from sbert_app.pages.components.templates import render
from sbert_app.services.compare.calibration import Calibration, meaning
from sbert_app.services.compare.comparison import AllPairs, Comparison, LeftOut, Side
from sbert_app.services.compare.throughput import PAPER_SENTENCES, Throughput

BLUE, ORANGE = "0,114,178", "213,94,0"  # RGB: the word makes the sentences alike, sets them apart


@dataclass(frozen=True)
class ScoreCard:
    """One score of a pair, with its meaning."""

    title: str
    figure: str
    meaning: str
    foot: str
    gold: float | None = None  # its place on the gold scale, 0–5; None: unknown


def result(comparison: Comparison, curve: Calibration | None, gold: float | None, error: str = "") -> Markup:
    """The scores of a pair side by side, and below them ``error``: why a score is missing."""
    cards = [_encoder_card(comparison, curve)]
    if comparison.cross_score is not None:
        cards.append(_cross_encoder_card(comparison, comparison.cross_score))
    if gold is not None:
        cards.append(ScoreCard("Gold score", f"{gold:.1f}", meaning(gold), "human annotators, STSb dev", gold))
    truncated = [name for name, side in (("first", comparison.a), ("second", comparison.b)) if side.truncated]
    return render("compare/templates/result.html", cards=cards, truncated=" and the ".join(truncated), error=error)


def poolings(comparison: Comparison, curves: Mapping[str, Calibration | None]) -> Markup:
    """The same pair under mean, max and CLS pooling."""
    rows = []
    for name, cosine in comparison.by_pooling.items():
        curve = curves.get(name)
        gold = curve.gold_score(cosine) if curve else None
        rows.append(
            {
                "pooling": POOLING_LABELS[name],
                "cosine": cosine,
                "meaning": "" if gold is None else f"{gold:.1f} of 5: {meaning(gold)}",
                "chosen": name == comparison.pooling,
            }
        )
    return render("compare/templates/poolings.html", rows=rows)


def left_out(changes: Sequence[LeftOut], comparison: Comparison) -> Markup:
    """Both sentences, each word coloured by what leaving it out changes, and the changes in a table."""
    if not changes:
        return note("There is no word to leave out.")
    largest = max(max(abs(change.cosine_change) for change in changes), 1e-6)
    texts = {"a": comparison.a.text, "b": comparison.b.text}
    sentences = [_tinted(texts[side], [c for c in changes if c.side == side], largest) for side in texts]
    columns = [("word", ""), ("sentence", ""), ("cosine", "number")]
    has_cross_encoder = changes[0].cross_change is not None
    if has_cross_encoder:
        columns.append(("cross-encoder", "number"))
    rows = []
    for change in sorted(changes, key=lambda change: change.cosine_change):
        row = [change.word, "first" if change.side == "a" else "second", f"{change.cosine_change:+.3f}"]
        rows.append([*row, f"{change.cross_change:+.3f}"] if change.cross_change is not None else row)
    return render("compare/templates/left_out.html", sentences=sentences, columns=columns, rows=rows)


def tokens(a: Side, b: Side) -> Markup:
    """Both sentences as the model reads them."""
    return render("compare/templates/tokens.html", sides=[("First", a), ("Second", b)])


def all_pairs_times(pairs: AllPairs, throughput: Throughput) -> Markup:
    """O(N) against O(N²): the measured times, and the paper's case at the rates of this machine."""
    n = len(pairs.lines)
    return render(
        "compare/templates/all_pairs.html",
        sentences=n,
        pairs=n * (n - 1) // 2,
        encode_seconds=pairs.encode_seconds,
        product_seconds=pairs.product_seconds,
        cross_seconds=pairs.cross_seconds,
        notes=pairs.notes,
        sentences_per_second=throughput.sentences_per_second,
        pairs_per_second=throughput.pairs_per_second,
        paper_sentences=PAPER_SENTENCES,
        paper_pairs=PAPER_SENTENCES * (PAPER_SENTENCES - 1) // 2,
        paper_encode_seconds=throughput.encode_seconds(),
        paper_product_seconds=throughput.product_seconds,
        paper_cross_seconds=throughput.cross_seconds(),
    )


def _encoder_card(comparison: Comparison, curve: Calibration | None) -> ScoreCard:
    gold = curve.gold_score(comparison.cosine) if curve else None
    return ScoreCard(
        title=f"Cosine · {comparison.model} · {POOLING_LABELS[comparison.pooling]} pooling",
        figure=f"{comparison.cosine:.2f}",
        meaning="being measured: what this cosine means for this model" if gold is None else meaning(gold),
        foot=f"{comparison.encoder_ms:.0f} ms for both sentences",
        gold=gold,
    )


def _cross_encoder_card(comparison: Comparison, score: float) -> ScoreCard:
    foot = f"{comparison.cross_ms:.0f} ms for the pair"
    spearman = (comparison.card or {}).get("spearman", {}).get("test")
    if spearman is not None:
        foot += f" · Spearman {spearman:.1f} on STSb test"
    return ScoreCard(f"Cross-encoder · {comparison.cross_encoder}", f"{score:.2f}", meaning(score * 5), foot, score * 5)


@dataclass(frozen=True)
class _Piece:
    """A part of a sentence; one with a colour is a word that was left out."""

    text: str
    colour: str = ""
    title: str = ""


def _tinted(sentence: str, changes: Sequence[LeftOut], largest: float) -> list[_Piece]:
    """The sentence in pieces, each word's colour as strong as its change relative to the ``largest``."""
    pieces, end = [], 0
    for change in sorted(changes, key=lambda change: change.start):
        opacity = 0.08 + 0.55 * min(1.0, abs(change.cosine_change) / largest)
        colour = f"rgba({BLUE if change.cosine_change < 0 else ORANGE},{opacity:.2f})"
        pieces.append(_Piece(sentence[end : change.start]))
        pieces.append(_Piece(sentence[change.start : change.end], colour, f"{change.cosine_change:+.3f}"))
        end = change.end
    return [*pieces, _Piece(sentence[end:])]
