"""Figures of the map of a corpus in two or three dimensions: one map, two maps, or an animation.

``customdata`` of each point has its row in the corpus and, of two maps, its coordinates on both. The script of the page
(assets/explore.js) reads them at a click on a point or a move of the slider, and writes the names.
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from sbert_app.figures.style import LEGEND, PALETTE, apply_style, short_label

COLOURS = ("blue", "orange", "green", "vermillion", "purple", "sky", "yellow")
# The symbols that exist both in 2-D and in 3-D.
SHAPES = ("circle", "diamond", "square")
# The number of labels that can be told apart; the others are grey.
MAX_LABELS = len(COLOURS) * len(SHAPES)
# A column of numbers with so many distinct values is a scale; with fewer, the values are labels.
MIN_NUMBERS = 8
OTHER, BLANK = "other", "(none)"


@dataclass(frozen=True, eq=False)
class Labels:
    """The group of each point.

    Attributes:
        names: the groups, the largest first or numbers in their order, then OTHER and BLANK.
        groups: (N,) int32, indices in ``names``.
    """

    title: str
    names: list[str]
    groups: np.ndarray

    def style(self, group: int) -> dict[str, str]:
        if self.is_rest(group):
            return {"color": PALETTE["grey"], "symbol": "circle"}
        shape, colour = divmod(group, len(COLOURS))
        return {"color": PALETTE[COLOURS[colour]], "symbol": SHAPES[shape]}

    def of(self, rows: np.ndarray) -> Labels:
        return replace(self, groups=self.groups[rows])

    def is_rest(self, group: int) -> bool:
        """Whether a group holds the points that belong to none."""
        return self.names[group] in (OTHER, BLANK)


@dataclass(frozen=True, eq=False)
class Scale:
    """A number for each point: (N,) float32, NaN where it is missing."""

    title: str
    values: np.ndarray

    def of(self, rows: np.ndarray) -> Scale:
        return replace(self, values=self.values[rows])


# The characters and lines of a hover text.
HOVER_WIDTH, HOVER_LINES = 64, 3
# Up to so many points a map in 2-D is SVG: WebGL would take longer to start than they take to draw.
FEW_POINTS = 1_000
# Above so many points a hover text has one line: 50,000 points are 7 MB.
MANY_POINTS = 20_000
# (largest number of points, size of a point in pixels)
POINT_SIZES = ((1_000, 8.0), (5_000, 6.0), (20_000, 4.0), (float("inf"), 2.5))
COLOUR_SCALE = [[0.0, PALETTE["grey"]], [0.65, PALETTE["orange"]], [1.0, PALETTE["vermillion"]]]
STRONG_LINE = {"color": PALETTE["vermillion"], "width": 1.4}
FAINT_LINE = {"color": "rgba(127,135,147,0.45)", "width": 0.8}

# The characters of a name on the map.
NAME_LENGTH = 26
NAME_FONT, NAME_BACKGROUND = {"size": 12, "color": "white"}, "rgba(31,41,51,0.78)"
NAME_STYLE = {"font": NAME_FONT, "bgcolor": NAME_BACKGROUND, "borderpad": 2, "showarrow": False, "captureevents": False}

Colouring = Labels | Scale | None


@dataclass(frozen=True, eq=False)
class PairLines:
    """Lines between the points of pairs, rows (P, 2); faint ones are hidden until the legend switches them on."""

    title: str
    rows: np.ndarray
    strong: bool


class Name(NamedTuple):
    """A name at a place of a map; names of depth 0 are always visible, those of depth 1 after zooming in."""

    at: list[float]
    text: str
    depth: int


@dataclass(frozen=True, eq=False)
class MapData:
    """The content of a figure.

    Attributes:
        maps: the coordinates of the points, (N, 2 or 3) float32, on one map or two.
        key: figures with the same key share zoom and position, such as after a change of colours.
        rows: (N,) the rows of a sample of the corpus; None for the whole corpus.
        names: the names on each map.
    """

    maps: Sequence[np.ndarray]
    titles: Sequence[str]
    sentences: Sequence[str]
    colouring: Colouring = None
    lines: Sequence[PairLines] = ()
    key: str = ""
    rows: np.ndarray | None = None
    names: Sequence[Sequence[Name]] = ()


def single_map(data: MapData) -> go.Figure:
    """One map, or the first of two, whose points can move to the second."""
    figure = _styled(go.Figure(_traces(data, 0)), data, 1)
    if len(data.maps) == 2:
        # The axes contain both maps, so that the frame stays while points move.
        points = np.concatenate(data.maps)
        low, high = points.min(axis=0), points.max(axis=0)
        margin = 0.05 * (high - low)
        ranges = dict(zip("xyz", np.stack([low - margin, high + margin], axis=1).tolist(), strict=False))
        axes = {f"{axis}axis": {"range": bounds} for axis, bounds in ranges.items()}
        figure.update_layout({"scene": axes} if len(axes) == 3 else axes)
    return figure


def paired_maps(data: MapData) -> go.Figure:
    return _styled(go.Figure([*_traces(data, 0), *_traces(data, 1)]), data, 2)


def _styled(figure: go.Figure, data: MapData, panels: int) -> go.Figure:
    colours = f", coloured by {data.colouring.title}" if data.colouring else ""
    alt = f"Map of {len(data.maps[0]):,} sentences in {data.maps[0].shape[1]} dimensions{colours}"
    # The map is as high as its frame.
    apply_style(figure, None, alt)
    names = data.names if panels == len(data.maps) and data.names else [[]] * panels
    if data.maps[0].shape[1] == 2:
        # assets/explore.js writes the names, and keeps them from overlapping.
        figure.update_layout(meta={"alt": alt, "names": [list(map(list, on_map)) for on_map in names]})
    hidden = {"visible": False, "showgrid": False}
    for panel in range(panels):
        suffix = "" if panel == 0 else "2"
        left, right = panel / panels + 0.01 * panel, (panel + 1) / panels - 0.01 * (panels - 1 - panel)
        if data.maps[0].shape[1] == 3:
            axis = {"visible": False, "showspikes": False}
            notes = [
                {**dict(zip("xyz", at, strict=True)), "text": short_label(text, NAME_LENGTH), **NAME_STYLE}
                for at, text, depth in names[panel]
                if not depth
            ]
            scene = {"xaxis": axis, "yaxis": axis, "zaxis": axis, "domain": {"x": [left, right]}, "annotations": notes}
            figure.update_layout({f"scene{suffix}": scene})
        else:
            anchor = {"scaleanchor": f"x{suffix}", "anchor": f"x{suffix}"}
            figure.update_layout(
                {f"xaxis{suffix}": hidden | {"domain": [left, right]}, f"yaxis{suffix}": hidden | anchor}
            )
        if panels == 2:
            title = short_label(data.titles[panel], 60)
            # On a telephone both titles are wider than half of the figure: the second stands below, at the right end.
            corner = {"x": 0.0, "xanchor": "left"} if panel == 0 else {"x": 1.0, "xanchor": "right", "yshift": -16}
            corner |= {"y": 1.0, "yanchor": "bottom", "xref": "paper", "yref": "paper"}
            figure.add_annotation(text=title, showarrow=False, **corner)
    has_legend = isinstance(data.colouring, Labels) or bool(data.lines)
    # Beside one map the legend takes no height; below two, no width.
    place = {"orientation": "v", "x": 1.01, "y": 1, "yanchor": "top"} if panels == 1 else {"y": -0.02, "yanchor": "top"}
    legend = LEGEND | place | {"tracegroupgap": 1, "itemsizing": "constant", "font": {"size": 12}}
    hover = {"align": "left", "bgcolor": "#1f2933", "bordercolor": "#1f2933", "font": {"color": "white"}}
    # assets/explore.js sets lasso and box.
    tools = {"dragmode": "pan" if data.maps[0].shape[1] == 2 else "orbit", "modebar_remove": ["select2d", "lasso2d"]}
    return figure.update_layout(showlegend=has_legend, legend=legend, uirevision=data.key, hoverlabel=hover, **tools)


def names_at(points: np.ndarray, labels: Labels, depth: int = 0) -> list[Name]:
    """The name of each group at its most central point, the largest group first."""
    sizes, middles = np.bincount(labels.groups, minlength=len(labels.names)), []
    for group in np.argsort(-sizes, kind="stable").tolist():
        if sizes[group] and labels.names[group] and not labels.is_rest(group):
            members = points[labels.groups == group]
            middle = members[np.abs(members - np.median(members, axis=0)).sum(axis=1).argmin()]
            middles.append(Name(middle.tolist(), labels.names[group], depth))
    return middles


def _traces(data: MapData, panel: int) -> list[Any]:
    points, colouring = data.maps[panel], data.colouring
    lines = HOVER_LINES if len(points) <= MANY_POINTS else 1
    texts = np.array([hover_text(sentence, lines) for sentence in data.sentences], dtype=object)
    rows_of_points = np.arange(len(points)) if data.rows is None else data.rows
    # On a single map the coordinates of a point are in the trace already.
    moved = data.maps if len(data.maps) > 1 else []
    custom = np.concatenate([rows_of_points[:, None], *moved], axis=1).astype(np.float32)
    size = next(size for limit, size in POINT_SIZES if len(points) <= limit)
    common = {"size": size * (0.6 if points.shape[1] == 3 else 1), "opacity": 0.8, "line": {"width": 0}}
    traces, trace_type = [_lines(data, panel, pairs) for pairs in data.lines], _trace_type(data)

    def add(rows: Any, marker: dict[str, Any], **options: Any) -> None:
        options |= {"text": texts[rows].tolist(), "hovertemplate": "%{text}<extra></extra>", "customdata": custom[rows]}
        traces.append(trace_type(**_coordinates(points[rows], panel), mode="markers", marker=marker, **options))

    if isinstance(colouring, Labels):
        for group, name in enumerate(colouring.names):
            legend = {"legendgroup": f"group {group}", "showlegend": panel == 0}
            rows = np.flatnonzero(colouring.groups == group)
            add(rows, common | colouring.style(group), name=short_label(name, 28), **legend)
        return traces
    marker = common | {"color": PALETTE["blue"]}
    if isinstance(colouring, Scale):
        bar = {"title": {"text": short_label(colouring.title, 24)}, "thickness": 12, "outlinewidth": 0, "len": 0.8}
        marker |= {"color": colouring.values, "colorscale": COLOUR_SCALE, "colorbar": bar, "showscale": panel == 0}
    add(slice(None), marker, name="sentences", showlegend=False)
    return traces


def _lines(data: MapData, panel: int, lines: PairLines) -> Any:
    """Draws all lines as one trace: start, end, NaN, start, end, NaN, …"""
    # The ends of the lines are (P, 2, d).
    gapped = [np.pad(points[lines.rows], ((0, 0), (0, 1), (0, 0)), constant_values=np.nan) for points in data.maps]
    maps = [ends.reshape(-1, ends.shape[2]) for ends in gapped]
    custom = np.concatenate([np.full((len(maps[0]), 1), -1.0), *maps], axis=1).astype(np.float64)
    line, visible = (STRONG_LINE, True) if lines.strong else (FAINT_LINE, "legendonly")
    legend = {"name": lines.title, "legendgroup": lines.title, "showlegend": panel == 0, "visible": visible}
    options = {"customdata": custom, "line": line, "hoverinfo": "skip", "connectgaps": False}
    return _trace_type(data)(**_coordinates(maps[panel], panel), mode="lines", **options, **legend)


def _trace_type(data: MapData) -> type:
    points = data.maps[0]
    if points.shape[1] == 3:
        return go.Scatter3d
    return go.Scatter if len(points) <= FEW_POINTS else go.Scattergl


def _coordinates(points: np.ndarray, panel: int) -> dict[str, object]:
    coordinates: dict[str, object] = dict(zip("xyz", points.T, strict=False))
    if panel:
        coordinates |= {"scene": "scene2"} if points.shape[1] == 3 else {"xaxis": "x2", "yaxis": "y2"}
    return coordinates


def hover_text(sentence: str, most: int = HOVER_LINES) -> str:
    """A sentence wrapped to at most so many lines, HTML-escaped."""
    # Wrapping a long text would take time.
    start = sentence[: HOVER_WIDTH * (most + 1)]
    lines = textwrap.wrap(start, HOVER_WIDTH, max_lines=most, placeholder=" …")
    return "<br>".join(short_label(line, HOVER_WIDTH + 2) for line in lines)


def make_colouring(title: str, values: Sequence[Any]) -> Labels | Scale:
    """The colouring by a column: a scale for numbers with many distinct values, else labels."""
    numbers = _as_numbers(values)
    if numbers is not None and len(np.unique(numbers[np.isfinite(numbers)])) >= MIN_NUMBERS:
        return Scale(title, numbers)
    return make_labels(title, [BLANK if value is None or value == "" else str(value) for value in values])


def make_labels(title: str, values: Sequence[str], limit: int = MAX_LABELS) -> Labels:
    """Groups points by label; of more than ``limit`` groups, the smallest are merged into OTHER."""
    counts = Counter(values)
    ranked = [name for name, _ in counts.most_common() if name != BLANK]
    numbers = _as_numbers(ranked)
    if numbers is not None and np.isfinite(numbers).all() and len(ranked) <= limit:
        ranked = [ranked[i] for i in np.argsort(numbers, kind="stable")]
    names = ranked if len(ranked) <= limit else [*ranked[: limit - 1], OTHER]
    if BLANK in counts:
        names = [*names, BLANK]
    index = {name: i for i, name in enumerate(names)}
    other = index.get(OTHER, 0)
    return Labels(title, names, np.array([index.get(value, other) for value in values], dtype=np.int32))


def _as_numbers(values: Sequence[Any]) -> np.ndarray | None:
    """The values as float32 (N,), NaN where missing; None if one is no number, or all are missing."""
    numbers = np.full(len(values), np.nan, dtype=np.float32)
    for i, value in enumerate(values):
        if value is None or value == "" or isinstance(value, bool):
            continue
        try:
            numbers[i] = float(value)
        except (TypeError, ValueError):
            return None
    return numbers if any(map(math.isfinite, numbers)) else None
