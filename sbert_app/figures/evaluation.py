"""Quality against speed: the paper's Tables 1 and 7 in one picture, with the frontier of what nothing beats at both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log10
from typing import Any

import numpy as np
import plotly.graph_objects as go

from sbert_app.figures.style import PALETTE, layout, short_label

COLOURS = {"encoder": "blue", "baseline": "orange", "cross-encoder": "purple"}
SYMBOLS = {"encoder": "circle", "baseline": "square", "cross-encoder": "diamond"}
NAMES = {"encoder": "bi-encoder", "baseline": "no transformer", "cross-encoder": "cross-encoder"}
PLOT = (1_050, 290)  # pixels of the plot on a wide screen
LETTER = 6  # pixels, about
PLACES = (("left", 9), ("left", -9), ("right", 9), ("right", -9), ("left", 22), ("left", -22))  # anchor, how far up


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
    room = (min(decades) - 0.25, max(decades) + 0.8)  # to the right for the last label
    _name_points(figure, points, room)
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


def _name_points(figure: go.Figure, points: Sequence[Point], room: tuple[float, float]) -> None:
    """A label beside each point, where the labels before it leave room: to the right, or else to the left."""
    bottom = min((point.quality for point in points), default=0.0)
    high = max((point.quality for point in points), default=1.0) - bottom or 1.0
    taken: list[tuple[float, float, float, float]] = []
    for point in sorted(points, key=lambda each: (each.is_paper, -each.quality)):
        label = short_label(point.label, 34)
        x = PLOT[0] * (log10(point.speed) - room[0]) / (room[1] - room[0])
        y = PLOT[1] * (point.quality - bottom) / high
        boxes = {place: _box(x, y, len(label), *place) for place in PLACES}
        place = next((each for each, box in boxes.items() if not any(_meet(box, other) for other in taken)), PLACES[0])
        taken.append(boxes[place])
        side, up = place
        figure.add_annotation(
            x=log10(point.speed),
            y=point.quality,
            text=label,
            showarrow=False,
            xanchor=side,
            xshift=8 if side == "left" else -8,
            yshift=up,
            font={"size": 11},
        )


def _box(x: float, y: float, letters: int, side: str, up: int) -> tuple[float, float, float, float]:
    """Left, bottom, right, top of a label, in pixels of the plot."""
    left = x + 8 if side == "left" else x - 8 - LETTER * letters
    return left, y + up - 7, left + LETTER * letters, y + up + 7


def _meet(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def label_spread(by_label: dict[str, np.ndarray]) -> go.Figure:
    """How the similarities of each label spread: a histogram each, over one another."""
    figure = go.Figure()
    colours = ("blue", "orange", "vermillion")
    for (label, values), colour in zip(by_label.items(), colours, strict=False):
        counts, edges = np.histogram(values, bins=40, range=(-0.2, 1.0))
        figure.add_scatter(
            x=((edges[:-1] + edges[1:]) / 2).round(3).tolist(),
            y=(counts / max(len(values), 1)).round(5).tolist(),
            name=f"{short_label(label)} ({len(values):,})",
            mode="lines",
            line={"color": PALETTE[colour], "shape": "hvh", "width": 2},
            fill="tozeroy",
            hovertemplate="%{x:.2f}: %{y:.1%}<extra>%{fullData.name}</extra>",
        )
    layout(figure, height=300)
    figure.update_layout(showlegend=True, legend={"orientation": "h", "y": 1.12, "x": 0})
    figure.update_xaxes(title="similarity")
    figure.update_yaxes(title="share of pairs", tickformat=".0%")
    return figure
