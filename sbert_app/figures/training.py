"""Training curves: events of one or several runs -> Plotly figures. A run has the same colour in every figure.

measure   the run's metric on the dev data: ρ ×100 or triplet accuracy
loss      of the training batches (thin; bold: running mean), by data set if each has an objective, and of the dev
          data (dotted)
random    mean cosine of random pairs, of the training data (solid) and of sentences from other domains (dashed);
          above 0.9 the vectors have collapsed
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

import plotly.graph_objects as go

from sbert_app.figures.style import PALETTE, apply_style, short_label
from sbert_app.services.runs.events import Event
from training.evaluation.diagnostics import COLLAPSED_FROM
from training.trainer.run_metrics import RUN_METRICS

COLOURS = [PALETTE[name] for name in ("blue", "vermillion", "green", "purple", "orange", "sky")]
DASHES = ("solid", "dash", "dashdot", "longdash")  # of the losses of several data sets
LEAST_SPAN = 6.0  # points of ρ ×100 that the axis shows at least
PERCENT = 100
SMOOTHING = 0.9  # the weight of the past in the running mean of the loss


@dataclass(frozen=True)
class Curve:
    name: str
    colour: str
    events: Sequence[Event]
    steps: int | None  # in total
    measure: str | None  # a key of RUN_METRICS


def measure(curves: Sequence[Curve]) -> go.Figure:
    """The metric of the first run over the steps. Runs with another metric are left out."""
    metric = next((curve.measure for curve in curves if curve.measure), "spearman")
    title, factor, _ = RUN_METRICS[metric]

    def traces(curve: Curve) -> Iterator[go.Scatter]:
        steps, values = _points(curve.events, "eval", metric)
        yield _line(curve, steps, [value * factor for value in values], f"{title} %{{y:.2f}}", mode="lines+markers")

    comparable = [curve for curve in curves if curve.measure in (None, metric)]
    figure = _figure(f"{title} on the dev data", comparable, traces, height=290)
    values = [value for trace in figure.data for value in trace.y]
    if values and factor == PERCENT:  # half a point is no cliff
        middle, half = (min(values) + max(values)) / 2, max((max(values) - min(values)) * 0.55, LEAST_SPAN / 2)
        figure.update_yaxes(range=[middle - half, middle + half])
    return figure


def loss(curves: Sequence[Curve]) -> go.Figure:
    """The loss of the training batches and of the dev data."""

    def traces(curve: Curve) -> Iterator[go.Scatter]:
        by_data = [event | (event.get("loss_by_data") or {}) for event in curve.events]
        parts = dict.fromkeys(name for event in curve.events for name in event.get("loss_by_data") or ())
        for dash, name in zip(cycle(DASHES), parts or ["loss"]):
            steps, values = _points(by_data, "train", name)
            yield _line(curve, steps, values, None, opacity=0.25, width=1)
            of = f" of {short_label(name, 40)}" if parts else ""
            yield _line(curve, steps, _running_mean(values), f"training loss{of} %{{y:.4f}}", dash=dash)
        yield _line(curve, *_points(curve.events, "eval", "loss"), "dev loss %{y:.4f}", dash="dot")

    return _figure("Loss (dev dotted)", curves, traces, height=230)


def random(curves: Sequence[Curve]) -> go.Figure:
    """The mean cosine of random pairs, with the range of a collapse shaded."""

    def traces(curve: Curve) -> Iterator[go.Scatter]:
        own, plain = (_points(curve.events, "eval", key) for key in ("random_cosine", "plain_cosine"))
        yield _line(curve, *own, "random pairs of the training data %{y:.3f}", mode="lines+markers")
        yield _line(curve, *plain, "plain sentences of other domains %{y:.3f}", dash="dash")

    figure = _figure("Random pairs (dashed: other domains)", curves, traces, height=230)
    figure.add_hrect(y0=COLLAPSED_FROM, y1=1, fillcolor=PALETTE["vermillion"], opacity=0.12, line_width=0)
    where = {"x": 1, "xref": "paper", "xanchor": "right", "y": COLLAPSED_FROM, "yanchor": "top"}  # without curves
    figure.add_annotation(**where, text="collapsed above", showarrow=False, font_size=12)
    figure.update_yaxes(range=[-0.1, 1.05])
    return figure


FIGURES: dict[str, Callable[[Sequence[Curve]], go.Figure]] = {"measure": measure, "loss": loss, "random": random}


def _figure(
    title: str, curves: Sequence[Curve], traces: Callable[[Curve], Iterator[go.Scatter]], height: int
) -> go.Figure:
    lines = [trace for curve in curves for trace in traces(curve)]
    names = dict.fromkeys(trace.name for trace in lines)
    for name in names:  # a run has several traces, and one entry in the legend
        opaque = [trace for trace in lines if trace.name == name and trace.opacity in (None, 1.0)]
        for trace in lines:
            if trace.name == name:
                trace.update(showlegend=trace is next(iter(opaque), None), legendgroup=name)
    figure = apply_style(go.Figure(lines), height, alt=f"{title} over the steps: {', '.join(map(str, names))}")
    last = max((curve.steps or 0 for curve in curves), default=0) or 1
    figure.update_layout(
        title={"text": title, "font": {"size": 13}, "x": 0, "xanchor": "left", "y": 1, "yanchor": "top"},
        title_pad={"l": 12, "t": 10},
        margin={"l": 8, "r": 12, "t": 34, "b": 8},
        hovermode="x unified" if len(curves) == 1 else "closest",
        uirevision="keep",  # new points do not reset the zoom
        showlegend=len(curves) > 1,
        legend={"orientation": "h", "y": -0.28, "yanchor": "top", "x": 0, "font": {"size": 12}},
    )
    figure.update_xaxes(range=[-last * 0.02, last * 1.02], title={"text": "steps", "font": {"size": 12}, "standoff": 4})
    return figure


def _line(
    curve: Curve,
    steps: list[int],
    values: list[float],
    hover: str | None,
    *,
    mode: str = "lines",
    dash: str = "solid",
    width: float = 2.2,
    opacity: float = 1.0,
) -> go.Scatter:
    """A trace with a hover text, or without one if ``hover`` is None."""
    name = short_label(curve.name, 40)
    return go.Scatter(
        x=steps,
        y=values,
        name=name,
        mode=mode,
        opacity=opacity,
        line={"color": curve.colour, "width": width, "dash": dash},
        marker={"size": 6},
        hoverinfo="skip" if hover is None else None,
        hovertemplate=None if hover is None else f"{name}, step %{{x}}: {hover}<extra></extra>",
    )


def _points(events: Sequence[Event], kind: str, key: str) -> tuple[list[int], list[float]]:
    points = [(event["step"], event[key]) for event in events if event["kind"] == kind and event.get(key) is not None]
    return [step for step, _ in points], [round(value, 5) for _, value in points]


def _running_mean(values: Sequence[float]) -> list[float]:
    """Exponential moving average, bias-corrected."""
    mean, weight, means = 0.0, 0.0, []
    for value in values:
        mean = SMOOTHING * mean + (1 - SMOOTHING) * value
        weight = SMOOTHING * weight + (1 - SMOOTHING)
        means.append(round(mean / weight, 5))
    return means
