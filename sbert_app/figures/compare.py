"""Figures of a comparison: attribution of a cosine to words, and the cosines of many sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from sbert_app.figures.style import DIVERGING, apply_style, short_label
from sbert_app.formats import format_number

MOST_HEIGHT = 900  # pixels of a word map, however many words there are
MOST_LABELS = 40  # words beside one another that can be read
TOP = {"side": "top", "showgrid": False}  # the horizontal axis of a matrix
DOWNWARDS = {"autorange": "reversed", "showgrid": False}  # its vertical axis
MOST_NUMBERS = 12  # numbers beside one another that can be read, on a phone too


def word_map(words_a: Sequence[str], words_b: Sequence[str], matrix: np.ndarray) -> go.Figure:
    """Heat map of the contribution of each word pair to the cosine; rows are the words of the first sentence."""
    bound = max(float(np.abs(matrix).max()), 1e-6)
    below = {"orientation": "h", "y": 0, "yanchor": "top", "ypad": 6}
    figure = go.Figure(
        go.Heatmap(
            z=matrix.round(5).tolist(),
            x=list(range(len(words_b))),
            y=list(range(len(words_a))),
            customdata=[[[a, b] for b in words_b] for a in words_a],
            zmin=-bound,
            zmax=bound,
            colorscale=DIVERGING,
            **(_numbers(matrix, 3) if len(words_b) <= 9 and len(words_a) <= 14 else {}),
            hovertemplate="%{customdata[0]} × %{customdata[1]}: %{z:+.4f}<extra></extra>",
            colorbar={**below, "thickness": 8, "len": 0.5, "outlinewidth": 0} | _scale(bound),
            xgap=2 if len(words_b) <= 60 else 0,
            ygap=2 if len(words_a) <= 60 else 0,
        )
    )
    alt = f"Word map: the share of each of {len(words_a)} × {len(words_b)} word pairs in the cosine"
    height = min(MOST_HEIGHT, max(220, 34 * len(words_a) + 130))
    return apply_style(figure, height, alt, TOP | _word_ticks(words_b), DOWNWARDS | _word_ticks(words_a), margin_b=54)


def cosine_matrix(labels: Sequence[str], matrix: np.ndarray, title: str) -> go.Figure:
    """Heat map of the similarities (N, N) of all sentences."""
    n = len(labels)
    short = [short_label(label) for label in labels]
    figure = go.Figure(
        go.Heatmap(
            z=np.round(matrix, 3).tolist(),
            x0=1,
            y0=1,
            zmin=-1,
            zmax=1,
            colorscale=DIVERGING,
            customdata=[[[a, b] for b in short] for a in short] if n <= 150 else None,
            hovertemplate="%{customdata[0]}<br>%{customdata[1]}<br>%{z:.3f}<extra></extra>"
            if n <= 150
            else "line %{y} × line %{x}: %{z:.3f}<extra></extra>",
            **(_numbers(matrix, 2) if n <= MOST_NUMBERS else {}),
            colorbar={"thickness": 10, "outlinewidth": 0},
            xgap=1 if n <= 60 else 0,
            ygap=1 if n <= 60 else 0,
        )
    )
    # Every line has its number; of many lines Plotly numbers as many as there is room for.
    numbers: dict[str, Any] = {"tick0": 1, "dtick": 1} if n <= MOST_NUMBERS else {"nticks": MOST_NUMBERS}
    alt, below = f"{title}: every pair of {n} sentences", {"text": title, "font": {"size": 14}, "y": 0.02, "x": 0.5}
    return apply_style(figure, 480, alt, TOP | numbers, DOWNWARDS | numbers, title=below, margin_b=44)


def _numbers(matrix: np.ndarray, digits: int) -> dict[str, Any]:
    """The numbers in the cells, with a minus sign, where Plotly's own format has a hyphen."""
    return {"text": [[format_number(value, digits) for value in row] for row in matrix], "texttemplate": "%{text}"}


def _scale(bound: float) -> dict[str, Any]:
    """Numbers at both ends and in the middle of a scale around 0."""
    end = f"{bound:.2g}"
    return {"tickvals": [-bound, 0, bound], "ticktext": [f"−{end}", "0", f"+{end}"], "tickangle": 0}


def _word_ticks(words: Sequence[str]) -> dict[str, Any]:
    """Every word as a label; of many words, as many at equal distances as can be read."""
    step = 1 + len(words) // MOST_LABELS
    return {"tickvals": list(range(0, len(words), step)), "ticktext": [short_label(word, 16) for word in words[::step]]}
