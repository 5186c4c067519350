"""Figures of the lessons that go beyond the paper: contrasts, whitening, layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from sbert_app.figures.style import PALETTE, apply_style

SCORER_COLOURS = {"TF-IDF": "grey", "bi-encoder": "blue", "cross-encoder": "orange"}
POOLING_COLOURS = {"mean": "blue", "max": "orange", "cls": "green"}
POOLING_LABELS = {"mean": "mean", "max": "max", "cls": "CLS"}
OWN = "your pair"


def contrast_strips(by_scorer: Mapping[str, Mapping[str, np.ndarray]], own: Mapping[str, float]) -> go.Figure:
    """The scores of each kind of pair by each scorer: quartiles and every point; the reader's pair as diamonds.

    ``by_scorer``: scorer -> kind of pair -> similarities (N,).
    """
    figure = go.Figure()
    for scorer, kinds in by_scorer.items():
        colour = PALETTE[SCORER_COLOURS[scorer]]
        figure.add_box(
            name=scorer,
            x=np.concatenate(list(kinds.values())).round(4).tolist(),
            y=[kind for kind, values in kinds.items() for _ in values],
            orientation="h",
            boxpoints="all",
            jitter=0.4,
            pointpos=0,
            marker={"color": colour, "size": 4, "opacity": 0.55},
            line={"width": 1.5, "color": colour},
            fillcolor="rgba(0,0,0,0)",
            hovertemplate="%{y}: %{x:.2f}<extra>" + scorer + "</extra>",
        )
    for scorer, value in own.items():
        figure.add_scatter(
            x=[round(value, 4)],
            y=[OWN],
            mode="markers",
            marker={"symbol": "diamond", "size": 13, "color": PALETTE[SCORER_COLOURS[scorer]]},
            hovertemplate=f"{OWN}: %{{x:.2f}}<extra>{scorer}</extra>",
            showlegend=False,
        )
    order = [*next(iter(by_scorer.values())), OWN]
    apply_style(figure, height=430)
    figure.update_layout(boxmode="group", boxgap=0.25, showlegend=True, legend=_legend())
    figure.update_xaxes(range=[-0.15, 1.05], title=_title("cosine, or cross-encoder’s score"))
    figure.update_yaxes(categoryorder="array", categoryarray=order[::-1])
    return figure


def kept_dimensions(rho: Mapping[int, float], before: float, keep: int) -> go.Figure:
    """ρ ×100 after whitening against the dimensions that are kept, and ρ before (dashed). The chosen one is marked."""
    figure = go.Figure(
        go.Scatter(
            name="whitened",
            x=list(rho),
            y=np.round(list(rho.values()), 2).tolist(),
            mode="lines+markers",
            line={"color": PALETTE["blue"], "width": 3},
            marker={"size": 8},
            hovertemplate="first %{x} dimensions: ρ %{y:.1f}<extra></extra>",
        )
    )
    apply_style(figure, height=330)
    figure.add_hline(
        y=before,
        line={"dash": "dash", "color": PALETTE["orange"], "width": 2},
        annotation={"text": f"before: {before:.1f}", "xanchor": "right", "x": 1, "font": {"size": 13}},
    )
    figure.add_scatter(
        x=[keep],
        y=[round(rho[keep], 2)],
        mode="markers",
        marker={"size": 15, "color": PALETTE["blue"]},
        hoverinfo="skip",
    )
    values = [*rho.values(), before]
    margin = max(2.0, 0.12 * (max(values) - min(values)))
    figure.update_xaxes(type="log", tickvals=list(rho), ticktext=[str(k) for k in rho], title=_title("dimensions kept"))
    figure.update_yaxes(range=[min(values) - margin, max(values) + margin], title=_title("Spearman ρ ×100"))
    return figure


def layer_lines(by_pooling: Mapping[str, Sequence[float]], first_last: float, shown: str) -> go.Figure:
    """ρ ×100 of each layer under each pooling; dashed: the average of layer 1 and the last under ``shown``."""
    figure = go.Figure()
    for pooling, rho in by_pooling.items():
        figure.add_scatter(
            name=POOLING_LABELS[pooling],
            x=list(range(len(rho))),
            y=[None if np.isnan(value) else round(value, 2) for value in rho],
            mode="lines+markers",
            line={"color": PALETTE[POOLING_COLOURS[pooling]], "width": 4 if pooling == shown else 2},
            marker={"size": 9 if pooling == shown else 6},
            opacity=1 if pooling == shown else 0.6,
            hovertemplate="layer %{x}: ρ %{y:.1f}<extra>" + POOLING_LABELS[pooling] + "</extra>",
        )
    apply_style(figure, height=350)
    figure.add_hline(
        y=first_last,
        line={"dash": "dash", "color": PALETTE[POOLING_COLOURS[shown]], "width": 2},
        annotation={
            "text": f"layer 1 + last: {first_last:.1f}",
            "xanchor": "left",
            "yanchor": "top",
            "x": 0,
            "font": {"size": 13},
        },
    )
    layers = max(len(rho) for rho in by_pooling.values())
    figure.update_layout(showlegend=True, legend=_legend())
    figure.update_xaxes(title=_title("layer; 0: input embeddings"), dtick=1 if layers <= 14 else 2)
    figure.update_yaxes(title=_title("Spearman ρ ×100"))
    return figure


def _legend() -> dict[str, object]:
    return {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0}


def _title(text: str) -> dict[str, object]:
    return {"text": text, "font": {"size": 13}}
