"""The Learn page: one idea a lesson, measured while the user reads.

``/learn?lesson=4`` opens the fourth; without it, the last lesson that this browser had open. A lesson counts as done
once its answer was opened; the browser keeps that, too. A lesson is measured when it is first opened and whenever one
of its controls changes; nothing is computed for lessons that are not open. A class (`teacher.ClassLink`) is part of
the address: it fixes model, data, seed and the lessons that are shown.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr
from markupsafe import Markup

from sbert_app.pages.components import messages
from sbert_app.pages.components.events import PRIVATE, UNQUEUED, Asked, ask
from sbert_app.pages.components.templates import macro, render
from sbert_app.pages.learn import samples, teacher
from sbert_app.pages.learn.lesson import (
    STANDARD,
    Context,
    Demo,
    Lesson,
    Measurement,
    Setup,
    how_many,
    lesson_number,
    lessons,
)
from sbert_app.pages.learn.teacher import ClassLink, read_class
from sbert_app.services.container import Services
from training.errors import InputError, UserFacingError

TAGLINE = "ideas behind sentence embeddings, five minutes each, measured on your machine while you read."

# Returns the lesson that the address asks for, else the last one. Marks the lessons whose answers were opened.
REQUESTED_LESSON = """() => {
  const key = "sbert-lab-lessons", stored = () => JSON.parse(localStorage.getItem(key) || '{"done": []}');
  const mark = () => stored().done.forEach((n) => document.getElementById("go-" + n)?.setAttribute("data-done", ""));
  document.addEventListener("toggle", (event) => {
    const n = event.target.dataset?.lesson;
    if (!n || !event.target.open) return;
    localStorage.setItem(key, JSON.stringify({...stored(), done: [...new Set([...stored().done, n])]}));
    mark();
  }, true);
  mark();
  return new URLSearchParams(window.location.search).get("lesson") || String(stored().last || 1);
}"""
# Keeps the open lesson in the browser's storage and in the address.
REMEMBER_LESSON = """() => {
  const n = document.querySelector(".lesson-page")?.id.split("-").pop();
  if (!n) return;
  const key = "sbert-lab-lessons", stored = JSON.parse(localStorage.getItem(key) || '{"done": []}');
  localStorage.setItem(key, JSON.stringify({...stored, last: n}));
  const url = new URL(window.location.href);
  url.searchParams.set("lesson", n);  // beside the parameters of a class
  window.history.replaceState(null, "", url);
  document.getElementById("go-" + n)?.scrollIntoView({inline: "center", block: "nearest"});
}"""
SCROLL_TO_TOP = """() => window.scrollTo({top: 0, behavior: "smooth"})"""
COPY_LINK = """() => { navigator.clipboard.writeText(window.location.href); }"""


def build(services: Services) -> None:
    """Build the page inside the open Blocks."""
    gr.HTML(messages.heading("Learn", f"{how_many()} {TAGLINE}"))
    banner = gr.HTML(visible=False, elem_id="class-banner")
    requested = gr.Textbox(visible=False)  # the lesson that the browser's address or storage asks for
    current, class_link = gr.State(0), gr.State(ClassLink())
    with gr.Row(elem_classes="chips rail", elem_id="rail"):
        chips = [
            gr.Button(f"{each.number} {each.short}", size="sm", elem_classes="chip", elem_id=f"go-{each.number}")
            for each in lessons()
        ]
    views = [_build_lesson(services, lesson) for lesson in lessons()]
    with gr.Row(elem_classes="actions turn"):
        previous = gr.Button("← Previous", elem_id="previous")
        copy = gr.Button("Copy a link to this lesson", elem_id="copy-lesson")
        following = gr.Button("Next →", variant="primary", elem_id="next")
    copy.click(None, None, None, js=COPY_LINK)
    navigation = _Navigation(requested, class_link, banner, current, chips, previous, following)
    _wire(services, views, navigation)
    teacher.build(services)


@dataclass(frozen=True)
class _LessonView:
    """The components of one lesson."""

    services: Services
    lesson: Lesson
    demo: Demo
    outputs: list[Any]  # figure, result, link to another page
    column: gr.Column
    reset: gr.Button

    @property
    def result(self) -> gr.HTML:
        return self.outputs[1]

    def measure(self, setup: Setup, *values: Any) -> Measurement:
        """Measure its demo with the values of its controls."""
        return self.demo.measure(Context(self.services.models, self.services.jobs.store, setup), *values)


@dataclass(frozen=True)
class _Navigation:
    """The components that choose a lesson."""

    requested: gr.Textbox
    class_link: gr.State
    banner: gr.HTML
    current: gr.State
    chips: list[gr.Button]
    previous: gr.Button
    following: gr.Button


def _build_lesson(services: Services, lesson: Lesson) -> _LessonView:
    with gr.Column(visible=False, elem_id=f"lesson-{lesson.number}", elem_classes="lesson-page") as column:
        with gr.Row():
            with gr.Column(scale=5, min_width=320):
                gr.HTML(render("learn/templates/lesson.html", lesson=lesson, count=len(lessons())))
            with gr.Column(scale=7, min_width=320, elem_classes="demo"):
                demo = lesson.build()
                reset = gr.Button(
                    "Reset to the lesson’s settings", size="sm", elem_id=f"reset-{lesson.number}", elem_classes="reset"
                )
                figure = gr.Plot(show_label=False, visible=False, elem_id=f"figure-{lesson.number}")
                result = gr.HTML(macro("learn/measuring")(), elem_id=f"result-{lesson.number}")
        gr.HTML(macro("learn/question")(lesson))
        link = gr.HTML(_page_link(lesson), elem_id=f"page-link-{lesson.number}")
    return _LessonView(services, lesson, demo, [figure, result, link], column, reset)


def _page_link(lesson: Lesson, href: str | None = None) -> Markup:
    """The link to the page that the lesson is about, with the settings of the lesson."""
    return macro("learn/page_link")(href or lesson.href, lesson.opens)


def _wire(services: Services, views: Sequence[_LessonView], navigation: _Navigation) -> None:
    current, class_link = navigation.current, navigation.class_link
    shown = [
        *(current, *(each.column for each in views), *navigation.chips),
        *(navigation.previous, navigation.following),
    ]
    controls = [control for each in views for control in each.demo.controls]
    fields = [control for control in controls if not isinstance(control, gr.State)]
    asked = gr.State({})  # for each lesson what was asked last
    outputs = [component for each in views for component in each.outputs]

    def measure_after(event: Any) -> Any:
        remembered = event.then(None, None, None, js=REMEMBER_LESSON)
        inputs = [asked, class_link, current, *controls]
        return remembered.then(partial(_measure_current, views), inputs, outputs, **PRIVATE)

    def open_link(requested: str, request: gr.Request) -> list[Any]:
        return _open(services, views, requested, dict(request.query_params))

    root = gr.context.Context.root_block
    opened = root.load(
        open_link,
        navigation.requested,
        [class_link, navigation.banner, *shown, *fields],
        js=REQUESTED_LESSON,
        **UNQUEUED,
    )
    measure_after(opened).then(partial(_encode_in_background, services), class_link, None, **PRIVATE)
    for number, chip in enumerate(navigation.chips, start=1):
        measure_after(chip.click(partial(_show_lesson, number), class_link, shown, **UNQUEUED))
    for button, step in ((navigation.previous, -1), (navigation.following, 1)):
        turned = button.click(partial(_turn, step), [class_link, current], shown, **UNQUEUED)
        measure_after(turned.then(None, None, None, js=SCROLL_TO_TOP))
    for each in views:
        measure = partial(_measure, each), [asked, class_link, *each.demo.controls], each.outputs
        gr.on(
            each.demo.events,
            *measure,
            trigger_mode="always_last",
            show_progress="minimal",
            show_progress_on=each.result,
            concurrency_limit=2,
            api_visibility="private",
        )
        each.reset.click(partial(_initial, each), class_link, each.demo.controls, **UNQUEUED).then(*measure, **PRIVATE)


def _open(services: Services, views: Sequence[_LessonView], requested: str, parameters: dict[str, str]) -> list[Any]:
    """The class and the lesson that the address asks for. A link that is wrong opens the lessons as they are."""
    try:
        class_link = read_class(parameters, services.access)
        banner = class_link.banner()
    except UserFacingError as error:
        class_link, banner = ClassLink(), messages.error_message(error)
    number = lesson_number(requested)
    number = number if number in class_link.numbers else class_link.numbers[0]
    return [
        class_link,
        gr.update(value=banner, visible=bool(banner)),
        *_show_lesson(number, class_link),
        *(value for each in views for value in _changed(each, class_link)),
    ]


def _changed(view: _LessonView, class_link: ClassLink) -> list[Any]:
    """Updates of the fields for a class; what does not differ from the lesson's own is left alone."""
    own, values = view.demo.initial(STANDARD), view.demo.initial(class_link.setup)
    return [
        gr.skip() if value == before else value
        for control, value, before in zip(view.demo.controls, values, own, strict=True)
        if not isinstance(control, gr.State)
    ]


