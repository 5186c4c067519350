"""The sweep that the Ablation page shows: its grid, its figure, its table, and the buttons that act on it.

Every two seconds ``refresh`` reads the runs' folders and sends what has changed: an open tab costs little, nothing
flickers, and every tab shows the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from sbert_app.figures import ablation as figures_ablation
from sbert_app.pages.ablation import views
from sbert_app.pages.components.events import EVERY, UNQUEUED
from sbert_app.pages.components.messages import error_of
from sbert_app.services.experiments.record import Sweep
from sbert_app.services.experiments.sweeps import Sweeps

POLL_SECONDS = 2.0


@dataclass(frozen=True)
class Panel:
    """The components of the sweep."""

    selected: gr.State  # the id of the sweep that is shown; None: the newest
    sent: gr.State  # the version that the browser has
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
        """In the order of `refresh`."""
        return [
            *(self.sent, self.selected, self.picker, self.status, self.grid, self.figure, self.table),
            *(self.stop, self.resume, self.delete, self.confirm),
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
            confirm = gr.Button("Delete it and all its runs", size="sm", variant="stop", visible=False)
        grid = gr.HTML(elem_id="grid")
        figure = gr.Plot(show_label=False, visible=False, elem_id="sweep-figure")
        table = gr.HTML(elem_id="sweep-table")
    return Panel(gr.State(None), gr.State(None), picker, status, grid, figure, table, stop, resume, delete, confirm)


def connect(sweeps: Sweeps, name: gr.Radio, panel: Panel) -> Callable[[Any], Any]:
    """Connect the buttons and the timer with their handlers.

    Args:
        name: the ablation.

    Returns:
        A function that refreshes the panel after a given event.
    """
    inputs = [name, panel.selected, panel.sent]

    def refresh_after(event: Any) -> Any:
        return event.then(partial(refresh, sweeps), inputs, panel.outputs, **UNQUEUED)

    gr.Timer(POLL_SECONDS).tick(partial(refresh, sweeps), inputs, panel.outputs, **UNQUEUED)
    refresh_after(panel.picker.input(lambda chosen: chosen, panel.picker, panel.selected, **EVERY))
    for button, action in ((panel.stop, sweeps.stop), (panel.resume, sweeps.resume), (panel.confirm, sweeps.delete)):
        refresh_after(button.click(partial(_act, action), panel.selected, panel.status, **UNQUEUED))
    panel.delete.click(lambda: gr.update(visible=True), None, panel.confirm, **UNQUEUED)
    return refresh_after


def refresh(sweeps: Sweeps, name: str, selected: str | None, sent: Any) -> list[Any]:
    """An update for each of `Panel.outputs`, if anything has changed since the browser got the version ``sent``."""
    candidates = sweeps.list(name)
    sweep = next((each for each in candidates if each.id == selected), candidates[0] if candidates else None)
    if sweep is not None and sweep.counts["queued"]:
        sweeps.jobs.reconcile()
    choices = [(views.sweep_name(each), each.id) for each in candidates]
    version = [choices, *_version(sweep)]
    if version == sent:
        return [gr.skip() for _ in range(11)]
    if sweep is None:
        hidden = gr.update(visible=False)
        return [version, None, gr.update(choices=[], value=None, visible=False), "", "", hidden, "", *[hidden] * 4]
    rows, running = sweep.rows, sweep.state == "running"
    has_values = bool(sweep.values)
    figure = gr.update(value=figures_ablation.bars(rows, "this sweep") if has_values else None, visible=has_values)
    return [
        version,
        sweep.id,
        gr.update(choices=choices, value=sweep.id, visible=True),
        views.sweep_status(sweep),
        views.grid(sweep),
        gr.skip() if sent and sent[-1] == version[-1] else figure,
        views.statistics(rows) if has_values else "",
        gr.update(visible=running),
        gr.update(visible=not running and sweep.can_resume),
        gr.update(visible=not running),
        gr.update(visible=False),
    ]


def _version(sweep: Sweep | None) -> list[Any]:
    """A value that differs between versions of a sweep; its last part is what the figure shows."""
    if sweep is None:
        return [None, None]
    values = sorted((variant, seed, value) for (variant, seed), value in sweep.values.items())
    return [[f"{cell.state} {cell.share:.3f}" for cell in sweep.cells], [sweep.id, values]]


def _act(action: Callable[[str], object], selected: str | None) -> Any:
    """Stop, resume or delete the selected sweep. Returns an error message, if there is one."""
    error = error_of(lambda: action(selected) if selected else None)
    return error or gr.skip()
