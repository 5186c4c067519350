"""The experiments of a kind on a page: a picker, how far the one that is shown is, Stop, Resume and Delete.

    panel = ExperimentPanel(experiments, SWEEP, "sweep", "Sweeps of this ablation")
    grid = gr.HTML()                                  what else the page shows of an experiment
    show_on = panel.wire(show, [grid])                show(experiment, or None) -> {grid: Output(…)}
    show_on(form.start_on(button, start, panel.selected).then)

Nothing trains in a page: a timer reads the folders of the runs, and neither a reload nor a killed app loses anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gradio as gr
from markupsafe import Markup

from sbert_app.formats import format_count, format_estimate, format_time
from sbert_app.pages.components.events import EVERY, UNQUEUED, Output, follow
from sbert_app.pages.components.messages import error_message, error_of
from sbert_app.pages.components.templates import macro
from sbert_app.services.background.state import State
from sbert_app.services.experiments.experiment import DELETED, Experiment, Experiments
from training.errors import without_folders
from training.trainer.config import RunConfig

POLL_SECONDS = 2.0
ENDED_EARLY = (State.FAILED, State.STOPPED, State.INTERRUPTED, DELETED)
Show = Callable[[Experiment | None], Mapping[Any, Any]]  # component -> what it shows, see `events.follow`


class ExperimentPanel:
    """The components; `selected` holds the id of the experiment that is shown, None for the newest."""

    def __init__(self, experiments: Experiments, kind: str, noun: str, label: str, watches_always: bool = True) -> None:
        """Build them inside the open Blocks.

        Args:
            noun: part of their ids.
            label: of the picker.
            watches_always: else the timer rests while nothing is at work.
        """
        self.experiments, self.kind, self.watches_always = experiments, kind, watches_always
        self.selected = gr.State(None)
        self.picker = gr.Dropdown([], label=label, visible=False, elem_id=f"{noun}-shown")
        self.status = gr.HTML(elem_id=f"{noun}-status")
        with gr.Row(elem_classes="actions"):
            self.stop = gr.Button("Stop", size="sm", visible=False, elem_id=f"stop-{noun}")
            self.resume = gr.Button("Resume", size="sm", visible=False, elem_id=f"resume-{noun}")
            self.delete = gr.Button("Delete", size="sm", visible=False, elem_id=f"delete-{noun}")
            self.confirm = gr.Button("Delete it and all its runs", size="sm", variant="stop", visible=False)
        self.timer = gr.Timer(POLL_SECONDS, active=watches_always)

    def wire(self, show: Show, outputs: Sequence[Any], name: Any = None) -> Callable[..., Any]:
        """Connect the components with their handlers.

        Args:
            show: what else the page shows of an experiment, of which it updates ``outputs``.
            name: the component with the name of the ablation; None: experiments of all names are offered.

        Returns:
            What shows the experiment at an event: ``show_on(event.then)``.
        """
        own = [self.selected, self.picker, self.status, self.stop, self.resume, self.delete, self.confirm, self.timer]
        names = [] if name is None else [name]
        show_on = follow(self.timer, partial(self.look, show), [self.selected, *names], [*own, *outputs])
        show_on(self.picker.input(lambda experiment_id: experiment_id, self.picker, self.selected, **EVERY).then)
        actions = {self.stop: "stop", self.resume: "resume", self.confirm: "delete"}
        for button, action in actions.items():
            act = partial(self._act, getattr(self.experiments, action))
            show_on(button.click(act, self.selected, self.status, **UNQUEUED).then)
        self.delete.click(lambda: gr.update(visible=True), None, self.confirm, **UNQUEUED)
        return show_on

    def look(self, show: Show, selected: str | None, *name: str) -> dict[Any, Any]:
        """The selected experiment as it is now; the newest, if none is selected."""
        candidates, damaged = self.experiments.list(self.kind, *name), self.experiments.damaged()
        experiment = next(
            (experiment for experiment in candidates if experiment.id == selected),
            candidates[0] if candidates else None,
        )
        shown_id, running = experiment and experiment.id, experiment is not None and experiment.state == State.RUNNING
        choices = [(name_of(experiment), experiment.id) for experiment in candidates]

        def status() -> str:
            return (status_of(experiment) if experiment else "") + "".join(map(error_message, damaged))

        return {
            self.selected: Output(shown_id),
            self.picker: Output(gr.update(choices=choices, value=shown_id, visible=bool(choices))),
            self.status: Output([progress_of(experiment), list(map(str, damaged))], status),
            self.stop: Output(gr.update(visible=running)),
            self.resume: Output(gr.update(visible=experiment is not None and not running and experiment.can_resume)),
            self.delete: Output(gr.update(visible=experiment is not None and not running)),
            self.confirm: Output((shown_id, running), gr.update(visible=False)),
            self.timer: Output(running or self.watches_always, gr.Timer(active=running or self.watches_always)),
            **show(experiment),
        }

    def _act(self, action: Callable[[str], object], selected: str | None) -> Any:
        """Stop, resume or delete the selected one. Returns an error message, if there is one."""
        return (error_of(action, selected) if selected else "") or gr.skip()


def progress_of(experiment: Experiment | None) -> list[Any]:
    """A value that differs while an experiment moves on."""
    return [experiment.id, *(f"{cell.state} {cell.share:.3f}" for cell in experiment.cells)] if experiment else []


def name_of(experiment: Experiment) -> str:
    """The label in the picker: when it was started, what it consists of, how far it is."""
    record, done = experiment.record, f"{experiment.counts[State.FINISHED]}/{len(experiment.cells)}"
    what = f"{record.name}, {record.by}" if record.by else format_count(len(experiment.seeds), "seed")
    return f"{format_time(record.created)} · {what} · {'finished' if experiment.state == State.FINISHED else done}"


def status_of(experiment: Experiment) -> Markup:
    """How far an experiment is, and what went wrong."""
    counts, cells = experiment.counts, experiment.cells
    facts = [f"{counts[State.FINISHED]} of {format_count(len(cells), 'run')} finished"]
    facts += [f"{counts[state]} {state}" for state in ENDED_EARLY if counts[state]]
    if experiment.seconds_left is not None:
        facts.append(f"about {format_estimate(experiment.seconds_left)} left")
    done = counts[State.FINISHED] + sum(cell.share for cell in cells if cell.state == State.RUNNING)
    return macro("experiment_status")(
        facts=facts,
        fraction=done / len(cells),
        settings=shared_settings(experiment),
        reasons=list(map(without_folders, experiment.reasons)),
    )


def shared_settings(experiment: Experiment) -> str:
    """The settings that all runs of an experiment share, in one line."""
    configs = [RunConfig(**plan.config) for plan in experiment.record.runs]
    first = configs[0]
    texts = {
        "base": first.base,
        "objective": first.objective,
        "train_data": first.train_data,
        "max_steps": f"{first.max_steps:,} steps" if first.max_steps else f"{first.epochs:g} epoch",
        "batch_size": f"batch {first.batch_size}",
        "learning_rate": f"lr {first.learning_rate:g}",
    }
    return " · ".join(text for name, text in texts.items() if len({getattr(config, name) for config in configs}) == 1)
