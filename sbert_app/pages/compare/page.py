"""The front page: two sentences, or a few hundred, and what the models make of them."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import gradio as gr

from sbert_app.figures import compare as figures
from sbert_app.pages.compare import many as compare_many
from sbert_app.pages.compare import views
from sbert_app.pages.components.messages import error_message, word_map_note
from sbert_app.pages.components.pickers import cross_encoder_picker, model_picker, pooling_picker
from sbert_app.services.compare import calibration, examples
from sbert_app.services.compare.comparison import Comparison, compare_by_name, leave_one_out
from sbert_app.services.container import Services
from training.errors import InputError

FIRST = examples.pairs()[1]  # the opposite pair: the page opens with something to think about
VIEW = ("a", "b", "model", "pooling", "cross")  # the query parameters of a link
REPLACE_URL = """(a, b, model, pooling, cross) => {
  const view = new URLSearchParams({a, b, model: model || "", pooling: pooling || "", cross: cross || ""});
  window.history.replaceState(null, "", "?" + view.toString());
}"""
GOLD_LESSON = "A pair of STSb dev: the annotators' score stands beside the models'."
COPY_LINK = """() => { navigator.clipboard.writeText(window.location.href); }"""


def build(services: Services) -> None:
    """Lay the page out inside the open Blocks."""
    gr.HTML('<h1 class="title">SBERT Lab</h1><p class="tagline">How similar are two sentences, and why?</p>')
    with gr.Tabs() as tabs:
        with gr.Tab("Two sentences", id="two"):
            _two_sentences(services)
        with gr.Tab("Many sentences", id="many") as many:
            compare_many.build(services, many)
    gr.context.Context.root_block.load(_tab_of_link, None, tabs, queue=False, api_visibility="private")


def _two_sentences(services: Services) -> None:
    with gr.Row(equal_height=True):
        a = gr.Textbox(FIRST.a, label="First sentence", lines=1, max_lines=8, elem_id="sentence-a", min_width=280)
        b = gr.Textbox(FIRST.b, label="Second sentence", lines=1, max_lines=8, elem_id="sentence-b", min_width=280)
    with gr.Row(elem_classes="chips"):
        chips = [gr.Button(pair.name, size="sm", elem_classes="chip") for pair in examples.pairs()]
        random_pair = gr.Button("a random STSb pair", size="sm", elem_classes="chip", elem_id="random-pair")
    lesson = gr.HTML(_lesson(FIRST.lesson), elem_id="lesson")
    with gr.Row():
        model, pooling, cross = model_picker(), pooling_picker(), cross_encoder_picker()
    drawn = gr.State(None)  # the random STSb pair that was drawn last, with its gold score
    last = gr.State(None)
    answer = gr.HTML('<div class="waiting">Loading the model…</div>', elem_id="answer")
    three = gr.HTML(elem_id="poolings")
    with gr.Tabs(elem_id="why"):
        with gr.Tab("Which words make it"):
            map_note = gr.HTML(elem_id="map-note")
            word_map = gr.Plot(show_label=False, elem_id="word-map")
        with gr.Tab("What if a word is left out") as what_if_tab:
            what_if = gr.HTML(elem_id="what-if")
        with gr.Tab("Tokens"):
            tokens = gr.HTML(elem_id="tokens")
        with gr.Tab("Copy"):
            copy_link = gr.Button("Copy a link to this view", size="sm", elem_id="copy-link")
            link = gr.Textbox(label="Link", interactive=False, buttons=["copy"], elem_id="link")
            code: dict[str, Any] = {"wrap_lines": True, "max_lines": 18}
            as_json = gr.Code(label="JSON", language="json", elem_id="as-json", **code)
            as_python = gr.Code(label="Python", language="python", elem_id="as-python", **code)
            as_curl = gr.Code(label="curl", language="shell", elem_id="as-curl", **code)

    asked = [a, b, model, pooling, cross]
    shown = [last, lesson, answer, three, map_note, word_map, tokens, link, as_json, as_python, as_curl]
    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    open_tab = gr.State(False)

    def run(
        a: str,
        b: str,
        model: str,
        pooling: str,
        cross: str | None,
        drawn: examples.GoldPair | None,
        request: gr.Request,
    ) -> tuple[Any, ...]:
        return _answer(services, View(a, b, model, pooling, cross, _base(request)), drawn)

    def left_out(last: Comparison | None) -> str:
        return _left_out(services, last)

    def follow(last: Comparison | None, is_open: bool) -> Any:
        return left_out(last) if is_open else gr.skip()

    # change, not input: a paste fires no input event. A burst of keys is answered by its last state.
    triggers = [a.change, b.change, a.submit, b.submit, model.change, pooling.change, cross.change]
    answered = gr.on(triggers, run, [*asked, drawn], shown, trigger_mode="always_last", concurrency_limit=4, **quiet)
    opened = gr.context.Context.root_block.load(_from_link, None, asked, queue=False, **quiet)
    for event in (answered, opened.then(run, [*asked, drawn], shown, **quiet)):
        event.then(None, asked, None, js=REPLACE_URL, trigger_mode="always_last")
        event.then(follow, [last, open_tab], what_if, trigger_mode="always_last", **quiet)
    what_if_tab.select(lambda last: (True, left_out(last)), last, [open_tab, what_if], api_visibility="private")
    copy_link.click(None, None, None, js=COPY_LINK)
    for chip, pair in zip(chips, examples.pairs(), strict=True):
        chip.click(lambda pair=pair: (pair.a, pair.b), None, [a, b], queue=False, **quiet)
    random_pair.click(lambda: _draw(services), None, [a, b, drawn], **quiet)


class View(NamedTuple):
    """What the page is asked to show."""

    a: str
    b: str
    model: str
    pooling: str
    cross: str | None
    base: str  # the address of the app


def _answer(services: Services, view: View, drawn: examples.GoldPair | None) -> tuple[Any, ...]:
    """Everything the page shows of a pair, or one sentence about what is wrong with it."""
    gold = drawn.score if drawn and (drawn.a, drawn.b) == (view.a, view.b) else None
    lesson = _lesson(examples.lesson_of(view.a, view.b) if gold is None else GOLD_LESSON)
    trouble, cross = "", view.cross
    try:
        services.models.cross_encoder_or_none(cross)
    except InputError as error:  # the cosine is worth showing without it
        trouble, cross = error_message(error), None
    try:
        found = compare_by_name(services.models, view.a, view.b, view.model, view.pooling, cross)
    except InputError as error:
        return (None, "", error_message(error), "", "", gr.skip(), "", *(gr.skip() for _ in range(4)))
    home = services.settings.home
    curves = {name: calibration.load_calibration(found.model, name, home) for name in found.by_pooling}
    if curves[found.pooling] is None:
        services.calibrate_later(found.model, found.pooling)
    exact = found.attribution
    return (
        found,
        lesson,
        f"{views.result(found, curves[found.pooling], gold)}{trouble}",
        views.poolings(found, curves),
        word_map_note(exact.cosine if exact else None),
        figures.word_map(exact.words_a, exact.words_b, exact.matrix) if exact else None,
        views.tokens(found.a, found.b),
        views.link(view.base, **{key: getattr(view, key) for key in VIEW}),
        json.dumps(found.to_json(), ensure_ascii=False, indent=1),
        views.as_python(*view[:5]),
        views.as_curl(view.base, *view[:5]),
    )


def _left_out(services: Services, last: Comparison | None) -> str:
    if last is None:
        return '<p class="note">Type two sentences first.</p>'
    encoder = services.models.encoder(last.model, last.pooling)
    crosser = services.models.cross_encoder_or_none(last.cross_encoder)
    return views.left_out(leave_one_out(encoder, crosser, last), last)


def _draw(services: Services) -> tuple[str, str, examples.GoldPair]:
    drawn = examples.random_stsb_pair(services.settings.home)
    return drawn.a, drawn.b, drawn


def _from_link(request: gr.Request) -> tuple[Any, ...]:
    """The view that the address asks for; what it leaves out, or gets wrong, keeps its default."""
    asked = dict(request.query_params)
    if asked.get("pooling") not in views.POOLING_NAMES:
        asked.pop("pooling", None)
    return tuple(asked.get(key) or gr.skip() for key in VIEW)


def _tab_of_link(request: gr.Request) -> Any:
    """/?tab=many opens the second tab."""
    return gr.Tabs(selected="many") if request.query_params.get("tab") == "many" else gr.skip()


def _lesson(text: str) -> str:
    return f'<p class="note">{text}</p>'


def _base(request: gr.Request) -> str:
    host = request.headers.get("host", f"127.0.0.1:{7860}")
    return f"{request.url.scheme}://{host}"
