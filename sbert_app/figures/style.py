"""The look of all figures: palette, layout, and labels with escaped HTML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import plotly.graph_objects as go

from training.catalogue import DEFAULT_CROSS_ENCODER, DEFAULT_MODEL, LARGE_MODEL, TFIDF

# Okabe & Ito (2008): colours that can be distinguished with any colour vision.
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
# The colours of groups, in their order.
COLOURS = ("blue", "orange", "green", "vermillion", "purple", "sky")
# The colours of the built-in models, and the colours that other models share.
MODEL_COLOURS = {
    DEFAULT_MODEL: "blue",
    DEFAULT_CROSS_ENCODER: "vermillion",
    LARGE_MODEL: "sky",
    TFIDF: "grey",
}
OTHER_COLOURS = ("purple", "orange", "sky")
# From vermillion (negative) through transparent (zero) to blue (positive), which is legible on a
# white and on a black background.
DIVERGING = [[0.0, "rgba(213,94,0,1)"], [0.5, "rgba(127,135,147,0.06)"], [1.0, "rgba(0,114,178,1)"]]
# The same, pale enough for numbers in the cells.
PALE = [[0.0, "rgba(213,94,0,0.6)"], [0.5, "rgba(127,135,147,0.06)"], [1.0, "rgba(0,114,178,0.6)"]]
# The legend is a line above the plot.
LEGEND = {"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0}
FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"
_AXIS = {
    "automargin": True,
    "showgrid": True,
    "gridcolor": "rgba(127,135,147,0.2)",
    "zeroline": False,
    "ticks": "",
    "title": {"font": {"size": 13}, "standoff": 15},
}
# The template of all figures, with a transparent background for light and dark mode. Plotly's own
# takes 6 KB in every figure. As a dictionary it does not load Plotly before the first figure is
# made.
TEMPLATE: dict[str, Any] = {
    "layout": {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 13, "color": PALETTE["grey"]},
        "colorway": [PALETTE[colour] for colour in COLOURS],
        "margin": {"l": 8, "r": 8, "t": 28, "b": 8},
        "autotypenumbers": "strict",
        "hovermode": "closest",
        "hoverlabel": {"align": "left", "font": {"family": FONT}},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": PALETTE["grey"]},
        "showlegend": False,
        "legend": LEGEND,
        "xaxis": _AXIS,
        "yaxis": _AXIS,
    }
}


def model_colours(models: Sequence[str]) -> list[str]:
    """The palette colour of each model, by its name: the same in every figure, unless two models would share it.

    The names are `ModelName.name`, without pooling and settings.
    """
    colours: list[str] = []
    for model in models:
        # The name alone decides which of the other colours comes first.
        start = crc32(model.encode()) % len(OTHER_COLOURS)
        others = OTHER_COLOURS[start:] + OTHER_COLOURS[:start]
        candidates = [MODEL_COLOURS.get(model, others[0]), *others, *PALETTE]
        free = [colour for colour in candidates if colour not in colours]
        # More models than the palette has colours share colours.
        colours.append(free[0] if free else others[0])
    return colours


def apply_style(
    figure: go.Figure,
    height: int | None = 360,
    alt: str = "",
    x: dict[str, Any] | None = None,
    y: dict[str, Any] | None = None,
    **layout: Any,
) -> go.Figure:
    """Applies the shared look, `TEMPLATE`. Returns the figure.

    Args:
        figure: a figure with its traces.
        height: the height in pixels; None for the height of the frame.
        alt: the text alternative. Without it, screen readers get the titles of the figure
            (``assets/app.js``).
        x: settings of the horizontal axes.
        y: settings of the vertical axes.
        layout: settings of the whole figure.
    """
    meta = {"alt": alt} if alt else None
    figure.update_layout(template=TEMPLATE, meta=meta, height=height, autosize=True, **layout)
    return figure.update_xaxes(x or {}).update_yaxes(y or {})


def add_scatter(
    figure: go.Figure,
    x: Any,
    y: Any,
    colour: str,
    hover: str = "",
    mode: str = "lines",
    **options: Any,
) -> go.Figure:
    """Adds lines or points in a palette colour. ``options`` of go.Scatter replace the defaults.

    Without a ``hover`` text nothing is shown under the mouse.
    """
    defaults: dict[str, Any] = {
        "line_color": PALETTE[colour],
        "line_width": 2,
        "marker_color": PALETTE[colour],
    }
    if hover:
        defaults["hovertemplate"] = hover
    else:
        defaults["hoverinfo"] = "skip"
    return figure.add_scatter(x=x, y=y, mode=mode, **(defaults | options))


def add_bars(
    figure: go.Figure, x: Any, y: Any, colour: str, hover: str, **options: Any
) -> go.Figure:
    """Adds bars without outlines in a palette colour, with a ``hover`` text and ``options`` of go.Bar."""
    return figure.add_bar(
        x=x,
        y=y,
        marker={"color": PALETTE[colour], "line": {"width": 0}},
        hovertemplate=hover,
        **options,
    )


def error_bars(
    estimates: Sequence[tuple[float, float, float]],
    colour: str,
    thickness: float = 1.5,
    width: float = 4,
) -> dict[str, Any]:
    """Intervals (value, low, high) as error bars of a trace, in a palette colour."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - value for value, _, high in estimates],
        "arrayminus": [value - low for value, low, _ in estimates],
        "color": PALETTE[colour],
        "thickness": thickness,
        "width": width,
    }


def short_label(text: str, max_length: int = 70) -> str:
    """A label, truncated and HTML-escaped: Plotly interprets some HTML in labels."""
    if len(text) > max_length:
        text = text[: max_length - 1] + "…"
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
