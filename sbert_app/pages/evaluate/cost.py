"""Evaluate, cost: quality against the size of the vectors, for dimensions and precisions, with the time of a search."""

from __future__ import annotations

from collections.abc import Iterator

import gradio as gr
from markupsafe import Markup

from sbert_app.figures.cost import quality_and_size
from sbert_app.pages.components import messages
from sbert_app.pages.components.events import PRIVATE
from sbert_app.pages.components.task import TaskWidget, Update
from sbert_app.pages.components.templates import render
from sbert_app.pages.evaluate.pickers import DATA, ModelAndData
from sbert_app.services.container import Services
from sbert_app.services.results.cost import CostTable, measure_cost
from sbert_app.services.results.model_spec import ModelSpec
from sbert_app.services.results.results import data_label
from sbert_app.services.tasks import ReportProgress, ShouldStop
from training.evaluation.vector_precision import PRECISIONS

NEAR = 1.0  # points of ρ ×100 that the recommended size may lose
WAITING = messages.waiting("Measuring the vectors of all-MiniLM-L6-v2 …")
INTRO = (
    "A million vectors of 384 numbers in float32 take 1.5 GB. How much quality do fewer dimensions and fewer bits "
    "cost? The first so many numbers of each vector are kept and stored in float32, bf16, int8 and binary. Models "
    "trained with Matryoshka losses are made for fewer dimensions; others are cut as well, and this shows what they "
    "lose."
)


def build(services: Services) -> None:
    """Build the tab inside the open Blocks; its example is computed when the tab is first opened."""
    gr.HTML(messages.note(INTRO))
    pickers = ModelAndData(services, "cost", DATA, "stsb:test")
    with gr.Row(elem_classes="actions"):
        start = gr.Button("Measure", variant="primary", elem_id="measure-cost")
        stop = gr.Button("Stop", interactive=False, elem_id="stop-cost")
    status = gr.HTML(WAITING, elem_id="cost-status")
    figure = gr.Plot(show_label=False, visible=False, elem_id="cost-figure")
    table = gr.HTML(elem_id="cost-table")
    task = TaskWidget("cost", status, stop, start)

    def measure(model: str, name: str, file: str | None, request: gr.Request, *how: str) -> Iterator[Update]:
        def work(report_progress: ReportProgress, should_stop: ShouldStop) -> Update:
            from training.data.load import load_data

            spec = ModelSpec.parse(model or "")
            pairs = load_data(pickers.chosen(name, file, *how), services.settings.home, split="test")
            report_progress(0, f"Loading {spec.label}")
            found = measure_cost(services.models.scorer(*spec), pairs, report_progress, should_stop)
            return {
                status: summary(spec, found),
                figure: gr.Plot(quality_and_size(found), visible=True),
                table: cost_table(found),
            }

        hidden: Update = {figure: gr.Plot(visible=False), table: ""}
        yield from task.run(services, request, work, lambda update: update, hidden)

    def measure_once(
        shown: str, model: str, name: str, file: str | None, request: gr.Request, *how: str
    ) -> Iterator[Update]:
        """Measure the example when the tab is opened for the first time."""
        if shown == WAITING:
            yield from measure(model, name, file, request, *how)
        else:
            yield {status: gr.skip()}  # a generator that yields nothing would clear its outputs

    tab, inputs = gr.context.Context.block, pickers.inputs
    outputs = [figure, table, *task.outputs]
    opened = tab.select(measure_once, [status, *inputs], outputs, concurrency_limit=1, **PRIVATE)
    pressed = start.click(measure, inputs, outputs, trigger_mode="always_last", concurrency_limit=1, **PRIVATE)
    task.wire(services, opened, pressed)


def summary(model: ModelSpec, found: CostTable) -> Markup:
    """The full vectors, and the smallest that come near them."""
    near = found.smallest_within(NEAR)
    return render(
        "evaluate/templates/cost_summary.html",
        model=model.label,
        data=data_label(found.data),
        table=found,
        full=found.cells[0],
        near=near,
        near_label=PRECISIONS[near.precision].label,
        points=NEAR,
    )


def cost_table(found: CostTable) -> Markup:
    """A row for each number of dimensions, a column for each precision."""
    return render(
        "evaluate/templates/cost_table.html",
        table=found,
        precisions=[(name, precision.label) for name, precision in PRECISIONS.items()],
    )
