"""The Bulk page: a file of sentence pairs in, the same file with scores out, statistics, matches and duplicates.

A file that is uploaded becomes a job (`services.files.jobs`): its address is ``/bulk?job=<id>``, it is scored in the
background, and the browser keeps the list of the jobs that it started. So a reload loses neither the file nor the work.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import gradio as gr

from sbert_app.figures import bulk as figures_bulk
from sbert_app.formats import format_time
from sbert_app.pages.bulk import results
from sbert_app.pages.bulk.duplicates import Duplicates
from sbert_app.pages.components.events import LATEST, PRIVATE, UNQUEUED, Update
from sbert_app.pages.components.messages import INTERNAL_ERROR, error_message, heading, lead, waiting
from sbert_app.pages.components.pickers import NO_CROSS_ENCODER, cross_encoder_picker, model_and_pooling
from sbert_app.pages.components.templates import macro
from sbert_app.pages.components.upload_options import encoding_dropdown
from sbert_app.pages.server.address import visitor_of
from sbert_app.services.background.state import State
from sbert_app.services.background.tasks import TaskProgress
from sbert_app.services.container import Services
from sbert_app.services.files.jobs import ScoreJob, ScoreRequest
from sbert_app.services.files.report import ScoreSummary
from training.assets import asset
from training.catalogue import DEFAULT_MODEL
from training.data.tables.columns import PairColumns, pick_columns
from training.data.tables.table import Table, open_table
from training.errors import InputError, Stopped, UserFacingError

MOST_LISTED = 20  # jobs in the list
REMEMBER_JOB = "() => window.rememberJob()"

EXAMPLE = asset("examples/bulk-example.csv")
NO_GOLD = ""


def build(services: Services) -> None:
    """Build the page inside the open Blocks; its example is scored when it is opened."""
    _Page(services).wire()


class _Page:
    def __init__(self, services: Services) -> None:
        self.services = services
        self.jobs = services.scoring
        self.table = gr.State(None)
        self.job = gr.State(None)  # the id of the job that is shown; None for the example
        # The ids, the newest first. A fixed secret: what is stored must be readable after a restart of the app.
        self.known = gr.BrowserState([], storage_key="sbert-lab-bulk-jobs", secret="sbert-lab")  # noqa: S106 - hides nothing
        gr.HTML(heading("Score a file", "Every pair of a file, with its cosine."))
        with gr.Row(elem_classes="bulk"):
            with gr.Column(scale=2, min_width=300):
                self._build_inputs(services)
            with gr.Column(scale=5, min_width=320):
                self._build_results()
        self.duplicates = Duplicates(services, self.job)
        self.history = gr.HTML(elem_id="bulk-history")
        with gr.Row(elem_classes="actions"):
            self.forget = gr.Button("Delete these files", size="sm", visible=False, elem_id="forget-jobs")

    def _build_inputs(self, services: Services) -> None:
        gr.HTML(macro("bulk/limits")(megabytes=services.settings.upload_limit_mb))
        self.upload = gr.File(label="Your file", height=130, elem_id="upload")
        with gr.Row():
            self.first = gr.Dropdown(label="Sentence 1", elem_id="column-1", min_width=130)
            self.second = gr.Dropdown(label="Sentence 2", elem_id="column-2", min_width=130)
        self.gold = gr.Dropdown(
            label="Gold score or label", info="Human judgements, if the file has them", elem_id="column-gold"
        )
        self.model, self.pooling = model_and_pooling(services, "bulk")
        self.cross = cross_encoder_picker(services, NO_CROSS_ENCODER)
        with gr.Row():
            self.go = gr.Button("Score", variant="primary", elem_id="score", min_width=120)
            self.halt = gr.Button("Stop", interactive=False, elem_id="stop", min_width=120)

    def _build_results(self) -> None:
        self.file_line = gr.HTML(elem_id="file-line")
        self.encoding = encoding_dropdown("encoding")
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
        root = gr.context.Context.root_block
        models = [self.model, self.pooling, self.cross]
        columns = [self.table, self.first, self.second, self.gold]
        results = [
            *(self.status, self.as_csv, self.as_parquet, self.cards, self.histogram, self.scatter),
            *(self.rows, self.disagreements, self.go, self.halt, *self.duplicates.shown),
        ]
        started = [*results, self.job, self.known, self.history, self.forget]
        everything = self.everything = [*columns, *models, self.file_line, self.encoding, *started]
        visited = root.load(self.visit, [*models, self.known], everything, concurrency_limit=8, **PRIVATE)
        opened = gr.on(
            [self.upload.upload, self.upload.clear], self.open, [self.upload, self.known], everything, **PRIVATE
        )
        self.encoding.input(self.reopen, [self.job, self.encoding], everything, **LATEST)
        scored = self.go.click(
            self.score, [*columns, *models, self.job, self.known], started, concurrency_limit=8, **PRIVATE
        )
        opened.then(None, None, None, js=REMEMBER_JOB)
        for event in (visited, scored):
            event.failure(lambda: self._failed(INTERNAL_ERROR), None, [self.status, self.go, self.halt], **PRIVATE)
        self.halt.click(self.stop, self.job, self.halt, **UNQUEUED)
        self.forget.click(self.delete, self.known, [self.known, self.history, self.forget], **UNQUEUED)
        self.status.change(None, None, None, js=REMEMBER_JOB)
        self.duplicates.wire()

    def visit(self, model: str, pooling: str, cross: str, known: list[str], request: gr.Request) -> Iterator[Update]:
        """Open the job that the address names; or the example, or the pairs of sentences that another page has sent.

        The latter are scored at once.
        """
        listed = self._listed(known)
        asked, sent = request.query_params.get("job"), request.query_params.get("sentences")
        try:
            job = self.jobs.get(asked) if asked else None
            if job is not None:
                table = open_table(job.path, job.encoding)
            else:
                table = open_table(self.services.shared_sentences.pairs(sent) if sent else EXAMPLE)
        except UserFacingError as error:
            yield {**listed, self.status: error_message(error), self.go: gr.Button(interactive=False)}
            return
        if job is None:
            picked = pick_columns(table)
            yield {**listed, **self._opened(table, picked)}
            yield from self._run(table, picked, model, pooling, cross, None, known)
            return
        yield {**listed, **self._opened_job(job, table)}
        if job.state != State.OPENED:
            yield from self._watch(job, table)

    def open(self, path: str | None, known: list[str]) -> Update:
        """Show how an uploaded file was read, or why it cannot be used; without a file, the example."""
        if path is None:
            table = open_table(EXAMPLE)
            return {**self._opened(table, pick_columns(table)), self.status: lead("Press Score.")}
        try:
            open_table(path)
            job = self.jobs.open(Path(path))
        except UserFacingError as error:
            return self._unusable(error)
        return {**self._opened_job(job, open_table(job.path)), **self._listed([job.id, *known])}

    def reopen(self, job_id: str | None, encoding: str) -> Update:
        try:
            if job_id is None:
                raise InputError("Choose a file first.")
            job = self.jobs.open(self.jobs.get(job_id).path, encoding or None)
            opened = self._opened_job(job, open_table(job.path, job.encoding))
            return {component: update for component, update in opened.items() if component is not self.encoding}
        except UserFacingError as error:
            return self._unusable(error)

    def score(
        self,
        table: Table | None,
        first: str | None,
        second: str | None,
        gold: str | None,
        model: str,
        pooling: str,
        cross: str,
        job: str | None,
        known: list[str],
        request: gr.Request = None,
    ) -> Iterator[Update]:
        try:
            if table is None:
                raise InputError("Choose a file first.")
            if not first or not second:
                raise InputError("Choose the two columns that hold the sentences.")
            picked = pick_columns(table, [first, second])
        except UserFacingError as error:
            yield {**self._cleared(), self.rows: "", self.status: error_message(error)}
            return
        picked = PairColumns(picked.sentence1, picked.sentence2, score=gold or None)
        yield from self._run(table, picked, model, pooling, cross, job, known, visitor_of(request))

    def stop(self, job: str | None) -> Update:
        if job:
            self.jobs.stop(job)
        return gr.Button("Stopping …", interactive=False)

    def delete(self, known: list[str]) -> Update:
        for job in known:
            self.jobs.delete(job)
        return self._listed([])

    def _run(
        self,
        table: Table,
        picked: PairColumns,
        model: str,
        pooling: str,
        cross: str,
        job_id: str | None,
        known: list[str],
        visitor: str = "",
    ) -> Iterator[Update]:
        """Start a job and show it. The example has one too, which is not listed."""
        cross_encoder = None if cross == NO_CROSS_ENCODER else cross
        task = ScoreRequest(table, picked, model or DEFAULT_MODEL, pooling or None, cross_encoder)
        try:
            job = self.jobs.start(job_id or self.jobs.open(table.path).id, task, visitor)
        except UserFacingError as error:
            yield self._failed(error)
            return
        listed = {} if table.path == EXAMPLE else self._listed([job.id, *known])
        yield {
            **self._cleared(),
            **listed,
            self.job: job.id,
            self.rows: results.preview(table, picked),
            self.status: results.progress(TaskProgress("Starting …", 0, 1, 0), job.id if listed else ""),
            **self._buttons(running=True),
        }
        yield from self._watch(job, table)
        if listed:
            yield self._listed([job.id, *known])

    def _watch(self, job: ScoreJob, table: Table) -> Iterator[Update]:
        shown = "" if table.path == EXAMPLE else job.id
        try:
            for event in self.jobs.follow(job.id):
                if isinstance(event, ScoreSummary):
                    yield {**self._finished(event, table, shown), **self._buttons(running=False)}
                else:
                    yield {self.status: results.progress(event, shown), **self._buttons(running=True)}
        except UserFacingError as error:
            yield self._failed(error)
        except Stopped:
            yield self._failed("stopped before the first row")

    def _opened_job(self, job: ScoreJob, table: Table) -> Update:
        try:
            picked, hint = pick_columns(table), "Press Score."
        except InputError:
            picked, hint = None, "Choose the two columns that hold the sentences, then press Score."
        summary = self.jobs.summary(job.id)
        picked = summary.columns if summary else picked
        used = {self.model: job.model, self.cross: job.cross_encoder or NO_CROSS_ENCODER} if job.model else {}
        pooling = {self.pooling: job.pooling} if job.model and job.pooling else {}
        status = results.of_job(lead(hint), job.id)
        return {**self._opened(table, picked, job), **used, **pooling, self.job: job.id, self.status: status}

    def _opened(self, table: Table, picked: PairColumns | None, job: ScoreJob | None = None) -> Update:
        columns, encoding = list(table.columns), (job and job.encoding) or ""
        gold = (picked and (picked.score or picked.label)) or NO_GOLD
        return {
            **self._cleared(),
            self.table: table,
            self.job: None,
            self.file_line: results.file_line(table, table.path == EXAMPLE),
            self.encoding: gr.Dropdown(value=encoding, visible=bool(encoding) or not table.is_plain),
            self.rows: results.preview(table, picked),
            self.first: gr.Dropdown(columns, value=picked.sentence1 if picked else None),
            self.second: gr.Dropdown(columns, value=picked.sentence2 if picked else None),
            self.gold: gr.Dropdown([("none", NO_GOLD), *columns], value=gold),
            self.go: gr.Button(interactive=True),
        }

    def _unusable(self, error: UserFacingError) -> Update:
        return {
            **self._cleared(),
            self.table: None,
            self.job: None,
            self.file_line: "",
            self.status: error_message(error),
            self.rows: "",
            self.go: gr.Button(interactive=False),
        }

    def _failed(self, error: UserFacingError | str) -> Update:
        return {self.status: error_message(error), **self._buttons(running=False)}

    def _buttons(self, running: bool) -> Update:
        return {self.go: gr.Button(interactive=not running), self.halt: gr.Button("Stop", interactive=running)}

    def _listed(self, known: list[str]) -> Update:
        """The list of the jobs of this browser that are still kept, each once."""
        jobs = []
        for job_id in list(dict.fromkeys(known))[:MOST_LISTED]:
            with suppress(InputError):
                jobs.append(self.jobs.get(str(job_id)))
        rows = [(job, format_time(job.created)) for job in jobs]
        return {
            self.known: [job.id for job in jobs],
            self.history: macro("bulk/history")(rows) if rows else "",
            self.forget: gr.Button(visible=bool(jobs)),
        }

    def _cleared(self) -> Update:
        hidden = (self.as_csv, self.as_parquet, self.histogram, self.scatter)
        empty = {**{part: gr.update(visible=False) for part in hidden}, self.cards: "", self.disagreements: ""}
        return {**empty, **self.duplicates.hidden()}

    def _finished(self, summary: ScoreSummary, table: Table, job: str) -> Update:
        report, plots = summary.report, {}
        if report and summary.scored:
            plots[self.histogram] = gr.Plot(figures_bulk.histogram(report), visible=True)
        if report and report.scatter:
            gold = summary.columns.score or summary.columns.label or ""
            plots[self.scatter] = gr.Plot(figures_bulk.scatter(report, gold), visible=True)
        by_suffix = {Path(output).suffix: output for output in summary.outputs}
        return {
            self.status: results.outcome(summary, table.row_estimate, job),
            self.as_csv: gr.DownloadButton(value=by_suffix[".csv"], visible=True),
            self.as_parquet: gr.DownloadButton(value=by_suffix[".parquet"], visible=True),
            self.cards: results.agreements(summary),
            **plots,
            self.rows: results.scored_rows(summary),
            self.disagreements: results.disagreements(summary),
            **self.duplicates.offered(summary),
        }
