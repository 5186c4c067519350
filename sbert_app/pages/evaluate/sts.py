"""The tab Quality: models × data sets as in the paper's Tables 1 and 2, and quality against speed.

The tab opens with a shipped table. "Measure others" fills another one cell by cell; cells that were
measured before come from the cache.
"""

from collections.abc import Iterator
from math import isnan
from typing import Any, NamedTuple

import gradio as gr
from markupsafe import Markup

from sbert_app.figures.evaluation import SPEED_NOISE, Point, quality_and_speed
from sbert_app.figures.style import model_colours
from sbert_app.formats import format_count
from sbert_app.pages.components import messages
from sbert_app.pages.components.events import Update, event_options, on_open
from sbert_app.pages.components.file_panel import FilePanel, chosen_name
from sbert_app.pages.components.measure_tab import MeasureTab, hidden
from sbert_app.pages.components.pickers import open_dropdown
from sbert_app.pages.components.report import of_page, report_button
from sbert_app.pages.components.templates import macro, render
from sbert_app.pages.evaluate.pickers import DATA, OR_HUB, model_dropdown
from sbert_app.services.background.watch import Watch
from sbert_app.services.container import Services
from sbert_app.services.results.grid import ResultGrid, evaluate_grid, make_grid
from sbert_app.services.results.precomputed import (
    DEFAULT_PAPERS,
    PAPER,
    PAPER_TABLES,
    SHIPPED,
    PrecomputedResults,
    shipped_systems,
)
from sbert_app.services.results.results import (
    AVERAGE,
    DEVELOPMENT_SETS,
    STATISTICS,
    Metric,
    data_label,
)
from sbert_app.services.results.table import (
    FORMATS,
    MARK,
    Results,
    ResultTable,
    TableColumn,
    averaged_of,
    markdown,
    rank_models,
    tabulate,
)
from sbert_app.services.store.documents import read_document
from training.errors import UserFacingError
from training.models.model import opener_of
from training.names import ModelName
from training.similarities import SIMILARITIES

PEARSON_CAUTION = (
    "Pearson r measures how linear the relation is, not how well the order is kept. Reimers et al. (2016) show that it "
    "is a poor measure for STS; the paper (section 4) reports Spearman ρ."
)
CROSS_ENCODER_NOTE = (
    "A cross-encoder has no embeddings: its one score is repeated for every similarity."
)
AVERAGE_NOTE = "The average leaves out STSb train and dev, on which models are selected."
SEEN_NOTE = (
    f"{MARK} STSb was drawn from the SemEval sets of 2012 to 2017, so the built-in cross-encoders, which were trained "
    "on it, have seen about a third of STS12 and half of STS14. Compare them, and runs trained on STSb, on STSb only. "
    "Of the 1,379 pairs of STSb test 12 are in STSb train, and 249 share a sentence with it."
)
SPEED_TOOLTIP = (
    "Distinct sentences per second over all data sets of the row, measured in the same run"
)
FIRST_MODELS = ["all-MiniLM-L6-v2", "tfidf", "glove"]
SCATTER_NOTE = (
    "Dotted: the Pareto frontier. No other model is both better and as fast. Speeds within "
    f"{SPEED_NOISE:.0%} count as equal, as repeated measurements differ by as much. Each model is timed when it is "
    "first measured: other work on the machine at that time makes it slower. A cross-encoder reads pairs: its speed "
    "holds for a list of pairs, not for a search. On a narrow screen, tap a point for its name."
)


class _Display(NamedTuple):
    """How the results are displayed: the values of the controls for that, in the order of the controls."""

    similarity: str = "cosine"
    pearson: bool = False
    papers: str = DEFAULT_PAPERS
    text_format: str = "Markdown"

    @property
    def metric(self) -> Metric:
        return Metric(self.similarity, "pearson" if self.pearson else "spearman")

    @property
    def title(self) -> str:
        """The title of the fold with the controls."""
        statistic = STATISTICS[self.metric.statistic]
        return f"{statistic} of the {SIMILARITIES[self.similarity].label}; rows from the paper: {self.papers}"


