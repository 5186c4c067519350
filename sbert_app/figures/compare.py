"""Figures of a comparison: attribution of a cosine to words, and the cosines of many sentences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from sbert_app.figures.style import DIVERGING, apply_style, short_label


def word_map(words_a: Sequence[str], words_b: Sequence[str], matrix: np.ndarray) -> go.Figure:
    """Heat map of the contribution of each word pair to the cosine; rows are the words of the first sentence."""
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
    apply_style(figure, height=max(220, 34 * len(words_a) + 90))
    figure.update_xaxes(tickvals=list(range(len(words_b))), ticktext=_ticks(words_b), side="top", showgrid=False)
    figure.update_yaxes(
        tickvals=list(range(len(words_a))), ticktext=_ticks(words_a), autorange="reversed", showgrid=False
    )
    return figure


def cosine_matrix(labels: Sequence[str], matrix: np.ndarray, title: str) -> go.Figure:
    """Heat map of the similarities (N, N) of all sentences."""
    n = len(labels)
    short = [short_label(label) for label in labels]
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
    apply_style(figure, height=480)
    numbers = [str(i + 1) for i in range(n)]
    step = max(1, n // 40)
    ticks = {"tickvals": list(range(0, n, step)), "ticktext": numbers[::step], "showgrid": False}
    figure.update_xaxes(side="top", **ticks)
    figure.update_yaxes(autorange="reversed", **ticks)
    figure.update_layout(title={"text": title, "font": {"size": 14}, "y": 0.02, "x": 0.5}, margin_b=44)
    return figure


def _ticks(words: Sequence[str]) -> list[str]:
    return [short_label(word, 16) for word in words]
