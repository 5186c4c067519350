"""Evaluate, triplets and labels: data without gold scores (the paper's section 4.4, and inference labels)."""

from __future__ import annotations

from collections.abc import Iterator

import gradio as gr
from markupsafe import Markup

from sbert_app.figures.evaluation import label_histograms
from sbert_app.pages.components import messages
from sbert_app.pages.components.events import PRIVATE
from sbert_app.pages.components.task import TaskWidget, Update
from sbert_app.pages.components.templates import render
from sbert_app.pages.evaluate.pickers import ModelAndData
from sbert_app.services.container import Services
from sbert_app.services.results.labels import LabelScore, TripletScore, score_labels
from sbert_app.services.results.model_spec import ModelSpec
from sbert_app.services.tasks import ReportProgress, ShouldStop
from training.data.dataset import SCORED, Dataset

DATA = [
    ("STSb dev as triplets", "stsb:dev"),
    ("SNLI dev (Hub)", "snli:dev"),
    ("SNLI test (Hub)", "snli:test"),
    ("MultiNLI dev (Hub)", "mnli:dev"),
    ("Wikipedia sections, test (Hub)", "wiki-sections:test"),
]
MAX_ROWS = 20_000
INITIAL_STATUS = messages.note("Press Score.")
INTRO = (
    "Triplets (anchor, positive, negative): how often is the anchor closer to the positive than to the negative? The "
    "paper (Table 4, Wikipedia sections) reports 0.8042 for SBERT-WikiSec-base and 0.74 for Dor et al. Pairs with "
    "labels: does the cosine keep the order entailment, neutral, contradiction, and how well does a threshold separate "
    "what belongs together (entailment, 1) from what does not (contradiction, 0)?"
)


def build(services: Services) -> None:
    """Build the tab inside the open Blocks; its example is scored when the tab is first opened."""
    gr.HTML(messages.note(INTRO))
    pickers = ModelAndData(services, "labels", DATA, "stsb:dev")
    with gr.Row(elem_classes="actions"):
        start = gr.Button("Score", variant="primary", elem_id="score-labels")
        stop = gr.Button("Stop", interactive=False, elem_id="stop-labels")
    status = gr.HTML(INITIAL_STATUS, elem_id="labels-status")
    spread = gr.Plot(show_label=False, visible=False, elem_id="labels-spread")
    task = TaskWidget("labels", status, stop)

    def score(model: str, name: str, file: str | None, request: gr.Request, *how: str) -> Iterator[Update]:
        def work(report_progress: ReportProgress, should_stop: ShouldStop) -> Update:
            rows = _load(pickers.chosen(name, file, *how), services)
            spec = ModelSpec.parse(model or "")
            result = score_labels(services.models.scorer(*spec), rows, report_progress, should_stop)
            figure = label_histograms(result.by_label) if isinstance(result, LabelScore) else None
            return {
                status: score_summary(spec, rows, result),
                spread: gr.Plot(figure, visible=figure is not None),
            }

        yield from task.run(services, request, work, lambda update: update, {spread: gr.Plot(visible=False)})

    def score_once(
        shown: str, model: str, name: str, file: str | None, request: gr.Request, *how: str
    ) -> Iterator[Update]:
        """Score the example when the tab is opened for the first time."""
        if shown == INITIAL_STATUS:
            yield from score(model, name, file, request, *how)
        else:
            yield {status: gr.skip()}  # a generator that yields nothing would clear its outputs

    tab, inputs, outputs = gr.context.Context.block, pickers.inputs, [spread, *task.outputs]
    opened = tab.select(score_once, [status, *inputs], outputs, concurrency_limit=2, **PRIVATE)
    pressed = start.click(score, inputs, outputs, trigger_mode="always_last", concurrency_limit=2, **PRIVATE)
    task.wire(services, opened, pressed)


def score_summary(model: ModelSpec, data: Dataset, result: TripletScore | LabelScore) -> Markup:
    """Accuracy on triplets, or ρ with the labels, with its 95% interval."""
    values: dict[str, dict[str, object] | None] = {"triplets": None, "labels": None}
    if isinstance(result, TripletScore):
        (similarity, accuracy), *others = [(name, 100 * share) for name, share in result.accuracy.items()]
        values["triplets"] = {
            "n": result.n,
            "similarity": similarity,
            "accuracy": accuracy,
            "others": others,
            "ties": result.ties,
        }
    else:
        means = [(label, scores.mean()) for label, scores in result.by_label.items()]
        values["labels"] = {
            "n": result.n,
            "rho": 100 * result.rho,
            "means": means,
            "pairs": result.pairs,
            "positives": result.positives,
            "classified": result.classified,
        }
    return render(
        "evaluate/templates/label_scores.html",
        model=model.label,
        data=data.name,
        notes=data.notes,
        interval=(100 * result.interval.low, 100 * result.interval.high),
        **values,
    )


def _load(name: str, services: Services) -> Dataset:
    """The rows to score; scored pairs become triplets, as in training."""
    from training.data.load import load_data
    from training.data.transforms import transform_for

    data = load_data(name, services.settings.home, split="test")
    if data.kind == SCORED:
        data = transform_for(data, "triplet")
    if len(data) > MAX_ROWS:
        data = data.select(range(MAX_ROWS), f"the first {MAX_ROWS:,} rows")
    return data
