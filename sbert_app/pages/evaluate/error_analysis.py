"""Evaluate, where it errs: the pairs that a model rates far too high or too low, why, and on which kinds it is weak."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import gradio as gr

from sbert_app.figures.compare import word_map
from sbert_app.pages.components.events import PRIVATE
from sbert_app.pages.components.messages import INTERNAL_ERROR, error_message, word_map_note
from sbert_app.pages.evaluate import views
from sbert_app.pages.evaluate.pickers import DATA, MODELS, model_dropdown, own_file
from sbert_app.services.container import Services
from sbert_app.services.results.cache import EvalResultCache
from sbert_app.services.results.error_analysis import ErrorAnalysis, RankedError, analyze_errors
from sbert_app.services.results.eval_result import EvalResult, Metric
from sbert_app.services.results.grid import evaluate_one, load_scored_pairs
from sbert_app.services.results.model_spec import ModelSpec
from sbert_app.services.tasks import ReportProgress, ShouldStop, TaskResult, TaskRunner
from training.data.dataset import Dataset
from training.errors import InputError, Stopped

NO_MAP = "This model is no bi-encoder: its score cannot be taken apart by words. Choose a bi-encoder to see a word map."

Update = dict[Any, Any]  # component -> its new value


class Found(NamedTuple):
    """What is shown, kept for the choice of a row."""

    choice: ModelSpec
    mistakes: ErrorAnalysis


def build(services: Services) -> None:
    """Lay the tab out inside the open Blocks; its example is computed when it is opened."""
    _Tab(services).wire()


class _Tab:
    """The components, and what happens to them."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.watched = TaskRunner()
        self.found = gr.State(None)
        with gr.Row():
            self.model = model_dropdown(services, MODELS[0], min_width=260, elem_id="errors-model")
            self.data = gr.Dropdown(
                DATA, value="stsb:dev", label="Data set", info="A file goes before it", elem_id="errors-data"
            )
            self.file = own_file(min_width=280, elem_id="errors-file")
        with gr.Row(elem_classes="actions"):
            self.go = gr.Button("Show the errors", variant="primary", elem_id="show-errors")
            self.halt = gr.Button("Stop", interactive=False, elem_id="stop-errors")
        self.status = gr.HTML('<div class="waiting">Scoring STSb dev …</div>', elem_id="errors-status")
        with gr.Row():
            self.over = _list("Rated too high by the model", "over")
            self.under = _list("Rated too low by the model", "under")
        self.pair = gr.HTML(elem_id="errors-pair")
        self.map = gr.Plot(show_label=False, visible=False, elem_id="errors-map")
        self.heading = gr.HTML('<h2 class="section">On which pairs it is weak</h2>', visible=False)
        self.slices = gr.HTML(elem_id="slices")

    def wire(self) -> None:
        """Connect the components with what they do."""
        root = gr.context.Context.root_block
        asked = [self.model, self.data, self.file]
        shown = [self.found, self.status, self.go, self.halt, self.over, self.under, self.pair, self.map]
        shown += [self.heading, self.slices]
        tab = gr.context.Context.block
        opened = tab.select(self.show_once, [self.found, *asked], shown, concurrency_limit=2, **PRIVATE)
        pressed = self.go.click(self.show, asked, shown, concurrency_limit=2, **PRIVATE)
        for event in (opened, pressed):
            event.failure(self.failed, None, [self.status, self.go, self.halt], **PRIVATE)
        self.halt.click(self.stop, None, self.halt, queue=False, **PRIVATE)
        explained = [self.pair, self.map, self.over, self.under]
        self.over.input(
            lambda found, row: self.explain(found, row, True), [self.found, self.over], explained, **PRIVATE
        )
        self.under.input(
            lambda found, row: self.explain(found, row, False), [self.found, self.under], explained, **PRIVATE
        )
        root.unload(self.leave)

    def show_once(
        self, found: Found | None, model: str, data: str, file: str | None, request: gr.Request
    ) -> Iterator[Update]:
        """The example, when the tab is opened for the first time."""
        if found is None:
            yield from self.show(model, data, file, request)
        else:
            yield {self.status: gr.skip()}

    def show(self, model: str, data: str, file: str | None, request: gr.Request) -> Iterator[Update]:
        """Score the data, or remember the scores, and list what is wrong."""
        buttons = {self.go: gr.Button(interactive=True), self.halt: gr.Button("Stop", interactive=False)}
        yield {self.go: gr.Button(interactive=False), self.halt: gr.Button("Stop", interactive=True)}
        try:
            choice, name = ModelSpec.parse(model or ""), file or data
            for event in self.watched.run(
                _owner(request), f"Scoring {data}", lambda tell, stop: self._work(choice, name, tell, stop)
            ):
                if isinstance(event, TaskResult):
                    yield {**self._shown(choice, name, *event.value), **buttons}
                else:
                    yield {self.status: views.progress(event)}
        except InputError as error:
            yield {self.status: error_message(error), **buttons}
        except Stopped:
            yield {self.status: error_message("stopped before the last pair"), **buttons}

    def explain(self, found: Found | None, row: int | None, is_over: bool) -> Update:
        """The pair of a row and its word map, if its model has one."""
        if found is None or row is None:
            return {self.pair: gr.skip()}
        pairs = found.mistakes.over if is_over else found.mistakes.under
        other = self.under if is_over else self.over
        pair = next(each for each in pairs if each.row == row)
        return {**self._explained(found.choice, pair), other: gr.Radio(value=None)}

    def stop(self, request: gr.Request) -> Any:
        """Let the scoring come to an end."""
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

    def _work(
        self, choice: ModelSpec, name: str, tell: ReportProgress, should_stop: ShouldStop
    ) -> tuple[Dataset, EvalResult, ErrorAnalysis]:
        data = load_scored_pairs(name, self.services.settings.home)
        cache = EvalResultCache(self.services.settings.home)
        cell = evaluate_one(choice, data, self.services.models, cache, tell, should_stop)
        return data, cell, analyze_errors(cell, data)

    def _shown(self, choice: ModelSpec, name: str, data: Dataset, cell: EvalResult, found: ErrorAnalysis) -> Update:
        first = found.over[0] if found.over else None
        return {
            self.found: Found(choice, found),
            self.status: views.mistakes_lead(choice.label, name, cell.estimate(Metric()), len(data)),
            self.over: _choices(found.over, first),
            self.under: _choices(found.under),
            self.pair: "",
            self.map: gr.Plot(visible=False),
            self.heading: gr.HTML(visible=True),
            self.slices: views.slices(found.slices),
            **(self._explained(choice, first) if first else {}),
        }

    def _explained(self, choice: ModelSpec, pair: RankedError) -> Update:
        figure, note = self._map(choice, pair)
        told = views.pair(pair.first, pair.second, pair.gold, pair.score)
        return {self.pair: told + note, self.map: gr.Plot(figure, visible=figure is not None)}

    def _map(self, choice: ModelSpec, pair: RankedError) -> tuple[Any, str]:
        """The word map and what to say of it; no map where none exists."""
        from training.evaluation.attribution import attribute
        from training.models.scorer import ENCODER, kind_of

        if kind_of(choice.name) != ENCODER:
            return None, f'<p class="note">{NO_MAP}</p>'
        encoder = self.services.models.encoder(choice.name, choice.pooling)
        if encoder.pooling == "cls":
            return None, word_map_note(None)
        exact = attribute(encoder, pair.first, pair.second)
        return word_map(exact.words_a, exact.words_b, exact.matrix), word_map_note(exact.cosine)


def _list(label: str, name: str) -> gr.Radio:
    return gr.Radio([], label=label, min_width=340, elem_id=name, elem_classes="mistakes")


def _choices(found: list[RankedError], chosen: RankedError | None = None) -> Any:
    """A line for each pair; its value is the row that it has in the source."""
    lines = [
        (f"{each.first}\n{each.second}\ngold rank {each.gold_rank:.2f}, the model's {each.score_rank:.2f}", each.row)
        for each in found
    ]
    return gr.Radio(lines, value=chosen.row if chosen else None)


def _owner(request: gr.Request) -> str:
    return f"{request.session_hash} errors"
