"""Figures of the map of a corpus in two or three dimensions: one map, or two side by side.

``customdata`` of each point is its row in the corpus, which the script of the page (assets/explore.js) reads at a click
and a lasso. The names of the regions are annotations; the script shows those that have room.
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

COLOURS = ("blue", "orange", "green", "vermillion", "purple", "sky")
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
# The opacity of a point, and of one beside a selection.
OPACITY, FADED = 0.8, 0.15
COLOUR_SCALE = [[0.0, PALETTE["grey"]], [0.65, PALETTE["orange"]], [1.0, PALETTE["vermillion"]]]
STRONG_LINE = {"color": PALETTE["vermillion"], "width": 1.4}
FAINT_LINE = {"color": "rgba(127,135,147,0.45)", "width": 0.8}

# The characters of a name on the map, and of one in the legend.
NAME_LENGTH, LEGEND_LENGTH = 26, 24
# The `name` of annotations: assets/explore.js shows those of fine regions when a map is zoomed in.
COARSE, FINE = "coarse", "fine"
NAME_FONT, NAME_BACKGROUND = {"size": 12, "color": "white"}, "rgba(31,41,51,0.78)"
NAME_STYLE = {"font": NAME_FONT, "bgcolor": NAME_BACKGROUND, "borderpad": 2, "showarrow": False, "captureevents": False}
# Pixels: around the figure, for the colour bar, for a character of the legend, for its symbol, for one of its lines.
MARGIN, COLOUR_BAR, CHARACTER, SYMBOL, LINE = 8, 80, 6.2, 40, 19
# The legend below two maps is this wide and at most this high; the rest of it scrolls.
LEGEND_WIDTH, LEGEND_HEIGHT = 800, 100
# The free space at each side of the points, as a share of their extent.
EDGE = 0.05

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
        has_legend: whether the legend lists the groups.
    """

    maps: Sequence[np.ndarray]
    titles: Sequence[str]
    sentences: Sequence[str]
    colouring: Colouring = None
    lines: Sequence[PairLines] = ()
    key: str = ""
    rows: np.ndarray | None = None
    names: Sequence[Sequence[Name]] = ()
    has_legend: bool = True


def map_figure(data: MapData) -> go.Figure:
    """One map, or two side by side."""
    panels = range(len(data.maps))
    figure = go.Figure([trace for panel in panels for trace in _traces(data, panel)])
    colours = f", coloured by {data.colouring.title}" if data.colouring else ""
    alt = f"Map of {len(data.maps[0]):,} sentences in {data.maps[0].shape[1]} dimensions{colours}"
    # The map is as high as its frame.
    apply_style(figure, None, alt)
    figure.update_layout(meta={"alt": alt, "points": len(data.maps[0]) * len(data.maps)})
    if data.maps[0].shape[1] == 3:
        _add_scenes(figure, data)
    else:
        _add_axes(figure, data)
    if len(panels) == 2:
        # On a telephone both titles are wider than half of the figure: the second stands below, at the right end.
        corners = ({"x": 0.0, "xanchor": "left"}, {"x": 1.0, "xanchor": "right", "yshift": -16})
        for title, corner in zip(data.titles, corners, strict=True):
            place = {"y": 1.0, "yanchor": "bottom", "xref": "paper", "yref": "paper", "showarrow": False}
            figure.add_annotation(text=short_label(title, 60), **place, **corner)
    if isinstance(data.colouring, Scale):
        bar_title = {"text": short_label(data.colouring.title, 24), "side": "right"}
        bar = {"title": bar_title, "thickness": 12, "outlinewidth": 0, "len": 0.8}
        figure.update_layout(coloraxis={"colorscale": COLOUR_SCALE, "colorbar": bar})
    hover = {"align": "left", "bgcolor": "#1f2933", "bordercolor": "#1f2933", "font": {"color": "white"}}
    # assets/explore.js sets lasso and box.
    tools = {"dragmode": "pan" if data.maps[0].shape[1] == 2 else "orbit", "modebar_remove": ["select2d", "lasso2d"]}
    figure.update_layout(uirevision=data.key, hoverlabel=hover, **tools)
    return figure.update_layout(**_legend(data))


def _legend(data: MapData) -> dict[str, Any]:
    """The legend and the margins, which are fixed, so that the place of a point in the frame is known.

    Beside one map the legend takes no height; below two, no width.
    """
    names = [lines.title for lines in data.lines]
    if isinstance(data.colouring, Labels) and data.has_legend:
        names += [short_label(name, LEGEND_LENGTH) for name in data.colouring.names]
    sides = {"l": MARGIN, "r": COLOUR_BAR if isinstance(data.colouring, Scale) else MARGIN, "t": 28, "b": MARGIN}
    legend = LEGEND | {"tracegroupgap": 1, "itemsizing": "constant", "font": {"size": 12}}
    if names and len(data.maps) == 1:
        legend |= {"orientation": "v", "x": 1.01, "y": 1, "yanchor": "top"}
        sides["r"] += SYMBOL + math.ceil(CHARACTER * max(map(len, names)))
    elif names:
        legend |= {"y": -0.02, "yanchor": "top", "maxheight": LEGEND_HEIGHT}
        width = sum(SYMBOL + CHARACTER * len(name) for name in names)
        sides["b"] = min(LEGEND_HEIGHT, LINE * math.ceil(width / LEGEND_WIDTH)) + 2 * MARGIN
    return {"showlegend": bool(names), "legend": legend, "margin": sides | {"autoexpand": False}}


