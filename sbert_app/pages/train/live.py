"""The live half of the Train page: the open run, its curves, and the list of all runs, which follow their progress."""

from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import gradio as gr

from sbert_app.figures.training import FIGURES, MOST_CURVES, Curve, curves_of
from sbert_app.formats import format_count
from sbert_app.pages.components.events import Output, event_options, follow, on_open, run_js
from sbert_app.pages.components.measure_tab import hidden, visible
from sbert_app.pages.components.messages import error_message, error_of, note, section, waiting
from sbert_app.pages.components.report import report_button
from sbert_app.pages.train.runs import log, no_runs, run_list, run_report, state_label, status
from sbert_app.services.background.watch import AT_WORK, State
from sbert_app.services.container import Services
from sbert_app.services.experiments.ablations import precomputed
from sbert_app.services.experiments.groups import matches, run_groups
from sbert_app.services.runs.archives import export, push
from sbert_app.services.runs.record import Run, RunNotFoundError
from sbert_app.services.runs.store import PAGE
from training.catalogue import read_asset
from training.errors import UserFacingError
from training.names import ModelName

REMEMBER_RUN = "() => window.rememberRun()"
# The seconds between two looks at the runs: while a run is at work, and while all are idle.
BUSY_SECONDS = 1.0
IDLE_SECONDS = 4.0
FORGET_RUN = """() => window.showAddress(window.location.pathname)"""
KEEP_OVERLAID = """() => {
  const ticked = document.querySelectorAll("#run-list tr:not(.open) [data-overlay]:checked");
  window.nameInAddress(["overlay"], [[...ticked].map((tick) => tick.dataset.overlay).join(",")]);
}"""


