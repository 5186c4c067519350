"""Options of Gradio events that several pages share, and which of several answers is shown.

Gradio answers events side by side: that of a page's load, of a control, of a button. The answer that comes last would
stay, whatever it was to:

    asked = gr.State({})                      of each visitor's page
    control.change(handler, [asked, …], …)    in the handler: is_newest = ask(asked), before it computes; after that, an
                                              answer for which is_newest() is False is not given
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import gradio as gr

# An event of the page alone: no endpoint of the public API, no spinner over its outputs.
PRIVATE: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
# The same for a control that changes again before it is answered: its last value is answered after that. The answer
# does not set the control that asked for it, or it would undo the next choice.
LATEST: dict[str, Any] = {**PRIVATE, "trigger_mode": "always_last"}
# As PRIVATE, answered at once instead of in its turn: for handlers that take milliseconds.
UNQUEUED: dict[str, Any] = {**PRIVATE, "queue": False}
# The same for an event of which none may be lost. Of most events Gradio drops what comes before the answer to the last
# one is dealt with, which is later than it is seen. Also for a listener beside another one of the same event: Gradio
# calls all listeners of an event again when one with "always_last", which is the default of ``change``, was waited for,
# and two of them would call each other for seconds.
EVERY: dict[str, Any] = {**UNQUEUED, "trigger_mode": "multiple"}


def on_open(handler: Callable[..., Any] | None = None, outputs: Any = None, **options: Any) -> Any:
    """Listen to the opening of the page that is being built: ``gr.on`` without triggers and inputs does that.

    A handler with inputs follows: ``on_open().then(handler, inputs, outputs)``.
    """
    if handler is None:
        options = {"js": "() => {}"}
    return gr.on(None, handler, None, outputs, **options)


def enable_when(button: gr.Button, needs: Mapping[Any, str]) -> None:
    """Let a button be pressed once every field of ``needs`` has a value; until then its label says what is missing."""
    js = f"(...values) => window.enableWhen({json.dumps([button.value, *needs.values()])}, values)"
    button.value, button.interactive = f"{button.value}: {next(iter(needs.values()))}", False
    gr.on([field.change for field in needs], None, list(needs), button, js=js, **EVERY)


Update = dict[Any, Any]  # component -> its new value: what a handler returns
Questions = dict[Hashable, object]  # what was asked last, by what it is about


def ask(questions: Questions, topic: Hashable = "") -> Callable[[], bool]:
    """Note a question in the visitor's ``asked`` -> whether it is still the newest one about ``topic``."""
    question = object()
    questions[topic] = question
    return lambda: questions[topic] is question


class Output(NamedTuple):
    """What a component shows of long work; sent only where the browser does not have this version of it."""

    version: Any
    update: Any = None  # or a function that makes it; None: the version is the value itself


def follow(
    timer: gr.Timer, look: Callable[..., Mapping[Any, Any]], inputs: Sequence[Any], outputs: Sequence[Any]
) -> Callable[..., Any]:
    """Show how long work is doing: at each tick of ``timer``, what ``look`` returns for the values of ``inputs``.

    That is a value for each component to update, or an `Output`. An open tab costs little then, and nothing flickers.

    Returns:
        A function that shows it at another event too: ``show(button.click(start, …).then)``.
    """
    sent = gr.State({})  # the versions that the browser has

    def show(versions: dict[Any, Any], *values: Any) -> Update:
        is_newest = ask(versions)  # a look that began before another one may end after it, with what was before
        now = look(*values)
        return {outputs[0]: gr.skip(), **(changes(now, versions) if is_newest() else {})}

    def show_on(event: Callable[..., Any], **options: Any) -> Any:
        return event(show, [sent, *inputs], outputs, **{**UNQUEUED, **options})

    show_on(timer.tick)
    return show_on


def changes(now: Mapping[Any, Any], sent: dict[Any, Any]) -> Update:
    """The updates of ``now`` whose versions are not in ``sent``, which is brought up to date."""
    updates: Update = {}
    for component, value in now.items():
        if isinstance(value, Output):
            version, update = value
            key = hash(version) if isinstance(version, str) else version  # a page of HTML is not kept
            if component in sent and sent[component] == key:
                continue
            sent[component] = key
            value = version if update is None else update() if callable(update) else update
        updates[component] = value
    return updates
