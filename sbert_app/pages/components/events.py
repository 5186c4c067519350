"""The options of Gradio events that several pages share, and a way to drop outdated answers.

Gradio answers events in parallel: the load of a page, a change of a control, a press of a button.
The answer that comes last would stay on the page, even if it belongs to an older event. A handler
therefore notes its question before it computes, and returns no updates if a newer question has been
asked since:

    questions = gr.State({})
    control.change(handler, [questions, …], …)

    def handler(questions, …):
        is_newest = ask(questions)
        answer = …
        return answer if is_newest() else gr.skip()
"""

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Literal, NamedTuple

import gradio as gr

# The answer of a handler: component -> its new value. Gradio needs at least one component, so an
# answer without updates is ``{component: gr.skip()}``.
Update = dict[Any, Any]


def event_options(
    *, queue: bool = True, trigger_mode: Literal["once", "multiple", "always_last"] | None = None
) -> dict[str, Any]:
    """Returns the options of an event that only the page uses: it is not in the public API, and shows no spinner.

    Args:
        queue: whether the handler waits in Gradio's queue. A handler that takes milliseconds need
            not wait.
        trigger_mode: what Gradio does with an event that comes before the browser has processed the
            last answer. None is Gradio's default for the event.

            - "multiple" handles it at once. An event with two listeners needs this: with
              "always_last", the default of ``change``, Gradio repeats the event for all of its
              listeners, and two listeners set each other off for seconds.
            - "always_last" handles it next, or the last one if there are several. The answer must
              not set the control that was changed, because that would undo the next choice.
            - "once", the default of the other events, drops it.
    """
    return {
        "api_visibility": "private",
        "show_progress": "hidden",
        "queue": queue,
        "trigger_mode": trigger_mode,
    }


def on_open(
    handler: Callable[..., Any] | None = None, outputs: Any = None, *, queue: bool = False
) -> Any:
    """Calls ``handler`` when the page that is being built is opened.

    With inputs, ``gr.on`` would also call the handler at each change of an input. A handler with
    inputs is therefore added to an event without a handler:
    ``on_open().then(handler, inputs, outputs)``.
    """
    # An event without a handler runs JavaScript that does nothing.
    js = "() => {}" if handler is None else None
    return gr.on(fn=handler, outputs=outputs, js=js, **event_options(queue=queue))


def listener(events: Any) -> Callable[..., Any]:
    """Returns the function that adds a listener to an event, such as ``button.click``, or to a list of events."""
    return partial(gr.on, events) if isinstance(events, list) else events


def run_js(events: Any, js: str, inputs: Any = None, outputs: Any = None) -> Any:
    """Runs JavaScript in the browser, without the server, at each of the events."""
    return listener(events)(
        None, inputs, outputs, js=js, **event_options(queue=False, trigger_mode="multiple")
    )


def enable_when(button: gr.Button, needs: Mapping[Any, str]) -> None:
    """Enables a button once every field has a value; until then its label says what is missing.

    ``needs`` is a mapping from each field to what the label says without its value.
    """
    label = button.value
    missing = list(needs.values())
    js = f"(...values) => window.enableWhen({json.dumps([label, *missing])}, values)"
    # The fields are empty when the page opens, so the first one is named.
    button.value = f"{label}: {missing[0]}"
    button.interactive = False
    run_js([field.change for field in needs], js, list(needs), button)


def on_choice(
    picker: Any,
    handler: Callable[..., Update],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    *,
    queue: bool = True,
) -> Any:
    """Calls ``handler`` at a choice, and updates every output but the picker, which may have changed again since."""

    def update_others(*values: Any) -> Update:
        update = dict(handler(*values))
        update.pop(picker, None)
        return update

    others = [component for component in outputs if component is not picker]
    return picker.input(
        update_others, inputs, others, **event_options(queue=queue, trigger_mode="always_last")
    )


# The maximum number of answers that may be on their way to a page at the same time.
MOST_ANSWERS = 16
# The names of answers; see `follow`.
_answers = count()

# The last question of a visitor about each topic.
Questions = dict[Hashable, object]


def ask(questions: Questions, topic: Hashable = "") -> Callable[[], bool]:
    """Notes a question about ``topic``. Returns a function that says whether no newer one has been noted since."""
    question = object()
    questions[topic] = question
    return lambda: questions[topic] is question


def note_action(questions: Questions) -> None:
    """Notes that a person has done something, after which a slow answer to the opening of the page is dropped."""
    ask(questions)


class Output(NamedTuple):
    """A state of a component that shows long work. It is sent only if the browser does not have this version yet.

    Attributes:
        version: a value that differs if the state does.
        update: the update, or a function that returns it; None if ``version`` is the value of the
            component itself.
    """

    version: Any
    update: Any = None


def follow(
    timer: gr.Timer,
    look: Callable[..., Mapping[Any, Any]],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
) -> Callable[..., Any]:
    """Shows the progress of long work at each tick of a timer.

    Args:
        look: returns a value or an `Output` for each component, given the values of ``inputs``.
            With an `Output`, only changes are sent, so that an open tab costs little and does not
            flicker.

    Returns:
        A function that shows the progress at another event as well:
        ``show_on(button.click(start, …).then)``.
    """
    # Answers may overtake each other. The page sends the name of the answer that it shows, and gets
    # what has changed since that answer.
    shown_answer = gr.HTML("", visible="hidden")
    # `show` changes both dictionaries in place, so the states are not among its outputs.
    questions = gr.State({})
    # The versions that the page has after each of the last answers, by the name of the answer.
    answered = gr.State({})

    def show(
        looks: Questions, answers: dict[str, dict[Any, Any]], name_on_page: str, *values: Any
    ) -> Update:
        """Returns what has changed since the answer ``name_on_page``, and the name of this answer."""
        is_newest = ask(looks)
        now = look(*values)
        if not is_newest():
            # A look that started later may have ended earlier, with a newer state.
            return {shown_answer: gr.skip()}
        # Empty if the page has no answer yet, or one that is not kept any more. Then everything is
        # sent.
        versions = dict(answers.get(name_on_page, {}))
        # Adds what is sent now to ``versions``.
        updates = changes(now, versions)
        if not updates:
            return {shown_answer: gr.skip()}
        name = str(next(_answers))
        answers[name] = versions
        for old in list(answers)[:-MOST_ANSWERS]:
            # Another look may have removed it.
            answers.pop(old, None)
        return {shown_answer: name, **updates}

    def show_on(event: Callable[..., Any], **options: Any) -> Any:
        return event(
            show,
            [questions, answered, shown_answer, *inputs],
            [shown_answer, *outputs],
            **event_options(queue=False) | options,
        )

    show_on(timer.tick)
    return show_on


def changes(now: Mapping[Any, Any], sent: dict[Any, Any]) -> Update:
    """Returns the updates of ``now`` whose versions are not in ``sent`` yet, and notes their versions in ``sent``.

    A value that is not an `Output` is always returned.
    """
    updates: Update = {}
    for component, value in now.items():
        if not isinstance(value, Output):
            updates[component] = value
            continue
        version, update = value
        # Texts may be whole pages of HTML, so only their hashes are kept.
        key = hash(version) if isinstance(version, str) else version
        if component in sent and sent[component] == key:
            continue
        sent[component] = key
        if update is None:
            # The version is the value of the component itself.
            update = version
        elif callable(update):
            update = update()
        updates[component] = update
    return updates
