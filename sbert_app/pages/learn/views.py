"""The HTML of the Learn page: lesson texts and, for each demo, what was measured. Values here, markup in templates.

The prose of the lessons ships with the app (assets/lessons) and may hold b, i and code; everything that comes from a
model, a file or a user is escaped by the templates. Each result says what was measured, on how much, and when.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from sbert_app.figures.learn import LINE_COLOURS, SIMILARITY_NAMES
from sbert_app.formats import format_duration
from sbert_app.pages.components.templates import render
from sbert_app.services.compare.throughput import PAPER_SENTENCES
from sbert_app.services.lessons.collapse import LessonVectors
from sbert_app.services.lessons.cost import PAIRS, SENTENCES, Rates, both_seconds, pairs_of
from sbert_app.services.lessons.heads import TEST_PAIRS, Heads
from sbert_app.services.lessons.orders import Orders
from sbert_app.services.lessons.pooled_pair import PooledPair
from sbert_app.services.lessons.rerank import Candidate, Reranked
from sbert_app.services.lessons.setup import DEFAULT_DATA, SchoolClass
from sbert_app.services.lessons.text import Lesson, lessons
from sbert_app.services.lessons.without_tuning import Representations
from sbert_app.services.results.results import data_label

TEMPLATES = "learn/templates"
SHEET = "/learn/sheet"
MAX_ROWS = 10  # of a ranking; the figure has them all
MAX_CHARACTERS = 72  # of a sentence in a ranking
POOLING_NAMES = {"mean": "mean", "max": "max", "cls": "CLS"}


def measuring() -> Markup:
    """Shown until the first result."""
    return render(f"{TEMPLATES}/measuring.html")


def lesson_text(lesson: Lesson, count: int) -> Markup:
    """Title, the one idea, the prose, what to try, and the paper's figures; ``count``: the number of lessons."""
    return render(f"{TEMPLATES}/lesson.html", lesson=lesson, count=count)


def question(lesson: Lesson) -> Markup:
    """One question; its answer is hidden until the reader asks for it."""
    return render(f"{TEMPLATES}/question.html", lesson=lesson)


def page_link(lesson: Lesson, href: str | None = None) -> Markup:
    """The link to the page that the lesson is about, with the settings of the lesson."""
    return render(f"{TEMPLATES}/page_link.html", href=href or lesson.href, text=lesson.opens)


def class_banner(school_class: SchoolClass) -> Markup:
    """The title of a class and what it fixes; nothing without a class."""
    if not school_class.title:
        return Markup()
    return render(f"{TEMPLATES}/class_banner.html", school_class=school_class, sheet=sheet_address(school_class))


def sheet_address(school_class: SchoolClass, answers: bool = False) -> str:
    """The address of the sheet to print, with or without the answers."""
    parameters = "&".join(filter(None, [school_class.query, "answers=1" if answers else ""]))
    return SHEET + (f"?{parameters}" if parameters else "")


def class_links(school_class: SchoolClass) -> Markup:
    """The link of a class, and its sheet."""
    return render(
        f"{TEMPLATES}/class_links.html",
        school_class=school_class,
        link=f"/learn?{school_class.query}",
        sheet=sheet_address(school_class),
        with_answers=sheet_address(school_class, answers=True),
    )


def sheet(school_class: SchoolClass, answers: bool) -> Markup:
    """A page to print: the questions with room to write; the answers, if asked for, from a new page on."""
    shown = [lesson for lesson in lessons() if lesson.number in school_class.numbers]
    return render(f"{TEMPLATES}/sheet.html", school_class=school_class, lessons=shown, answers=answers)


def without_tuning(result: Representations, pairs: int, data: str = DEFAULT_DATA) -> Markup:
    """What each bar is, and its ρ."""
    rows = [(row.label, row.how, f"{row.rho:.1f}") for row in result.rows]
    return render(f"{TEMPLATES}/without_tuning.html", result=result, rows=rows, pairs=pairs, data=data)


def pooled_pair(result: PooledPair, pooling: str) -> Markup:
    """The pair's cosine under each pooling, and the quality of each pooling over many pairs."""
    comparison = result.comparison
    rows = [
        (
            POOLING_NAMES[name] + (" (shown)" if name == pooling else ""),
            f"{cosine:.3f}",
            f"{result.sample.rho(name):.1f}",
        )
        for name, cosine in comparison.by_pooling.items()
    ]
    return render(
        f"{TEMPLATES}/pooled_pair.html",
        strongest=result.strongest,
        cosine=comparison.cosine,
        rows=rows,
        encoder_ms=comparison.encoder_ms,
        sample=result.sample,
    )


def heads(
    result: Heads,
    labels: Mapping[str, str],
    paper: Mapping[str, float],
    shipped: Mapping[str, float],
    data: str = DEFAULT_DATA,
) -> Markup:
    """Accuracy here, ρ of the runs that ship with the app, ρ of the paper: three different figures."""
    rows = [
        (
            labels[row.concatenation],
            f"{100 * row.unseen:.0f}%",
            f"{shipped[row.concatenation]:.2f}" if row.concatenation in shipped else "",
            f"{paper[row.concatenation]:.2f}",
        )
        for row in result.rows
    ]
    return render(
        f"{TEMPLATES}/heads.html",
        result=result,
        rows=rows,
        test_pairs=TEST_PAIRS,
        data=data,
        findings=_findings(result, labels, shipped),
    )


