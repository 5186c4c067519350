"""Figures of the map of a corpus: WebGL points in two or three dimensions, alone, side by side, or on the move.

Each point carries its row of the corpus in ``customdata``, and where it moves, its place before and after: the
page's script (assets/explore.js) reads them there when a point is clicked or the slider is moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from sbert_app.figures.map_colours import Colouring, Labels, Scale
from sbert_app.figures.style import PALETTE, layout, short_label

HEIGHT = 580
LINE, LINES = 64, 3  # characters and lines of a hover text
SIZES = ((1_000, 8.0), (5_000, 6.0), (20_000, 4.0), (float("inf"), 2.5))  # up to so many points: pixels
SCALE = [[0.0, PALETTE["grey"]], [0.65, PALETTE["orange"]], [1.0, PALETTE["vermillion"]]]  # clear on white and black
STRONG_LINE = {"color": PALETTE["vermillion"], "width": 1.4}
FAINT_LINE = {"color": "rgba(127,135,147,0.45)", "width": 0.8}


@dataclass(frozen=True, eq=False)
class PairLines:
    """Pairs of points to join."""

    title: str
    rows: np.ndarray  # (P, 2)
    strong: bool  # drawn at once and clearly; others are there to be switched on in the legend


@dataclass(frozen=True, eq=False)
class MapData:
    """What there is to draw."""

    maps: Sequence[np.ndarray]  # one (N, 2 or 3), or two
    titles: Sequence[str]  # of the maps
    sentences: Sequence[str]
    colouring: Colouring = None
    lines: Sequence[PairLines] = ()
    key: str = ""  # same key, same view: a new colour does not take the zoom back


def single_map(picture: MapData) -> go.Figure:
    """One map; of two, the first, with the way to the second in each point."""
    figure = _finished(go.Figure(_traces(picture, 0)), picture, 1)
    if len(picture.maps) == 2:
        _hold_still(figure, np.concatenate(picture.maps))
    return figure


def paired_maps(picture: MapData) -> go.Figure:
    """Two maps beside each other."""
    return _finished(go.Figure([*_traces(picture, 0), *_traces(picture, 1)]), picture, 2)


def _finished(figure: go.Figure, picture: MapData, panels: int) -> go.Figure:
    layout(figure, HEIGHT)
    hidden = {"visible": False, "showgrid": False}
    for panel in range(panels):
        mark = "" if panel == 0 else "2"
        left, right = panel / panels + 0.01 * panel, (panel + 1) / panels - 0.01 * (panels - 1 - panel)
        if picture.maps[0].shape[1] == 3:
            axis = {"visible": False, "showspikes": False}
            scene = {"xaxis": axis, "yaxis": axis, "zaxis": axis, "domain": {"x": [left, right]}}
            figure.update_layout({f"scene{mark}": scene})
        else:
            anchor = {"scaleanchor": f"x{mark}", "anchor": f"x{mark}"}
            figure.update_layout({f"xaxis{mark}": hidden | {"domain": [left, right]}, f"yaxis{mark}": hidden | anchor})
        if panels == 2:
            words = short_label(picture.titles[panel], 60)
            at = {"x": left, "y": 1.0, "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
            figure.add_annotation(text=words, showarrow=False, **at)
    named = isinstance(picture.colouring, Labels) or bool(picture.lines)
    figure.update_layout(
        showlegend=named,
        legend={
            "orientation": "h",
            "y": -0.02,
            "yanchor": "top",
            "x": 0,
            "itemsizing": "constant",
            "font": {"size": 12},
        },
        uirevision=picture.key,
        dragmode="pan" if picture.maps[0].shape[1] == 2 else "orbit",
        hoverlabel={"align": "left", "bgcolor": "#1f2933", "bordercolor": "#1f2933", "font": {"color": "white"}},
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": PALETTE["grey"], "remove": ["select2d", "lasso2d"]},
    )
    return figure


def _hold_still(figure: go.Figure, points: np.ndarray) -> None:
    """Axes that hold both maps, so that points move and the frame does not."""
    low, high = points.min(axis=0), points.max(axis=0)
    ranges = [[float(a), float(b)] for a, b in zip(low - 0.05 * (high - low), high + 0.05 * (high - low), strict=True)]
    if len(ranges) == 3:
        figure.update_layout(scene={f"{axis}axis": {"range": r} for axis, r in zip("xyz", ranges, strict=True)})
    else:
        figure.update_layout(xaxis_range=ranges[0], yaxis_range=ranges[1])


def _traces(picture: MapData, panel: int) -> list[go.Scattergl | go.Scatter3d]:
    points, colouring = picture.maps[panel], picture.colouring
    texts = np.array([_hover(sentence) for sentence in picture.sentences], dtype=object)
    travel = np.concatenate([np.arange(len(points))[:, None], *picture.maps], axis=1).astype(np.float64)
    size = next(size for most, size in SIZES if len(points) <= most)
    common = {"size": size * (0.6 if points.shape[1] == 3 else 1), "opacity": 0.8, "line": {"width": 0}}
    found = [_lines(picture, panel, lines) for lines in picture.lines]
    if isinstance(colouring, Labels):
        for group, name in enumerate(colouring.names):
            rows = np.flatnonzero(colouring.groups == group)
            marker = common | colouring.style(group)
            extra = {"name": short_label(name, 28), "legendgroup": f"group {group}", "showlegend": panel == 0}
            found.append(_scatter(points[rows], panel, texts[rows], travel[rows], marker, **extra))
        return found
    marker = common | {"color": PALETTE["blue"]}
    if isinstance(colouring, Scale):
        bar = {"title": {"text": short_label(colouring.title, 24)}, "thickness": 12, "outlinewidth": 0, "len": 0.8}
        marker |= {"color": colouring.values, "colorscale": SCALE, "colorbar": bar, "showscale": panel == 0}
    found.append(_scatter(points, panel, texts, travel, marker, name="sentences", showlegend=False))
    return found


def _scatter(
    points: np.ndarray, panel: int, texts: np.ndarray, travel: np.ndarray, marker: dict, **extra: object
) -> go.Scattergl | go.Scatter3d:
    return _kind(points)(
        **_places(points, panel),
        mode="markers",
        text=texts.tolist(),
        customdata=travel,
        marker=marker,
        hovertemplate="%{text}<extra></extra>",
        **extra,
    )


def _lines(picture: MapData, panel: int, lines: PairLines) -> go.Scattergl | go.Scatter3d:
    """All lines as one trace: from, to, a gap, from, to, a gap …"""

    def gapped(values: np.ndarray) -> np.ndarray:
        ends = values[lines.rows]  # (P, 2, d)
        gap = np.full((len(ends), 1, values.shape[1]), np.nan, dtype=values.dtype)
        return np.concatenate([ends, gap], axis=1).reshape(-1, values.shape[1])

    maps = [gapped(points) for points in picture.maps]
    travel = np.concatenate([np.full((len(maps[0]), 1), -1.0), *maps], axis=1).astype(np.float64)
    return _kind(maps[panel])(
        **_places(maps[panel], panel),
        mode="lines",
        customdata=travel,
        line=STRONG_LINE if lines.strong else FAINT_LINE,
        hoverinfo="skip",
        connectgaps=False,
        name=lines.title,
        legendgroup=lines.title,
        showlegend=panel == 0,
        visible=True if lines.strong else "legendonly",
    )


def _kind(points: np.ndarray) -> type:
    return go.Scatter3d if points.shape[1] == 3 else go.Scattergl


def _places(points: np.ndarray, panel: int) -> dict[str, object]:
    places: dict[str, object] = {name: points[:, at] for at, name in zip(range(points.shape[1]), "xyz", strict=False)}
    if panel:
        places |= {"scene": "scene2"} if points.shape[1] == 3 else {"xaxis": "x2", "yaxis": "y2"}
    return places


def _hover(sentence: str) -> str:
    """Up to three lines; what would be read as HTML is made harmless."""
    lines: list[str] = []
    rest = sentence[: LINE * LINES + 1]
    while rest and len(lines) < LINES:
        if len(rest) <= LINE:
            lines.append(rest)
            rest = ""
            continue
        cut = rest.rfind(" ", 0, LINE + 1)
        cut = cut if cut > 0 else LINE
        lines.append(rest[:cut])
        rest = rest[cut:].lstrip()
    cut_short = bool(rest) or len(sentence) > LINE * LINES + 1
    return "<br>".join(short_label(line, LINE) for line in lines) + (" …" if cut_short else "")
