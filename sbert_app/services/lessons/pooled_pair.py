"""Lesson 2: one pair under mean, max and CLS, and which words make the cosine.

Everything comes from `sbert_app.services.compare.comparison`: the exact word map for mean and max, words left out
for CLS. How good each reading is, is measured on pairs of STSb dev. Paper: section 3 and Table 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sbert_app.services.compare.comparison import Comparison, LeftOut, compare_by_name, leave_one_out
from sbert_app.services.lessons.sample import Encoded, encoded
from training.registry import DEFAULT_MODEL

if TYPE_CHECKING:
    from sbert_app.services.models.cache import ModelCache

PAIRS = 200


@dataclass(frozen=True)
class PooledPair:
    """A pair under one pooling, with its cosines under all."""

    comparison: Comparison
    left_out: list[LeftOut]  # under CLS, where no map exists
    sample: Encoded

    @property
    def strongest(self) -> tuple[str, str, float] | None:
        """The word pair that adds most, and what it adds; None under CLS."""
        exact = self.comparison.attribution
        if exact is None:
            return None
        row, column = divmod(int(exact.matrix.argmax()), exact.matrix.shape[1])
        return exact.words_a[row], exact.words_b[column], float(exact.matrix[row, column])


def measure(shelf: ModelCache, home: Path, a: str, b: str, pooling: str) -> PooledPair:
    """InputError if a sentence is empty, or model or data cannot be had."""
    found = compare_by_name(shelf, a, b, DEFAULT_MODEL, pooling)
    changes = leave_one_out(shelf.encoder(DEFAULT_MODEL, pooling), None, found) if pooling == "cls" else []
    return PooledPair(found, changes, encoded(shelf, home, DEFAULT_MODEL, PAIRS))
