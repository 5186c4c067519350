"""Figures of the Evaluate page: quality against speed and size, similarities by label, calibration, thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log10
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from sbert_app.figures.style import (
    PALETTE,
    add_bars,
    add_scatter,
    apply_style,
    error_bars,
    model_colours,
    short_label,
)
from sbert_app.services.results.cost import CostTable
from training.evaluation.thresholds import Choice, Decision
from training.quantization import PRECISIONS

if TYPE_CHECKING:
    from sbert_app.services.results.decisions import ModelDecision
    from training.names import ModelName

# The colour of thresholds, which is not the colour of a model, and their symbols and dashes.
THRESHOLD = "green"
THRESHOLD_MARKS = (("circle", "solid"), ("diamond", "dash"), ("square", "dot"))
PRECISION_MARKERS = {
    "float32": ("blue", "circle"),
    "bfloat16": ("sky", "diamond"),
    "int8": ("green", "square"),
    "ubinary": ("vermillion", "triangle-up"),
}
PAPER = "paper"
# The groups of points: name and symbol.
GROUPS = {
    "encoder": ("bi-encoder", "circle"),
    "baseline": ("no transformer", "square"),
    "cross-encoder": ("cross-encoder", "diamond"),
    "late interaction": ("late interaction", "cross"),
    "sparse encoder": ("sparse encoder", "x"),
    PAPER: ("the paper, Tables 1 and 7", "circle-open"),
}
# The margins leave space for the labels at the ends of the axes.
WITH_LEGEND = {"showlegend": True, "margin_t": 48, "margin_r": 24}
SHARE_AXIS = {"range": [0, 1.03], "tickformat": ".0%"}
# The plot area on a tablet, and the approximate width of a letter, in pixels. Labels that do not
# overlap there do not overlap on wider screens either.
PLOT_SIZE = (700, 290)
LETTER_WIDTH = 6.5
SIMILARITY_BINS = np.linspace(-0.32, 1.0, 34)
# The relative difference between two measurements of the speed of one model.
SPEED_NOISE = 0.1
# The anchors of a label and its offsets upwards in pixels. A label has the first position without
# an overlap.
LABEL_POSITIONS = (
    ("left", 9),
    ("left", -9),
    ("right", 9),
    ("right", -9),
    ("left", 22),
    ("left", -22),
)

# Left, bottom, right and top, in pixels.
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Point:
    """A model with its group (a key of GROUPS), its speed in sentences per second, and its quality (ρ or r ×100).

    The points of the paper have a group and a colour of their own.
    """

    label: str
    group: str
    speed: float
    quality: float
    colour: str = "grey"


def frontier(points: Sequence[Point]) -> list[Point]:
    """The Pareto-optimal points, from slow to fast: no other point is better and as fast, or faster and as good.

    Speeds that differ by less than ``SPEED_NOISE`` count as equal.
    """

    def dominates(other: Point, point: Point) -> bool:
        # Without this, two equal models with almost the same speed would each exclude the other.
        if other.quality == point.quality:
            return other.speed > point.speed
        return other.quality > point.quality and other.speed >= (1 - SPEED_NOISE) * point.speed

    optimal = []
    for point in points:
        if not any(dominates(other, point) for other in points):
            optimal.append(point)
    return sorted(optimal, key=lambda point: point.speed)


def quality_and_speed(points: Sequence[Point], quality: str) -> go.Figure:
    """A scatter plot with a logarithmic axis of speed; ``quality`` is the title of the other axis.

    Each model has its own colour, each group a symbol. The paper's points, measured on another
    machine, are hollow.
    """
    figure = go.Figure()
    measured = [point for point in points if point.group != PAPER]
    optimal = frontier(measured)
    x = [point.speed for point in optimal]
    y = [point.quality for point in optimal]
    add_scatter(figure, x, y, "grey", name="frontier", line_dash="dot", line_width=1.5)
    for key, (name, symbol) in GROUPS.items():
        group = [point for point in points if point.group == key]
        if not group:
            continue
        marker: dict[str, Any] = {
            "marker_symbol": symbol,
            "marker_size": 12,
            "marker_line_width": 0,
        }
        # The hollow symbol of the paper consists of its outline.
        if key == PAPER:
            marker["marker_line_width"] = 2
        # A trace without points, for the legend: the group has one entry, but several colours.
        add_scatter(figure, [None], [None], "grey", mode="markers", name=name, **marker)
        marker["marker_color"] = [PALETTE[point.colour] for point in group]
        add_scatter(
            figure,
            [point.speed for point in group],
            [point.quality for point in group],
            "grey",
            hover="%{customdata}<br>%{y:.2f}, %{x:,.0f} sentences/s<extra></extra>",
            mode="markers",
            customdata=[short_label(point.label, 34) for point in group],
            showlegend=False,
            **marker,
        )
    # Without points the axis is around 100 sentences per second.
    decades = [log10(point.speed) for point in points] or [2.0]
    # More space on the right, for labels.
    x_range = (min(decades) - 0.25, max(decades) + 0.8)
    _add_labels(figure, points, x_range)
    speed = {
        "type": "log",
        "title": "sentences per second",
        "dtick": 1,
        "tickformat": "~s",
        "range": x_range,
    }
    return apply_style(
        figure, 420, x=speed, y={"title": quality}, showlegend=True, margin_t=56, margin_r=24
    )


def _add_labels(figure: go.Figure, points: Sequence[Point], x_range: tuple[float, float]) -> None:
    """Labels each point at the first of LABEL_POSITIONS where it overlaps no point and no earlier label."""
    plot_width, plot_height = PLOT_SIZE
    left_end, right_end = x_range
    qualities = [point.quality for point in points] or [0.0]
    lowest = min(qualities)
    # Points of equal quality span no height, and all lie at the bottom.
    span = max(qualities) - lowest or 1.0
    # Positions and boxes are in pixels from the lower left corner. A point is 12 pixels wide, and a
    # label 12 pixels high and 8 pixels beside its point.
    positions = {}
    occupied = []
    for point in points:
        x = plot_width * (log10(point.speed) - left_end) / (right_end - left_end)
        y = plot_height * (point.quality - lowest) / span
        positions[point] = (x, y)
        occupied.append((x - 6, y - 6, x + 6, y + 6))
    # The best models are labelled first, and the points of the paper last.
    for point in sorted(points, key=lambda point: (point.group == PAPER, -point.quality)):
        x, y = positions[point]
        label = short_label(point.label, 34)
        width = LETTER_WIDTH * len(label)
        boxes = {}
        free = []
        for anchor, offset in LABEL_POSITIONS:
            left = x + 8 if anchor == "left" else x - 8 - width
            box = (left, y + offset - 6, left + width, y + offset + 6)
            boxes[anchor, offset] = box
            if not any(_overlap(box, other) for other in occupied):
                free.append((anchor, offset))
        # A label that fits nowhere has the first position.
        anchor, offset = free[0] if free else LABEL_POSITIONS[0]
        occupied.append(boxes[anchor, offset])
        figure.add_annotation(
            x=log10(point.speed),
            y=point.quality,
            text=label,
            font_size=12,
            xanchor=anchor,
            xshift=8 if anchor == "left" else -8,
            yshift=offset,
            showarrow=False,
        )


def _overlap(a: Box, b: Box) -> bool:
    a_left, a_bottom, a_right, a_top = a
    b_left, b_bottom, b_right, b_top = b
    return a_left < b_right and b_left < a_right and a_bottom < b_top and b_bottom < a_top


def label_histograms(by_label: Mapping[str, np.ndarray]) -> go.Figure:
    """Overlaid histograms of the similarities of each label, with equal areas."""
    figure = go.Figure()
    middles = ((SIMILARITY_BINS[:-1] + SIMILARITY_BINS[1:]) / 2).round(3).tolist()
    hover = "%{x:.2f}: %{y:.1%}<extra>%{fullData.name}</extra>"
    # There are at most three labels, as in entailment data.
    colours = ("blue", "orange", "vermillion")
    for (label, values), colour in zip(by_label.items(), colours, strict=False):
        # Similarities outside of the bins count in the bins at the ends.
        clipped = np.clip(values, SIMILARITY_BINS[0], SIMILARITY_BINS[-1])
        counts, _ = np.histogram(clipped, bins=SIMILARITY_BINS)
        shares = (counts / max(len(values), 1)).round(5).tolist()
        name = f"{short_label(label)} ({len(values):,})"
        add_bars(figure, middles, shares, colour, hover, name=name, opacity=0.65)
    return apply_style(
        figure,
        330,
        x={"title": "similarity", "range": [-0.3, 1.02]},
        y={"title": "share of pairs", "tickformat": ".0%"},
        showlegend=True,
        barmode="overlay",
        bargap=0,
    )


def quality_and_size(table: CostTable) -> go.Figure:
    """ρ ×100 with its interval against the size of a vector, on a logarithmic axis."""
    figure = go.Figure()
    details = "%{customdata[0]} dimensions: ρ %{y:.2f}, %{x:,} bytes, %{customdata[1]:.2f} ms<extra></extra>"
    for name, (colour, symbol) in PRECISION_MARKERS.items():
        label = PRECISIONS[name].label
        cells = [cell for cell in table.cells if cell.precision == name]
        add_scatter(
            figure,
            [cell.bytes for cell in cells],
            [cell.rho.value for cell in cells],
            colour,
            hover=f"{label}, {details}",
            mode="lines+markers",
            name=label,
            marker_size=9,
            marker_symbol=symbol,
            error_y=error_bars([cell.rho for cell in cells], colour, thickness=1, width=3),
            customdata=[[cell.dimension, cell.milliseconds] for cell in cells],
        )
    sizes = [cell.bytes for cell in table.cells]
    # The powers of two within the sizes, and just outside.
    powers = [2**exponent for exponent in range(2, 14)]
    ticks = [power for power in powers if min(sizes) / 1.5 <= power <= 1.5 * max(sizes)]
    size = {
        "type": "log",
        "title": "bytes a vector",
        "tickvals": ticks,
        "ticktext": [f"{tick:,}" for tick in ticks],
        "minor": {"ticks": ""},
    }
    quality = {"title": "Spearman ρ ×100"}
    alt = "Spearman's ρ against the size of a vector, a line for each precision"
    return apply_style(figure, 380, alt, size, quality, showlegend=True, margin_t=48)


def reliability(
    bins: Sequence[tuple[float, float, int]], pairs: str, model: ModelName
) -> go.Figure:
    """Plots mean gold score against mean predicted score for bins (predicted, gold, count).

    ``pairs`` is the name of the data in words. The points of a perfect calibration are on the
    diagonal.
    """
    figure = add_scatter(go.Figure(), [0, 5], [0, 5], "grey", line_dash="dot", line_width=1)
    predicted, gold, counts = zip(*bins, strict=True)
    [colour] = model_colours([model.name])
    hover = "“x of 5” %{x:.2f}, gold score %{y:.2f}: %{customdata:,} pairs<extra></extra>"
    add_scatter(
        figure, predicted, gold, colour, hover, "lines+markers", marker_size=9, customdata=counts
    )
    x = {"title": f"mean “x of 5”, {short_label(pairs, 34)}", "range": [-0.1, 5.1], "dtick": 1}
    y = {"title": "mean gold score", "range": [-0.1, 5.1], "dtick": 1}
    alt = f"Mean gold score against mean predicted score, ten bins of {pairs}"
    return apply_style(figure, 360, alt, x, y)


def precision_recall(
    decision: Decision, names: dict[str, str], models: Sequence[ModelDecision] = ()
) -> go.Figure:
    """The curve of precision against recall over all pairs, and each choice with its intervals.

    Args:
        names: the words for each criterion, for the legend.
        models: if there are curves of several models, their decisions on the same pairs, including
            ``decision``.
    """
    figure = go.Figure()
    colours = model_colours([model.model.name for model in models])
    curves = []
    for model, colour in zip(models, colours, strict=True):
        curves.append((model.label, model.on_data.decision, colour))
    rates = "precision %{y:.1%}, recall %{x:.1%}"
    for name, other, colour in curves or [("all pairs", decision, "blue")]:
        thresholds, precision, recall = map(list, zip(*other.curve, strict=True))
        hover = f"from %{{customdata:.3f}}: {rates}<extra>%{{fullData.name}}</extra>"
        add_scatter(
            figure,
            recall,
            precision,
            colour,
            hover,
            "lines",
            name=short_label(name, 34),
            customdata=thresholds,
            line_width=2 if other is decision else 1.5,
        )
    for choice, symbol, _ in _marked_choices(decision):
        add_scatter(
            figure,
            [choice.recall.value],
            [choice.precision.value],
            THRESHOLD,
            hover=f"from {choice.threshold.value:.3f} on: {rates}<extra></extra>",
            mode="markers",
            name=names.get(choice.criterion, choice.criterion),
            marker_size=11,
            marker_line={"color": "#ffffff", "width": 1},
            marker_symbol=symbol,
            error_x=error_bars([choice.recall], THRESHOLD),
            error_y=error_bars([choice.precision], THRESHOLD),
        )
    # The precision of a threshold that every pair reaches.
    share = decision.matches / decision.n
    figure.add_hline(y=share, line={"color": PALETTE["grey"], "dash": "dot", "width": 1})
    figure.add_annotation(
        x=0.01,
        y=share,
        xanchor="left",
        yanchor="bottom",
        text="every pair a match",
        showarrow=False,
        font_size=12,
    )
    alt = f"Precision against recall; average precision {100 * decision.average_precision.value:.1f} of 100"
    axis = {
        "title": "recall",
        "range": [0, 1.02],
        "tickformat": ".0%",
        "dtick": 0.2,
        "ticklabelstandoff": 6,
    }
    return apply_style(figure, 340, alt, axis, {"title": "precision", **SHARE_AXIS}, **WITH_LEGEND)


def by_threshold(decision: Decision, similarity: str, model: ModelName) -> go.Figure:
    """Precision, recall and F1 of all pairs at each threshold of a model, with a line at each choice."""
    thresholds, precision, recall = map(list, zip(*decision.curve, strict=True))
    f1 = []
    for p, r in zip(precision, recall, strict=True):
        f1.append(2 * p * r / (p + r) if p + r else 0.0)
    figure = go.Figure()
    [colour] = model_colours([model.name])
    for name, values, dash in (
        ("precision", precision, "solid"),
        ("recall", recall, "dash"),
        ("F1", f1, "dot"),
    ):
        hover = f"from %{{x:.3f}} on: {name} %{{y:.1%}}<extra></extra>"
        add_scatter(figure, thresholds, values, colour, hover, name=name, line_dash=dash)
    for choice, _, dash in _marked_choices(decision):
        line = {"color": PALETTE[THRESHOLD], "width": 2, "dash": dash}
        threshold = choice.threshold.value
        figure.add_vline(x=threshold, line=line, annotation_text=f"{threshold:.3f}")
    alt = f"Precision, recall and F1 at each threshold of the {similarity}"
    title = f"threshold ({similarity} of {short_label(model.label, 34)})"
    return apply_style(
        figure, 340, alt, {"title": title, "ticklabelstandoff": 6}, SHARE_AXIS, **WITH_LEGEND
    )


def _marked_choices(decision: Decision) -> list[tuple[Choice, str, str]]:
    """The first three choices, without any that has no threshold, each with its symbol and its dash."""
    marked = zip(decision.choices, THRESHOLD_MARKS, strict=False)
    return [(choice, symbol, dash) for choice, (symbol, dash) in marked if choice.exists]