def _initial(view: _LessonView, class_link: ClassLink) -> Any:
    """The values that a lesson's controls begin with: one for a single control, as Gradio wants it, else a list."""
    values = view.demo.initial(class_link.setup)
    return values[0] if len(values) == 1 else values


def _turn(step: int, class_link: ClassLink, current: int) -> list[Any]:
    """The lesson before or after the open one, of those that are shown."""
    numbers = class_link.numbers
    at = numbers.index(current) + step if current in numbers else 0
    return _show_lesson(numbers[min(max(at, 0), len(numbers) - 1)], class_link)


def _show_lesson(number: int, class_link: ClassLink) -> list[Any]:
    """Updates that show one lesson and highlight its button, among those that are shown."""
    every, numbers = range(1, len(lessons()) + 1), class_link.numbers
    return [
        number,
        *(gr.update(visible=each == number) for each in every),
        *(gr.update(variant="primary" if each == number else "secondary", visible=each in numbers) for each in every),
        gr.update(interactive=number != numbers[0]),
        gr.update(interactive=number != numbers[-1]),
    ]


def _measure_current(
    views: Sequence[_LessonView],
    asked: Asked,
    class_link: ClassLink,
    current: int,
    *values: Any,
) -> list[Any]:
    """Measure for the open lesson with the values of its controls; leave the others as they are."""
    updates: list[Any] = []
    start = 0
    for each in views:
        end = start + len(each.demo.controls)
        is_open = each.lesson.number == current
        updates += _measure(each, asked, class_link, *values[start:end]) if is_open else _left(each)
        start = end
    return updates


