"""What the Learn page says around and under the figures, as HTML. Pure functions.

The prose of the lessons is ours (assets/lessons) and may hold b, i and code; everything that comes from a model, a
file or a person is escaped here. Under each figure stands what was measured, on how much, and when.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from sbert_app.figures.learn import LINE_COLOURS, SIMILARITY_NAMES
from sbert_app.formats import format_duration
from sbert_app.services.compare.throughput import PAPER_SENTENCES
from sbert_app.services.lessons.collapse import LessonVectors
from sbert_app.services.lessons.cost import SAMPLE, Rates, both_seconds, pairs_of
from sbert_app.services.lessons.heads import TEST_PAIRS, Heads
from sbert_app.services.lessons.orders import Orders
from sbert_app.services.lessons.pooled_pair import PooledPair
from sbert_app.services.lessons.rerank import Candidate, Reranked
from sbert_app.services.lessons.text import Lesson
from sbert_app.services.lessons.without_tuning import Representations

WAITING = '<div class="waiting measuring">Measuring on this machine…</div>'
MOST_LINES = 10  # of a ranking, in words; the figure has them all
LONGEST = 72  # characters of a sentence in a ranking
POOLING_NAMES = {"mean": "mean", "max": "max", "cls": "CLS"}


# ------------------------------------------------------------ the lesson itself


def opening(lesson: Lesson, of: int) -> str:
    """Title, the one idea, the prose, what to try, and the paper's figures."""
    prose = "".join(f"<p>{paragraph}</p>" for paragraph in lesson.text)
    figures = "".join(
        f'<tr><th scope="row">{escape(what)}</th><td class="number">{escape(figure)}</td></tr>'
        for what, figure in lesson.paper
    )
    return (
        f'<article class="lesson"><p class="count">Lesson {lesson.number} of {of}</p><h2>{escape(lesson.title)}</h2>'
        f'<p class="idea">{lesson.idea}</p>{prose}<p class="try"><b>Try it.</b> {lesson.try_it}</p>'
        f'<aside class="paper"><h3>{escape(lesson.section)}</h3><table class="plain">{figures}</table>'
        f'<p class="note">{lesson.paper_note}</p></aside></article>'
    )


def question(lesson: Lesson) -> str:
    """One question; its answer is hidden until it is asked for."""
    return (
        f'<section class="question"><h3>A question</h3><p>{lesson.question}</p><details data-lesson="{lesson.number}">'
        f"<summary>Show the answer</summary><p>{lesson.answer}</p></details></section>"
    )


def door(lesson: Lesson, href: str | None = None) -> str:
    """The link to the page that the lesson is about, set up."""
    return f'<a class="door" href="{escape(href or lesson.href)}">{escape(lesson.opens)} →</a>'


# ------------------------------------------------------------ what was measured


def without_tuning(found: Representations, pairs: int) -> str:
    """What each bar is."""
    table = _table(("", "what it is", "ρ ×100"), [(row.label, row.how, f"{row.rho:.1f}") for row in found.rows])
    return table + _measured(
        f"{pairs} pairs of STSb dev, cosine against people’s scores; vectors made in {found.seconds:.1f} s "
        f"at {found.measured_at}"
    )


def pooled_pair(found: PooledPair, pooling: str) -> str:
    """The pair's cosine under each pooling, and how good each pooling is over many pairs."""
    shown = found.comparison
    rows = [
        (
            POOLING_NAMES[name] + (" (shown)" if name == pooling else ""),
            f"{cosine:.3f}",
            f"{found.sample.rho(name):.1f}",
        )
        for name, cosine in shown.by_pooling.items()
    ]
    strongest = found.strongest
    if strongest is None:
        first = "CLS has no exact map. Each bar: the word is left out, the pair is encoded again."
    else:
        a, b, share = strongest
        first = (
            f"The cells add up to <b>{shown.cosine:.3f}</b>. The most comes from "
            f"<b>{escape(a)}</b> × <b>{escape(b)}</b>: {share:+.3f}."
        )
    table = _table(("pooling", "cosine of this pair", "ρ ×100 on STSb dev"), rows)
    return f'<p class="lead">{first}</p>{table}' + _measured(
        f"the pair in {shown.encoder_ms:.0f} ms; ρ on {len(found.sample.gold)} pairs, encoded in "
        f"{found.sample.seconds:.1f} s at {found.sample.measured_at}"
    )


