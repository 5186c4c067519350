"""Example pairs and lines that ship with the app, and random pairs of the STS benchmark with gold scores."""

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
        expected: the lowest and the highest score that the definitions of the scale allow.
        gold: the score of the annotators from 0 to 5, if the pair is from STSb dev.
    """

    name: str
    a: str
    b: str
    lesson: str
    expected: tuple[float, float] | None = None
    gold: float | None = None


@cache
def pairs() -> tuple[ExamplePair, ...]:
    """Returns the example pairs that ship with the app."""
    entries = json.loads((FOLDER / "pairs.json").read_text(encoding="utf-8"))
    return tuple(ExamplePair(**entry) for entry in entries)


@cache
def lines() -> str:
    """Returns the example of the tab Many sentences, one sentence per line."""
    return (FOLDER / "lines.txt").read_text(encoding="utf-8").strip()


def example_of(a: str, b: str, random_pair: ExamplePair | None = None) -> ExamplePair | None:
    """Returns the example pair with these sentences, which may be ``random_pair``."""
    for pair in (*pairs(), random_pair):
        if pair and (pair.a, pair.b) == (a, b):
            return pair
    return None


def random_stsb_pair(home: Path) -> ExamplePair:
    """Returns a random pair of STSb dev. Raises InputError if the data cannot be loaded."""
    data = load_data("stsb:dev", home)
    row = random.randrange(len(data))
    first, second = data.columns
    # STSb has scores, so the list is never empty here. The type of a data set allows None.
    scores = data.scores or []
    return ExamplePair("STSb dev", first[row], second[row], GOLD_LESSON, gold=float(scores[row]))


def error_of_model(score: float, gold: float | None, expected: tuple[float, float] | None) -> str:
    """Returns a sentence if a score from 0 to 5 is wrong, and "" if it is not.

    A score is wrong if it differs from the ``gold`` score by a point or more, or, without a gold
    score, if it is not between the two bounds of ``expected``.
    """
    if gold is not None:
        if abs(score - gold) < 1:
            return ""
        return f"The model is wrong here: {score:.1f} of 5, and the annotators say {gold:.1f}."
    if expected is None:
        return ""
    lowest, highest = expected
    if lowest <= round(score, 1) <= highest:
        return ""
    bound = f"{highest:g} at most" if score > highest else f"{lowest:g} at least"
    return f"The model is wrong here: on this scale such a pair should get {bound}."
