"""The Ablation page: change one thing, keep the rest, and see how much it matters.

It opens with precomputed tables. Start queues the same grid on this machine: a sweep of ordinary runs
(`services.experiments.experiment`). Nothing trains in the page; a timer reads the runs' folders every two seconds, so
that every tab shows the grid filling, and neither a reload nor a killed app loses anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import gradio as gr

from sbert_app.figures import ablation as figures_ablation
from sbert_app.pages.ablation import views
from sbert_app.pages.components.events import EVERY, UNQUEUED, Output, follow
from sbert_app.pages.components.messages import error_message, error_of, heading, section
from sbert_app.pages.components.pickers import MODELS, data_choices, open_dropdown
from sbert_app.pages.components.start import Plan, StartForm
from sbert_app.services.background.state import State
from sbert_app.services.container import Services
from sbert_app.services.experiments import statistics
from sbert_app.services.experiments.ablations import ABLATIONS, precomputed
from sbert_app.services.experiments.experiment import SWEEP, ExperimentRecord, Experiments, new_sweep
from sbert_app.services.runs.estimate import RunEstimate
from training.catalogue import DEFAULT_MODEL

OPENING = next(iter(ABLATIONS))
LABELLED_DATA = [
    ("SNLI dev + test (Hub)", "snli:dev+snli:test"),
    *data_choices("all-nli:train"),
    ("STSb, thirds as labels", "stsb:train"),
]
BASES = [*MODELS, "bert-base-uncased"]
STEPS = 200  # per run by default: about a minute on two cores
POLL_SECONDS = 2.0
SHOW_SWEEP = """() => document.getElementById("sweep")?.scrollIntoView({behavior: "smooth", block: "start"})"""


@dataclass(frozen=True)
class Panel:
    """The components of the sweep that is shown; `look` updates them."""

    selected: gr.State  # the id of the sweep that is shown; None: the newest
    picker: gr.Dropdown
    status: gr.HTML
    grid: gr.HTML
    figure: gr.Plot
    table: gr.HTML
    stop: gr.Button
    resume: gr.Button
    delete: gr.Button
    confirm: gr.Button

    @property
    def outputs(self) -> list[Any]:
        """All of them."""
        return [getattr(self, each.name) for each in fields(self)]


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
    inputs = _form(name)
    planned = gr.HTML(elem_id="sweep-plan")
    start = gr.Button("Start", variant="primary", elem_id="start-sweep")
    panel = _panel()
    experiments = Experiments(services.jobs, services.access.check_run)
    form = StartForm(services.jobs.store, inputs, planned, partial(_estimate, experiments))
    _connect(experiments, form, panel, [question, figure, legend, table], start)


def _form(name: gr.Radio) -> list[Any]:
    """The fields of a new sweep, in the order of `_sweep`."""
    with gr.Row():
        seeds = gr.Slider(1, 10, 3, step=1, label="Seeds", info="Runs per variant", min_width=200, elem_id="seeds")
        steps = gr.Number(
            STEPS, label="Steps", info="Per run, of 16 pairs; empty: one epoch", min_width=160, elem_id="steps"
        )
        hint = "What each run starts from; or a Hub id, run:<name>"
        base = open_dropdown("Base", BASES, hint, value=DEFAULT_MODEL, min_width=220, elem_id="sweep-base")
        hint = "Pairs with labels, for the softmax; or type hf:<org>/<name>"
        data = open_dropdown("Training data", LABELLED_DATA, hint, visible=False, min_width=260, elem_id="sweep-data")
    return [name, seeds, steps, base, data]


def _panel() -> Panel:
    with gr.Column(elem_id="sweep"):
        picker = gr.Dropdown([], label="Sweeps of this ablation", visible=False, elem_id="sweeps")
        status = gr.HTML(elem_id="sweep-status")
        with gr.Row(elem_classes="actions"):
            stop = gr.Button("Stop", size="sm", visible=False, elem_id="stop-sweep")
            resume = gr.Button("Resume", size="sm", visible=False, elem_id="resume-sweep")
            delete = gr.Button("Delete", size="sm", visible=False, elem_id="delete-sweep")
            confirm = gr.Button("Delete it and all its runs", size="sm", variant="stop", visible=False)
        grid = gr.HTML(elem_id="grid")
        figure = gr.Plot(show_label=False, visible=False, elem_id="sweep-figure")
        table = gr.HTML(elem_id="sweep-table")
    return Panel(gr.State(None), picker, status, grid, figure, table, stop, resume, delete, confirm)


def _connect(experiments: Experiments, form: StartForm, panel: Panel, about: list[Any], start: gr.Button) -> None:
    """Connect the components with their handlers."""
    name, *others = form.inputs
    timer = gr.Timer(POLL_SECONDS)
    refresh_on = follow(timer, partial(look, experiments, panel), [name, panel.selected], panel.outputs)
    outputs = [*about, *form.inputs[-2:]]
    opened = gr.context.Context.root_block.load(_from_link, None, [name, panel.selected], **UNQUEUED)
    chosen = opened.then(_about, name, outputs, **UNQUEUED)
    refresh_on(chosen.then)
    form.estimate_after(chosen)
    other = name.input(_about, name, outputs, **EVERY)
    refresh_on(other.then(lambda: None, None, panel.selected, **UNQUEUED).then)
    form.estimate_after(other)
    form.estimate_on([each.change for each in others])

    def start_sweep(visitor: str, *values: Any) -> str:
        return experiments.start(_sweep(*values), visitor).id

    refresh_on(form.start_on(start, start_sweep, panel.selected).then).then(None, None, None, js=SHOW_SWEEP)
    refresh_on(panel.picker.input(lambda chosen: chosen, panel.picker, panel.selected, **EVERY).then)
    actions = (panel.stop, experiments.stop), (panel.resume, experiments.resume), (panel.confirm, experiments.delete)
    for button, action in actions:
        refresh_on(button.click(partial(_act, action), panel.selected, panel.status, **UNQUEUED).then)
    panel.delete.click(lambda: gr.update(visible=True), None, panel.confirm, **UNQUEUED)


def _about(name: str) -> list[Any]:
    """The question, the precomputed table with its figure, and the fields that this ablation needs."""
    ablation = ABLATIONS[name]
    varies_base = "base" in ablation.variants[ablation.default].changes
    updates = [gr.update(visible=not varies_base), gr.update(visible=name == "concat")]
    table = precomputed(name)
    if table is None:
        return [views.question(ablation), gr.update(visible=False), "", views.not_measured(ablation), *updates]
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
        *updates,
    ]


def _from_link(request: gr.Request) -> tuple[Any, Any]:
    """/ablation?preset=concat&sweep=<id> opens there."""
    query = request.query_params
    preset = query.get("preset")
    return preset if preset in ABLATIONS else gr.skip(), query.get("sweep") or None


def _sweep(name: str, seeds: float, steps: float | None, base: str | None, data: str) -> ExperimentRecord:
    """The sweep that the form describes."""
    changes: dict[str, Any] = {"max_steps": steps} if steps else {}
    if (base or "").strip() not in ("", DEFAULT_MODEL) and name != "base":
        changes["base"] = (base or "").strip()
    if name == "concat":
        changes["train_data"] = data
    return new_sweep(name, int(seeds), changes)


def _estimate(experiments: Experiments, *values: Any) -> tuple[RunEstimate, Plan]:
    estimate = experiments.estimate(_sweep(*values))
    return next(iter(estimate.estimates.values())), partial(views.planned, estimate)


# ------------------------------------------------------------ the sweep that is shown


def look(experiments: Experiments, panel: Panel, name: str, selected: str | None) -> dict[Any, Output]:
    """The selected sweep of an ablation as it is now; the newest, if none is selected."""
    candidates, damaged = experiments.list(SWEEP, name), experiments.damaged()
    shown = next((each for each in candidates if each.id == selected), candidates[0] if candidates else None)
    if shown is not None and shown.counts[State.QUEUED]:
        experiments.jobs.reconcile()
    sweep_id, running = shown and shown.id, shown is not None and shown.state == State.RUNNING
    choices = [(views.sweep_name(each), each.id) for each in candidates]
    progress = [sweep_id, [f"{cell.state} {cell.share:.3f}" for cell in shown.cells] if shown else []]
    values = sorted((variant, seed, value) for (variant, seed), value in shown.values.items()) if shown else []

    def status() -> str:
        return (views.sweep_status(shown) if shown else "") + "".join(map(error_message, damaged))

    def figure() -> Any:
        drawn = figures_ablation.bars(shown.rows, "this sweep") if shown and values else None
        return gr.update(value=drawn, visible=bool(values))

    return {
        panel.selected: Output(sweep_id),
        panel.picker: Output(gr.update(choices=choices, value=sweep_id, visible=bool(choices))),
        panel.status: Output([progress, list(map(str, damaged))], status),
        panel.grid: Output(progress, lambda: views.grid(shown) if shown else ""),
        panel.figure: Output([sweep_id, values], figure),
        panel.table: Output([sweep_id, values], lambda: views.statistics(shown.rows) if shown and values else ""),
        panel.stop: Output(gr.update(visible=running)),
        panel.resume: Output(gr.update(visible=shown is not None and not running and shown.can_resume)),
        panel.delete: Output(gr.update(visible=shown is not None and not running)),
        panel.confirm: Output((sweep_id, running), gr.update(visible=False)),
    }


def _act(action: Callable[[str], object], selected: str | None) -> Any:
    """Stop, resume or delete the selected sweep. Returns an error message, if there is one."""
    error = error_of(lambda: action(selected) if selected else None)
    return error or gr.skip()
