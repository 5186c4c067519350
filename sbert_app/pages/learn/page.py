"""The Learn page: seven lessons, one idea each, measured while the user reads.

``/learn?lesson=4`` opens the fourth; without it, the last lesson that this browser had open. A lesson counts as done
once its answer was opened; the browser keeps that, too. A lesson is measured when it is first opened and whenever one
of its controls changes; nothing is computed for lessons that are not open.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from sbert_app.pages.components import messages
from sbert_app.pages.components.events import PRIVATE, UNQUEUED
from sbert_app.pages.learn import views
from sbert_app.pages.learn.demos import DEMOS, Demo
from sbert_app.services.container import Services
from sbert_app.services.lessons import sample
from sbert_app.services.lessons.text import Lesson, lesson_number, lessons
from training.errors import InputError, UserFacingError

TAGLINE = "Seven ideas behind sentence embeddings, five minutes each, measured on your machine while you read."

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
  window.history.replaceState(null, "", window.location.pathname + "?lesson=" + n);
  document.getElementById("go-" + n)?.scrollIntoView({inline: "center", block: "nearest"});
}"""
SCROLL_TO_TOP = """() => window.scrollTo({top: 0, behavior: "smooth"})"""
COPY_LINK = """() => { navigator.clipboard.writeText(window.location.href); }"""


def build(services: Services) -> None:
    """Build the page inside the open Blocks."""
    gr.HTML(messages.heading("Learn", TAGLINE))
    requested = gr.Textbox(visible=False)  # the lesson that the browser's address or storage asks for
    current = gr.State(0)
    with gr.Row(elem_classes="chips rail", elem_id="rail"):
        chips = [
            gr.Button(f"{each.number} {each.short}", size="sm", elem_classes="chip", elem_id=f"go-{each.number}")
            for each in lessons()
        ]
    views_of_lessons = [_build_lesson(services, lesson) for lesson in lessons()]
    with gr.Row(elem_classes="actions turn"):
        previous = gr.Button("← Previous", elem_id="previous")
        copy = gr.Button("Copy a link to this lesson", elem_id="copy-lesson")
        following = gr.Button("Next →", variant="primary", elem_id="next")
    copy.click(None, None, None, js=COPY_LINK)
    navigation = _Navigation(requested, current, chips, previous, following)
    _wire(services, views_of_lessons, navigation)


@dataclass(frozen=True)
class _LessonView:
    """The components of one lesson."""

    lesson: Lesson
    demo: Demo
    outputs: list[Any]  # figure, result, link to another page
    column: gr.Column

    @property
    def result(self) -> gr.HTML:
        return self.outputs[1]


@dataclass(frozen=True)
class _Navigation:
    """The components that choose a lesson."""

    requested: gr.Textbox
    current: gr.State
    chips: list[gr.Button]
    previous: gr.Button
    following: gr.Button


def _build_lesson(services: Services, lesson: Lesson) -> _LessonView:
    with gr.Column(visible=False, elem_id=f"lesson-{lesson.number}", elem_classes="lesson-page") as column:
        with gr.Row():
            with gr.Column(scale=5, min_width=320):
                gr.HTML(views.lesson_text(lesson, len(lessons())))
            with gr.Column(scale=7, min_width=320, elem_classes="demo"):
                demo = DEMOS[lesson.key](services)
                figure = gr.Plot(show_label=False, visible=False, elem_id=f"figure-{lesson.number}")
                result = gr.HTML(views.measuring(), elem_id=f"result-{lesson.number}")
        gr.HTML(views.question(lesson))
        link = gr.HTML(views.page_link(lesson), elem_id=f"page-link-{lesson.number}")
    return _LessonView(lesson, demo, [figure, result, link], column)


def _wire(services: Services, views_of_lessons: Sequence[_LessonView], navigation: _Navigation) -> None:
    current = navigation.current
    shown = [
        *(current, *(each.column for each in views_of_lessons), *navigation.chips),
        *(navigation.previous, navigation.following),
    ]
    controls = [control for each in views_of_lessons for control in each.demo.controls]
    outputs = [component for each in views_of_lessons for component in each.outputs]

    def measure_after(event: Any) -> Any:
        remembered = event.then(None, None, None, js=REMEMBER_LESSON)
        return remembered.then(partial(_measure_current, views_of_lessons), [current, *controls], outputs, **PRIVATE)

    root = gr.context.Context.root_block
    opened = root.load(_show_requested, navigation.requested, shown, js=REQUESTED_LESSON, **UNQUEUED)
    measure_after(opened).then(partial(_encode_in_background, services), None, None, **PRIVATE)
    for number, chip in enumerate(navigation.chips, start=1):
        measure_after(chip.click(partial(_show_lesson, number), None, shown, **UNQUEUED))
    for button, step in ((navigation.previous, -1), (navigation.following, 1)):
        turned = button.click(lambda number, step=step: _show_lesson(number + step), current, shown, **UNQUEUED)
        measure_after(turned.then(None, None, None, js=SCROLL_TO_TOP))
    for each in views_of_lessons:
        gr.on(
            each.demo.triggers,
            partial(_measure, each),
            each.demo.controls,
            each.outputs,
            trigger_mode="always_last",
            show_progress="minimal",
            show_progress_on=each.result,
            concurrency_limit=2,
            api_visibility="private",
        )


def _show_requested(requested: str) -> list[Any]:
    return _show_lesson(lesson_number(requested))


def _show_lesson(number: int) -> list[Any]:
    """Updates that show one lesson and highlight its button."""
    count = len(lessons())
    number = min(max(number, 1), count)
    return [
        number,
        *(gr.update(visible=each == number) for each in range(1, count + 1)),
        *(gr.update(variant="primary" if each == number else "secondary") for each in range(1, count + 1)),
        gr.update(interactive=number > 1),
        gr.update(interactive=number < count),
    ]


def _measure_current(views_of_lessons: Sequence[_LessonView], current: int, *values: Any) -> list[Any]:
    """Measure for the open lesson with the values of its controls; leave the others as they are."""
    updates: list[Any] = []
    start = 0
    for each in views_of_lessons:
        end = start + len(each.demo.controls)
        is_open = each.lesson.number == current
        updates += _measure(each, *values[start:end]) if is_open else [gr.skip()] * len(each.outputs)
        start = end
    return updates


def _measure(view: _LessonView, *values: Any) -> list[Any]:
    """Updates of figure, result and link; or of the result alone, with the message of a user error."""
    try:
        measurement = view.demo.measure(*values)
    except UserFacingError as error:
        return [gr.update(visible=False), messages.error_message(error), gr.skip()]
    link = views.page_link(view.lesson, measurement.href)
    return [gr.update(value=measurement.figure, visible=True), measurement.html, link]


def _encode_in_background(services: Services) -> None:
    """Start a thread that encodes what the lessons share, while the first one is read."""
    threading.Thread(target=_encode_samples, args=(services,), name="lessons", daemon=True).start()


def _encode_samples(services: Services) -> None:
    """Encode what the lessons share, once. A lesson whose data or model is missing reports that itself."""
    try:
        for source in sample.SENTENCES:
            sample.encode_corpus(services.models, services.settings.home, source)
    except InputError:
        return