def heads(found: Heads, labels: Mapping[str, str], paper: Mapping[str, float], shipped: Mapping[str, float]) -> str:
    """Accuracy here, ρ of the runs that ship, ρ of the paper: three different things, named."""
    rows = [
        (
            labels[row.concatenation],
            f"{100 * row.unseen:.0f}%",
            f"{shipped[row.concatenation]:.2f}" if row.concatenation in shipped else "",
            f"{paper[row.concatenation]:.2f}",
        )
        for row in found.rows
    ]
    table = _table(("head sees", "right on new pairs, here", "ρ, short runs that ship", "ρ, paper’s Table 6"), rows)
    note = (
        '<p class="note">The first column asks the head; the other two train the encoder through it and score the '
        "cosine (ρ ×100 on STSb dev). The runs that ship are short and start from a model that was tuned already, so "
        "they lie within a point of each other; the paper starts from a raw BERT.</p>"
    )
    return (
        table
        + note
        + _measured(
            f"seven heads on {found.train_pairs} pairs of STSb train, tested on {TEST_PAIRS} of dev; vectors made "
            f"once, in {found.encode_seconds:.1f} s; heads trained now, in {found.train_seconds:.1f} s"
        )
    )


def collapse(space: LessonVectors, pull: float, runs: Sequence[tuple[str, str]]) -> str:
    """The figures that see it beside the one that does not, and the runs on this machine that were flagged."""
    tiles = (
        (f"{space.rho:.1f}", "Spearman ρ ×100", "sees only the order"),
        (f"{space.random_cosine:.3f}", "random cosine", "healthy: near 0"),
        (f"{space.uniformity:.2f}".replace("-", "−"), "uniformity", "spread: near −4, collapsed: 0"),
        (f"{space.effective_rank:.0f}", "effective rank", f"of {space.dimension} dimensions"),
    )
    cells = "".join(f"<div><b>{value}</b><span>{name}</span><small>{note}</small></div>" for value, name, note in tiles)
    flag = (
        '<p class="flag bad">Flagged as collapsed: the random cosine is above 0.90.</p>'
        if space.collapsed
        else '<p class="flag">Not flagged: the random cosine is below 0.90.</p>'
    )
    flagged = "".join(f"<li><b>{escape(name)}</b>: {escape(reason)}</li>" for name, reason in runs)
    here = (
        f'<div class="note">Runs on this machine that were flagged:<ul>{flagged}</ul></div>'
        if flagged
        else '<p class="note">No run on this machine has been flagged yet; the link below starts one that will be.</p>'
    )
    of = space.vectors
    return f'<div class="tiles">{cells}</div>{flag}{here}' + _measured(
        f"{of.model}, {len(of.gold)} pairs of STSb dev, pull {pull:.2f}; encoded in {of.seconds:.1f} s at "
        f"{of.measured_at}"
    )


def cost(found: Rates, sentences: int) -> str:
    """The rates, measured; the times for N, extrapolated, and the paper's case."""
    bi, cross = both_seconds(found.throughput, sentences)
    cases = [(f"{sentences:,}", f"{pairs_of(sentences):,}", format_duration(bi), format_duration(cross))]
    if sentences != PAPER_SENTENCES:
        bi, cross = both_seconds(found.throughput, PAPER_SENTENCES)
        cases.append(
            (
                f"{PAPER_SENTENCES:,}: the paper’s case",
                f"{pairs_of(PAPER_SENTENCES):,}",
                format_duration(bi),
                format_duration(cross),
            )
        )
    cases.append(
        (f"{PAPER_SENTENCES:,}: in the paper, V100", f"{pairs_of(PAPER_SENTENCES):,}", "~5 seconds", "~65 hours")
    )
    rate = found.throughput
    tiles = (
        (f"{rate.sentences_per_second:,.0f}", "sentences/s", "bi-encoder, measured"),
        (f"{rate.pairs_per_second or 0:,.0f}", "pairs/s", "cross-encoder, measured"),
    )
    cells = "".join(f"<div><b>{value}</b><span>{name}</span><small>{note}</small></div>" for value, name, note in tiles)
    table = _table(("sentences", "pairs", "bi-encoder", "cross-encoder"), cases)
    return f'<div class="tiles">{cells}</div>{table}' + _measured(
        f"the two rates only, on {SAMPLE} sentences and {SAMPLE} pairs of STSb dev, medians of three; "
        f"{found.seconds:.1f} s at {found.measured_at}. <b>The times of this machine are extrapolated from them</b>"
    )


