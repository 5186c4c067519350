"""Renders Jinja2 templates with autoescaping: a user's text can never become markup.

The templates of a page are in ``templates/`` beside its code, short ones as macros in
``templates/macros.html``. Templates that several pages share are in ``components/templates``. A
template is named by its path below ``pages/``.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from sbert_app.formats import (
    format_count,
    format_duration,
    format_estimate,
    format_number,
    format_time,
)
from sbert_app.pages import PAGES
from sbert_app.services.results.results import data_label

# The RGB values of words that make the sentences more similar, and less similar.
BLUE = "0,114,178"
ORANGE = "213,94,0"


def tint(value: float, largest: float) -> str:
    """Returns the colour behind a word that adds ``value`` to a score; the ``largest`` value has the deepest."""
    colour = BLUE if value >= 0 else ORANGE
    opacity = 0.08 + 0.55 * min(1.0, abs(value) / max(largest, 1e-6))
    return f"rgba({colour},{opacity:.2f})"


FILTERS: dict[str, Callable[..., str]] = {
    # {{ 1 | count("pair") }} -> 1 pair
    "count": format_count,
    # {{ "stsb:dev" | dataset }} -> STSb dev
    "dataset": data_label,
    "duration": format_duration,
    "estimate": format_estimate,
    "time": format_time,
    "tint": tint,
    # {{ 12345.678 | number(1) }} -> 12,345.7
    "number": format_number,
}


@cache
def _environment() -> Environment:
    """Returns the Jinja2 environment of all pages, in which a missing value is an error."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parents[1]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= FILTERS
    environment.globals["zip"] = zip
    environment.globals["pages"] = PAGES
    return environment


def render(template: str, **values: Any) -> Markup:
    """Renders a template, such as ``"compare/templates/result.html"``, with ``values``.

    Strings are escaped; `Markup`, such as the result of this function, is inserted unchanged.
    Raises jinja2.UndefinedError if a value is missing.
    """
    return Markup(_environment().get_template(template).render(values))  # noqa: S704 - autoescaped by Jinja2


def macro(name: str) -> Callable[..., Markup]:
    """Returns a macro as a function, which escapes its arguments and returns `Markup`.

    ``"bulk/outcome"`` is the macro ``outcome`` in ``bulk/templates/macros.html``. Names without a
    page, such as ``"note"``, are macros of ``components``.
    """
    page, _, macro_name = name.rpartition("/")
    template = _environment().get_template(f"{page or 'components'}/templates/macros.html")
    return getattr(template.module, macro_name)
