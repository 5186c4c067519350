"""The Evaluate page: how good a model is, with confidence intervals. Each kind of test has a tab."""

from collections.abc import Callable, Sequence

import gradio as gr

from sbert_app.pages.components.address import inputs_of, remember
from sbert_app.pages.components.messages import heading
from sbert_app.pages.evaluate import (
    calibration,
    cost,
    error_analysis,
    folds,
    labels,
    sts,
    threshold,
)
from sbert_app.services.container import Services

# (function that builds the tab, title, id)
TABS = (
    (sts.build, "Quality", "sts"),
    (threshold.build, "Threshold", "threshold"),
    (error_analysis.build, "Errors", "errors"),
)
# The tabs within the last one.
MORE = (
    (calibration.build, "What a cosine means", "calibration"),
    (labels.build, "Triplets and labels", "labels"),
    (cost.build, "Cost", "cost"),
    (labels.build_transfer, "Transfer", "transfer"),
    (folds.build, "Folds", "folds"),
)


def build(services: Services) -> None:
    gr.HTML(heading("Evaluate", "How good is a model, and how sure is that?"))
    with gr.Tabs(overflow_behavior="wrap") as tabs:
        _build_tabs(TABS, services)
        with gr.Tab("More", id="more"), gr.Tabs(overflow_behavior="wrap"):
            _build_tabs(MORE, services)
    remember(inputs_of(tabs), tabs)


def _build_tabs(
    tabs: Sequence[tuple[Callable[[Services], None], str, str]], services: Services
) -> None:
    for build_tab, title, name in tabs:
        with gr.Tab(title, id=name):
            build_tab(services)
