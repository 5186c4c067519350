"""The Evaluate page: how good is a model, and how sure is that. A tab for each kind of test, each in its own file."""

from __future__ import annotations

from importlib import import_module

import gradio as gr

from sbert_app.services.container import Services

# (module with build(services), title, id)
TABS = (
    ("sts", "Sentence similarity", "sts"),
    ("error_analysis", "Error analysis", "errors"),
    ("labels", "Triplets and labels", "labels"),
    ("transfer", "Transfer", "transfer"),
    ("folds", "Folds", "folds"),
)


def build(services: Services) -> None:
    """Lay the page out inside the open Blocks."""
    gr.HTML('<h1 class="title">Evaluate</h1><p class="tagline">How good is a model, and how sure is that?</p>')
    with gr.Tabs():
        for module, title, name in TABS:
            with gr.Tab(title, id=name):
                import_module(f"sbert_app.pages.evaluate.{module}").build(services)
