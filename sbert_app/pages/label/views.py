"""The HTML of the Label page. Sentences come from users: templates escape them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from math import isnan

from markupsafe import Markup

from sbert_app.formats import MISSING, format_count
from sbert_app.pages.components.templates import render
from sbert_app.services.annotations.fine_tuning import BeforeAfter, Training
from sbert_app.services.annotations.project import Project
from sbert_app.services.annotations.quality import Agreement, Quality
from sbert_app.services.annotations.selection import REASONS
from sbert_app.services.runs.record import AT_WORK, Run
from training.evaluation.agreement import RELIABLE, TENTATIVE

TEMPLATES = "label/templates"
SELECTION_NOTE = (
    "A third of the pairs are those that the two models rank most differently, a third lie nearest to the threshold, a "
    "third are drawn at random. Of single sentences, pairs are made of neighbours and at random. Files have "
    "the columns sentence1 and sentence2, or sentence."
)
# What the scores mean: the scale of the STS tasks (Agirre et al. 2012), in short
SCALE = (
    "on different topics",
    "not equivalent, but on the same topic",
    "not equivalent, but share some details",
    "roughly equivalent, important details differ",
    "mostly equivalent, unimportant details differ",
    "the same meaning",
)
FEWEST_SHARED = 10  # pairs with two ratings, before alpha is judged
_versions = count()  # a card that is shown again is another value, so that the browser takes presses again


def no_project() -> Markup:
    """In place of a card."""
    return render(f"{TEMPLATES}/no_project.html", version=next(_versions))


def no_ratings() -> Markup:
    """In place of the agreement."""
    return render(f"{TEMPLATES}/agreement.html", raters=[], found=[], between=[])


def card(project: Project, at: int, mine: Mapping[int, int], named: bool) -> Markup:
    """The pair with number ``at``, why it is shown, the rater's own score if there is one, and the progress."""
    pair = project.pairs[at]
    return render(
        f"{TEMPLATES}/card.html",
        pair=pair,
        at=at,
        count=len(project.pairs),
        judged=len(mine),
        score=mine.get(at),
        scale=SCALE,
        reason=REASONS.get(pair.reason, pair.reason),
        named=named,
        version=next(_versions),
    )


def agreement(found: Agreement) -> Markup:
    """Who judged how many, alpha and what it means, and Spearman's ρ of each two raters."""
    between = [
        (f"{a} and {b}", MISSING if isnan(rho) else f"{rho:.2f}", format_count(pairs, "pair"))
        for (a, b), (rho, pairs) in found.between.items()
    ]
    return render(
        f"{TEMPLATES}/agreement.html",
        raters=list(found.judged.items()),
        found=_agreement_findings(found),
        between=between,
    )


def _agreement_findings(found: Agreement) -> list[str]:
    if len(found.judged) < 2:
        return ["One rater alone: whether others would agree is not known. Send them the address of this page."]
    if found.shared == 0:
        return ["No pair has two ratings yet."]
    if isnan(found.alpha):
        return [f"All ratings of the {format_count(found.shared, 'shared pair')} are equal: alpha is undefined."]
    if found.shared < FEWEST_SHARED:
        shared = format_count(found.shared, "shared pair")
        return [f"Krippendorff’s α is {found.alpha:.2f} on {shared}, too few to say more."]
    verdict = (
        "reliable"
        if found.alpha >= RELIABLE
        else "enough for tentative conclusions"
        if found.alpha >= TENTATIVE
        else "too low to rely on: talk about the scale, and look at the pairs on which you differ"
    )
    return [
        f"Krippendorff’s α is {found.alpha:.2f} on {format_count(found.shared, 'shared pair')} (interval; "
        f"{found.alpha_ordinal:.2f} ordinal): {verdict}. He asks for {RELIABLE}, and for {TENTATIVE} at least."
    ]


def quality(found: Quality) -> Markup:
    """ρ on all judged pairs and on the random ones."""
    rows = [("all judged pairs", f"{found.rho:.1f}", _interval(found.interval.low, found.interval.high), found.pairs)]
    if not isnan(found.random_rho):
        random = found.random_interval
        rows.append(
            ("drawn at random", f"{found.random_rho:.1f}", _interval(random.low, random.high), found.random_pairs)
        )
    return render(f"{TEMPLATES}/quality.html", rows=rows, model=found.model)


def training(run: Run, training: Training, found: BeforeAfter | None) -> Markup:
    """The state of the run; when it has ended, ρ on the held-out pairs before and after."""
    rows, verdict = [], ""
    if found is not None:
        before, after = found.before_interval, found.after_interval
        rows = [
            ("before", f"{found.before:.1f}", _interval(before.low, before.high)),
            ("after", f"{found.after:.1f}", _interval(after.low, after.high)),
        ]
        if found.difference is not None:
            pairs = format_count(found.pairs, "held-out pair")
            verdict = found.difference.describe("the trained model", "the one before", f"on {pairs}")
            verdict = verdict[:1].upper() + verdict[1:] + "."
    return render(
        f"{TEMPLATES}/training.html",
        run=run,
        training=training,
        is_at_work=run.state in AT_WORK,
        rows=rows,
        verdict=verdict,
    )


def _interval(low: float, high: float) -> str:
    return MISSING if isnan(low) else f"{low:.1f} to {high:.1f}".replace("-", "−")
