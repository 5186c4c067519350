"""The example pairs and lines that ship with the app, and random pairs of the STS benchmark with gold scores."""

import json
import random
from functools import cache
from pathlib import Path
from typing import NamedTuple

from training.catalogue import asset
from training.data.load import load_data

FOLDER = asset("examples")
GOLD_LESSON = "A pair from STSb dev: compare the annotators' score with the models'."


class ExamplePair(NamedTuple):
    """Two sentences that teach something.

    Attributes:
        expected: the range of scores that the definitions of the scale allow for the pair.
        gold: the score of the annotators, for a pair of STSb dev.
    """

    name: str
    a: str
    b: str
    lesson: str
    expected: tuple[float, float] | None = None
    gold: float | None = None


@cache
def pairs() -> tuple[ExamplePair, ...]:
    """The example pairs that ship with the app."""
    return tuple(ExamplePair(**entry) for entry in json.loads((FOLDER / "pairs.json").read_text(encoding="utf-8")))


@cache
def lines() -> str:
    """The example of the many-sentences view, one sentence per line."""
    return (FOLDER / "lines.txt").read_text(encoding="utf-8").strip()


def example_of(a: str, b: str, random_pair: ExamplePair | None = None) -> ExamplePair | None:
    """The example pair of these sentences, also if it is ``random_pair``."""
    examples = [*pairs(), random_pair] if random_pair else pairs()
    return next((pair for pair in examples if (pair.a, pair.b) == (a, b)), None)


def random_stsb_pair(home: Path) -> ExamplePair:
    """A random pair of STSb dev. InputError if the data cannot be loaded."""
    data = load_data("stsb:dev", home)
    row = random.randrange(len(data))
    scores = data.scores or []
    return ExamplePair("STSb dev", data.columns[0][row], data.columns[1][row], GOLD_LESSON, gold=float(scores[row]))


def error_of_model(score: float, gold: float | None, expected: tuple[float, float] | None) -> str:
    """A sentence on a score, on the gold scale, that is a point or more off the annotators'; "" for a good score.

    Without a gold score, it has to be in the range that the definitions of the scale allow.
    """
    if gold is not None:
        is_wrong = abs(score - gold) >= 1
        return f"The model is wrong here: {score:.1f} of 5, and the annotators say {gold:.1f}." if is_wrong else ""
    if expected is None or expected[0] <= round(score, 1) <= expected[1]:
        return ""
    bound = f"{expected[1]:g} at most" if score > expected[1] else f"{expected[0]:g} at least"
    return f"The model is wrong here: on this scale such a pair should get {bound}."
