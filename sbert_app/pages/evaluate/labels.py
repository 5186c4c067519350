"""Evaluate, triplets and labels: data without gold scores (the paper's section 4.4, and inference labels)."""

from __future__ import annotations

import gradio as gr

from sbert_app.figures.evaluation import label_histograms
from sbert_app.pages.components import messages
from sbert_app.pages.components.events import Update
from sbert_app.pages.components.measure_tab import MeasureTab, hidden, visible
from sbert_app.pages.components.pickers import data_choices
from sbert_app.pages.components.report import of_page, report_button
from sbert_app.pages.components.templates import render
from sbert_app.pages.evaluate.pickers import ModelAndData
from sbert_app.services.background.watch import Watch
from sbert_app.services.container import Services
from sbert_app.services.results.labels import LabelScore, score_labels
from training.catalogue import SCORED
from training.models.model import Model

INTRO = (
    "Triplets (anchor, positive, negative): how often is the anchor closer to the positive than to the negative? The "
    "paper (Table 4, Wikipedia sections) reports 0.8042 for SBERT-WikiSec-base and 0.74 for Dor et al. Pairs with "
    "labels: does the cosine keep the order entailment, neutral, contradiction?"
)


def build(services: Services) -> None:
    gr.HTML(messages.note(INTRO))
    pickers = ModelAndData(services, "labels", data_choices("labels"), "stsb:dev")
    ids = ("score-labels", "stop-labels", "labels-status")
    tab = MeasureTab.build(services, "labels", "Score", ids, "")
    spread = gr.Plot(show_label=False, visible=False, elem_id="labels-spread")
    report_button(services, *of_page("Triplets and labels", {"Result": [tab.status, spread]}), "labels")

    def score(watch: Watch, *values: str) -> Update:
        from training.data.transforms import TRIPLET_ROWS, transform_for

        model, data = pickers.loaded(*values)
        if data.kind == SCORED:  # become triplets, as in training
            data = transform_for(data, TRIPLET_ROWS, "triplet")
        result = score_labels(services.models.get(model, Model), data, watch)
        facts = {"model": model.label, "data": data.name, "notes": data.notes, "result": result}
        figure = label_histograms(result.by_label) if isinstance(result, LabelScore) else None
        return {tab.status: render("evaluate/templates/label_scores.html", **facts), spread: visible(figure)}

    tab.wire(score, pickers.inputs, {spread: hidden()})
