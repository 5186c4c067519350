"""Distil an encoder into a static model, below the runs: model, dimensions, a button, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator

import gradio as gr

from sbert_app.pages.components.events import PRIVATE
from sbert_app.pages.components.messages import note
from sbert_app.pages.components.pickers import model_picker
from sbert_app.pages.components.task import TaskWidget, Update
from sbert_app.services.container import Services
from sbert_app.services.models.distillation import Distilled, distill_to_home
from sbert_app.services.tasks import ReportProgress, ShouldStop
from training.registry import DEFAULT_MODEL

DIMENSIONS = [64, 128, 256, 384]
WHAT = (
    "A table of token vectors in place of the network: each token goes through the model once, principal components "
    "keep the dimensions that differ most, and frequent tokens count less. A sentence is the mean of its tokens."
)


def build(services: Services) -> None:
    """Build the accordion inside the open Blocks."""
    with gr.Accordion("Distil into a static model", open=False, elem_id="distil"):
        gr.HTML(note(WHAT))
        with gr.Row():
            model = model_picker(services, elem_id="distil-model")
            dimension = gr.Dropdown(
                DIMENSIONS, value=256, label="Dimensions", info="At most the model's", min_width=160
            )
            data = gr.Textbox(
                "", label="Data set", info="To count tokens in; empty: Zipf's law", placeholder="stsb:train"
            )
        with gr.Row(elem_classes="actions"):
            start = gr.Button("Distil", variant="primary", elem_id="distil-start")
            stop = gr.Button("Stop", interactive=False)
        status = gr.HTML(elem_id="distil-status")
    task = TaskWidget("distil", status, stop, start, "stopped: no model was made.")

    def run(name: str, size: int, data_name: str, request: gr.Request) -> Iterator[Update]:
        """Distil, with a progress bar."""
        teacher = (name or DEFAULT_MODEL).strip()

        def work(report_progress: ReportProgress, should_stop: ShouldStop) -> Distilled:
            services.models.download([teacher], report_progress, should_stop)
            if data_name.strip():
                services.access.check_data(data_name.strip())

            def on_progress(done: int, total: int | None) -> None:
                report_progress(done / (total or done), f"Distilling {teacher}")

            return distill_to_home(services.models, teacher, int(size), data_name.strip(), on_progress, should_stop)

        def show(made: Distilled) -> Update:
            return {
                status: note(
                    f"{made.model}: {made.tokens:,} tokens of {made.dimension} dimensions, {made.megabytes} MB, in "
                    f"{made.seconds:.0f} s. It can be chosen by this name on every page."
                )
            }

        yield from task.run(services, request, work, show, {})

    started = start.click(run, [model, dimension, data], task.outputs, **PRIVATE)
    task.wire(services, started)