# The number of the controls. In `measure`, their values come before the values of the file panel.
DISPLAY_CONTROLS = len(_Display._fields)


def build(services: Services) -> None:
    _SimilarityTab(services, read_document(SHIPPED, PrecomputedResults)).wire()


class _SimilarityTab:
    """The components and their event handlers. Until something is measured here, the tab shows shipped results.

    Attributes:
        display: the fold of the controls that choose the metric and the rows from the paper.
        two: the fold that compares two models.
        one: the column with the folds that need one model only.
        back: the button that shows the shipped table again.
    """

    def __init__(self, services: Services, shipped: PrecomputedResults) -> None:
        self.services = services
        self.shipped = shipped
        # The results that were measured here; None while the shipped ones are shown.
        self.grid = gr.State(None)
        # The page opens with the default metric, Spearman ρ of the cosine.
        table = tabulate(shipped, Metric())
        first, second = _two_best(table)
        self.table = gr.HTML(score_table(shipped, table), elem_id="scores")
        with gr.Accordion(_Display().title, open=False, elem_id="evaluate-display") as self.display:
            choices = [(similarity.label, name) for name, similarity in SIMILARITIES.items()]
            with gr.Row():
                self.similarity = gr.Radio(
                    choices,
                    value="cosine",
                    label="Similarity",
                    min_width=320,
                    scale=3,
                    elem_id="similarity",
                )
                self.paper = gr.Radio(
                    list(PAPER_TABLES),
                    value=DEFAULT_PAPERS,
                    label="Rows from the paper",
                    min_width=260,
                    scale=2,
                    elem_id="paper",
                )
            self.pearson = gr.Checkbox(
                False,
                label="Pearson r instead of Spearman ρ",
                container=False,
                elem_id="pearson",
            )
        with gr.Accordion("Measure others", open=False, elem_id="measure-others"):
            self._build_form(services)
        # Hidden while fewer than two models have a score.
        with gr.Accordion("Is the difference real?", open=False, elem_id="two-models") as self.two:
            with gr.Row():
                choices = _model_choices(shipped)
                self.first = gr.Dropdown(
                    choices, value=first, label="First model", min_width=220, elem_id="first-model"
                )
                self.second = gr.Dropdown(
                    choices,
                    value=second,
                    label="Second model",
                    min_width=220,
                    elem_id="second-model",
                )
            self.differences = gr.HTML(
                differences(shipped, first, second, Metric()), elem_id="findings"
            )
        # Hidden while no model has a score.
        with gr.Column() as self.one:
            with gr.Accordion("Quality and speed", open=False, elem_id="speed"):
                self.scatter = gr.Plot(show_label=False, elem_id="quality-speed")
                gr.HTML(messages.note(SCATTER_NOTE))
            with gr.Accordion("Copy the table", open=False, elem_id="copy"):
                self.format = gr.Radio(
                    list(FORMATS), value="Markdown", show_label=False, elem_id="copy-form"
                )
                self.text = gr.Code(
                    markdown(table),
                    show_label=False,
                    buttons=["copy"],
                    max_lines=14,
                    elem_id="copy-text",
                )
        shows = {
            "Scores": [self.table],
            "Is the difference real?": [self.differences],
            "Speed": [self.scatter],
        }
        display = [self.similarity, self.pearson, self.paper]
        report_button(services, *of_page("Evaluation", shows, display), "evaluation")

    def _build_form(self, services: Services) -> None:
        """Builds the form below "Measure others": models, data sets, files, Start and Stop."""
        with gr.Row(elem_classes="evaluate"):
            self.models = model_dropdown(
                services,
                FIRST_MODELS,
                " or NAME:cls",
                min_width=300,
                elem_id="evaluate-models",
            )
            self.data = open_dropdown(
                "Data sets",
                DATA,
                OR_HUB,
                value=["stsb:test"],
                multiselect=True,
                elem_id="evaluate-data",
            )
            self.files = gr.File(
                label="Your own files",
                file_count="multiple",
                height=120,
                min_width=260,
                elem_id="evaluate-files",
            )
        self.panel = FilePanel(services, self.files, "evaluate")
        self.tab = MeasureTab.build(
            services,
            "evaluate",
            "Measure",
            ("measure", "stop-measure", "evaluate-status"),
            stopped="stopped: the table has what was measured until then",
        )
        self.panel.hold([self.tab.start])
        with self.tab.buttons:
            self.back = gr.Button("Show the shipped table", visible=False, elem_id="shipped-again")

    def wire(self) -> None:
        """Connects the form, the display, and the two compared models with the results."""
        display = [self.similarity, self.pearson, self.paper, self.format]
        outputs = [
            self.table,
            self.first,
            self.second,
            self.differences,
            self.scatter,
            self.text,
            self.one,
            self.two,
            self.display,
        ]

        def describe_difference(
            grid: ResultGrid | None, first: str, second: str, *values: Any
        ) -> str:
            return differences(grid or self.shipped, first, second, _Display(*values).metric)

        def export(grid: ResultGrid | None, *values: Any) -> str:
            display = _Display(*values)
            table = tabulate(grid or self.shipped, display.metric, display.papers)
            return FORMATS[display.text_format](table)

        # Drawn when the page is opened, so that the start of the app does not wait for it.
        on_open(
            lambda: _scatter(self.shipped, tabulate(self.shipped, Metric())),
            self.scatter,
            queue=True,
        )
        inputs = [self.models, self.data, self.files, *display, *self.panel.inputs]
        self.tab.on(self.tab.start.click, self.measure, inputs, [self.grid, self.back, *outputs])
        # The keys are also outputs of the event.
        reset: Update = {self.grid: None, self.tab.status: "", self.back: hidden()}
        self.back.click(
            lambda *values: reset | self.show_results(None, *values),
            display,
            [*reset, *outputs],
            **event_options(),
        )
        pair_inputs = [self.grid, self.first, self.second, *display]
        for control in (self.similarity, self.pearson, self.paper):
            control.change(
                self.show, pair_inputs, outputs, **event_options(trigger_mode="always_last")
            )
        self.format.input(
            export, [self.grid, *display], self.text, **event_options(trigger_mode="always_last")
        )
        for picker in (self.first, self.second):
            picker.input(
                describe_difference,
                pair_inputs,
                self.differences,
                **event_options(trigger_mode="always_last"),
            )

    def measure(
        self,
        request: gr.Request,
        models: list[str],
        data: list[str],
        files: list[str] | None,
        *values: Any,
    ) -> Iterator[Update]:
        """Fills a grid and shows each cell once it is measured.

        ``values`` are the display and the choices of the file panel.
        """
        display = _Display(*values[:DISPLAY_CONTROLS])
        how = values[DISPLAY_CONTROLS:]
        try:
            # ``how`` holds for all files. A file without the chosen columns is read as it is by
            # default.
            names = list(data)
            for file in files or ():
                names.append(chosen_name(self.services, file, *how))
            grid = make_grid(models, list(map(self.services.access.check_data, names)))
        except UserFacingError as error:
            yield {self.tab.status: messages.error_message(error)}
            return

        def work(watch: Watch) -> Update:
            evaluate_grid(grid, self.services.models, self.services.settings.home, watch)
            return {self.tab.status: ""}

        # "Show the shipped table" is hidden, as the next cell would replace that table.
        yield {self.back: hidden()}
        shown_cells = 0
        # `work` fills the grid in a thread. Nothing is emptied after an error or a stop:
        # the table keeps what was measured until then.
        for update in self.tab.run(request, work, {}):
            if grid.done > shown_cells:
                shown_cells = grid.done
                table = tabulate(grid, display.metric, display.papers)
                update[self.table] = score_table(grid, table)
            yield update
        yield {
            self.grid: grid,
            self.back: gr.Button(visible=True),
            **self.show_results(grid, *display),
        }

    def show_results(self, grid: ResultGrid | None, *values: Any) -> Update:
        """Returns the updates of all components that depend on the results: the shipped ones without a ``grid``."""
        results = grid or self.shipped
        display = _Display(*values)
        first, second = _two_best(tabulate(results, display.metric, display.papers))
        choices = _model_choices(results)
        return {
            **self.show(grid, first, second, *values),
            self.first: gr.Dropdown(choices, value=first),
            self.second: gr.Dropdown(choices, value=second),
        }

    def show(
        self, grid: ResultGrid | None, first: str | None, second: str | None, *values: Any
    ) -> Update:
        """Returns the updates of all components that depend on the display. The two compared models stay."""
        results = grid or self.shipped
        display = _Display(*values)
        table = tabulate(results, display.metric, display.papers)
        # The number of models with a score. An empty cell has None as its estimate.
        model_count = sum(any(row.estimates.values()) for row in table.rows)
        return {
            self.display: gr.Accordion(label=display.title),
            self.one: gr.Column(visible=model_count > 0),
            self.two: gr.update(visible=model_count > 1),
            self.table: score_table(results, table),
            self.differences: differences(results, first, second, display.metric),
            self.scatter: _scatter(results, table),
            self.text: FORMATS[display.text_format](table),
        }


