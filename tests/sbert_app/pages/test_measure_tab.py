"""`components/measure_tab.py`: progress, result, error, stop and the first opening, as updates of components."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest

from sbert_app.pages.components.measure_tab import MeasureTab, hidden, visible
from sbert_app.services.background.tasks import TaskRunner
from sbert_app.services.background.watch import Watch
from training.errors import InputError

REQUEST: Any = SimpleNamespace(session_hash="visitor")


class Tab:
    """A tab with one input and one result that may be hidden; ``answer`` is what its measurement does."""

    def __init__(self, example: Callable[[], dict] | None = None) -> None:
        self.calls: list[str] = []
        self.runner = TaskRunner()
        with gr.Blocks() as self.blocks, gr.Tab("tab"):
            text = gr.Textbox()
            services: Any = SimpleNamespace(tasks=self.runner)
            self.tab = MeasureTab.build(
                services, "test", "Measure", ("start", "stop", "status"), "Press Measure."
            )
            self.result = gr.HTML(visible=False)
            self.tab.wire(self.measure, [text], {self.result: hidden()}, example=example)

    def measure(self, watch: Watch, text: str) -> dict:
        self.calls.append(text)
        if text == "wrong":
            raise InputError("there is no such model")
        if text == "long":
            self.runner.stop(self.tab.owner(REQUEST))
            while not watch.should_stop():
                pass
        return {self.tab.status: "done", self.result: visible(text)}


@pytest.fixture
def tab() -> Tab:
    return Tab()


def press(tab: Tab, text: str) -> list[dict]:
    click = next(
        fn.fn for fn in tab.blocks.fns.values() if (tab.tab.start._id, "click") in fn.targets
    )
    return list(click(REQUEST, text))


def test_a_result_is_shown_and_start_can_be_pressed_again(tab: Tab):
    first, *_, last = press(tab, "a text")
    assert first[tab.tab.start].interactive is False
    assert first[tab.tab.stop].visible is True
    assert last[tab.tab.status] == "done"
    assert last[tab.result] == {"value": "a text", "visible": True, "__type__": "update"}
    assert last[tab.tab.start].interactive is True
    assert last[tab.tab.stop].visible is False


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("wrong", "There is no such model"), ("long", "Stopped before there was a result.")],
)
def test_an_error_or_a_stop_hides_the_last_result_and_stands_in_its_place(
    tab: Tab, text: str, sentence: str
):
    last = press(tab, text)[-1]
    assert last[tab.result]["visible"] is False
    assert sentence in last[tab.tab.status]
    assert last[tab.tab.start].interactive is True


def test_opening_the_tab_shows_the_example_once_and_measures_nothing():
    tab = Tab(example=lambda: {tab.tab.status: "measured before"})
    [opened] = [
        fn for fn in tab.blocks.fns.values() if any(event == "select" for _, event in fn.targets)
    ]
    was_opened, _ = opened.inputs
    assert opened.fn(False, {}) == {was_opened: True, tab.tab.status: "measured before"}
    assert opened.fn(True, {}) == {was_opened: True}
    # A person has pressed Start before the example came.
    assert opened.fn(False, {"": object()}) == {was_opened: True}
    assert tab.calls == []


def test_nothing_is_measured_where_there_is_nothing_to_measure(tab: Tab):
    handler = tab.tab.handler(tab.measure, {}, unless=lambda text: not text)
    assert list(handler(REQUEST, "")) == [{tab.tab.status: gr.skip()}]
    assert tab.calls == []


def test_a_fault_of_the_app_is_told_and_ends_the_bar(tab: Tab):
    [failed] = [fn.fn for fn in tab.blocks.fns.values() if fn.trigger_only_on_failure]
    update = failed()
    assert "fault in the app" in update[tab.tab.status]
    assert update[tab.tab.start].interactive is True
