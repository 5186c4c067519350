"""`components/events.py`: no two listeners that call each other, and the newest question's answer is shown."""

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest
from markupsafe import Markup

from sbert_app.pages import PAGES
from sbert_app.pages.components.events import Output, follow
from sbert_app.pages.components.measure_tab import MeasureTab
from sbert_app.pages.learn import page as learn
from sbert_app.pages.learn.lesson import Context, Demo, Measurement, lessons
from sbert_app.pages.learn.teacher import ClassLink
from sbert_app.server.pages import build_page
from sbert_app.services.background.tasks import TaskRunner
from sbert_app.services.container import Services
from sbert_app.settings import Settings
from training.errors import InputError

VISITOR: Any = SimpleNamespace(session_hash="visitor")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[gr.Blocks]:
    services = Services.start(Settings(home=tmp_path_factory.mktemp("home")))
    return [build_page(name, services) for name in PAGES]


def test_of_the_listeners_of_an_event_one_at_most_waits_for_its_turn(pages: list[gr.Blocks]):
    """Two would call each other: when one is answered, Gradio dispatches the event to both again."""
    waiting = Counter(
        (app.blocks[component].elem_id or app.blocks[component].get_block_name(), component, event)
        for app in pages
        for function in app.fns.values()
        if function.trigger_mode == "always_last"
        for component, event in function.targets
        # a listener after another one, or of a state, is dispatched by itself
        if component is not None
        and component in app.blocks
        and not isinstance(app.blocks[component], gr.State)
    )
    assert len(waiting) > 50
    assert [where for where, listeners in waiting.items() if listeners > 1] == []


def test_no_press_of_a_rater_is_dropped(pages: list[gr.Blocks]):
    """By default Gradio drops one between the sight of an answer and the moment at which it is done with it."""
    modes = {
        event: function.trigger_mode
        for app in pages
        for function in app.fns.values()
        for _, event in function.targets
        if event in ("judge", "take_back", "turn")
    }
    assert modes == dict.fromkeys(("judge", "take_back", "turn"), "multiple")


def test_no_choice_is_dropped(pages: list[gr.Blocks]):
    """The last one counts, or each does; or the answer sets the control, which then shows what it stands for."""
    dropped = [
        app.blocks[component].elem_id or app.blocks[component].label
        for app in pages
        for function in app.fns.values()
        if function.trigger_mode == "once"
        for component, event in function.targets
        if event == "input" and app.blocks[component] not in function.outputs
    ]
    assert dropped == []


def follower(look: Callable[[gr.HTML], dict[gr.HTML, Output]]) -> Callable[[str], dict[str, Any]]:
    """The handler of `follow` for a page: show(the answer that the page shows) -> the values of its answer."""
    with gr.Blocks() as page:
        status = gr.HTML()
        follow(gr.Timer(), lambda: look(status), [], [status])
    (listener,) = page.fns.values()
    show = listener.fn
    shown = listener.outputs[0]
    questions = {}
    answers = {}
    assert show is not None

    def answer(last: str) -> dict[str, Any]:
        found = show(questions, answers, last)
        return {"name": found[shown], "status": found.get(status)}

    return answer


def test_a_look_that_was_overtaken_shows_nothing_old():
    """The page would stay at it for good when the work has ended and the later look has stopped the timer."""
    states = iter(["running", "finished"])

    def look(status: gr.HTML) -> dict[gr.HTML, Output]:
        state = next(states)
        if state == "running":
            assert show("")["status"] == "finished", "a later look, which ends first"
        return {status: Output(state)}

    show = follower(look)
    assert show("") == {"name": gr.skip(), "status": None}


def test_answers_that_cross_on_their_way_leave_nothing_old():
    """Two answers are sent, and the page shows the older one last."""
    states = iter(["stopping", "stopped", "stopped", "stopped"])
    show = follower(lambda status: {status: Output(next(states))})
    older = show("")
    newer = show("")
    assert (older["status"], newer["status"]) == ("stopping", "stopped")
    corrected = show(older["name"])
    assert corrected["status"] == "stopped"
    assert show(corrected["name"]) == {"name": gr.skip(), "status": None}, (
        "nothing that the page has is sent again"
    )


def lesson_that_measures(measure: Callable[..., Measurement]) -> learn._LessonView:
    services: Any = SimpleNamespace(
        models=None, jobs=SimpleNamespace(store=None), tasks=TaskRunner()
    )
    with gr.Blocks():
        outputs = [gr.Plot(), gr.HTML()]
        column, reset = gr.Column(), gr.Button()
        tab = MeasureTab(services, "lesson 5", gr.HTML())
    return learn._LessonView(services, lessons()[4], Demo([], measure), outputs, column, reset, tab)


@pytest.mark.parametrize("name", ["bulk", "label"])
def test_a_page_has_one_primary_button(pages: list[gr.Blocks], name: str):
    app = dict(zip(PAGES, pages, strict=True))[name]
    buttons = [block for block in app.blocks.values() if isinstance(block, gr.Button)]
    assert sum(button.variant == "primary" for button in buttons) == 1


@pytest.mark.parametrize("fails", [False, True])
def test_a_lessons_answer_to_an_older_question_is_not_shown(fails: bool):
    answers: list[dict] = []
    ended = threading.Event()

    def measure(context: object, seconds: float) -> Measurement:
        if seconds == 4:  # meanwhile the visitor moves the slider, and that is answered first
            answers.extend(ask(3))
            ended.set()
            if fails:
                raise InputError("there is no such model")
        return Measurement(None, Markup("of {}").format(seconds))

    view = lesson_that_measures(measure)
    ask = partial(view.tab.handler(view.measure, {}), VISITOR, {}, ClassLink())
    older = list(ask(4))
    assert ended.wait(10)
    assert answers[-1][view.outputs[1]] == "of 3"
    assert older[-1] == {view.tab.status: gr.skip()}


def test_a_lesson_shows_how_far_its_measurement_is():
    is_seen = threading.Event()

    def measure(context: Context) -> Measurement:
        context.watch.report(1, "Encoding", 2)
        assert is_seen.wait(10)
        return Measurement(None, Markup("measured"))

    view = lesson_that_measures(measure)
    updates = view.tab.handler(view.measure, {})(VISITOR, {}, ClassLink())
    next(updates)
    bar = next(updates)[view.tab.status]
    is_seen.set()
    assert "Encoding · 50%" in bar and "progressbar" in bar
    *_, last = updates
    assert last[view.outputs[1]] == "measured"
    assert last[view.tab.status] == ""
