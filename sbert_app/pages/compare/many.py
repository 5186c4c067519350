"""The second half of the front page: up to 500 sentences, every pair of them, and what that costs."""

from __future__ import annotations

import threading
from typing import Any

import gradio as gr

from sbert_app.figures import compare as figures
from sbert_app.pages.compare import views
from sbert_app.pages.components.messages import error_message
from sbert_app.pages.components.pickers import cross_encoder_picker, model_picker, pooling_picker
from sbert_app.services.compare import examples, throughput
from sbert_app.services.compare.comparison import AllPairs, compare_all
from sbert_app.services.container import Services
from training.errors import InputError, Stopped
from training.registry import DEFAULT_MODEL

Shown = tuple[Any, Any, Any, Any]  # times, cosine matrix, cross-encoder matrix, ranked pairs


def build(services: Services, tab: gr.Tab) -> None:
    """Lay the tab out; its example is computed when it is opened for the first time."""
    lines = gr.Textbox(
        examples.lines(),
        label="Sentences, one a line",
        info="2 to 500 lines. The cross-encoder compares every pair of up to 30 lines.",
        lines=8,
        max_lines=16,
        elem_id="lines",
    )
    with gr.Row():
        model, pooling, cross = model_picker(), pooling_picker(), cross_encoder_picker()
    with gr.Row():
        go = gr.Button("Compare all pairs", variant="primary", elem_id="compare-all")
        stop = gr.Button("Stop", elem_id="stop-all")
    times = gr.HTML(elem_id="times")
    with gr.Row():
        heat = gr.Plot(show_label=False, elem_id="cosine-matrix", min_width=320)
        crossed = gr.Plot(show_label=False, elem_id="cross-matrix", min_width=320, visible=False)
    ranked = gr.Dataframe(
        headers=["cosine", "cross-encoder", "sentence", "sentence "],
        datatype=["number", "number", "str", "str"],
        label="Most similar pairs first",
        interactive=False,
        wrap=True,
        max_height=420,
        elem_id="ranked",
    )
    shown = [times, heat, crossed, ranked]
    computed = gr.State(False)
    stop_signs: dict[str | None, threading.Event] = {}  # one per browser session, while it computes
    asked = [lines, model, pooling, cross]

    def run(lines: str, model: str, pooling: str, cross: str | None, request: gr.Request) -> Shown:
        sign = stop_signs[request.session_hash] = threading.Event()
        try:
            return _all_pairs(services, lines, model, pooling, cross, sign)
        finally:
            stop_signs.pop(request.session_hash, None)

    def run_once(
        done: bool, lines: str, model: str, pooling: str, cross: str | None, request: gr.Request
    ) -> tuple[Any, ...]:
        if done:
            return tuple(gr.skip() for _ in (*shown, computed))
        return (*run(lines, model, pooling, cross, request), True)

    def halt(request: gr.Request) -> None:
        if request.session_hash in stop_signs:
            stop_signs[request.session_hash].set()

    busy: dict[str, Any] = {"api_visibility": "private", "show_progress_on": times, "concurrency_limit": 2}
    go.click(run, asked, shown, **busy)
    tab.select(run_once, [computed, *asked], [*shown, computed], **busy)
    stop.click(halt, None, None, queue=False, api_visibility="private")


def _all_pairs(
    services: Services, lines: str, model: str, pooling: str, cross: str | None, sign: threading.Event
) -> Shown:
    """All pairs of the lines, or one sentence about what is wrong with them."""
    try:
        encoder = services.models.encoder(model or DEFAULT_MODEL, pooling or None)
        crosser = services.models.cross_encoder_or_none(cross)
        found = compare_all(encoder, crosser, lines, sign.is_set)
        rates = throughput.measure(encoder, crosser, services.settings.home)
    except InputError as error:
        return error_message(error), gr.skip(), gr.skip(), gr.skip()
    except Stopped:
        return error_message("stopped: what is shown below is from before"), gr.skip(), gr.skip(), gr.skip()
    return (
        views.all_pairs_times(found, rates),
        figures.cosine_matrix(found.lines, found.cosine, "cosine of the bi-encoder"),
        _cross_plot(found),
        [
            [round(cosine, 3), None if score is None else round(score, 3), first, second]
            for cosine, score, first, second in found.ranked()
        ],
    )


def _cross_plot(found: AllPairs) -> Any:
    if found.cross is None:
        return gr.Plot(None, visible=False)
    return gr.Plot(figures.cosine_matrix(found.lines, found.cross, "score of the cross-encoder"), visible=True)
