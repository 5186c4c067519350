"""The Ablation page: change one thing, keep the rest, and see how much it matters.

It opens with the tables that ship (`sweeps.measured`). Start queues the same grid here: a sweep of ordinary
runs (`sweeps.sweep`). Nothing trains in the page; a timer reads the folders, so every tab sees the grid fill, and
a reload or a killed app loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from sbert_app.figures import ablation as figures_ablation
from sbert_app.pages.ablation import sweep as ablation_sweep
from sbert_app.pages.ablation import views
from sbert_app.pages.ablation.sweep import QUIET, Panel
from sbert_app.pages.components.messages import error_message
from sbert_app.pages.components.pickers import MODELS
from sbert_app.services.container import Services
from sbert_app.services.experiments import statistics as sweep_table
from sbert_app.services.experiments.ablations import ABLATIONS
from sbert_app.services.experiments.precomputed import precomputed
from sbert_app.services.experiments.sweeps import Sweeps
from sbert_app.services.runs.estimate import can_measure_rate, measure_rate
from training.errors import UserFacingError
from training.registry import DEFAULT_MODEL

FIRST = next(iter(ABLATIONS))
LABELLED_DATA = [
    ("SNLI dev + test (Hub)", "snli:dev+snli:test"),
    ("SNLI + MultiNLI (Hub)", "all-nli:train"),
    ("STSb, thirds as labels", "stsb:train"),
]
BASES = [*MODELS, "bert-base-uncased"]
STEPS = 200  # a run, unless somebody asks for more: about a minute each on two cores
SHOW_SWEEP = """() => document.getElementById("sweep")?.scrollIntoView({behavior: "smooth", block: "start"})"""


@dataclass(frozen=True)
class Form:
    """What a sweep is asked for with."""

    name: gr.Radio  # a key of ABLATIONS
    seeds: gr.Slider
    steps: gr.Number
    base: gr.Dropdown
    data: gr.Dropdown

    @property
    def inputs(self) -> list[Any]:
        """In the order of `_asked`."""
        return [self.name, self.seeds, self.steps, self.base, self.data]


def build(services: Services) -> None:
    """Lay the page out inside the open Blocks."""
    gr.HTML('<h1 class="title">Ablation</h1><p class="tagline">Change one thing, keep the rest: what does it do?</p>')
    choices = [(each.title, key) for key, each in ABLATIONS.items()]
    name = gr.Radio(choices, value=FIRST, label="What is varied", elem_id="ablation")
    question = gr.HTML(elem_id="question")
    gr.HTML('<h2 class="section">Measured already</h2>')
    with gr.Row():
        figure = gr.Plot(show_label=False, min_width=320, scale=3, elem_id="shipped-figure")
        legend = gr.HTML(min_width=300, scale=2, elem_id="legend")
    table = gr.HTML(elem_id="shipped")
    gr.HTML('<h2 class="section">Measure it here</h2>')
    form = _form(name)
    planned = gr.HTML(elem_id="sweep-plan")
    start = gr.Button("Start", variant="primary", elem_id="start-sweep")
    panel = ablation_sweep.build_layout()
    _wire(Sweeps(services.jobs), form, panel, [question, figure, legend, table], planned, start)


def _form(name: gr.Radio) -> Form:
    with gr.Row():
        seeds = gr.Slider(1, 10, 3, step=1, label="Seeds", info="Runs for each variant", min_width=200, elem_id="seeds")
        steps = gr.Number(
            STEPS, label="Steps", info="A run, of 16 rows; empty: one epoch", min_width=160, elem_id="steps"
        )
        base = gr.Dropdown(
            BASES,
            value=DEFAULT_MODEL,
            label="Base",
            info="Starts each run; or a Hub id",
            allow_custom_value=True,
            min_width=220,
            elem_id="sweep-base",
        )
        data = gr.Dropdown(
            LABELLED_DATA,
            value=LABELLED_DATA[0][1],
            label="Training data",
            info="Pairs with labels, for the softmax",
            visible=False,
            min_width=260,
            elem_id="sweep-data",
        )
    return Form(name, seeds, steps, base, data)


def _wire(sweeps: Sweeps, form: Form, panel: Panel, about: list[Any], planned: gr.HTML, start: gr.Button) -> None:
    """Connect the components with what they do."""
    look = ablation_sweep.wire(sweeps, form.name, panel)
    latest = gr.State({})  # what the form said last, so that a slow measurement does not overwrite a newer plan
    shown = [*about, form.base, form.data]

    def plan_it(event: Any) -> None:
        event.then(partial(_plan, sweeps), [latest, *form.inputs], planned, **QUIET).then(
            partial(_measure, sweeps), [latest, *form.inputs], planned, **QUIET
        )

    opened = gr.context.Context.root_block.load(_from_link, None, [form.name, panel.seen], **QUIET)
    chosen = opened.then(_about, form.name, shown, **QUIET)
    look(chosen)
    plan_it(chosen)
    other = form.name.input(_about, form.name, shown, **QUIET)
    look(other.then(lambda: None, None, panel.seen, **QUIET))
    plan_it(other)
    edited = [each.change for each in form.inputs[1:]]
    plan_it(gr.on(edited, None, trigger_mode="always_last", api_visibility="private"))
    started = start.click(partial(_start, sweeps), form.inputs, [planned, panel.seen], **QUIET)
    look(started).then(None, None, None, js=SHOW_SWEEP)


# ------------------------------------------------------------ what ships


def _about(name: str) -> list[Any]:
    """The question, the shipped table with its figure, and the fields that this ablation needs."""
    ablation = ABLATIONS[name]
    varies_base = "base" in ablation.variants[ablation.default].changes
    fields = [gr.update(visible=not varies_base), gr.update(visible=name == "concat")]
    found = precomputed(name)
    if found is None:
        return [views.question(ablation), gr.update(visible=False), "", views.not_measured(ablation), *fields]
    after = {(run.variant, run.seed): 100 * run.after for run in found.runs}
    before = {(run.variant, run.seed): 100 * run.before for run in found.runs}
    rows = sweep_table.rows(ablation, after, before)
    figure = figures_ablation.bars(rows, "measured")
    told = views.statistics(rows) + views.measured_where(found)
    return [
        views.question(ablation),
        gr.update(value=figure, visible=True),
        views.legend(ablation, rows),
        told,
        *fields,
    ]


# ------------------------------------------------------------ before a sweep


def _asked(
    name: str, seeds: float, steps: float | None, base: str | None, data: str
) -> tuple[str, int, dict[str, Any]]:
    """The form as `Sweeps.start` takes it."""
    changes: dict[str, Any] = {"max_steps": steps} if steps else {}
    if (base or "").strip() not in ("", DEFAULT_MODEL) and name != "base":
        changes["base"] = (base or "").strip()
    if name == "concat":
        changes["train_data"] = data
    return name, int(seeds), changes


def _plan(sweeps: Sweeps, latest: dict[str, Any], *values: Any) -> str:
    """What Start would do, as far as that is known at once."""
    latest["form"] = values
    try:
        found = sweeps.estimate(*_asked(*values))
    except UserFacingError as error:
        return error_message(error)
    rate = sweeps.rate(found)
    first = next(iter(found.estimates.values()))
    return views.planned(found, rate, measuring=rate is None and can_measure_rate(first.config, sweeps.store))


def _measure(sweeps: Sweeps, latest: dict[str, Any], *values: Any) -> Any:
    """The same with a rate that is measured now, where it is not known."""
    try:
        found = sweeps.estimate(*_asked(*values))
        first = next(iter(found.estimates.values()))
        if sweeps.rate(found) or not can_measure_rate(first.config, sweeps.store):
            return gr.skip()
        rate = measure_rate(first, sweeps.store)
    except UserFacingError as error:
        return error_message(error)
    return views.planned(found, rate) if latest["form"] == values else gr.skip()


def _start(sweeps: Sweeps, *values: Any) -> tuple[Any, Any]:
    """Queue the sweep -> the plan or the problem, and the sweep to see."""
    try:
        sweep = sweeps.start(*_asked(*values))
    except UserFacingError as error:
        return error_message(error), gr.skip()
    return gr.skip(), sweep.id


def _from_link(request: gr.Request) -> tuple[Any, Any]:
    """/ablation?preset=concat&sweep=<id> opens there."""
    asked = request.query_params
    preset = asked.get("preset")
    return preset if preset in ABLATIONS else gr.skip(), asked.get("sweep") or None
