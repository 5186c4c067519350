"""The Ablation page: change one thing, keep the rest, and see how much it matters.

It opens with the tables that ship (`sbert_app.measured_tables`). Start queues the same grid here: a sweep of ordinary
runs (`sbert_app.sweeps`). Nothing trains in the page; a timer reads the folders, so every tab sees the grid fill, and
a reload or a killed app loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from sbert_app import figures_ablation, sweep_table
from sbert_app.measured_tables import shipped
from sbert_app.pages import ablation_views as views
from sbert_app.pages.choices import MODELS
from sbert_app.pages.compare_views import problem
from sbert_app.run_plan import can_measure, measure_rate
from sbert_app.services import Services
from sbert_app.sweep_presets import ABLATIONS
from sbert_app.sweep_record import Sweep
from sbert_app.sweeps import Sweeps
from training.config import DEFAULT_BASE
from training.errors import InputError

FIRST = next(iter(ABLATIONS))
LABELLED_DATA = [
    ("SNLI dev + test (Hub): 19,666 pairs", "snli:dev+snli:test"),
    ("SNLI + MultiNLI (Hub): 942,069", "all-nli:train"),
    ("STSb train: thirds of the scores", "stsb:train"),
]
BASES = [*MODELS, "bert-base-uncased"]
STEPS = 200  # a run, unless somebody asks for more: about a minute each on two cores
POLL_SECONDS = 2.0
QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "queue": False}
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


@dataclass(frozen=True)
class Panel:
    """The sweep that is seen."""

    picker: gr.Dropdown  # its value is the id of the sweep, None without one
    shown: gr.State  # a stamp of what the browser has
    status: gr.HTML
    grid: gr.HTML
    figure: gr.Plot
    table: gr.HTML
    stop: gr.Button
    resume: gr.Button
    delete: gr.Button
    really: gr.Button

    @property
    def outputs(self) -> list[Any]:
        """In the order of `_look`."""
        return [
            *(self.shown, self.picker, self.status, self.grid, self.figure, self.table),
            *(self.stop, self.resume, self.delete, self.really),
        ]


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
    panel = _panel()
    _wire(services, Sweeps(services.jobs), form, panel, [question, figure, legend, table], planned, start)


def _form(name: gr.Radio) -> Form:
    with gr.Row():
        seeds = gr.Slider(1, 10, 3, step=1, label="Seeds", info="Runs for each variant", min_width=200, elem_id="seeds")
        steps = gr.Number(
            STEPS, label="Steps", info="Of 16 rows, for each run; empty: one epoch", min_width=160, elem_id="steps"
        )
        base = gr.Dropdown(
            BASES,
            value=DEFAULT_BASE,
            label="Base",
            info="What each run starts from; or type a Hub id",
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


def _panel() -> Panel:
    with gr.Column(elem_id="sweep"):
        picker = gr.Dropdown([], label="Sweeps of this ablation", visible=False, elem_id="sweeps")
        status = gr.HTML(elem_id="sweep-status")
        with gr.Row(elem_classes="actions"):
            stop = gr.Button("Stop", size="sm", visible=False, elem_id="stop-sweep")
            resume = gr.Button("Resume", size="sm", visible=False, elem_id="resume-sweep")
            delete = gr.Button("Delete", size="sm", visible=False, elem_id="delete-sweep")
            really = gr.Button("Delete it and all its runs", size="sm", variant="stop", visible=False)
        grid = gr.HTML(elem_id="grid")
        figure = gr.Plot(show_label=False, visible=False, elem_id="sweep-figure")
        table = gr.HTML(elem_id="sweep-table")
    return Panel(picker, gr.State(None), status, grid, figure, table, stop, resume, delete, really)


def _wire(
    services: Services,
    sweeps: Sweeps,
    form: Form,
    panel: Panel,
    about: list[Any],
    planned: gr.HTML,
    start: gr.Button,
) -> None:
    """Connect the components with what they do."""
    look = {"fn": partial(_look, sweeps), "inputs": [form.name, panel.picker, panel.shown], "outputs": panel.outputs}
    root = gr.context.Context.root_block
    latest = gr.State(dict)  # what the form said last, so that a slow measurement does not overwrite a newer plan

    def plan_it(event: Any) -> None:
        event.then(partial(_plan, sweeps), [latest, *form.inputs], planned, **QUIET).then(
            partial(_measure, sweeps), [latest, *form.inputs], planned, **QUIET
        )

    opened = root.load(_from_link, None, [form.name, panel.picker], **QUIET)
    chosen = opened.then(partial(_about, services), form.name, [*about, form.base, form.data], **QUIET)
    chosen.then(**look, **QUIET)
    plan_it(chosen)
    other = form.name.input(partial(_about, services), form.name, [*about, form.base, form.data], **QUIET)
    other.then(lambda: None, None, panel.picker, **QUIET).then(**look, **QUIET)
    plan_it(other)
    plan_it(
        gr.on([each.change for each in form.inputs[1:]], None, trigger_mode="always_last", api_visibility="private")
    )
    gr.Timer(POLL_SECONDS).tick(**look, **QUIET)
    panel.picker.input(**look, **QUIET)
    started = start.click(partial(_start, sweeps), form.inputs, [planned, panel.picker], **QUIET)
    started.then(**look, **QUIET).then(None, None, None, js=SHOW_SWEEP)
    for button, act in ((panel.stop, sweeps.stop), (panel.resume, sweeps.resume), (panel.really, sweeps.delete)):
        button.click(partial(_act, act), panel.picker, panel.status, **QUIET).then(**look, **QUIET)
    panel.delete.click(lambda: gr.update(visible=True), None, panel.really, **QUIET)


# ------------------------------------------------------------ what ships


def _about(services: Services, name: str) -> list[Any]:
    """The question, the shipped table with its figure, and the fields that this ablation needs."""
    ablation = ABLATIONS[name]
    varies_base = "base" in ablation.variants[ablation.default].changes
    fields = [gr.update(visible=not varies_base), gr.update(visible=name == "concat")]
    found = shipped(name)
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
    if (base or "").strip() not in ("", DEFAULT_BASE) and name != "base":
        changes["base"] = (base or "").strip()
    if name == "concat":
        changes["train_data"] = data
    return name, int(seeds), changes


def _plan(sweeps: Sweeps, latest: dict[str, Any], *values: Any) -> str:
    """What Start would do, as far as that is known at once."""
    latest["form"] = values
    try:
        found = sweeps.plan(*_asked(*values))
    except InputError as error:
        return problem(str(error))
    rate = sweeps.rate(found)
    first = next(iter(found.plans.values()))
    return views.planned(found, rate, measuring=rate is None and can_measure(first.config, sweeps.store))


def _measure(sweeps: Sweeps, latest: dict[str, Any], *values: Any) -> Any:
    """The same with a rate that is measured now, where it is not known."""
    try:
        found = sweeps.plan(*_asked(*values))
        first = next(iter(found.plans.values()))
        if sweeps.rate(found) or not can_measure(first.config, sweeps.store):
            return gr.skip()
        rate = measure_rate(first, sweeps.store)
    except InputError as error:
        return problem(str(error))
    return views.planned(found, rate) if latest["form"] == values else gr.skip()


def _start(sweeps: Sweeps, *values: Any) -> tuple[Any, Any]:
    """Queue the sweep -> the plan or the problem, and the sweep to see."""
    try:
        sweep = sweeps.start(*_asked(*values))
    except InputError as error:
        return problem(str(error)), gr.skip()
    return gr.skip(), gr.update(choices=[(views.sweep_name(sweep), sweep.id)], value=sweep.id)


# ------------------------------------------------------------ a sweep


def _look(sweeps: Sweeps, name: str, picked: str | None, shown: Any) -> list[Any]:
    """What has changed since the browser was last told; without a choice the newest sweep of the ablation."""
    found = sweeps.list(name)
    sweep = next((each for each in found if each.id == picked), found[0] if found else None)
    if sweep is not None and sweep.counts["queued"]:
        sweeps.jobs.tend()
    stamp = [name, [views.sweep_name(each) for each in found], *_stamp(sweep)]
    if stamp == shown:
        return [gr.skip() for _ in range(10)]
    if sweep is None:
        hidden = gr.update(visible=False)
        return [stamp, gr.update(choices=[], value=None, visible=False), "", "", hidden, "", *[hidden] * 4]
    rows = sweep.rows
    has_values = bool(sweep.values)
    running = sweep.state == "running"
    drawn = not shown or shown[-1] != stamp[-1] or shown[0] != name
    figure = gr.update(value=figures_ablation.bars(rows, "this sweep") if has_values else None, visible=has_values)
    return [
        stamp,
        gr.update(choices=[(views.sweep_name(each), each.id) for each in found], value=sweep.id, visible=True),
        views.sweep_status(sweep),
        views.grid(sweep),
        figure if drawn else gr.skip(),
        views.statistics(rows) if has_values else "",
        gr.update(visible=running),
        gr.update(visible=not running and sweep.can_resume),
        gr.update(visible=not running),
        gr.update(visible=False),
    ]


def _stamp(sweep: Sweep | None) -> list[Any]:
    """What tells two looks at a sweep apart; the last part is what the figure shows."""
    if sweep is None:
        return [None, None, None]
    return [sweep.id, [f"{cell.state} {cell.share:.3f}" for cell in sweep.cells], str(dict(sweep.values)) + sweep.id]


def _act(act: Any, picked: str | None) -> Any:
    """Stop, resume or delete the sweep that is seen -> a problem, if there is one."""
    try:
        if picked:
            act(picked)
    except InputError as error:
        return problem(str(error))
    return gr.skip()


def _from_link(request: gr.Request) -> tuple[Any, Any]:
    """/ablation?preset=concat&sweep=<id> opens there."""
    asked = request.query_params
    preset = asked.get("preset")
    return preset if preset in ABLATIONS else gr.skip(), asked.get("sweep") or None
