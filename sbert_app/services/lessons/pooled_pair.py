"""Lesson 2: one pair under mean, max and CLS pooling, and which words contribute to the cosine.

Uses `sbert_app.services.compare.comparison`: exact attribution for mean and max, leave-one-out for CLS. The quality of
each pooling is measured on pairs of STSb dev. Paper: section 3 and Table 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sbert_app.services.compare.comparison import Comparison, LeftOut, compare_by_name, leave_one_out
from sbert_app.services.lessons.sample import EncodedSample, encode_sample
from sbert_app.services.lessons.setup import STANDARD, Setup

if TYPE_CHECKING:
    from sbert_app.services.models.cache import ModelCache

PAIRS = 200


@dataclass(frozen=True)
class PooledPair:
    """A pair under one pooling, with its cosines under all."""

    comparison: Comparison
    left_out: list[LeftOut]  # under CLS, which has no exact attribution
    sample: EncodedSample

    @property
    def strongest(self) -> tuple[str, str, float] | None:
        """The word pair with the largest contribution, and the contribution; None under CLS."""
        exact = self.comparison.attribution
        if exact is None:
            return None
        row, column = divmod(int(exact.matrix.argmax()), exact.matrix.shape[1])
        return exact.words_a[row], exact.words_b[column], float(exact.matrix[row, column])


def measure(models: ModelCache, home: Path, a: str, b: str, pooling: str, setup: Setup = STANDARD) -> PooledPair:
    """Compare a pair. InputError if a sentence is empty, or the model or the data cannot be loaded."""
    comparison = compare_by_name(models, a, b, setup.model, pooling)
    changes = leave_one_out(models.encoder(setup.model, pooling), None, comparison) if pooling == "cls" else []
    return PooledPair(comparison, changes, encode_sample(models, home, setup.model, PAIRS, setup))
