"""The Evaluate page: how good is a model, and how sure is that. A tab for each kind of test, each in its own file."""

from __future__ import annotations

from importlib import import_module

import gradio as gr

from sbert_app.services import Services

# (module with build(services), title, id)
TABS = (
    ("evaluate_sts", "Sentence similarity", "sts"),
    ("evaluate_errors", "Where it errs", "errors"),
    ("evaluate_labels", "Triplets and labels", "labels"),
    ("evaluate_transfer", "Transfer", "transfer"),
    ("evaluate_folds", "Folds", "folds"),
)


def build(services: Services) -> None:
    """Lay the page out inside the open Blocks."""
    gr.HTML('<h1 class="title">Evaluate</h1><p class="tagline">How good is a model, and how sure is that?</p>')
    with gr.Tabs():
        for module, title, name in TABS:
            with gr.Tab(title, id=name):
                import_module(f"sbert_app.pages.{module}").build(services)
