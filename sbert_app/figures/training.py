"""Figures of training: the curves of one or several runs from their events, and the variants of an ablation.

A run has the colour of its model in each of the three figures of curves:

- measure: the metric of the run on the dev data, ρ ×100 or triplet accuracy
- loss: of the training batches (thin; bold: running mean), by data set if each has an objective, and of the dev data
  (dotted)
- random: the mean cosine of random pairs of the training data (solid) and of sentences from other domains (dashed);
  above 0.9 the vectors have collapsed
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import cycle
from typing import Any

import plotly.graph_objects as go

from sbert_app.figures.style import PALETTE, apply_style, error_bars, model_colours, short_label
from sbert_app.services.experiments.ablations import Summary, VariantRow
from sbert_app.services.runs.record import Event, Run
from training.evaluation.diagnostics import COLLAPSED_FROM
from training.names import ModelName
from training.trainer.run_metrics import RUN_METRICS

# So many runs can be told apart in one figure.
MOST_CURVES = 6
# The lines of the losses of several data sets.
DASHES = ("solid", "dash", "dashdot", "longdash")
# The axis of ρ ×100 spans at least so many points.
LEAST_SPAN = 6.0
PERCENT = 100
# The weight of the past in the running mean of the loss.
SMOOTHING = 0.9
# The height of a variant of an ablation, and the space for legend and axis.
ROW_PIXELS = 46
MARGIN_PIXELS = 104


@dataclass(frozen=True)
class Curve:
    """The events of a run, with the total of its steps and its metric, a key of RUN_METRICS."""

    name: str
    colour: str
    events: Sequence[Event]
    steps: int | None
    measure: str | None


def curves_of(runs: Sequence[Run]) -> list[Curve]:
    """The curves of runs, each in the colour that the run has as a model."""
    colours = model_colours([ModelName.of_run(run.id).name for run in runs])
    return [
        Curve(run.name, PALETTE[colour], run.events, run.progress.steps, run.progress.measure)
        for run, colour in zip(runs, colours, strict=True)
    ]


def measure(curves: Sequence[Curve]) -> go.Figure:
    """The metric of the first run over the steps. Runs with another metric are left out; the loss has its own chart."""
    metric = next((curve.measure for curve in curves if curve.measure not in (None, "loss")), "spearman")
    title, factor, _ = RUN_METRICS[metric]

    def traces(curve: Curve) -> Iterator[go.Scatter]:
        steps, values = _points(curve.events, "eval", metric)
        yield _line(curve, steps, [value * factor for value in values], f"{title} %{{y:.2f}}", mode="lines+markers")

    comparable = [curve for curve in curves if curve.measure in (None, metric)]
    figure = _figure(f"{title} on the dev data", comparable, traces, height=290)
    values = [value for trace in figure.data for value in trace.y]
    if values and factor == PERCENT:
        # A change of half a point must not look like a cliff.
        middle = (min(values) + max(values)) / 2
        half = max((max(values) - min(values)) * 0.55, LEAST_SPAN / 2)
        figure.update_yaxes(range=[middle - half, middle + half])
    return figure


def loss(curves: Sequence[Curve]) -> go.Figure:
    """The loss of the training batches and of the dev data."""

    def traces(curve: Curve) -> Iterator[go.Scatter]:
        by_data = [event | (event.get("loss_by_data") or {}) for event in curve.events]
        parts = dict.fromkeys(name for event in curve.events for name in event.get("loss_by_data") or ())
        for dash, name in zip(cycle(DASHES), parts or ["loss"]):
            steps, values = _points(by_data, "train", name)
            yield _line(curve, steps, values, None, opacity=0.25, line_width=1)
            of = f" of {short_label(name, 40)}" if parts else ""
            # The exponential moving average, bias-corrected.
            mean = 0.0
            weight = 0.0
            means = []
            for value in values:
                mean = SMOOTHING * mean + (1 - SMOOTHING) * value
                weight = SMOOTHING * weight + (1 - SMOOTHING)
                means.append(round(mean / weight, 5))
            yield _line(curve, steps, means, f"training loss{of} %{{y:.4f}}", line_dash=dash)
        yield _line(curve, *_points(curve.events, "eval", "loss"), "dev loss %{y:.4f}", line_dash="dot")

    return _figure("Loss (dev dotted)", curves, traces, height=230)


def random(curves: Sequence[Curve]) -> go.Figure:
    """The mean cosine of random pairs, with the range of a collapse shaded."""

    def traces(curve: Curve) -> Iterator[go.Scatter]:
        own, plain = (_points(curve.events, "eval", key) for key in ("random_cosine", "plain_cosine"))
        yield _line(curve, *own, "random pairs of the training data %{y:.3f}", mode="lines+markers")
        yield _line(curve, *plain, "plain sentences of other domains %{y:.3f}", line_dash="dash")

    figure = _figure("Random pairs (dashed: other domains)", curves, traces, height=230)
    figure.add_hrect(y0=COLLAPSED_FROM, y1=1, fillcolor=PALETTE["vermillion"], opacity=0.12, line_width=0)
    # Most curves begin below the range, and there may be none yet.
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


FIGURES: dict[str, Callable[[Sequence[Curve]], go.Figure]] = {"measure": measure, "loss": loss, "random": random}


def _figure(
    title: str, curves: Sequence[Curve], traces: Callable[[Curve], Iterator[go.Scatter]], height: int
) -> go.Figure:
    lines = [trace for curve in curves for trace in traces(curve)]
    names = dict.fromkeys(trace.name for trace in lines)
    # A run has several traces, but one entry in the legend.
    for name in names:
        opaque = [trace for trace in lines if trace.name == name and trace.opacity in (None, 1.0)]
        for trace in lines:
            if trace.name == name:
                trace.update(showlegend=trace is next(iter(opaque), None), legendgroup=name)
    figure = apply_style(go.Figure(lines), height, alt=f"{title} over the steps: {', '.join(map(str, names))}")
    last = max((curve.steps or 0 for curve in curves), default=0) or 1
    heading = {"text": title, "font": {"size": 13}, "x": 0, "xanchor": "left", "y": 1, "yanchor": "top"}
    figure.update_layout(title=heading, title_pad={"l": 12, "t": 10}, margin={"l": 8, "r": 12, "t": 34, "b": 8})
    legend = {"orientation": "h", "y": -0.28, "yanchor": "top", "x": 0, "font": {"size": 12}}
    hovermode = "x unified" if len(curves) == 1 else "closest"
    # By ``uirevision`` new points do not reset the zoom.
    figure.update_layout(hovermode=hovermode, uirevision="keep", showlegend=len(curves) > 1, legend=legend)
    figure.update_xaxes(range=[-last * 0.02, last * 1.02], title={"text": "steps", "font": {"size": 12}, "standoff": 4})
    return figure


def _line(curve: Curve, steps: list[int], values: list[float], hover: str | None, **options: Any) -> go.Scatter:
    """A trace with the hover text ``hover``, or without hover; ``options`` are of go.Scatter."""
    name = short_label(curve.name, 40)
    text = {"hoverinfo": "skip"} if hover is None else {"hovertemplate": f"{name}, step %{{x}}: {hover}<extra></extra>"}
    usual: dict[str, Any] = {"mode": "lines", "opacity": 1.0, "line_color": curve.colour, "line_width": 2.2}
    return go.Scatter(x=steps, y=values, name=name, marker_size=6, **text, **{**usual, **options})


def _points(events: Sequence[Event], kind: str, key: str) -> tuple[list[int], list[float]]:
    points = [(event["step"], event[key]) for event in events if event["kind"] == kind and event.get(key) is not None]
    return [step for step, _ in points], [round(value, 5) for _, value in points]


def dots(shipped: Sequence[VariantRow], here: Sequence[VariantRow] = (), here_name: str = "here") -> go.Figure:
    """The variants of an ablation, each with the mark of what ships, of what was measured here and of the paper.

    The axis is Spearman ρ ×100 on STSb dev; means have their 95% intervals, and the base before training has a mark
    too. A variant without any run has no row. ``here_name`` is the legend entry of the runs on this machine.
    """
    by_variant = {row.variant: row for row in here}
    rows = [row for row in shipped or here if row.summary or by_variant.get(row.variant, row).summary]
    own = [by_variant.get(row.variant) for row in rows] if here else []
    figure = go.Figure()
    places = list(range(len(rows)))

    def mark(values: Sequence[float | None], name: str, marker: dict[str, Any], **more: Any) -> None:
        """Adds a mark to each row that has a value; without any value it adds no entry to the legend either."""
        if any(value is not None for value in values):
            hover = "%{customdata}: %{x:.2f}<extra>" + escape(name) + "</extra>"
            more = {"mode": "markers", **more, "customdata": [escape(row.label) for row in rows]}
            figure.add_scatter(x=values, y=places, name=name, marker=marker, hovertemplate=hover, **more)

    def mark_means(summaries: Sequence[Summary | None], name: str, symbol: str, colour: str, above: bool) -> None:
        """Adds the mean of each row with its interval and its number."""
        means = [summary.mean if summary else None for summary in summaries]
        ends = [_interval(summary) if summary else (0.0, 0.0, 0.0) for summary in summaries]
        text = ["" if mean is None else f"{mean:.1f}" for mean in means]
        position = "top center" if above else "bottom center"
        marker = {"symbol": symbol, "size": 12, "color": PALETTE[colour]}
        intervals = error_bars(ends, colour, thickness=2.5, width=0)
        mark(means, name, marker, mode="markers+text", error_x=intervals, text=text, textposition=position)

    tick = {"symbol": "line-ns", "size": 20, "line": {"color": PALETTE["grey"], "width": 3}}
    mark([row.before for row in rows], "before training", tick)
    ring = {"symbol": "circle-open", "size": 12, "color": PALETTE["grey"], "line": {"width": 2}}
    mark([row.paper for row in rows], "the paper", ring)
    mark_means([row.summary if row else None for row in own] or [None], here_name, "diamond", "vermillion", above=False)
    mark_means([row.summary for row in rows] if shipped else [None], "shipped", "circle", "blue", above=True)
    labels = [escape(row.label).replace(": ", ":<br>") for row in rows]
    height = ROW_PIXELS * len(rows) + MARGIN_PIXELS
    x = {"title": "Spearman ρ ×100 on STSb dev"}
    y = {"tickvals": places, "ticktext": labels, "range": [len(rows) - 0.5, -0.95], "ticks": ""}
    return apply_style(figure, height, "", x, y, showlegend=True, legend_traceorder="reversed")


def _interval(summary: Summary) -> tuple[float, float, float]:
    """The mean and the ends of its interval, which are the mean itself for one value."""
    low = summary.mean if summary.low is None else summary.low
    high = summary.mean if summary.high is None else summary.high
    return summary.mean, low, high
