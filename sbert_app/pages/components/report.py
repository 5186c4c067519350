"""Writes a result as one HTML file that works offline, with settings, versions, machine and command.

    sections = {"Scores": [table, scatter]}
    report_button(services, *of_page("Evaluation", sections, [models, data]), "evaluation")

    # Without a page.
    Report("My run", {"Objective": "cosent"}, {"Curves": [plot(figure)]}).html()

The file contains Plotly's script. Whatever the sections contain, its content security policy allows
only the two scripts of the report and no requests to other hosts. ``assets/report.js`` draws the
figures.
"""

import base64
import hashlib
import json
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any

import gradio as gr
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from sbert_app import __version__
from sbert_app.pages.components.events import event_options, run_js
from sbert_app.pages.components.messages import gradio_errors
from sbert_app.pages.components.templates import render
from sbert_app.services.container import Services
from sbert_app.services.results.cost import describe_processor
from training.atomic import write_text
from training.catalogue import ASSETS, read_asset
from training.errors import InputError
from training.names import slug

LIBRARIES = ("torch", "transformers", "tokenizers", "numpy")
# Shows the button if a part has a figure or a table. Notes, progress and messages are nothing to
# report.
SHOW_WITH_PARTS = """(...values) => ({__type__: "update", visible:
  values.some((part) => part?.plot || /<(table|section|b)\\b/.test(part))})"""
PLOT = '<script type="application/json" class="plot">'


@dataclass(frozen=True)
class Report:
    """The content of a report. Titles, settings and facts are escaped; the parts of sections are HTML from templates.

    Attributes:
        sections: the parts of each section, by its heading.
        command: the command that computes the same result.
        facts: facts besides the versions and the machine.
        address: the address of the page.
    """

    title: str
    settings: Mapping[str, object]
    sections: Mapping[str, Sequence[Markup]]
    command: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)
    address: str = ""

    def html(self) -> Markup:
        """Returns the content of the file, without empty sections. Raises InputError if all sections are empty."""
        sections = {}
        has_plots = False
        for title, parts in self.sections.items():
            # Empty HTML is false.
            if any(parts):
                sections[title] = [part for part in parts if part]
                has_plots |= any(PLOT in part for part in parts)
        if not sections:
            raise InputError("there is no result to report yet; compute one first")
        scripts = [read_asset("report.js")]
        if has_plots:
            # The script of the report draws with Plotly's, which must come first.
            scripts.insert(0, get_plotlyjs())
        versions = [f"SBERT Lab {__version__}", f"Python {platform.python_version()}"]
        versions += [f"{name} {version(name)}" for name in LIBRARIES]
        made_with = {
            # The day without the leading zero of ``%d``.
            "Report made": f"{time.localtime().tm_mday} {time.strftime('%B %Y, %H:%M %Z')}",
            "Machine": f"{describe_processor()}; {platform.system()} {platform.machine()}",
            "Versions": ", ".join(versions),
        }
        styles = []
        for file in sorted(ASSETS.glob("*.css")):
            styles.append(Markup(file.read_text(encoding="utf-8")))  # noqa: S704
        return render(
            "components/templates/report.html",
            report=self,
            sections=sections,
            facts={**self.settings, **self.facts, **made_with},
            scripts=list(map(Markup, scripts)),
            # For the content security policy, which allows these two scripts only.
            hashes=list(map(_hash, scripts)),
            styles=styles,
        )


def _hash(script: str) -> str:
    """Returns the SHA-256 of a script in base64, by which a content security policy allows the script."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def plot(figure: Any) -> Markup:
    """Renders a Plotly figure, or its JSON, as a part of a section.

    A "<" is written as an escape of JSON, so that no text of the figure can end the element.
    """
    text = figure if isinstance(figure, str) else figure.to_json()
    # `PLOT` is the start tag of the element.
    return Markup("{}{}</script>").format(Markup(PLOT), Markup(text.replace("<", r"\u003c")))  # noqa: S704 - no tag


def of_page(
    title: str, sections: Mapping[str, Sequence[Any]], settings: Sequence[Any] = ()
) -> tuple[Callable[..., Report], list[Any]]:
    """Returns the function that makes a report of a page, and the inputs of this function, for `report_button`.

    Args:
        sections: the parts of each section, by its heading: `Markup`, or HTML and plots with
            element ids. Hidden components are left out.
        settings: the controls whose values are listed.
    """
    components: list[Any] = []
    for parts in sections.values():
        components += [part for part in parts if not isinstance(part, Markup)]

    def make(*values: Any) -> Report:
        """Returns the report. ``values`` come from the components, then from the settings."""
        # The values of the components come first, and `_part` renders them as HTML; the values of
        # the settings follow.
        html = dict(zip(components, map(_part, values), strict=False))
        choices = {}
        for control, value in zip(settings, values[len(components) :], strict=True):
            text = _choice_text(control, value)
            if text:
                choices[control.label] = text
        rendered = {}
        for heading, parts in sections.items():
            # A part is a component, whose HTML is looked up, or HTML already.
            rendered[heading] = [html.get(part, part) for part in parts]
        return Report(title, choices, rendered)

    return make, [*components, *settings]


def _part(value: Any) -> Markup:
    """Returns the value of a component as HTML. The texts in it are escaped already, and it goes back to its sender."""
    return plot(value.plot) if hasattr(value, "plot") else Markup(value or "")  # noqa: S704


def _choice_text(control: Any, value: Any) -> str:
    """Returns the value of a control as the page shows it; "" for an empty one."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    # Sliders, numbers and text boxes have no choices.
    choices = getattr(control, "choices", None) or ()
    labels = {str(choice): label for label, choice in choices}
    values = value if isinstance(value, list) else [value]
    texts = [str(item) for item in values if item not in (None, "")]
    return ", ".join(labels.get(text, text) for text in texts)


def report_button(
    services: Services,
    make: Callable[..., Report],
    inputs: Sequence[Any],
    name: str,
    **options: Any,
) -> gr.Button:
    """Builds a button that downloads ``make(*values of inputs)`` as a file.

    The button is visible while one of ``inputs`` has a plot or a table. ``name`` is a part of its
    element id, and ``options`` are further arguments of ``gr.Button``.
    """
    parts = [component for component in inputs if isinstance(component, gr.HTML | gr.Plot)]
    # The visibility when the page opens. After later changes, `SHOW_WITH_PARTS` shows or hides the
    # button.
    options.setdefault("visible", any("<table" in str(part.value) for part in parts))
    button = gr.Button("Download a report", size="sm", elem_id=f"report-{name}", **options)
    # Holds the report on its way to the browser, where a script saves it.
    file = gr.File(visible=False)

    def write(request: gr.Request, *values: Any) -> str:
        with gradio_errors():
            # Without the query, which may open a file or a corpus: a report is passed on to other
            # people.
            address = request.headers.get("referer", "").partition("?")[0]
            report = replace(make(*values), address=address)
            path = services.temp.new_folder("exports") / f"{slug(report.title) or 'report'}.html"
            write_text(path, report.html())
        return str(path)

    # The browser sends None for a part that is hidden, which it finds by its id. The values of
    # other inputs, such as settings, are sent as they are.
    ids = json.dumps([component.elem_id if component in parts else None for component in inputs])
    present = f"(...values) => window.presentValues({ids}, values)"
    written = button.click(write, inputs, file, js=present, **event_options())
    run_js(written.success, "(file) => window.saveFile(file)", file)
    if parts:
        run_js([part.change for part in parts], SHOW_WITH_PARTS, parts, button)
    return button
