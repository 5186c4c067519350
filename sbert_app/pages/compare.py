"""The front page: two sentences, or a few hundred, and what the models make of them."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, NamedTuple

import gradio as gr

from sbert_app import calibration, examples, figures
from sbert_app.comparison import Comparison, compare_by_name, leave_one_out
from sbert_app.pages import compare_many
from sbert_app.pages import compare_views as views
from sbert_app.pages.choices import cross_encoder_picker, model_picker, pooling_picker
from sbert_app.services import Services
from training.errors import InputError

FIRST = examples.pairs()[1]  # the opposite pair: the page opens with something to think about
VIEW = ("a", "b", "model", "pooling", "cross")  # the query parameters of a link
REPLACE_URL = """(a, b, model, pooling, cross) => {
  const view = new URLSearchParams({a, b, model: model || "", pooling: pooling || "", cross: cross || ""});
  window.history.replaceState(null, "", "?" + view.toString());
}"""
COPY_LINK = """() => { navigator.clipboard.writeText(window.location.href); }"""


def build(services: Services) -> None:
    """Lay the page out inside the open Blocks."""
    gr.HTML('<h1 class="title">SBERT Lab</h1><p class="tagline">How similar are two sentences, and why?</p>')
    with gr.Tabs():
        with gr.Tab("Two sentences", id="two"):
            _two_sentences(services)
        with gr.Tab("Many sentences", id="many") as many:
            compare_many.build(services, many)


def _two_sentences(services: Services) -> None:
    with gr.Row(equal_height=True):
        a = gr.Textbox(FIRST.a, label="First sentence", lines=2, max_lines=8, elem_id="sentence-a", min_width=280)
        b = gr.Textbox(FIRST.b, label="Second sentence", lines=2, max_lines=8, elem_id="sentence-b", min_width=280)
    with gr.Row(elem_classes="chips"):
        chips = [gr.Button(pair.name, size="sm", elem_classes="chip") for pair in examples.pairs()]
        random_pair = gr.Button("a random STSb pair", size="sm", elem_classes="chip", elem_id="random-pair")
    lesson = gr.HTML(_lesson(FIRST.lesson), elem_id="lesson")
    with gr.Row():
        model, pooling, cross = model_picker(), pooling_picker(), cross_encoder_picker()
    gold = gr.State(None)
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
            as_json = gr.Code(label="JSON", language="json", wrap_lines=True, max_lines=18, elem_id="as-json")
            as_python = gr.Code(label="Python", language="python", wrap_lines=True, max_lines=18, elem_id="as-python")
            as_curl = gr.Code(label="curl", language="shell", wrap_lines=True, max_lines=18, elem_id="as-curl")

    asked = [a, b, model, pooling, cross]
    shown = [last, answer, three, map_note, word_map, tokens, link, as_json, as_python, as_curl]
    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}

    def run(
        a: str, b: str, model: str, pooling: str, cross: str | None, gold: float | None, request: gr.Request
    ) -> tuple[Any, ...]:
        return _answer(services, View(a, b, model, pooling, cross, _base(request)), gold)

    left_out = partial(_left_out, services)
    open_tab = gr.State(False)

    def follow(event: Any) -> None:
        """After each answer: the address shows the view, and an open what-if tab follows."""
        event.then(None, asked, None, js=REPLACE_URL).then(
            lambda last, is_open: left_out(last) if is_open else gr.skip(), [last, open_tab], what_if, **quiet
        )

    gr.on([a.input, b.input], lambda: (None, ""), None, [gold, lesson], queue=False, **quiet)
    follow(
        gr.on(
            [a.input, b.input, a.submit, b.submit, model.change, pooling.change, cross.change],
            run,
            [*asked, gold],
            shown,
            trigger_mode="always_last",
            concurrency_limit=4,
            **quiet,
        )
    )
    for chip, pair in zip(chips, examples.pairs(), strict=True):
        chosen = chip.click(
            lambda pair=pair: (pair.a, pair.b, None, _lesson(pair.lesson)),
            None,
            [a, b, gold, lesson],
            queue=False,
            **quiet,
        )
        follow(chosen.then(run, [*asked, gold], shown, **quiet))
    drawn = random_pair.click(partial(_random_pair, services), None, [a, b, gold, lesson], **quiet)
    follow(drawn.then(run, [*asked, gold], shown, **quiet))
    copy_link.click(None, None, None, js=COPY_LINK)
    what_if_tab.select(lambda last: (True, left_out(last)), last, [open_tab, what_if], api_visibility="private")
    opened = gr.context.Context.root_block.load(_from_link, None, [*asked, lesson], queue=False, **quiet)
    opened.then(run, [*asked, gold], shown, **quiet)


class View(NamedTuple):
    """What the page is asked to show."""

    a: str
    b: str
    model: str
    pooling: str
    cross: str | None
    base: str  # the address of the app


def _answer(services: Services, view: View, gold: float | None) -> tuple[Any, ...]:
    """Everything the page shows of a pair, or one sentence about what is wrong with it."""
    trouble, cross = "", view.cross
    try:
        services.shelf.cross_encoder_or_none(cross)
    except InputError as error:  # the cosine is worth showing without it
        trouble, cross = views.problem(str(error)), None
    try:
        found = compare_by_name(services.shelf, view.a, view.b, view.model, view.pooling, cross)
    except InputError as error:
        return (None, views.problem(str(error)), "", "", gr.skip(), "", *(gr.skip() for _ in range(4)))
    home = services.settings.home
    curves = {name: calibration.known(found.model, name, home) for name in found.by_pooling}
    if curves[found.pooling] is None:
        services.calibrate_later(found.model, found.pooling)
    exact = found.attribution
    return (
        found,
        views.result(found, curves[found.pooling], gold) + trouble,
        views.poolings(found, curves),
        views.map_note(exact.cosine if exact else None),
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
    encoder = services.shelf.encoder(last.model, last.pooling)
    crosser = services.shelf.cross_encoder_or_none(last.cross_encoder)
    return views.left_out(leave_one_out(encoder, crosser, last), last)


def _random_pair(services: Services) -> tuple[str, str, float, str]:
    a, b, gold = examples.random_stsb_pair(services.settings.home)
    return a, b, gold, _lesson("A pair of STSb dev. Guess its score before you look: the annotators' stands beside.")


def _from_link(request: gr.Request) -> tuple[Any, ...]:
    """The view that the address asks for; what it leaves out keeps its default."""
    asked = dict(request.query_params)
    if not asked:
        return tuple(gr.skip() for _ in range(6))
    known = [asked[key] if key in asked else gr.skip() for key in VIEW]
    if asked.get("pooling") not in (None, *views.POOLING_NAMES):
        known[3] = gr.skip()
    if asked.get("cross") == "":
        known[4] = "none"
    return (*known, "")


def _lesson(text: str) -> str:
    return f'<p class="note">{text}</p>'


def _base(request: gr.Request) -> str:
    host = request.headers.get("host", f"127.0.0.1:{7860}")
    return f"{request.url.scheme}://{host}"
