"""Evaluate, sentence similarity: models × data sets as in the paper's Tables 1 and 2, quality against speed.

It opens with the table that ships. Measure fills another, cell by cell; what was measured before comes at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from typing import Any

import gradio as gr

from sbert_app.figures.evaluation import Point, quality_and_speed
from sbert_app.pages.components.events import PRIVATE
from sbert_app.pages.components.messages import INTERNAL_ERROR, error_message
from sbert_app.pages.evaluate import views
from sbert_app.pages.evaluate.pickers import DATA, model_dropdown
from sbert_app.services.container import Services
from sbert_app.services.results import export, paper
from sbert_app.services.results.eval_result import SIMILARITIES, Metric
from sbert_app.services.results.grid import ResultGrid, evaluate_grid, make_grid
from sbert_app.services.results.model_spec import ModelSpec
from sbert_app.services.results.precomputed import PrecomputedResults
from sbert_app.services.results.results import AVERAGE, DEVELOPMENT_SETS, Results, averaged_of
from sbert_app.services.results.table import ResultTable, TableColumn, tabulate
from sbert_app.services.tasks import TaskResult, TaskRunner
from training.errors import InputError, Stopped
from training.models.scorer import ENCODER, kind_of

FIRST_MODELS = ["all-MiniLM-L6-v2", "tfidf", "glove"]

Update = dict[Any, Any]  # component -> its new value


def build(services: Services) -> None:
    """Lay the tab out inside the open Blocks."""
    _Tab(services, PrecomputedResults.read()).wire()


class _Tab:
    """The components, and what happens to them. Without results of one's own, those that ship are shown."""

    def __init__(self, services: Services, shipped: PrecomputedResults) -> None:
        self.services = services
        self.shipped = shipped
        self.watched = TaskRunner()
        self.board = gr.State(None)
        with gr.Row(elem_classes="evaluate"):
            with gr.Column(scale=3, min_width=300):
                self.models = model_dropdown(
                    services,
                    FIRST_MODELS,
                    "; :mean, :max or :cls after it chooses the pooling",
                    elem_id="evaluate-models",
                )
            with gr.Column(scale=2, min_width=300):
                self.data = gr.Dropdown(
                    DATA,
                    value=["stsb:test"],
                    multiselect=True,
                    label="Data sets",
                    info="STSb is built in; the others come from the Hub",
                    elem_id="evaluate-data",
                )
            self.files = gr.File(
                label="Files of your own",
                file_count="multiple",
                height=120,
                scale=2,
                min_width=280,
                elem_id="evaluate-files",
            )
        with gr.Row(elem_classes="actions"):
            self.go = gr.Button("Measure", variant="primary", elem_id="measure")
            self.halt = gr.Button("Stop", interactive=False, elem_id="stop-measure")
            self.back = gr.Button("Show the shipped table", visible=False, elem_id="shipped-again")
        self.status = gr.HTML(views.wanted(), elem_id="evaluate-status")
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
                label="The paper's rows",
                min_width=260,
                scale=2,
                elem_id="paper",
            )
        self.pearson = gr.Checkbox(False, label="Pearson r instead of Spearman ρ", container=False, elem_id="pearson")
        first = tabulate(shipped, Metric())
        a, b = _two_best(first)
        self.table = gr.HTML(views.shipped_line(shipped) + views.table(first), elem_id="scores")
        gr.HTML('<h2 class="section">Is the difference real?</h2>')
        with gr.Row():
            names = _named(shipped)
            self.a = gr.Dropdown(names, value=a, label="First model", min_width=220, elem_id="first-model")
            self.b = gr.Dropdown(names, value=b, label="Second model", min_width=220, elem_id="second-model")
        self.findings = gr.HTML(views.differences(shipped, a, b, Metric()), elem_id="findings")
        gr.HTML('<h2 class="section">Quality and speed</h2>')
        self.scatter = gr.Plot(show_label=False, elem_id="quality-speed")
        gr.HTML(
            '<p class="note">Dotted: the frontier. No measured model is both faster and better than one on it. A '
            "cross-encoder reads two sentences for each pair, and N sentences have N(N−1)/2 pairs: its place here "
            "holds for a list of pairs, not for a search. On a narrow screen, touch a point for its name.</p>"
        )
        gr.HTML('<h2 class="section">Copy the table</h2>')
        self.form = gr.Radio(list(export.FORMATS), value="Markdown", show_label=False, elem_id="copy-form")
        self.text = gr.Code(
            export.markdown(first), show_label=False, buttons=["copy"], max_lines=14, elem_id="copy-text"
        )

    def wire(self) -> None:
        """Connect the components with what they do."""
        root = gr.context.Context.root_block
        how = [self.board, self.similarity, self.pearson, self.paper, self.form]
        shown = [self.table, self.a, self.b, self.findings, self.scatter, self.text]
        running = [self.board, self.status, self.go, self.halt, self.back, *shown]
        root.load(lambda: _scatter(self.shipped, tabulate(self.shipped, Metric())), None, self.scatter, **PRIVATE)
        measured = self.go.click(
            self.measure, [self.models, self.data, self.files, *how[1:]], running, concurrency_limit=2, **PRIVATE
        )
        measured.failure(self.failed, None, [self.status, self.go, self.halt], **PRIVATE)
        self.halt.click(self.stop, None, self.halt, queue=False, **PRIVATE)
        self.back.click(self.show_shipped, how[1:], [self.board, self.status, self.back, *shown], **PRIVATE)
        for control in (self.similarity, self.pearson, self.paper):
            control.input(self.show, how, shown, trigger_mode="always_last", **PRIVATE)
        self.form.input(self.copy, how, self.text, **PRIVATE)
        for picker in (self.a, self.b):
            picker.input(
                self.tell_apart, [self.board, self.similarity, self.pearson, self.a, self.b], self.findings, **PRIVATE
            )
        root.unload(self.leave)

    def measure(
        self,
        models: list[str],
        data: list[str],
        files: list[str] | None,
        similarity: str,
        pearson: bool,
        papers: str,
        form: str,
        request: gr.Request,
    ) -> Iterator[Update]:
        """Fill a table, and show each cell as it comes."""
        try:
            board = make_grid(models, [*data, *(files or [])])
        except InputError as error:
            yield {self.status: error_message(error)}
            return
        home, owner = self.services.settings.home, _owner(request)
        how = (similarity, pearson, papers, form)
        yield {
            self.status: '<p class="lead">Starting …</p>',
            self.go: gr.Button(interactive=False),
            self.halt: gr.Button("Stop", interactive=True),
        }
        shown, told = 0, views.wanted()
        try:
            for event in self.watched.run(
                owner, "Starting", lambda tell, stop: evaluate_grid(board, self.services.models, home, tell, stop)
            ):
                if isinstance(event, TaskResult):
                    continue
                update: Update = {self.status: views.progress(event)}
                if board.done > shown:
                    shown = board.done
                    update[self.table] = self._table(board, tabulate(board, _measure(similarity, pearson), papers))
                yield update
        except Stopped:
            told = error_message("stopped: what was measured until then is shown")
        yield {
            self.status: told,
            self.board: board,
            self.go: gr.Button(interactive=True),
            self.halt: gr.Button("Stop", interactive=False),
            self.back: gr.Button(visible=True),
            **self.show(board, *how),
        }

    def show(self, board: ResultGrid | None, similarity: str, pearson: bool, papers: str, form: str) -> Update:
        """Everything that follows from the results and from how they are to be read."""
        results, measure = board or self.shipped, _measure(similarity, pearson)
        shown = tabulate(results, measure, papers)
        a, b = _two_best(shown)
        names = _named(results)
        return {
            self.table: self._table(results, shown),
            self.a: gr.Dropdown(names, value=a),
            self.b: gr.Dropdown(names, value=b),
            self.findings: views.differences(results, a, b, measure),
            self.scatter: _scatter(results, shown),
            self.text: export.FORMATS[form](shown),
        }

    def show_shipped(self, similarity: str, pearson: bool, papers: str, form: str) -> Update:
        """Back to what the page opened with."""
        hidden = {self.board: None, self.status: views.wanted(), self.back: gr.Button(visible=False)}
        return {**hidden, **self.show(None, similarity, pearson, papers, form)}

    def tell_apart(self, board: ResultGrid | None, similarity: str, pearson: bool, a: str, b: str) -> str:
        """The sentences about two models."""
        return views.differences(board or self.shipped, a, b, _measure(similarity, pearson))

    def copy(self, board: ResultGrid | None, similarity: str, pearson: bool, papers: str, form: str) -> str:
        """The table as text."""
        return export.FORMATS[form](tabulate(board or self.shipped, _measure(similarity, pearson), papers))

    def stop(self, request: gr.Request) -> Any:
        """Let the measurement come to an end; what is done is kept."""
        self.watched.stop(_owner(request))
        return gr.Button("Stopping …", interactive=False)

    def failed(self) -> Update:
        """An error that is no fault of the user's."""
        return {
            self.status: error_message(INTERNAL_ERROR),
            self.go: gr.Button(interactive=True),
            self.halt: gr.Button("Stop", interactive=False),
        }

    def leave(self, request: gr.Request) -> None:
        """The person has left: so does their work."""
        self.watched.forget(_owner(request))

    def _table(self, results: Results, shown: ResultTable) -> str:
        if isinstance(results, ResultGrid):
            known = sum(result.from_cache for result in list(results.results.values()))
            line = views.measured_line(known, len(results.results), len(results.models) * len(results.data))
        else:
            line = views.shipped_line(self.shipped)
        return line + views.table(shown)