def _model_choices(results: Results) -> list[tuple[str, str]]:
    return [(ModelName.parse(model).label, model) for model in results.models]


def _two_best(table: ResultTable) -> tuple[str | None, str | None]:
    """Returns the two best models, or None twice if there are fewer.

    They are compared on the column with scores for the most models. Models that were trained on pairs
    of this column come last.
    """
    name = _fullest(table, table.columns).name
    ranking = []
    for row in table.rows:
        estimate = row.estimates[name]
        if estimate:
            # Sorted by the first value and then by the next: False comes before True, and the
            # highest figure first.
            ranking.append((name in row.trained_on, -estimate.value, row.model))
    models = [model for _, _, model in sorted(ranking)]
    if len(models) < 2:
        return None, None
    return models[0], models[1]


def _fullest(table: ResultTable, columns: list[TableColumn]) -> TableColumn:
    """Returns the column with scores for the most models; of several such columns the last, such as the average."""

    def count_scores(column: TableColumn) -> int:
        return sum(row.estimates[column.name] is not None for row in table.rows)

    # `max` returns the first of several.
    return max(reversed(columns), key=count_scores)


def _scatter(results: Results, table: ResultTable) -> Any:
    """Draws quality against speed.

    The quality is the score on the data that has scores for the most models. Data that no model was
    trained on or selected by is preferred.
    """
    trained_on = {name for row in table.rows for name in row.trained_on}
    unseen = [column for column in table.columns if column.name not in trained_on]
    tests = [column for column in unseen if column.name not in DEVELOPMENT_SETS]
    # Test sets that no model was trained on, or else any set that no model was trained on.
    column = _fullest(table, tests or unseen or table.columns)
    points = []
    for row in (*table.rows, *table.paper_rows):
        estimate = row.estimates.get(column.name)
        if estimate and row.speed and not isnan(estimate.value):
            if row in table.paper_rows:
                group = "paper"
                colour = "grey"
            else:
                group = opener_of(row.model).group
                # A list of models gets different colours. Each model is given alone here, so that it
                # has the same colour in every figure, even if another point has it, too.
                (colour,) = model_colours([ModelName.parse(row.model).name])
            points.append(Point(row.label, group, row.speed, estimate.value, colour))
    over = column.label
    if column.name == AVERAGE:
        over += f" of {len(averaged_of(results))} sets"
    return quality_and_speed(points, f"{table.metric.statistic.capitalize()} ×100, {over}")


