"""What a lesson is to the page: a text, and a demo that is measured while it is open.

A lesson is two files. ``assets/lessons/<number>.json`` has the text: prose, values from the paper, a question with its
answer, a link to another page. It contains some HTML (b, i, code), and all values in it are the paper's. ``key`` in it
names the module in `sbert_app.pages.learn.lessons` with the measurement, the figure and the result; the page calls its
``build()`` and knows nothing else of it. A measurement uses a small sample of the STS benchmark or the example
corpus (`samples`) and takes about two seconds on two cores; nothing is precomputed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from training.assets import asset
from training.catalogue import DEFAULT_MODEL

if TYPE_CHECKING:
    from sbert_app.services.models.cache import ModelCache
    from sbert_app.services.runs.store import RunStore
    from training.models.encoder import Encoder

DEFAULT_DATA = "stsb:dev"


@dataclass(frozen=True)
class Setup:
    """What the lessons measure with; the link of a class fixes it.

    ``seed`` 0 takes pairs at equal distances from the data; any other draws them at random.
    """

    model: str = DEFAULT_MODEL
    data: str = DEFAULT_DATA
    seed: int = 0


STANDARD = Setup()


@dataclass(frozen=True)
class Context:
    """All that a measurement needs besides the values of its controls."""

    models: ModelCache
    runs: RunStore
    setup: Setup = STANDARD

    @property
    def home(self) -> Path:
        """The home folder, with the data."""
        return self.runs.home

    @property
    def encoder(self) -> Encoder:
        """The setup's model. InputError if it cannot be loaded."""
        return self.models.encoder(self.setup.model)


class Measurement(NamedTuple):
    """A Plotly figure, the result as HTML, and the address of the lesson's link if it differs from the lesson's own."""

    figure: Any
    html: Markup
    href: str | None = None


@dataclass(frozen=True)
class Demo:
    """The live controls of a lesson. ``measure`` takes a `Context` and their values, in order.

    The user errors that it raises are shown as the result.
    """

    controls: list[Any]
    measure: Callable[..., Measurement]
    model: Any = None  # the control that names a model, if there is one: a class has its own
    triggers: Sequence[Any] = ()  # events after which it is measured again; by default, those of a change

    @property
    def events(self) -> list[Any]:
        """The events after which it is measured again."""
        return list(self.triggers) or [control.change for control in self.controls]

    def initial(self, setup: Setup) -> list[Any]:
        """The values that the controls begin with, in order."""
        return [setup.model if control is self.model else control.value for control in self.controls]


@dataclass(frozen=True)
class Lesson:
    """One idea, explained in five minutes."""

    number: int
    key: str  # the name of its module
    short: str  # label of its button
    title: str
    idea: str  # in one sentence
    text: tuple[str, ...]  # paragraphs
    try_it: str
    section: str  # of the paper
    paper: tuple[tuple[str, str], ...]  # description, value
    paper_note: str
    question: str
    answer: str
    opens: str  # text of the link
    href: str  # the page, with its settings

    def build(self) -> Demo:
        """Build the controls of its demo in the open Blocks."""
        return import_module(f"{__package__}.lessons.{self.key}").build()


@cache
def lessons() -> tuple[Lesson, ...]:
    """All lessons in order."""
    contents = (json.loads(file.read_text(encoding="utf-8")) for file in asset("lessons").glob("*.json"))
    found = (Lesson(**{**c, "text": tuple(c["text"]), "paper": tuple(map(tuple, c["paper"]))}) for c in contents)
    return tuple(sorted(found, key=lambda lesson: lesson.number))


def lesson_number(asked: str | None) -> int:
    """The lesson number in a link; 1 if there is no such lesson."""
    numbers = {str(lesson.number) for lesson in lessons()}
    return int(asked) if asked in numbers else 1


def how_many() -> str:
    """The number of lessons, at the beginning of a sentence."""
    count = len(lessons())
    return {12: "Twelve", 13: "Thirteen", 14: "Fourteen"}.get(count, str(count))
