"""HTML from Jinja2 templates with autoescaping: a user's text can never become markup.

Each page keeps its templates in ``templates/`` beside its code, those of a few lines as macros in one file,
``templates/macros.html``; so are the ones that several pages share, in ``components``. A template is named by its path
below ``pages/``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from sbert_app.formats import format_count, format_duration, format_estimate, format_number, format_time
from sbert_app.services.results.results import data_label

BLUE, ORANGE = "0,114,178", "213,94,0"  # RGB: the word makes the sentences alike, sets them apart


def tint(value: float, largest: float) -> str:
    """The background of a word that adds ``value``, as strong as that is beside the ``largest``."""
    opacity = 0.08 + 0.55 * min(1.0, abs(value) / max(largest, 1e-6))
    return f"rgba({BLUE if value >= 0 else ORANGE},{opacity:.2f})"


FILTERS: dict[str, Callable[..., str]] = {
    "count": format_count,  # {{ 1 | count("pair") }} -> 1 pair
    "dataset": data_label,  # {{ "stsb:dev" | dataset }} -> STSb dev
    "duration": format_duration,
    "estimate": format_estimate,
    "time": format_time,
    "tint": tint,
    "number": format_number,  # {{ 12345.678 | number(1) }} -> 12,345.7
}


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parents[1]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= FILTERS
    environment.globals["zip"] = zip
    return environment


def render(template: str, **values: Any) -> Markup:
    """The template, such as ``"compare/templates/result.html"``, filled with ``values``.

    Strings among the values are escaped; a `Markup` (what this function returns) is inserted as it is.

    jinja2.UndefinedError if the template uses a value that was not given.
    """
    return Markup(_environment().get_template(template).render(values))  # noqa: S704 - autoescaped by Jinja2


def macro(name: str) -> Callable[..., Markup]:
    """A macro as a function: its arguments are escaped, and what it returns is `Markup`.

    ``"note"`` is one of those that several pages share, ``"bulk/outcome"`` one in ``bulk/templates/macros.html``.
    """
    page, _, own = name.rpartition("/")
    return getattr(_environment().get_template(f"{page or 'components'}/templates/macros.html").module, own)
