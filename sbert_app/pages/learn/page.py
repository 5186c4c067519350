"""The Learn page: one idea a lesson, measured while the user reads.

``/learn?lesson=4`` opens the fourth lesson, ``/learn`` the last one that this browser had open. A
lesson counts as done once its answer was opened, which the browser stores too. A lesson is measured
when it is first opened and whenever one of its controls changes; lessons that are not open cost
nothing. A class (`teacher.ClassLink`) is part of the address: it fixes model, data, seed and the
selection of lessons.
"""

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr
from markupsafe import Markup

from sbert_app.pages.components import messages
from sbert_app.pages.components.address import keep, keep_touched, values_of
from sbert_app.pages.components.events import Questions, Update, event_options, on_open
from sbert_app.pages.components.measure_tab import MeasureTab, hidden, visible
from sbert_app.pages.components.report import Report, of_page, report_button
from sbert_app.pages.components.templates import macro, render
from sbert_app.pages.learn import samples, teacher
from sbert_app.pages.learn.lesson import Context, Demo, Lesson, chapters, lesson_number, lessons
from sbert_app.pages.learn.teacher import ClassLink, read_class
from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.container import Services
from training.errors import InputError, UserFacingError

TAGLINE = (
    "Ideas behind sentence embeddings, five minutes each, measured on your machine while you read."
)

# Keys of the state `questions`: the number of the lesson whose button was pressed last, and the
# question before a download that a link would begin.
LAST_LESSON = "last lesson"
DOWNLOAD_QUESTION = "download"
SCROLL_TO_TOP = """() => window.scrollTo({top: 0, behavior: "smooth"})"""
COPY_LINK = """() => { navigator.clipboard.writeText(window.location.href); }"""


def build(services: Services) -> None:
    _LearnPage(services).wire()
    teacher.build(services)


@dataclass(frozen=True)
class _LessonView:
    """A lesson on the page: its demo, and the components that show the measurement."""

    services: Services
    lesson: Lesson
    demo: Demo
    # The gr.Plot of the figure, and the gr.HTML of the result.
    outputs: list[Any]
    column: gr.Column
    reset: gr.Button
    # Shows the progress beside the button.
    tab: MeasureTab

    @property
    def fields(self) -> list[Any]:
        """The controls whose values are in the browser."""
        return [control for control in self.demo.controls if not isinstance(control, gr.State)]

    def measure(
        self, watch: Watch, questions: Questions, class_link: ClassLink, *values: Any
    ) -> Update:
        """The updates of figure and result, or the message of a user error in place of the result."""
        figure, result = self.outputs
        update: Update = {figure: hidden(), self.tab.status: ""}
        # The measurement waits for the button Download.
        if DOWNLOAD_QUESTION in questions:
            return {**update, result: questions[DOWNLOAD_QUESTION]}
        try:
            measurement = self.demo.measure(_context(self.services, class_link, watch), *values)
        except UserFacingError as error:
            return {**update, result: messages.error_message(error)}
        return {**update, figure: visible(measurement.figure), result: measurement.html}


