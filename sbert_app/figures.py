"""Data -> Plotly figure. No state, no model. One palette and one layout for every figure of the app."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

# Okabe & Ito (2008): told apart by people with any colour vision.
PALETTE = {
    "blue": "#0072B2",
    "orange": "#E69F00",
    "green": "#009E73",
    "vermillion": "#D55E00",
    "sky": "#56B4E9",
    "purple": "#CC79A7",
    "yellow": "#F0E442",
    "grey": "#7F8793",
}
# Below zero vermillion, zero clear, above zero blue: reads the same on white and on black.
DIVERGING = [[0.0, "rgba(213,94,0,1)"], [0.5, "rgba(127,135,147,0.06)"], [1.0, "rgba(0,114,178,1)"]]
FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"


def layout(figure: go.Figure, height: int = 360) -> go.Figure:
    """Give a figure the shared look: clear background, legible in light and dark, no chart junk."""
    figure.update_layout(
        height=height,
        autosize=True,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": FONT, "size": 13, "color": PALETTE["grey"]},
        colorway=[PALETTE[name] for name in ("blue", "orange", "green", "vermillion", "purple", "sky")],
        margin={"l": 8, "r": 8, "t": 28, "b": 8},
        hoverlabel={"font": {"family": FONT}},
        showlegend=False,
    )
    figure.update_xaxes(automargin=True, gridcolor="rgba(127,135,147,0.2)", zeroline=False)
    figure.update_yaxes(automargin=True, gridcolor="rgba(127,135,147,0.2)", zeroline=False)
    return figure


def word_map(words_a: Sequence[str], words_b: Sequence[str], matrix: np.ndarray) -> go.Figure:
    """Heat map of what each word pair adds to the cosine; rows are the words of the first sentence."""
    bound = max(float(np.abs(matrix).max()), 1e-6)
    figure = go.Figure(
        go.Heatmap(
            z=matrix.round(5).tolist(),
            x=list(range(len(words_b))),
            y=list(range(len(words_a))),
            customdata=[[[a, b] for b in words_b] for a in words_a],
            zmin=-bound,
            zmax=bound,
            colorscale=DIVERGING,
            texttemplate="%{z:.3f}" if len(words_b) <= 9 and len(words_a) <= 14 else None,
            hovertemplate="%{customdata[0]} × %{customdata[1]}: %{z:+.4f}<extra></extra>",
            showscale=False,
            xgap=2,
            ygap=2,
        )
    )
    layout(figure, height=max(220, 34 * len(words_a) + 90))
    figure.update_xaxes(tickvals=list(range(len(words_b))), ticktext=_ticks(words_b), side="top", showgrid=False)
    figure.update_yaxes(
        tickvals=list(range(len(words_a))), ticktext=_ticks(words_a), autorange="reversed", showgrid=False
    )
    return figure


def cosine_matrix(labels: Sequence[str], matrix: np.ndarray, title: str) -> go.Figure:
    """Heat map of the similarity of every sentence with every other. (N, N)."""
    n = len(labels)
    short = [_short(label) for label in labels]
    figure = go.Figure(
        go.Heatmap(
            z=np.round(matrix, 3).tolist(),
            zmin=-1,
            zmax=1,
            colorscale=DIVERGING,
            customdata=[[[a, b] for b in short] for a in short] if n <= 150 else None,
            hovertemplate="%{customdata[0]}<br>%{customdata[1]}<br>%{z:.3f}<extra></extra>"
            if n <= 150
            else "line %{y} × line %{x}: %{z:.3f}<extra></extra>",
            texttemplate="%{z:.2f}" if n <= 12 else None,
            textfont={"size": 10},
            colorbar={"thickness": 10, "outlinewidth": 0},
            xgap=1 if n <= 60 else 0,
            ygap=1 if n <= 60 else 0,
        )
    )
    layout(figure, height=480)
    numbers = [str(i + 1) for i in range(n)]
    step = max(1, n // 40)
    ticks = {"tickvals": list(range(0, n, step)), "ticktext": numbers[::step], "showgrid": False}
    figure.update_xaxes(side="top", **ticks)
    figure.update_yaxes(autorange="reversed", **ticks)
    figure.update_layout(title={"text": title, "font": {"size": 14}, "y": 0.02, "x": 0.5}, margin_b=44)
    return figure


def _ticks(words: Sequence[str]) -> list[str]:
    return [_short(word, 16) for word in words]


def _short(text: str, longest: int = 70) -> str:
    """A label. Plotly reads a little HTML in labels, so angle brackets become harmless look-alikes."""
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
