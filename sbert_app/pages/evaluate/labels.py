"""The tabs Triplets and labels (the paper's section 4.4) and Transfer (its section 5): data without gold scores."""

from typing import Any

import gradio as gr
from markupsafe import Markup

from sbert_app.figures.evaluation import label_histograms
from sbert_app.pages.components import messages
from sbert_app.pages.components.events import Update
from sbert_app.pages.components.file_panel import FilePanel, chosen_name
from sbert_app.pages.components.measure_tab import MeasureTab, hidden, visible
from sbert_app.pages.components.pickers import data_choices
from sbert_app.pages.components.report import of_page, report_button
from sbert_app.pages.components.templates import render
from sbert_app.pages.evaluate.pickers import (
    MODELS,
    ModelAndData,
    file_instead_of,
    model_dropdown,
    shipped,
)
from sbert_app.services.background.watch import Watch
from sbert_app.services.container import Services
from sbert_app.services.results import transfer
from sbert_app.services.results.decisions import score_labels
from sbert_app.services.results.transfer import TRANSFER_TASKS, ClassificationData, TransferScore
from training.catalogue import SCORED, TRIPLETS
from training.data.transforms import TRIPLET_ROWS, transform_for
from training.errors import InputError, summary_of
from training.evaluation.scoring import evaluate
from training.models.model import Model
from training.names import ModelName

INTRO = (
    "Triplets (anchor, positive, negative): how often is the anchor closer to the positive than to the negative? The "
    "paper (Table 4, Wikipedia sections) reports 0.8042 for SBERT-WikiSec-base and 0.74 for Dor et al. Pairs with "
    "labels: does the cosine keep the order entailment, neutral, contradiction?"
)
GENRES = "STSb dev: news, captions or forums"
TASKS = [
    (GENRES, GENRES),
    *((f"{task.title} (Hub)", name) for name, task in TRANSFER_TASKS.items()),
]
MAX_CLASSES_LISTED = 8
TRANSFER_INTRO = (
    "How well do sentence embeddings serve a classifier for another task? The encoder stays frozen, and logistic "
    "regression is scored by ten-fold cross-validation. Rows that share a sentence stay in one fold. A file needs "
    "sentences or pairs, and a label for each."
)


def build(services: Services) -> None:
    """Builds the tab Triplets and labels inside the open Blocks; it opens with a shipped measurement."""
    gr.HTML(messages.note(INTRO))
    pickers = ModelAndData(services, "labels", data_choices("labels"), "stsb:dev")
    tab = MeasureTab.build(
        services, "labels", "Score", ("score-labels", "stop-labels", "labels-status")
    )
    pickers.panel.hold([tab.start])
    spread = gr.Plot(show_label=False, visible=False, elem_id="labels-spread")
    shows = {"Result": [tab.status, spread]}
    report_button(services, *of_page("Triplets and labels", shows), "labels")

    def score(watch: Watch, *values: str) -> Update:
        """Scores a model on triplets or on labels. Pairs with gold scores become triplets."""
        model, data = pickers.loaded(*values)
        if data.kind == SCORED:
            # Pairs with scores become triplets, as in training. "triplet" is the objective that an
            # error message names.
            data = transform_for(data, TRIPLET_ROWS, "triplet")
        scorer = services.models.get(model, Model)
        # The template renders the figures of either kind: a dict for triplets, an object for
        # labels.
        result: Any
        figure = None
        if data.kind == TRIPLETS:
            result = evaluate(
                scorer, data, on_progress=watch.on_progress, should_stop=watch.should_stop
            )
            notes = [*data.notes, *result["notes"]]
        else:
            result = score_labels(scorer, data, watch)
            notes = [*data.notes, *result.notes]
            figure = label_histograms(result.by_label)
        return {
            tab.status: render(
                "evaluate/templates/label_scores.html",
                model=model.label,
                data=data.name,
                notes=notes,
                result=result,
            ),
            spread: visible(figure),
        }

    tab.wire(
        score,
        pickers.inputs,
        {spread: hidden()},
        example=lambda: {tab.status: shipped("label_scores")},
    )


def build_transfer(services: Services) -> None:
    """Builds the tab Transfer: logistic regression on frozen embeddings, in ten folds, as SentEval does.

    It opens with a shipped measurement.
    """
    gr.HTML(messages.note(TRANSFER_INTRO))
    with gr.Row():
        picker = model_dropdown(
            services, [MODELS[0], "tfidf"], min_width=300, elem_id="transfer-models"
        )
        data = gr.Dropdown(
            TASKS,
            value=GENRES,
            min_width=240,
            elem_id="transfer-data",
            label="Task",
            info="or your own file",
        )
        file = file_instead_of(data, min_width=260, elem_id="transfer-file")
    panel = FilePanel(services, file, "transfer")
    tab = MeasureTab.build(
        services, "transfer", "Score", ("score-transfer", "stop-transfer", "transfer-status")
    )
    panel.hold([tab.start])
    report_button(services, *of_page("Transfer", {"Accuracy": [tab.status]}), "transfer")

    def score(watch: Watch, names: list[str], task: str, file: str | None, *how: str) -> Update:
        """Scores each model on the task, or on the file in its place."""
        if not names:
            raise InputError("choose at least one model")
        models = [ModelName.parse(name) for name in names]
        home = services.settings.home
        if file:
            # ``how`` says how the panel reads the file.
            rows = transfer.read_labelled(chosen_name(services, file, *how))
        elif task == GENRES:
            rows = transfer.sentences_by_genre(home)
        else:
            rows = transfer.load_task(task, home)
        scores = [_score(model, rows, services, watch) for model in models]
        return {tab.status: score_table(models, rows, scores)}

    tab.wire(
        score,
        [picker, data, file, *panel.inputs],
        # The status is the only output, and an error replaces it, so nothing else has to be
        # cleared.
        {},
        example=lambda: {tab.status: shipped("transfer_scores")},
    )


def score_table(
    models: list[ModelName], data: ClassificationData, scores: list[TransferScore | str]
) -> Markup:
    """Renders the accuracy of each model, or the reason why it has none, and the size of the data by class.

    The template adds the accuracy of a classifier that always says the largest class.
    """
    means = [score.mean for score in scores if isinstance(score, TransferScore)]
    labels = [model.label for model in models]
    return render(
        "evaluate/templates/transfer_scores.html",
        data=data.name,
        size=len(data),
        # The largest class comes first.
        classes=data.classes[:MAX_CLASSES_LISTED],
        rows=list(zip(labels, scores, strict=True)),
        best=max(means, default=None),
        notes=data.notes,
    )


def _score(
    model: ModelName, data: ClassificationData, services: Services, watch: Watch
) -> TransferScore | str:
    """Returns the score, or the reason why the model has none, so that an error does not stop the other models."""
    try:
        return transfer.score_transfer(services.models.get(model, Model), data, watch)
    except InputError as error:
        return summary_of(error)
