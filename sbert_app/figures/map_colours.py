"""What the points of a map are coloured by: labels (a few colours and shapes) or numbers (one scale)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sbert_app.figures.style import PALETTE

COLOURS = ("blue", "orange", "green", "vermillion", "purple", "sky", "yellow")
SHAPES = ("circle", "diamond", "square")  # that 2-D and 3-D figures both have
MOST_LABELS = len(COLOURS) * len(SHAPES)  # told apart; the rest is grey
FEWEST_NUMBERS = 8  # different ones, from which on a column of numbers is a scale and no set of labels
OTHER, BLANK = "other", "(none)"


@dataclass(frozen=True, eq=False)
class Labels:
    """Which group each point is in."""

    title: str
    names: list[str]  # of the groups, the largest first
    groups: np.ndarray  # (N,) position in ``names``

    def style(self, group: int) -> dict[str, str]:
        """The colour and the shape of a group."""
        if self.names[group] in (OTHER, BLANK):
            return {"color": PALETTE["grey"], "symbol": "circle"}
        shape, colour = divmod(group, len(COLOURS))
        return {"color": PALETTE[COLOURS[colour]], "symbol": SHAPES[shape]}


@dataclass(frozen=True, eq=False)
class Scale:
    """A number for each point."""

    title: str
    values: np.ndarray  # (N,) float32; NaN = not known


Colouring = Labels | Scale | None


def make_colouring(title: str, values: Sequence[Any]) -> Labels | Scale:
    """A scale if these are numbers of many kinds, else labels."""
    numbers = _as_numbers(values)
    if numbers is not None and len(np.unique(numbers[np.isfinite(numbers)])) >= FEWEST_NUMBERS:
        return Scale(title, numbers)
    return make_labels(title, [BLANK if value is None or value == "" else str(value) for value in values])


def make_labels(title: str, values: Sequence[str]) -> Labels:
    """Groups by label; the smallest become one where there are too many to tell apart."""
    counts = Counter(values)
    ranked = [name for name, _ in counts.most_common() if name != BLANK]
    kept = ranked if len(ranked) <= MOST_LABELS else ranked[: MOST_LABELS - 1]
    names = [*kept]
    names += [OTHER] if len(kept) < len(ranked) else []
    names += [BLANK] if BLANK in counts else []
    places = {name: at for at, name in enumerate(names)}
    rest = places.get(OTHER, 0)
    return Labels(title, names, np.array([places.get(value, rest) for value in values], dtype=np.int32))


def _as_numbers(values: Sequence[Any]) -> np.ndarray | None:
    """float32 (N,), or None if a value is no number."""
    found = np.full(len(values), np.nan, dtype=np.float32)
    for at, value in enumerate(values):
        if value is None or value == "" or isinstance(value, bool):
            continue
        try:
            found[at] = float(value)
        except (TypeError, ValueError):
            return None
    return found if any(map(math.isfinite, found)) else None
