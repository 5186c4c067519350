"""The interface of a lesson, which is a text and a demo, and the parts of its figures and results.

A lesson is two files. ``assets/lessons/<number>.json`` has the text: prose, values from the paper,
a question with its answer, a link to another page. It contains some HTML (b, i, code), and all
values in it are from the paper. Its ``key`` names the module in `sbert_app.pages.learn.lessons`
with the measurement, the figure and the result; the page only calls ``build()`` of the module. A
measurement uses a small sample of the STS benchmark or the example corpus (`samples`) and takes
about two seconds on two cores; nothing is precomputed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from itertools import cycle
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup

from sbert_app.figures.evaluation import label_histograms
from sbert_app.figures.style import add_scatter, apply_style, short_label
from sbert_app.pages.components.templates import macro
from sbert_app.services.background.watch import UNWATCHED, Watch
from training.catalogue import DEFAULT_CROSS_ENCODER, DEFAULT_MODEL, asset
from training.errors import InputError
from training.models.model import PairModel
from training.plugins import plugins, tried

if TYPE_CHECKING:
    from sbert_app.services.models.cache import ModelCache
    from sbert_app.services.runs.store import RunStore
    from training.models.encoder import Encoder

DEFAULT_DATA = "stsb:dev"

# Macros, which escape all strings.
tiles = macro("tiles")
# ``table(header, rows, wide=True)`` scrolls on a phone.
table = macro("learn/table")
# Sentences that are written from the figures of a measurement.
findings = macro("learn/findings")
# The models, the data and the time of a measurement.
measured = macro("learn/measured")

LINE_COLOURS = ("blue", "orange", "green", "vermillion", "purple", "sky")


@dataclass(frozen=True)
class Setup:
    """The model, the data and the seed of the lessons, which the link of a class can fix.

    Seed 0 takes pairs at equal distances from the data; any other seed draws them at random.
    """

    model: str = DEFAULT_MODEL
    data: str = DEFAULT_DATA
    seed: int = 0


STANDARD = Setup()


@dataclass(frozen=True)
class Context:
    """The models, the runs and the setup of a measurement, and a watch for its progress.

    Contexts that differ only in their watches are equal, so that they share cached measurements.
    """

    models: ModelCache
    runs: RunStore
    setup: Setup = STANDARD
    watch: Watch = field(default=UNWATCHED, compare=False)

    @property
    def encoder(self) -> Encoder:
        """The setup's model. InputError if it cannot be loaded."""
        return self.encoder_of(self.setup.model)

    @property
    def cross_encoder(self) -> PairModel:
        """The default cross-encoder. InputError if it cannot be loaded."""
        return self.models.get(DEFAULT_CROSS_ENCODER, PairModel)

    def encoder_of(self, model: str) -> Encoder:
        """The bi-encoder with this name. InputError if it cannot be loaded, or is not an `Encoder`."""
        # The import of torch takes seconds.
        from training.models.encoder import Encoder

        return self.models.get(model, Encoder)


class Measurement(NamedTuple):
    """A Plotly figure, and the result as HTML."""

    figure: Any
    html: Markup


@dataclass(frozen=True)
class Demo:
    """The live controls of a lesson.

    Attributes:
        measure: takes a `Context` and the values of the controls; its user errors are shown as the
            result.
        model: the control that names a model, which a class may fix.
        triggers: the events after which the lesson is measured again, by default changes of the
            controls.
    """

    controls: list[Any]
    measure: Callable[..., Measurement]
    model: Any = None
    triggers: Sequence[Any] = ()

    def initial(self, setup: Setup) -> list[Any]:
        """The first values of the controls, in order."""
        return [
            setup.model if control is self.model else control.value for control in self.controls
        ]


