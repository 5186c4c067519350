"""The example pairs and lines that ship, and random pairs of the STS benchmark with their gold scores."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[1] / "assets" / "examples"


class ExamplePair(NamedTuple):
    """Two sentences and what they teach."""

    name: str
    a: str
    b: str
    lesson: str


@cache
def pairs() -> tuple[ExamplePair, ...]:
    """The example pairs of the Compare page."""
    return tuple(ExamplePair(**entry) for entry in json.loads((FOLDER / "pairs.json").read_text(encoding="utf-8")))


@cache
def lines() -> str:
    """The example of the many-sentences view, one sentence a line."""
    return (FOLDER / "lines.txt").read_text(encoding="utf-8").strip()


def random_stsb_pair(home: Path) -> tuple[str, str, float]:
    """A pair of STSb dev and its gold score (0–5)."""
    from training.data import load_data

    data = load_data("stsb:dev", home)
    row = random.randrange(len(data))
    scores = data.scores or []
    return data.columns[0][row], data.columns[1][row], float(scores[row])
