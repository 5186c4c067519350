"""The lower half of the Label page: the agreement of the raters, the quality of the model, training, export."""

from dataclasses import replace
from math import isnan
from typing import Any

import gradio as gr
import numpy as np
from markupsafe import Markup

from sbert_app.formats import MISSING, format_count, format_number
from sbert_app.pages.components import messages
from sbert_app.pages.components.events import Update, event_options, follow, run_js
from sbert_app.pages.components.report import Report, of_page, report_button
from sbert_app.pages.components.templates import macro
from sbert_app.services.access import visitor_of
from sbert_app.services.annotations import quality
from sbert_app.services.annotations.project import HIGHEST, LOWEST, Project, Projects
from sbert_app.services.annotations.quality import Agreement, BeforeAfter, Training
from sbert_app.services.background.watch import AT_WORK
from sbert_app.services.container import Services
from sbert_app.services.results.results import Estimate
from sbert_app.services.runs.record import Run
from sbert_app.services.store.cache import LRUCache
from training.agreement import RELIABLE, TENTATIVE
from training.errors import InputError, UserFacingError

# The time between two looks at a run, in seconds.
POLL_SECONDS = 3.0
# Alpha is interpreted if at least this number of pairs has two ratings.
FEWEST_SHARED = 10
NOTHING_JUDGED = messages.note("Nothing is judged yet.")


