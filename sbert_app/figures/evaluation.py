"""Quality against speed: the paper's Tables 1 and 7 in one picture, with the frontier of what nothing beats at both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log10
from typing import Any

import plotly.graph_objects as go

from sbert_app.figures.style import PALETTE, layout, short_label

COLOURS = {"encoder": "blue", "baseline": "orange", "cross-encoder": "purple"}
SYMBOLS = {"encoder": "circle", "baseline": "square", "cross-encoder": "diamond"}
NAMES = {"encoder": "bi-encoder", "baseline": "no transformer", "cross-encoder": "cross-encoder"}


@dataclass(frozen=True)
class Point:
    """A model: how fast, how good."""

    label: str
    kind: str  # encoder, baseline, cross-encoder
    speed: float  # sentences a second
    quality: float  # a correlation ×100
    is_paper: bool = False


def frontier(points: Sequence[Point]) -> list[Point]:
    """Those that no other beats in both, from slow to fast."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda each: (-each.speed, -each.quality)):
        if not kept or point.quality > kept[-1].quality:
            kept.append(point)
    return kept[::-1]


def quality_and_speed(points: Sequence[Point], quality: str) -> go.Figure:
    """Scatter on a logarithmic axis; ``quality`` names the other axis. Grey, hollow: the paper's, on its machine."""
    figure = go.Figure()
    ours = [point for point in points if not point.is_paper]
    edge = frontier(ours)
    figure.add_scatter(
        x=[point.speed for point in edge],
        y=[point.quality for point in edge],
        mode="lines",
        name="frontier",
        line={"color": PALETTE["grey"], "dash": "dot", "width": 1.5},
        hoverinfo="skip",
    )
    for kind, name in NAMES.items():
        group = [point for point in ours if point.kind == kind]
        if group:
            marker = {"color": PALETTE[COLOURS[kind]], "symbol": SYMBOLS[kind], "size": 12}
            _points(figure, group, name, quality, marker)
    theirs = [point for point in points if point.is_paper]
    if theirs:
        marker = {"color": PALETTE["grey"], "symbol": "circle-open", "size": 10, "line": {"width": 2}}
        _points(figure, theirs, "the paper, Tables 1 and 7", quality, marker)
    layout(figure, height=420)
    figure.update_layout(
        showlegend=True, legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0}, margin_t=56, margin_r=24
    )
    decades = [log10(point.speed) for point in points] or [2.0]
    room = [min(decades) - 0.25, max(decades) + 0.8]  # to the right for the last label
    figure.update_xaxes(type="log", title="sentences per second", dtick=1, tickformat="~s", range=room)
    figure.update_yaxes(title=quality)
    return figure


def _points(figure: go.Figure, group: Sequence[Point], name: str, quality: str, marker: dict[str, Any]) -> None:
    labels = [short_label(point.label, 34) for point in group]
    figure.add_scatter(
        x=[point.speed for point in group],
        y=[point.quality for point in group],
        mode="markers",
        name=name,
        customdata=labels,
        marker=marker,
        hovertemplate="%{customdata}<br>%{y:.2f}, %{x:,.0f} sentences/s<extra></extra>",
    )
    for point, label in zip(group, labels, strict=True):
        figure.add_annotation(
            x=log10(point.speed),
            y=point.quality,
            text=label,
            showarrow=False,
            xanchor="left",
            xshift=8,
            yshift=9,
            font={"size": 11},
        )
