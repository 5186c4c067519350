"""Figures of training: the curves of one or several runs from their events, and the variants of an ablation.

A run has the colour of its model in each of the three figures of curves:

- measure: the metric of the run on the dev data, ρ ×100 or triplet accuracy
- loss: the loss of the training batches (thin) and its running mean (bold), by data set if each has
  an objective, and the loss of the dev data (dotted)
- random: the mean cosine of random pairs of the training data (solid) and of sentences from other
  domains (dashed); above 0.9 the vectors have collapsed
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain, cycle
from typing import Any

import plotly.graph_objects as go

from sbert_app.figures.style import PALETTE, apply_style, error_bars, model_colours, short_label
from sbert_app.services.experiments.ablations import Summary, VariantRow
from sbert_app.services.runs.record import Event, Run
from training.evaluation.diagnostics import COLLAPSED_FROM
from training.names import ModelName
from training.trainer.run_metrics import RUN_METRICS

# The most runs that can be told apart in one figure.
MOST_CURVES = 6
# The line styles of the losses of several data sets.
DASHES = ("solid", "dash", "dashdot", "longdash")
# The least span of the axis of ρ ×100, in points.
LEAST_SPAN = 6.0
PERCENT = 100
# The weight of the past in the running mean of the loss.
SMOOTHING = 0.9
# The height of a variant of an ablation, and the space for legend and axis.
ROW_PIXELS = 46
MARGIN_PIXELS = 104


@dataclass(frozen=True)
class Curve:
    """The events of a run, with the number of its steps and its metric, a key of RUN_METRICS.

    ``steps`` is None before the run has stated it, ``measure`` before the first evaluation.
    """

    name: str
    colour: str
    events: Sequence[Event]
    steps: int | None
    measure: str | None


def curves_of(runs: Sequence[Run]) -> list[Curve]:
    """The curves of runs. Each has the colour of the run's model."""
    colours = model_colours([ModelName.of_run(run.id).name for run in runs])
    curves = []
    for run, colour in zip(runs, colours, strict=True):
        progress = run.progress
        curve = Curve(run.name, PALETTE[colour], run.events, progress.steps, progress.measure)
        curves.append(curve)
    return curves


def measure(curves: Sequence[Curve]) -> go.Figure:
    """The metric of the first run over the steps. Runs with other metrics are left out; the loss has its own figure."""
    metrics = [curve.measure for curve in curves if curve.measure not in (None, "loss")]
    metric = metrics[0] if metrics else "spearman"
    title = RUN_METRICS[metric].label
    factor = RUN_METRICS[metric].factor

    def traces(curve: Curve) -> Iterator[go.Scatter]:
        steps, values = _points(curve.events, "eval", metric)
        scaled = [value * factor for value in values]
        yield _line(curve, steps, scaled, f"{title} %{{y:.2f}}", mode="lines+markers")

    # The metric is None for a run that was not evaluated yet.
    comparable = [curve for curve in curves if curve.measure in (None, metric)]
    figure = _figure(f"{title} on the dev data", comparable, traces, height=290)
    values = list(chain.from_iterable(trace.y for trace in figure.data))
    if values and factor == PERCENT:
        # The range is at least `LEAST_SPAN` points, so that a change of half a point does not look
        # like a cliff.
        middle = (min(values) + max(values)) / 2
        span = max(1.1 * (max(values) - min(values)), LEAST_SPAN)
        figure.update_yaxes(range=[middle - span / 2, middle + span / 2])
    return figure


def loss(curves: Sequence[Curve]) -> go.Figure:
    """The loss of the training batches and of the dev data."""

    def traces(curve: Curve) -> Iterator[go.Scatter]:
        """Yields the losses of the batches and their running means, by data set, and then the dev loss."""
        # A dict keeps the order of the data sets.
        names: dict[str, None] = {}
        events = []
        for event in curve.events:
            by_data = event.get("loss_by_data") or {}
            names |= dict.fromkeys(by_data)
            # `_points` finds the loss of a data set by the name of the set.
            events.append(event | by_data)
        # Without data sets that have objectives of their own, there is one loss.
        for dash, name in zip(cycle(DASHES), names or ["loss"]):
            steps, values = _points(events, "train", name)
            yield _line(curve, steps, values, hover=None, opacity=0.25, line_width=1)
            of_data = f" of {short_label(name, 40)}" if names else ""
            hover = f"training loss{of_data} %{{y:.4f}}"
            yield _line(curve, steps, _running_means(values), hover, line_dash=dash)
        steps, values = _points(curve.events, "eval", "loss")
        yield _line(curve, steps, values, "dev loss %{y:.4f}", line_dash="dot")

    return _figure("Loss (dev dotted)", curves, traces, height=230)


