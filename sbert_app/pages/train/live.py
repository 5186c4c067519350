"""The live half of the Train page: the opened run, its curves, and the list of all runs.

A timer refreshes it once a second (`events.follow`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import gradio as gr

from sbert_app.figures.training import COLOURS, FIGURES, Curve
from sbert_app.formats import format_count
from sbert_app.pages.components.events import UNQUEUED, Output, follow
from sbert_app.pages.components.messages import error_message, error_of, note, section
from sbert_app.pages.train import runs as views
from sbert_app.services.background.state import AT_WORK, State
from sbert_app.services.container import Services
from sbert_app.services.experiments.ablations import precomputed
from sbert_app.services.experiments.experiment import matches, run_groups
from sbert_app.services.runs.export import export, push
from sbert_app.services.runs.record import Run
from training.errors import UserFacingError
from training.names import ModelName

# A name opens a run, a tick overlays it. When the list is rendered anew, the focus returns to its element.
LIST_JS = """
let focused = null;
element.addEventListener("focusin", (event) => { focused = event.target.dataset.key || null; });
element.addEventListener("click", (event) => {
  const name = event.target.closest("[data-open]"), group = event.target.closest("[data-group]");
  if (name) trigger("open_run", {run: name.dataset.open});
  if (group) trigger("open_group", {name: group.dataset.group});
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

# The address names the run that is shown. A state has no value in the browser: the card has the id.
REMEMBER_RUN = """() => {
  const run = document.querySelector("#run-status [data-run]")?.dataset.run;
  window.history.replaceState(null, "", window.location.pathname + (run ? "?run=" + encodeURIComponent(run) : ""));
}"""
FORGET_RUN = """() => window.history.replaceState(null, "", window.location.pathname)"""
# The zip is offered as a download button; it is clicked for the user as soon as it is ready.
CLICK_DOWNLOAD = """() => {
  let tries = 100;
  const press = () => {
    const button = document.querySelector("#download-run");
    if (button?.innerText.includes("MB")) button.click();
    else if (tries-- > 0) setTimeout(press, 100);
  };
  press();
}"""


@dataclass(frozen=True)
class Panel:
    """The components of the live half."""

    opened: gr.State  # the id of the run that was opened; "" follows the one at work, else the newest
    overlaid: gr.State  # ids of the runs whose curves are overlaid
    current: gr.State  # the id of the run that is shown, "" before the first
    status: gr.HTML
    stop: gr.Button
    resume: gr.Button
    export: gr.Button
    download: gr.DownloadButton
    error: gr.HTML
    measure: gr.Plot
    loss: gr.Plot
    random: gr.Plot
    more: gr.Accordion
    name: gr.Textbox
    rename: gr.Button
    delete: gr.Button
    confirmation: gr.Group
    confirm: gr.Button
    cancel: gr.Button
    push_repo: gr.Textbox
    push_token: gr.Textbox
    push: gr.Button
    pushed: gr.HTML
    log: gr.HTML
    list_tools: gr.Row  # above the list: not there while there is no run
    filter: gr.Textbox
    delete_listed: gr.Button
    listed: gr.HTML  # what would be deleted
    listed_confirmation: gr.Group
    confirm_listed: gr.Button
    cancel_listed: gr.Button
    runs: gr.HTML


# The components that `look` updates.
OUTPUTS = (
    *("current", "status", "stop", "resume", "export", "delete", "more", "name", "log", "list_tools", "runs"),
    *FIGURES,
)


def build_layout() -> Panel:
    """The components, inside the open column: the opened run, then the list of all."""
    parts: dict[str, Any] = {"status": gr.HTML(elem_id="run-status")}
    with gr.Row(elem_classes="actions"):
        parts["stop"] = gr.Button("Stop", size="sm", visible=False, elem_id="stop-run")
        parts["resume"] = gr.Button("Resume", size="sm", visible=False, elem_id="resume-run")
        parts["export"] = gr.Button("Export as zip", size="sm", visible=False, elem_id="export-run")
        parts["download"] = gr.DownloadButton("Download", size="sm", visible=False, elem_id="download-run")
    parts["error"] = gr.HTML(elem_id="run-error")
    parts["measure"] = gr.Plot(show_label=False, visible=False, elem_id="curve-measure")
    with gr.Row():
        parts["loss"] = gr.Plot(show_label=False, visible=False, min_width=280, elem_id="curve-loss")
        parts["random"] = gr.Plot(show_label=False, visible=False, min_width=280, elem_id="curve-random")
    with gr.Accordion("Rename, delete, push to the Hub, log", open=False, visible=False) as parts["more"]:
        with gr.Row(equal_height=True):
            parts["name"] = gr.Textbox(label="Name", scale=3, elem_id="new-name")
            parts["rename"] = gr.Button("Rename", size="sm", elem_id="rename-run")
            parts["delete"] = gr.Button("Delete…", size="sm", visible=False, elem_id="delete-run")
        with gr.Group(visible=False) as parts["confirmation"]:
            gr.HTML(note("Delete this run and its model? This cannot be undone."), elem_classes="pad")
            with gr.Row():
                parts["confirm"] = gr.Button("Delete permanently", variant="stop", size="sm", elem_id="confirm-delete")
                parts["cancel"] = gr.Button("Cancel", size="sm")
        with gr.Row(equal_height=True):
            parts["push_repo"] = gr.Textbox(
                label="Push to the Hub", info="org/name; private if it is new", max_lines=1, elem_id="push-repo"
            )
            parts["push_token"] = gr.Textbox(
                label="Token", info="With the right to write; it is not kept", type="password", elem_id="push-token"
            )
            parts["push"] = gr.Button("Push", size="sm", elem_id="push-run")
        parts["pushed"] = gr.HTML(elem_id="pushed-run")
        parts["log"] = gr.HTML(elem_id="run-log")
    gr.HTML(section("All runs"))
    with gr.Row(equal_height=True, visible=False, elem_classes="list-tools") as parts["list_tools"]:
        parts["filter"] = gr.Textbox(
            placeholder="Filter by name, id, state, objective, base, data",
            show_label=False,
            container=False,
            scale=4,
            elem_id="filter-runs",
        )
        parts["delete_listed"] = gr.Button("Delete those listed…", size="sm", scale=1, elem_id="delete-listed")
    with gr.Group(visible=False) as parts["listed_confirmation"]:
        parts["listed"] = gr.HTML(elem_classes="pad")
        with gr.Row():
            parts["confirm_listed"] = gr.Button(
                "Delete permanently", variant="stop", size="sm", elem_id="confirm-delete-listed"
            )
            parts["cancel_listed"] = gr.Button("Cancel", size="sm")
    parts["runs"] = gr.HTML(js_on_load=LIST_JS, elem_id="run-list")
    parts |= {"opened": gr.State(""), "overlaid": gr.State([]), "current": gr.State("")}
    return Panel(**{field.name: parts[field.name] for field in fields(Panel)})


def select_run(runs: Sequence[Run], opened: str) -> Run | None:
    """The run that was opened; else the one at work; else the newest."""
    by_id = [run for run in runs if run.id == opened]
    at_work = [run for run in runs if run.state == State.RUNNING] or [run for run in runs if run.state in AT_WORK]
    return next(iter([*by_id, *at_work, *runs]), None)


def listed_runs(services: Services, runs: Sequence[Run], wanted: str) -> list[Run]:
    """The runs that the filter lets through."""
    groups = run_groups(services.jobs.store.home)
    return [run for run in runs if matches(run, groups.get(run.id), wanted or "")]


def _list(services: Services, runs: Sequence[Run], current: str, colours: dict[str, str], wanted: str) -> str:
    """The list: without a filter, the runs of an experiment are one row."""
    shown = listed_runs(services, runs, wanted)
    folded = {} if (wanted or "").strip() else run_groups(services.jobs.store.home)
    problems = "".join(map(error_message, services.jobs.store.damaged()))
    return problems + views.run_list(shown, current, colours, folded, hidden=len(runs) - len(shown))


def look(services: Services, opened: str, overlaid: Sequence[str], wanted: str = "") -> dict[str, Output]:
    """Every component of `OUTPUTS` as it is now; ``wanted`` is the filter of the list."""
    store = services.jobs.store
    runs = store.list()
    if any(run.state == State.QUEUED for run in runs):
        services.jobs.reconcile()
    run = select_run(runs, opened)
    drawn = _drawn(runs, run, overlaid)
    curves = [_curve(services, each, COLOURS[i]) for i, each in enumerate(drawn)]
    colours = {each.id: COLOURS[i] for i, each in enumerate(drawn)}
    version = [(curve.name, curve.colour, len(curve.events), curve.events[-1:]) for curve in curves]
    current = run.id if run else ""
    return {
        "current": Output(current),
        "status": Output(_status(run, runs)),
        "runs": Output(_list(services, runs, current, colours, wanted)),
        "list_tools": _visibility(bool(runs)),
        "log": Output(views.log(store.log(run.id)) if run else ""),
        "name": Output((run.id, run.name) if run else None, run.name if run else ""),
        **{name: _visibility(possible) for name, possible in views.possible_actions(run).items()},
        **{name: Output(version, partial(_draw, name, curves)) for name in FIGURES},
    }


def _drawn(runs: Sequence[Run], opened: Run | None, overlaid: Sequence[str]) -> list[Run]:
    """The runs whose curves are drawn: the opened one first, then the overlaid ones."""
    others = [run for run in runs if run.id in overlaid and run is not opened]
    return [*([opened] if opened else []), *others][: len(COLOURS)]


def _curve(services: Services, run: Run, colour: str) -> Curve:
    events = services.jobs.store.events(run.id)
    return Curve(run.name, colour, events, run.progress.steps, run.progress.measure)


def _status(run: Run | None, runs: Sequence[Run]) -> str:
    if run is None:
        return views.no_runs(precomputed("pooling"))
    ahead = [other for other in runs if other.state in AT_WORK and other.record.created < run.record.created]
    return views.status(run, len(ahead))


def _draw(name: str, curves: Sequence[Curve]) -> Any:
    return gr.update(value=FIGURES[name](curves), visible=True) if curves else gr.update(value=None, visible=False)


def _visibility(visible: bool) -> Output:
    return Output(visible, gr.update(visible=visible))


# ---------------------------------------------------------------- what the buttons and the list do


def connect(services: Services, panel: Panel) -> Callable[..., Any]:
    """Connect the timer, the list and the buttons with their handlers. Returns what refreshes the panel at an event."""

    def components(*values: Any) -> dict[Any, Output]:
        return {getattr(panel, name): output for name, output in look(services, *values).items()}

    outputs = [getattr(panel, name) for name in OUTPUTS]
    refresh_on = follow(gr.Timer(1.0), components, [panel.opened, panel.overlaid, panel.filter], outputs)
    refresh_on(gr.context.Context.root_block.load(_from_link, None, panel.opened, **UNQUEUED).then)
    _connect_list(services, panel, refresh_on)
    _connect_buttons(services, panel, refresh_on)
    return refresh_on


def _connect_list(services: Services, panel: Panel, refresh_on: Callable[..., Any]) -> None:
    chosen = panel.runs.open_run(_open_run, None, [panel.opened, panel.error, panel.download], **UNQUEUED)
    refresh_on(chosen.then).then(None, None, None, js=REMEMBER_RUN)
    refresh_on(panel.runs.open_group(_open_group, None, panel.filter, **UNQUEUED).then)
    refresh_on(panel.filter.change)
    panel.delete_listed.click(
        partial(_ask_to_delete_listed, services), panel.filter, [panel.listed, panel.listed_confirmation], **UNQUEUED
    )
    panel.cancel_listed.click(lambda: gr.update(visible=False), None, panel.listed_confirmation, **UNQUEUED)
    deleted = panel.confirm_listed.click(
        partial(_delete_listed, services),
        panel.filter,
        [panel.error, panel.opened, panel.listed_confirmation],
        **UNQUEUED,
    )
    refresh_on(deleted.then)
    deleted.then(None, None, None, js=FORGET_RUN)
    refresh_on(panel.runs.overlay_run(_overlay, panel.overlaid, panel.overlaid, **UNQUEUED).then)


def _connect_buttons(services: Services, panel: Panel, refresh_on: Callable[..., Any]) -> None:
    for button, action in ((panel.stop, _stop), (panel.resume, _resume)):
        clicked = button.click(partial(action, services), panel.current, panel.error, **UNQUEUED)
        refresh_on(clicked.then)
    for event in (panel.rename.click, panel.name.submit):
        renamed = event(partial(_rename, services), [panel.current, panel.name], panel.error, **UNQUEUED)
        refresh_on(renamed.then)
    panel.delete.click(lambda: gr.update(visible=True), None, panel.confirmation, **UNQUEUED)
    panel.cancel.click(lambda: gr.update(visible=False), None, panel.confirmation, **UNQUEUED)
    deleted = panel.confirm.click(
        partial(_delete, services), panel.current, [panel.error, panel.opened, panel.confirmation], **UNQUEUED
    )
    refresh_on(deleted.then)
    deleted.then(None, None, None, js=FORGET_RUN)
    panel.push.click(
        partial(_push, services),
        [panel.current, panel.push_repo, panel.push_token],
        [panel.pushed, panel.push_token],
        api_visibility="private",
        show_progress_on=panel.pushed,
    )
    panel.export.click(lambda: gr.update(visible=False), None, panel.download, **UNQUEUED).then(
        partial(_export, services),
        panel.current,
        [panel.error, panel.download],
        api_visibility="private",
        show_progress_on=panel.error,
    ).success(None, None, None, js=CLICK_DOWNLOAD)


def _from_link(request: gr.Request) -> str:
    """The run that the address names."""
    return request.query_params.get("run", "")


def _open_run(event: gr.EventData) -> tuple[str, str, Any]:
    return event.run, "", gr.update(visible=False)


def _open_group(event: gr.EventData) -> str:
    """The filter that shows the runs of an experiment."""
    return event.name


def _deletable(services: Services, wanted: str) -> list[Run]:
    """The listed runs that are not at work."""
    runs = listed_runs(services, services.jobs.store.list(), wanted)
    return [run for run in runs if run.state not in AT_WORK]


def _ask_to_delete_listed(services: Services, wanted: str) -> tuple[str, Any]:
    runs = _deletable(services, wanted)
    if not runs:
        return note("No run is listed that could be deleted."), gr.update(visible=True)
    what = "all runs" if not wanted.strip() else f"the runs that match “{wanted.strip()}”"
    return (
        note(f"Delete {what}, {format_count(len(runs), 'run')} and their models? This cannot be undone."),
        gr.update(visible=True),
    )


def _delete_listed(services: Services, wanted: str) -> tuple[str, str, Any]:
    errors = ""
    for run in _deletable(services, wanted):
        errors = errors or error_of(partial(services.jobs.store.delete, run.id))
        services.models.forget(ModelName.of_run(run.id))
    return errors, "", gr.update(visible=False)


def _overlay(overlaid: list[str], event: gr.EventData) -> list[str]:
    others = [run_id for run_id in overlaid if run_id != event.run]
    return [*others, event.run][-len(COLOURS) :] if event.on else others


def _stop(services: Services, run_id: str) -> str:
    return error_of(lambda: services.jobs.store.stop(run_id))


def _resume(services: Services, run_id: str) -> str:
    services.models.forget(ModelName.of_run(run_id))  # its model will change
    return error_of(lambda: services.jobs.resume(run_id))


def _rename(services: Services, run_id: str, name: str) -> str:
    return error_of(lambda: services.jobs.store.rename(run_id, name))


def _delete(services: Services, run_id: str) -> tuple[str, str, Any]:
    error = error_of(lambda: services.jobs.store.delete(run_id))
    services.models.forget(ModelName.of_run(run_id))
    return error, "", gr.update(visible=False)


def _push(services: Services, run_id: str, repo: str, token: str) -> tuple[Any, str]:
    """Push the model; the token's field is emptied in any case."""
    try:
        address = push(services.jobs.store, run_id, repo, token)
    except UserFacingError as error:
        return error_message(error), ""
    return note(f"Pushed to {address}"), ""


def _export(services: Services, run_id: str) -> tuple[str, Any]:
    try:
        file = export(services.jobs.store, run_id, services.temp.results("exports"))
    except UserFacingError as error:
        return error_message(error), gr.update(visible=False)
    size = file.stat().st_size / 1e6
    return "", gr.update(value=str(file), label=f"{file.name}, {size:,.0f} MB", visible=True)
