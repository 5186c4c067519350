"""Evaluate, transfer: logistic regression on frozen vectors, ten folds (the paper's section 5, SentEval)."""

from __future__ import annotations

from html import escape
from typing import Any

import gradio as gr

from sbert_app.pages.components.events import PRIVATE
from sbert_app.pages.components.task import TaskWidget
from sbert_app.pages.evaluate.pickers import MODELS, model_dropdown, own_file
from sbert_app.services.container import Services
from sbert_app.services.results.genres import sentences_by_genre
from sbert_app.services.results.model_spec import ModelSpec
from sbert_app.services.results.transfer import ClassificationData, TransferScore, read_labelled, score_transfer
from sbert_app.services.results.transfer_tasks import TRANSFER_TASKS, load_task
from training.errors import InputError
from training.models.scorer import CROSS, kind_of

GENRES = "STSb dev: news, captions or forums"
DATA = [(GENRES, GENRES), *((f"{task.title} (Hub)", name) for name, task in TRANSFER_TASKS.items())]
INTRO = (
    '<p class="note">What can a classifier read out of sentence vectors that were not made for its task? The encoder '
    "stays as it is; logistic regression is scored on ten held-out tenths. A file needs sentence and label, or "
    "sentence1, sentence2 and label; it goes before the data set.</p>"
)


def build(services: Services) -> None:
    """Lay the tab out inside the open Blocks."""
    gr.HTML(INTRO)
    with gr.Row():
        models = model_dropdown(services, [MODELS[0], "tfidf"], min_width=300, elem_id="transfer-models")
        data = gr.Dropdown(DATA, value=GENRES, label="Task", min_width=240, elem_id="transfer-data")
        file = own_file(min_width=260, elem_id="transfer-file")
    with gr.Row(elem_classes="actions"):
        go = gr.Button("Score", variant="primary", elem_id="score-transfer")
        halt = gr.Button("Stop", interactive=False, elem_id="stop-transfer")
    status = gr.HTML('<p class="note">Press Score.</p>', elem_id="transfer-status")
    place = TaskWidget("transfer", status, halt)

    def score(models: list[str], name: str, file: str | None, request: gr.Request) -> Any:
        def work(tell: Any, should_stop: Any) -> tuple[ClassificationData, list[TransferScore | str]]:
            if not models:
                raise InputError("choose at least one model")
            rows = _load(name, file, services)
            return rows, [_score(model, rows, services, tell, should_stop) for model in models]

        def show(found: tuple[ClassificationData, list[TransferScore | str]]) -> dict[Any, Any]:
            return {status: _table(models, *found)}

        yield from place.run(services, request, work, show, {})

    pressed = go.click(score, [models, data, file], [status, halt], concurrency_limit=2, **PRIVATE)
    place.wire(services, pressed)


def _load(name: str, file: str | None, services: Services) -> ClassificationData:
    home = services.settings.home
    if file:
        return read_labelled(file)
    return sentences_by_genre(home) if name == GENRES else load_task(name, home)


def _score(
    model: str, data: ClassificationData, services: Services, tell: Any, should_stop: Any
) -> TransferScore | str:
    """The score, or the reason why there is none: the other models go on."""
    choice = ModelSpec.parse(model)
    if kind_of(choice.name) == CROSS:
        return "a cross-encoder has no sentence vectors"
    try:
        return score_transfer(services.models.scorer(*choice), data, tell, should_stop)  # type: ignore[arg-type]
    except InputError as error:
        return str(error)


def _table(models: list[str], data: ClassificationData, found: list[TransferScore | str]) -> str:
    sizes = ", ".join(f"{escape(label)} {size:,}" for label, size in data.classes[:8])
    best = max((one.mean for one in found if isinstance(one, TransferScore)), default=None)
    rows = "".join(_row(ModelSpec.parse(model).label, one, best) for model, one in zip(models, found, strict=True))
    majority = data.classes[0][1] / len(data)
    notes = "".join(f"<li>{escape(note)}</li>" for note in data.notes)
    return (
        f'<p class="lead">{escape(data.name)}: {len(data):,} rows ({sizes}).</p><div class="scores tablewrap"><table '
        'class="plain"><thead><tr><th>Model</th><th class="number">accuracy, %</th><th class="number">folds</th><th '
        f'class="number">seconds to encode</th></tr></thead><tbody>{rows}<tr class="paper-row"><th scope="row">always '
        f'the largest class</th><td class="number">{100 * majority:.2f}</td><td></td><td></td></tr></tbody></table>'
        "</div><p class='note'>± is the standard deviation over the folds, which share most of their training rows: it "
        f"is no interval.</p>{f'<ul class=findings>{notes}</ul>' if notes else ''}"
    )


def _row(label: str, found: TransferScore | str, best: float | None) -> str:
    head = f'<tr><th scope="row">{escape(label)}</th>'
    if isinstance(found, str):
        return f'{head}<td colspan="3"><small>{escape(found)}</small></td></tr>'
    mean = f"{100 * found.mean:.2f}"
    shown = f"<b>{mean}</b>" if found.mean == best else mean
    return (
        f'{head}<td class="number">{shown}<small>± {100 * found.std:.2f}</small></td>'
        f'<td class="number">{len(found.accuracies)}</td><td class="number">{found.seconds[0]:.1f}</td></tr>'
    )
