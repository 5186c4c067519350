"""Bulk, matches and duplicates: a threshold applied to the scored file."""

from __future__ import annotations

from typing import Any

import gradio as gr
from markupsafe import Markup

from sbert_app.figures import evaluation as figures
from sbert_app.pages.components import messages
from sbert_app.pages.components.decisions import MEANING, criterion_labels, decision_table
from sbert_app.pages.components.events import EVERY, UNQUEUED, Update
from sbert_app.pages.components.measure_tab import MeasureTab, hidden, visible
from sbert_app.pages.components.templates import render
from sbert_app.services.background.watch import Watch
from sbert_app.services.container import Services
from sbert_app.services.files.report import ScoreSummary
from sbert_app.services.results.decisions import safest
from training.assets import read_asset
from training.errors import InputError

USUAL = 0.8  # where no gold scores say better
REMEMBER = "(threshold) => window.nameInAddress(['bulk-threshold'], [threshold])"
INTRO = (
    "A row matches if its cosine is at least the threshold. Sentences that are connected by matches form a group of "
    "duplicates. Of each group the first sentence is kept."
)
DOWNLOADS = {
    "matched_csv": "With match, CSV",
    "matched_parquet": "With match, Parquet",
    "groups": "Groups, CSV",
    "deduplicated": "Without duplicates, CSV",
}


class Duplicates:
    """The components of the section, hidden until a file is scored."""

    def __init__(self, services: Services, job: gr.State) -> None:
        self.services, self.job = services, job
        with gr.Column(visible=False, elem_id="duplicates") as self.section:
            gr.HTML(messages.section("Matches and duplicates"))
            gr.HTML(messages.note(INTRO))
            self.decision = gr.HTML(js_on_load=read_asset("bulk.js"), elem_id="decision")
            self.curve = gr.Plot(show_label=False, visible=False, elem_id="bulk-curve")
            with gr.Row(elem_classes="apply"):
                self.threshold = gr.Number(
                    USUAL, label="Threshold", info="Rows with at least this cosine", step=0.01, elem_id="bulk-threshold"
                )
                apply = gr.Button("Apply", variant="primary", elem_id="apply-threshold", min_width=120)
                stop = gr.Button("Stop", visible=False, elem_id="stop-threshold", min_width=120)
            self.tab = MeasureTab(services, "matches", gr.HTML(elem_id="matches"), apply, stop)
            with gr.Row():
                self.downloads = {
                    name: gr.DownloadButton(label, visible=False, elem_id=name.replace("_", "-"), min_width=160)
                    for name, label in DOWNLOADS.items()
                }

    @property
    def outputs(self) -> list[Any]:
        """What changes with the file that is shown."""
        return [self.section, self.decision, self.curve, self.threshold, self.tab.status, *self.downloads.values()]

    def hidden(self) -> Update:
        return {self.section: gr.Column(visible=False), **self._cleared()}

    def offered(self, summary: ScoreSummary, threshold: float | None = None) -> Update:
        """The section for a scored file, with the threshold that was ``asked`` for, or that its gold scores suggest."""
        labelled = summary.report.decision if summary.report else None
        suggested = safest(labelled.decision.choices) if labelled else None
        if threshold is None:
            threshold = round(suggested.threshold.value, 4) if suggested and suggested.exists else USUAL
        figure = figures.precision_recall(labelled.decision, criterion_labels(labelled.decision)) if labelled else None
        return {
            self.section: gr.Column(visible=summary.scored > 0),
            self.decision: decision_table("Cosine and gold", labelled, [MEANING]) if labelled else Markup(),
            self.curve: visible(figure),
            self.threshold: threshold,
            **self._cleared(),
        }

    def wire(self) -> None:
        inputs, empty = [self.job, self.threshold], {button: hidden() for button in self.downloads.values()}
        self.tab.wire(self.find, inputs, empty)
        used = self.decision.use(self.used, None, self.threshold, **UNQUEUED)
        for event in (self.threshold.input, used.success):
            event(None, self.threshold, None, js=REMEMBER, **EVERY)
        self.tab.on(used.success, self.tab.handler(self.find, empty), inputs, empty)

    def used(self, event: gr.EventData) -> float:
        """The threshold of the row whose button was pressed."""
        threshold = getattr(event, "threshold", None)
        if not isinstance(threshold, int | float):
            raise gr.Error("the browser has sent no threshold: reload the page", print_exception=False)
        return threshold

    def find(self, watch: Watch, job_id: str | None, threshold: float | None) -> Update:
        if threshold is None:
            raise InputError("Give a threshold, such as 0.8.")
        watch.report(0, "Comparing with the threshold")
        matches = self.services.scoring.apply_threshold(job_id or "", threshold, watch)
        files = dict(zip(self.downloads.values(), map(visible, matches.outputs), strict=True))
        return {self.tab.status: render("bulk/templates/matches.html", found=matches), **files}

    def _cleared(self) -> Update:
        return {self.tab.status: "", **{button: hidden() for button in self.downloads.values()}}
