"""The Bulk page: a file of sentence pairs in, the same file with scores out, and statistics of the scores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from sbert_app.figures import bulk as figures_bulk
from sbert_app.pages.bulk import views
from sbert_app.pages.components.events import PRIVATE
from sbert_app.pages.components.messages import INTERNAL_ERROR, error_message, heading, lead, waiting
from sbert_app.pages.components.pickers import NO_CROSS_ENCODER, cross_encoder_picker, model_and_pooling
from sbert_app.services.container import Services
from sbert_app.services.files.score_tasks import ScoreRequest
from sbert_app.services.files.summary import ScoreSummary
from sbert_app.services.tasks import TaskProgress
from training.assets import asset
from training.data.tables.table import PairColumns, Table, open_table, pick_columns
from training.errors import InputError, Stopped, UserFacingError
from training.registry import DEFAULT_MODEL

EXAMPLE = asset("examples/bulk-example.csv")
NO_GOLD = ""

Update = dict[Any, Any]  # component -> its new value


def build(services: Services) -> None:
    """Build the page inside the open Blocks; its example is scored when it is opened."""
    _Page(services).wire()


class _Page:
    """The components of the page and their handlers."""

    def __init__(self, services: Services) -> None:
        self.tasks = services.scoring
        self.table = gr.State(None)
        gr.HTML(heading("Score a file", "Every pair of a file, with its cosine."))
        with gr.Row(elem_classes="bulk"):
            with gr.Column(scale=2, min_width=300):
                self._build_inputs(services)
            with gr.Column(scale=5, min_width=320):
                self._build_results()

    def _build_inputs(self, services: Services) -> None:
        gr.HTML(views.limits(services.settings.upload_limit_mb))
        self.upload = gr.File(label="Your file", height=130, elem_id="upload")
        with gr.Row():
            self.first = gr.Dropdown(label="Sentence 1", elem_id="column-1", min_width=130)
            self.second = gr.Dropdown(label="Sentence 2", elem_id="column-2", min_width=130)
        self.gold = gr.Dropdown(label="Gold score", info="Human scores, if the file has them", elem_id="column-gold")
        self.model, self.pooling = model_and_pooling(services)
        self.cross = cross_encoder_picker(NO_CROSS_ENCODER)
        with gr.Row():
            self.go = gr.Button("Score", variant="primary", elem_id="score", min_width=120)
            self.halt = gr.Button("Stop", interactive=False, elem_id="stop", min_width=120)

    def _build_results(self) -> None:
        self.file_line = gr.HTML(elem_id="file-line")
        self.encoding = gr.Dropdown(
            views.ENCODINGS, value="", label="Encoding", info="If words look wrong", visible=False, elem_id="encoding"
        )
        self.status = gr.HTML(waiting("Opening the example …"), elem_id="status")
        with gr.Row():
            self.as_csv = gr.DownloadButton("Download CSV", visible=False, elem_id="csv", min_width=140)
            self.as_parquet = gr.DownloadButton("Download Parquet", visible=False, elem_id="parquet", min_width=140)
        self.cards = gr.HTML(elem_id="agreement")
        with gr.Row():
            self.histogram = gr.Plot(show_label=False, visible=False, min_width=300, elem_id="histogram")
            self.scatter = gr.Plot(show_label=False, visible=False, min_width=300, elem_id="scatter")
        self.rows = gr.HTML(elem_id="rows")
        self.disagreements = gr.HTML(elem_id="disagreements")

    def wire(self) -> None:
        """Connect the components with their handlers."""
        root = gr.context.Context.root_block
        models = [self.model, self.pooling, self.cross]
        columns = [self.table, self.first, self.second, self.gold]
        results = [
            *(self.status, self.as_csv, self.as_parquet, self.cards, self.histogram, self.scatter),
            *(self.rows, self.disagreements, self.go, self.halt),
        ]
        everything = [*columns, self.file_line, self.encoding, *results]
        visited = root.load(self.visit, models, everything, concurrency_limit=2, **PRIVATE)
        gr.on([self.upload.upload, self.upload.clear], self.open, self.upload, everything, **PRIVATE)
        self.encoding.input(self.open, [self.upload, self.encoding], everything, **PRIVATE)
        scored = self.go.click(self.score, [*columns, *models], results, concurrency_limit=2, **PRIVATE)
        for event in (visited, scored):
            event.failure(self.fail, None, [self.status, self.go, self.halt], **PRIVATE)
        self.halt.click(self.stop, None, self.halt, queue=False, **PRIVATE)
        root.unload(self.leave)

    def visit(self, model: str, pooling: str, cross: str, request: gr.Request) -> Iterator[Update]:
        """Open the example and score it."""
        table = open_table(EXAMPLE)
        picked = pick_columns(table)
        yield self._opened(table, picked)
        yield from self._run(table, picked, model, pooling, cross, request)

    def open(self, path: str | None, encoding: str = "") -> Update:
        """Show how an uploaded file was read, or why it cannot be used; without a file, the example."""
        try:
            table = open_table(path or EXAMPLE, encoding or None)
        except UserFacingError as error:
            return {
                **self._cleared(),
                self.table: None,
                self.file_line: "",
                self.status: error_message(error),
                self.rows: "",
                self.go: gr.Button(interactive=False),
            }
        try:
            picked, hint = pick_columns(table), "Press Score."
        except InputError:
            picked, hint = None, "Choose the two columns that hold the sentences, then press Score."
        return {**self._opened(table, picked, encoding), self.status: lead(hint)}

    def score(
        self,
        table: Table | None,
        first: str | None,
        second: str | None,
        gold: str | None,
        model: str,
        pooling: str,
        cross: str,
        request: gr.Request,
    ) -> Iterator[Update]:
        """Score the open file with the chosen columns and models."""
        try:
            table, picked = _picked(table, first, second, gold)
        except UserFacingError as error:
            yield {**self._cleared(), self.rows: "", self.status: error_message(error)}
        else:
            yield from self._run(table, picked, model, pooling, cross, request)

    def stop(self, request: gr.Request) -> Update:
        """Stop scoring; the rows that are done are kept."""
        self.tasks.stop(request.session_hash or "")
        return gr.Button("Stopping …", interactive=False)

    def fail(self) -> Update:
        """Show that scoring failed because of a fault in the app."""
        return {self.status: error_message(INTERNAL_ERROR), **self._buttons(running=False)}

    def leave(self, request: gr.Request) -> None:
        """Stop the person's task and delete its files when they leave."""
        self.tasks.forget(request.session_hash or "")

    def _run(
        self, table: Table, picked: PairColumns, model: str, pooling: str, cross: str, request: gr.Request
    ) -> Iterator[Update]:
        cross_encoder = None if cross == NO_CROSS_ENCODER else cross
        task = ScoreRequest(table, picked, model or DEFAULT_MODEL, pooling or None, cross_encoder)
        yield {
            **self._cleared(),
            self.rows: views.preview(table, picked),
            self.status: views.progress(TaskProgress("Starting …", 0, 1, 0)),
            **self._buttons(running=True),
        }
        try:
            for event in self.tasks.run(request.session_hash or "", task):
                if isinstance(event, ScoreSummary):
                    yield {**self._finished(event, table), **self._buttons(running=False)}
                else:
                    yield {self.status: views.progress(event)}
        except UserFacingError as error:
            yield {self.status: error_message(error), **self._buttons(running=False)}
        except Stopped:
            yield {self.status: error_message("stopped before the first row"), **self._buttons(running=False)}

    def _opened(self, table: Table, picked: PairColumns | None, encoding: str = "") -> Update:
        columns = list(table.columns)
        return {
            **self._cleared(),
            self.table: table,
            self.file_line: views.file_line(table, table.path == EXAMPLE),
            self.encoding: gr.Dropdown(value=encoding, visible=bool(encoding) or not table.is_plain),
            self.rows: views.preview(table, picked),
            self.first: gr.Dropdown(columns, value=picked.sentence1 if picked else None),
            self.second: gr.Dropdown(columns, value=picked.sentence2 if picked else None),
            self.gold: gr.Dropdown([("none", NO_GOLD), *columns], value=(picked and picked.score) or NO_GOLD),
            self.go: gr.Button(interactive=True),
        }

    def _buttons(self, running: bool) -> Update:
        return {self.go: gr.Button(interactive=not running), self.halt: gr.Button("Stop", interactive=running)}

    def _cleared(self) -> Update:
        """No result."""
        hidden = (self.as_csv, self.as_parquet, self.histogram, self.scatter)
        return {**{part: gr.update(visible=False) for part in hidden}, self.cards: "", self.disagreements: ""}

    def _finished(self, summary: ScoreSummary, table: Table) -> Update:
        report, plots = summary.report, {}
        if report and summary.scored:
            plots[self.histogram] = gr.Plot(figures_bulk.histogram(report), visible=True)
        if report and report.scatter:
            plots[self.scatter] = gr.Plot(figures_bulk.scatter(report, summary.columns.score or ""), visible=True)
        by_suffix = {Path(output).suffix: output for output in summary.outputs}
        return {
            self.status: views.outcome(summary, table.row_estimate),
            self.as_csv: gr.DownloadButton(value=by_suffix[".csv"], visible=True),
            self.as_parquet: gr.DownloadButton(value=by_suffix[".parquet"], visible=True),
            self.cards: views.agreements(summary),
            **plots,
            self.rows: views.scored_rows(summary),
            self.disagreements: views.disagreements(summary),
        }


def _picked(table: Table | None, first: str | None, second: str | None, gold: str | None) -> tuple[Table, PairColumns]:
    """The open table and the chosen columns. InputError if something is missing."""
    if table is None:
        raise InputError("Choose a file first.")
    if not first or not second:
        raise InputError("Choose the two columns that hold the sentences.")
    picked = pick_columns(table, [first, second])
    return table, PairColumns(picked.sentence1, picked.sentence2, score=gold or None)
