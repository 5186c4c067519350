"""Evaluate, folds: train on all folds but one, score on that one (argument similarity, the paper's section 4.3)."""

from __future__ import annotations

from typing import Any

import gradio as gr
from markupsafe import Markup

from sbert_app.formats import format_time
from sbert_app.pages.components import messages
from sbert_app.pages.components.events import EVERY, PRIVATE, Update, follow
from sbert_app.pages.components.pickers import model_picker
from sbert_app.pages.components.templates import macro
from sbert_app.pages.components.upload_options import UploadOptions, chosen_name
from sbert_app.pages.server.address import visitor_of
from sbert_app.services.background.state import State
from sbert_app.services.container import Services
from sbert_app.services.experiments import folds
from sbert_app.services.experiments.experiment import FOLDS, Cell, Experiment, Experiments
from sbert_app.services.results.transfer import pairs_by_genre
from training.errors import UserFacingError

BY_TOPIC, K_FOLDS = "leave one topic out", "k folds"
REFRESH_SECONDS = 2.0
DEFAULT_STEPS = 60
INTRO = (
    "One training run for each held-out fold: the runs are queued, appear on the Train page, and continue when this "
    "page is closed. In the paper (Table 3, SBERT-AFS-base) ρ is 74.13 where each topic is in the training data too, "
    "and 50.65 on a held-out topic. A file needs sentence1, sentence2, score and, to leave topics out, topic; without "
    "a file, STSb dev is split, with its genres as topics."
)
EMPTY = messages.note("No folds yet. Start trains one run for each fold, about a minute each.")


def build(services: Services) -> None:
    """Build the tab inside the open Blocks."""
    _FoldsTab(services).wire()


class _FoldsTab:
    """The components and their event handlers."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.experiments = Experiments(services.jobs, services.access.check_run)
        gr.HTML(messages.note(INTRO))
        with gr.Row():
            self.file = gr.File(label="Your own scored pairs", height=120, min_width=260, elem_id="folds-file")
            with gr.Column(min_width=260):
                self.split = gr.Radio([BY_TOPIC, K_FOLDS], value=BY_TOPIC, label="Split", elem_id="folds-how")
                self.k = gr.Slider(2, folds.MAX_FOLDS, value=5, step=1, label="Folds", visible=False, elem_id="folds-k")
            self.base = model_picker(services)
            self.steps = gr.Number(
                DEFAULT_STEPS, label="Steps per run", precision=0, minimum=1, info="Of 16 pairs", elem_id="folds-steps"
            )
        self.how = UploadOptions(self.file, "folds")
        with gr.Row(elem_classes="actions"):
            self.start_button = gr.Button("Start", variant="primary", elem_id="start-folds")
            self.stop_button = gr.Button("Stop all", elem_id="stop-folds")
        self.experiment = gr.Dropdown([], label="Experiment", visible=False, elem_id="folds-shown")
        self.error = gr.HTML(elem_id="folds-told")
        self.table = gr.HTML(EMPTY, elem_id="folds-table")
        self.timer = gr.Timer(REFRESH_SECONDS, active=False)

    def wire(self) -> None:
        """Connect the components with their handlers."""
        show_on = follow(self.timer, self.show, [self.experiment], [self.table, self.timer])
        root = gr.context.Context.root_block
        show_on(root.load(self._open, None, [self.experiment, self.error], **PRIVATE).then)
        self.split.change(lambda split: gr.Slider(visible=split == K_FOLDS), self.split, self.k, **PRIVATE)
        inputs = [self.file, self.split, self.k, self.base, self.steps, *self.how.inputs]
        show_on(self.start_button.click(self.start, inputs, [self.error, self.experiment], **PRIVATE).success)
        show_on(self.stop_button.click(self.stop, self.experiment, self.error, **PRIVATE).then)
        show_on(self.experiment.input, **EVERY)

    def start(
        self,
        file: str | None,
        split: str,
        k: float,
        base: str,
        steps: float | None,
        request: gr.Request,
        *how: str,
    ) -> Update:
        """Queue a run for each fold."""
        count = int(steps or DEFAULT_STEPS)
        try:
            path = chosen_name(self.services, file, *how) if file else pairs_by_genre(self.services.settings.home)
            settings = {"base": self.services.access.check_model(base), "max_steps": count, "eval_every": count}
            parts = int(k) if split == K_FOLDS else None
            found = folds.start(path, parts, self.experiments, visitor_of(request), **settings)
        except UserFacingError as error:
            return {self.error: messages.error_message(error)}
        return {self.error: "", self.experiment: self._choices(found.id)}

    def show(self, experiment: str | None) -> Update:
        """The folds of an experiment as they are now; refreshed while one of them is at work."""
        if not experiment:  # an answer to the page's opening must not replace that to a press of Start
            return {self.table: gr.skip(), self.timer: gr.skip()}
        try:
            found = self.experiments.get(experiment)
        except UserFacingError as error:
            return {self.table: messages.error_message(error), self.timer: gr.Timer(active=False)}
        return {self.table: score_table(found), self.timer: gr.Timer(active=found.state == State.RUNNING)}

    def stop(self, experiment: str | None) -> str:
        """Stop all runs of an experiment."""
        return messages.error_of(lambda: self.experiments.stop(experiment) if experiment else None)

    def _open(self) -> Update:
        """The known experiments, and why others cannot be read."""
        problems = "".join(map(messages.error_message, self.experiments.damaged()))
        return {self.experiment: self._choices(), self.error: problems}

    def _choices(self, selected: str | None = None) -> Any:
        """The known experiments; the newest is selected where ``selected`` is None."""
        found = self.experiments.list(FOLDS)
        choices = [
            (f"{each.record.name}, {each.record.by}, {format_time(each.record.created)}", each.id) for each in found
        ]
        return gr.Dropdown(choices, value=selected or (found[0].id if found else None), visible=bool(found))


def score_table(experiment: Experiment) -> Markup:
    """ρ of each fold before and after training on the rest, and their average."""
    cells = experiment.cells
    scored = [(each.before, each.value) for each in cells if each.before is not None and each.value is not None]
    return macro("evaluate/fold_scores")(
        data=experiment.record.name,
        split_by=experiment.record.by,
        done=len(scored),
        folds=[
            {
                "name": each.plan.label,
                "test_pairs": each.plan.pairs,
                "before": each.before,
                "after": each.value,
                "state": _state(each),
            }
            for each in cells
        ],
        before=sum(before for before, _ in scored) / len(scored) if scored else None,
        after=sum(after for _, after in scored) / len(scored) if scored else None,
    )


def _state(cell: Cell) -> str:
    """The state of the run, with its progress while it runs."""
    return f"running, {100 * cell.share:.0f} %" if cell.state == State.RUNNING and cell.share else cell.state
