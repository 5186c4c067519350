"""A result as one HTML file that works offline: what a page shows, with settings, versions, machine and command.

    report_button(services, *of_page("Evaluation", {"Scores": [table, scatter]}, [models, data]), "evaluation")

    Report("My run", {"Objective": "cosent"}, {"Curves": [plot(figure)]}).html()       from anything else

The file has Plotly's script inside, and a policy by which a browser asks no host for anything and runs no other script
than the two of the report, whatever its sections contain. ``assets/report.js`` draws the figures.
"""

from __future__ import annotations

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
from sbert_app.pages.components.events import EVERY, PRIVATE
from sbert_app.pages.components.messages import gradio_errors
from sbert_app.pages.components.templates import render
from sbert_app.services.container import Services
from sbert_app.services.results.cost import describe_processor
from sbert_app.services.runs.record import slug
from training.assets import ASSETS, read_asset
from training.atomic import write_text
from training.errors import InputError

LIBRARIES = ("torch", "transformers", "tokenizers", "numpy")
# A note that there is nothing yet, progress and a message have no figures.
SHOW_WITH_PARTS = """(...values) => ({__type__: "update", visible:
  values.some((part) => part?.plot || /<(table|section|b)\\b/.test(part))})"""
PLOT = '<script type="application/json" class="plot">'


@dataclass(frozen=True)
class Report:
    """What is written. Titles, settings and facts are escaped; the parts of sections are HTML from templates."""

    title: str
    settings: Mapping[str, object]
    sections: Mapping[str, Sequence[Markup]]  # by heading
    command: str = ""  # which computes the same
    facts: Mapping[str, object] = field(default_factory=dict)  # besides versions and machine
    address: str = ""  # of the page on its server

    def html(self) -> Markup:
        """The file. InputError if no section has anything."""
        sections = {title: [part for part in parts if part] for title, parts in self.sections.items() if any(parts)}
        if not sections:
            raise InputError("there is no result to report yet; compute one first")
        has_plots = any(PLOT in part for parts in sections.values() for part in parts)
        scripts = [*([get_plotlyjs()] if has_plots else []), read_asset("report.js")]
        made_with = {
            "Report made": time.strftime("%-d %B %Y, %H:%M %Z"),
            "Machine": f"{describe_processor()}; {platform.system()} {platform.machine()}",
            "Versions": f"SBERT Lab {__version__}, Python {platform.python_version()}, "
            + ", ".join(f"{name} {version(name)}" for name in LIBRARIES),
        }
        return render(
            "components/templates/report.html",
            report=self,
            sections=sections,
            facts={**self.settings, **self.facts, **made_with},
            scripts=list(map(Markup, scripts)),
            hashes=[base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts],
            styles=[Markup(file.read_text(encoding="utf-8")) for file in sorted(ASSETS.glob("*.css"))],  # noqa: S704
        )


def plot(figure: Any) -> Markup:
    """A Plotly figure, or its JSON, as a part of a section."""
    text = figure if isinstance(figure, str) else figure.to_json()
    return Markup("{}{}</script>").format(Markup(PLOT), Markup(text.replace("<", r"\u003c")))  # noqa: S704 - no tag


def of_page(
    title: str,
    sections: Mapping[str, Sequence[Any]],
    settings: Sequence[Any] = (),
    command: Callable[..., str] = lambda *values: "",
) -> tuple[Callable[..., Report], list[Any]]:
    """What `report_button` takes, for what a page shows.

    Args:
        sections: by heading the HTML and the plots, with element ids: what is hidden is left out. Or `Markup`.
        settings: the controls whose values are listed.
        command: ``command(*values of the settings)`` -> the command that computes the same.
    """
    parts = [
        component for components in sections.values() for component in components if not isinstance(component, Markup)
    ]

    def make(*values: Any) -> Report:
        shows, choices = dict(zip(parts, map(_part, values), strict=False)), values[len(parts) :]
        return Report(
            title,
            {
                control.label: text
                for control, value in zip(settings, choices, strict=True)
                if (text := _words(control, value))
            },
            {
                heading: [shows.get(component, component) for component in components]
                for heading, components in sections.items()
            },
            command(*choices),
        )

    return make, [*parts, *settings]


def _part(value: Any) -> Markup:
    """What a component shows. Its HTML was escaped where it was made, and goes back to the browser that it is from."""
    return plot(value.plot) if hasattr(value, "plot") else Markup(value or "")  # noqa: S704


def _words(control: Any, value: Any) -> str:
    """The value of a control as the page shows it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    labels = {str(choice): label for label, choice in getattr(control, "choices", None) or ()}
    values = value if isinstance(value, list) else [value]
    return ", ".join(labels.get(str(item), str(item)) for item in values if item not in (None, ""))


def report_button(
    services: Services, make: Callable[..., Report], inputs: Sequence[Any], name: str, **options: Any
) -> gr.Button:
    """A button that downloads ``make(*values of inputs)`` as a file; ``name`` is part of its element id.

    It is there while one of the plots and the HTML among ``inputs`` is.
    """
    parts = [component for component in inputs if isinstance(component, gr.HTML | gr.Plot)]
    options = {"visible": any("<table" in str(part.value) for part in parts), **options}
    button = gr.Button("Download a report", size="sm", elem_id=f"report-{name}", **options)
    file = gr.File(visible=False)

    def write(request: gr.Request, *values: Any) -> str:
        with gradio_errors():
            report = replace(make(*values), address=request.headers.get("referer", ""))
            path = services.temp.new_folder("exports") / f"{slug(report.title) or 'report'}.html"
            write_text(path, report.html())
        return str(path)

    ids = json.dumps([component.elem_id if component in parts else None for component in inputs])
    present = f"(...values) => window.presentValues({ids}, values)"
    written = button.click(write, inputs, file, js=present, **PRIVATE)
    written.success(None, file, None, js="(file) => window.saveFile(file)")
    if parts:
        gr.on([part.change for part in parts], None, parts, button, js=SHOW_WITH_PARTS, **EVERY)
    return button
