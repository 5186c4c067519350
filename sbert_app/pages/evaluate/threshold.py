"""Evaluate, threshold: from which similarity on two sentences count as a match, chosen on one half of the pairs."""

from __future__ import annotations

from collections.abc import Iterator

import gradio as gr

from sbert_app.figures import thresholds as figures
from sbert_app.pages.components import messages
from sbert_app.pages.components.decisions import MEANING, criterion_labels, decision_table
from sbert_app.pages.components.events import PRIVATE
from sbert_app.pages.components.task import TaskWidget, Update
from sbert_app.pages.evaluate.pickers import ModelAndData
from sbert_app.services.container import Services
from sbert_app.services.results.model_spec import ModelSpec
from sbert_app.services.tasks import ReportProgress, ShouldStop
from training.errors import InputError
from training.evaluation.thresholds import BEST_F1, PRECISION, decide_data

DATA = [
    ("STSb dev", "stsb:dev"),
    ("STSb test", "stsb:test"),
    ("SNLI dev (Hub)", "snli:dev"),
    ("MultiNLI dev (Hub)", "mnli:dev"),
    ("Quora duplicates (Hub)", "hf:sentence-transformers/quora-duplicates:pair-class:train"),
]
MAX_PAIRS = 20_000
WAITING = messages.waiting("Scoring STSb dev …")
INTRO = (
    "From which similarity on do two sentences mean the same? Pairs with labels (1 and 0, duplicate or not, entailment "
    "against the rest) or gold scores say it: the threshold is chosen on one half of them and measured on the other."
)


def build(services: Services) -> None:
    """Build the tab inside the open Blocks; its example is computed when the tab is first opened."""
    gr.HTML(messages.note(INTRO))
    pickers = ModelAndData(services, "threshold", DATA, "stsb:dev")
    with gr.Row():
        precision = gr.Number(
            0.95,
            label="Precision of at least",
            info="Of the pairs above the threshold, this share shall be matches",
            minimum=0.01,
            maximum=1,
            step=0.01,
            min_width=220,
            elem_id="threshold-precision",
        )
        match_from = gr.Number(
            4,
            label="A gold score from here on is a match",
            info="On the scale 0–5; labels need none",
            minimum=0.1,
            maximum=5,
            step=0.5,
            min_width=220,
            elem_id="threshold-match",
        )
    with gr.Row(elem_classes="actions"):
        start = gr.Button("Find the threshold", variant="primary", elem_id="find-threshold")
        stop = gr.Button("Stop", interactive=False, elem_id="stop-threshold")
    status = gr.HTML(WAITING, elem_id="threshold-status")
    with gr.Row():
        curve = gr.Plot(show_label=False, visible=False, min_width=300, elem_id="threshold-curve")
        by_threshold = gr.Plot(show_label=False, visible=False, min_width=300, elem_id="threshold-lines")
    meaning = gr.HTML(messages.note(MEANING), visible=False)
    task = TaskWidget("threshold", status, stop, start)
    results = [curve, by_threshold, meaning]
    hidden: Update = {part: gr.update(visible=False) for part in results}

    def find(
        model: str, name: str, file: str | None, precision: float, match_from: float, request: gr.Request, *how: str
    ) -> Iterator[Update]:
        def work(report_progress: ReportProgress, should_stop: ShouldStop) -> Update:
            from training.data.load import load_data

            if match_from is None:
                raise InputError("say from which gold score on a pair is a match, such as 4")
            criteria = [BEST_F1, f"{PRECISION}={precision or 0:g}"]
            spec = ModelSpec.parse(model or "")
            rows = load_data(pickers.chosen(name, file, *how), services.settings.home, split="test")
            if len(rows) > MAX_PAIRS:
                rows = rows.select(range(MAX_PAIRS), f"the first {MAX_PAIRS:,} pairs")
            found = decide_data(
                services.models.scorer(*spec),
                rows,
                criteria,
                match_from,
                lambda done, total: report_progress(done / (total or 1), "Scoring"),
                should_stop,
            )
            labels = criterion_labels(found.decision)
            return {
                status: decision_table(f"{spec.label} on {rows.name}", found, rows.notes),
                curve: gr.Plot(figures.precision_recall(found.decision, labels), visible=True),
                by_threshold: gr.Plot(figures.by_threshold(found.decision, found.similarity), visible=True),
                meaning: gr.update(visible=True),
            }

        yield from task.run(services, request, work, lambda update: update, hidden)

    def find_once(
        shown: str,
        model: str,
        name: str,
        file: str | None,
        precision: float,
        match_from: float,
        request: gr.Request,
        *how: str,
    ) -> Iterator[Update]:
        """Compute the example when the tab is opened for the first time."""
        if shown == WAITING:
            yield from find(model, name, file, precision, match_from, request, *how)
        else:
            yield {status: gr.skip()}  # a generator that yields nothing would clear its outputs

    tab = gr.context.Context.block
    (model, data, file, *how_read), outputs = pickers.inputs, [*results, *task.outputs]
    inputs = [model, data, file, precision, match_from, *how_read]
    opened = tab.select(find_once, [status, *inputs], outputs, concurrency_limit=2, **PRIVATE)
    pressed = start.click(find, inputs, outputs, trigger_mode="always_last", concurrency_limit=2, **PRIVATE)
    task.wire(services, opened, pressed)
