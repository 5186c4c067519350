"""The example pairs and lines that ship with the app, and random pairs of the STS benchmark with gold scores."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import NamedTuple

from training.assets import asset

FOLDER = asset("examples")
GOLD_LESSON = "A pair from STSb dev: compare the annotators' score with the models'."


class ExamplePair(NamedTuple):
    name: str
    a: str
    b: str
    lesson: str
    expected: tuple[float, float] | None = None  # where the scale's definitions place the pair, at least and at most
    gold: float | None = None  # the annotators' score, of a pair of STSb dev


@cache
def pairs() -> tuple[ExamplePair, ...]:
    return tuple(ExamplePair(**entry) for entry in json.loads((FOLDER / "pairs.json").read_text(encoding="utf-8")))


@cache
def lines() -> str:
    """The example of the many-sentences view, one sentence per line."""
    return (FOLDER / "lines.txt").read_text(encoding="utf-8").strip()


def example_of(a: str, b: str, drawn: ExamplePair | None = None) -> ExamplePair | None:
    """The example pair of these sentences, or the pair that was ``drawn`` if it is theirs."""
    known = [*pairs(), drawn] if drawn else pairs()
    return next((pair for pair in known if (pair.a, pair.b) == (a, b)), None)


def random_stsb_pair(home: Path) -> ExamplePair:
    """A random pair of STSb dev. InputError if the data cannot be loaded."""
    from training.data.load import load_data

    data = load_data("stsb:dev", home)
    row = random.randrange(len(data))
    scores = data.scores or []
    return ExamplePair("STSb dev", data.columns[0][row], data.columns[1][row], GOLD_LESSON, gold=float(scores[row]))