def score_table(results: Results, table: ResultTable) -> Markup:
    """Renders the table, the origin of its figures, and notes on how to read them."""
    left_out = []
    # None tells the template that the results are the shipped ones.
    cells = None
    if isinstance(results, ResultGrid):
        left_out = [f"{sentence}." for sentence in results.left_out]
        # The list is a copy, as the grid may be growing.
        cells = list(results.results.values())
    return render(
        "evaluate/templates/score_table.html",
        results=results,
        cells=cells,
        statistic=STATISTICS[table.metric.statistic],
        similarity=SIMILARITIES[table.metric.similarity].label,
        table=table,
        mark=MARK,
        paper_source=PAPER,
        speed_tooltip=SPEED_TOOLTIP,
        notes=[*_notes(table), *left_out],
        failures=_failures(table),
        ranking=_ranking(results, table),
    )


def _ranking(results: Results, table: ResultTable) -> Markup:
    """Renders the ranks, ties and P(row > column) of the models on the column with scores for the most models."""
    column = _fullest(table, table.columns)
    # Models that were trained on pairs of the column are not ranked.
    models = [row.model for row in table.rows if column.name not in row.trained_on]
    if not models:
        # All were trained on some of the pairs, so `rank_models` ranks them all on the other pairs.
        models = [row.model for row in table.rows]
    ranking = rank_models(results, column.name, table.metric, models)
    labels = {standing.name: ModelName.parse(standing.name).label for standing in ranking.standings}
    systems = "models"
    if len(models) < len(table.rows):
        systems = "models that were not trained on STS data"
    return macro("ranking")(ranking, labels, f"by {column.label}", "Paired bootstrap", systems)


