"""Evaluate, threshold: from which similarity on two sentences count as a match, chosen on one half of the pairs."""

from __future__ import annotations

import gradio as gr

from sbert_app.figures import evaluation as figures
from sbert_app.pages.components import messages
from sbert_app.pages.components.decisions import MEANING, criterion_labels, decision_table
from sbert_app.pages.components.events import Update
from sbert_app.pages.components.measure_tab import MeasureTab, hidden, shown
from sbert_app.pages.components.pickers import data_choices
from sbert_app.pages.evaluate.pickers import ModelAndData, first_rows
from sbert_app.services.background.watch import Watch
from sbert_app.services.container import Services
from sbert_app.services.results.results import data_label
from training.errors import InputError
from training.evaluation.thresholds import BEST_F1, PRECISION, decide_data

DATA = [
    *data_choices("stsb:dev", "stsb:test", "snli:dev", "mnli:dev"),
    ("Quora duplicates (Hub)", "hf:sentence-transformers/quora-duplicates:pair-class:train"),
]
WAITING = messages.waiting("Scoring STSb dev …")
INTRO = (
    "From which similarity on do two sentences mean the same? Pairs with labels (1 and 0, duplicate or not, entailment "
    "against the rest) or gold scores say it: the threshold is chosen on one half of them and measured on the other."
)


def build(services: Services) -> None:
    """Build the tab inside the open Blocks; its example is computed when the tab is first opened."""
    gr.HTML(messages.note(INTRO))
    pickers = ModelAndData(services, "threshold", DATA, "stsb:dev")
    with gr.Row():
        precision = gr.Number(
            0.95,
            label="Precision of at least",
            info="The share of matches above the threshold, kept with 90% confidence",
            minimum=0.01,
            maximum=0.999,
            step=0.01,
            min_width=220,
            elem_id="threshold-precision",
        )
        match_from = gr.Number(
            4,
            label="A gold score from here on is a match",
            info="On the scale 0–5; labels need none",
            minimum=0.1,
            maximum=5,
            step=0.5,
            min_width=220,
            elem_id="threshold-match",
        )
    ids = ("find-threshold", "stop-threshold", "threshold-status")
    tab = MeasureTab.build(services, "threshold", "Find the threshold", ids, WAITING)
    with gr.Row():
        curve = gr.Plot(show_label=False, visible=False, min_width=300, elem_id="threshold-curve")
        by_threshold = gr.Plot(show_label=False, visible=False, min_width=300, elem_id="threshold-lines")
    meaning = gr.HTML(messages.note(MEANING), visible=False)

    def find(watch: Watch, precision: float | None, match_from: float | None, *values: str) -> Update:
        if match_from is None:
            raise InputError("say from which gold score on a pair is a match, such as 4")
        criteria = [BEST_F1, f"{PRECISION}={precision or 0:g}"]
        model, rows = pickers.loaded(*values)
        rows, scorer, progress = first_rows(rows), services.models.scorer(model), watch.stage("Scoring").on_progress
        found = decide_data(scorer, rows, criteria, match_from, progress, watch.should_stop)
        return {
            tab.status: decision_table(f"{model.label} on {data_label(rows.name)}", found, rows.notes),
            curve: shown(figures.precision_recall(found.decision, criterion_labels(found.decision))),
            by_threshold: shown(figures.by_threshold(found.decision, found.similarity)),
            meaning: gr.update(visible=True),
        }

    nothing = {part: hidden() for part in (curve, by_threshold, meaning)}
    tab.wire(find, [precision, match_from, *pickers.inputs], nothing, once=True)