def _owner(request: gr.Request) -> str:
    return f"{request.session_hash} evaluate"


def _measure(similarity: str, pearson: bool) -> Metric:
    return Metric(similarity, "pearson" if pearson else "spearman")


def _named(results: Results) -> list[tuple[str, str]]:
    return [(ModelSpec.parse(model).label, model) for model in results.models]


def _two_best(shown: ResultTable) -> tuple[str | None, str | None]:
    """The best and the second by the last column that most have; first those that had not seen it."""
    last = _fullest(shown, shown.columns).name
    there = [(last in row.seen, -figure.value, row.model) for row in shown.rows if (figure := row.estimates[last])]
    names = [model for _, _, model in sorted(there)[:2]]
    return (names[0], names[1]) if len(names) == 2 else (None, None)


def _fullest(shown: ResultTable, columns: list[TableColumn]) -> TableColumn:
    """The column with figures of the most models; the last of several."""
    return max(reversed(columns), key=lambda column: sum(row.estimates[column.name] is not None for row in shown.rows))


def _scatter(results: Results, shown: ResultTable) -> Any:
    """Each row against its speed: by the average, or where somebody has seen pairs of it, by a set that nobody has."""
    seen = {name for row in shown.rows for name in row.seen}
    fair = [column for column in shown.columns if column.name not in seen]
    tests = [column for column in fair if column.name not in DEVELOPMENT_SETS]
    column = _fullest(shown, tests or fair or shown.columns)
    points = []
    for row in (*shown.rows, *shown.paper_rows):
        figure = row.estimates.get(column.name)
        if figure and row.speed and not isnan(figure.value):
            is_paper = row in shown.paper_rows
            kind = ENCODER if is_paper else kind_of(ModelSpec.parse(row.model).name)
            points.append(Point(row.label, kind, row.speed, figure.value, is_paper))
    over = f"{column.label} of {len(averaged_of(results))} sets" if column.name == AVERAGE else column.label
    return quality_and_speed(points, f"{shown.metric.statistic.capitalize()} ×100, {over}")
