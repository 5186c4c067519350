"""The second tab of the front page: up to 500 sentences, every pair of them, and what that costs."""

from __future__ import annotations

import threading
from typing import Any

import gradio as gr

from sbert_app.figures import compare as figures
from sbert_app.pages.compare import views
from sbert_app.pages.components.messages import error_message
from sbert_app.pages.components.pickers import cross_encoder_picker, model_and_pooling
from sbert_app.services.compare import examples, throughput
from sbert_app.services.compare.comparison import AllPairs, compare_all
from sbert_app.services.container import Services
from training.errors import Stopped, UserFacingError
from training.registry import DEFAULT_MODEL

Outputs = tuple[Any, Any, Any, Any]  # times, cosine matrix, cross-encoder matrix, ranked pairs


def build(services: Services, tab: gr.Tab) -> None:
    """Build the tab; its example is computed when it is opened for the first time."""
    lines = gr.Textbox(
        examples.lines(),
        label="Sentences, one per line",
        info="2 to 500 lines. The cross-encoder compares every pair of up to 30 lines.",
        lines=8,
        max_lines=16,
        elem_id="lines",
    )
    with gr.Row():
        model, pooling = model_and_pooling(services)
        cross = cross_encoder_picker()
    with gr.Row():
        go = gr.Button("Compare all pairs", variant="primary", elem_id="compare-all")
        stop = gr.Button("Stop", elem_id="stop-all")
    times = gr.HTML(elem_id="times")
    with gr.Row():
        cosine_matrix = gr.Plot(show_label=False, elem_id="cosine-matrix", min_width=320, visible=False)
        cross_matrix = gr.Plot(show_label=False, elem_id="cross-matrix", min_width=320, visible=False)
    ranked = gr.HTML(elem_id="ranked")
    computed = gr.State(False)
    stop_events: dict[str | None, threading.Event] = {}  # one per browser session, while it computes
    inputs = [lines, model, pooling, cross]
    outputs = [times, cosine_matrix, cross_matrix, ranked]

    def run(lines: str, model: str, pooling: str, cross: str | None, request: gr.Request) -> Outputs:
        stop_event = stop_events[request.session_hash] = threading.Event()
        try:
            return _all_pairs(services, lines, model, pooling, cross, stop_event)
        finally:
            stop_events.pop(request.session_hash, None)

    def run_once(
        done: bool, lines: str, model: str, pooling: str, cross: str | None, request: gr.Request
    ) -> tuple[Any, ...]:
        if done:
            return tuple(gr.skip() for _ in (*outputs, computed))
        return (*run(lines, model, pooling, cross, request), True)

    def halt(request: gr.Request) -> None:
        if (stop_event := stop_events.get(request.session_hash)) is not None:
            stop_event.set()

    busy: dict[str, Any] = {"api_visibility": "private", "show_progress_on": times, "concurrency_limit": 2}
    go.click(run, inputs, outputs, **busy)
    tab.select(run_once, [computed, *inputs], [*outputs, computed], **busy)
    stop.click(halt, None, None, queue=False, api_visibility="private")


def _all_pairs(
    services: Services, lines: str, model: str, pooling: str, cross: str | None, stop_event: threading.Event
) -> Outputs:
    """All pairs of the lines, or what is wrong with them."""
    try:
        encoder = services.models.encoder(model or DEFAULT_MODEL, pooling or None)
        cross_encoder = services.models.cross_encoder_or_none(cross)
        pairs = compare_all(encoder, cross_encoder, lines, stop_event.is_set)
        rates = throughput.measure(encoder, cross_encoder, services.settings.home)
    except UserFacingError as error:
        return _nothing(error_message(error))
    except Stopped:
        return _nothing(error_message("stopped before there was a result."))
    return (
        views.all_pairs_times(pairs, rates),
        gr.Plot(figures.cosine_matrix(pairs.lines, pairs.cosine, "cosine of the bi-encoder"), visible=True),
        _cross_plot(pairs),
        views.ranked(pairs),
    )


def _nothing(message: str) -> Outputs:
    """A message in place of all results: nothing of an earlier one may stand beside it."""
    return message, gr.Plot(None, visible=False), gr.Plot(None, visible=False), ""


def _cross_plot(pairs: AllPairs) -> Any:
    if pairs.cross is None:
        return gr.Plot(None, visible=False)
    return gr.Plot(figures.cosine_matrix(pairs.lines, pairs.cross, "score of the cross-encoder"), visible=True)
