"""The tab Cost: quality against the size of the vectors by dimensions and precision, with the time of a search."""

import gradio as gr

from sbert_app.figures.evaluation import quality_and_size
from sbert_app.pages.components import messages
from sbert_app.pages.components.events import Update
from sbert_app.pages.components.measure_tab import MeasureTab, hidden, visible
from sbert_app.pages.components.report import of_page, report_button
from sbert_app.pages.components.templates import macro, render
from sbert_app.pages.evaluate.pickers import DATA, ModelAndData
from sbert_app.services.background.watch import Watch
from sbert_app.services.container import Services
from sbert_app.services.results.cost import CostTable, measure_cost
from sbert_app.services.results.grid import with_scores
from sbert_app.services.results.precomputed import SHIPPED_COST
from sbert_app.services.store.documents import read_document
from training.models.model import Model
from training.names import ModelName
from training.quantization import PRECISIONS

# The points of ρ ×100 that the recommended size may lose.
MOST_LOSS = 1.0
INTRO = (
    "A million vectors of 384 numbers in float32 take 1.5 GB. How much quality do smaller vectors cost? Each vector is "
    "cut after its first numbers and stored in float32, bf16, int8 and binary. Only models with Matryoshka training "
    "are made to be cut."
)


def build(services: Services) -> None:
    """Builds the tab inside the open Blocks. It opens with a shipped measurement."""
    gr.HTML(messages.note(INTRO))
    pickers = ModelAndData(services, "cost", DATA, "stsb:test")
    tab = MeasureTab.build(
        services, "cost", "Measure", ("measure-cost", "stop-cost", "cost-status")
    )
    pickers.panel.hold([tab.start])
    figure = gr.Plot(show_label=False, visible=False, elem_id="cost-figure")
    table = gr.HTML(elem_id="cost-table")
    shows = {"Quality and size": [tab.status, figure, table]}
    report_button(services, *of_page("Cost", shows), "cost")

    def measure(watch: Watch, *values: str) -> Update:
        model, pairs = pickers.loaded(*values)
        watch.report(0, f"Loading {model.label}")
        # Pairs without gold scores have labels, which are read as scores.
        costs = measure_cost(services.models.get(model, Model), with_scores(pairs), watch)
        return result(costs, model, "Measured now")

    def result(costs: CostTable, model: ModelName, origin: str) -> Update:
        """Shows a measurement. ``origin`` says where it comes from, such as "Measured now"."""
        labels = {name: precision.label for name, precision in PRECISIONS.items()}
        # The smallest vectors that lose at most `MOST_LOSS` points of quality, or None.
        smallest = costs.smallest_within(MOST_LOSS)
        return {
            tab.status: macro("evaluate/cost_summary")(
                costs, model.label, smallest, labels, MOST_LOSS
            ),
            figure: visible(quality_and_size(costs)),
            table: render(
                "evaluate/templates/cost_table.html",
                table=costs,
                precisions=list(labels.items()),
                measured=origin,
            ),
        }

    def example() -> Update:
        costs = read_document(SHIPPED_COST, CostTable)
        return result(costs, ModelName.parse(costs.model), "Shipped with the app, measured")

    # One measurement at a time, as the search is timed.
    tab.wire(measure, pickers.inputs, {figure: hidden(), table: ""}, limit=1, example=example)
