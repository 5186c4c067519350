"""Starts runs from a form, and shows the experiments of a kind: a picker, progress, Stop, Resume and Delete.

    panel = ExperimentPanel(experiments, SWEEP, "sweep", "Sweeps of this ablation")
    grid = gr.HTML()
    show_on = panel.wire(show, [grid])
    show_on(form.start_on(button, start, panel.selected).then)

    def show(experiment): return {grid: Output(…)}      # None without an experiment

Runs train in their own processes. A timer reads their folders, so a reload or a crash of the app
loses nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gradio as gr
from markupsafe import Markup

from sbert_app.formats import format_count, format_estimate, format_time
from sbert_app.pages.components.events import (
    Output,
    Questions,
    Update,
    ask,
    event_options,
    follow,
    run_js,
)
from sbert_app.pages.components.messages import error_message, error_of
from sbert_app.pages.components.templates import macro
from sbert_app.services.access import visitor_of
from sbert_app.services.background.watch import State
from sbert_app.services.experiments.experiment import DELETED, Experiment, Experiments
from sbert_app.services.runs.estimate import RunEstimate, known_rate
from sbert_app.services.runs.store import RunStore
from training.errors import UserFacingError, without_folders
from training.trainer.config import RunConfig

POLL_SECONDS = 2.0
ENDED_EARLY = (State.FAILED, State.STOPPED, State.INTERRUPTED, DELETED)
# Returns the state of each component that a page adds, as for `events.follow`.
Show = Callable[..., Mapping[Any, Any]]


class ExperimentPanel:
    """The components of the panel. `selected` has the id of the open experiment, or None for the newest one."""

    def __init__(
        self,
        experiments: Experiments,
        kind: str,
        noun: str,
        label: str,
        watches_always: bool = True,
    ) -> None:
        """Builds the components inside the open Blocks.

        Args:
            noun: a part of the element ids.
            label: the label of the picker.
            watches_always: whether the timer also runs while no experiment does.
        """
        self.experiments = experiments
        self.kind = kind
        self.watches_always = watches_always
        self.selected = gr.State(None)
        self.picker = gr.Dropdown([], label=label, visible=False, elem_id=f"{noun}-shown")
        self.status = gr.HTML(elem_id=f"{noun}-status")
        with gr.Row(elem_classes="actions"):
            self.stop = gr.Button("Stop", size="sm", visible=False, elem_id=f"stop-{noun}")
            self.resume = gr.Button("Resume", size="sm", visible=False, elem_id=f"resume-{noun}")
            self.delete = gr.Button("Delete", size="sm", visible=False, elem_id=f"delete-{noun}")
            self.confirm = gr.Button(
                "Delete it and all its runs", size="sm", variant="stop", visible=False
            )
        self.timer = gr.Timer(POLL_SECONDS, active=watches_always)

    def wire(
        self, show: Show, outputs: Sequence[Any], name: Any = None, others: Sequence[Any] = ()
    ) -> Callable[..., Any]:
        """Connects the components with their handlers.

        Args:
            show: returns the states of ``outputs``, which are other components of the page. It gets
                the experiment or None, the value of ``name`` if there is one, and the values of
                ``others``.
            name: a component whose value is a name. Only experiments with this name are offered;
                without the component, all of them.

        Returns:
            A function that shows the experiment at another event as well: ``show_on(event.then)``.
        """
        components = [
            self.selected,
            self.picker,
            self.status,
            self.stop,
            self.resume,
            self.delete,
            self.confirm,
            self.timer,
        ]
        names = [] if name is None else [name]
        look = partial(self.look, show=show, has_name=name is not None)
        inputs = [self.selected, *names, *others]
        show_on = follow(self.timer, look, inputs, [*components, *outputs])
        picked = self.picker.input(
            lambda experiment_id: experiment_id,
            self.picker,
            self.selected,
            **event_options(queue=False, trigger_mode="multiple"),
        )
        show_on(picked.then)
        experiments = self.experiments
        actions = {
            self.stop: experiments.stop,
            self.resume: experiments.resume,
            self.confirm: experiments.delete,
        }
        for button, action in actions.items():
            pressed = button.click(
                partial(_act, action), self.selected, self.status, **event_options(queue=False)
            )
            show_on(pressed.then)
        self.delete.click(
            lambda: gr.update(visible=True), None, self.confirm, **event_options(queue=False)
        )
        return show_on

    def look(
        self, selected: str | None, *values: Any, show: Show, has_name: bool
    ) -> dict[Any, Any]:
        """Returns the states of all components for the selected experiment, or for the newest one.

        Args:
            values: with ``has_name``, first the name of the experiments that are offered; then the
                values of ``others`` of `wire`.
            show: returns the states of the other components of the page; see `wire`.
        """
        name = values[0] if has_name else None
        # The newest comes first.
        candidates = self.experiments.list(self.kind, name)
        # The errors of files that cannot be read.
        damaged = self.experiments.damaged()
        by_id = {candidate.id: candidate for candidate in candidates}
        experiment = by_id.get(selected or "") or next(iter(candidates), None)
        experiment_id = None
        is_running = False
        can_delete = False
        can_resume = False
        if experiment is not None:
            experiment_id = experiment.id
            # True also while the runs wait in the queue.
            is_running = experiment.state == State.RUNNING
            can_delete = not is_running
            can_resume = can_delete and experiment.can_resume
        is_watching = is_running or self.watches_always
        choices = [(name_of(candidate), candidate.id) for candidate in candidates]

        def status() -> str:
            progress = status_of(experiment) if experiment else ""
            return progress + "".join(map(error_message, damaged))

        return {
            self.selected: Output(experiment_id),
            self.picker: Output(
                gr.update(choices=choices, value=experiment_id, visible=bool(choices))
            ),
            # Rendered only if the progress or the errors differ from those on the page.
            self.status: Output([progress_of(experiment), list(map(str, damaged))], status),
            self.stop: Output(gr.update(visible=is_running)),
            self.resume: Output(gr.update(visible=can_resume)),
            self.delete: Output(gr.update(visible=can_delete)),
            # The confirmation of Delete is hidden again when another experiment is shown, or when
            # this one is resumed.
            self.confirm: Output((experiment_id, is_running), gr.update(visible=False)),
            # Two components are never equal, so the version is the flag.
            self.timer: Output(is_watching, gr.Timer(active=is_watching)),
            **show(experiment, *values),
        }


def _act(action: Callable[[str], object], selected: str | None) -> Any:
    """Stops, resumes or deletes the selected experiment. Returns an error message if that fails."""
    if not selected:
        return gr.skip()
    return error_of(action, selected) or gr.skip()


def progress_of(experiment: Experiment | None) -> list[Any]:
    """Returns a value that changes with every step of an experiment."""
    if experiment is None:
        return []
    return [experiment.id, *(f"{cell.state} {cell.share:.3f}" for cell in experiment.cells)]


def name_of(experiment: Experiment) -> str:
    """Returns the label in the picker: the time of the start, the folds or the number of seeds, and the progress."""
    record = experiment.record
    content = format_count(len(experiment.seeds), "seed")
    if record.by:
        # The name of a file, and what its folds are made by, such as "topic".
        content = f"{record.name}, {record.by}"
    progress = "finished"
    if experiment.state != State.FINISHED:
        progress = f"{experiment.counts[State.FINISHED]}/{len(experiment.cells)}"
    return f"{format_time(record.created)} · {content} · {progress}"


def status_of(experiment: Experiment) -> Markup:
    """Renders the progress of an experiment, and its errors."""
    counts = experiment.counts
    cells = experiment.cells
    facts = [f"{counts[State.FINISHED]} of {format_count(len(cells), 'run')} finished"]
    for state in ENDED_EARLY:
        if counts[state]:
            facts.append(f"{counts[state]} {state}")
    if experiment.seconds_left is not None:
        facts.append(f"about {format_estimate(experiment.seconds_left)} left")
    running = [cell.share for cell in cells if cell.state == State.RUNNING]
    # The number of finished runs. A running one counts by its share of steps.
    done = counts[State.FINISHED] + sum(running)
    # A visitor sees the names of files, but not their folders.
    reasons = list(map(without_folders, experiment.reasons))
    return macro("experiment_status")(
        facts, done / len(cells), reasons, shared_settings(experiment)
    )


def shared_settings(experiment: Experiment) -> str:
    """Returns the settings that all runs of an experiment have in common, in one line."""
    # For each run, its settings as texts, in the same order.
    settings_of_runs = []
    for plan in experiment.record.runs:
        config = RunConfig(**plan.config)
        settings_of_runs.append(
            (
                config.base,
                config.objective,
                config.train_data,
                config.length,
                f"batch {config.batch_size}",
                f"lr {config.learning_rate:g}",
            )
        )
    # ``texts`` has the value of one setting in each run.
    shared = [texts[0] for texts in zip(*settings_of_runs, strict=True) if len(set(texts)) == 1]
    return " · ".join(shared)


# An estimate waits, so that it does not use old values: Gradio fills in the fields of a form one
# after the other, and fields in closed folds only after the next event has started.
SETTLED = "() => new Promise((settled) => setTimeout(settled, 150))"
# ``plan(rate)`` renders the plan of the runs; ``rate`` is None before the first run of their kind
# on this machine.
Plan = Callable[..., Markup]


@dataclass(frozen=True)
class StartForm:
    """A form that starts runs, with the plan of the runs below it.

        form = StartForm(store, inputs, planned, estimate)
        form.estimate_on(partial(gr.on, [field.change for field in inputs]))
        form.start_on(button, start, selected)

    Attributes:
        store: the earlier runs, whose speed the plan assumes.
        inputs: the fields of the form.
        planned: the component for the plan, or for an error in the form.
        estimate: returns the estimate of one run and the plan of all runs, for the values of the
            fields. Raises UserFacingError if the runs cannot start.
        describe: returns the updates of ``described``, other components of the page, for the
            estimate and the values.
        questions: the last question of a visitor, so that an answer to older values is not shown.
    """

    store: RunStore
    inputs: Sequence[Any]
    planned: gr.HTML
    estimate: Callable[..., tuple[RunEstimate, Plan]]
    describe: Callable[..., Update] = lambda *_: {}
    described: Sequence[Any] = ()
    questions: gr.State = field(default_factory=lambda: gr.State({}))

    def estimate_on(self, listen: Callable[..., Any]) -> None:
        """Shows the estimate at events of the fields, or after the handler of an event (``event.then``)."""
        inputs = [self.questions, *self.inputs]
        outputs = [self.planned, *self.described]
        # Waits until Gradio has filled in the fields.
        settled = run_js(listen, SETTLED)
        settled.then(
            self._estimate, inputs, outputs, **event_options(queue=False, trigger_mode="multiple")
        )

    def start_on(self, button: gr.Button, start: Callable[..., str], selected: Any) -> Any:
        """Starts runs when ``button`` is pressed, and returns the event.

        ``start(visitor, *values)`` returns the id for the component ``selected``.
        """

        def press(request: gr.Request, *values: Any) -> tuple[Any, Any]:
            """Returns the updates of ``planned`` and ``selected``."""
            try:
                return gr.skip(), start(visitor_of(request), *values)
            except UserFacingError as error:
                return error_message(error), gr.skip()

        return button.click(
            press, self.inputs, [self.planned, selected], **event_options(queue=False)
        )

    def _estimate(self, questions: Questions, *values: Any) -> Update:
        """Shows the plan for ``values`` of the fields, unless the form has newer ones by then."""
        is_newest = ask(questions)
        try:
            # The estimate of one run, and the function that renders the plan of all runs.
            estimate, render_plan = self.estimate(*values)
            # None before the first run of this kind on this machine.
            rate = known_rate(estimate.config, self.store.recent())
            update = {self.planned: render_plan(rate), **self.describe(estimate, *values)}
        except UserFacingError as error:
            update = {self.planned: error_message(error)}
        return update if is_newest() else {self.planned: gr.skip()}