def _findings(result: Heads, labels: Mapping[str, str], shipped: Mapping[str, float]) -> list[str]:
    """What the figures show, in sentences made from them."""
    findings = []
    for row in (row for row in result.rows if row.unseen < result.chance):
        findings.append(
            f"{labels[row.concatenation]} is right on {100 * row.seen:.0f}% of its training pairs and on "
            f"{100 * row.unseen:.0f}% of new ones, fewer than the {100 * result.chance:.0f}% of always predicting the "
            "most frequent label: what it memorised about single sentences misleads it on others."
        )
    if len(shipped) > 1:
        best, worst = max(shipped, key=shipped.__getitem__), min(shipped, key=shipped.__getitem__)
        findings.append(
            f"The shipped runs span {shipped[worst]:.2f} {labels[worst]} to {shipped[best]:.2f} {labels[best]}."
        )
    return findings


def collapse(result: LessonVectors, pull: float, runs: Sequence[tuple[str, str]]) -> Markup:
    """The diagnostics that see a collapse beside ρ, which does not; ``runs``: (name, reason) of flagged runs."""
    tiles = (
        (f"{result.rho:.1f}", "Spearman ρ ×100", "sees only the order"),
        (f"{result.random_cosine:.3f}", "random cosine", "healthy: near 0"),
        (f"{result.uniformity:.2f}".replace("-", "−"), "uniformity", "spread: near −4, collapsed: 0"),
        (f"{result.effective_rank:.0f}", "effective rank", f"of {result.dimension} dimensions"),
    )
    return render(
        f"{TEMPLATES}/collapse.html",
        tiles=tiles,
        collapsed=result.collapsed,
        runs=runs,
        sample=result.vectors,
        pull=pull,
    )


def cost(result: Rates, sentences: int) -> Markup:
    """The measured rates; the times for N, extrapolated, and the paper's case."""
    rates = result.throughput
    tiles = (
        (f"{rates.sentences_per_second:,.0f}", "sentences/s", "bi-encoder, measured"),
        (f"{rates.pairs_per_second or 0:,.0f}", "pairs/s", "cross-encoder, measured"),
    )
    rows = [_cost_row(result, sentences)]
    if sentences != PAPER_SENTENCES:
        rows.append(_cost_row(result, PAPER_SENTENCES, ": the paper’s case"))
    paper_pairs = f"{pairs_of(PAPER_SENTENCES):,}"
    rows.append((f"{PAPER_SENTENCES:,}: in the paper, V100", paper_pairs, "~5 s", "~65 h"))
    return render(f"{TEMPLATES}/cost.html", tiles=tiles, rows=rows, counts=(SENTENCES, PAIRS), result=result)


def orders(result: Orders, normalised: bool, data: str = DEFAULT_DATA) -> Markup:
    """Ranks under four similarities, how far the orders agree, and how well each agrees with gold scores."""
    count = len(result.corpus.sentences)
    agreement = [
        (f"ρ with cosine’s order of {count}", *(f"{result.agreement[name]:.4f}" for name in SIMILARITY_NAMES)),
        (f"ρ ×100 with gold scores, {data_label(data)}", *(f"{result.rho[name]:.1f}" for name in SIMILARITY_NAMES)),
    ]
    lines = [
        {
            "sentence": line.sentence,
            "length": line.length,
            "ranks": [line.ranks[name] for name in SIMILARITY_NAMES],  # cosine first
        }
        for line in result.lines
    ]
    return render(
        f"{TEMPLATES}/orders.html",
        result=result,
        normalised=normalised,
        similarities=list(SIMILARITY_NAMES.values()),
        agreement=agreement,
        lines=lines,
    )


def rerank(result: Reranked, quality: tuple[float, float], pairs: int) -> Markup:
    """Both orders side by side, and the time of each step; ``quality``: ρ of bi- and cross-encoder on ``pairs``."""
    by_cosine = result.candidates
    by_cross = sorted(by_cosine, key=lambda candidate: candidate.cross_rank)
    count = len(result.corpus.sentences)
    data = data_label(result.corpus.data)
    tiles = (
        (f"{result.retrieve_ms:.0f} ms", "retrieve", f"query against {count} sentences"),
        (f"{result.rerank_ms:.0f} ms", "re-rank", f"{len(by_cosine)} pairs read together"),
        (
            "{:.1f} / {:.1f}".format(*quality),
            "ρ ×100, bi / cross",
            f"on {pairs} pairs of {data}",
        ),
    )
    rows = [
        (_ranked(first, f"{first.cosine:.2f}"), _ranked(second, f"{second.cross:.2f}, was {second.rank}"))
        for first, second in zip(by_cosine, by_cross, strict=True)
    ]
    return render(
        f"{TEMPLATES}/rerank.html",
        tiles=tiles,
        rows=rows[:MAX_ROWS],
        sentences=count,
        result=result,
        exhaustive_seconds=result.exhaustive_ms / 1000,
    )


def _cost_row(result: Rates, sentences: int, remark: str = "") -> tuple[str, str, str, str]:
    bi, cross = both_seconds(result.throughput, sentences)
    return f"{sentences:,}{remark}", f"{pairs_of(sentences):,}", format_duration(bi), format_duration(cross)


def _ranked(candidate: Candidate, score: str) -> dict[str, str]:
    """A sentence of a ranking, with the colour of its line in the figure."""
    text = candidate.sentence
    return {
        "colour": LINE_COLOURS[(candidate.rank - 1) % len(LINE_COLOURS)],
        "sentence": text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…",
        "score": score,
    }
