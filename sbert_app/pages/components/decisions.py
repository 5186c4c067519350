"""Renders decisions about thresholds: the average precision, and each threshold with its effect and a way to use it."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from markupsafe import Markup

from sbert_app.pages.components.templates import macro, render
from sbert_app.services.results.decisions import Decisions
from training.evaluation.match_scores import BEST_F1, PRECISION, Criterion
from training.evaluation.thresholds import Choice, DataDecision, Decision
from training.names import ModelName

MEANING = (
    "Precision: the share of the pairs above the threshold that are matches. Recall: the share of the matches that are "
    "above the threshold. A curve shows all pairs, and a point a threshold with its 95% intervals. The threshold of "
    "the best F1 is measured on the pairs that it was not chosen on."
)
# Returns the HTML that applies the threshold of a model, or "" if it cannot be applied.
Use = Callable[[ModelName, Choice], str]

use_link = macro("use_link")
use_button = macro("use_button")


def criterion_label(criterion: str) -> str:
    """Returns the label of a criterion: "precision ≥ 95%" for "precision=0.95"."""
    parsed = Criterion.parse(criterion)
    if parsed.kind == BEST_F1:
        return "best F1"
    if parsed.kind == PRECISION:
        return f"precision ≥ {100 * parsed.value:g}%"
    return f"given: {parsed.value:g}"


def criterion_labels(decision: Decision) -> dict[str, str]:
    return {choice.criterion: criterion_label(choice.criterion) for choice in decision.choices}


def decision_table(title: str, data: DataDecision, notes: Sequence[str] = ()) -> Markup:
    """Renders the pairs, the average precision, and a row for each threshold with a button that applies it."""
    # (label, decision, ρ, way to use a choice). A table of one model shows no label and no ρ.
    group = ("", data.decision, None, lambda choice: use_button(f"{choice.threshold.value:.4f}"))
    lead = macro("decision_lead")(title, data.decision)
    return _table([group], data, lead, notes, failures={})


def decisions_table(decisions: Decisions, data: str, notes: Sequence[str], use: Use) -> Markup:
    """Renders the model to take and the reason, and a row for each threshold of each model with a link that applies it.

    Without a model to take, the lead is about the first one, which has the highest average precision.
    ``use(model, choice)`` returns the link that applies a threshold.
    """
    groups = []
    for model in decisions.models:
        groups.append((model.label, model.on_data.decision, model.rho, partial(use, model.model)))
    taken = decisions.to_take or decisions.models[0]
    # The threshold that the lead recommends.
    safest = taken.safest
    # Without a threshold that fulfils the criterion, nothing can be applied.
    link = use(taken.model, safest) if safest.exists else ""
    lead = macro("decisions_lead")(
        decisions, taken, safest, criterion_label(safest.criterion), data, link
    )
    return _table(groups, taken.on_data, lead, notes, decisions.failures)


def _table(
    groups: Sequence[object],
    data: DataDecision,
    lead: Markup,
    notes: Sequence[str],
    failures: Mapping[str, str],
) -> Markup:
    """Renders the lead and the table.

    Args:
        groups: for each model its label, its `Decision`, its ρ, and a function that renders the
            way to use a `Choice`.
        data: the pairs, and the decision of the model in the lead.
        failures: the reasons why other models could not be measured, by their labels.
    """
    return render(
        "components/templates/decision.html",
        lead=lead,
        groups=groups,
        data=data,
        # The criteria of all models are the same.
        labels=criterion_labels(data.decision),
        notes=notes,
        failures=failures,
    )
