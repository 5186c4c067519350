"""The second tab of the front page: up to 500 sentences, every pair of them, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr
import numpy as np

from sbert_app.figures import compare as figures
from sbert_app.pages.compare import views
from sbert_app.pages.components.events import PRIVATE
from sbert_app.pages.components.pickers import cross_encoder_picker, model_and_pooling
from sbert_app.pages.components.task import TaskWidget, Update
from sbert_app.services.compare import examples, throughput
from sbert_app.services.compare.comparison import MAX_CROSS_LINES, MAX_LINES, AllPairs, compare_all
from sbert_app.services.container import Services
from sbert_app.services.tasks import ReportProgress, ShouldStop
from training.registry import DEFAULT_MODEL


def build(services: Services, tab: gr.Tab) -> gr.Textbox:
    """Build the tab and return the field of the sentences; the example is computed when the tab is first opened."""
    lines = gr.Textbox(
        examples.lines(),
        label="Sentences, one per line",
        info=f"2 to {MAX_LINES} lines. The cross-encoder compares every pair of up to {MAX_CROSS_LINES} lines.",
        lines=8,
        max_lines=16,
        elem_id="lines",
    )
    with gr.Row():
        model, pooling = model_and_pooling(services)
        cross = cross_encoder_picker()
    with gr.Row():
        start = gr.Button("Compare all pairs", variant="primary", elem_id="compare-all")
        stop = gr.Button("Stop", interactive=False, elem_id="stop-all")
    times = gr.HTML(elem_id="times")
    with gr.Row():
        cosine_matrix = gr.Plot(show_label=False, elem_id="cosine-matrix", min_width=320, visible=False)
        cross_matrix = gr.Plot(show_label=False, elem_id="cross-matrix", min_width=320, visible=False)
    ranked = gr.HTML(elem_id="ranked")
    is_computed = gr.State(False)
    task = TaskWidget("many", times, stop, start)

    def all_pairs(lines: str, model: str, pooling: str, cross: str | None, request: gr.Request) -> Iterator[Update]:
        def work(report_progress: ReportProgress, should_stop: ShouldStop) -> Update:
            encoder = services.models.encoder(model or DEFAULT_MODEL, pooling or None)
            cross_encoder = services.models.cross_encoder_or_none(cross)
            report_progress(0, "Comparing all pairs")
            pairs = compare_all(encoder, cross_encoder, lines, should_stop)
            report_progress(0, "Measuring the rates of this machine")
            rates = throughput.measure(encoder, cross_encoder, services.settings.home)
            return {
                times: views.all_pairs_times(pairs, rates),
                cosine_matrix: _matrix(pairs, pairs.cosine, "cosine of the bi-encoder"),
                cross_matrix: _matrix(pairs, pairs.cross, "score of the cross-encoder"),
                ranked: views.ranked(pairs),
            }

        nothing: Update = {cosine_matrix: _hidden(), cross_matrix: _hidden(), ranked: ""}  # of an earlier result
        yield from task.run(services, request, work, lambda update: update, nothing)

    def all_pairs_of_example(
        is_computed_: bool, lines: str, model: str, pooling: str, cross: str | None, request: gr.Request
    ) -> Iterator[Update]:
        """Compare the example when the tab is opened for the first time."""
        yield {is_computed: True}
        if not is_computed_:
            yield from all_pairs(lines, model, pooling, cross, request)

    inputs = [lines, model, pooling, cross]
    outputs = [cosine_matrix, cross_matrix, ranked, *task.outputs]
    busy: dict[str, Any] = {"concurrency_limit": 2, **PRIVATE}
    pressed = start.click(all_pairs, inputs, outputs, **busy)
    opened = tab.select(all_pairs_of_example, [is_computed, *inputs], [is_computed, *outputs], **busy)
    task.wire(services, pressed, opened)
    return lines


def _matrix(pairs: AllPairs, scores: np.ndarray | None, title: str) -> Any:
    if scores is None:
        return _hidden()
    return gr.Plot(figures.cosine_matrix(pairs.lines, scores, title), visible=True)


def _hidden() -> Any:
    return gr.Plot(None, visible=False)
