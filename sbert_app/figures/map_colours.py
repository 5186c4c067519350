"""The colouring of a map's points: by label (colours and shapes) or by number (a colour scale)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sbert_app.figures.style import PALETTE

COLOURS = ("blue", "orange", "green", "vermillion", "purple", "sky", "yellow")
SHAPES = ("circle", "diamond", "square")  # available in 2-D and in 3-D
MAX_LABELS = len(COLOURS) * len(SHAPES)  # distinguishable ones; the others are grey
MIN_NUMBERS = 8  # distinct values from which on a column of numbers is a scale instead of labels
OTHER, BLANK = "other", "(none)"


@dataclass(frozen=True, eq=False)
class Labels:
    """The group of each point."""

    title: str
    names: list[str]  # of the groups, the largest first, numbers in their order; then OTHER and BLANK
    groups: np.ndarray  # (N,) int32, index in ``names``
    colours: Sequence[str] | None = None  # of the palette, where they are chosen; groups beyond them are grey

    def style(self, group: int) -> dict[str, str]:
        """The colour and the shape of a group."""
        if self.colours is not None:
            return {"color": PALETTE[self.colours[group] if group < len(self.colours) else "grey"], "symbol": "circle"}
        if self.names[group] in (OTHER, BLANK):
            return {"color": PALETTE["grey"], "symbol": "circle"}
        shape, colour = divmod(group, len(COLOURS))
        return {"color": PALETTE[COLOURS[colour]], "symbol": SHAPES[shape]}

    def of(self, rows: np.ndarray) -> Labels:
        """The groups of some of the points."""
        return replace(self, groups=self.groups[rows])

    def is_rest(self, group: int) -> bool:
        """Whether a group is what belongs to none."""
        return group >= len(self.colours) if self.colours is not None else self.names[group] in (OTHER, BLANK)


@dataclass(frozen=True, eq=False)
class Scale:
    """A number for each point."""

    title: str
    values: np.ndarray  # (N,) float32; NaN = missing

    def of(self, rows: np.ndarray) -> Scale:
        """The numbers of some of the points."""
        return replace(self, values=self.values[rows])


Colouring = Labels | Scale | None


def make_colouring(title: str, values: Sequence[Any]) -> Labels | Scale:
    """A scale for numbers with many distinct values, else labels."""
    numbers = _as_numbers(values)
    if numbers is not None and len(np.unique(numbers[np.isfinite(numbers)])) >= MIN_NUMBERS:
        return Scale(title, numbers)
    return make_labels(title, [BLANK if value is None or value == "" else str(value) for value in values])


def make_labels(title: str, values: Sequence[str]) -> Labels:
    """Group points by label; if there are more than MAX_LABELS, the smallest groups are merged into OTHER."""
    counts = Counter(values)
    ranked = [name for name, _ in counts.most_common() if name != BLANK]
    numbers = _as_numbers(ranked)
    if numbers is not None and np.isfinite(numbers).all() and len(ranked) <= MAX_LABELS:
        ranked = [ranked[i] for i in np.argsort(numbers, kind="stable")]
    names = ranked if len(ranked) <= MAX_LABELS else [*ranked[: MAX_LABELS - 1], OTHER]
    if BLANK in counts:
        names = [*names, BLANK]
    index = {name: i for i, name in enumerate(names)}
    other = index.get(OTHER, 0)
    return Labels(title, names, np.array([index.get(value, other) for value in values], dtype=np.int32))


def _as_numbers(values: Sequence[Any]) -> np.ndarray | None:
    """The values as float32 (N,), NaN where missing; None if one is not a number, or all are missing."""
    numbers = np.full(len(values), np.nan, dtype=np.float32)
    for i, value in enumerate(values):
        if value is None or value == "" or isinstance(value, bool):
            continue
        try:
            numbers[i] = float(value)
        except (TypeError, ValueError):
            return None
    return numbers if any(map(math.isfinite, numbers)) else None
