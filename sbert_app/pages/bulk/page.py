"""The Bulk page: a file of sentence pairs in, the same file with scores out, statistics, matches and duplicates.

An upload becomes a job (`services.files.jobs`), which is scored in the background and has the
address ``/bulk?job=<id>``. The browser stores the list of its jobs, so that a reload loses neither
the file nor the work.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import gradio as gr

from sbert_app.figures import compare as figures
from sbert_app.pages.bulk import results
from sbert_app.pages.bulk.models import USUAL_MODELS, Models
from sbert_app.pages.components.events import (
    Questions,
    Update,
    event_options,
    note_action,
    on_choice,
    run_js,
)
from sbert_app.pages.components.file_panel import (
    Chosen,
    FilePanel,
    columns_of,
    has_question,
    read_by,
)
from sbert_app.pages.components.measure_tab import hidden, visible
from sbert_app.pages.components.messages import (
    INTERNAL_ERROR,
    ask_first,
    error_message,
    heading,
    lead,
    waiting,
)
from sbert_app.pages.components.pickers import NO_CROSS_ENCODER
from sbert_app.pages.components.report import of_page, report_button
from sbert_app.pages.components.templates import macro
from sbert_app.services.access import visitor_of
from sbert_app.services.background.tasks import TaskProgress
from sbert_app.services.background.watch import State
from sbert_app.services.container import Services
from sbert_app.services.files.jobs import ScoreJob, ScoreRequest
from sbert_app.services.files.layout import suffix_like
from sbert_app.services.files.report import ScoreSummary
from training.catalogue import DEFAULT_MODEL, asset, read_asset
from training.data.tables.cells import parse_number
from training.data.tables.columns import PairColumns
from training.data.tables.reading import NO_JUDGEMENT
from training.data.tables.rows import OpenedTable
from training.data.tables.table import open_table
from training.errors import InputError, StoppedError, UserFacingError

# The length of the list of jobs.
MOST_LISTED = 20
REMEMBER_JOB = "() => window.rememberJob()"
# The results take the place of the first rows.
FOLD_ROWS = """() => {
  if (!document.querySelector("#status .problem"))
    document.querySelector("#bulk-panel details")?.removeAttribute("open");
}"""
# The example and its shipped scores.
EXAMPLE = asset("examples/bulk-example.csv")
SHIPPED = asset("examples/bulk")
PRESS_SCORE = "Press Score."
CHOOSE_COLUMNS = "Choose the two columns that hold the sentences, in the head of the table"
ANSWER_FIRST = "Answer the question above the first rows"
OF_EXAMPLE = "An example, already scored; its pairs are deliberately hard"
ONE_COLUMN = "This file has one column, and pairs need two. Explore maps a list of sentences and removes its duplicates"
ONE_SENTENCE = (
    f"{CHOOSE_COLUMNS}; one is found. If the file is a list of sentences, take it to Explore, which "
    "maps it and removes its duplicates"
)
CHECK_COLUMNS = "The columns are read by what they hold: check them, then press Score."


def build(services: Services) -> None:
    """Builds the page inside the open Blocks; the page opens with a scored example."""
    _Page(services).wire()


class _Page:
    """The components of the page and their event handlers.

    Attributes:
        jobs: the jobs of all visitors (`services.files.jobs`).
        panel: the file of the page, with the roles of its columns.
        go: the button Score.
        halt: the button Stop.
        cut: the slider of the threshold, below the histograms.
        fold: the fold with the rows on which the scores disagree most.
        history: the list of the jobs of this browser.
        forget: the button that deletes these jobs.
    """

    def __init__(self, services: Services) -> None:
        self.services = services
        self.jobs = services.scoring
        # The `OpenedTable` on the page; None if the upload cannot be opened.
        self.table = gr.State(None)
        # The id of the job on the page; None for the example until it is scored.
        self.job = gr.State(None)
        # The threshold in the address when the page was opened, or None.
        self.address_threshold = gr.State(None)
        # Not empty once a person has uploaded a file or pressed Score (`note_action`). Then the
        # opening of the page ends without further changes.
        self.person_acted = gr.State({})
        # The ids of the jobs of this browser, newest first. The secret is fixed, so that a
        # restarted app can read the list.
        self.job_ids = gr.BrowserState([], storage_key="sbert-lab-bulk-jobs", secret="sbert-lab")  # noqa: S106 - hides nothing
        gr.HTML(heading("Score a file", "Every pair of a file, with its cosine."))
        with gr.Row(elem_classes="bulk"):
            with gr.Column(scale=2, min_width=300):
                self._build_inputs()
            with gr.Column(scale=5, min_width=460):
                self._build_results()
        self.duplicates = results.Duplicates(services, self.job)
        # While a file is uploaded and read, Score and the last results are disabled.
        self.panel.hold([self.go, *self.result_outputs, self.duplicates.section])
        sections = {
            "The file": [self.panel.table],
            "Scores": [self.status, self.cards, self.histogram, self.scatter, self.disagreements],
            "Matches and duplicates": [
                self.duplicates.decision,
                self.duplicates.curve,
                self.duplicates.tab.status,
            ],
        }
        settings = [*self.models.pickers, self.duplicates.threshold]
        report_button(services, *of_page("Scored file", sections, settings), "scored-file")
        self.history = gr.HTML(elem_id="bulk-history")
        with gr.Row(elem_classes="actions"):
            self.forget = gr.Button(
                "Delete these files", size="sm", visible=False, elem_id="forget-jobs"
            )

    def _build_inputs(self) -> None:
        gr.HTML(macro("bulk/limits")(megabytes=self.services.settings.upload_limit_mb))
        self.upload = gr.File(label="Your file", height=130, elem_id="upload")
        self.models = Models(self.services)
        with gr.Row():
            self.go = gr.Button("Score", variant="primary", elem_id="score", min_width=120)
            self.halt = gr.Button("Stop", visible=False, elem_id="stop", min_width=120)

    def _build_results(self) -> None:
        """Builds the panel of the file, and below it the results, which are empty until a file is scored."""
        # The element ids begin with the name of the page.
        self.panel = FilePanel(self.services, self.upload, "bulk", "bulk", self.table)
        # The table of the example is part of the page, so that nothing below it moves after the
        # page has opened.
        example = self.panel.of(open_table(EXAMPLE), is_open=False, remark=OF_EXAMPLE)
        self.panel.table.value = example[self.panel.table]
        self.status = gr.HTML(waiting("Opening the example …"), elem_id="status")
        with gr.Row(elem_classes="actions"):
            self.as_file = gr.DownloadButton(
                "Download CSV", size="sm", visible=False, elem_id="csv"
            )
            self.as_parquet = gr.DownloadButton(
                "Download Parquet", size="sm", visible=False, elem_id="parquet"
            )
        self.cards = gr.HTML(elem_id="agreement")
        with gr.Row():
            self.histogram = gr.Plot(
                show_label=False, visible=False, min_width=300, elem_id="histogram"
            )
            self.scatter = gr.Plot(
                show_label=False, visible=False, min_width=300, elem_id="scatter"
            )
        self.cut = gr.HTML(js_on_load=read_asset("bulk.js"), elem_id="cut")
        self.rows = gr.HTML(elem_id="rows")
        with gr.Accordion(
            "Where the scores disagree most",
            open=False,
            visible=False,
            elem_id="bulk-disagreements",
        ) as self.fold:
            self.disagreements = gr.HTML(elem_id="disagreements")
        self.result_outputs = [
            self.status,
            self.as_file,
            self.as_parquet,
            self.cards,
            self.histogram,
            self.scatter,
            self.cut,
            self.rows,
            self.fold,
        ]

    def wire(self) -> None:
        """Connects the components: the opening of the page, an upload, Score, Stop and the deletion of files."""
        models = self.models.pickers
        score_outputs = [
            *self.result_outputs,
            self.disagreements,
            self.go,
            self.halt,
            *self.duplicates.outputs,
            self.job,
            self.job_ids,
            self.history,
            self.forget,
        ]
        all_outputs = [
            self.table,
            self.address_threshold,
            *self.panel.outputs,
            *models,
            *score_outputs,
        ]
        visit_inputs = [self.person_acted, *models, self.job_ids]
        # `visit` gets the models after the pickers have their values from the address. A visit and
        # Score follow a job until it ends, so more of them run at a time than usual.
        visited = self.models.wire().then(
            self.visit_first, visit_inputs, all_outputs, concurrency_limit=8, **event_options()
        )
        upload_events = [self.upload.upload, self.upload.clear]
        open_inputs = [self.upload, self.job_ids]
        # `note_action` changes the dictionary in place, so the state is not an output.
        gr.on(
            [*upload_events, self.go.click],
            note_action,
            self.person_acted,
            None,
            **event_options(queue=False, trigger_mode="multiple"),
        )
        # An upload cancels the visit, which may still be following a job.
        opened = gr.on(
            upload_events, self.open, open_inputs, all_outputs, cancels=[visited], **event_options()
        )
        reopen_inputs = [self.job, self.panel.encoding, self.panel.sheet]
        for picker in (self.panel.encoding, self.panel.sheet):
            on_choice(picker, self.reopen, reopen_inputs, all_outputs)
        score_inputs = [
            self.table,
            *self.panel.columns,
            self.panel.read_as,
            *models,
            self.job,
            self.job_ids,
            self.address_threshold,
        ]
        scored = self.go.click(
            self.score, score_inputs, score_outputs, concurrency_limit=8, **event_options()
        )
        run_js(opened.then, REMEMBER_JOB)
        run_js(scored.then, FOLD_ROWS)
        # Only ``failure`` listeners are told about a fault of the app.
        for event in (visited, scored):
            event.failure(
                lambda: self._failed(INTERNAL_ERROR),
                None,
                [self.status, self.go, self.halt],
                **event_options(),
            )
        # The columns, their reading and the models are kept in the address, from which `visit`
        # reads them.
        for event, fields in (
            (self.panel.role_event.then, self.panel.columns),
            (self.panel.read_as.change, [self.panel.read_as]),
            ([picker.change for picker in models], models),
        ):
            names = [field.elem_id for field in fields]
            run_js(event, f"(...values) => window.nameInAddress({names}, values)", fields)
        self.halt.click(self.stop, self.job, self.halt, **event_options(queue=False))
        self.forget.click(
            self.delete,
            self.job_ids,
            [self.job_ids, self.history, self.forget],
            **event_options(queue=False),
        )
        # The status contains the id of the job, which the script writes to the address.
        run_js(self.status.change, REMEMBER_JOB)
        self.duplicates.wire(self.cut, visited, self.address_threshold)

    def visit_first(
        self, request: gr.Request, person_acted: Questions, *values: Any
    ) -> Iterator[Update]:
        """Opens the page as `visit` does, and stops when a person uploads a file or presses Score."""
        for update in self.visit(request, *values):
            # `note_action` changes the dictionary in place, while this handler runs.
            if person_acted:
                # A generator that yields nothing would clear the outputs.
                yield {self.status: gr.skip()}
                return
            yield update

    def visit(
        self, request: gr.Request, model: str, pooling: str, cross: str, job_ids: list[str]
    ) -> Iterator[Update]:
        """Opens the file, the job or the pairs in the address, or the example.

        Pairs and the example are scored at once, unless a model has to be downloaded.
        """
        query = request.query_params
        job_id = query.get("job")
        pairs_token = query.get("sentences")
        threshold = parse_number(query.get("bulk-threshold", ""))
        # What is shown at every visit, unless the rest of an update replaces it.
        common = {**self._job_list(job_ids), self.address_threshold: threshold}
        job = None
        try:
            if file_token := query.get("file"):
                yield common | self._open_sent(file_token, job_ids)
                return
            if job_id:
                job = self.jobs.get(job_id)
                table = open_table(job.path, job.encoding, job.sheet)
            elif pairs_token:
                table = open_table(self.services.shared_sentences.pairs(pairs_token))
            else:
                table = open_table(EXAMPLE)
        except UserFacingError as error:
            yield {
                **common,
                self.status: error_message(error),
                self.go: gr.Button(interactive=False),
            }
            return

        models = (model, pooling, cross)
        if job is not None:
            first, second, target = (query.get(field.elem_id, "") for field in self.panel.columns)
            columns = None
            # An address may name columns of another file. "" and `NO_JUDGEMENT` stand for none.
            if first and {"", *table.columns, NO_JUDGEMENT}.issuperset((first, second, target)):
                columns = (first, second, target)
            read_as = query.get(self.panel.read_as.elem_id, "")
            # Models in the address come before the models of the job.
            yield (
                common
                | self._of_job(job, table, columns, read_as)
                | self.models.keep_from_address(*models)
            )
            if job.state != State.OPENED:
                # Score has been pressed.
                yield from self._watch(job, table, threshold)
            return
        if not pairs_token and models == USUAL_MODELS:
            # The scores of the example ship with the app, as a job that all visitors share.
            shipped = self.jobs.adopt(SHIPPED, EXAMPLE)
            yield {**common, **self._of_table(table), self.job: shipped.id}
            yield from self._watch(shipped, table, threshold)
            return
        yield common | self._of_table(table)
        needed = [model or DEFAULT_MODEL]
        if cross != NO_CROSS_ENCODER:
            needed.append(cross)
        if missing := self.services.models.missing(needed):
            remedy = "Press Score to download and use it, or choose another model."
            yield {self.status: ask_first(missing, remedy)}
            return
        yield from self._run(
            table,
            table.reading.pair(),
            models,
            job_id=None,
            job_ids=job_ids,
            threshold=threshold,
        )

    def open(self, path: str | None, job_ids: list[str]) -> Update:
        """Shows how an upload was read, or why it cannot be used. Without an upload, shows the example."""
        if path is None:
            table = open_table(EXAMPLE)
            return {**self._of_table(table), self.status: lead(PRESS_SCORE)}
        try:
            job, table = self._open_copy(Path(path))
        except UserFacingError as error:
            return self._unusable(error)
        return self._of_job(job, table) | self._job_list([job.id, *job_ids])

    def reopen(self, job_id: str | None, encoding: str, sheet: str | None) -> Update:
        """Reads the file in another encoding, or another sheet."""
        try:
            if job_id is None:
                raise InputError("Choose a file first.")
            path = self.jobs.get(job_id).path
            job, table = self._open_copy(path, encoding or None, sheet or None)
        except UserFacingError as error:
            return self._unusable(error)
        return self._of_job(job, table)

    def _open_sent(self, token: str, job_ids: list[str]) -> Update:
        """Opens a file that another page has sent. Raises InputError if it is deleted."""
        file = self.services.taken.get(token)
        self.services.access.check_data(file.path)
        job, table = self._open_copy(Path(file.path), file.encoding or None, file.sheet or None)
        update = self._of_job(job, table, file.columns, file.read_as)
        return update | self._job_list([job.id, *job_ids])

    def _open_copy(
        self, path: Path, encoding: str | None = None, sheet: str | None = None
    ) -> tuple[ScoreJob, OpenedTable]:
        """Makes a job with a copy of a file and opens the copy. Raises InputError, without a job, if that fails."""
        job = self.jobs.open(path, encoding, sheet)
        try:
            return job, open_table(job.path, encoding, sheet)
        except UserFacingError:
            self.jobs.delete(job.id)
            raise

    def score(
        self, request: gr.Request, table: OpenedTable | None, *values: Any
    ) -> Iterator[Update]:
        """Scores the file.

        ``values`` are the columns, the reading of the target, the models, the id of the job, the ids
        of the jobs of this browser, and the threshold in the address.
        """
        first, second, gold, read_as, *models, job_id, job_ids, threshold = values
        try:
            if table is None:
                raise InputError("Choose a file first.")
            if not first or not second:
                problem = CHOOSE_COLUMNS if len(table.columns) > 1 else ONE_COLUMN
                raise InputError(f"{problem}.")
            reading = read_by(table, (first, second, gold))
            if has_question(reading):
                raise InputError(f"{ANSWER_FIRST}.")
            columns = reading.pair()
        except UserFacingError as error:
            yield {**self._empty(), self.status: error_message(error)}
            return
        yield from self._run(
            table, columns, models, job_id, job_ids, threshold, visitor_of(request), read_as or ""
        )

    def stop(self, job_id: str | None) -> Update:
        if job_id:
            self.jobs.stop(job_id)
        return gr.Button("Stopping …", interactive=False)

    def delete(self, job_ids: list[str]) -> Update:
        for job_id in job_ids:
            self.jobs.delete(job_id)
        return self._job_list([])

    def _run(
        self,
        table: OpenedTable,
        columns: PairColumns,
        models: Sequence[str],
        job_id: str | None,
        job_ids: list[str],
        threshold: float | None,
        visitor: str = "",
        read_as: str = "",
    ) -> Iterator[Update]:
        """Starts a job and shows its progress.

        The job of the example is neither in the list of jobs nor in the address. Without a
        ``job_id``, the table gets a new job. The number of jobs of a ``visitor`` is limited; "" stands
        for the opening of the page, which has no limit.
        """
        model, pooling, cross = models
        request = ScoreRequest(
            table,
            columns,
            model or DEFAULT_MODEL,
            pooling or None,
            None if cross == NO_CROSS_ENCODER else cross,
            formats=(suffix_like(table), ".parquet"),
            read_as=read_as.strip(),
        )
        try:
            job = self.jobs.start(job_id or self.jobs.open(table.path).id, request, visitor)
        except UserFacingError as error:
            yield self._failed(error)
            return
        is_example = table.path == EXAMPLE
        address_id = "" if is_example else job.id
        job_list = {} if is_example else self._job_list([job.id, *job_ids])
        yield {
            **self._empty(),
            **job_list,
            self.job: job.id,
            # The bar begins at 0 of 1, after 0 seconds.
            self.status: results.progress(TaskProgress("Starting", 0, 1, 0), address_id),
            **self._buttons(running=True),
        }
        yield from self._watch(job, table, threshold)
        if not is_example:
            # The list shows the state of each job.
            yield self._job_list([job.id, *job_ids])

    def _watch(
        self, job: ScoreJob, table: OpenedTable, threshold: float | None
    ) -> Iterator[Update]:
        """Shows the progress of a job, and then its result or its error."""
        # The address of the page does not name the job of the example.
        address_id = "" if table.path == EXAMPLE else job.id
        try:
            for event in self.jobs.follow(job.id):
                if isinstance(event, ScoreSummary):
                    finished = self._finished(event, table, address_id, threshold)
                    yield finished | self._buttons(running=False)
                else:
                    yield {
                        self.status: results.progress(event, address_id),
                        **self._buttons(running=True),
                    }
        except UserFacingError as error:
            yield self._failed(error)
        except StoppedError:
            # A job that was stopped later has a summary.
            yield self._failed("stopped before the first row")

    def _of_job(
        self,
        job: ScoreJob,
        table: OpenedTable,
        columns: Chosen | None = None,
        read_as: str = "",
    ) -> Update:
        """Returns the update that shows a job and says what to do next.

        A scored job is shown with the columns and the scale of its scores. Otherwise a person has
        chosen ``columns``, or the table's own reading decides. ``read_as`` is the scale of the scores
        or the values of the labels, as a person has typed them.
        """
        reading = read_by(table, columns or columns_of(table.reading))
        if has_question(reading):
            hint = f"{ANSWER_FIRST}, then press Score."
        elif len(table.columns) < 2:
            hint = f"{ONE_COLUMN}."
        elif len(reading.sentences) == 1:
            hint = f"{ONE_SENTENCE}."
        elif len(reading.sentences) < 2:
            hint = f"{CHOOSE_COLUMNS}, then press Score."
        elif any(column.is_by_cells for column in reading.columns):
            # The role of a column was guessed from its cells.
            hint = CHECK_COLUMNS
        else:
            hint = PRESS_SCORE
        # None if the job has not been scored.
        if summary := self.jobs.summary(job.id):
            pair = summary.columns
            columns = (pair.sentence1, pair.sentence2, pair.score or pair.label or "")
            read_as = job.read_as
        return {
            **self._of_table(table, columns, job.encoding or "", read_as, summary is not None),
            **self.models.of_job(job.model, job.pooling, job.cross_encoder),
            self.job: job.id,
            self.status: results.with_job_id(lead(hint), job.id),
        }

    def _of_table(
        self,
        table: OpenedTable,
        columns: Chosen | None = None,
        encoding: str = "",
        read_as: str = "",
        is_scored: bool = False,
    ) -> Update:
        """Returns the update that shows a table without results. Without ``columns``, its own reading decides."""
        is_example = table.path == EXAMPLE
        # The first rows are unfolded until the file is scored. The example has been scored before.
        is_unfolded = not (is_scored or is_example)
        remark = OF_EXAMPLE if is_example else ""
        return {
            **self._empty(),
            self.table: table,
            self.job: None,
            **self.panel.of(table, columns, encoding, read_as, is_unfolded, remark),
            **self._buttons(running=False),
        }

    def _unusable(self, error: UserFacingError) -> Update:
        """Returns the update for a file that cannot be opened."""
        return {
            **self._empty(),
            self.table: None,
            self.job: None,
            **self.panel.of(None),
            self.status: error_message(error),
            self.go: gr.Button(interactive=False),
        }

    def _failed(self, error: UserFacingError | str) -> Update:
        return {self.status: error_message(error), **self._buttons(running=False)}

    def _buttons(self, running: bool) -> Update:
        stop = gr.Button("Stop", interactive=True, visible=running)
        return {self.go: gr.Button(interactive=not running), self.halt: stop}

    def _job_list(self, job_ids: list[str]) -> Update:
        """Returns the update that lists the jobs of this browser, without deleted ones."""
        jobs = []
        for job_id in list(dict.fromkeys(job_ids))[:MOST_LISTED]:
            with suppress(InputError):
                jobs.append(self.jobs.get(str(job_id)))
        return {
            self.job_ids: [job.id for job in jobs],
            self.history: macro("bulk/history")(jobs) if jobs else "",
            self.forget: gr.Button(visible=bool(jobs)),
        }

    def _empty(self) -> Update:
        """Returns the update that empties the results and the section of duplicates."""
        hides = (self.as_file, self.as_parquet, self.histogram, self.scatter, self.fold)
        texts = (self.cards, self.cut, self.rows, self.disagreements)
        return {
            **dict.fromkeys(hides, hidden()),
            **dict.fromkeys(texts, ""),
            **self.duplicates.hide(),
        }

    def _finished(
        self, summary: ScoreSummary, table: OpenedTable, address_id: str, threshold: float | None
    ) -> Update:
        """Returns the update that shows the results, by default at the threshold that the gold scores suggest.

        ``address_id`` is the id of the job in the address of the page; "" for the example.
        """
        report = summary.report
        if threshold is None:
            threshold = results.suggested(report)
        # What is not drawn stays hidden, as `_empty` has hidden it before.
        plots: Update = {}
        if report and summary.scored:
            figure = figures.histogram(report)
            if report.by_label:
                figure = figures.label_histogram(report.by_label, threshold)
            plots[self.histogram] = visible(figure)
            plots[self.cut] = macro("bulk/cut")(report.by_label, threshold)
        # The histogram shows labels, so they have no scatter plot.
        if report and report.scatter and not report.by_label:
            gold = summary.columns.score or summary.columns.label or ""
            plots[self.scatter] = visible(figures.scatter(report, gold))
        # The first file is in the format of the upload.
        same_format, parquet = summary.outputs
        label = f"Download {Path(same_format).suffix[1:].upper()}"
        disagreements = results.disagreements(summary)
        return {
            self.status: results.outcome(summary, table.row_estimate, address_id),
            self.as_file: gr.DownloadButton(label, value=same_format, visible=True),
            self.as_parquet: gr.DownloadButton(value=parquet, visible=True),
            self.cards: results.agreements(summary),
            **plots,
            self.rows: results.scored_rows(summary),
            self.fold: gr.Accordion(visible=bool(disagreements)),
            self.disagreements: disagreements,
            **self.duplicates.show(summary, threshold),
        }
