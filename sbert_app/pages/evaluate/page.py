"""The Evaluate page: how good a model is, with confidence intervals. Each kind of test has a tab."""

import gradio as gr

from sbert_app.pages.components.address import inputs_of, remember
from sbert_app.pages.components.messages import heading, note
from sbert_app.pages.evaluate import calibration, cost, error_analysis, folds, labels, sts, threshold
from sbert_app.services.container import Services

# (function that builds the tab, title, id)
TABS = (
    (sts.build, "Sentence similarity", "sts"),
    (threshold.build, "Threshold", "threshold"),
    (error_analysis.build, "Error analysis", "errors"),
    (calibration.build, "What a cosine means", "calibration"),
    (labels.build, "Triplets and labels", "labels"),
    (cost.build, "Cost", "cost"),
    (labels.build_transfer, "Transfer", "transfer"),
    (folds.build, "Folds", "folds"),
)
RELOAD_NOTE = "Files are not kept: upload them again after a reload."


def build(services: Services) -> None:
    gr.HTML(heading("Evaluate", "How good is a model, and how sure is that?"))
    with gr.Tabs(overflow_behavior="wrap") as tabs:
        for build_tab, title, name in TABS:
            with gr.Tab(title, id=name):
                build_tab(services)
    gr.HTML(note(RELOAD_NOTE))
    remember(inputs_of(tabs), tabs)
