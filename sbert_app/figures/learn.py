"""Figures of the lessons."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from sbert_app.figures.style import PALETTE, apply_style, short_label

PALE = "rgba(0,114,178,0.28)"
BINS = np.linspace(-0.32, 1.0, 34)
LINE_COLOURS = [PALETTE[name] for name in ("blue", "orange", "green", "vermillion", "purple", "sky")]
SIMILARITY_NAMES = {"cosine": "cosine", "dot": "dot", "euclidean": "Euclid", "manhattan": "Manhattan"}


def quality_bars(labels: Sequence[str], rho: Sequence[float]) -> go.Figure:
    """Spearman ×100 of each kind of sentence vector, the last one in the accent colour."""
    colours = [PALETTE["grey"]] * (len(labels) - 1) + [PALETTE["blue"]]
    figure = go.Figure(
        go.Bar(
            y=[short_label(label, 40).replace(": ", ":<br>") for label in labels],
            x=np.round(rho, 2).tolist(),
            orientation="h",
            marker={"color": colours},
            text=[f"{value:.1f}" for value in rho],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{y}: %{x:.2f}<extra></extra>",
        )
    )
    apply_style(figure, height=44 * len(labels) + 70)
    figure.update_xaxes(range=[0, 112], title=_title("Spearman ρ ×100"))
    figure.update_yaxes(autorange="reversed")
    return figure


def left_out_bars(words: Sequence[str], changes: Sequence[float]) -> go.Figure:
    """The change of the cosine when each word is left out; negative: the word made the pair more similar."""
    figure = go.Figure(
        go.Bar(
            y=list(range(len(words))),
            x=np.round(changes, 4).tolist(),
            orientation="h",
            marker={"color": [PALETTE["vermillion"] if change < 0 else PALETTE["blue"] for change in changes]},
            customdata=[short_label(word) for word in words],
            hovertemplate="without %{customdata}: %{x:+.3f}<extra></extra>",
        )
    )
    apply_style(figure, height=max(240, 24 * len(words) + 80))
    figure.update_xaxes(title=_title("change of the cosine"), zeroline=True)
    figure.update_yaxes(
        autorange="reversed", tickvals=list(range(len(words))), ticktext=[short_label(word, 18) for word in words]
    )
    return figure


def head_bars(labels: Sequence[str], seen: Sequence[float], unseen: Sequence[float], chance: float) -> go.Figure:
    """Accuracy ×100 on training pairs (pale) and on new pairs (solid), and by chance (dotted line)."""
    bars = (("training pairs", seen, PALE, PALETTE["grey"]), ("new pairs", unseen, PALETTE["blue"], PALETTE["blue"]))
    figure = go.Figure(
        [
            go.Bar(
                name=name,
                y=list(labels),
                x=[100 * value for value in values],
                orientation="h",
                marker={"color": colour},
                text=[f"{100 * value:.0f}" for value in values],
                textposition="outside",
                textfont={"color": ink},
                cliponaxis=False,
                hovertemplate="%{y}, " + name + ": %{x:.1f}%<extra></extra>",
            )
            for name, values, colour, ink in bars
        ]
    )
    apply_style(figure, height=470)
    figure.add_vline(x=100 * chance, line={"dash": "dot", "color": PALETTE["vermillion"]})
    figure.update_layout(barmode="group", bargap=0.25, showlegend=True, legend=_legend())
    figure.update_xaxes(range=[0, 116], title=_title("accuracy, %; dotted: chance"))
    figure.update_yaxes(autorange="reversed")
    return figure


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
    apply_style(figure, height=330)
    figure.update_layout(barmode="overlay", bargap=0, showlegend=True, legend=_legend())
    figure.update_xaxes(range=[-0.3, 1.02], title=_title("cosine"))
    figure.update_yaxes(title=_title("% of the pairs"))
    return figure


def cost_lines(
    sentences: np.ndarray, bi: Sequence[float], cross: Sequence[float], chosen: tuple[int, float, float], paper: dict
) -> go.Figure:
    """Seconds against N on logarithmic axes: extrapolated lines, the chosen N, and the paper's two values.

    ``chosen`` is (N, bi-encoder seconds, cross-encoder seconds); ``paper`` has the keys sentences, bi and cross.
    """
    figure = go.Figure()
    for column, (name, values, colour) in enumerate(
        (("bi-encoder", bi, PALETTE["blue"]), ("cross-encoder", cross, PALETTE["orange"])), start=1
    ):
        figure.add_scatter(
            name=name,
            x=sentences.tolist(),
            y=list(values),
            mode="lines",
            line={"color": colour, "width": 3},
            hovertemplate="%{x:,} sentences: %{y:.3s} s<extra>" + name + "</extra>",
        )
        figure.add_scatter(
            x=[chosen[0]],
            y=[chosen[column]],
            mode="markers",
            marker={"size": 13, "color": colour},
            hoverinfo="skip",
            showlegend=False,
        )
    figure.add_scatter(
        name="the paper, on a V100",
        x=[paper["sentences"]] * 2,
        y=[paper["bi"], paper["cross"]],
        mode="markers",
        marker={"size": 11, "symbol": "diamond-open", "color": PALETTE["grey"], "line": {"width": 2}},
        hovertemplate="%{x:,} sentences: %{y:,} s<extra>the paper</extra>",
    )
    apply_style(figure, height=360)
    figure.update_layout(showlegend=True, legend=_legend())
    figure.update_xaxes(type="log", title=_title("sentences N"), dtick=1, tickformat=",")
    units = {
        0.001: "1 ms",
        1: "1 s",
        60: "1 min",
        3_600: "1 h",
        86_400: "1 day",
        31_557_600: "1 year",
        3.15576e10: "1000 y",
    }
    figure.update_yaxes(type="log", tickvals=list(units), ticktext=list(units.values()))
    return figure


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


def _legend() -> dict[str, object]:
    return {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0}


def _title(text: str) -> dict[str, object]:
    return {"text": text, "font": {"size": 13}}
