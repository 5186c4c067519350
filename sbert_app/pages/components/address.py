"""Keeps the choices on a page in its address, so that a reload, a bookmark, a link and Back restore them.

``assets/app.js`` writes the address. A control is named by its element id, and left out if it has
the value that the page opens with. A change of a control replaces the address; opening another tab
is a step that Back undoes.
"""

import json
import math
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import gradio as gr

from sbert_app.pages.components.events import on_open, run_js

# The numbers by which the scripts of a page tell its groups of controls apart.
_groups = count()


def remember(
    controls: Sequence[Any],
    tabs: gr.Tabs,
    passing: Mapping[Any, Sequence[Any]] | None = None,
) -> Any:
    """Keeps the values of controls and the open tab in the address, and restores them when the page is opened.

    Args:
        controls: controls with element ids.
        tabs: tabs, which may contain further tabs.
        passing: by control, the values that are left out of the address because a reload could not
            restore them.

    Returns:
        The event after which the controls have the values in the address.
    """

    def restore(request: gr.Request) -> list[Any]:
        return values_of(controls, request)

    restored = keep_touched(controls, on_open(restore, list(controls)))
    # The row of tabs of the page, and the rows inside of its tabs.
    rows = [tabs]
    for section in _sections(tabs):
        rows += _inner_tabs(section)
    for row in rows:
        # (title, id, ids of the tabs inside) of each tab. The script knows the title of a tab that
        # was pressed; the address has the id of a tab of this row, or of a tab inside of it.
        names = [(section.label, section.id, _inner_ids(section)) for section in _sections(row)]
        # The browser opens the tab, because an update from the server would race with a press on
        # another tab. A tab that was pressed earlier wins over the address.
        js = f"() => window.openTab({json.dumps(names)})"
        restored = run_js(restored.then, js, outputs=row)
    keep(controls, restored, passing)
    first = _sections(tabs)[0]
    for row in rows:
        for section in _sections(row):
            # An address without a tab opens the first one.
            name = "" if section is first else section.id
            # The event may come late, when another tab is open already. The script finds the open
            # tabs by their titles.
            arguments = f"{json.dumps(name)}, {json.dumps(section.label)}"
            run_js(section.select, f"() => {{ window.rememberTab({arguments}); }}")
    return restored


def _sections(tabs: gr.Tabs) -> list[gr.Tab]:
    """Returns the tabs of a row of tabs."""
    return [tab for tab in tabs.children if isinstance(tab, gr.Tab)]


def _inner_tabs(section: gr.Tab) -> list[gr.Tabs]:
    """Returns the rows of tabs inside of a tab."""
    return [child for child in section.children if isinstance(child, gr.Tabs)]


def _inner_ids(section: gr.Tab) -> list[str | int | None]:
    """Returns the ids of the tabs inside of a tab."""
    ids = []
    for tabs in _inner_tabs(section):
        ids += [inner.id for inner in _sections(tabs)]
    return ids


def keep_touched(controls: Sequence[Any], opened: Any) -> Any:
    """Restores what a person has entered on a slow page before the event ``opened`` set its controls.

    Returns:
        The event after which the controls have the values that the person has entered.
    """
    # The number under which the script keeps the values of these controls.
    group = next(_groups)
    initial = json.dumps([control.value for control in controls])
    # Values that are still the initial ones do not count as entered.
    note = f"(...values) => {{ window.noteTouched({group}, {initial}, values); }}"
    run_js([control.input for control in controls], note, list(controls))
    # A paste does not fire an input event of Gradio, so the script itself notes what is typed into
    # text boxes. It finds them by their ids; other controls have None here.
    ids = [control.elem_id if isinstance(control, gr.Textbox) else None for control in controls]
    js = f"() => window.keepTouched({group}, {json.dumps(ids)})"
    return run_js(opened.then, js, outputs=list(controls))


def keep(
    controls: Sequence[Any], restored: Any, passing: Mapping[Any, Sequence[Any]] | None = None
) -> None:
    """Keeps the values of ``controls`` in the address once the event ``restored`` has set them.

    ``passing`` has, by control, the values that are left out of the address because a reload could
    not restore them.
    """
    ids = json.dumps([control.elem_id for control in controls])
    passing = passing or {}
    # For each control, the values that are left out of the address.
    left_out = [[control.value, *passing.get(control, ())] for control in controls]
    js = f"(...values) => {{ window.rememberControls({ids}, {json.dumps(left_out)}, values); }}"
    run_js([control.change for control in controls], js, list(controls))
    # Until this runs, the script does not write any change to the address.
    run_js(restored.then, "() => window.addressIsRestored()")


def values_of(controls: Sequence[Any], request: gr.Request) -> list[Any]:
    """Returns the value of each control in the address, or ``gr.skip()`` if it is missing or invalid."""
    return [
        value_of(control, request.query_params.getlist(str(control.elem_id)))
        for control in controls
    ]


def inputs_of(block: Any, *more: Any) -> list[Any]:
    """Returns the controls inside of a block, such as ``gr.Tabs``, whose values can be kept in the address.

    They have an element id. Controls that are hidden when the page opens are left out, because they
    depend on a file.

    Args:
        more: kinds of controls besides the usual ones, such as text boxes.
    """
    controls: list[Any] = []
    kinds: Any = (gr.Dropdown, gr.Radio, gr.Slider, gr.Number, gr.Checkbox, *more)
    for child in getattr(block, "children", []):
        # ``visible`` may also be "hidden", which is truthy.
        if child.visible is True:
            controls += inputs_of(child, *more)
            if child.elem_id and isinstance(child, kinds):
                controls.append(child)
    return controls


def value_of(control: Any, texts: list[str]) -> Any:
    """Returns the value of a control from its texts in an address, or ``gr.skip()`` if it is missing or invalid.

    A control with several values gets the valid ones.
    """
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
    accepted = []
    for text in texts:
        if text in values or takes_any:
            accepted.append(values.get(text, text))
    if getattr(control, "multiselect", False) or isinstance(control, gr.CheckboxGroup):
        return accepted
    return accepted[-1] if accepted else gr.skip()


def _number(control: gr.Slider | gr.Number, text: str) -> Any:
    """Returns the number in a text: None for the empty text of a cleared field, ``gr.skip()`` for an invalid one."""
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        return gr.skip()
    low = -math.inf if control.minimum is None else control.minimum
    high = math.inf if control.maximum is None else control.maximum
    # NaN is refused here, too.
    if not low <= value <= high:
        return gr.skip()
    return int(value) if value.is_integer() else value
