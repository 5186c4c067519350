"""Figures of the map of a corpus in two or three dimensions: one map, or two side by side.

``customdata`` of each point is its row in the corpus. The script of the page (assets/explore.js)
reads it after a click or a lasso. The names of the regions are annotations. The script hides names
that have too little space.
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

from sbert_app.figures.style import COLOURS, LEGEND, PALETTE, apply_style, short_label

# The symbols that exist both in 2-D and in 3-D.
SHAPES = ("circle", "diamond", "square")
# The number of labels that can be distinguished; all others are grey.
MAX_LABELS = len(COLOURS) * len(SHAPES)
# A column of numbers with fewer distinct values is shown as labels and not as a scale.
MIN_NUMBERS = 8
OTHER = "other"
BLANK = "(none)"


@dataclass(frozen=True, eq=False)
class Labels:
    """The group of each point.

    Attributes:
        names: the groups, the largest first, or numbers in ascending order, followed by OTHER and
            BLANK.
        groups: the index of each point in ``names``, int32 (N,).
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
        """Whether a group holds the points of all smaller groups, or the points without a label."""
        return self.names[group] in (OTHER, BLANK)


@dataclass(frozen=True, eq=False)
class Scale:
    """A number for each point, float32 (N,); NaN if it is missing."""

    title: str
    values: np.ndarray

    def of(self, rows: np.ndarray) -> Scale:
        return replace(self, values=self.values[rows])


# The characters of a line of a hover text, and the most lines.
HOVER_WIDTH = 64
HOVER_LINES = 3
# Up to this number of points a map in 2-D is SVG, which is drawn faster than WebGL starts.
FEW_POINTS = 1_000
# With more points a hover text has one line, as longer ones would make a large figure: 50,000
# points are 7 MB.
MANY_POINTS = 20_000
# (largest number of points, size of a point in pixels)
POINT_SIZES = ((1_000, 8.0), (5_000, 6.0), (20_000, 4.0), (float("inf"), 2.5))
# The opacity of a point, and of a point outside of a selection.
OPACITY = 0.8
FADED = 0.15
COLOUR_SCALE = [[0.0, PALETTE["grey"]], [0.65, PALETTE["orange"]], [1.0, PALETTE["vermillion"]]]
STRONG_LINE = {"color": PALETTE["vermillion"], "width": 1.4}
FAINT_LINE = {"color": "rgba(127,135,147,0.45)", "width": 0.8}

# The most characters of a name on the map, and of a name in the legend.
NAME_LENGTH = 26
LEGEND_LENGTH = 24
# The `name` of annotations. assets/explore.js shows the names of fine regions after zooming in.
COARSE = "coarse"
FINE = "fine"
NAME_STYLE = {
    # Legible on a white and on a black background.
    "font": {"size": 13, "color": "white"},
    "bgcolor": "rgba(31,41,51,0.78)",
    "borderpad": 2,
    "showarrow": False,
    "captureevents": False,
}
# In pixels: the margin around the figure, the width of the colour bar, and the sizes of a legend's
# entries.
MARGIN = 8
COLOUR_BAR = 80
CHARACTER = 6.2
SYMBOL = 40
LINE = 19
# The size of the legend below two maps, in pixels. A longer legend scrolls.
LEGEND_WIDTH = 800
LEGEND_HEIGHT = 100
# The free space on each side of the points, as a share of their extent.
EDGE = 0.05

Colouring = Labels | Scale | None


@dataclass(frozen=True, eq=False)
class PairLines:
    """Lines between the points of pairs, rows (P, 2). Only ``strong`` lines are visible at first."""

    title: str
    rows: np.ndarray
    strong: bool


class Name(NamedTuple):
    """A name at a place of a map. Names of depth 0 are always visible, names of depth 1 after zooming in."""

    at: list[float]
    text: str
    depth: int


