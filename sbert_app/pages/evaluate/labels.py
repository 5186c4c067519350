"""Evaluate, triplets and labels: data without gold scores (the paper's section 4.4, and inference labels)."""

from __future__ import annotations

import gradio as gr
from markupsafe import Markup

from sbert_app.figures.evaluation import label_histograms
from sbert_app.pages.components import messages
from sbert_app.pages.components.events import Update
from sbert_app.pages.components.measure_tab import MeasureTab, hidden, shown
from sbert_app.pages.components.pickers import data_choices
from sbert_app.pages.components.templates import render
from sbert_app.pages.evaluate.pickers import ModelAndData
from sbert_app.services.background.watch import Watch
from sbert_app.services.container import Services
from sbert_app.services.results.labels import LabelScore, TripletScore, score_labels
from training.catalogue import SCORED
from training.data.dataset import Dataset
from training.names import ModelName

DATA = [
    ("STSb dev as triplets", "stsb:dev"),
    *data_choices("snli:dev", "snli:test", "mnli:dev", "wiki-sections:test"),
]
MAX_ROWS = 20_000
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
    ids = ("score-labels", "stop-labels", "labels-status")
    tab = MeasureTab.build(services, "labels", "Score", ids, messages.note("Press Score."))
    spread = gr.Plot(show_label=False, visible=False, elem_id="labels-spread")

    def score(watch: Watch, *values: str) -> Update:
        spec, name = pickers.chosen(*values)
        rows = _load(name, services)
        result = score_labels(services.models.scorer(spec), rows, watch)
        figure = label_histograms(result.by_label) if isinstance(result, LabelScore) else None
        return {tab.status: score_summary(spec, rows, result), spread: shown(figure)}

    tab.wire(score, pickers.inputs, {spread: hidden()}, once=True)


def score_summary(model: ModelName, data: Dataset, result: TripletScore | LabelScore) -> Markup:
    """Accuracy on triplets, or ρ with the labels, with its 95% interval."""
    return render(
        "evaluate/templates/label_scores.html", model=model.label, data=data.name, notes=data.notes, result=result
    )


def _load(name: str, services: Services) -> Dataset:
    """The rows to score; scored pairs become triplets, as in training."""
    from training.data.load import load_data
    from training.data.transforms import TRIPLET_ROWS, transform_for

    data = load_data(name, services.settings.home, split="test")
    if data.kind == SCORED:
        data = transform_for(data, TRIPLET_ROWS, "triplet")
    if len(data) > MAX_ROWS:
        data = data.select(range(MAX_ROWS), f"the first {MAX_ROWS:,} rows")
    return data
