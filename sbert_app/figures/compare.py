"""Figures of comparisons: the word map of a cosine, the cosines of many sentences, and the scores of a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import plotly.graph_objects as go

from sbert_app.figures.style import (
    DIVERGING,
    PALE,
    PALETTE,
    add_bars,
    add_scatter,
    apply_style,
    short_label,
)
from sbert_app.formats import format_number
from sbert_app.services.files.report import ScoreReport
from training.evaluation.attribution import Attribution

# The most words of a sentence that are legible next to each other.
MOST_WORDS = 30
SENTENCE_ENDS = (".", "!", "?", "…", "。", "！", "？")
# The horizontal and the vertical axis of a matrix.
TOP = {"side": "top", "showgrid": False}
DOWNWARDS = {"autorange": "reversed", "showgrid": False}
# Below a matrix, whose cells have the whole width.
COLOUR_BAR = {
    "tickangle": 0,
    "thickness": 8,
    "orientation": "h",
    "y": 0,
    "yanchor": "top",
    "ypad": 6,
    "len": 0.5,
    "outlinewidth": 0,
}
# The most numbers that are legible next to each other, even on a phone.
MOST_NUMBERS = 12
# The vertical axis of a histogram.
PAIRS = {"title": "pairs", "rangemode": "tozero"}
# (number of pairs below which this holds, bins that are merged into a bar of a histogram)
BINS_MERGED = ((300, 4), (3_000, 2), (float("inf"), 1))


def condense(attribution: Attribution) -> Attribution:
    """A legible map: longer texts are summed by sentence, and only the parts with the largest sums are kept."""
    starts_a = _starts_of_parts(attribution.words_a)
    starts_b = _starts_of_parts(attribution.words_b)
    by_row = np.add.reduceat(attribution.matrix, starts_a, axis=0)  # (parts of A, words of B)
    matrix = np.add.reduceat(by_row, starts_b, axis=1)  # (parts of A, parts of B)
    rows = _largest(matrix.sum(axis=1))
    columns = _largest(matrix.sum(axis=0))
    parts_a = _join_words(attribution.words_a, starts_a)
    parts_b = _join_words(attribution.words_b, starts_b)
    return replace(
        attribution,
        words_a=[parts_a[row] for row in rows],
        words_b=[parts_b[column] for column in columns],
        matrix=matrix[np.ix_(rows, columns)],
    )


def _starts_of_parts(words: Sequence[str]) -> list[int]:
    """The positions at which the parts of a text start: its words, or the sentences of a longer text."""
    starts = [0]
    # A last word alone is not a sentence.
    for position in range(1, len(words) - 1):
        if words[position - 1].endswith(SENTENCE_ENDS):
            starts.append(position)
    if len(words) <= MOST_WORDS or len(starts) == 1:
        return list(range(len(words)))
    return starts


def _join_words(words: Sequence[str], starts: Sequence[int]) -> list[str]:
    """The texts of the parts that start at these positions."""
    parts = []
    for start, end in pairwise([*starts, len(words)]):
        parts.append(" ".join(words[start:end]))
    return parts


def _largest(sums: np.ndarray) -> list[int]:
    """The positions of the parts with the largest absolute sums, in the order of the text."""
    by_size = np.argsort(-np.abs(sums))
    return sorted(by_size[:MOST_WORDS].tolist())


def word_map(attribution: Attribution) -> go.Figure:
    """A heat map of the contribution of each word pair to the cosine; rows are the words of the first sentence."""
    size = f"{len(attribution.words_a)} × {len(attribution.words_b)}"
    alt = f"Word map: the share of each of {size} word pairs in the cosine"
    parts = condense(attribution)
    words_a = parts.words_a
    words_b = parts.words_b
    # The colours need a range, even if all contributions are 0.
    bound = max(float(np.abs(parts.matrix).max()), 1e-6)
    colour_bar = COLOUR_BAR | {
        "tickvals": [-bound, 0, bound],
        "ticktext": [f"−{bound:.2g}", "0", f"+{bound:.2g}"],
    }
    # The cells of a larger map are too small for numbers.
    has_numbers = len(words_b) <= 9 and len(words_a) <= 14
    figure = _heatmap(
        parts.matrix,
        bound,
        decimals=5,
        gap=2,
        hover="%{customdata[0]} × %{customdata[1]}: %{z:+.4f}",
        digits=3 if has_numbers else None,
        customdata=_label_pairs(words_a, words_b),
        colorbar=colour_bar,
    )
    height = max(220, 27 * len(words_a) + 110)
    return apply_style(
        figure,
        height,
        alt,
        TOP | _word_ticks(words_b),
        DOWNWARDS | _word_ticks(words_a),
        margin_b=54,
    )


def cosine_matrix(labels: Sequence[str], matrix: np.ndarray, title: str) -> go.Figure:
    """A heat map of the similarities (N, N) of all sentences."""
    n = len(labels)
    # The labels of more than 150 sentences would make a large figure.
    names = None
    hover = "line %{y} × line %{x}: %{z:.3f}"
    if n <= 150:
        names = _label_pairs(labels, labels)
        hover = "%{customdata[0]}<br>%{customdata[1]}<br>%{z:.3f}"
    digits = None
    # Plotly numbers the lines for which there is space.
    ticks: dict[str, Any] = {"nticks": MOST_NUMBERS}
    if n <= MOST_NUMBERS:
        digits = 2
        ticks = _word_ticks(labels, first=1)
    figure = _heatmap(
        matrix,
        bound=1,
        decimals=3,
        gap=1 if n <= 60 else 0,
        hover=hover,
        digits=digits,
        customdata=names,
        colorbar=COLOUR_BAR | {"tickvals": [-1, 0, 1]},
        # Lines are counted from 1.
        x0=1,
        y0=1,
    )
    alt = f"{title}: every pair of {n} sentences"
    return apply_style(
        figure,
        480,
        alt,
        TOP | ticks,
        DOWNWARDS | ticks,
        title={"text": title, "font": {"size": 14}, "y": 0.02, "x": 0.02},
        margin_b=54,
    )


def _label_pairs(rows: Sequence[str], columns: Sequence[str]) -> list[list[list[str]]]:
    """The labels of each cell of a heat map (rows, columns, 2), for its hover text."""
    row_labels = list(map(short_label, rows))
    column_labels = list(map(short_label, columns))
    return [[[row, column] for column in column_labels] for row in row_labels]


def _heatmap(
    values: np.ndarray,
    bound: float,
    decimals: int,
    gap: int,
    hover: str,
    digits: int | None,
    **options: Any,
) -> go.Figure:
    """A heat map of rounded values whose colours range from -bound to bound, with ``gap`` pixels between its cells.

    Values are rounded to ``decimals``. With ``digits`` the cells show numbers, which are formatted here
    because Plotly would write a hyphen for the minus sign.
    """
    colours = DIVERGING
    if digits is not None:
        options["text"] = [[format_number(value, digits) for value in row] for row in values]
        options["texttemplate"] = "%{text}"
        # Text in grey follows the theme (assets/style.css), and is legible on pale colours in the
        # light and in the dark theme.
        options["textfont"] = {"color": PALETTE["grey"]}
        colours = PALE
    heatmap = go.Heatmap(
        z=values.round(decimals).tolist(),
        zmin=-bound,
        zmax=bound,
        colorscale=colours,
        xgap=gap,
        ygap=gap,
        hovertemplate=f"{hover}<extra></extra>",
        **options,
    )
    return go.Figure(heatmap)


def _word_ticks(words: Sequence[str], first: int = 0) -> dict[str, Any]:
    """The labels of an axis, on which the first word is at ``first``."""
    return {
        "tickvals": list(range(first, first + len(words))),
        "ticktext": [short_label(word, 16) for word in words],
    }


def histogram(report: ScoreReport) -> go.Figure:
    """A histogram of the cosines of a file, from 0 or a lower cosine on, with a line at their mean."""
    # Any number of `BINS_MERGED` divides the 80 bins.
    counts = np.array(report.counts)
    merged = _bins_merged(counts.sum())
    counts = counts.reshape(-1, merged).sum(axis=1)  # (bars,)
    edges = np.array(report.edges)[::merged]  # (bars + 1,)
    lows = edges[:-1]
    highs = edges[1:]
    # The first bar with a pair; the first of all bars if none has one.
    lowest_bar = int(np.argmax(counts > 0))
    left = min(lows[lowest_bar], 0.0)
    # The tolerance allows for the rounding of the edges.
    in_range = lows >= left - 1e-9
    lows = lows[in_range]
    highs = highs[in_range]
    counts = counts[in_range]
    hover = "cosine %{customdata[0]} to %{customdata[1]}: %{y:,} pairs<extra></extra>"
    bounds = np.stack([lows, highs], axis=1).round(3).tolist()
    middles = ((lows + highs) / 2).round(4).tolist()
    widths = (highs - lows).tolist()
    figure = add_bars(
        go.Figure(), middles, counts.tolist(), "blue", hover, width=widths, customdata=bounds
    )
    _titled(figure, "Distribution of the cosines", _cosines_from(left), PAIRS, bargap=0.08)
    if report.mean is not None:
        figure.add_vline(x=report.mean, line={"color": PALETTE["orange"], "width": 2})
        # Centred text would be cut off at the edge of the figure.
        anchor = "right" if report.mean > 0.9 else "center"
        figure.add_annotation(
            x=report.mean,
            y=1,
            yref="paper",
            yanchor="bottom",
            text=f"mean {report.mean:.2f}",
            showarrow=False,
            xanchor=anchor,
        )
    return figure


def label_histogram(by_label: tuple[Sequence[int], Sequence[int]], threshold: float) -> go.Figure:
    """Overlaid histograms of the cosines of matches and of other pairs, with a line at the threshold."""
    # Matches, then other pairs (2, bins), in bins of a hundredth of the cosine.
    counts = np.array(by_label)
    # These bins are less than half as wide as those of `histogram`, so twice as many are merged.
    merged = 2 * _bins_merged(counts.sum())
    width = merged / 100
    counts = counts.reshape(2, -1, merged).sum(axis=2)  # (2, bars)
    lows = np.linspace(-1, 1, counts.shape[1] + 1)[:-1]
    # The first bar that is drawn is at 0, or at the lowest cosine if it is below. The tolerance
    # allows for rounding.
    lowest_bar = int(np.flatnonzero(counts.sum(axis=0))[0])
    first = min(lowest_bar, int(np.searchsorted(lows, -1e-9)))
    figure = go.Figure()
    middles = (lows[first:] + width / 2).round(4).tolist()
    hover = "cosine %{x:.2f}: %{y:,}<extra>%{fullData.name}</extra>"
    for values, name, colour in zip(counts, ("match", "no match"), ("blue", "orange"), strict=True):
        add_bars(
            figure,
            middles,
            values[first:].tolist(),
            colour,
            hover,
            name=f"{name} ({values.sum():,})",
            width=width,
            opacity=0.65,
        )
    figure.add_vline(x=threshold, line={"color": PALETTE["grey"], "width": 3})
    alt = "Histograms of the cosines of pairs that match and of pairs that do not"
    return _titled(
        figure,
        "Cosines by label",
        _cosines_from(lows[first]),
        PAIRS,
        barmode="overlay",
        bargap=0.08,
        showlegend=True,
        alt=alt,
    )


def _bins_merged(pairs: int) -> int:
    """The number of bins in a bar of a histogram of this number of pairs."""
    return next(bins for limit, bins in BINS_MERGED if pairs < limit)


def scatter(report: ScoreReport, gold_name: str) -> go.Figure:
    """The cosines of a file against its gold scores, a point for each pair or for a sample of them."""
    # Many points are smaller and fainter, as they lie on top of each other.
    are_few = len(report.scatter) < 300
    # The page shows this figure only for a report with points.
    gold, cosines = zip(*report.scatter, strict=True)
    figure = add_scatter(
        go.Figure(),
        gold,
        cosines,
        "blue",
        hover="gold %{x}, cosine %{y:.3f}<extra></extra>",
        mode="markers",
        marker_size=8 if are_few else 4,
        marker_opacity=0.75 if are_few else 0.4,
    )
    return _titled(
        figure, "Gold score and cosine", {"title": f"gold score ({gold_name})"}, {"title": "cosine"}
    )


def _cosines_from(left: float) -> dict[str, Any]:
    """The horizontal axis of a histogram."""
    return {"title": "cosine", "range": [left - 0.02, 1.02], "showgrid": False}


def _titled(
    figure: go.Figure, title: str, x: dict[str, Any], y: dict[str, Any], **style: Any
) -> go.Figure:
    """Applies the style to a figure, with a title above it. Returns the figure."""
    title_above = {"text": title, "x": 0.02, "y": 0.97, "font": {"size": 14}}
    return apply_style(figure, 300, x=x, y=y, title=title_above, margin_t=64, **style)
