"""A decision about a threshold as HTML: average precision, and each threshold with what it does."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from sbert_app.pages.components.templates import render
from training.evaluation.thresholds import BEST_F1, PRECISION, Criterion, DataDecision, Decision

MEANING = (
    "Precision: of the pairs from the threshold on, the share that are matches. Recall: of the matches, the share that "
    "lies above the threshold. Pairs with the same score are on the same side of every threshold. The curve "
    "is that of all pairs; the points, with 95% intervals, are those of the pairs that the threshold was not chosen on."
)


def criterion_label(criterion: str) -> str:
    parsed = Criterion.parse(criterion)
    if parsed.kind == BEST_F1:
        return "best F1"
    return f"precision ≥ {100 * parsed.value:g}%" if parsed.kind == PRECISION else f"given: {parsed.value:g}"


def criterion_labels(decision: Decision) -> dict[str, str]:
    return {choice.criterion: criterion_label(choice.criterion) for choice in decision.choices}


def decision_table(title: str, found: DataDecision, notes: Sequence[str] = ()) -> Markup:
    """What was decided on, average precision, and a row for each threshold."""
    return render(
        "components/templates/decision.html",
        title=title,
        similarity=found.similarity,
        match=found.meaning,
        decision=found.decision,
        labels=criterion_labels(found.decision),
        notes=notes,
    )
