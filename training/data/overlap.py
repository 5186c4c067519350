"""How much of the evaluation data is in the training data: a figure on what a model has read says too much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, combinations

from training.data.dataset import Dataset, folded


@dataclass(frozen=True)
class Overlap:
    """Rows of evaluation data that the training data has, in part or whole, case and white space aside."""

    data: str  # the name of the evaluation data
    kind: str  # of its rows: scored pairs …
    rows: int
    equal: int  # whose sentences stand together in a row of the training data, in any order
    shared: int  # with a sentence that is in the training data; the equal rows are among them

    def __str__(self) -> str:
        of = f"{self.rows:,} {self.kind} of {self.data}"
        if not self.shared:
            return f"none of the {of} share a sentence with the training data"
        return f"{self.equal:,} of {of} are in the training data, {self.shared:,} share a sentence with it"


def overlap(data: Dataset, training: Sequence[Dataset]) -> Overlap:
    """Compare the rows of ``data`` with those of all the ``training`` data."""
    rows = [tuple(map(folded, row)) for part in training for row in zip(*part.columns, strict=True)]
    known = {frozenset(part) for row in rows for part in combinations(row, len(data.columns))}
    sentences = set(chain.from_iterable(rows))
    asked = [frozenset(map(folded, row)) for row in zip(*data.columns, strict=True)]
    equal, shared = (
        sum(found) for found in ((each in known for each in asked), map(bool, map(sentences.intersection, asked)))
    )
    return Overlap(data.name, data.kind, len(data), equal, shared)
