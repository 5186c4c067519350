"""Figures of a threshold: precision against recall, and both against the threshold."""

from __future__ import annotations

import plotly.graph_objects as go

from sbert_app.figures.style import PALETTE, apply_style
from training.evaluation.thresholds import Choice, Decision

COLOURS = ("orange", "vermillion", "purple")


def precision_recall(decision: Decision, names: dict[str, str]) -> go.Figure:
    """The curve of all pairs, and each choice with its intervals; ``names``: criterion -> its name in the legend."""
    figure = go.Figure()
    figure.add_scatter(
        x=[recall for _, _, recall in decision.curve],
        y=[precision for _, precision, _ in decision.curve],
        customdata=[threshold for threshold, _, _ in decision.curve],
        mode="lines",
        name="all pairs",
        line={"color": PALETTE["blue"], "width": 2, "shape": "linear"},
        hovertemplate="from %{customdata:.3f} on: precision %{y:.1%}, recall %{x:.1%}<extra></extra>",
    )
    for choice, colour in _shown(decision):
        figure.add_scatter(
            x=[choice.recall.value],
            y=[choice.precision.value],
            error_x=_bar(choice.recall, colour),
            error_y=_bar(choice.precision, colour),
            mode="markers",
            name=names.get(choice.criterion, choice.criterion),
            marker={"color": PALETTE[colour], "size": 11, "line": {"color": "#ffffff", "width": 1}},
            hovertemplate=f"from {choice.threshold.value:.3f} on: precision %{{y:.1%}}, recall %{{x:.1%}}"
            "<extra></extra>",
        )
    share = decision.matches / decision.n
    figure.add_hline(y=share, line={"color": PALETTE["grey"], "dash": "dot", "width": 1})
    figure.add_annotation(
        x=0.01, y=share, xanchor="left", yanchor="bottom", text="every pair a match", showarrow=False, font_size=11
    )
    area = 100 * decision.average_precision.value
    apply_style(figure, height=340, alt=f"Precision against recall; average precision {area:.1f} of 100")
    _legend(figure)
    figure.update_xaxes(title="recall", range=[0, 1.02], tickformat=".0%", dtick=0.2)
    figure.update_yaxes(title="precision", range=[0, 1.03], tickformat=".0%")
    return figure


def by_threshold(decision: Decision, similarity: str) -> go.Figure:
    """Precision, recall and F1 of all pairs at each threshold, with a line at each choice."""
    thresholds = [threshold for threshold, _, _ in decision.curve]
    precision = [precision for _, precision, _ in decision.curve]
    recall = [recall for _, _, recall in decision.curve]
    f1 = [2 * p * r / (p + r) if p + r else 0.0 for p, r in zip(precision, recall, strict=True)]
    figure = go.Figure()
    for name, values, colour in (("precision", precision, "blue"), ("recall", recall, "green"), ("F1", f1, "grey")):
        figure.add_scatter(
            x=thresholds,
            y=values,
            mode="lines",
            name=name,
            line={"color": PALETTE[colour], "width": 2, "dash": "dot" if name == "F1" else "solid"},
            hovertemplate=f"from %{{x:.3f}} on: {name} %{{y:.1%}}<extra></extra>",
        )
    for choice, colour in _shown(decision):
        figure.add_vline(x=choice.threshold.value, line={"color": PALETTE[colour], "width": 2})
    apply_style(figure, height=340, alt=f"Precision, recall and F1 at each threshold of the {similarity}")
    _legend(figure)
    figure.update_xaxes(title=f"threshold: {similarity} from here on")
    figure.update_yaxes(range=[0, 1.03], tickformat=".0%")
    return figure


def _shown(decision: Decision) -> list[tuple[Choice, str]]:
    """The choices that a threshold fulfils, each with its colour."""
    return [(choice, colour) for choice, colour in zip(decision.choices, COLOURS, strict=False) if choice.exists]


def _bar(estimate: tuple[float, float, float], colour: str) -> dict[str, object]:
    """The interval as an error bar."""
    value, low, high = estimate
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - value],
        "arrayminus": [value - low],
        "color": PALETTE[colour],
        "thickness": 1.5,
        "width": 4,
    }


def _legend(figure: go.Figure) -> None:
    """With it, margins in which the labels of 0% at the origin and of 100% at the end have room."""
    legend = {"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0}
    figure.update_layout(showlegend=True, legend=legend, margin_t=48, margin_r=24)
    figure.update_xaxes(ticklabelstandoff=6)
