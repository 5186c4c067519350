"""The living half of the Train page: the opened run, its curves, and the list of all runs.

A timer looks once a second. Each part is sent to the browser only when it differs from what the browser has, so a
tab that watches costs little, and nothing flickers. What the buttons do is in `train_actions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple

import gradio as gr

from sbert_app.figures.training import COLOURS, FIGURES, Curve
from sbert_app.pages.train import views
from sbert_app.services.container import Services
from sbert_app.services.experiments.precomputed import precomputed
from sbert_app.services.runs.record import AT_WORK, Run

QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "queue": False}

# A name opens a run, a tick overlays it. The list is drawn anew when it changes: the focus finds its place again.
LIST_JS = """
let focused = null;
element.addEventListener("focusin", (event) => { focused = event.target.dataset.key || null; });
element.addEventListener("click", (event) => {
  const name = event.target.closest("[data-open]");
  if (name) trigger("open_run", {run: name.dataset.open});
});
element.addEventListener("change", (event) => {
  const tick = event.target.dataset.overlay;
  if (tick) trigger("overlay_run", {run: tick, on: event.target.checked});
});
watch("value", () => {
  if (focused && document.activeElement === document.body)
    element.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({preventScroll: true});
});
"""


@dataclass(frozen=True)
class Panel:
    """The components of the living half."""

    opened: gr.State  # the id of the run that was opened; "" follows the one at work, else the newest
    ticked: gr.State  # ids whose curves are overlaid
    shown: gr.State  # what the browser has: a stamp by part
    current: gr.State  # the id of the run that is seen, "" before the first
    status: gr.HTML
    stop: gr.Button
    resume: gr.Button
    export: gr.Button
    download: gr.DownloadButton
    trouble: gr.HTML
    measure: gr.Plot
    loss: gr.Plot
    random: gr.Plot
    more: gr.Accordion
    name: gr.Textbox
    rename: gr.Button
    delete: gr.Button
    confirm: gr.Group
    really: gr.Button
    keep: gr.Button
    log: gr.HTML
    runs: gr.HTML


# The parts that `look` tells of, in this order.
PARTS = ("current", "status", "stop", "resume", "export", "delete", "more", "name", "log", "runs", *FIGURES)


class Part(NamedTuple):
    """One part of the page: what tells its versions apart, and the update that shows it."""

    stamp: Any
    update: Callable[[], Any]


def build_layout() -> Panel:
    """The components, inside the open column: the opened run, then the list of all."""
    parts: dict[str, Any] = {"status": gr.HTML(elem_id="run-status")}
    with gr.Row(elem_classes="actions"):
        parts["stop"] = gr.Button("Stop", size="sm", visible=False, elem_id="stop-run")
        parts["resume"] = gr.Button("Resume", size="sm", visible=False, elem_id="resume-run")
        parts["export"] = gr.Button("Export as zip", size="sm", visible=False, elem_id="export-run")
        parts["download"] = gr.DownloadButton("Download", size="sm", visible=False, elem_id="download-run")
    parts["trouble"] = gr.HTML(elem_id="run-trouble")
    parts["measure"] = gr.Plot(show_label=False, visible=False, elem_id="curve-measure")
    with gr.Row():
        parts["loss"] = gr.Plot(show_label=False, visible=False, min_width=280, elem_id="curve-loss")
        parts["random"] = gr.Plot(show_label=False, visible=False, min_width=280, elem_id="curve-random")
    with gr.Accordion("Rename, delete, log", open=False, visible=False) as parts["more"]:
        with gr.Row(equal_height=True):
            parts["name"] = gr.Textbox(label="Name", scale=3, elem_id="new-name")
            parts["rename"] = gr.Button("Rename", size="sm", elem_id="rename-run")
            parts["delete"] = gr.Button("Delete…", size="sm", visible=False, elem_id="delete-run")
        with gr.Group(visible=False) as parts["confirm"]:
            gr.HTML("<p class='note pad'>Delete this run and its model? It cannot be brought back.</p>")
            with gr.Row():
                parts["really"] = gr.Button("Delete for good", variant="stop", size="sm", elem_id="delete-really")
                parts["keep"] = gr.Button("Keep it", size="sm")
        parts["log"] = gr.HTML(elem_id="run-log")
    gr.HTML('<h2 class="section">All runs</h2>')
    parts["runs"] = gr.HTML(js_on_load=LIST_JS, elem_id="run-list")
    parts |= {"opened": gr.State(""), "ticked": gr.State([]), "shown": gr.State({}), "current": gr.State("")}
    return Panel(**{field.name: parts[field.name] for field in fields(Panel)})


def look_on(services: Services, panel: Panel, event: Callable[..., Any]) -> Any:
    """Look whenever ``event`` (a timer's tick, another event's then) happens."""
    outputs = [getattr(panel, name) for name in PARTS]
    inputs = [panel.opened, panel.ticked, panel.shown]
    return event(partial(look, services), inputs, [*outputs, panel.shown], **QUIET)


def look(services: Services, opened: str, ticked: Sequence[str], shown: dict[str, Any]) -> list[Any]:
    """What has changed since the browser was last told: an update for each of `PARTS`, and what it has now."""
    parts = _parts(services, opened, ticked)
    stamps = {name: parts[name].stamp for name in PARTS}
    if stamps == shown:
        return [gr.skip() for _ in (*PARTS, "shown")]
    updates = [gr.skip() if name in shown and shown[name] == stamps[name] else parts[name].update() for name in PARTS]
    return [*updates, stamps]


def _parts(services: Services, opened: str, ticked: Sequence[str]) -> dict[str, Part]:
    """Every part as it is now."""
    store = services.jobs.store
    runs = store.list()
    if any(run.state == "queued" for run in runs):
        services.jobs.reconcile()
    run = pick(runs, opened)
    drawn = _drawn(runs, run, ticked)
    curves = [_curve(services, each, COLOURS[i]) for i, each in enumerate(drawn)]
    colours = {each.id: COLOURS[i] for i, each in enumerate(drawn)}
    version = [(curve.name, curve.colour, len(curve.events), curve.events[-1:]) for curve in curves]
    current = run.id if run else ""
    return {
        "current": Part(current, lambda: current),
        "status": _text(_status(services, run, runs)),
        "runs": _text(views.run_list(runs, current, colours)),
        "log": _text(views.log_view(store.log(run.id)) if run else ""),
        "name": Part((run.id, run.name) if run else None, lambda: run.name if run else ""),
        **{name: _visible(yes) for name, yes in views.can(run).items()},
        **{name: Part(version, partial(_draw, name, curves)) for name in FIGURES},
    }


def pick(runs: Sequence[Run], opened: str) -> Run | None:
    """The run that was opened; else the one at work; else the newest."""
    by_id = [run for run in runs if run.id == opened]
    at_work = [run for run in runs if run.state == "running"] or [run for run in runs if run.state in AT_WORK]
    return next(iter([*by_id, *at_work, *runs]), None)


def _drawn(runs: Sequence[Run], opened: Run | None, ticked: Sequence[str]) -> list[Run]:
    """The runs whose curves are drawn: the opened one first, then the ticked ones."""
    others = [run for run in runs if run.id in ticked and run is not opened]
    return [*([opened] if opened else []), *others][: len(COLOURS)]


def _curve(services: Services, run: Run, colour: str) -> Curve:
    events = services.jobs.store.events(run.id)
    return Curve(run.name, colour, events, run.progress.steps, run.progress.measure)


def _status(services: Services, run: Run | None, runs: Sequence[Run]) -> str:
    if run is None:
        return views.nothing_yet(precomputed("pooling"))
    before = [other for other in runs if other.state in AT_WORK and other.record.created < run.record.created]
    return views.status(run, len(before))


def _draw(name: str, curves: Sequence[Curve]) -> Any:
    return gr.update(value=FIGURES[name](curves), visible=True) if curves else gr.update(value=None, visible=False)


def _text(html: str) -> Part:
    return Part(hash(html), lambda: html)


def _visible(yes: bool) -> Part:
    return Part(yes, lambda: gr.update(visible=yes))