@dataclass(frozen=True)
class Lesson:
    """The text of a lesson.

    Attributes:
        key: the module in `lessons`, or the function of a plug-in that builds the demo, as
            "module:function".
        chapter: the title above all lessons with the same chapter.
        short: the label of its button.
        opens: the text of its link, ``href``.
    """

    number: int
    key: str
    chapter: str
    short: str
    title: str
    idea: str
    text: tuple[str, ...]
    try_it: str
    section: str
    paper: tuple[tuple[str, str], ...]
    paper_note: str
    question: str
    answer: str
    opens: str
    href: str

    def build(self) -> Demo:
        if ":" not in self.key:
            return import_module(f"{__package__}.lessons.{self.key}").build()
        # `tried` returns None if the plug-in cannot be used. The page still opens, and the lesson says so.
        return tried(self.short, lambda: resolve_name(self.key)()) or Demo([], self._refuse)

    def _refuse(self, _: Context) -> Measurement:
        raise InputError(f"the plug-in of the lesson {self.short} cannot be used; the log says why")


@cache
def lessons() -> tuple[Lesson, ...]:
    """The built-in lessons, followed by the lessons of plug-ins."""
    loaded = []
    for file in asset("lessons").glob("*.json"):
        content = json.loads(file.read_text(encoding="utf-8"))
        # Tuples, because lessons are hashable.
        content["text"] = tuple(content["text"])
        content["paper"] = tuple(map(tuple, content["paper"]))
        loaded.append(Lesson(**content))
    loaded.sort(key=lambda lesson: lesson.number)
    for lesson in plugins(Lesson).values():
        loaded.append(replace(lesson, number=len(loaded) + 1))
    return tuple(loaded)


def chapters() -> dict[str, list[Lesson]]:
    """The lessons of each chapter, in order."""
    grouped: dict[str, list[Lesson]] = {}
    for lesson in lessons():
        grouped.setdefault(lesson.chapter, []).append(lesson)
    return grouped


def lesson_number(text: str | None) -> int:
    """The lesson number in a link; 1 for any other text."""
    numbers = {str(lesson.number) for lesson in lessons()}
    return int(text) if text in numbers else 1


def styled(
    figure: go.Figure, height: int, x: str = "", y: str = "", legend: bool = False
) -> go.Figure:
    """The figure in the look of the app, with the titles ``x`` and ``y`` of its axes and with or without a legend."""
    return apply_style(figure, height, x={"title": x}, y={"title": y}, showlegend=legend)


def cosine_histograms(unrelated: np.ndarray, similar: np.ndarray) -> go.Figure:
    """The cosines of random pairs and of similar pairs, as two histograms of equal area."""
    return label_histograms({"gold score of 4 or more": similar, "random pairs": unrelated})


def rank_lines(
    labels: Sequence[str], columns: Sequence[str], ranks: Sequence[Sequence[int]]
) -> go.Figure:
    """A line for each sentence of ``labels`` through its ``ranks``, one in each of the orders ``columns``.

    A level line means that the orders agree.
    """
    figure = go.Figure()
    # A line has numbers at its ends only.
    middle = len(columns) - 2
    places = ["middle left", *["top center"] * middle, "middle right"]
    for label, row, colour in zip(labels, ranks, cycle(LINE_COLOURS), strict=False):
        add_scatter(
            figure,
            list(columns),
            list(row),
            colour,
            f"{short_label(label)}<br>%{{x}}: rank %{{y}}<extra></extra>",
            "lines+markers+text",
            text=[str(row[0]), *[""] * middle, str(row[-1])],
            textposition=places,
            line_width=2.5,
            marker_size=8,
        )
    apply_style(figure, height=max(300, 30 * len(labels) + 80))
    last = max(max(row) for row in ranks)
    figure.update_xaxes(side="top", showgrid=False, range=[-0.25, len(columns) - 0.75])
    figure.update_yaxes(
        type="log",
        # From bottom to top, so rank 1 is at the top.
        range=[np.log10(last * 1.25), np.log10(0.8)],
        showgrid=False,
        showticklabels=False,
    )
    return figure


def change_of_rho(points: float, what: str) -> str:
    """A sentence that says whether ``what`` raises ρ, lowers it, or leaves it about where it was."""
    if abs(points) < 0.5:
        return f"{what} leaves ρ about where it was ({points:+.1f} points)."
    verb = "raises" if points > 0 else "lowers"
    return f"{what} {verb} ρ by {abs(points):.1f} points here."