class _LearnPage:
    """The components of the page and their event handlers.

    Attributes:
        chips: the button of each lesson.
        views: the components of each lesson.
        controls: the controls of all lessons.
        fields: the controls of all lessons whose values are in the browser.
        outputs: the figures and the results of all lessons.
    """

    def __init__(self, services: Services) -> None:
        self.services = services
        gr.HTML(messages.heading("Learn", TAGLINE))
        self.banner = gr.HTML(visible=False, elem_id="class-banner")
        self.download = gr.Button("Download", size="sm", visible=False, elem_id="start-download")
        # The lesson in the address or the storage of the browser.
        self.requested = gr.Textbox(visible=False)
        # The number of the open lesson, from 1; 0 until one is open.
        self.current = gr.State(0)
        self.class_link = gr.State(ClassLink())
        with gr.Row(elem_classes="rail", elem_id="rail"):
            buttons = {}
            for chapter, members in chapters().items():
                with gr.Column(elem_classes="chapter", min_width=0):
                    gr.HTML(macro("learn/chapter")(chapter))
                    with gr.Row(elem_classes="chips"):
                        for lesson in members:
                            buttons[lesson.number] = gr.Button(
                                f"{lesson.number} {lesson.short}",
                                size="sm",
                                elem_id=f"go-{lesson.number}",
                                elem_classes="chip",
                            )
            self.chips = [buttons[lesson.number] for lesson in lessons()]
        self.count = gr.HTML(messages.waiting("Opening the lesson …"), elem_id="lesson-count")
        self.views = [self._build_lesson(lesson) for lesson in lessons()]
        self.controls: list[Any] = []
        self.fields: list[Any] = []
        self.outputs: list[Any] = []
        for view in self.views:
            self.controls += view.demo.controls
            self.fields += view.fields
            self.outputs += view.outputs
        with gr.Row(elem_classes="actions turn"):
            # Enabled with the first lesson: a press before it would lead from nowhere.
            self.previous = gr.Button("← Previous", interactive=False, elem_id="previous")
            copy = gr.Button("Copy a link to this lesson", size="sm", elem_id="copy-lesson")
            report_button(
                services, self.report, [self.current, *self.outputs, *self.fields], "lesson"
            )
            self.following = gr.Button(
                "Next →", variant="primary", interactive=False, elem_id="next"
            )
        copy.click(None, None, None, js=COPY_LINK)

    def report(self, current: int, *values: Any) -> Report:
        """The report of the open lesson, without the answer to its question."""
        value_of = dict(zip([*self.outputs, *self.fields], values, strict=True))
        # Lessons are numbered from 1.
        view = self.views[current - 1]
        sections = {"Measured": view.outputs, "The lesson": [_text(view.lesson)]}
        # ``inputs`` are the components of this lesson, in the order in which ``make`` takes the values.
        make, inputs = of_page(view.lesson.title, sections, view.fields)
        return make(*(value_of[component] for component in inputs))

    def _build_lesson(self, lesson: Lesson) -> _LessonView:
        """Builds a lesson in a hidden column: its text and its question, and beside them the demo."""
        number = lesson.number
        with gr.Column(
            visible=False, elem_id=f"lesson-{number}", elem_classes="lesson-page"
        ) as column:
            with gr.Row():
                with gr.Column(scale=5, min_width=320):
                    gr.HTML(_text(lesson))
                    gr.HTML(macro("learn/question")(lesson))
                with gr.Column(scale=7, min_width=320, elem_classes="demo"):
                    demo = lesson.build()
                    with gr.Row(elem_classes="demo-progress"):
                        progress = gr.HTML(elem_id=f"progress-{number}")
                        reset = gr.Button(
                            "Reset to the lesson’s settings",
                            size="sm",
                            elem_id=f"reset-{number}",
                            elem_classes="reset",
                        )
                    figure = gr.Plot(show_label=False, visible=False, elem_id=f"figure-{number}")
                    waiting = messages.waiting("Measuring on this machine …")
                    result = gr.HTML(waiting, elem_id=f"result-{number}")
            gr.HTML(
                macro("learn/page_link")(lesson.href, lesson.opens), elem_id=f"page-link-{number}"
            )
        tab = MeasureTab(self.services, f"lesson {number}", progress)
        return _LessonView(self.services, lesson, demo, [figure, result], column, reset, tab)

    def wire(self) -> None:
        """Connects the components. Whenever a lesson is opened, it is measured."""
        current = self.current
        class_link = self.class_link
        columns = [view.column for view in self.views]
        navigation = [current, self.count, *columns, *self.chips, self.previous, self.following]
        # The lesson that a person has asked for, and the question before a download. The keys are
        # `LAST_LESSON` and `DOWNLOAD_QUESTION`. Handlers change this dictionary in place, so the
        # state is never an output.
        questions = gr.State({})

        def measure_open(
            request: gr.Request,
            questions: Questions,
            class_link: ClassLink,
            current: int,
            *values: Any,
        ) -> Iterator[Update]:
            """Measures the open lesson. ``values`` come from the controls of all lessons."""
            value_of = dict(zip(self.controls, values, strict=True))
            view = self.views[current - 1]
            # The values of the controls of the open lesson.
            own = [value_of[control] for control in view.demo.controls]
            # `view.measure` shows user errors itself, so there is nothing to clear after one.
            measure = view.tab.handler(view.measure, {})
            yield from measure(request, questions, class_link, *own)

        def measure_after(event: Any) -> Any:
            """Measures the open lesson after an event, and remembers the lesson in the browser."""
            remembered = event.then(None, None, None, js="() => window.rememberLesson()")
            # Four visitors can measure at once, so that a lesson that trains does not keep the others
            # waiting.
            inputs = [questions, class_link, current, *self.controls]
            outputs = [*self.outputs, *(view.tab.status for view in self.views)]
            return remembered.then(
                measure_open, inputs, outputs, concurrency_limit=4, **event_options()
            )

        def turn(step: int, class_link: ClassLink, current: int) -> list[Any]:
            """Opens the next lesson of the class (a ``step`` of 1), or the previous one (-1)."""
            numbers = class_link.numbers
            place = numbers.index(current) + step
            last = len(numbers) - 1
            return _show_lesson(numbers[min(max(place, 0), last)], class_link)

        def go(number: int, questions: Questions, class_link: ClassLink) -> list[Any]:
            questions[LAST_LESSON] = number
            return _show_lesson(number, class_link)

        # The second input is a state, whose value is on the server, so the browser sends null for
        # it.
        js = "() => [window.requestedLesson(), null]"
        opened = on_open().then(
            self.open,
            [self.requested, questions],
            [class_link, self.banner, self.download, *navigation, *self.fields],
            js=js,
            **event_options(queue=False),
        )
        opened = keep_touched(self.fields, opened)
        keep(self.fields, opened)
        measure_after(opened).then(
            self.encode_in_background, [questions, class_link], None, **event_options()
        )

        # The gr.HTML of the result of each lesson.
        results = [view.outputs[1] for view in self.views]

        def start_download(questions: Questions) -> list[Any]:
            # Without the question, the measurement that follows downloads the model and the data.
            questions.pop(DOWNLOAD_QUESTION, None)
            return [gr.Button(visible=False), *(messages.waiting("Downloading …") for _ in results)]

        measure_after(
            self.download.click(
                start_download, questions, [self.download, *results], **event_options(queue=False)
            )
        )
        for number, chip in enumerate(self.chips, start=1):
            measure_after(
                chip.click(
                    partial(go, number),
                    [questions, class_link],
                    navigation,
                    **event_options(queue=False),
                )
            )
        for button, step in ((self.previous, -1), (self.following, 1)):
            turned = button.click(
                partial(turn, step), [class_link, current], navigation, **event_options(queue=False)
            )
            measure_after(turned.then(None, None, None, js=SCROLL_TO_TOP))
        for view in self.views:
            measure = view.tab.handler(view.measure, {})
            inputs = [questions, class_link, *view.demo.controls]
            events = view.demo.triggers or [control.change for control in view.demo.controls]
            view.tab.on(list(events), measure, inputs, view.outputs)
            reset = view.reset.click(
                partial(_initial, view),
                class_link,
                view.demo.controls,
                **event_options(queue=False),
            )
            view.tab.on(reset.then, measure, inputs, view.outputs)

    def open(self, requested: str, questions: Questions, request: gr.Request) -> list[Any]:
        """Opens the class and the lesson in the address.

        If the button of a lesson was pressed while the page was opening, this lesson is opened.

        An invalid link opens the lessons without a class. A link does not start a download: the
        lessons wait for the button Download.
        """
        try:
            class_link = read_class(dict(request.query_params), self.services.access)
            banner = class_link.banner()
        except UserFacingError as error:
            class_link = ClassLink()
            banner = messages.error_message(error)
        pressed = questions.get(LAST_LESSON)
        # A press while the page was opening counts more than the link.
        number = pressed if isinstance(pressed, int) else lesson_number(requested)
        if number not in class_link.numbers:
            number = class_link.numbers[0]
        setup = class_link.setup
        fields: Update = {}
        models = [setup.model]
        for view in self.views:
            updates = _field_updates(view, class_link, request)
            model = updates.get(view.demo.model)
            # None if the demo has no such field, and ``gr.skip()`` if the field stays as it is.
            if isinstance(model, str):
                models.append(model)
            fields |= updates
        if missing := self.services.models.missing(models, setup.data):
            remedy = "Press Download to measure with it, or open Learn without this link."
            questions[DOWNLOAD_QUESTION] = messages.ask_first(missing, remedy)
        return [
            class_link,
            gr.update(value=banner, visible=bool(banner)),
            gr.Button(visible=bool(missing)),
            *_show_lesson(number, class_link),
            *fields.values(),
        ]

    def encode_in_background(self, questions: Questions, class_link: ClassLink) -> None:
        """Starts a thread that encodes the sentences of the lessons while the user reads the first one."""
        if DOWNLOAD_QUESTION in questions:
            return
        context = _context(self.services, class_link)

        def encode() -> None:
            # `encode_corpus` caches the vectors, and the lessons find them there. If data or a model is
            # missing, the lesson that needs it says so.
            with suppress(InputError):
                for source in (samples.EXAMPLES, samples.DATA):
                    samples.encode_corpus(context, source)

        threading.Thread(target=encode, name="lessons", daemon=True).start()


