"""The Evaluate page: how good a model is, with confidence intervals. A tab, in its own file, for each kind of test."""

from __future__ import annotations

from importlib import import_module

import gradio as gr

from sbert_app.pages.components.address import inputs_of, remember
from sbert_app.pages.components.messages import heading, note
from sbert_app.services.container import Services

# (module with build(services), title, id of the tab)
TABS = (
    ("sts", "Sentence similarity", "sts"),
    ("threshold", "Threshold", "threshold"),
    ("error_analysis", "Error analysis", "errors"),
    ("labels", "Triplets and labels", "labels"),
    ("cost", "Cost", "cost"),
    ("transfer", "Transfer", "transfer"),
    ("folds", "Folds", "folds"),
)
LINK_KEEPS = "The address of this page keeps what you choose, but no file: upload it again."


def build(services: Services) -> None:
    gr.HTML(heading("Evaluate", "How good is a model, and how sure is that?"))
    with gr.Tabs(overflow_behavior="wrap") as tabs:
        for module, title, name in TABS:
            with gr.Tab(title, id=name):
                import_module(f"sbert_app.pages.evaluate.{module}").build(services)
    gr.HTML(note(LINK_KEEPS))
    remember(inputs_of(tabs), tabs)
