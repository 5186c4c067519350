"""What a lesson's demo is: its live controls, and the function that measures with their values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from markupsafe import Markup

from sbert_app.services.lessons.setup import Setup


class Measurement(NamedTuple):
    """A Plotly figure, the result as HTML, and the address of the lesson's link if it differs from the lesson's own."""

    figure: Any
    html: Markup
    href: str | None = None


@dataclass(frozen=True)
class Demo:
    """``measure`` takes a setup and the values of ``controls``, in order. Its user errors are shown as the result."""

    controls: list[Any]
    triggers: list[Any]  # events after which it is measured again
    measure: Callable[..., Measurement]
    model: Any = None  # the control that names a model, if there is one: a class has its own

    def initial(self, setup: Setup) -> list[Any]:
        """The values that the controls begin with, in order."""
        return [setup.model if control is self.model else control.value for control in self.controls]
