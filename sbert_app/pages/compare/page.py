"""The front page: how similar two sentences are and why, and in a second tab all pairs of a few hundred."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import gradio as gr

from sbert_app.figures import compare as figures
from sbert_app.pages.compare import many, snippets, views
from sbert_app.pages.components.events import PRIVATE, UNQUEUED
from sbert_app.pages.components.messages import (
    error_message,
    heading,
    note,
    waiting,
    word_map_note,
)
from sbert_app.pages.components.pickers import (
    NO_CROSS_ENCODER,
    POOLING_LABELS,
    cross_encoder_picker,
    model_picker,
    pooling_picker,
)
from sbert_app.services.compare import calibration, examples
from sbert_app.services.compare.comparison import Comparison, compare_by_name, leave_one_out
from sbert_app.services.container import Services
from training.errors import UserFacingError

OPENING_PAIR = examples.pairs()[1]  # the opposite pair: the page opens with something to think about
GOLD_LESSON = "A pair of STSb dev: the annotators' score stands beside the models'."
REPLACE_URL = """(a, b, model, pooling, cross) => {
  const query = new URLSearchParams({a, b, model: model || "", pooling: pooling || "", cross: cross || ""});
  window.history.replaceState(null, "", "?" + query.toString());
}"""
COPY_LINK = """() => { navigator.clipboard.writeText(window.location.href); }"""

Update = dict[Any, Any]  # component -> its new value


@dataclass(frozen=True)
class Inputs:
    """What is compared. The fields are also the query parameters of a link."""

    a: str
    b: str
    model: str
    pooling: str
    cross: str | None

    @property
    def cross_encoder(self) -> str | None:
        """The name of the cross-encoder, None without one."""
        return None if self.cross in (None, "", NO_CROSS_ENCODER) else self.cross


def build(services: Services) -> None:
    """Build the page inside the open Blocks."""
    gr.HTML(heading("SBERT Lab", "How similar are two sentences, and why?"))
    with gr.Tabs() as tabs:
        with gr.Tab("Two sentences", id="two"):
            _TwoSentences(services).wire()
        with gr.Tab("Many sentences", id="many") as many_tab:
            many.build(services, many_tab)
    gr.context.Context.root_block.load(_tab_of_link, None, tabs, queue=False, api_visibility="private")


class _TwoSentences:
    """The components of the first tab and their handlers."""

    def __init__(self, services: Services) -> None:
        self.services = services
        with gr.Row(equal_height=True):
            self.a = _sentence("First sentence", OPENING_PAIR.a, "sentence-a")
            self.b = _sentence("Second sentence", OPENING_PAIR.b, "sentence-b")
        with gr.Row(elem_classes="chips"):
            self.chips = [gr.Button(pair.name, size="sm", elem_classes="chip") for pair in examples.pairs()]
            self.random_pair = gr.Button("a random STSb pair", size="sm", elem_classes="chip", elem_id="random-pair")
        self.lesson = gr.HTML(note(OPENING_PAIR.lesson), elem_id="lesson")
        with gr.Row():
            self.model, self.pooling, self.cross = model_picker(), pooling_picker(), cross_encoder_picker()
        self.gold_pair = gr.State(None)  # the STSb pair that was drawn last, with its gold score
        self.comparison = gr.State(None)
        self.answer = gr.HTML(waiting("Loading the model…"), elem_id="answer")
        self.poolings = gr.HTML(elem_id="poolings")
        with gr.Tabs(elem_id="why"):
            with gr.Tab("Which words make it"):
                self.map_note = gr.HTML(elem_id="map-note")
                self.word_map = gr.Plot(show_label=False, elem_id="word-map")
            with gr.Tab("What if a word is left out") as self.left_out_tab:
                self.left_out = gr.HTML(elem_id="what-if")
                self.left_out_is_open = gr.State(False)
            with gr.Tab("Tokens"):
                self.tokens = gr.HTML(elem_id="tokens")
            with gr.Tab("Copy"):
                self.copy_link = gr.Button("Copy a link to this view", size="sm", elem_id="copy-link")
                self.link = gr.Textbox(label="Link", interactive=False, buttons=["copy"], elem_id="link")
                code: dict[str, Any] = {"wrap_lines": True, "max_lines": 18}
                self.as_json = gr.Code(label="JSON", language="json", elem_id="as-json", **code)
                self.as_python = gr.Code(label="Python", language="python", elem_id="as-python", **code)
                self.as_curl = gr.Code(label="curl", language="shell", elem_id="as-curl", **code)

    def wire(self) -> None:
        """Connect the components with their handlers."""
        inputs = [self.a, self.b, self.model, self.pooling, self.cross]
        outputs = [
            *(self.comparison, self.lesson, self.answer, self.poolings, self.map_note, self.word_map, self.tokens),
            *(self.link, self.as_json, self.as_python, self.as_curl),
        ]
        # change, not input: a paste fires no input event. A burst of keys is answered by its last state.
        changes = [*(each.change for each in inputs), self.a.submit, self.b.submit]
        ask: dict[str, Any] = {
            "fn": self.answer_pair,
            "inputs": [*inputs, self.gold_pair],
            "outputs": outputs,
            **PRIVATE,
        }
        changed = gr.on(changes, **ask, trigger_mode="always_last", concurrency_limit=4)
        opened = gr.context.Context.root_block.load(_inputs_of_link, None, inputs, **UNQUEUED)
        for event in (changed, opened.then(**ask)):
            event.then(None, inputs, None, js=REPLACE_URL, trigger_mode="always_last")
            event.then(
                self.update_left_out,
                [self.comparison, self.left_out_is_open],
                self.left_out,
                trigger_mode="always_last",
                **PRIVATE,
            )
        self.left_out_tab.select(
            lambda comparison: (True, self.leave_out(comparison)),
            self.comparison,
            [self.left_out_is_open, self.left_out],
            api_visibility="private",
        )
        self.copy_link.click(None, None, None, js=COPY_LINK)
        for chip, pair in zip(self.chips, examples.pairs(), strict=True):
            chip.click(lambda pair=pair: (pair.a, pair.b), None, [self.a, self.b], **UNQUEUED)
        self.random_pair.click(self.draw_pair, None, [self.a, self.b, self.gold_pair], **PRIVATE)

    def answer_pair(
        self,
        a: str,
        b: str,
        model: str,
        pooling: str,
        cross: str | None,
        gold_pair: examples.GoldPair | None,
        request: gr.Request,
    ) -> Update:
        """Everything the page shows of a pair, or what is wrong with the inputs."""
        inputs = Inputs(a, b, model, pooling, cross)
        models = self.services.models
        error, cross_encoder = "", inputs.cross_encoder
        try:
            models.cross_encoder_or_none(cross_encoder)
        except UserFacingError as unusable:  # the cosine is worth showing without it
            error, cross_encoder = error_message(unusable), None
        try:
            comparison = compare_by_name(models, a, b, model, pooling, cross_encoder)
        except UserFacingError as wrong:
            nothing = dict.fromkeys((self.lesson, self.poolings, self.map_note, self.tokens), "")
            return {self.comparison: None, self.answer: error_message(wrong), **nothing}
        gold = gold_pair.score if gold_pair and (gold_pair.a, gold_pair.b) == (a, b) else None
        return {
            self.comparison: comparison,
            self.lesson: note(examples.lesson_of(a, b) if gold is None else GOLD_LESSON),
            **self._scores(comparison, gold, error),
            **self._words(comparison),
            **self._copies(comparison, inputs, _base_url(request)),
        }

    def update_left_out(self, comparison: Comparison | None, is_open: bool) -> Any:
        """The tab of left-out words, if it is open; it takes a batch of its own."""
        return self.leave_out(comparison) if is_open else gr.skip()

    def leave_out(self, comparison: Comparison | None) -> str:
        """The pair without each of its words in turn."""
        if comparison is None:
            return note("Type two sentences first.")
        models = self.services.models
        encoder = models.encoder(comparison.model, comparison.pooling)
        cross_encoder = models.cross_encoder_or_none(comparison.cross_encoder)
        return views.left_out(leave_one_out(encoder, cross_encoder, comparison), comparison)

    def draw_pair(self) -> tuple[str, str, examples.GoldPair]:
        """A random pair of STSb dev."""
        pair = examples.random_stsb_pair(self.services.settings.home)
        return pair.a, pair.b, pair

    def _scores(self, comparison: Comparison, gold: float | None, error: str) -> Update:
        home = self.services.settings.home
        curves = {name: calibration.load_calibration(comparison.model, name, home) for name in comparison.by_pooling}
        curve = curves[comparison.pooling]
        if curve is None:
            self.services.calibrate_later(comparison.model, comparison.pooling)
        return {
            self.answer: views.result(comparison, curve, gold, error),
            self.poolings: views.poolings(comparison, curves),
        }

    def _words(self, comparison: Comparison) -> Update:
        exact = comparison.attribution
        return {
            self.map_note: word_map_note(exact.cosine if exact else None),
            self.word_map: figures.word_map(exact.words_a, exact.words_b, exact.matrix) if exact else None,
            self.tokens: views.tokens(comparison.a, comparison.b),
        }

    def _copies(self, comparison: Comparison, inputs: Inputs, base_url: str) -> Update:
        arguments = (inputs.a, inputs.b, inputs.model, inputs.pooling, inputs.cross_encoder)
        return {
            self.link: snippets.link(base_url, **asdict(inputs)),
            self.as_json: json.dumps(comparison.to_json(), ensure_ascii=False, indent=1),
            self.as_python: snippets.as_python(*arguments),
            self.as_curl: snippets.as_curl(base_url, *arguments),
        }


def _sentence(label: str, value: str, elem_id: str) -> gr.Textbox:
    return gr.Textbox(value, label=label, lines=1, max_lines=8, elem_id=elem_id, min_width=280)


def _inputs_of_link(request: gr.Request) -> tuple[Any, ...]:
    """The inputs that the address names; what it omits, or gets wrong, keeps its default."""
    query = dict(request.query_params)
    if query.get("pooling") not in POOLING_LABELS:
        query.pop("pooling", None)
    return tuple(query.get(name) or gr.skip() for name in Inputs.__dataclass_fields__)


def _tab_of_link(request: gr.Request) -> Any:
    """/?tab=many opens the second tab."""
    return gr.Tabs(selected="many") if request.query_params.get("tab") == "many" else gr.skip()


def _base_url(request: gr.Request) -> str:
    host = request.headers.get("host", f"127.0.0.1:{7860}")
    return f"{request.url.scheme}://{host}"
