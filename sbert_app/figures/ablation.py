"""The figure of an ablation: a bar for each variant beside the paper's, and the base model before training."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from sbert_app.figures.style import PALETTE, apply_style
from sbert_app.services.experiments.statistics import VariantRow

PAPER_COLOUR = "#AEB5BF"  # a lighter grey than the palette's, so that the paper's bars recede
ROW_PIXELS = 58
MARGIN_PIXELS = 92  # for legend and axis


def bars(rows: Sequence[VariantRow], measured: str) -> go.Figure:
    """Spearman ρ ×100 on STSb dev as bars from zero; the error bar is the 95% interval of the mean.

    ``measured`` is the legend entry of the measured bars. Variants without a run keep an empty row.
    """
    figure = go.Figure()
    if any(row.paper is not None for row in rows):
        _bars(figure, rows, [row.paper for row in rows], "the paper", PAPER_COLOUR, "#10141b")
    means = [row.summary.mean if row.summary else None for row in rows]
    half_widths = [  # of the 95% interval; None for a single seed
        row.summary.high - row.summary.mean if row.summary and row.summary.high is not None else None for row in rows
    ]
    interval = {"type": "data", "array": half_widths, "visible": any(half_widths)}
    error_x = interval | {"color": PALETTE["orange"], "thickness": 2.5, "width": 5}
    _bars(figure, rows, means, measured, PALETTE["blue"], "#fff", error_x=error_x)
    before = [row.before for row in rows]
    if any(value is not None for value in before):
        figure.add_scatter(
            x=before,
            y=_labels(rows),
            mode="markers",
            name="before training",
            marker={"symbol": "diamond", "size": 11, "color": PALETTE["vermillion"]},
            marker_line={"color": "#fff", "width": 1.5},
            hovertemplate="%{y}: %{x:.2f} before training<extra></extra>",
        )
    return apply_style(
        figure,
        ROW_PIXELS * len(rows) + MARGIN_PIXELS,
        x={"range": [0, 100], "title": "Spearman ρ ×100 on STSb dev"},
        y={"autorange": "reversed", "showgrid": False, "ticks": ""},
        barmode="group",
        bargap=0.25,
        showlegend=True,
        legend_traceorder="reversed",
        margin_t=48,
    )


def _bars(
    figure: go.Figure,
    rows: Sequence[VariantRow],
    values: list[float | None],
    name: str,
    colour: str,
    text_colour: str,
    **more: Any,
) -> None:
    figure.add_bar(
        x=values,
        y=_labels(rows),
        orientation="h",
        name=name,
        marker={"color": colour},
        text=["" if value is None else f"{value:.1f}" for value in values],
        textfont={"color": text_colour, "size": 12},
        textposition="inside",
        insidetextanchor="start",
        hovertemplate="%{y}: %{x:.2f}<extra>" + escape(name) + "</extra>",
        **more,
    )


def _labels(rows: Sequence[VariantRow]) -> list[str]:
    return [escape(row.label).replace(": ", ":<br>") for row in rows]
