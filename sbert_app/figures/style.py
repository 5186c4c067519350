"""The look that every figure shares: one palette, one layout, labels that hide no HTML."""

from __future__ import annotations

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


def short_label(text: str, longest: int = 70) -> str:
    """A label. Plotly reads a little HTML in labels, so angle brackets become harmless look-alikes."""
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