def _running_means(values: Sequence[float]) -> list[float]:
    """The exponential moving average, bias-corrected."""
    mean = 0.0
    weight = 0.0
    means = []
    for value in values:
        mean = SMOOTHING * mean + (1 - SMOOTHING) * value
        weight = SMOOTHING * weight + (1 - SMOOTHING)
        means.append(round(mean / weight, 5))
    return means


def random(curves: Sequence[Curve]) -> go.Figure:
    """The mean cosine of random pairs, with the range of a collapse shaded."""

    def traces(curve: Curve) -> Iterator[go.Scatter]:
        steps, values = _points(curve.events, "eval", "random_cosine")
        hover = "random pairs of the training data %{y:.3f}"
        yield _line(curve, steps, values, hover, mode="lines+markers")
        steps, values = _points(curve.events, "eval", "plain_cosine")
        hover = "plain sentences of other domains %{y:.3f}"
        yield _line(curve, steps, values, hover, line_dash="dash")

    figure = _figure("Random pairs (dashed: other domains)", curves, traces, height=230)
    figure.add_hrect(
        y0=COLLAPSED_FROM, y1=1, fillcolor=PALETTE["vermillion"], opacity=0.12, line_width=0
    )
    # At the left end, where most curves are below the range.
    figure.add_annotation(
        x=0,
        xref="paper",
        xanchor="left",
        y=(COLLAPSED_FROM + 1) / 2,
        yanchor="middle",
        text="collapsed",
        showarrow=False,
        font_size=12,
    )
    figure.update_yaxes(range=[-0.1, 1.05])
    return figure


FIGURES: dict[str, Callable[[Sequence[Curve]], go.Figure]] = {
    "measure": measure,
    "loss": loss,
    "random": random,
}


def _figure(
    title: str,
    curves: Sequence[Curve],
    traces: Callable[[Curve], Iterator[go.Scatter]],
    height: int,
) -> go.Figure:
    """A figure over the steps with the traces of all curves. Each curve has one entry in the legend."""
    lines = list(chain.from_iterable(map(traces, curves)))
    names = dict.fromkeys(trace.name for trace in lines)
    # The entry of a run is for its first trace that is not faint.
    listed = set()
    for trace in lines:
        is_first = trace.opacity == 1.0 and trace.name not in listed
        if is_first:
            listed.add(trace.name)
        trace.update(showlegend=is_first, legendgroup=trace.name)
    alt = f"{title} over the steps: {', '.join(map(str, names))}"
    figure = apply_style(go.Figure(lines), height, alt)
    # The last step of the longest run. Before it is known, the axis has one step.
    last = max((curve.steps or 0 for curve in curves), default=0) or 1
    figure.update_layout(
        title={
            "text": title,
            "font": {"size": 13},
            "x": 0,
            "xanchor": "left",
            "y": 1,
            "yanchor": "top",
        },
        title_pad={"l": 12, "t": 10},
        margin={"l": 8, "r": 12, "t": 34, "b": 8},
        hovermode="x unified" if len(curves) == 1 else "closest",
        # New points do not reset the zoom.
        uirevision="keep",
        showlegend=len(curves) > 1,
        legend={"orientation": "h", "y": -0.28, "yanchor": "top", "x": 0, "font": {"size": 12}},
    )
    figure.update_xaxes(
        range=[-last * 0.02, last * 1.02],
        title={"text": "steps", "font": {"size": 12}, "standoff": 4},
    )
    return figure


