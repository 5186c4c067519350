"""Keeps the choices on a page in its address, so that a reload, a bookmark, a link and Back restore them.

``assets/app.js`` writes the address. It names a control by its element id, and only if its value differs from the one
that the page opens with. A change of a control replaces the address; opening another tab is a step that Back undoes.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import gradio as gr

from sbert_app.pages.components.events import event_options, on_open

_groups = count()


def remember(
    controls: Sequence[Any], tabs: gr.Tabs | None = None, passing: Mapping[Any, Sequence[Any]] | None = None
) -> Any:
    """Keeps the values of ``controls``, which have element ids, and the open tab in the address, and restores them.

    Args:
        tabs: tabs, each of which may have tabs within.
        passing: by control, the values that are left out of the address because a reload could not restore them.

    Returns:
        The event after which the controls have the values of the address.
    """
    sections = _sections(tabs)

    def restore(request: gr.Request) -> list[Any]:
        return values_of(controls, request)

    restored = keep_touched(controls, on_open(restore, list(controls)))
    rows = {tabs: sections} if sections else {}
    for section in sections:
        rows |= {inner: _sections(inner) for inner in section.children if isinstance(inner, gr.Tabs)}
    for row, parts in rows.items():
        # The browser opens the tab: two updates, of the address and of a tab that was pressed, would race.
        titles = json.dumps([(part.label, part.id, _inner_ids(part)) for part in parts])
        restored = restored.then(None, None, row, js=f"() => window.openTab({titles})")
    keep(controls, restored, passing)
    for section in [part for parts in rows.values() for part in parts]:
        name = "" if section is sections[0] else section.id
        opened = f"{json.dumps(name)}, {json.dumps(section.label)}"
        section.select(None, None, None, js=f"() => {{ window.rememberTab({opened}); }}")
    return restored


def _sections(tabs: gr.Tabs | None) -> list[gr.Tab]:
    return [] if tabs is None else [tab for tab in tabs.children if isinstance(tab, gr.Tab)]


def _inner_ids(section: gr.Tab) -> list[str | int | None]:
    """The ids of the tabs within a tab."""
    return [part.id for inner in section.children if isinstance(inner, gr.Tabs) for part in _sections(inner)]


def keep_touched(controls: Sequence[Any], opened: Any) -> Any:
    """Gives controls their values again that a person entered before the event ``opened`` of a slow opening set them.

    Returns the event after which they have them.
    """
    group = next(_groups)
    initial = json.dumps([control.value for control in controls])
    note = f"(...values) => {{ window.noteTouched({group}, {initial}, values); }}"
    gr.on(
        [control.input for control in controls],
        None,
        list(controls),
        None,
        js=note,
        **event_options(queue=False, trigger_mode="multiple"),
    )
    # A paste fires no input event of Gradio.
    texts = json.dumps([control.elem_id if isinstance(control, gr.Textbox) else None for control in controls])
    return opened.then(None, None, list(controls), js=f"() => window.keepTouched({group}, {texts})")


def keep(controls: Sequence[Any], restored: Any, passing: Mapping[Any, Sequence[Any]] | None = None) -> None:
    """Keeps the values of ``controls`` in the address, from the event ``restored`` on, which has set them."""
    ids = json.dumps([control.elem_id for control in controls])
    silent = json.dumps([[control.value, *(passing or {}).get(control, ())] for control in controls])
    js = f"(...values) => {{ window.rememberControls({ids}, {silent}, values); }}"
    gr.on(
        [control.change for control in controls],
        None,
        list(controls),
        None,
        js=js,
        **event_options(queue=False, trigger_mode="multiple"),
    )
    restored.then(None, None, None, js="() => window.addressIsRestored()")


def values_of(controls: Sequence[Any], request: gr.Request) -> list[Any]:
    """The value of each control in the address; ``gr.skip()`` if there is none, or one that the control cannot have."""
    return [value_of(control, request.query_params.getlist(str(control.elem_id))) for control in controls]


def inputs_of(block: Any, *more: Any) -> list[Any]:
    """The controls inside of a block, such as ``gr.Tabs``, that an address can name.

    These have an element id and are visible when the page opens; others depend on a file. ``more`` adds kinds of
    controls to the usual ones, such as text boxes.
    """
    controls: list[Any] = []
    kinds: Any = (gr.Dropdown, gr.Radio, gr.Slider, gr.Number, gr.Checkbox, *more)
    for child in getattr(block, "children", []):
        if child.visible is True:
            controls += inputs_of(child, *more)
            if child.elem_id and isinstance(child, kinds):
                controls.append(child)
    return controls


def value_of(control: Any, texts: list[str]) -> Any:
    """The value of a control from its texts in an address; ``gr.skip()`` if the control cannot have it."""
    if not texts:
        return gr.skip()
    if isinstance(control, gr.Textbox):
        return texts[-1]
    if isinstance(control, gr.Checkbox):
        return texts[-1].lower() == "true"
    if isinstance(control, gr.Slider | gr.Number):
        return _number(control, texts[-1])
    values = {str(value): value for _, value in control.choices}
    takes_any = getattr(control, "allow_custom_value", False)
    accepted = [values.get(text, text) for text in texts if text in values or takes_any]
    if getattr(control, "multiselect", False) or isinstance(control, gr.CheckboxGroup):
        return accepted
    return accepted[-1] if accepted else gr.skip()


def _number(control: gr.Slider | gr.Number, text: str) -> Any:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        return gr.skip()
    low = control.minimum
    high = control.maximum
    is_allowed = (low is None or value >= low) and (high is None or value <= high)
    return (int(value) if value.is_integer() else value) if is_allowed else gr.skip()
