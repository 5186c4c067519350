"""The gold column of a file: numbers, or labels of duplicates (yes, no) and of inference, which become numbers.

Labels of inference are ordered: entailment 1, neutral 0, contradiction −1; of other labels a match is 1 and the rest 0.
Which pairs count as matches is decided at the end, when all values are known (`matches_of`): entailment against the
rest; 1 against 0; or a gold score of at least 4 on the scale 0 to 5, whatever scale the file has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from training.catalogue import NEGATIVE_LABELS, NLI_LABELS, POSITIVE_LABELS
from training.data.dataset import SCORE_SCALES, TOP_SCORE, label_text
from training.data.tables.columns import NLI_PAIR, PairColumns, bad_number, normalize_name, parse_number
from training.data.tables.rows import RowBatch
from training.data.transforms import POSITIVE_FROM

NLI_VALUES = dict(zip(NLI_LABELS, (1.0, 0.0, -1.0), strict=True))
NLI_NUMBERS = dict(zip(("0", "1", "2"), NLI_VALUES.values(), strict=True))
WORDS = {**dict.fromkeys(NEGATIVE_LABELS, 0.0), **dict.fromkeys(POSITIVE_LABELS, 1.0)}
LOOKED_AT = 50  # rows that decide how the column is read
ENTAILMENT, LABEL, NUMBER = "entailment", "label", "number"


@dataclass(frozen=True)
class GoldColumn:
    """How the cells of a gold column are read."""

    name: str
    kind: str = NUMBER
    values: Mapping[str, float] | None = None  # of labels, by their text in lower case; None for numbers

    @classmethod
    def of(cls, head: RowBatch, columns: PairColumns) -> GoldColumn | None:
        """As the first rows say; None for a table without a gold column, or with labels of which none is known."""
        name = columns.score or columns.label
        if name is None:
            return None
        texts = {label_text(cell) for cell in head.rows[name][:LOOKED_AT] if not _is_empty(cell)}
        is_inference = (normalize_name(columns.sentence1), normalize_name(columns.sentence2)) == NLI_PAIR
        if texts and texts <= set(NLI_VALUES):
            return cls(name, ENTAILMENT, NLI_VALUES)
        if is_inference and texts and texts <= set(NLI_NUMBERS):
            return cls(name, ENTAILMENT, NLI_NUMBERS)
        if texts and texts <= set(WORDS) and any(parse_number(text) is None for text in texts):
            return cls(name, LABEL, WORDS)
        return cls(name) if columns.score is not None else None

    def read(self, cells: Sequence[Any]) -> tuple[np.ndarray, dict[int, str]]:
        """Values (rows,), NaN where there is none, and a note for each cell that is neither empty nor understood."""
        known = self.values
        values = [parse_number(cell) if known is None else known.get(label_text(cell)) for cell in cells]
        wrong = "is not a number" if known is None else f"is none of {', '.join(known)}"
        bad = {
            row: bad_number(self.name, cell).replace("is not a number", wrong)
            for row, cell in enumerate(cells)
            if values[row] is None and not _is_empty(cell) and label_text(cell) != "-1"
        }
        return np.array([math.nan if value is None else value for value in values]), bad


def matches_of(values: np.ndarray, kind: str) -> tuple[np.ndarray, str] | None:
    """Which rows are matches, bool (N,), and what counts as one; None where the values do not say it.

    ``values`` (N,) are those of `GoldColumn.read`, none of them NaN.
    """
    found: tuple[np.ndarray, str] | None = None
    if kind == ENTAILMENT:
        found = values == 1, "entailment is a match, neutral and contradiction are not"
    elif kind == LABEL or set(np.unique(values).tolist()) == {0.0, 1.0}:
        found = values == 1, "1 is a match, 0 is not" if kind == NUMBER else "what is labelled as the same is a match"
    elif len(values):
        scale = next(((a, b) for a, b in SCORE_SCALES if a <= values.min() and values.max() <= b), None)
        if scale is not None:
            least = scale[0] + POSITIVE_FROM / TOP_SCORE * (scale[1] - scale[0])
            found = values >= least, f"a gold score of at least {least:g} (of {scale[1]:g}) is a match"
    return None if found is None or found[0].all() or not found[0].any() else found


def _is_empty(cell: Any) -> bool:
    return cell is None or not str(cell).strip()
