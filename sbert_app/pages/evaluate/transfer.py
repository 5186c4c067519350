"""Evaluate, transfer: logistic regression on frozen embeddings, ten folds (the paper's section 5, SentEval)."""

from __future__ import annotations

from collections.abc import Iterator

import gradio as gr
from markupsafe import Markup

from sbert_app.pages.components import messages
from sbert_app.pages.components.columns import UploadOptions, chosen_name
from sbert_app.pages.components.events import PRIVATE
from sbert_app.pages.components.task import TaskWidget, Update
from sbert_app.pages.components.templates import render
from sbert_app.pages.evaluate.pickers import MODELS, file_picker, model_dropdown
from sbert_app.services.container import Services
from sbert_app.services.results.genres import sentences_by_genre
from sbert_app.services.results.model_spec import ModelSpec
from sbert_app.services.results.transfer import ClassificationData, TransferScore, read_labelled, score_transfer
from sbert_app.services.results.transfer_tasks import TRANSFER_TASKS, load_task
from sbert_app.services.tasks import ReportProgress, ShouldStop
from training.errors import InputError, summary_of
from training.models.scorer import CROSS, kind_of

GENRES = "STSb dev: news, captions or forums"
DATA = [(GENRES, GENRES), *((f"{task.title} (Hub)", name) for name, task in TRANSFER_TASKS.items())]
MAX_CLASSES_LISTED = 8
INTRO = (
    "How much can a classifier read from sentence embeddings that were not trained for its task? The encoder stays "
    "frozen; logistic regression is scored by ten-fold cross-validation, in which sentences of a pair and rows with "
    "the same sentence stay in one fold. A file needs sentence and label, or sentence1, sentence2 and label."
)


def build(services: Services) -> None:
    """Build the tab inside the open Blocks."""
    gr.HTML(messages.note(INTRO))
    with gr.Row():
        models = model_dropdown(services, [MODELS[0], "tfidf"], min_width=300, elem_id="transfer-models")
        hint = "An uploaded file replaces this"
        data = gr.Dropdown(DATA, value=GENRES, label="Task", info=hint, min_width=240, elem_id="transfer-data")
        file = file_picker(min_width=260, elem_id="transfer-file")
    how_read = UploadOptions(file, "transfer")
    with gr.Row(elem_classes="actions"):
        start = gr.Button("Score", variant="primary", elem_id="score-transfer")
        stop = gr.Button("Stop", interactive=False, elem_id="stop-transfer")
    status = gr.HTML(messages.note("Press Score."), elem_id="transfer-status")
    task = TaskWidget("transfer", status, stop)

    def score(models: list[str], name: str, file: str | None, request: gr.Request, *how: str) -> Iterator[Update]:
        def work(report_progress: ReportProgress, should_stop: ShouldStop) -> Markup:
            if not models:
                raise InputError("choose at least one model")
            specs = [ModelSpec.parse(model) for model in models]
            rows = _load(name, chosen_name(services, file, *how) if file else None, services)
            scores = [_score(spec, rows, services, report_progress, should_stop) for spec in specs]
            return score_table(specs, rows, scores)

        yield from task.run(services, request, work, lambda table: {status: table}, {})

    pressed = start.click(score, [models, data, file, *how_read.inputs], task.outputs, concurrency_limit=2, **PRIVATE)
    task.wire(services, pressed)


def score_table(models: list[ModelSpec], data: ClassificationData, scores: list[TransferScore | str]) -> Markup:
    """The accuracy of each model, or the reason why it has none, above that of the largest class."""
    best = max((score.mean for score in scores if isinstance(score, TransferScore)), default=None)
    return render(
        "evaluate/templates/transfer_scores.html",
        data=data.name,
        size=len(data),
        classes=data.classes[:MAX_CLASSES_LISTED],
        rows=[_row(model.label, score, best) for model, score in zip(models, scores, strict=True)],
        majority=100 * data.classes[0][1] / len(data),
        notes=data.notes,
    )


def _row(model: str, score: TransferScore | str, best: float | None) -> dict[str, object]:
    if isinstance(score, str):
        return {"model": model, "failure": score}
    return {
        "model": model,
        "failure": None,
        "accuracy": 100 * score.mean,
        "is_best": score.mean == best,
        "std": 100 * score.std,
        "folds": len(score.accuracies),
        "seconds": score.seconds[0],
    }


def _load(name: str, file: str | None, services: Services) -> ClassificationData:
    home = services.settings.home
    if file:
        return read_labelled(file)
    return sentences_by_genre(home) if name == GENRES else load_task(name, home)


def _score(
    model: ModelSpec,
    data: ClassificationData,
    services: Services,
    report_progress: ReportProgress,
    should_stop: ShouldStop,
) -> TransferScore | str:
    """The score, or the reason why there is none, so that the other models still get theirs."""
    if kind_of(model.name) == CROSS:
        return "a cross-encoder has no sentence embeddings"
    try:
        scorer = services.models.scorer(*model)
        return score_transfer(scorer, data, report_progress, should_stop)  # type: ignore[arg-type]
    except InputError as error:
        return summary_of(error)