class RunPanel:
    """The open run with its curves and buttons, the list of all runs, and their event handlers.

    Attributes:
        store: the stored runs.
        figures: the plots of the curves, by the keys of `FIGURES`.
        more: the fold with the rarely used buttons and the log of the open run.
        list_tools: the filter of the list and the button that deletes the listed runs.
    """

    def __init__(self, services: Services) -> None:
        """Builds the components inside the open column: the open run, then the list of all runs."""
        self.services = services
        self.store = services.jobs.store
        self.timer = gr.Timer(BUSY_SECONDS)
        # The id of the run that the user opened; with "" the page follows the run at work, or else
        # shows the newest run.
        self.selected = gr.State("")
        # The ids of the runs whose curves are overlaid.
        self.overlaid = gr.State([])
        # The id of the run on the page; "" before the first run.
        self.current = gr.State("")
        # The number of running runs. When it changes, the speed of a new run may be known. This is
        # not a gr.State, because events outside of the queue do not report changes of a state.
        self.running = gr.HTML("0", visible="hidden")
        self.status = gr.HTML(elem_id="run-status")
        with gr.Row(elem_classes="actions"):
            self.stop = gr.Button("Stop", size="sm", visible=False, elem_id="stop-run")
            self.resume = gr.Button("Resume", size="sm", visible=False, elem_id="resume-run")
            self.export = gr.Button("Export as zip", size="sm", visible=False, elem_id="export-run")
            make = partial(run_report, self.store)
            self.report = report_button(services, make, [self.current], "run", visible=False)
            self.download = gr.DownloadButton(
                "Download", size="sm", visible=False, elem_id="download-run"
            )
        self.error = gr.HTML(elem_id="run-error")
        self.figures = {
            "measure": gr.Plot(show_label=False, visible=False, elem_id="curve-measure")
        }
        with gr.Row():
            for name in ("loss", "random"):
                self.figures[name] = gr.Plot(
                    show_label=False, visible=False, min_width=280, elem_id=f"curve-{name}"
                )
        with gr.Accordion(
            "Rename, delete, push to the Hub, log", open=False, visible=False
        ) as self.more:
            with gr.Row(equal_height=True):
                self.name = gr.Textbox(label="Name", scale=3, elem_id="new-name")
                self.rename = gr.Button("Rename", size="sm", elem_id="rename-run")
                self.delete = gr.Button("Delete…", size="sm", visible=False, elem_id="delete-run")
            question = note("Delete this run and its model? This cannot be undone.")
            self.confirmation, _, self.confirm = _confirmation(question, "confirm-delete")
            with gr.Row(equal_height=True):
                hint = "org/name; private if it is new"
                self.push_repo = gr.Textbox(
                    label="Push to the Hub", info=hint, max_lines=1, elem_id="push-repo"
                )
                hint = "With the right to write; it is not kept"
                self.push_token = gr.Textbox(
                    label="Token", info=hint, type="password", elem_id="push-token"
                )
                self.push = gr.Button("Push", size="sm", elem_id="push-run")
            self.pushed = gr.HTML(elem_id="pushed-run")
            self.log = gr.HTML(elem_id="run-log")
        gr.HTML(section("All runs"))
        # The tools are hidden until there is a run.
        with gr.Row(equal_height=True, visible=False, elem_classes="list-tools") as self.list_tools:
            self.filter = gr.Textbox(
                placeholder="Filter by name, id, state, objective, base, data",
                label="Filter of the runs",
                show_label=False,
                container=False,
                scale=4,
                elem_id="filter-runs",
            )
            self.delete_listed = gr.Button(
                "Delete the listed runs…", size="sm", scale=1, elem_id="delete-listed"
            )
        # The question names the runs, so it is written when it is asked.
        self.listed_confirmation, self.listed_question, self.confirm_listed = _confirmation(
            "", "confirm-delete-listed"
        )
        self.runs = gr.HTML(
            waiting("Reading the runs …"), js_on_load=read_asset("train.js"), elem_id="run-list"
        )

    def wire(self) -> Callable[..., Any]:
        """Connects the timer, the list and the buttons. Returns a function that refreshes the panel at an event."""
        outputs = [
            self.current,
            self.status,
            self.stop,
            self.resume,
            self.export,
            self.report,
            self.delete,
            self.more,
            self.name,
            self.log,
            self.list_tools,
            self.runs,
            self.running,
            self.timer,
            *self.figures.values(),
        ]
        refresh_on = follow(
            self.timer, self.look, [self.selected, self.overlaid, self.filter], outputs
        )

        def open_link(request: gr.Request) -> Any:
            """Reads the address: the open run, the overlaid runs, and an error if the run does not exist."""
            query = request.query_params
            overlaid = [run_id for run_id in query.get("overlay", "").split(",") if run_id]
            run_id = query.get("run", "")
            error = error_of(self.store.get, run_id) if run_id else ""
            return run_id, overlaid[:MOST_CURVES], error

        refresh_on(on_open(open_link, [self.selected, self.overlaid, self.error]).then)
        self._wire_list(refresh_on)
        # `error_of` does the work, and returns the message of a user error or "".
        rename = partial(error_of, self.store.rename)
        new_name = [self.current, self.name]
        for event, action, inputs in (
            (self.stop.click, partial(error_of, self.store.stop), self.current),
            (self.resume.click, partial(error_of, self._resume), self.current),
            (self.rename.click, rename, new_name),
            (self.name.submit, rename, new_name),
        ):
            acted = event(action, inputs, self.error, **event_options(queue=False))
            refresh_on(acted.then)
        self.delete.click(
            lambda: gr.update(visible=True), None, self.confirmation, **event_options(queue=False)
        )
        deleted = self.confirm.click(
            lambda run_id: self._delete([run_id]),
            self.current,
            [self.error, self.selected, self.confirmation],
            **event_options(queue=False),
        )
        refresh_on(deleted.then)
        run_js(deleted.then, FORGET_RUN)
        # A push and an export take long, so they show the progress of Gradio, which `event_options`
        # would hide.
        self.push.click(
            self._push,
            [self.current, self.push_repo, self.push_token],
            [self.pushed, self.push_token],
            show_progress_on=self.pushed,
            api_visibility="private",
        )
        # The script below presses the button Download as soon as it shows a size. The button of the
        # last export is hidden first, so that the script does not press it.
        emptied = self.export.click(hidden, None, self.download, **event_options(queue=False))
        exported = emptied.then(
            self._export,
            self.current,
            [self.error, self.download],
            show_progress_on=self.error,
            api_visibility="private",
        )
        run_js(exported.success, "() => window.clickDownload()")
        return refresh_on

    def _wire_list(self, refresh_on: Callable[..., Any]) -> None:
        """Connects the list of runs, whose runs can be opened, overlaid, filtered and deleted."""
        # The events of the list, such as ``open_run``, come from assets/train.js.
        opened = self.runs.open_run(
            _open_run,
            None,
            [self.selected, self.error, self.download],
            **event_options(queue=False),
        )
        run_js(refresh_on(opened.then).then, REMEMBER_RUN)
        filtered = self.runs.open_group(
            _open_group, None, self.filter, **event_options(queue=False)
        )
        refresh_on(filtered.then)
        refresh_on(self.filter.change)
        self.delete_listed.click(
            self._ask_to_delete_listed,
            self.filter,
            [self.listed_question, self.listed_confirmation],
            **event_options(queue=False),
        )

        def delete_listed(pattern: str | None) -> tuple[str, str, Any]:
            return self._delete(run.id for run in self._deletable(pattern))

        deleted = self.confirm_listed.click(
            delete_listed,
            self.filter,
            [self.error, self.selected, self.listed_confirmation],
            **event_options(queue=False),
        )
        refresh_on(deleted.then)
        run_js(deleted.then, FORGET_RUN)
        ticked = self.runs.overlay_run(
            _overlay, self.overlaid, self.overlaid, **event_options(queue=False)
        )
        run_js(ticked.then, KEEP_OVERLAID)
        refresh_on(ticked.then)

    def look(
        self, selected: str, overlaid: Sequence[str], pattern: str | None = None
    ) -> dict[Any, Output]:
        """Returns the current state of every component. ``pattern`` is the filter of the list.

        An `Output` has a version, and the update that is sent if the browser does not have this
        version yet. Without an update, the version is the value of the component.
        """
        is_filtered = bool((pattern or "").strip())
        # The filter searches all runs. Without it, the list has the newest runs, all runs at work, and
        # the open and the overlaid ones.
        runs = self.store.list() if is_filtered else self.store.recent([selected, *overlaid], PAGE)
        run = select_run(runs, selected, run_groups(self.store.home))
        others = [other for other in runs if other.id in overlaid and other is not run]
        # The curves of the open run come first.
        with_curves = [run, *others] if run else others
        with_curves = with_curves[:MOST_CURVES]
        curves = curves_of(with_curves)
        colours = {
            with_curve.id: curve.colour
            for with_curve, curve in zip(with_curves, curves, strict=True)
        }
        # The figures are drawn again when a curve has new events.
        version = []
        for curve in curves:
            version.append((curve.name, curve.colour, len(curve.events), curve.events[-1:]))

        def draw(figure: Callable[[Sequence[Curve]], Any]) -> Any:
            plot = figure(curves)
            has_points = any(len(trace.x) for trace in plot.data)
            return visible(plot if has_points else None)

        states = [listed.state for listed in runs]
        seconds = IDLE_SECONDS if AT_WORK.isdisjoint(states) else BUSY_SECONDS
        outputs: dict[Any, Output] = {
            self.timer: Output(seconds, gr.Timer(seconds)),
            self.current: Output(run.id if run else ""),
            self.running: Output(str(states.count(State.RUNNING))),
            self.status: Output(_status(run, runs)),
            self.runs: self._list(runs, run, colours, pattern),
            self.log: Output(self._log(run)),
            # A name that is being typed stays until the run changes or is renamed.
            self.name: Output((run.id, run.name), run.name) if run else Output(None, ""),
        }
        for component, is_visible in self._visibility(run, runs).items():
            outputs[component] = Output(gr.update(visible=is_visible))
        for name, figure in FIGURES.items():
            outputs[self.figures[name]] = Output(version, partial(draw, figure))
        return outputs

    def _visibility(self, run: Run | None, runs: Sequence[Run]) -> dict[Any, bool]:
        """Returns for each button and fold whether it is visible for the open run."""
        # For the type checker, the terms that read ``run`` repeat that it is not None.
        is_open = run is not None
        state = run.state if run else None
        is_idle = is_open and state not in AT_WORK
        return {
            self.list_tools: bool(runs),
            self.stop: run is not None and state in AT_WORK and not run.is_stopping,
            self.resume: is_idle and state != State.FINISHED,
            self.export: run is not None and state not in AT_WORK and run.has_model,
            self.delete: is_idle,
            self.more: is_open,
            self.report: is_open,
        }

    def _log(self, run: Run | None) -> str:
        """Renders the log of the open run; "" without one."""
        if run is None:
            return ""
        lines = ""
        # The run may have been deleted since it was listed.
        with suppress(RunNotFoundError, FileNotFoundError):
            lines = self.store.log(run.id)
        return log(lines)

    def _matching(self, runs: Sequence[Run], pattern: str | None) -> list[Run]:
        """Returns the runs that match the filter, which may also be the name of their experiment."""
        groups = run_groups(self.store.home)
        return [run for run in runs if matches(run, groups.get(run.id), pattern or "")]

    def _list(
        self,
        runs: Sequence[Run],
        open_run: Run | None,
        colours: dict[str, str],
        pattern: str | None,
    ) -> Output:
        """Returns the state of the list. Without a filter, the runs of an experiment share one row."""
        listed = self._matching(runs, pattern)
        # The version of the list has the labels besides the runs: the request to stop a run is a
        # file of its own, which changes the label, but not the `Run`.
        states = [state_label(run) for run in runs]
        open_id = open_run.id if open_run else ""
        folded = {} if (pattern or "").strip() else run_groups(self.store.home)
        problems = "".join(map(error_message, self.store.damaged()))
        count = self.store.count()

        def draw() -> str:
            hidden_runs = count - len(listed)
            return problems + run_list(listed, open_id, colours, folded, hidden_runs)

        return Output((listed, count, open_id, colours, folded, states, problems), draw)

    def _deletable(self, pattern: str | None) -> list[Run]:
        """Returns the listed runs that are not at work."""
        return [
            run for run in self._matching(self.store.list(), pattern) if run.state not in AT_WORK
        ]

    def _ask_to_delete_listed(self, pattern: str | None) -> tuple[str, Any]:
        """Returns the question, and the update that shows it."""
        runs = self._deletable(pattern)
        question = "No run is listed that could be deleted."
        if runs:
            words = (pattern or "").strip()
            what = f"the runs that match “{words}”" if words else "all runs"
            question = f"Delete {what}, {format_count(len(runs), 'run')} and their models? This cannot be undone."
        return note(question), gr.update(visible=True)

    def _delete(self, run_ids: Iterable[str]) -> tuple[str, str, Any]:
        """Deletes runs. Returns the first error, "" for the selected run, and the update that hides the question."""
        first_error = ""
        for run_id in run_ids:
            error = error_of(self.store.delete, run_id)
            if not first_error:
                first_error = error
            self.services.models.forget(ModelName.of_run(run_id))
        return first_error, "", hidden()

    def _resume(self, run_id: str) -> None:
        # The model of the run will change, so the loaded one is dropped.
        self.services.models.forget(ModelName.of_run(run_id))
        self.services.jobs.resume(run_id)

    def _push(self, run_id: str, repo: str, token: str) -> tuple[Any, str]:
        """Pushes the model. Returns the result or an error, and "" for the field of the token."""
        try:
            return note(f"Pushed to {push(self.store, run_id, repo, token)}"), ""
        except UserFacingError as error:
            return error_message(error), ""

    def _export(self, run_id: str) -> tuple[str, Any]:
        """Returns an error, and the update of the download, which is hidden after an error."""
        try:
            file = export(self.store, run_id, self.services.temp.results("exports") / run_id)
        except UserFacingError as error:
            return error_message(error), hidden()
        size = file.stat().st_size / 1e6
        return "", gr.update(value=str(file), label=f"{file.name}, {size:,.0f} MB", visible=True)


