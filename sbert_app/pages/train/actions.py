"""What the buttons and the list in the live half of the Train page do."""

from __future__ import annotations

from functools import partial
from typing import Any

import gradio as gr

from sbert_app.figures.training import COLOURS
from sbert_app.formats import format_count
from sbert_app.pages.components.events import UNQUEUED
from sbert_app.pages.components.messages import error_message, error_of, note
from sbert_app.pages.train.live import Panel, listed_runs, refresh_on
from sbert_app.services.container import Services
from sbert_app.services.runs.export import export
from sbert_app.services.runs.hub import push
from sbert_app.services.runs.record import AT_WORK, Run
from training.errors import UserFacingError

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


def connect(services: Services, panel: Panel) -> None:
    """Connect the timer, the list and the buttons with their handlers."""
    refresh_on(services, panel, gr.Timer(1.0).tick)
    refresh_on(services, panel, gr.context.Context.root_block.load(_from_link, None, panel.opened, **UNQUEUED).then)
    _connect_list(services, panel)
    _connect_buttons(services, panel)


def _connect_list(services: Services, panel: Panel) -> None:
    chosen = panel.runs.open_run(_open_run, None, [panel.opened, panel.error, panel.download], **UNQUEUED)
    refresh_on(services, panel, chosen.then).then(None, None, None, js=REMEMBER_RUN)
    refresh_on(services, panel, panel.runs.open_group(_open_group, None, panel.filter, **UNQUEUED).then)
    refresh_on(services, panel, panel.filter.change)
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
    refresh_on(services, panel, deleted.then)
    deleted.then(None, None, None, js=FORGET_RUN)
    refresh_on(services, panel, panel.runs.overlay_run(_overlay, panel.overlaid, panel.overlaid, **UNQUEUED).then)


def _connect_buttons(services: Services, panel: Panel) -> None:
    for button, action in ((panel.stop, _stop), (panel.resume, _resume)):
        clicked = button.click(partial(action, services), panel.current, panel.error, **UNQUEUED)
        refresh_on(services, panel, clicked.then)
    for event in (panel.rename.click, panel.name.submit):
        renamed = event(partial(_rename, services), [panel.current, panel.name], panel.error, **UNQUEUED)
        refresh_on(services, panel, renamed.then)
    panel.delete.click(lambda: gr.update(visible=True), None, panel.confirmation, **UNQUEUED)
    panel.cancel.click(lambda: gr.update(visible=False), None, panel.confirmation, **UNQUEUED)
    deleted = panel.confirm.click(
        partial(_delete, services), panel.current, [panel.error, panel.opened, panel.confirmation], **UNQUEUED
    )
    refresh_on(services, panel, deleted.then)
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
        services.models.forget(f"run:{run.id}")
    return errors, "", gr.update(visible=False)


def _overlay(overlaid: list[str], event: gr.EventData) -> list[str]:
    others = [run_id for run_id in overlaid if run_id != event.run]
    return [*others, event.run][-len(COLOURS) :] if event.on else others


def _stop(services: Services, run_id: str) -> str:
    return error_of(lambda: services.jobs.stop(run_id))


def _resume(services: Services, run_id: str) -> str:
    services.models.forget(f"run:{run_id}")  # its model will change
    return error_of(lambda: services.jobs.resume(run_id))


def _rename(services: Services, run_id: str, name: str) -> str:
    return error_of(lambda: services.jobs.store.rename(run_id, name))


def _delete(services: Services, run_id: str) -> tuple[str, str, Any]:
    error = error_of(lambda: services.jobs.store.delete(run_id))
    services.models.forget(f"run:{run_id}")
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
