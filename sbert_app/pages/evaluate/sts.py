"""Evaluate, sentence similarity: models × data sets as in the paper's Tables 1 and 2, and quality against speed.

The tab opens with the table that ships with the app. "Measure" fills another one, cell by cell; cells that were
measured before come from the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from typing import Any

import gradio as gr

from sbert_app.figures.evaluation import SPEED_NOISE, Point, quality_and_speed
from sbert_app.pages.components import messages
from sbert_app.pages.components.columns import UploadOptions, chosen_name
from sbert_app.pages.components.events import LATEST, PRIVATE
from sbert_app.pages.components.task import TaskWidget, Update
from sbert_app.pages.evaluate import views
from sbert_app.pages.evaluate.pickers import DATA, dimension_adder, model_dropdown
from sbert_app.services.container import Services
from sbert_app.services.results import export, paper
from sbert_app.services.results.eval_result import SIMILARITIES, Metric
from sbert_app.services.results.grid import ResultGrid, evaluate_grid, make_grid
from sbert_app.services.results.model_spec import ModelSpec
from sbert_app.services.results.precomputed import PrecomputedResults
from sbert_app.services.results.results import AVERAGE, DEVELOPMENT_SETS, Results, averaged_of
from sbert_app.services.results.table import ResultTable, TableColumn, tabulate
from sbert_app.services.tasks import ReportProgress, ShouldStop
from training.errors import UserFacingError
from training.models.scorer import ENCODER, kind_of

FIRST_MODELS = ["all-MiniLM-L6-v2", "tfidf", "glove"]
SCATTER_NOTE = (
    "Dotted: the Pareto frontier. No measured model is better than one on it and as fast; speeds within "
    f"{SPEED_NOISE:.0%} count as equal, because repeated measurements differ by as much. A cross-encoder reads both "
    "sentences of each pair, and N sentences have N(N−1)/2 pairs: its place here holds for a list of pairs, not for a "
    "search. On a narrow screen, tap a point for its name."
)


def build(services: Services) -> None:
    """Build the tab inside the open Blocks."""
    _SimilarityTab(services, PrecomputedResults.read()).wire()


class _SimilarityTab:
    """The components and their event handlers. Until something is measured here, the shipped results are shown."""

    def __init__(self, services: Services, shipped: PrecomputedResults) -> None:
        self.services = services
        self.shipped = shipped
        self.grid = gr.State(None)
        with gr.Row(elem_classes="evaluate"):
            with gr.Column(scale=3, min_width=300):
                hint = "; append :mean, :max or :cls to choose the pooling"
                self.models = model_dropdown(services, FIRST_MODELS, hint, elem_id="evaluate-models")
                dimension_adder(self.models)
            with gr.Column(scale=2, min_width=300):
                self.data = gr.Dropdown(
                    DATA,
                    value=["stsb:test"],
                    multiselect=True,
                    label="Data sets",
                    info="STSb is built in; the others come from the Hub, as does any hf:<org>/<name>",
                    allow_custom_value=True,
                    elem_id="evaluate-data",
                )
            self.files = gr.File(
                label="Your own files",
                file_count="multiple",
                height=120,
                scale=2,
                min_width=280,
                elem_id="evaluate-files",
            )
        self.how = UploadOptions(self.files, "evaluate")
        with gr.Row(elem_classes="actions"):
            self.start = gr.Button("Measure", variant="primary", elem_id="measure")
            stop = gr.Button("Stop", interactive=False, elem_id="stop-measure")
            self.back = gr.Button("Show the shipped table", visible=False, elem_id="shipped-again")
        self.status = gr.HTML(messages.note(views.FILE_HINT), elem_id="evaluate-status")
        with gr.Row():
            self.similarity = gr.Radio(
                [(label, name) for name, label in SIMILARITIES.items()],
                value="cosine",
                label="Similarity",
                min_width=320,
                scale=3,
                elem_id="similarity",
            )
            self.paper = gr.Radio(
                list(paper.TABLES),
                value=paper.FIRST,
                label="Rows from the paper",
                min_width=260,
                scale=2,
                elem_id="paper",
            )
        self.pearson = gr.Checkbox(False, label="Pearson r instead of Spearman ρ", container=False, elem_id="pearson")
        table = tabulate(shipped, Metric())
        first, second = _two_best(table)
        self.table = gr.HTML(views.score_table(shipped, table), elem_id="scores")
        gr.HTML(messages.section("Is the difference real?"))
        with gr.Row():
            choices = _model_choices(shipped)
            self.first = gr.Dropdown(choices, value=first, label="First model", min_width=220, elem_id="first-model")
            self.second = gr.Dropdown(
                choices, value=second, label="Second model", min_width=220, elem_id="second-model"
            )
        self.differences = gr.HTML(views.differences(shipped, first, second, Metric()), elem_id="findings")
        gr.HTML(messages.section("Quality and speed"))
        self.scatter = gr.Plot(show_label=False, elem_id="quality-speed")
        gr.HTML(messages.note(SCATTER_NOTE))
        gr.HTML(messages.section("Copy the table"))
        self.format = gr.Radio(list(export.FORMATS), value="Markdown", show_label=False, elem_id="copy-form")
        self.text = gr.Code(
            export.markdown(table), show_label=False, buttons=["copy"], max_lines=14, elem_id="copy-text"
        )
        stopped = "stopped: what was measured until then is shown"
        self.task = TaskWidget("evaluate", self.status, stop, self.start, stopped)

    def wire(self) -> None:
        """Connect the components with their handlers."""
        root = gr.context.Context.root_block
        display = [self.similarity, self.pearson, self.paper, self.format]
        shown = [self.table, self.first, self.second, self.differences, self.scatter, self.text]
        root.load(lambda: _scatter(self.shipped, tabulate(self.shipped, Metric())), None, self.scatter, **PRIVATE)
        measured = self.start.click(
            self.measure,
            [self.models, self.data, self.files, *display, *self.how.inputs],
            [self.grid, self.back, *self.task.outputs, *shown],
            concurrency_limit=2,
            **PRIVATE,
        )
        self.task.wire(self.services, measured)
        self.back.click(self.show_shipped, display, [self.grid, self.status, self.back, *shown], **PRIVATE)
        for control in (self.similarity, self.pearson, self.paper):
            control.input(self.show, [self.grid, *display], shown, trigger_mode="always_last", **PRIVATE)
        self.format.input(self.export, [self.grid, *display], self.text, **LATEST)
        pair = [self.grid, self.similarity, self.pearson, self.first, self.second]
        for picker in (self.first, self.second):
            picker.input(self.describe_difference, pair, self.differences, **LATEST)

    def measure(
        self,
        models: list[str],
        data: list[str],
        files: list[str] | None,
        similarity: str,
        pearson: bool,
        papers: str,
        text_format: str,
        request: gr.Request,
        *how: str,
    ) -> Iterator[Update]:
        """Fill a grid, and show each cell when it has been measured."""
        try:
            names = [*data, *(chosen_name(self.services, file, *how) for file in files or ())]
            grid = make_grid(models, [self.services.access.check_data(name) for name in names])
        except UserFacingError as error:
            yield {self.status: messages.error_message(error)}
            return

        def work(report_progress: ReportProgress, should_stop: ShouldStop) -> ResultGrid:
            return evaluate_grid(grid, self.services.models, self.services.settings.home, report_progress, should_stop)

        shown = 0
        for update in self.task.run(self.services, request, work, lambda _: {self.status: self._hint()}, {}):
            if grid.done > shown:
                shown = grid.done
                update[self.table] = views.score_table(grid, tabulate(grid, _metric(similarity, pearson), papers))
            yield update
        results = self.show(grid, similarity, pearson, papers, text_format)
        yield {self.grid: grid, self.back: gr.Button(visible=True), **results}

    def show(self, grid: ResultGrid | None, similarity: str, pearson: bool, papers: str, text_format: str) -> Update:
        """Everything that depends on the results and on how they are displayed."""
        results, metric = grid or self.shipped, _metric(similarity, pearson)
        table = tabulate(results, metric, papers)
        first, second = _two_best(table)
        choices = _model_choices(results)
        return {
            self.table: views.score_table(results, table),
            self.first: gr.Dropdown(choices, value=first),
            self.second: gr.Dropdown(choices, value=second),
            self.differences: views.differences(results, first, second, metric),
            self.scatter: _scatter(results, table),
            self.text: export.FORMATS[text_format](table),
        }

    def show_shipped(self, similarity: str, pearson: bool, papers: str, text_format: str) -> Update:
        """Back to the table that the page opened with."""
        shown = self.show(None, similarity, pearson, papers, text_format)
        return {self.grid: None, self.status: self._hint(), self.back: gr.Button(visible=False), **shown}

    def describe_difference(
        self, grid: ResultGrid | None, similarity: str, pearson: bool, first: str, second: str
    ) -> str:
        """Whether two models differ."""
        return views.differences(grid or self.shipped, first, second, _metric(similarity, pearson))

    def export(self, grid: ResultGrid | None, similarity: str, pearson: bool, papers: str, text_format: str) -> str:
        """The table as Markdown, LaTeX or CSV."""
        return export.FORMATS[text_format](tabulate(grid or self.shipped, _metric(similarity, pearson), papers))

    def _hint(self) -> str:
        return messages.note(views.FILE_HINT)


def _metric(similarity: str, pearson: bool) -> Metric:
    return Metric(similarity, "pearson" if pearson else "spearman")


def _model_choices(results: Results) -> list[tuple[str, str]]:
    return [(ModelSpec.parse(model).label, model) for model in results.models]


def _two_best(table: ResultTable) -> tuple[str | None, str | None]:
    """The two best models by the fullest column; models that were trained on its pairs come last."""
    name = _fullest(table, table.columns).name
    ranking = sorted(
        (name in row.seen, -estimate.value, row.model) for row in table.rows if (estimate := row.estimates[name])
    )
    if len(ranking) < 2:
        return None, None
    return ranking[0][2], ranking[1][2]


def _fullest(table: ResultTable, columns: list[TableColumn]) -> TableColumn:
    """The column with figures for the most models; the last one of several."""
    return max(reversed(columns), key=lambda column: sum(row.estimates[column.name] is not None for row in table.rows))


def _scatter(results: Results, table: ResultTable) -> Any:
    """Quality against speed, by the average, or by a set that no model was trained on where some have seen others."""
    seen = {name for row in table.rows for name in row.seen}
    unseen = [column for column in table.columns if column.name not in seen]
    tests = [column for column in unseen if column.name not in DEVELOPMENT_SETS]
    column = _fullest(table, tests or unseen or table.columns)
    points = []
    for row in (*table.rows, *table.paper_rows):
        estimate = row.estimates.get(column.name)
        if estimate and row.speed and not isnan(estimate.value):
            is_paper = row in table.paper_rows
            kind = ENCODER if is_paper else kind_of(ModelSpec.parse(row.model).name)
            points.append(Point(row.label, kind, row.speed, estimate.value, is_paper))
    over = f"{column.label} of {len(averaged_of(results))} sets" if column.name == AVERAGE else column.label
    return quality_and_speed(points, f"{table.metric.statistic.capitalize()} ×100, {over}")