@dataclass(frozen=True, eq=False)
class MapData:
    """The content of a figure.

    Attributes:
        maps: the coordinates of the points on one map or two, float32 (N, 2 or 3).
        key: figures with the same key share zoom and position, such as two colourings of a map.
        rows: the rows of a sample of the corpus, (N,); None for the whole corpus.
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
    figure = go.Figure()
    for panel in range(len(data.maps)):
        figure.add_traces(_traces(data, panel))
    count, dimensions = data.maps[0].shape
    alt = f"Map of {count:,} sentences in {dimensions} dimensions"
    if data.colouring:
        alt += f", coloured by {data.colouring.title}"
    # The map is as high as its frame.
    apply_style(figure, None, alt)
    figure.update_layout(
        # assets/downloads.js reads the number of points: a map with many is not saved as vectors.
        meta={"alt": alt, "points": count * len(data.maps)},
        uirevision=data.key,
        hoverlabel={
            "align": "left",
            "bgcolor": "#1f2933",
            "bordercolor": "#1f2933",
            "font": {"color": "white"},
        },
        # assets/explore.js switches lasso and box on.
        dragmode="pan" if dimensions == 2 else "orbit",
        modebar_remove=["select2d", "lasso2d"],
    )
    if dimensions == 3:
        _add_scenes(figure, data)
    else:
        _add_axes(figure, data)
    if len(data.maps) == 2:
        place = {
            "y": 1.0,
            "yanchor": "bottom",
            "xref": "paper",
            "yref": "paper",
            "showarrow": False,
        }
        left, right = (short_label(title, 60) for title in data.titles)
        figure.add_annotation(text=left, x=0.0, xanchor="left", **place)
        # The right title is lower, because on a phone each is wider than half of the figure.
        figure.add_annotation(text=right, x=1.0, xanchor="right", yshift=-16, **place)
    if isinstance(data.colouring, Scale):
        title = {"text": short_label(data.colouring.title, 24), "side": "right"}
        bar = {"title": title, "thickness": 12, "outlinewidth": 0, "len": 0.8}
        figure.update_layout(coloraxis={"colorscale": COLOUR_SCALE, "colorbar": bar})
    return figure.update_layout(**_legend(data))


def _legend(data: MapData) -> dict[str, Any]:
    """The legend, to the right of one map or below two, and the margins.

    The margins are fixed, so that a point has a known place in the frame.
    """
    names = [lines.title for lines in data.lines]
    if isinstance(data.colouring, Labels) and data.has_legend:
        names += [short_label(name, LEGEND_LENGTH) for name in data.colouring.names]
    right = COLOUR_BAR if isinstance(data.colouring, Scale) else MARGIN
    bottom = MARGIN
    legend = {**LEGEND, "tracegroupgap": 1, "itemsizing": "constant", "font": {"size": 12}}
    if names and len(data.maps) == 1:
        legend |= {"orientation": "v", "x": 1.01, "y": 1, "yanchor": "top"}
        # The width of the longest entry, estimated from its characters.
        right += SYMBOL + math.ceil(CHARACTER * max(map(len, names)))
    elif names:
        legend |= {"y": -0.02, "yanchor": "top", "maxheight": LEGEND_HEIGHT}
        # The width of all entries in one line, which is then broken into lines.
        width = sum(SYMBOL + CHARACTER * len(name) for name in names)
        bottom = min(LEGEND_HEIGHT, LINE * math.ceil(width / LEGEND_WIDTH)) + 2 * MARGIN
    margin = {"l": MARGIN, "r": right, "t": 28, "b": bottom, "autoexpand": False}
    return {"showlegend": bool(names), "legend": legend, "margin": margin}


def _domain(panel: int, panels: int) -> list[float]:
    """The left and the right end of one of ``panels`` panels, as shares of the width. Two panels have a gap."""
    if panels == 1:
        return [0.0, 1.0]
    return [0.0, 0.49] if panel == 0 else [0.51, 1.0]


def _add_axes(figure: go.Figure, data: MapData) -> None:
    """Adds hidden axes, with equal ranges on both maps, and the names of the regions."""
    points = np.concatenate(data.maps)
    low = points.min(axis=0)
    high = points.max(axis=0)
    # If all points have the same coordinate on an axis, the range of the axis is not empty either.
    edge = EDGE * np.where(high > low, high - low, 1)
    horizontal, vertical = np.stack([low - edge, high + edge], axis=1).tolist()
    # assets/explore.js compares the visible range with this one. `map_figure` has set the other
    # values.
    figure.update_layout(meta={**figure.layout.meta, "span": horizontal[1] - horizontal[0]})
    hidden = {"visible": False, "showgrid": False}
    annotations = []
    for panel, names_of_map in enumerate(data.names or [[]] * len(data.maps)):
        suffix = "2" if panel else ""
        x_axis = {**hidden, "range": horizontal, "domain": _domain(panel, len(data.maps))}
        y_axis = {**hidden, "range": vertical, "anchor": f"x{suffix}"}
        figure.update_layout({f"xaxis{suffix}": x_axis, f"yaxis{suffix}": y_axis})
        # The names of fine regions have depth 1. assets/explore.js shows them after zooming in.
        for (x, y), text, depth in names_of_map:
            annotation = {
                "x": x,
                "y": y,
                "xref": f"x{suffix}",
                "yref": f"y{suffix}",
                "name": FINE if depth else COARSE,
                "visible": not depth,
                "text": short_label(text, NAME_LENGTH),
                **NAME_STYLE,
            }
            annotations.append(annotation)
    figure.update_layout(annotations=annotations)


def _add_scenes(figure: go.Figure, data: MapData) -> None:
    """Adds a scene for each map, with the names of its coarse regions."""
    axis = {"visible": False, "showspikes": False}
    for panel, names_of_map in enumerate(data.names or [[]] * len(data.maps)):
        annotations = []
        for (x, y, z), text, depth in names_of_map:
            # Coarse regions have depth 0.
            if not depth:
                name = short_label(text, NAME_LENGTH)
                annotations.append({"x": x, "y": y, "z": z, "text": name, **NAME_STYLE})
        scene = {
            "xaxis": axis,
            "yaxis": axis,
            "zaxis": axis,
            "domain": {"x": _domain(panel, len(data.maps))},
            "annotations": annotations,
        }
        figure.update_layout({"scene2" if panel else "scene": scene})


def names_at(points: np.ndarray, labels: Labels, depth: int = 0) -> list[Name]:
    """The name of each group, except for OTHER and BLANK, at its most central point, the largest group first."""
    sizes = np.bincount(labels.groups, minlength=len(labels.names))
    names = []
    for group in np.argsort(-sizes, kind="stable").tolist():
        # A sample of the corpus may have no point of a group, and a region may have the name "".
        if sizes[group] and labels.names[group] and not labels.is_rest(group):
            members = points[labels.groups == group]
            # The distance from the median, summed over the axes.
            distances = np.abs(members - np.median(members, axis=0)).sum(axis=1)
            names.append(Name(members[distances.argmin()].tolist(), labels.names[group], depth))
    return names


def _traces(data: MapData, panel: int) -> list[Any]:
    """The lines and the points of one map; if points have labels, a trace for each group."""
    points = data.maps[panel]
    colouring = data.colouring
    most = HOVER_LINES if len(points) <= MANY_POINTS else 1
    texts = np.array([hover_text(sentence, most) for sentence in data.sentences], dtype=object)
    rows_of_points = np.arange(len(points)) if data.rows is None else data.rows
    customdata = rows_of_points.astype(np.int32)
    size = next(size for limit, size in POINT_SIZES if len(points) <= limit)
    if points.shape[1] == 3:
        size *= 0.6
    common = {"size": size, "opacity": OPACITY, "line": {"width": 0}}
    traces = [_lines(data, panel, pairs) for pairs in data.lines]
    trace_type = _trace_type(data)

    def add(rows: Any, marker: dict[str, Any], **options: Any) -> None:
        """Adds a trace of the points at ``rows``, which are positions or a slice."""
        # Scatter3d has no selection.
        if trace_type is not go.Scatter3d:
            options["unselected"] = {"marker": {"opacity": FADED}}
        trace = trace_type(
            **_coordinates(points[rows], panel),
            mode="markers",
            marker=common | marker,
            text=texts[rows].tolist(),
            hovertemplate="%{text}<extra></extra>",
            customdata=customdata[rows],
            **options,
        )
        traces.append(trace)

    if isinstance(colouring, Labels):
        for group, name in enumerate(colouring.names):
            add(
                np.flatnonzero(colouring.groups == group),
                colouring.style(group),
                name=short_label(name, LEGEND_LENGTH),
                # A click on the one legend entry hides the group on both maps.
                legendgroup=f"group {group}",
                showlegend=panel == 0 and data.has_legend,
            )
        return traces
    marker: dict[str, Any] = {"color": PALETTE["blue"]}
    if isinstance(colouring, Scale):
        marker = {"color": colouring.values, "coloraxis": "coloraxis"}
    every_row = slice(None)
    add(every_row, marker, name="sentences", showlegend=False)
    return traces


def _lines(data: MapData, panel: int, lines: PairLines) -> Any:
    """The lines of all pairs as one trace: start, end, NaN, start, end, NaN, …"""
    ends = data.maps[panel][lines.rows]  # (P, 2, d)
    gapped = np.pad(ends, ((0, 0), (0, 1), (0, 0)), constant_values=np.nan)  # (P, 3, d)
    points = gapped.reshape(-1, gapped.shape[2])  # (3P, d)
    return _trace_type(data)(
        **_coordinates(points, panel),
        mode="lines",
        line=STRONG_LINE if lines.strong else FAINT_LINE,
        hoverinfo="skip",
        connectgaps=False,
        name=lines.title,
        legendgroup=lines.title,
        showlegend=panel == 0,
        visible=True if lines.strong else "legendonly",
    )


def _trace_type(data: MapData) -> type:
    points = data.maps[0]
    if points.shape[1] == 3:
        return go.Scatter3d
    return go.Scatter if len(points) <= FEW_POINTS else go.Scattergl


def _coordinates(points: np.ndarray, panel: int) -> dict[str, object]:
    """The coordinates of a trace, and the axes or the scene of its panel."""
    # Points in 2-D have no z.
    coordinates: dict[str, object] = dict(zip("xyz", points.T, strict=False))
    if panel and points.shape[1] == 3:
        coordinates["scene"] = "scene2"
    elif panel:
        coordinates |= {"xaxis": "x2", "yaxis": "y2"}
    return coordinates


def hover_text(sentence: str, most: int = HOVER_LINES) -> str:
    """A sentence wrapped to at most ``most`` lines, HTML-escaped."""
    # Wrapping the whole of a long text would take time.
    start = sentence[: HOVER_WIDTH * (most + 1)]
    lines = textwrap.wrap(start, HOVER_WIDTH, max_lines=most, placeholder=" …")
    # The lines are not too long for `short_label`, which only escapes them.
    return "<br>".join(short_label(line, HOVER_WIDTH + 2) for line in lines)


def make_colouring(title: str, values: Sequence[Any]) -> Labels | Scale:
    """The colouring by a column: a scale for numbers with many distinct values, else labels."""
    numbers = _as_numbers(values)
    if numbers is not None:
        distinct = np.unique(numbers[np.isfinite(numbers)])
        if len(distinct) >= MIN_NUMBERS:
            return Scale(title, numbers)
    names = []
    for value in values:
        is_blank = value is None or value == ""
        names.append(BLANK if is_blank else str(value))
    return make_labels(title, names)


def make_labels(title: str, values: Sequence[str], limit: int = MAX_LABELS) -> Labels:
    """Groups points by label. If there are more than ``limit`` groups, the smallest are merged into OTHER."""
    counts = Counter(values)
    names = [name for name, _ in counts.most_common() if name != BLANK]
    numbers = _as_numbers(names)
    if len(names) > limit:
        names = [*names[: limit - 1], OTHER]
    # Labels that are all numbers are in ascending order.
    elif numbers is not None and np.isfinite(numbers).all():
        names = [names[position] for position in np.argsort(numbers, kind="stable")]
    if BLANK in counts:
        names.append(BLANK)
    group_of = {name: group for group, name in enumerate(names)}
    # If OTHER is not a group, every value has its own group, and the 0 is not used.
    other = group_of.get(OTHER, 0)
    groups = np.array([group_of.get(value, other) for value in values], dtype=np.int32)
    return Labels(title, names, groups)


def _as_numbers(values: Sequence[Any]) -> np.ndarray | None:
    """The values as float32 (N,), NaN if missing; None if a value is not a number, or all are missing."""
    numbers = np.full(len(values), np.nan, dtype=np.float32)
    for row, value in enumerate(values):
        # Truth values count as missing, although float(True) is 1, so a column of them gives None.
        if value is None or value == "" or isinstance(value, bool):
            continue
        try:
            numbers[row] = float(value)
        except (TypeError, ValueError):
            return None
    return numbers if np.isfinite(numbers).any() else None
