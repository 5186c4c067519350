"""What the results of several lessons are made of: figures, and HTML in which all strings are escaped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from sbert_app.figures.style import PALETTE, apply_style, short_label
from sbert_app.pages.components.templates import macro

tiles = macro("tiles")
notes = macro("notes")
table = macro("learn/table")  # header, rows; wide=True scrolls on a phone
findings = macro("learn/findings")  # sentences that are made from the figures, whichever way these fall
measured = macro("learn/measured")  # what was measured, on how much, when

BINS = np.linspace(-0.32, 1.0, 34)
LINE_COLOURS = [PALETTE[name] for name in ("blue", "orange", "green", "vermillion", "purple", "sky")]


def styled(figure: go.Figure, height: int, x: str = "", y: str = "", legend: bool = False) -> go.Figure:
    """The figure in the look of the app, with titles of its axes, and with its legend in a line above."""
    apply_style(figure, height=height)
    if legend:
        figure.update_layout(showlegend=True, legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0})
    figure.update_xaxes(title={"text": x, "font": {"size": 13}})
    return figure.update_yaxes(title={"text": y, "font": {"size": 13}})


def cosine_histograms(unrelated: np.ndarray, similar: np.ndarray) -> go.Figure:
    """The cosines of random pairs and of similar pairs, as two histograms of equal area."""
    figure = go.Figure()
    for name, values, colour in (("random pairs", unrelated, "orange"), ("gold score of 4 or more", similar, "blue")):
        heights = np.histogram(np.clip(values, BINS[0], 1), bins=BINS)[0] / max(len(values), 1) * 100
        centres = (BINS[:-1] + BINS[1:]) / 2
        figure.add_bar(
            name=name,
            x=centres.round(3).tolist(),
            y=heights.round(2).tolist(),
            marker={"color": PALETTE[colour], "line": {"width": 0}},
            opacity=0.65,
            hovertemplate="cosine %{x:.2f}: %{y:.1f}%<extra>" + name + "</extra>",
        )
    figure.update_layout(barmode="overlay", bargap=0, xaxis_range=[-0.3, 1.02])
    return styled(figure, 330, "cosine", "% of the pairs", legend=True)


def rank_lines(labels: Sequence[str], columns: Sequence[str], ranks: Sequence[Sequence[int]]) -> go.Figure:
    """A line for each sentence through its ranks in several orders, a column each. Level lines: the orders agree."""
    figure = go.Figure()
    for i, (label, row) in enumerate(zip(labels, ranks, strict=True)):
        figure.add_scatter(
            x=list(columns),
            y=list(row),
            mode="lines+markers+text",
            text=[str(row[0]), *[""] * (len(row) - 2), str(row[-1])],
            textposition=["middle left", *["top center"] * (len(row) - 2), "middle right"],
            line={"color": LINE_COLOURS[i % len(LINE_COLOURS)], "width": 2.5},
            marker={"size": 8},
            hovertemplate=f"{short_label(label)}<br>%{{x}}: rank %{{y}}<extra></extra>",
        )
    apply_style(figure, height=max(300, 30 * len(labels) + 80))
    last = max(max(row) for row in ranks)
    figure.update_xaxes(side="top", showgrid=False, range=[-0.25, len(columns) - 0.75])
    figure.update_yaxes(type="log", range=[np.log10(last * 1.25), np.log10(0.8)], showgrid=False, showticklabels=False)
    return figure


def change_of_rho(points: float, what: str) -> str:
    """A sentence: whether ``what`` raises ρ, lowers it, or leaves it about where it was."""
    if abs(points) < 0.5:
        return f"{what} leaves ρ about where it was ({points:+.1f} points)."
    return f"{what} {'raises' if points > 0 else 'lowers'} ρ by {abs(points):.1f} points here."