def _measure(view: _LessonView, asked: Asked, class_link: ClassLink, *values: Any) -> list[Any]:
    """Updates of figure, result and link; or of the result alone, with the message of a user error.

    None if the visitor has asked for something else of this lesson meanwhile: the answer to that may be there already.
    """
    is_newest = ask(asked, view.lesson.number)
    try:
        measurement = view.measure(class_link.setup, *values)
    except UserFacingError as error:
        return [gr.update(visible=False), messages.error_message(error), gr.skip()] if is_newest() else _left(view)
    if not is_newest():
        return _left(view)
    link = _page_link(view.lesson, measurement.href)
    return [gr.update(value=measurement.figure, visible=True), measurement.html, link]


def _left(view: _LessonView) -> list[Any]:
    """What a lesson shows stays as it is."""
    return [gr.skip()] * len(view.outputs)


def _encode_in_background(services: Services, class_link: ClassLink) -> None:
    """Start a thread that encodes what the lessons share, while the first one is read."""
    work = (services, class_link.setup)
    threading.Thread(target=_encode_samples, args=work, name="lessons", daemon=True).start()


def _encode_samples(services: Services, setup: Setup) -> None:
    """Encode what the lessons share, once. A lesson whose data or model is missing reports that itself."""
    try:
        for source in samples.SENTENCES:
            samples.encode_corpus(Context(services.models, services.jobs.store, setup), source)
    except InputError:
        return
