"""Evaluate, folds: train on all folds but one, score on that one (argument similarity, the paper's section 4.3)."""

from __future__ import annotations

from typing import Any

import gradio as gr
from markupsafe import Markup

from sbert_app.formats import format_time
from sbert_app.pages.api.endpoint import visitor_of
from sbert_app.pages.components import messages
from sbert_app.pages.components.columns import UploadOptions, chosen_name
from sbert_app.pages.components.events import LATEST, PRIVATE
from sbert_app.pages.components.pickers import model_picker
from sbert_app.pages.components.task import Update
from sbert_app.pages.components.templates import render
from sbert_app.services.container import Services
from sbert_app.services.experiments import folds
from sbert_app.services.experiments.folds import FoldResult, FoldsRecord
from sbert_app.services.results.genres import pairs_by_genre
from training.errors import UserFacingError

BY_TOPIC, K_FOLDS = "leave one topic out", "k folds"
REFRESH_SECONDS = 2.0
DEFAULT_STEPS = 60
ACTIVE = ("queued", "running")
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
        self.jobs, self.home, self.access = services.jobs, services.settings.home, services.access
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
        root, shown = gr.context.Context.root_block, [self.table, self.timer]
        root.load(self._choices, None, self.experiment, **PRIVATE).then(self.show, self.experiment, shown, **PRIVATE)
        self.split.change(lambda split: gr.Slider(visible=split == K_FOLDS), self.split, self.k, **PRIVATE)
        inputs = [self.file, self.split, self.k, self.base, self.steps, *self.how.inputs]
        self.start_button.click(self.start, inputs, [self.error, self.experiment, *shown], **PRIVATE)
        self.stop_button.click(self.stop, self.experiment, shown, **PRIVATE)
        self.experiment.input(self.show, self.experiment, shown, **LATEST)
        self.timer.tick(self.show, self.experiment, shown, **PRIVATE)

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
            path = chosen_name(self.services, file, *how) if file else pairs_by_genre(self.home)
            settings = {"base": self.access.check_model(base), "max_steps": count, "eval_every": count}
            record = folds.start(path, int(k) if split == K_FOLDS else None, self.jobs, visitor_of(request), **settings)
        except UserFacingError as error:
            return {self.error: messages.error_message(error)}
        return {self.error: "", self.experiment: self._choices(record.id), **self.show(record.id)}

    def show(self, experiment: str | None) -> Update:
        """The folds of an experiment as they are now; refreshed while one of them is active."""
        record = self._record(experiment)
        if record is None:  # an answer to the page's opening must not replace that to a press of Start
            return {self.table: gr.skip(), self.timer: gr.skip()}
        results = folds.results(record, self.jobs.store)
        is_active = any(each.state in ACTIVE for each in results)
        return {self.table: score_table(record, results), self.timer: gr.Timer(active=is_active)}

    def stop(self, experiment: str | None) -> Update:
        """Stop all runs of an experiment."""
        record = self._record(experiment)
        for each in folds.results(record, self.jobs.store) if record else []:
            if each.run is not None and each.state in ACTIVE:
                self.jobs.stop(each.run.id)
        return self.show(experiment)

    def _record(self, experiment: str | None) -> FoldsRecord | None:
        return next((record for record in folds.records(self.home) if record.id == experiment), None)

    def _choices(self, selected: str | None = None) -> Any:
        """The known experiments; the newest is selected where ``selected`` is None."""
        records = folds.records(self.home)
        choices = [(f"{each.data}, {each.by}, {format_time(each.created)}", each.id) for each in records]
        return gr.Dropdown(choices, value=selected or (records[0].id if records else None), visible=bool(records))


def score_table(record: FoldsRecord, results: list[FoldResult]) -> Markup:
    """ρ of each fold before and after training on the rest, and their average."""
    scored = [(each.before, each.after) for each in results if each.before is not None and each.after is not None]
    return render(
        "evaluate/templates/fold_scores.html",
        data=record.data,
        split_by=record.by,
        done=len(scored),
        folds=[
            {
                "name": each.name,
                "test_pairs": each.test_pairs,
                "before": each.before,
                "after": each.after,
                "state": _state(each),
            }
            for each in results
        ],
        before=sum(before for before, _ in scored) / len(scored) if scored else None,
        after=sum(after for _, after in scored) / len(scored) if scored else None,
    )


def _state(result: FoldResult) -> str:
    """The state of the run, with its progress while it runs."""
    if result.run is None:
        return "deleted"
    progress = result.run.progress
    if result.state == "running" and progress.steps:
        return f"running, {100 * progress.step // progress.steps} %"
    return result.state
