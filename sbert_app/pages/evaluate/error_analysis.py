"""Evaluate, error analysis: the pairs that a model rates far too high or too low, and the slices where it is weak."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import gradio as gr
from markupsafe import Markup

from sbert_app.figures.compare import word_map
from sbert_app.pages.components import messages
from sbert_app.pages.components.events import LATEST, PRIVATE
from sbert_app.pages.components.task import TaskWidget, Update
from sbert_app.pages.evaluate import views
from sbert_app.pages.evaluate.pickers import DATA, ModelAndData
from sbert_app.services.container import Services
from sbert_app.services.results.cache import EvalResultCache
from sbert_app.services.results.error_analysis import ErrorAnalysis, RankedError, analyze_errors
from sbert_app.services.results.eval_result import Metric
from sbert_app.services.results.grid import evaluate_one, load_scored_pairs
from sbert_app.services.results.model_spec import ModelSpec
from sbert_app.services.results.results import data_label
from sbert_app.services.tasks import ReportProgress, ShouldStop

NO_WORD_MAP = (
    "This model is not a bi-encoder: its score cannot be decomposed by words. Choose a bi-encoder to see a word map."
)


class _Analysis(NamedTuple):
    """The errors that are shown, and whose they are."""

    model: ModelSpec
    errors: ErrorAnalysis


def build(services: Services) -> None:
    """Build the tab inside the open Blocks; its example is computed when the tab is first opened."""
    _ErrorAnalysisTab(services).wire()


class _ErrorAnalysisTab:
    """The components and their event handlers."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.analysis = gr.State(None)
        self.pickers = ModelAndData(services, "errors", DATA, "stsb:dev")
        with gr.Row(elem_classes="actions"):
            self.start = gr.Button("Show the errors", variant="primary", elem_id="show-errors")
            stop = gr.Button("Stop", interactive=False, elem_id="stop-errors")
        self.status = gr.HTML(messages.waiting("Scoring STSb dev …"), elem_id="errors-status")
        with gr.Row():
            self.over = _error_list("Rated too high by the model", "over")
            self.under = _error_list("Rated too low by the model", "under")
        self.pair = gr.HTML(elem_id="errors-pair")
        self.map = gr.Plot(show_label=False, visible=False, elem_id="errors-map")
        self.heading = gr.HTML(messages.section("Where the model is weak"), visible=False)
        self.slices = gr.HTML(elem_id="slices")
        self.task = TaskWidget("error analysis", self.status, stop, self.start)

    def wire(self) -> None:
        """Connect the components with their handlers."""
        inputs = self.pickers.inputs
        outputs = [self.analysis, self.over, self.under, self.pair, self.map, self.heading, self.slices]
        outputs += self.task.outputs
        tab = gr.context.Context.block
        opened = tab.select(self.analyze_once, [self.analysis, *inputs], outputs, concurrency_limit=2, **PRIVATE)
        pressed = self.start.click(self.analyze, inputs, outputs, concurrency_limit=2, **PRIVATE)
        self.task.wire(self.services, opened, pressed)
        explained = [self.pair, self.map, self.over, self.under]
        self.over.input(self.explain_over, [self.analysis, self.over], explained, **LATEST)
        self.under.input(self.explain_under, [self.analysis, self.under], explained, **LATEST)

    def analyze_once(
        self, analysis: _Analysis | None, model: str, data: str, file: str | None, request: gr.Request, *how: str
    ) -> Iterator[Update]:
        """Compute the example when the tab is opened for the first time."""
        if analysis is None:
            yield from self.analyze(model, data, file, request, *how)
        else:
            yield {self.status: gr.skip()}  # a generator that yields nothing would clear its outputs

    def analyze(self, model: str, data: str, file: str | None, request: gr.Request, *how: str) -> Iterator[Update]:
        """Score the data set, or take the scores from the cache, and list the largest errors."""
        home = self.services.settings.home

        def work(report_progress: ReportProgress, should_stop: ShouldStop) -> Update:
            name = self.pickers.chosen(data, file, *how)
            spec = ModelSpec.parse(model or "")
            report_progress(0, f"Scoring {data_label(name)}")
            pairs, cache = load_scored_pairs(name, home), EvalResultCache(home)
            result = evaluate_one(spec, pairs, self.services.models, cache, report_progress, should_stop)
            errors = analyze_errors(result, pairs)
            first = errors.over[0] if errors.over else None
            return {
                self.analysis: _Analysis(spec, errors),
                self.status: views.errors_summary(spec.label, name, result.estimate(Metric()), len(pairs)),
                self.over: _choices(errors.over, first),
                self.under: _choices(errors.under),
                self.heading: gr.HTML(visible=True),
                self.slices: views.slices(errors.slices),
                **(self._explanation(spec, first) if first else {self.pair: "", self.map: gr.Plot(visible=False)}),
            }

        yield from self.task.run(self.services, request, work, lambda update: update, {})

    def explain_over(self, analysis: _Analysis | None, row: int | None) -> Update:
        """The chosen overestimate and its word map."""
        if analysis is None or row is None:
            return {self.pair: gr.skip()}
        pair = _pair_of_row(analysis.errors.over, row)
        return {**self._explanation(analysis.model, pair), self.under: gr.Radio(value=None)}

    def explain_under(self, analysis: _Analysis | None, row: int | None) -> Update:
        """The chosen underestimate and its word map."""
        if analysis is None or row is None:
            return {self.pair: gr.skip()}
        pair = _pair_of_row(analysis.errors.under, row)
        return {**self._explanation(analysis.model, pair), self.over: gr.Radio(value=None)}

    def _explanation(self, model: ModelSpec, pair: RankedError) -> Update:
        figure, note = self._word_map(model, pair)
        return {self.pair: views.error_pair(pair, note), self.map: gr.Plot(figure, visible=figure is not None)}

    def _word_map(self, model: ModelSpec, pair: RankedError) -> tuple[Any, Markup]:
        """The word map and how to read it; (None, the reason) where there is none."""
        from training.evaluation.attribution import attribute, why_no_map
        from training.models.scorer import ENCODER, kind_of

        if kind_of(model.name) != ENCODER:
            return None, messages.note(NO_WORD_MAP)
        encoder = self.services.models.encoder(model.name, model.pooling)
        if reason := why_no_map(encoder):
            return None, messages.word_map_note(None, reason)
        exact = attribute(encoder, pair.first, pair.second)
        return word_map(exact.words_a, exact.words_b, exact.matrix), messages.word_map_note(exact.cosine)


def _error_list(label: str, name: str) -> gr.Radio:
    return gr.Radio([], label=label, min_width=340, elem_id=name, elem_classes="mistakes")


def _choices(errors: list[RankedError], chosen: RankedError | None = None) -> gr.Radio:
    """A choice for each pair; its value is the row of the pair in the data set."""
    choices = [
        (f"{pair.first}\n{pair.second}\ngold rank {pair.gold_rank:.2f}, model rank {pair.score_rank:.2f}", pair.row)
        for pair in errors
    ]
    return gr.Radio(choices, value=chosen.row if chosen else None)


def _pair_of_row(errors: list[RankedError], row: int) -> RankedError:
    return next(pair for pair in errors if pair.row == row)