def orders(found: Orders, normalised: bool) -> str:
    """Ranks under four similarities, how far the orders agree, and how well each agrees with people."""
    names = list(SIMILARITY_NAMES)
    rows = [
        (
            escape(line.sentence),
            f"{line.length:.2f}",
            *(_rank(line.ranks[name], line.ranks["cosine"]) for name in names),
        )
        for line in found.lines
    ]
    head = ("nearest by cosine", "length", *SIMILARITY_NAMES.values())
    table = _table(head, rows, escaped=True)
    agree = _table(
        ("", *SIMILARITY_NAMES.values()),
        [
            (f"ρ with cosine’s order of {len(found.corpus.sentences)}", *_numbers(found.agreement, "{:.4f}")),
            ("ρ ×100 with people’s scores, STSb dev", *_numbers(found.rho, "{:.1f}")),
        ],
    )
    said = "All vectors have length 1" if normalised else "Lengths are as the model gives them"
    low, high = found.lengths
    return (
        f'<p class="lead">{said}; the model’s own run from {low:.1f} to {high:.1f}.</p>'
        f'<div class="wide">{agree}</div><div class="wide">{table}</div>'
        + _measured(
            f"{len(found.corpus.sentences)} example sentences, encoded in {found.corpus.seconds:.1f} s at "
            f"{found.corpus.measured_at}; this answer in {found.milliseconds:.0f} ms; 200 pairs for the last row"
        )
    )


def rerank(found: Reranked, quality: tuple[float, float], pairs: int) -> str:
    """Both orders side by side, and the milliseconds of each step."""
    by_cosine = found.candidates
    by_cross = sorted(by_cosine, key=lambda candidate: candidate.cross_rank)
    rows = [
        (str(place), _found(one.sentence, one.rank, f"{one.cosine:.2f}"), _found(two.sentence, two.rank, _moved(two)))
        for place, (one, two) in enumerate(zip(by_cosine, by_cross, strict=True), start=1)
    ][:MOST_LINES]
    count = len(found.corpus.sentences)
    table = _table(("", "by cosine", "by the cross-encoder"), rows, escaped=True)
    bi, cross = quality
    tiles = (
        (f"{found.retrieve_ms:.0f} ms", "retrieve", f"query against {count} sentences"),
        (f"{found.rerank_ms:.0f} ms", "re-rank", f"{len(by_cosine)} pairs read together"),
        (f"{bi:.1f} / {cross:.1f}", "ρ ×100, bi / cross", f"on {pairs} pairs of STSb dev"),
    )
    cells = "".join(f"<div><b>{value}</b><span>{name}</span><small>{note}</small></div>" for value, name, note in tiles)
    return f'<div class="tiles">{cells}</div><div class="wide">{table}</div>' + _measured(
        f"{count} sentences of STSb dev, encoded in {found.corpus.seconds:.1f} s at {found.corpus.measured_at}. "
        f"Reading all of them with the cross-encoder would take about {format_duration(found.exhaustive_ms / 1000)} "
        "(extrapolated)"
    )


def _found(sentence: str, rank: int, score: str) -> str:
    """A sentence with the colour of its line in the figure."""
    colour = LINE_COLOURS[(rank - 1) % len(LINE_COLOURS)]
    text = sentence if len(sentence) <= LONGEST else sentence[: LONGEST - 1] + "…"
    return f'<i class="dot" style="background:{colour}"></i>{escape(text)} <small>{score}</small>'


def _moved(candidate: Candidate) -> str:
    return f"{candidate.cross:.2f}, was {candidate.rank}"


def _rank(rank: int, by_cosine: int) -> str:
    return f"{rank}" if rank == by_cosine else f'<b class="red">{rank}</b>'


def _numbers(values: Mapping[str, float], form: str) -> list[str]:
    return [form.format(values[name]) for name in SIMILARITY_NAMES]


def _measured(what: str) -> str:
    return f'<p class="measured">Measured on this machine: {what}.</p>'


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], escaped: bool = False) -> str:
    """The first column names the row. Cells are escaped unless that has been done."""
    clean = str if escaped else escape
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{clean(row[0])}</th>'
        + "".join(f"<td{_fixed(cell)}>{clean(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return f'<table class="plain told"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'


def _fixed(cell: str) -> str:
    """Short cells are numbers, and stay on one line."""
    return ' class="number"' if len(cell) <= len("49,995,000") else ""