class Results:
    """The components and handlers; `for_project` updates them for a project.

    Attributes:
        project: the picker of the project, whose value is its id.
        quality: the figures of the model, or the error after a press of a button.
        training: the state of the training on the ratings.
        file: the exported file on its way to the browser.
    """

    def __init__(self, services: Services, projects: Projects, project: gr.Dropdown) -> None:
        self.services = services
        self.projects = projects
        self.project = project
        gr.HTML(messages.section("Do the raters agree?"))
        self.agreement = gr.HTML(elem_id="label-agreement")
        self.differences = gr.HTML(elem_id="label-differences")
        gr.HTML(messages.section("How good is the model on these pairs?"))
        with gr.Row(elem_classes="actions"):
            self.measure = gr.Button(
                "Measure the model", interactive=False, elem_id="label-measure"
            )
            self.train = gr.Button(
                "Fine-tune on the ratings", interactive=False, elem_id="label-train"
            )
            self.export_button = gr.Button(
                "Export as CSV", interactive=False, elem_id="label-export"
            )
            self.file = gr.File(visible=False)
        self.quality = gr.HTML(elem_id="label-quality")
        self.training = gr.HTML(elem_id="label-training")
        self.timer = gr.Timer(POLL_SECONDS, active=False)
        sections = {
            "Agreement": [self.agreement, self.differences],
            "The model": [self.quality, self.training],
        }
        # `report` adds the name and the settings of the project to the report that this function
        # makes.
        self._page_report, parts = of_page("Label", sections)
        report_button(services, self.report, [*parts, project], "label")
        # The results of `quality.compare`, by the id of the run and the time at which it ended, so
        # that no model is measured twice.
        self.comparisons: LRUCache[tuple[str, float | None], BeforeAfter] = LRUCache(64)

    @property
    def outputs(self) -> list[Any]:
        return [
            self.agreement,
            self.differences,
            self.measure,
            self.train,
            self.export_button,
            self.training,
            self.timer,
        ]

    def wire(self) -> None:
        """Connects the buttons. A timer shows the progress of a training."""
        self.measure.click(
            self.score, self.project, self.quality, concurrency_limit=2, **event_options()
        )
        self.train.click(
            self.start, self.project, [self.quality, self.training, self.timer], **event_options()
        )
        follow(self.timer, self.progress, [self.project], [self.training, self.timer])
        exported = self.export_button.click(
            self.export, self.project, [self.quality, self.file], **event_options(queue=False)
        )
        run_js(exported.then, "(file) => { if (file) window.saveFile(file); }", self.file)

    def after_rating(self, project: Project | None, rater: str) -> Update:
        """Returns the update of the agreement and of the buttons, which change with each rating."""
        # There is one joint rating of all raters for each judged pair.
        judged = len(quality.joint_ratings(project)) if project else 0
        differences = ""
        if project and (disagreements := quality.disagreements(project, rater)):
            differences = macro("label/differences")(
                disagreements, scores_of(project), project.info.is_binary
            )

        def button(label: str, needed: int) -> gr.Button:
            """Returns a button that is enabled once ``needed`` pairs are judged. Until then its label says so."""
            if project is None:
                return gr.Button(f"{label}: make a project first", interactive=False)
            if judged < needed:
                label = f"{label}: {needed} judged pairs needed, {judged} done"
                return gr.Button(label, interactive=False)
            return gr.Button(label, interactive=True)

        return {
            self.agreement: agreement_table(project) if project else NOTHING_JUDGED,
            self.differences: differences,
            self.measure: button("Measure the model", quality.FEWEST_JUDGED),
            self.train: button("Fine-tune on the ratings", quality.FEWEST),
            # A project can be exported before a pair is judged.
            self.export_button: button("Export as CSV", 0),
        }

    def for_project(self, project: Project | None, rater: str = "") -> Update:
        """Returns the update for a project: the agreement, and the progress of the training. No model is loaded."""
        training: Update = {self.training: "", self.timer: gr.Timer(active=False)}
        if project:
            training = self.progress(project.id)
        return self.after_rating(project, rater) | training

    def score(self, project_id: str) -> Any:
        """Renders the figures of the project's model with their intervals, or an error."""
        try:
            project = self._open(project_id)
            model = project.info.model
            if project.info.is_binary:
                decisions = quality.answer_quality(project, self.services.models, model)
                return macro("label/quality_of_answers")(decisions, model)
            result = quality.model_quality(project, self.services.models, model)
        except UserFacingError as error:
            return messages.error_message(error)
        # (pairs in words, ρ, interval, number of pairs); `_figures` returns the two in the middle.
        rows = [("all judged pairs", *_figures(result.rho), result.pairs)]
        if result.random is not None and not isnan(result.random.value):
            # The other judged pairs were chosen because the models disagree on them or because
            # their score is near the threshold.
            rows.append(("drawn at random", *_figures(result.random), result.random_pairs))
        return macro("label/quality")(rows=rows, found=result)

    def start(self, project_id: str, request: gr.Request) -> Update:
        """Starts the training on the ratings."""
        try:
            project = self._open(project_id)
            self.services.access.check_model(project.info.model)
            quality.start(project, self.services.jobs, visitor_of(request))
        except UserFacingError as error:
            return {self.quality: messages.error_message(error)}
        return self.progress(project.id)

    def progress(self, project_id: str) -> Update:
        """Shows the state of the run, and after its end the figures before and after the training."""
        try:
            html, is_active = self._training(self._open(project_id))
        except UserFacingError as error:
            html = messages.error_message(error)
            is_active = False
        return {self.training: html, self.timer: gr.Timer(active=is_active)}

    def report(self, *values: Any) -> Report:
        """Returns the report of the project. ``values`` are the parts of the page, then the project's id."""
        *parts, project_id = values
        project = self._open(project_id)
        settings = {
            "Data": project.info.source,
            "Model": project.info.model,
            "Pairs": len(project.pairs),
        }
        return replace(self._page_report(*parts), title=project.info.name, settings=settings)

    def export(self, project_id: str) -> Update:
        """Exports the project as a CSV file, which a script then saves, or shows why it cannot be exported."""
        try:
            project = self._open(project_id)
            file = self.services.temp.results("label") / f"{project.id}.csv"
            quality.export_csv(project, file)
        except UserFacingError as error:
            return {self.quality: messages.error_message(error), self.file: None}
        return {self.file: str(file)}

    def _training(self, project: Project) -> tuple[str, bool]:
        """Returns the state of the last training as HTML, and whether it is running; "" before the first."""
        training = quality.last_training(project)
        store = self.services.jobs.store
        if training is None:
            return "", False
        # The record of the training stays when its run is deleted.
        if store.state(training.run) is None:
            note = messages.note("The run that was trained on these ratings has been deleted.")
            return note, False
        run = store.get(training.run)
        if run.state in AT_WORK:
            return training_state(project, run, training, comparison=None), True
        key = (run.id, run.record.ended)
        comparison = self.comparisons.get(key)
        # A run that failed or was stopped may have no model, and then there is no comparison.
        if comparison is None and run.has_model:
            comparison = quality.compare(training, self.services.models, project.info.is_binary)
            self.comparisons.put(key, comparison)
        return training_state(project, run, training, comparison), False

    def _open(self, project_id: str | None) -> Project:
        if not project_id:
            raise InputError("make a project first")
        return self.projects.open(project_id)


