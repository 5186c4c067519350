"""The lower half of the Label page: do the raters agree, how good is the model, training, export."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from sbert_app.pages.api.endpoint import visitor_of
from sbert_app.pages.components import messages
from sbert_app.pages.components.events import PRIVATE, UNQUEUED
from sbert_app.pages.components.task import Update
from sbert_app.pages.label import views
from sbert_app.services.annotations import fine_tuning, quality
from sbert_app.services.annotations.project import Project, Projects
from sbert_app.services.cache import LRUCache
from sbert_app.services.container import Services
from sbert_app.services.runs.record import AT_WORK
from training.errors import InputError, UserFacingError

POLL_SECONDS = 3.0  # between two looks at a run


class Results:
    """Its components and handlers; `shown` renders them for a project."""

    def __init__(self, services: Services, projects: Projects, project: gr.Dropdown) -> None:
        self.services, self.projects, self.project = services, projects, project
        gr.HTML(messages.section("Do the raters agree?"))
        self.agreement = gr.HTML(elem_id="label-agreement")
        gr.HTML(messages.section("How good is the model on these pairs?"))
        with gr.Row(elem_classes="actions"):
            self.measure = gr.Button("Measure the model", elem_id="label-measure")
            self.train = gr.Button("Fine-tune on the ratings", elem_id="label-train")
            self.prepare = gr.Button("Export as CSV", elem_id="label-export")
            self.download = gr.DownloadButton("Download", visible=False, elem_id="label-download")
        self.quality = gr.HTML(elem_id="label-quality")
        self.training = gr.HTML(elem_id="label-training")
        self.timer = gr.Timer(POLL_SECONDS, active=False)
        self.compared: LRUCache[tuple[str, float | None], fine_tuning.BeforeAfter] = LRUCache(64)

    @property
    def outputs(self) -> list[Any]:
        """What `shown` updates."""
        return [self.agreement, self.training, self.timer, self.download]

    def wire(self) -> None:
        """Connect the components with their handlers."""

        def train(project_id: str, request: gr.Request) -> Update:
            return self.start(project_id, visitor_of(request))

        self.measure.click(self.score, self.project, self.quality, concurrency_limit=2, **PRIVATE)
        self.train.click(train, self.project, [self.quality, self.training, self.timer], **PRIVATE)
        self.timer.tick(self.follow, self.project, [self.training, self.timer], **PRIVATE)
        self.prepare.click(self.export, self.project, [self.quality, self.download], **UNQUEUED)

    def rated(self, project: Project) -> Update:
        """What changes with a rating: the agreement. The export is of before."""
        return {
            self.agreement: views.agreement(quality.agreement(project)),
            self.download: gr.update(visible=False),
        }

    def shown(self, project: Project | None) -> Update:
        """What is known without a model: agreement, and how the training is doing."""
        if project is None:
            nothing = {self.agreement: views.no_ratings(), self.download: gr.update(visible=False)}
            return {**nothing, self.training: "", self.timer: gr.Timer(active=False)}
        return {**self.rated(project), **self._training(project)}

    def score(self, project_id: str) -> Any:
        """ρ of the project's model, with an interval."""

        def work(project: Project) -> Any:
            return views.quality(quality.model_quality(project, self.services.models, project.info.model))

        return self._with_project(project_id, work)

    def start(self, project_id: str, visitor: str) -> Update:
        """Queue a run on the ratings."""
        try:
            project = self.projects.open(project_id or "")
            self.services.access.check_model(project.info.model)
            fine_tuning.start(project, self.services.jobs, visitor)
        except UserFacingError as error:
            return {self.quality: messages.error_message(error), self.training: gr.skip(), self.timer: gr.skip()}
        return {self.quality: gr.skip(), **self._training(project)}

    def follow(self, project_id: str) -> Update:
        """How the run is doing; when it has ended, before and after."""
        try:
            return self._training(self.projects.open(project_id or ""))
        except UserFacingError as error:
            return {self.training: messages.error_message(error), self.timer: gr.Timer(active=False)}

    def export(self, project_id: str) -> Update:
        """The CSV, offered as a download."""
        try:
            project = self.projects.open(project_id or "")
            file = self.services.temp.results("label") / f"{project.id}.csv"
            fine_tuning.export_csv(project, file)
        except UserFacingError as error:
            return {self.quality: messages.error_message(error), self.download: gr.update(visible=False)}
        return {self.quality: gr.skip(), self.download: gr.update(value=str(file), label=file.name, visible=True)}

    def _training(self, project: Project) -> Update:
        training = fine_tuning.last_training(project)
        if training is None:
            return {self.training: "", self.timer: gr.Timer(active=False)}
        store = self.services.jobs.store
        if store.state(training.run) is None:
            message = messages.note("The run that was trained on these ratings has been deleted.")
            return {self.training: message, self.timer: gr.Timer(active=False)}
        run = store.get(training.run)
        if run.state in AT_WORK:
            return {self.training: views.training(run, training, None), self.timer: gr.Timer(active=True)}
        key = (run.id, run.record.ended)
        found = self.compared.get(key)
        if found is None and run.has_model:
            found = fine_tuning.compare(training, self.services.models)
            self.compared.put(key, found)
        return {self.training: views.training(run, training, found), self.timer: gr.Timer(active=False)}

    def _with_project(self, project_id: str, work: Callable[[Project], Any]) -> Any:
        try:
            if not project_id:
                raise InputError("make a project first")
            return work(self.projects.open(project_id))
        except UserFacingError as error:
            return messages.error_message(error)