def _context(services: Services, class_link: ClassLink, watch: Watch = UNWATCHED) -> Context:
    return Context(services.models, services.jobs.store, class_link.setup, watch)


def _text(lesson: Lesson) -> Markup:
    return render("learn/templates/lesson.html", lesson=lesson)


def _field_updates(view: _LessonView, class_link: ClassLink, request: gr.Request) -> Update:
    """Returns an update for each field: the value in the address, or else the value of the class.

    A field without either keeps the lesson's value.
    """
    # The fields are among the controls of the demo.
    class_values = dict(zip(view.demo.controls, view.demo.initial(class_link.setup), strict=True))
    updates = dict(zip(view.fields, values_of(view.fields, request), strict=True))
    for field, value in updates.items():
        # The update of a field that the address does not name is ``gr.skip()``.
        is_in_address = value != gr.skip()
        # The field was built with the lesson's value, so an equal value needs no update.
        if not is_in_address and class_values[field] != field.value:
            updates[field] = class_values[field]
    return updates


def _initial(view: _LessonView, class_link: ClassLink) -> Any:
    """The first values of the controls of a lesson: a list, or the value itself for a single control, as in Gradio."""
    values = view.demo.initial(class_link.setup)
    return values[0] if len(values) == 1 else values


def _show_lesson(number: int, class_link: ClassLink) -> list[Any]:
    """Shows a lesson, and highlights its button among the buttons of the class.

    Returns the updates of ``navigation`` in `wire`.
    """
    all_numbers = range(1, len(lessons()) + 1)
    numbers = class_link.numbers
    chips = []
    for other in all_numbers:
        variant = "primary" if other == number else "secondary"
        chips.append(gr.update(variant=variant, visible=other in numbers))
    return [
        number,
        macro("learn/count")(numbers.index(number) + 1, len(numbers)),
        *(gr.update(visible=other == number) for other in all_numbers),
        *chips,
        gr.update(interactive=number != numbers[0]),
        gr.update(interactive=number != numbers[-1]),
    ]