def scores_of(project: Project) -> dict[int, str]:
    """Returns the scores of the scale of a project, each with its name."""
    if project.info.is_binary:
        return {HIGHEST: "yes", LOWEST: "no"}
    return {score: str(score) for score in range(LOWEST, HIGHEST + 1)}


def agreement_table(project: Project) -> Markup:
    """Renders the number of ratings of each rater, alpha and its meaning, and the agreement of each pair of raters."""
    agreement = quality.agreement(project)
    if not agreement.judged:
        return NOTHING_JUDGED
    between = []
    for (first, second), (rho, pairs) in agreement.between.items():
        value = format_number(None if isnan(rho) else rho)
        between.append((f"{first} and {second}", value, format_count(pairs, "pair")))
    scale = scores_of(project)
    # The keys: 0 to 5, or the two scores for yes and no.
    scores = list(scale)
    return macro("label/agreement")(
        raters=[(name, list(ratings.values())) for name, ratings in project.ratings().items()],
        is_binary=project.info.is_binary,
        found=_agreement_findings(agreement),
        between=between,
        # The rows and columns of the scores on the scale, which are two of six for yes and no.
        confusion=agreement.confusion[np.ix_(scores, scores)].tolist(),
        scores=list(scale.values()),
    )


def _agreement_findings(agreement: Agreement) -> list[str]:
    """Returns sentences that say how far the raters agree, and whether that is enough."""
    # ``judged`` has an entry for each rater.
    if len(agreement.judged) < 2:
        return [
            "One rater alone: whether others would agree is not known. Send them the address of this page."
        ]
    if agreement.shared == 0:
        return ["No pair has two ratings yet."]
    shared = format_count(agreement.shared, "shared pair")
    findings = []
    scale = "the scale"
    # The level of measurement of α. For scores on a scale, α on the ordinal level is added.
    level = f"interval; {format_number(agreement.alpha_ordinal)} ordinal"
    if agreement.equal is not None:
        # The answers are yes or no; the estimate is in percent.
        share, interval = _figures(agreement.equal, 0)
        findings = [f"{share}% of the answers to {shared} agree (95% interval {interval})."]
        scale = "what “yes” means"
        level = "nominal"
    # Alpha is undefined where the ratings do not differ.
    if isnan(agreement.alpha):
        return [*findings, f"All ratings of the {shared} are equal: alpha is undefined."]
    alpha = format_number(agreement.alpha)
    if agreement.shared < FEWEST_SHARED:
        return [*findings, f"Krippendorff’s α is {alpha} on {shared}, too few to say more."]
    if agreement.alpha >= RELIABLE:
        verdict = "reliable"
    elif agreement.alpha >= TENTATIVE:
        verdict = "enough for tentative conclusions"
    else:
        verdict = (
            f"too low to rely on: talk about {scale}, and look at the pairs on which you differ"
        )
    return [
        *findings,
        f"Krippendorff’s α is {alpha} on {shared} ({level}): {verdict}. "
        f"Krippendorff recommends {RELIABLE}, and {TENTATIVE} for tentative conclusions.",
    ]


def training_state(
    project: Project, run: Run, training: Training, comparison: BeforeAfter | None
) -> Markup:
    """Renders the state of the run, and after its end the figures on the held-out pairs before and after training."""
    rows = []
    verdict = ""
    if comparison is not None:
        rows = [("before", *_figures(comparison.before)), ("after", *_figures(comparison.after))]
        if comparison.difference is not None:
            pairs = format_count(comparison.pairs, "held-out pair")
            difference = comparison.difference.describe(
                "the trained model", "the one before", f"on {pairs}"
            )
            verdict = messages.sentence_case(f"{difference}.")
    return macro("label/training")(
        run=run,
        rows=rows,
        verdict=verdict,
        training=training,
        is_at_work=run.state in AT_WORK,
        metric="average precision %" if project.info.is_binary else "ρ ×100",
    )


def _figures(estimate: Estimate, digits: int = 1) -> tuple[str, str]:
    """Returns the value and its interval as texts; `MISSING` for an undefined number."""
    # An estimate is a value and the two bounds of its interval.
    numbers = [None if isnan(number) else number for number in estimate]
    value, low, high = (format_number(number, digits) for number in numbers)
    interval = MISSING if low == MISSING else f"{low} to {high}"
    return value, interval
