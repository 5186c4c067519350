"""The tab Errors: pairs that a model scores far too high or too low, and slices on which it is weak."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import gradio as gr
from markupsafe import Markup

from sbert_app.figures.compare import word_map
from sbert_app.pages.components import messages
from sbert_app.pages.components.events import Update, event_options, run_js
from sbert_app.pages.components.measure_tab import MeasureTab, hidden, visible
from sbert_app.pages.components.report import Report, of_page, report_button
from sbert_app.pages.components.templates import macro, render
from sbert_app.pages.evaluate.pickers import DATA, MODELS, ModelAndData
from sbert_app.services.background.watch import Watch
from sbert_app.services.container import Services
from sbert_app.services.results.error_analysis import (
    ErrorAnalysis,
    RankedError,
    Slice,
    analyze_errors,
)
from sbert_app.services.results.grid import evaluate_one, load_scored_pairs
from sbert_app.services.results.precomputed import shipped_scores
from sbert_app.services.results.results import EvalResult, Metric, data_label
from training.data.dataset import Dataset
from training.evaluation.attribution import Attribution, attribute
from training.models.model import Model, PairModel
from training.names import ModelName

NO_WORD_MAP = "The score of this kind of model cannot be decomposed by words."
# The pair is shown below both lists.
SHOW_PAIR = """() => document.getElementById("errors-map").scrollIntoView({behavior: "smooth", block: "nearest"})"""
# The selected pair, its scores, and the legend of the word map below.
error_pair = macro("evaluate/error_pair")


class _Analysis(NamedTuple):
    """The errors on the page, and their model."""

    model: ModelName
    errors: ErrorAnalysis


def build(services: Services) -> None:
    """Builds the tab inside the open Blocks. It opens with a shipped measurement."""
    _ErrorAnalysisTab(services).wire()


class _ErrorAnalysisTab:
    """The components of the tab and their event handlers.

    Attributes:
        analysis: the state with the `_Analysis` on the page, or None.
        over: the list of the pairs that the model rates too high.
        under: the list of the pairs that the model rates too low.
        pair: the pair that is chosen in one of the lists, explained.
        map: the word map of this pair.
    """

    def __init__(self, services: Services) -> None:
        self.services = services
        self.analysis = gr.State(None)
        self.pickers = ModelAndData(services, "errors", DATA, "stsb:dev")
        self.tab = MeasureTab.build(
            services,
            "error analysis",
            "Show the errors",
            ("show-errors", "stop-errors", "errors-status"),
        )
        self.pickers.panel.hold([self.tab.start])
        with gr.Row():
            self.over = _error_list("Rated too high by the model", "over")
            self.under = _error_list("Rated too low by the model", "under")
        self.pair = gr.HTML(elem_id="errors-pair")
        self.map = gr.Plot(show_label=False, visible=False, elem_id="errors-map")
        self.heading = gr.HTML(messages.section("Where the model is weak"), visible=False)
        self.slices = gr.HTML(elem_id="slices")
        shows = {
            "The model": [self.tab.status],
            "A pair": [self.pair, self.map],
            "Where it is weak": [self.slices],
        }
        # `report` adds the lists of errors to the report that this function makes.
        self._tab_report, parts = of_page("Error analysis", shows)
        report_button(services, self.report, [self.analysis, *parts], "errors")

    def wire(self) -> None:
        """Connects the components: Start lists the errors, and the choice of a pair in a list explains it."""
        empty: Update = {
            **dict.fromkeys((self.over, self.under, self.map, self.heading), hidden()),
            self.slices: "",
            self.analysis: None,
            self.pair: "",
        }
        self.tab.wire(self.analyze, self.pickers.inputs, empty, example=self.example)
        pair_outputs = [self.pair, self.map, self.over, self.under]
        for radio, other in ((self.over, self.under), (self.under, self.over)):
            opened = radio.input(
                partial(self.explain, other=other),
                [self.analysis, radio],
                pair_outputs,
                **event_options(trigger_mode="always_last"),
            )
            run_js(opened.then, SHOW_PAIR)

    def analyze(self, watch: Watch, *values: str) -> Update:
        """Scores the data set, or takes the scores from the cache, lists the largest errors, and explains the first."""
        model, name = self.pickers.named(*values)
        watch.report(0, f"Scoring {data_label(name)}")
        pairs = load_scored_pairs(name, self.services.settings.home)
        result = evaluate_one(model, pairs, self.services.models, watch)
        update = self.result(model, name, pairs, result)
        # None if the model does not rate any pair too high. `result` has selected the same pair in
        # the list.
        first = next(iter(update[self.analysis].errors.over), None)
        if first:
            update |= self._explanation(model, first)
        return update

    def example(self) -> Update:
        """Shows the errors of shipped scores. The word map of a pair needs the model, so it waits for a selection."""
        pairs, results, _ = shipped_scores(self.services.settings.home)
        model = ModelName.parse(MODELS[0])
        return self.result(model, pairs.name, pairs, results[model], selects_first=False)

    def result(
        self,
        model: ModelName,
        name: str,
        pairs: Dataset,
        result: EvalResult,
        selects_first: bool = True,
    ) -> Update:
        """Returns the updates of the lists of errors and of the slices. The caller adds the word map of a pair.

        Args:
            name: the name of the data, which the summary shows.
            selects_first: whether the first pair that is rated too high is selected in its list.
        """
        result, pairs = result.without_unscored(pairs)
        errors = analyze_errors(result, pairs)
        summary = macro("evaluate/errors_summary")(
            name, model.label, len(pairs), result.estimate(Metric())
        )
        first = errors.over[0] if errors.over and selects_first else None
        return {
            self.analysis: _Analysis(model, errors),
            self.tab.status: summary,
            self.over: _choices(errors.over, first),
            self.under: _choices(errors.under),
            self.heading: gr.HTML(visible=True),
            self.slices: slices(errors.slices),
            self.pair: "",
            self.map: hidden(),
        }

    def report(self, analysis: _Analysis | None, *parts: Any) -> Report:
        """Returns the report of the tab, with its lists of errors as tables."""
        report = self._tab_report(*parts)
        if analysis is None:
            return report
        lists = {
            "Rated too high by the model": analysis.errors.over,
            "Rated too low by the model": analysis.errors.under,
        }
        tables = {title: [errors_table(pairs)] for title, pairs in lists.items() if pairs}
        return replace(report, sections={**report.sections, **tables})

    def explain(self, analysis: _Analysis | None, row: int | None, *, other: gr.Radio) -> Update:
        """Explains the pair whose ``row`` is chosen in one list, and clears the choice in the ``other`` list."""
        if analysis is None or row is None:
            return {self.pair: gr.skip()}
        # A row is in at most one of the lists.
        pairs = [*analysis.errors.over, *analysis.errors.under]
        pair = next(pair for pair in pairs if pair.row == row)
        return {**self._explanation(analysis.model, pair), other: gr.Radio(value=None)}

    def _explanation(self, model: ModelName, pair: RankedError) -> Update:
        """Returns the update that shows a pair with its word map, or with the reason why it has none."""
        # Imports torch, which the opening of the page does not wait for.
        from training.models.encoder import Encoder

        scorer = self.services.models.get(model, Model)
        # `attribute` needs the tokens and the weights of a model.
        if not isinstance(scorer, Encoder | PairModel):
            return {self.pair: error_pair(pair, messages.note(NO_WORD_MAP)), self.map: hidden()}
        explanation = attribute(scorer, pair.first, pair.second)
        # Other explanations give a contribution to each word, which `messages.attribution` lists.
        figure = None
        if isinstance(explanation, Attribution):
            figure = word_map(explanation)
        return {
            self.pair: error_pair(pair, messages.attribution(explanation)),
            self.map: visible(figure),
        }


def _error_list(label: str, name: str) -> gr.Radio:
    return gr.Radio([], label=label, min_width=340, elem_id=name, elem_classes="mistakes")


def _choices(errors: list[RankedError], selected: RankedError | None = None) -> gr.Radio:
    """Returns a radio with a choice for each pair, whose value is the row of the pair in the data set."""
    choices = []
    for pair in errors:
        ranks = f"gold rank {pair.gold_rank:.2f}, model rank {pair.score_rank:.2f}"
        choices.append((f"{pair.first}\n{pair.second}\n{ranks}", pair.row))
    return gr.Radio(choices, value=selected.row if selected else None, visible=True)


def errors_table(errors: Sequence[RankedError]) -> Markup:
    """Renders the pairs as a table, the largest error first."""
    columns = [
        ("sentence", ""),
        ("sentence", ""),
        ("gold", "number"),
        ("gold rank", "number"),
        ("model rank", "number"),
    ]
    rows = []
    for error in errors:
        figures = [f"{figure:.2f}" for figure in (error.gold, error.gold_rank, error.score_rank)]
        rows.append([error.first, error.second, *figures])
    return macro("table")(columns, rows)


def slices(parts: Sequence[Slice]) -> Markup:
    """Renders ρ of each slice, grouped by property."""
    # The slices of a property follow each other.
    groups = [(prop, list(group)) for prop, group in groupby(parts, key=lambda part: part.by)]
    return render("evaluate/templates/slices.html", groups=groups)
