"""The sweep that the Ablation page shows: its grid, its figure, its table, and what may be done to it.

``look`` reads the folders and tells the browser what has changed, two seconds after two seconds: so a tab that watches
costs little, nothing flickers, and every tab sees the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from sbert_app.figures import ablation as figures_ablation
from sbert_app.pages.ablation import views
from sbert_app.pages.components.messages import error_message
from sbert_app.services.experiments.record import Sweep
from sbert_app.services.experiments.sweeps import Sweeps
from training.errors import UserFacingError

POLL_SECONDS = 2.0
QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "queue": False}


@dataclass(frozen=True)
class Panel:
    """The components."""

    seen: gr.State  # the id of the sweep that was chosen; None sees the newest
    shown: gr.State  # a stamp of what the browser has
    picker: gr.Dropdown
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
        """In the order of `look`."""
        return [
            *(self.shown, self.seen, self.picker, self.status, self.grid, self.figure, self.table),
            *(self.stop, self.resume, self.delete, self.really),
        ]


def build_layout() -> Panel:
    """The components, inside the open Blocks."""
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
    return Panel(gr.State(None), gr.State(None), picker, status, grid, figure, table, stop, resume, delete, really)


def wire(sweeps: Sweeps, name: gr.Radio, panel: Panel) -> Callable[[Any], Any]:
    """Connect the buttons and the timer. ``name`` is the ablation. Returns: look after this event."""
    inputs = [name, panel.seen, panel.shown]

    def then_look(event: Any) -> Any:
        return event.then(partial(look, sweeps), inputs, panel.outputs, **QUIET)

    gr.Timer(POLL_SECONDS).tick(partial(look, sweeps), inputs, panel.outputs, **QUIET)
    then_look(panel.picker.input(lambda chosen: chosen, panel.picker, panel.seen, **QUIET))
    for button, act in ((panel.stop, sweeps.stop), (panel.resume, sweeps.resume), (panel.really, sweeps.delete)):
        then_look(button.click(partial(_act, act), panel.seen, panel.status, **QUIET))
    panel.delete.click(lambda: gr.update(visible=True), None, panel.really, **QUIET)
    return then_look


def look(sweeps: Sweeps, name: str, seen: str | None, shown: Any) -> list[Any]:
    """What has changed since the browser was last told; without a choice the newest sweep of the ablation."""
    found = sweeps.list(name)
    sweep = next((each for each in found if each.id == seen), found[0] if found else None)
    if sweep is not None and sweep.counts["queued"]:
        sweeps.jobs.reconcile()
    choices = [(views.sweep_name(each), each.id) for each in found]
    stamp = [choices, *_stamp(sweep)]
    if stamp == shown:
        return [gr.skip() for _ in range(11)]
    if sweep is None:
        hidden = gr.update(visible=False)
        return [stamp, None, gr.update(choices=[], value=None, visible=False), "", "", hidden, "", *[hidden] * 4]
    rows, running = sweep.rows, sweep.state == "running"
    has_values = bool(sweep.values)
    figure = gr.update(value=figures_ablation.bars(rows, "this sweep") if has_values else None, visible=has_values)
    return [
        stamp,
        sweep.id,
        gr.update(choices=choices, value=sweep.id, visible=True),
        views.sweep_status(sweep),
        views.grid(sweep),
        gr.skip() if shown and shown[-1] == stamp[-1] else figure,
        views.statistics(rows) if has_values else "",
        gr.update(visible=running),
        gr.update(visible=not running and sweep.can_resume),
        gr.update(visible=not running),
        gr.update(visible=False),
    ]


def _stamp(sweep: Sweep | None) -> list[Any]:
    """What tells two looks at a sweep apart; the last part is what the figure shows."""
    if sweep is None:
        return [None, None]
    values = sorted((variant, seed, value) for (variant, seed), value in sweep.values.items())
    return [[f"{cell.state} {cell.share:.3f}" for cell in sweep.cells], [sweep.id, values]]


def _act(act: Callable[[str], object], seen: str | None) -> Any:
    """Stop, resume or delete the sweep that is seen -> a problem, if there is one."""
    try:
        if seen:
            act(seen)
    except UserFacingError as error:
        return error_message(error)
    return gr.skip()
