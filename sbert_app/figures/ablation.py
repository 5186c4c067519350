"""The figure of an ablation: a dot with its interval for each variant, the paper's, and the base before training."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from sbert_app.figures.style import PALETTE, apply_style, error_bars
from sbert_app.services.experiments.statistics import VariantRow

ROW_PIXELS = 46
MARGIN_PIXELS = 104  # for legend and axis


def dots(rows: Sequence[VariantRow], measured: str) -> go.Figure:
    """Spearman ρ ×100 on STSb dev, on an axis as long as the differences; the bar is the 95% interval of the mean.

    ``measured`` is the legend entry of the measured dots. Variants without a run keep an empty row.
    """
    figure, summaries = go.Figure(), [row.summary for row in rows]
    mark = {"symbol": "line-ns", "size": 20, "line": {"color": PALETTE["vermillion"], "width": 3}}
    _add(figure, rows, [row.before for row in rows], "before training", mark)
    ring = {"symbol": "circle-open", "size": 12, "color": PALETTE["grey"], "line": {"width": 2}}
    _add(figure, rows, [row.paper for row in rows], "the paper", ring)
    means = [summary.mean if summary else None for summary in summaries]
    ends = [
        (summary.mean, summary.low or summary.mean, summary.high or summary.mean) if summary else (0, 0, 0)
        for summary in summaries
    ]
    _add(
        figure,
        rows,
        means,
        measured,
        {"size": 12, "color": PALETTE["blue"]},
        mode="markers+text",
        text=["" if mean is None else f"{mean:.1f}" for mean in means],
        textposition="top center",
        error_x=error_bars(ends, "blue", thickness=2.5, width=0),
    )
    labels = [escape(row.label).replace(": ", ":<br>") for row in rows]
    return apply_style(
        figure,
        ROW_PIXELS * len(rows) + MARGIN_PIXELS,
        x={"title": "Spearman ρ ×100 on STSb dev"},
        y={"tickvals": list(range(len(rows))), "ticktext": labels, "range": [len(rows) - 0.5, -0.7], "ticks": ""},
        showlegend=True,
        legend_traceorder="reversed",
    )


def _add(
    figure: go.Figure,
    rows: Sequence[VariantRow],
    values: Sequence[float | None],
    name: str,
    marker: dict[str, Any],
    **more: Any,
) -> None:
    """A mark in each row that has a value; nothing, and no entry in the legend, where none has."""
    if all(value is None for value in values):
        return
    figure.add_scatter(
        **{"mode": "markers", **more},
        x=values,
        y=list(range(len(rows))),
        customdata=[escape(row.label) for row in rows],
        name=name,
        marker=marker,
        hovertemplate="%{customdata}: %{x:.2f}<extra>" + escape(name) + "</extra>",
    )
