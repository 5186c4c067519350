"""Evaluate, cost: quality against the size of the vectors, for dimensions and precisions, with the time of a search."""

from __future__ import annotations

import gradio as gr

from sbert_app.figures.evaluation import quality_and_size
from sbert_app.pages.components import messages
from sbert_app.pages.components.events import Update
from sbert_app.pages.components.measure_tab import MeasureTab, hidden, shown
from sbert_app.pages.components.templates import macro, render
from sbert_app.pages.evaluate.pickers import DATA, ModelAndData
from sbert_app.services.background.watch import Watch
from sbert_app.services.container import Services
from sbert_app.services.results.cost import measure_cost
from training.quantization import PRECISIONS

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
    tab = MeasureTab.build(services, "cost", "Measure", ("measure-cost", "stop-cost", "cost-status"), WAITING)
    figure = gr.Plot(show_label=False, visible=False, elem_id="cost-figure")
    table = gr.HTML(elem_id="cost-table")

    def measure(watch: Watch, *values: str) -> Update:
        model, pairs = pickers.loaded(*values)
        watch.report(0, f"Loading {model.label}")
        found = measure_cost(services.models.scorer(model), pairs, watch)
        near = found.smallest_within(NEAR)
        precisions = [(name, precision.label) for name, precision in PRECISIONS.items()]
        return {
            tab.status: macro("evaluate/cost_summary")(
                model=model.label,
                data=found.data,
                full=found.cells[0],
                near=near,
                near_label=PRECISIONS[near.precision].label,
                points=NEAR,
            ),
            figure: shown(quality_and_size(found)),
            table: render("evaluate/templates/cost_table.html", table=found, precisions=precisions),
        }

    tab.wire(measure, pickers.inputs, {figure: hidden(), table: ""}, once=True, limit=1)
