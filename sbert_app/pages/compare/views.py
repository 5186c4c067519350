"""What the Compare page shows, as HTML and snippets. Pure functions; every user text is escaped here."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from html import escape
from urllib.parse import urlencode

from sbert_app.services.compare.calibration import Calibration, meaning
from sbert_app.services.compare.comparison import AllPairs, Comparison, LeftOut, Side
from sbert_app.services.compare.throughput import PAPER_SENTENCES, Throughput

POOLING_NAMES = {"mean": "mean", "max": "max", "cls": "CLS"}


def result(comparison: Comparison, curve: Calibration | None, gold: float | None) -> str:
    """The two scores side by side, each with its meaning and its place on the gold scale."""
    cards = [_encoder_card(comparison, curve)]
    if comparison.cross_score is not None:
        cards.append(_cross_card(comparison))
    if gold is not None:
        cards.append(_card("Gold score", f"{gold:.1f}", meaning(gold), _scale(gold), "human annotators, STSb dev"))
    cut = [name for name, side in (("first", comparison.a), ("second", comparison.b)) if side.truncated]
    note = ""
    if cut:
        which = " and the ".join(cut)
        note = f'<p class="note">The {which} sentence is longer than the model reads: its end was cut.</p>'
    return f'<div class="cards" aria-live="polite">{"".join(cards)}</div>{note}'


def poolings(comparison: Comparison, curves: dict[str, Calibration | None]) -> str:
    """The same pair under mean, max and CLS."""
    rows = []
    for name, cosine in comparison.by_pooling.items():
        curve = curves.get(name)
        place = f"{curve.gold_score(cosine):.1f} of 5: {meaning(curve.gold_score(cosine))}" if curve else ""
        chosen = ' class="chosen"' if name == comparison.pooling else ""
        rows.append(
            f'<tr{chosen}><th scope="row">{POOLING_NAMES[name]}</th><td class="number">{cosine:.3f}</td>'
            f'<td class="barcell"><div class="bar"><i style="width:{max(0.0, cosine) * 100:.1f}%"></i></div></td>'
            f'<td class="words">{escape(place)}</td></tr>'
        )
    return (
        '<table class="poolings"><caption>The same pair under three poolings, from one pass. A cosine means something '
        f"else under each: the last column reads it on the gold scale.</caption>{''.join(rows)}</table>"
    )


def left_out(changes: Sequence[LeftOut], comparison: Comparison) -> str:
    """Both sentences with each word coloured by what leaving it out does, and the numbers in a table."""
    if not changes:
        return '<p class="note">There is no word to leave out.</p>'
    bound = max(max(abs(change.cosine_change) for change in changes), 1e-6)
    spoken = {"a": comparison.a.text, "b": comparison.b.text}
    sentences = "".join(
        f'<p class="tinted">{_tinted(spoken[side], [c for c in changes if c.side == side], bound)}</p>' for side in "ab"
    )
    crossed = changes[0].cross_change is not None
    ranked = sorted(changes, key=lambda change: change.cosine_change)
    rows = "".join(
        f"<tr><td>{escape(change.word)}</td><td>{'first' if change.side == 'a' else 'second'}</td>"
        f'<td class="number">{change.cosine_change:+.3f}</td>'
        + (f'<td class="number">{change.cross_change:+.3f}</td>' if change.cross_change is not None else "")
        + "</tr>"
        for change in ranked
    )
    head = "<th>word</th><th>sentence</th><th>cosine</th>" + ("<th>cross-encoder</th>" if crossed else "")
    return (
        '<p class="note">Each word is left out in turn and the pair scored again. <b class="blue">Blue</b>: the pair '
        'is less similar without it, it holds the sentences together. <b class="red">Orange</b>: more similar without '
        f'it, it sets them apart.</p>{sentences}<div class="scroll"><table class="plain"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def tokens(a: Side, b: Side) -> str:
    """Both sentences as the model reads them."""
    return "".join(
        f'<p class="note">{name} sentence: {len(side.tokens)} tokens'
        f'{", cut at the longest input" if side.truncated else ""}</p><p class="tokens">'
        + "".join(f"<span>{escape(token)}</span>" for token in side.tokens)
        + "</p>"
        for name, side in (("First", a), ("Second", b))
    )


def all_pairs_times(pairs: AllPairs, pace: Throughput) -> str:
    """O(N) against O(N²): the measured times, then the paper's case at this machine's rates."""
    n = len(pairs.lines)
    crossed = (
        f"{n * (n - 1) // 2:,} cross-encoder passes took <b>{_time(pairs.cross_seconds)}</b>"
        if pairs.cross_seconds is not None
        else "no cross-encoder was run"
    )
    cross_10k = pace.cross_seconds()
    cross_cell = _time(cross_10k) if cross_10k is not None else "choose a cross-encoder"
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in pairs.notes)
    return (
        f'<p class="lead">{n} encodings took <b>{_time(pairs.encode_seconds)}</b> and the product '
        f"<b>{_time(pairs.product_seconds)}</b>; {crossed}.</p>{notes}"
        '<table class="plain"><caption>The most similar pair among '
        f"{PAPER_SENTENCES:,} sentences, at the rates measured on this machine now ({pace.sentences_per_second:,.0f} "
        "sentences/s" + (f", {pace.pairs_per_second:,.0f} pairs/s" if pace.pairs_per_second else "") + ")</caption>"
        "<thead><tr><th></th><th>work</th><th>this machine</th><th>the paper, V100</th></tr></thead><tbody>"
        f"<tr><td>bi-encoder</td><td>{PAPER_SENTENCES:,} encodings</td><td><b>{_time(pace.encode_seconds())}</b></td>"
        "<td>about 5 s</td></tr>"
        f"<tr><td></td><td>one product</td><td><b>{_time(pace.product_seconds)}</b></td><td>about 0.01 s</td></tr>"
        f"<tr><td>cross-encoder</td><td>{PAPER_SENTENCES * (PAPER_SENTENCES - 1) // 2:,} passes</td>"
        f"<td><b>{cross_cell}</b></td><td>about 65 hours</td></tr></tbody></table>"
    )


def link(base: str, **view: str | None) -> str:
    """A link that opens the page in this view."""
    return f"{base.rstrip('/')}/?{urlencode({key: value for key, value in view.items() if value})}"


def as_python(a: str, b: str, model: str, pooling: str, cross_encoder: str | None) -> str:
    """The same with the Python API."""
    lines = [
        f"from training import Encoder{', CrossEncoder' if cross_encoder else ''}",
        "",
        f"a, b = {a!r}, {b!r}",
        f"encoder = Encoder.load({model!r}, pooling={pooling!r})",
        "u, v = encoder.encode([a, b])",
        'print("cosine", float(u @ v))',
    ]
    if cross_encoder:
        lines.append(f'print("cross-encoder", float(CrossEncoder.load({cross_encoder!r}).predict([(a, b)])[0]))')
    return "\n".join(lines)


def as_curl(base: str, a: str, b: str, model: str, pooling: str, cross_encoder: str | None) -> str:
    """The same with the HTTP API."""
    body = json.dumps({"data": [a, b, model, pooling, cross_encoder or ""]}, ensure_ascii=False)
    return (
        f"curl -s {shlex.quote(base.rstrip('/') + '/gradio_api/run/compare')} \\\n"
        f"  -H 'Content-Type: application/json' \\\n  -d {shlex.quote(body)}"
    )


def _encoder_card(comparison: Comparison, curve: Calibration | None) -> str:
    title = f"Cosine · {comparison.model} · {POOLING_NAMES[comparison.pooling]} pooling"
    if curve is None:
        words, scale = "being measured: what this cosine means for this model", ""
    else:
        gold = curve.gold_score(comparison.cosine)
        words, scale = meaning(gold), _scale(gold)
    foot = f"{comparison.encoder_ms:.0f} ms for both sentences"
    return _card(title, f"{comparison.cosine:.2f}", words, scale, foot, first=True)


def _cross_card(comparison: Comparison) -> str:
    score = comparison.cross_score or 0.0
    foot = f"{comparison.cross_ms:.0f} ms for the pair"
    measured = (comparison.card or {}).get("spearman", {}).get("test")
    if measured is not None:
        foot += f" · Spearman {measured:.1f} on STSb test"
    title = f"Cross-encoder · {comparison.cross_encoder}"
    return _card(title, f"{score:.2f}", meaning(score * 5), _scale(score * 5), foot)


def _card(title: str, number: str, words: str, scale: str, foot: str, first: bool = False) -> str:
    return (
        f'<section class="card{" first" if first else ""}"><h3>{escape(title)}</h3>'
        f'<p class="score"><b>{escape(number)}</b><span>{escape(words)}</span></p>{scale}'
        f'<p class="foot">{escape(foot)}</p></section>'
    )


def _scale(gold: float) -> str:
    ticks = "".join(f'<i style="left:{tick * 20}%">{tick}</i>' for tick in range(6))
    return (
        f'<div class="scale" role="img" aria-label="{gold:.1f} on the gold scale from 0 to 5">'
        f'<div class="rail"><u style="left:{min(max(gold, 0), 5) * 20:.1f}%"></u></div>'
        f'<div class="ticks">{ticks}</div></div><p class="place">{gold:.1f} of 5 on the gold scale</p>'
    )


def _tinted(sentence: str, changes: list[LeftOut], bound: float) -> str:
    """A sentence with a coloured background behind each word."""
    pieces, at = [], 0
    for change in sorted(changes, key=lambda change: change.start):
        strength = min(1.0, abs(change.cosine_change) / bound)
        colour = "0,114,178" if change.cosine_change < 0 else "213,94,0"
        pieces.append(escape(sentence[at : change.start]))
        pieces.append(
            f'<span style="background:rgba({colour},{0.08 + 0.55 * strength:.2f})" '
            f'title="{change.cosine_change:+.3f}">{escape(sentence[change.start : change.end])}</span>'
        )
        at = change.end
    return "".join([*pieces, escape(sentence[at:])])


def _time(seconds: float | None) -> str:
    """Seconds in the unit a person would say."""
    if seconds is None:
        return "–"
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.1f} s" if seconds >= 1 else f"{seconds * 1000:,.1f} ms"