def _domain(panel: int, panels: int) -> list[float]:
    """The left and right end of a panel, as shares of the width."""
    return [panel / panels + 0.01 * panel, (panel + 1) / panels - 0.01 * (panels - 1 - panel)]


def _add_axes(figure: go.Figure, data: MapData) -> None:
    """Adds hidden axes, equal on both maps, whose ranges the points fill, and the names of the regions."""
    points = np.concatenate(data.maps)
    low, high = points.min(axis=0), points.max(axis=0)
    edge = EDGE * np.where(high > low, high - low, 1)
    horizontal, vertical = np.stack([low - edge, high + edge], axis=1).tolist()
    figure.update_layout(meta={**figure.layout.meta, "span": horizontal[1] - horizontal[0]})
    hidden = {"visible": False, "showgrid": False}
    notes = []
    names = data.names or [[]] * len(data.maps)
    for panel, on_map in enumerate(names):
        suffix = "2" if panel else ""
        axes = {f"xaxis{suffix}": hidden | {"range": horizontal, "domain": _domain(panel, len(data.maps))}}
        axes[f"yaxis{suffix}"] = hidden | {"range": vertical, "anchor": f"x{suffix}"}
        figure.update_layout(axes)
        for (x, y), text, depth in on_map:
            place = {"x": x, "y": y, "xref": f"x{suffix}", "yref": f"y{suffix}"}
            kind = {"name": FINE if depth else COARSE, "visible": not depth}
            notes.append({**place, **kind, "text": short_label(text, NAME_LENGTH), **NAME_STYLE})
    figure.update_layout(annotations=notes)


def _add_scenes(figure: go.Figure, data: MapData) -> None:
    """Adds a scene for each map, with the names of its coarse regions."""
    axis = {"visible": False, "showspikes": False}
    names = data.names or [[]] * len(data.maps)
    for panel, on_map in enumerate(names):
        notes = [
            {"x": x, "y": y, "z": z, "text": short_label(text, NAME_LENGTH), **NAME_STYLE}
            for (x, y, z), text, depth in on_map
            if not depth
        ]
        domain = {"x": _domain(panel, len(data.maps))}
        scene = {"xaxis": axis, "yaxis": axis, "zaxis": axis, "domain": domain, "annotations": notes}
        figure.update_layout({"scene2" if panel else "scene": scene})


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
    custom = rows_of_points.astype(np.int32)
    size = next(size for limit, size in POINT_SIZES if len(points) <= limit)
    common = {"size": size * (0.6 if points.shape[1] == 3 else 1), "opacity": OPACITY, "line": {"width": 0}}
    traces, trace_type = [_lines(data, panel, pairs) for pairs in data.lines], _trace_type(data)

    def add(rows: Any, marker: dict[str, Any], **options: Any) -> None:
        options |= {"text": texts[rows].tolist(), "hovertemplate": "%{text}<extra></extra>", "customdata": custom[rows]}
        if trace_type is not go.Scatter3d:
            options |= {"unselected": {"marker": {"opacity": FADED}}}
        traces.append(trace_type(**_coordinates(points[rows], panel), mode="markers", marker=marker, **options))

    if isinstance(colouring, Labels):
        for group, name in enumerate(colouring.names):
            legend = {"legendgroup": f"group {group}", "showlegend": panel == 0 and data.has_legend}
            rows = np.flatnonzero(colouring.groups == group)
            add(rows, common | colouring.style(group), name=short_label(name, LEGEND_LENGTH), **legend)
        return traces
    marker = common | {"color": PALETTE["blue"]}
    if isinstance(colouring, Scale):
        marker |= {"color": colouring.values, "coloraxis": "coloraxis"}
    add(slice(None), marker, name="sentences", showlegend=False)
    return traces


def _lines(data: MapData, panel: int, lines: PairLines) -> Any:
    """Draws all lines as one trace: start, end, NaN, start, end, NaN, …"""
    # The ends of the lines are (P, 2, d).
    gapped = np.pad(data.maps[panel][lines.rows], ((0, 0), (0, 1), (0, 0)), constant_values=np.nan)
    ends = gapped.reshape(-1, gapped.shape[2])
    line, visible = (STRONG_LINE, True) if lines.strong else (FAINT_LINE, "legendonly")
    legend = {"name": lines.title, "legendgroup": lines.title, "showlegend": panel == 0, "visible": visible}
    options = {"line": line, "hoverinfo": "skip", "connectgaps": False}
    return _trace_type(data)(**_coordinates(ends, panel), mode="lines", **options, **legend)


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