def _line(
    curve: Curve, steps: list[int], values: list[float], hover: str | None, **options: Any
) -> go.Scatter:
    """A trace of a run with a ``hover`` text. ``options`` of go.Scatter replace the defaults."""
    name = short_label(curve.name, 40)
    defaults: dict[str, Any] = {
        "mode": "lines",
        "opacity": 1.0,
        "line_color": curve.colour,
        "line_width": 2.2,
    }
    if hover is None:
        defaults["hoverinfo"] = "skip"
    else:
        defaults["hovertemplate"] = f"{name}, step %{{x}}: {hover}<extra></extra>"
    return go.Scatter(x=steps, y=values, name=name, marker_size=6, **(defaults | options))


def _points(events: Sequence[Event], kind: str, key: str) -> tuple[list[int], list[float]]:
    """The steps and values of a metric in the events of a kind."""
    steps = []
    values = []
    for event in events:
        if event["kind"] == kind and event.get(key) is not None:
            steps.append(event["step"])
            values.append(round(event[key], 5))
    return steps, values


def dots(
    shipped: Sequence[VariantRow], here: Sequence[VariantRow] = (), here_name: str = "here"
) -> go.Figure:
    """The variants of an ablation with the results that ship, the results measured here, and the paper's results.

    The axis is Spearman ρ ×100 on STSb dev. Means have 95% intervals, and the base before training
    has a mark too. A variant without any run has no row. ``here_name`` is the legend entry of the
    runs on this machine.
    """
    here_by_variant = {row.variant: row.summary for row in here}
    rows = []
    summaries_here = []
    # Without shipped results, the rows are the ones of this machine.
    for row in shipped or here:
        summary = here_by_variant.get(row.variant)
        if row.summary or summary:
            rows.append(row)
            summaries_here.append(summary)
    figure = go.Figure()
    places = list(range(len(rows)))

    def mark(
        values: Sequence[float | None],
        name: str,
        marker: dict[str, Any],
        mode: str = "markers",
        **options: Any,
    ) -> None:
        """Marks each row that has a value. Without any value, the legend has no entry either."""
        if any(value is not None for value in values):
            figure.add_scatter(
                x=values,
                y=places,
                name=name,
                marker=marker,
                mode=mode,
                hovertemplate="%{customdata}: %{x:.2f}<extra>" + escape(name) + "</extra>",
                customdata=[escape(row.label) for row in rows],
                **options,
            )

    def mark_means(
        summaries: Sequence[Summary | None], name: str, symbol: str, colour: str, above: bool
    ) -> None:
        """Marks the mean of each row, with its interval and its value."""
        means: list[float | None] = []
        intervals = []
        texts = []
        for summary in summaries:
            if summary is None:
                # A row without a mark still has a place in each list.
                means.append(None)
                intervals.append((0.0, 0.0, 0.0))
                texts.append("")
            else:
                # Without an interval, such as for a single value, both bounds are the mean.
                low = summary.mean if summary.low is None else summary.low
                high = summary.mean if summary.high is None else summary.high
                means.append(summary.mean)
                intervals.append((summary.mean, low, high))
                texts.append(f"{summary.mean:.1f}")
        mark(
            means,
            name,
            {"symbol": symbol, "size": 12, "color": PALETTE[colour]},
            mode="markers+text",
            error_x=error_bars(intervals, colour, thickness=2.5, width=0),
            text=texts,
            textposition="top center" if above else "bottom center",
        )

    tick = {"symbol": "line-ns", "size": 20, "line": {"color": PALETTE["grey"], "width": 3}}
    mark([row.before for row in rows], "before training", tick)
    ring = {"symbol": "circle-open", "size": 12, "color": PALETTE["grey"], "line": {"width": 2}}
    mark([row.paper for row in rows], "the paper", ring)
    mark_means(summaries_here, here_name, "diamond", "vermillion", above=False)
    if shipped:
        summaries = [row.summary for row in rows]
        mark_means(summaries, "shipped", "circle", "blue", above=True)
    labels = [escape(row.label).replace(": ", ":<br>") for row in rows]
    height = ROW_PIXELS * len(rows) + MARGIN_PIXELS
    # The first row is at the top, with space above it for the labels of its marks.
    y = {"tickvals": places, "ticktext": labels, "range": [len(rows) - 0.5, -0.95], "ticks": ""}
    return apply_style(
        figure,
        height,
        x={"title": "Spearman ρ ×100 on STSb dev"},
        y=y,
        showlegend=True,
        # The means, which are drawn last and lie on top, come first in the legend.
        legend_traceorder="reversed",
    )
