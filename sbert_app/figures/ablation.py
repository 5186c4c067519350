"""The figure of an ablation: a bar for each variant beside the paper's, and where the base stood before training."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from sbert_app.figures.style import PALETTE, layout
from sbert_app.services.experiments.statistics import VariantRow

PAPER = "#AEB5BF"  # our grey, lighter: the paper's bars stand back
ROW_PIXELS = 58
MARGIN_PIXELS = 92  # legend and axis


def bars(rows: Sequence[VariantRow], measured: str) -> go.Figure:
    """Spearman ρ ×100 on STSb dev, bars from zero. The whisker is the 95% interval of the mean.

    ``measured`` names our bars in the legend. Variants without a run keep their place.
    """
    figure = go.Figure()
    if any(row.paper is not None for row in rows):
        _bars(figure, rows, [row.paper for row in rows], "the paper", PAPER, textfont={"color": "#10141b", "size": 12})
    means = [row.summary.mean if row.summary else None for row in rows]
    reach = [_reach(row) for row in rows]
    _bars(
        figure,
        rows,
        means,
        measured,
        PALETTE["blue"],
        textfont={"color": "#fff", "size": 12},
        error_x={
            "type": "data",
            "array": reach,
            "color": PALETTE["orange"],
            "thickness": 2.5,
            "width": 5,
            "visible": any(reach),
        },
    )
    before = [row.before for row in rows]
    if any(value is not None for value in before):
        figure.add_scatter(
            x=before,
            y=_labels(rows),
            mode="markers",
            name="before training",
            marker={
                "symbol": "diamond",
                "size": 11,
                "color": PALETTE["vermillion"],
                "line": {"color": "#fff", "width": 1.5},
            },
            hovertemplate="%{y}: %{x:.2f} before training<extra></extra>",
        )
    layout(figure, height=ROW_PIXELS * len(rows) + MARGIN_PIXELS)
    figure.update_layout(
        barmode="group",
        bargap=0.25,
        showlegend=True,
        legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0, "traceorder": "reversed"},
        margin_t=48,
    )
    figure.update_xaxes(range=[0, 100], title="Spearman ρ ×100 on STSb dev")
    figure.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    return figure


def _bars(
    figure: go.Figure, rows: Sequence[VariantRow], values: list[float | None], name: str, colour: str, **more: Any
) -> None:
    figure.add_bar(
        x=values,
        y=_labels(rows),
        orientation="h",
        name=name,
        marker={"color": colour},
        text=["" if value is None else f"{value:.1f}" for value in values],
        textposition="inside",
        insidetextanchor="start",
        hovertemplate="%{y}: %{x:.2f}<extra>" + escape(name) + "</extra>",
        **more,
    )


def _labels(rows: Sequence[VariantRow]) -> list[str]:
    return [escape(row.label).replace(": ", ":<br>") for row in rows]


def _reach(row: VariantRow) -> float | None:
    """Half the interval; a bar with one seed has none."""
    return row.summary.high - row.summary.mean if row.summary and row.summary.high is not None else None