def differences(results: Results, a: str | None, b: str | None, metric: Metric) -> Markup:
    """Renders a sentence for each data set of both models, which says whether one model is better than the other."""
    if not a or not b:
        return Markup()
    first = ModelName.parse(a).label
    second = ModelName.parse(b).label
    sentences = []
    for name in [*results.data, AVERAGE]:
        if difference := results.difference(a, b, name, metric):
            # A key names the better model first, so the two models may be the other way round.
            p_values = rank_models(results, name, metric).p_values
            p_value = p_values.get((a, b), p_values.get((b, a)))
            on_data = f"on {data_label(name)}" if name != AVERAGE else "on average"
            sentences.append(difference.describe(first, second, on_data, p_value))
    return render(
        "evaluate/templates/differences.html",
        same_model=a == b,
        sentences=sentences,
        is_measured=isinstance(results, ResultGrid),
    )


def _notes(table: ResultTable) -> list[str]:
    """Returns the cautions that apply to the figures, the servers that got sentences, and the origin of systems."""
    names = {column.name for column in table.columns}
    conditions = {
        PEARSON_CAUTION: table.metric.statistic == "pearson",
        CROSS_ENCODER_NOTE: table.metric.similarity != "cosine",
        AVERAGE_NOTE: AVERAGE in names and not names.isdisjoint(DEVELOPMENT_SETS),
        SEEN_NOTE: any(row.trained_on for row in table.rows),
    }
    notes = [note for note, applies in conditions.items() if applies]
    hosts = set()
    for row in table.rows:
        endpoint = ModelName.parse(row.model).endpoint
        if endpoint:
            hosts.add(endpoint.address)
    if hosts:
        notes.append(f"The sentences were sent to {', '.join(sorted(hosts))}.")
    if table.system_rows:
        # The rows of the table do not have the number of seeds.
        seeds = {system.label: system.seeds for system in shipped_systems()}
        systems = [
            f"{row.label}, {row.made_of}, {format_count(seeds[row.label], 'seed')}"
            for row in table.system_rows
        ]
        notes.append(
            f"Made with this app, trained on: {'; '.join(systems)}. Their figures ship, not their models."
        )
    return [*notes, *table.overlaps]


def _failures(table: ResultTable) -> list[dict[str, str]]:
    """Returns each reason for empty cells once, with the first cell and the number of the others."""
    by_reason: dict[str, list[str]] = {}
    for row in table.rows:
        for name, reason in row.failures.items():
            by_reason.setdefault(reason, []).append(f"{row.label} on {data_label(name)}")
    failures = []
    for reason, cells in by_reason.items():
        text = cells[0]
        if len(cells) > 1:
            text += f" and {len(cells) - 1} more"
        failures.append({"cells": text, "reason": reason})
    return failures
