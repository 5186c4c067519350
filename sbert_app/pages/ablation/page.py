"""The Ablation page: change one thing, keep the rest, and see how much it matters.

It opens with precomputed tables. Start queues the same grid on this machine: a sweep of ordinary runs
(`services.experiments.sweeps`). Nothing trains in the page; a timer reads the runs' folders, so that every tab shows
the grid filling, and neither a reload nor a killed app loses anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from sbert_app.figures import ablation as figures_ablation
from sbert_app.pages.ablation import sweep as ablation_sweep
from sbert_app.pages.ablation import views
from sbert_app.pages.ablation.sweep import Panel
from sbert_app.pages.api.endpoint import visitor_of
from sbert_app.pages.components.events import EVERY, UNQUEUED
from sbert_app.pages.components.messages import error_message, heading, section
from sbert_app.pages.components.pickers import MODELS
from sbert_app.services.container import Services
from sbert_app.services.experiments import statistics
from sbert_app.services.experiments.ablations import ABLATIONS
from sbert_app.services.experiments.precomputed import precomputed
from sbert_app.services.experiments.sweeps import Sweeps
from sbert_app.services.runs.estimate import can_measure_rate, measure_rate
from training.errors import UserFacingError
from training.registry import DEFAULT_MODEL

OPENING = next(iter(ABLATIONS))
LABELLED_DATA = [
    ("SNLI dev + test (Hub)", "snli:dev+snli:test"),
    ("SNLI + MultiNLI (Hub)", "all-nli:train"),
    ("STSb, thirds as labels", "stsb:train"),
]
BASES = [*MODELS, "bert-base-uncased"]
STEPS = 200  # per run by default: about a minute on two cores
SHOW_SWEEP = """() => document.getElementById("sweep")?.scrollIntoView({behavior: "smooth", block: "start"})"""


@dataclass(frozen=True)
class Form:
    """The settings of a new sweep."""

    name: gr.Radio  # a key of ABLATIONS
    seeds: gr.Slider
    steps: gr.Number
    base: gr.Dropdown
    data: gr.Dropdown

    @property
    def inputs(self) -> list[Any]:
        """In the order of `_arguments`."""
        return [self.name, self.seeds, self.steps, self.base, self.data]


def build(services: Services) -> None:
    """Build the page inside the open Blocks."""
    gr.HTML(heading("Ablation", "Change one thing, keep the rest: what does it do?"))
    choices = [(each.title, key) for key, each in ABLATIONS.items()]
    name = gr.Radio(choices, value=OPENING, label="What is varied", elem_id="ablation")
    question = gr.HTML(elem_id="question")
    gr.HTML(section("Measured already"))
    with gr.Row():
        figure = gr.Plot(show_label=False, min_width=320, scale=3, elem_id="shipped-figure")
        legend = gr.HTML(min_width=300, scale=2, elem_id="legend")
    table = gr.HTML(elem_id="shipped")
    gr.HTML(section("Measure it here"))
    form = _form(name)
    planned = gr.HTML(elem_id="sweep-plan")
    start = gr.Button("Start", variant="primary", elem_id="start-sweep")
    panel = ablation_sweep.build_layout()
    _connect(
        Sweeps(services.jobs, services.access.check_run), form, panel, [question, figure, legend, table], planned, start
    )


def _form(name: gr.Radio) -> Form:
    with gr.Row():
        seeds = gr.Slider(1, 10, 3, step=1, label="Seeds", info="Runs per variant", min_width=200, elem_id="seeds")
        steps = gr.Number(
            STEPS, label="Steps", info="Per run, of 16 pairs; empty: one epoch", min_width=160, elem_id="steps"
        )
        base = gr.Dropdown(
            BASES,
            value=DEFAULT_MODEL,
            label="Base",
            info="What each run starts from; or a Hub id, run:<name>",
            allow_custom_value=True,
            min_width=220,
            elem_id="sweep-base",
        )
        data = gr.Dropdown(
            LABELLED_DATA,
            value=LABELLED_DATA[0][1],
            label="Training data",
            info="Pairs with labels, for the softmax; or type hf:<org>/<name>",
            allow_custom_value=True,
            visible=False,
            min_width=260,
            elem_id="sweep-data",
        )
    return Form(name, seeds, steps, base, data)


def _connect(sweeps: Sweeps, form: Form, panel: Panel, about: list[Any], planned: gr.HTML, start: gr.Button) -> None:
    """Connect the components with their handlers."""
    refresh_after = ablation_sweep.connect(sweeps, form.name, panel)
    latest = gr.State({})  # the latest values, so that a slow measurement does not overwrite a newer estimate
    outputs = [*about, form.base, form.data]

    estimate = partial(_estimate, sweeps), [latest, *form.inputs], planned
    measure = partial(_measure, sweeps), [latest, *form.inputs], planned

    def estimate_after(event: Any) -> None:
        event.then(*estimate, **UNQUEUED).then(*measure, **UNQUEUED)

    opened = gr.context.Context.root_block.load(_from_link, None, [form.name, panel.selected], **UNQUEUED)
    chosen = opened.then(_about, form.name, outputs, **UNQUEUED)
    refresh_after(chosen)
    estimate_after(chosen)
    other = form.name.input(_about, form.name, outputs, **EVERY)
    refresh_after(other.then(lambda: None, None, panel.selected, **UNQUEUED))
    estimate_after(other)
    edited = [each.change for each in form.inputs[1:]]
    # The estimate itself is the event: of several quick edits the last is never dropped while one is computed.
    gr.on(edited, *estimate, trigger_mode="always_last", **UNQUEUED).then(*measure, **UNQUEUED)

    def start_from_form(request: gr.Request, *values: Any) -> tuple[Any, Any]:
        return _start(sweeps, visitor_of(request), *values)

    started = start.click(start_from_form, form.inputs, [planned, panel.selected], **UNQUEUED)
    refresh_after(started).then(None, None, None, js=SHOW_SWEEP)


# ------------------------------------------------------------ precomputed


def _about(name: str) -> list[Any]:
    """The question, the precomputed table with its figure, and the fields that this ablation needs."""
    ablation = ABLATIONS[name]
    varies_base = "base" in ablation.variants[ablation.default].changes
    fields = [gr.update(visible=not varies_base), gr.update(visible=name == "concat")]
    table = precomputed(name)
    if table is None:
        return [views.question(ablation), gr.update(visible=False), "", views.not_measured(ablation), *fields]
    after = {(run.variant, run.seed): 100 * run.after for run in table.runs}
    before = {(run.variant, run.seed): 100 * run.before for run in table.runs}
    rows = statistics.rows(ablation, after, before)
    measured = [row for row in rows if row.summary is not None]
    figure = figures_ablation.bars(measured, "measured")
    return [
        views.question(ablation),
        gr.update(value=figure, visible=True),
        views.legend(ablation, measured),
        views.statistics(measured) + views.not_precomputed(rows) + views.source(table),
        *fields,
    ]


# ------------------------------------------------------------ before a sweep


def _arguments(
    name: str, seeds: float, steps: float | None, base: str | None, data: str
) -> tuple[str, int, dict[str, Any]]:
    """The form as the arguments of `Sweeps.start`."""
    changes: dict[str, Any] = {"max_steps": steps} if steps else {}
    if (base or "").strip() not in ("", DEFAULT_MODEL) and name != "base":
        changes["base"] = (base or "").strip()
    if name == "concat":
        changes["train_data"] = data
    return name, int(seeds), changes


def _estimate(sweeps: Sweeps, latest: dict[str, Any], *values: Any) -> str:
    """The estimate for the form, as far as it is known without measuring."""
    latest["form"] = values
    try:
        estimate = sweeps.estimate(*_arguments(*values))
    except UserFacingError as error:
        return error_message(error)
    rate = sweeps.rate(estimate)
    first = next(iter(estimate.estimates.values()))
    return views.planned(estimate, rate, measuring=rate is None and can_measure_rate(first.config, sweeps.store))


def _measure(sweeps: Sweeps, latest: dict[str, Any], *values: Any) -> Any:
    """The estimate with the throughput measured now, if it was not known."""
    try:
        estimate = sweeps.estimate(*_arguments(*values))
        first = next(iter(estimate.estimates.values()))
        if sweeps.rate(estimate) or not can_measure_rate(first.config, sweeps.store):
            return gr.skip()
        rate = measure_rate(first, sweeps.store)
    except UserFacingError as error:
        return error_message(error)
    return views.planned(estimate, rate) if latest["form"] == values else gr.skip()


def _start(sweeps: Sweeps, visitor: str, *values: Any) -> tuple[Any, Any]:
    """Queue the sweep. Returns updates of the estimate (an error message) and of the sweep to show."""
    try:
        sweep = sweeps.start(*_arguments(*values), visitor)
    except UserFacingError as error:
        return error_message(error), gr.skip()
    return gr.skip(), sweep.id


def _from_link(request: gr.Request) -> tuple[Any, Any]:
    """/ablation?preset=concat&sweep=<id> opens there."""
    query = request.query_params
    preset = query.get("preset")
    return preset if preset in ABLATIONS else gr.skip(), query.get("sweep") or None
