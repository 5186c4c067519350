"""Figures of a scored file: the distribution of the cosines, and cosines against gold scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from sbert_app.figures.style import PALETTE, apply_style
from sbert_app.services.files.report import ScoreReport

BINS_MERGED = ((300, 4), (3_000, 2), (float("inf"), 1))  # (below so many pairs, bins per bar)


def histogram(report: ScoreReport) -> go.Figure:
    """Histogram of the cosines from zero or the lowest one, with a line at their mean."""
    counts, edges = np.array(report.counts), np.array(report.edges)
    merged = next(bins for limit, bins in BINS_MERGED if counts.sum() < limit)
    counts, edges = counts.reshape(-1, merged).sum(1), edges[::merged]
    first = int(np.flatnonzero(counts)[0]) if counts.any() else 0
    left = min(edges[first], 0.0)
    in_range = edges[:-1] >= left - 1e-9
    lows, highs, counts = edges[:-1][in_range], edges[1:][in_range], counts[in_range]
    figure = go.Figure(
        go.Bar(
            x=((lows + highs) / 2).round(4).tolist(),
            y=counts.tolist(),
            width=(highs - lows).tolist(),
            marker={"color": PALETTE["blue"], "line": {"width": 0}},
            customdata=np.stack([lows, highs], axis=1).round(3).tolist(),
            hovertemplate="cosine %{customdata[0]} to %{customdata[1]}: %{y:,} pairs<extra></extra>",
        )
    )
    _style(
        figure,
        "Distribution of the cosines",
        x={"title": "cosine", "range": [left - 0.02, 1.02], "showgrid": False},
        y={"title": "pairs", "rangemode": "tozero"},
        bargap=0.08,
    )
    if report.mean is not None:
        figure.add_vline(x=report.mean, line={"color": PALETTE["orange"], "width": 2})
        figure.add_annotation(
            x=report.mean, y=1.08, yref="paper", text=f"mean {report.mean:.2f}", showarrow=False, xanchor="center"
        )
    return figure


def scatter(report: ScoreReport, gold_name: str) -> go.Figure:
    """Gold score against cosine, a point for each pair or for a sample of them."""
    few = len(report.scatter) < 300
    figure = go.Figure(
        go.Scatter(
            x=[gold for gold, _ in report.scatter],
            y=[cosine for _, cosine in report.scatter],
            mode="markers",
            marker={"color": PALETTE["blue"], "size": 8 if few else 4, "opacity": 0.75 if few else 0.4},
            hovertemplate="gold %{x}, cosine %{y:.3f}<extra></extra>",
        )
    )
    return _style(figure, "Gold score and cosine", x={"title": f"gold score ({gold_name})"}, y={"title": "cosine"})


def _style(figure: go.Figure, title: str, **style: Any) -> go.Figure:
    above = {"text": title, "x": 0.02, "y": 0.97, "font": {"size": 14}}
    return apply_style(figure, 320, title=above, margin_t=64, **style)
