"""`server/workarounds.py`: each step of a generator is sent whole, and odd values are no fault of the app."""

import copy
from types import SimpleNamespace
from typing import Any

import anyio
import gradio as gr
import pytest
from gradio_client.utils import apply_diff

from sbert_app.server.workarounds import WholeSteps
from training.errors import InputError

STEPS: list[list[Any]] = [
    ["Starting", {"__type__": "update", "interactive": False}],
    ["Starting …", {"__type__": "update", "interactive": True, "visible": True}],
    ["Starting … done", {"__type__": "update"}],
]


def sent(app: gr.Blocks, steps: list[list[Any]]) -> list[list[Any]]:
    """The messages of a generator with these steps, the last of which ends it."""
    event = SimpleNamespace(outputs=[object(), object()])
    last = len(steps)
    data = [*copy.deepcopy(steps), [None, None]]
    return [
        app.handle_streaming_diffs(event, each, "visitor", "run", step == last)
        for step, each in enumerate(data)
    ]


def test_every_step_replaces_the_one_before():
    """An edit within it would change an object that may still wait to be shown; see the browser test of Bulk."""
    first, *others, final = sent(WholeSteps(), STEPS)
    assert (first, final) == (STEPS[0], STEPS[-1])
    shown = first
    for step, message in zip(STEPS[1:], others, strict=True):
        assert all(path == [] for edits in message for _, path, _ in edits)
        shown = [apply_diff(old, edits) for old, edits in zip(shown, message, strict=True)]
        assert shown == step, "clients of the HTTP API read it too"


def test_values_that_no_page_sends_are_no_fault_of_the_app():
    with WholeSteps() as app:
        name = gr.Dropdown(["a"], allow_custom_value=True)
        many = gr.Dropdown(["a"], multiselect=True)

        def upper(text: str, more: list[str], event: gr.EventData) -> str:
            return (text + "".join(more)).upper() * event.times

        gr.on([name.change], upper, [name, many], name)
    [event] = app.fns.values()

    def call(values: list[Any], **data: Any) -> Any:
        return anyio.run(
            app.call_function, event, values, None, None, None, gr.EventData(None, data)
        )

    assert call(["a", ["b"]], times=2)["prediction"] == "ABAB"
    wrong = [[5, {}], [["a"], []], [{"a": 1}, []], [True, []], ["a", [[1]]], ["a", {"a": 1}]]
    events: list[dict[str, Any]] = [
        {},
        {"times": 1, "row": "x"},
        {"times": 1, "rows": [1e9, -1]},
        {"pair": True},
    ]
    events += [
        {"threshold": "NaN"},
        {"run": 5},
        {"row_value": []},
        {"row_value": [{}]},
        {"pair": "0"},
        {"pair": None},
    ]
    events += [{"score": [1]}, {"score": "5"}]
    for values, data in [
        *((values, {"times": 1}) for values in wrong),
        *((["a", []], data) for data in events),
    ]:
        with pytest.raises(gr.Error, match="values that this page does not send"):
            call(values, **data)
    with pytest.raises(TypeError):
        call(["a", []], times=[])


def test_each_component_has_values_of_its_own_kind():
    with WholeSteps() as app:
        text = gr.Textbox()
        typed = gr.Dropdown(["a"], allow_custom_value=True)
        many = gr.CheckboxGroup(["a"])
        number = gr.Slider(0, 9)
        ids = gr.BrowserState([])

        def handle(*values: Any) -> str:
            if values[2] == ["a"]:
                raise InputError("a is no group")
            return repr(values)

        gr.on([text.change], handle, [text, typed, many, number, ids], text)
    [event] = app.fns.values()

    def call(*values: Any) -> Any:
        return anyio.run(app.call_function, event, list(values))["prediction"]

    assert call(None, None, [], 5, []) == "('', None, [], 5, [])"
    assert call("b", "c", [], 5.5, ["id"]) == "('b', 'c', [], 5.5, ['id'])"
    wrong: list[Any] = [
        (5, "a", [], 5, []),
        ("", 1.5, [], 5, []),
        ("", "a", [], None, []),
        ("", "a", [], "5", []),
    ]
    wrong += [
        ("", "a", [], 5, "id"),
        ("", "a", [], 5, [5]),
        ("", "a", [], 5, {"id": 1}),
        ("", "a", [], 5, [["id"]]),
    ]
    for values in wrong:
        with pytest.raises(gr.Error, match="values that this page does not send"):
            call(*values)
    with pytest.raises(gr.Error, match="a is no group"):
        call("", "a", ["a"], 5, [])
