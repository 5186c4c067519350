"""Evaluate, sentence similarity: models × data sets as in the paper's Tables 1 and 2, and quality against speed.

The tab opens with the table that ships with the app. "Measure" fills another one, cell by cell; cells that were
measured before come from the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from typing import Any, NamedTuple

import gradio as gr
from markupsafe import Markup

from sbert_app.figures.evaluation import SPEED_NOISE, Point, quality_and_speed
from sbert_app.formats import format_count
from sbert_app.pages.components import messages
from sbert_app.pages.components.events import LATEST, PRIVATE, Update
from sbert_app.pages.components.measure_tab import MeasureTab, hidden
from sbert_app.pages.components.pickers import open_dropdown
from sbert_app.pages.components.templates import macro, render
from sbert_app.pages.components.upload_options import UploadOptions, chosen_name
from sbert_app.pages.evaluate.pickers import DATA, dimension_adder, model_dropdown
from sbert_app.services.background.watch import Watch
from sbert_app.services.container import Services
from sbert_app.services.results import paper
from sbert_app.services.results.grid import ResultGrid, evaluate_grid, make_grid
from sbert_app.services.results.precomputed import SHIPPED, PrecomputedResults, shipped_systems
from sbert_app.services.results.ranking import rank_models
from sbert_app.services.results.results import (
    AVERAGE,
    DEVELOPMENT_SETS,
    STATISTICS,
    Metric,
    Results,
    averaged_of,
    data_label,
)
from sbert_app.services.results.table import FORMATS, MARK, ResultTable, TableColumn, TableRow, markdown, tabulate
from sbert_app.services.store.documents import read_document
from training.errors import UserFacingError
from training.evaluation.metrics import SIMILARITIES
from training.models.scorer import ENCODER, kind_of
from training.names import ModelName

FILE_HINT = (
    "Files: CSV, TSV, JSON Lines, Parquet or XLSX with the columns sentence1, sentence2 and score (0–5; other ranges "
    "are rescaled). Cells that were measured before, with the same model on the same pairs, come from the cache."
)
PEARSON_CAUTION = (
    "Pearson r measures how linear the relation is, not how well the order is kept: it changes when a similarity is "
    "transformed monotonically. Reimers et al. (2016) show that it is poorly suited to evaluating STS; the paper "
    "(section 4) reports Spearman ρ."
)
CROSS_ENCODER_NOTE = "A cross-encoder has no embeddings: its one score stands under every similarity."
AVERAGE_NOTE = "The average excludes STSb train and dev, which serve for model selection."
SEEN_NOTE = (
    f"{MARK} STSb was drawn from the SemEval sets of 2012 to 2017: the built-in cross-encoders, trained on it, have "
    "seen about a third of STS12 and half of STS14. Judge them, and runs trained on STSb, by STSb. Of STSb test 12 of "
    "1,379 pairs are in STSb train, and 249 share a sentence with it."
)
SPEED_TOOLTIP = "Distinct sentences per second over all data sets of the row, measured in the same run"
UNDEFINED_TOOLTIP = "all scores are equal: the correlation is undefined"
MISSING, FAILED = "–", "✕"
FIRST_MODELS = ["all-MiniLM-L6-v2", "tfidf", "glove"]
SCATTER_NOTE = (
    "Dotted: the Pareto frontier. No measured model is better than one on it and as fast; speeds within "
    f"{SPEED_NOISE:.0%} count as equal, because repeated measurements differ by as much. A cross-encoder reads both "
    "sentences of each pair, and N sentences have N(N−1)/2 pairs: its place here holds for a list of pairs, not for a "
    "search. On a narrow screen, tap a point for its name."
)


class _Cell(NamedTuple):
    """A cell of the table of scores."""

    text: str
    interval: str = ""
    tooltip: str = ""
    is_best: bool = False
    mark: str = ""


def build(services: Services) -> None:
    """Build the tab inside the open Blocks."""
    _SimilarityTab(services, read_document(SHIPPED, PrecomputedResults)).wire()


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
                hint = "STSb is built in; the others come from the Hub, as does any hf:<org>/<name>"
                options: dict[str, Any] = {"value": ["stsb:test"], "multiselect": True, "elem_id": "evaluate-data"}
                self.data = open_dropdown("Data sets", DATA, hint, **options)
            self.files = gr.File(
                label="Your own files",
                file_count="multiple",
                height=120,
                scale=2,
                min_width=280,
                elem_id="evaluate-files",
            )
        self.how = UploadOptions(self.files, "evaluate")
        ids, stopped = ("measure", "stop-measure", "evaluate-status"), "stopped: what was measured until then is shown"
        self.tab = MeasureTab.build(services, "evaluate", "Measure", ids, messages.note(FILE_HINT), stopped=stopped)
        with self.tab.buttons:
            self.back = gr.Button("Show the shipped table", visible=False, elem_id="shipped-again")
        with gr.Row():
            self.similarity = gr.Radio(
                [(similarity.label, name) for name, similarity in SIMILARITIES.items()],
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
        self.table = gr.HTML(score_table(shipped, table), elem_id="scores")
        gr.HTML(messages.section("Is the difference real?"))
        with gr.Row():
            choices = _model_choices(shipped)
            self.first = gr.Dropdown(choices, value=first, label="First model", min_width=220, elem_id="first-model")
            self.second = gr.Dropdown(
                choices, value=second, label="Second model", min_width=220, elem_id="second-model"
            )
        self.differences = gr.HTML(differences(shipped, first, second, Metric()), elem_id="findings")
        gr.HTML(messages.section("Quality and speed"))
        self.scatter = gr.Plot(show_label=False, elem_id="quality-speed")
        gr.HTML(messages.note(SCATTER_NOTE))
        gr.HTML(messages.section("Copy the table"))
        self.format = gr.Radio(list(FORMATS), value="Markdown", show_label=False, elem_id="copy-form")
        self.text = gr.Code(markdown(table), show_label=False, buttons=["copy"], max_lines=14, elem_id="copy-text")

    def wire(self) -> None:
        """Connect the components with their handlers."""
        root = gr.context.Context.root_block
        display = [self.similarity, self.pearson, self.paper, self.format]
        shown = [self.table, self.first, self.second, self.differences, self.scatter, self.text]
        root.load(lambda: _scatter(self.shipped, tabulate(self.shipped, Metric())), None, self.scatter, **PRIVATE)
        inputs = [self.models, self.data, self.files, *display, *self.how.inputs]
        self.tab.on(self.tab.start.click, self.measure, inputs, [self.grid, self.back, *shown])
        self.back.click(self.show_shipped, display, [self.grid, self.tab.status, self.back, *shown], **PRIVATE)
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
            yield {self.tab.status: messages.error_message(error)}
            return

        def work(watch: Watch) -> Update:
            evaluate_grid(grid, self.services.models, self.services.settings.home, watch)
            return {self.tab.status: messages.note(FILE_HINT)}

        shown = 0
        for update in self.tab.run(request, work, {}):
            if grid.done > shown:
                shown = grid.done
                update[self.table] = score_table(grid, tabulate(grid, _metric(similarity, pearson), papers))
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
            self.table: score_table(results, table),
            self.first: gr.Dropdown(choices, value=first),
            self.second: gr.Dropdown(choices, value=second),
            self.differences: differences(results, first, second, metric),
            self.scatter: _scatter(results, table),
            self.text: FORMATS[text_format](table),
        }

    def show_shipped(self, similarity: str, pearson: bool, papers: str, text_format: str) -> Update:
        """Back to the table that the page opened with."""
        shown = self.show(None, similarity, pearson, papers, text_format)
        hint = messages.note(FILE_HINT)
        return {self.grid: None, self.tab.status: hint, self.back: hidden(), **shown}

    def describe_difference(
        self, grid: ResultGrid | None, similarity: str, pearson: bool, first: str, second: str
    ) -> str:
        """Whether two models differ."""
        return differences(grid or self.shipped, first, second, _metric(similarity, pearson))

    def export(self, grid: ResultGrid | None, similarity: str, pearson: bool, papers: str, text_format: str) -> str:
        """The table as Markdown, LaTeX or CSV."""
        return FORMATS[text_format](tabulate(grid or self.shipped, _metric(similarity, pearson), papers))


def _metric(similarity: str, pearson: bool) -> Metric:
    return Metric(similarity, "pearson" if pearson else "spearman")


def _model_choices(results: Results) -> list[tuple[str, str]]:
    return [(ModelName.parse(model).label, model) for model in results.models]


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
            kind = ENCODER if is_paper else kind_of(row.model)
            points.append(Point(row.label, kind, row.speed, estimate.value, is_paper))
    over = f"{column.label} of {len(averaged_of(results))} sets" if column.name == AVERAGE else column.label
    return quality_and_speed(points, f"{table.metric.statistic.capitalize()} ×100, {over}")


def score_table(results: Results, table: ResultTable) -> Markup:
    """The table, where its figures come from, and notes on how to read them."""
    return render(
        "evaluate/templates/score_table.html",
        results=results,
        cells=list(results.results.values()) if isinstance(results, ResultGrid) else None,  # the grid may be growing
        statistic=STATISTICS[table.metric.statistic],
        similarity=SIMILARITIES[table.metric.similarity].label,
        columns=table.columns,
        rows=[_row(row, table, is_reference=False) for row in table.rows],
        system_rows=[_row(row, table, is_reference=True) for row in table.system_rows],
        paper_rows=[_row(row, table, is_reference=True) for row in table.paper_rows],
        paper_source=paper.SOURCE,
        speed_tooltip=SPEED_TOOLTIP,
        notes=_notes(table),
        failures=_failures(table),
        ranking=_ranking(results, table),
    )


def _ranking(results: Results, table: ResultTable) -> Markup:
    """Ranks, ties and P(row > column) of the models on the fullest column."""
    column = _fullest(table, table.columns)
    models = [row.model for row in table.rows if column.name not in row.seen]  # as those that may be the best
    found = rank_models(results, column.name, table.metric, models or None)
    labels = {each.name: ModelName.parse(each.name).label for each in found.standings}
    return macro("ranking")(found, labels, f"by {column.label}", "Paired bootstrap", "models")


def differences(results: Results, a: str | None, b: str | None, metric: Metric) -> Markup:
    """For each data set that both models have: is one better than the other?"""
    if not a or not b:
        return Markup()
    first, second = (ModelName.parse(model).label for model in (a, b))
    sentences = [
        difference.describe(first, second, f"on {data_label(name)}" if name != AVERAGE else "on average")
        for name in [*results.data, AVERAGE]
        if (difference := results.difference(a, b, name, metric))
    ]
    return render("evaluate/templates/differences.html", same_model=a == b, sentences=sentences)


def _row(row: TableRow, table: ResultTable, is_reference: bool) -> dict[str, object]:
    cells = [_cell(row, column.name, table, is_reference) for column in table.columns]
    return {"label": row.label, "cells": cells, "speed": row.speed}


def _cell(row: TableRow, name: str, table: ResultTable, is_reference: bool) -> _Cell:
    estimate = row.estimates.get(name)
    if estimate is None:
        reason = row.failures.get(name, "")
        return _Cell(FAILED if reason else MISSING, tooltip=reason)
    if isnan(estimate.value):
        return _Cell("none", tooltip=UNDEFINED_TOOLTIP)
    value = f"{estimate.value:.2f}"
    if is_reference:
        deviation = row.deviations.get(name)
        return _Cell(value if deviation is None else f"{value} ± {deviation:.2f}")
    return _Cell(
        value,
        interval=f"{estimate.low:.1f}–{estimate.high:.1f}",
        is_best=row.model in table.best[name],
        mark=MARK if name in row.seen else "",
    )


def _notes(table: ResultTable) -> list[str]:
    notes = {
        PEARSON_CAUTION: table.metric.statistic == "pearson",
        CROSS_ENCODER_NOTE: table.metric.similarity != "cosine",
        AVERAGE_NOTE: table.has_average and any(column.name in DEVELOPMENT_SETS for column in table.columns),
        SEEN_NOTE: any(row.seen for row in table.rows),
    }
    if hosts := {each.address for row in table.rows if (each := ModelName.parse(row.model).endpoint)}:
        notes[f"The sentences were sent to {', '.join(sorted(hosts))}."] = True
    if table.system_rows:  # those between the rows that were measured and the paper's
        seeds = {system.label: system.seeds for system in shipped_systems()}
        trained = [f"{row.label}, {row.made_of}, {format_count(seeds[row.label], 'seed')}" for row in table.system_rows]
        notes[f"Made with this app, trained on: {'; '.join(trained)}. Their figures ship, not their models."] = True
    return [*(note for note, applies in notes.items() if applies), *table.overlaps]


def _failures(table: ResultTable) -> list[dict[str, str]]:
    """Each reason once, with the cells that it leaves empty."""
    by_reason: dict[str, list[str]] = {}
    for row in table.rows:
        for name, reason in row.failures.items():
            by_reason.setdefault(reason, []).append(f"{row.label} on {data_label(name)}")
    return [
        {"cells": cells[0] + (f" and {len(cells) - 1} more" if len(cells) > 1 else ""), "reason": reason}
        for reason, cells in by_reason.items()
    ]
