"""The Learn page: seven lessons, one idea each, measured while you read.

``/learn?lesson=4`` opens the fourth; without it, the one that was open last in this browser. A lesson counts as done
when its answer was opened; that, too, the browser keeps. A lesson is measured when it is first opened and again
whenever one of its controls changes; nothing is computed for a lesson that nobody sees.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import gradio as gr

from sbert_app.pages.components.messages import error_message
from sbert_app.pages.learn import views
from sbert_app.pages.learn.demos import DEMOS, Demo
from sbert_app.services.container import Services
from sbert_app.services.lessons import sample
from sbert_app.services.lessons.text import Lesson, lesson_number, lessons
from training.errors import InputError

QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}

# The lesson that the address asks for, else the last one; and from then on, mark those whose answer was opened.
ASKED = """() => {
  const key = "sbert-lab-lessons", kept = () => JSON.parse(localStorage.getItem(key) || '{"done": []}');
  const mark = () => kept().done.forEach((n) => document.getElementById("go-" + n)?.setAttribute("data-done", ""));
  document.addEventListener("toggle", (event) => {
    const n = event.target.dataset?.lesson;
    if (!n || !event.target.open) return;
    localStorage.setItem(key, JSON.stringify({...kept(), done: [...new Set([...kept().done, n])]}));
    mark();
  }, true);
  mark();
  return new URLSearchParams(window.location.search).get("lesson") || String(kept().last || 1);
}"""
REMEMBER = """() => {
  const n = document.querySelector(".lesson-page")?.id.split("-").pop();
  if (!n) return;
  const key = "sbert-lab-lessons", kept = JSON.parse(localStorage.getItem(key) || '{"done": []}');
  localStorage.setItem(key, JSON.stringify({...kept, last: n}));
  window.history.replaceState(null, "", window.location.pathname + "?lesson=" + n);
  document.getElementById("go-" + n)?.scrollIntoView({inline: "center", block: "nearest"});
}"""
TO_THE_TOP = """() => window.scrollTo({top: 0, behavior: "smooth"})"""
COPY_LINK = """() => { navigator.clipboard.writeText(window.location.href); }"""


def build(services: Services) -> None:
    """Lay the page out inside the open Blocks."""
    gr.HTML(
        '<h1 class="title">Learn</h1><p class="tagline">Seven ideas behind sentence vectors, five minutes each, '
        "measured on your machine while you read.</p>"
    )
    asked = gr.Textbox(visible=False)  # what the browser's address or memory says
    current = gr.State(0)
    with gr.Row(elem_classes="chips rail", elem_id="rail"):
        chips = [
            gr.Button(f"{each.number} {each.short}", size="sm", elem_classes="chip", elem_id=f"go-{each.number}")
            for each in lessons()
        ]
    laid = [_lay_out(services, lesson) for lesson in lessons()]
    with gr.Row(elem_classes="actions turn"):
        previous = gr.Button("← Previous", elem_id="previous")
        copy = gr.Button("Copy a link to this lesson", elem_id="copy-lesson")
        following = gr.Button("Next →", variant="primary", elem_id="next")
    copy.click(None, None, None, js=COPY_LINK)
    _wire(services, laid, chips, previous, following, current, asked)


class _Laid:
    """The components of one lesson."""

    def __init__(self, lesson: Lesson, bench: Demo, shown: list[Any], page: gr.Column) -> None:
        self.lesson, self.bench, self.shown, self.page = lesson, bench, shown, page


def _lay_out(services: Services, lesson: Lesson) -> _Laid:
    with gr.Column(visible=False, elem_id=f"lesson-{lesson.number}", elem_classes="lesson-page") as page:
        with gr.Row():
            with gr.Column(scale=5, min_width=320):
                gr.HTML(views.opening(lesson, len(lessons())))
            with gr.Column(scale=7, min_width=320, elem_classes="bench"):
                bench = DEMOS[lesson.key](services)
                figure = gr.Plot(show_label=False, visible=False, elem_id=f"figure-{lesson.number}")
                told = gr.HTML(views.WAITING, elem_id=f"told-{lesson.number}")
        gr.HTML(views.question(lesson))
        door = gr.HTML(views.door(lesson), elem_id=f"door-{lesson.number}")
    return _Laid(lesson, bench, [figure, told, door], page)


def _wire(
    services: Services,
    laid: list[_Laid],
    chips: list[gr.Button],
    previous: gr.Button,
    following: gr.Button,
    current: gr.State,
    asked: gr.Textbox,
) -> None:
    turned = [current, *(one.page for one in laid), *chips, previous, following]
    controls = [control for one in laid for control in one.bench.controls]
    shown = [component for one in laid for component in one.shown]
    opening = partial(_measure_opened, laid)

    def follow(event: Any) -> Any:
        return event.then(None, None, None, js=REMEMBER).then(opening, [current, *controls], shown, **QUIET)

    root = gr.context.Context.root_block
    opened = root.load(lambda asked: _turn_to(lesson_number(asked)), asked, turned, js=ASKED, queue=False, **QUIET)
    follow(opened).then(partial(_prepare_later, services), None, None, **QUIET)
    for number, chip in enumerate(chips, start=1):
        follow(chip.click(partial(_turn_to, number), None, turned, queue=False, **QUIET))
    for button, step in ((previous, -1), (following, 1)):
        turn = button.click(lambda at, step=step: _turn_to(at + step), current, turned, queue=False, **QUIET)
        follow(turn.then(None, None, None, js=TO_THE_TOP))
    for one in laid:
        gr.on(
            one.bench.triggers,
            partial(_measure, one),
            one.bench.controls,
            one.shown,
            trigger_mode="always_last",
            show_progress="minimal",
            show_progress_on=one.shown[1],
            concurrency_limit=2,
            api_visibility="private",
        )


def _turn_to(number: int) -> list[Any]:
    """Show one lesson, and mark its button."""
    count = len(lessons())
    number = min(max(number, 1), count)
    return [
        number,
        *(gr.update(visible=at == number) for at in range(1, count + 1)),
        *(gr.update(variant="primary" if at == number else "secondary") for at in range(1, count + 1)),
        gr.update(interactive=number > 1),
        gr.update(interactive=number < count),
    ]


def _measure_opened(laid: list[_Laid], current: int, *values: Any) -> list[Any]:
    """Measure for the open lesson with its controls, leave the others as they are."""
    shown: list[Any] = []
    start = 0
    for one in laid:
        end = start + len(one.bench.controls)
        is_open = one.lesson.number == current
        shown += _measure(one, *values[start:end]) if is_open else [gr.skip()] * len(one.shown)
        start = end
    return shown


def _measure(one: _Laid, *values: Any) -> list[Any]:
    """Figure, words, link; or one sentence about what is wrong."""
    try:
        answer = one.bench.measure(*values)
    except InputError as error:
        return [gr.update(visible=False), error_message(error), gr.skip()]
    return [gr.update(value=answer.figure, visible=True), answer.told, views.door(one.lesson, answer.href)]


def _prepare_later(services: Services) -> None:
    """In a thread, so that nobody waits for it who leaves the page."""
    threading.Thread(target=_prepare, args=(services,), name="lessons", daemon=True).start()


def _prepare(services: Services) -> None:
    """Encode what the lessons share, once, while the first one is read. What cannot be had, its lesson will say."""
    shelf, home = services.models, services.settings.home
    try:
        for source in sample.SENTENCES:
            sample.encode_corpus(shelf, home, source)
    except InputError:
        return