def _confirmation(question: str, elem_id: str) -> tuple[gr.Group, gr.HTML, gr.Button]:
    """Builds a hidden question with the buttons Delete and Cancel. Returns its group, its text and Delete."""
    with gr.Group(visible=False) as group:
        text = gr.HTML(question, elem_classes="pad")
        with gr.Row():
            confirm = gr.Button("Delete permanently", variant="stop", size="sm", elem_id=elem_id)
            gr.Button("Cancel", size="sm").click(hidden, None, group, **event_options(queue=False))
    return group, text, confirm


def select_run(runs: Sequence[Run], selected: str, groups: Container[str] = ()) -> Run | None:
    """Returns the run that the user opened, or else the running, a waiting or the newest one; None without runs.

    Args:
        runs: the newest first.
        selected: the id of the run that the user opened, or "".
        groups: the ids of the runs of experiments. If all runs are idle, other runs are preferred
            to them.
    """

    def importance(run: Run) -> tuple[bool, ...]:
        is_at_work = run.state in AT_WORK
        is_preferred = is_at_work or run.id not in groups
        return run.id == selected, run.state == State.RUNNING, is_at_work, is_preferred

    # The first of equally important runs is the newest.
    return max(runs, key=importance, default=None)


def _status(run: Run | None, runs: Sequence[Run]) -> str:
    """Renders the open run with its place in the queue; before the first run, the shipped ablation of poolings."""
    if run is None:
        return no_runs(precomputed("pooling"))
    # All runs at work are in ``runs``, also if the list is not complete.
    ahead = 0
    for other in runs:
        if other.state in AT_WORK and other.record.created < run.record.created:
            ahead += 1
    return status(run, ahead)


def _open_run(event: gr.EventData) -> tuple[str, str, Any]:
    """Returns the id of a run in the list, no error, and the update that hides the download of another run."""
    return event.run, "", hidden()


def _open_group(event: gr.EventData) -> str:
    """Returns the filter that only the runs of an experiment pass."""
    return event.name


def _overlay(overlaid: list[str], event: gr.EventData) -> list[str]:
    """Adds a run to the overlaid ones if its box is ticked (``event.on``), or else removes it.

    The first ones go if there are too many.
    """
    run_ids = [run_id for run_id in overlaid if run_id != event.run]
    if event.on:
        run_ids.append(event.run)
    return run_ids[-MOST_CURVES:]
