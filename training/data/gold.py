"""Columns of gold scores and labels, and how their cells are read.

Training and evaluation data is read as a whole: scores are stretched to 0–5 by the scale that they seem to have
(`to_gold`), labels are numbered (`number_labels`). A file to score is read in batches, and its first rows decide
(`GoldColumn`): labels of inference become entailment 1, neutral 0, contradiction −1; of other labels a match is 1 and
the rest 0. Which pairs count as matches is decided at the end, when all values have been read (`matches_of`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from training.catalogue import NEGATIVE_LABELS, NLI_LABELS, POSITIVE_LABELS
from training.data.tables.columns import (
    LABELS,
    NLI_PAIR,
    PairColumns,
    as_text,
    bad_number,
    normalize_name,
    parse_number,
)
from training.data.tables.rows import RowBatch
from training.errors import InputError

# Gold scores run from 0 (nothing in common) to 5 (the same meaning).
TOP_SCORE = 5.0
# Gold scores from here on make a positive pair, up to there a negative one.
POSITIVE_FROM, NEGATIVE_TO = 4.0, 1.5
SCORE_SCALES = ((0.0, 1.0), (0.0, 5.0), (-1.0, 1.0), (0.0, 10.0), (0.0, 100.0))
MISSING = frozenset({"", "-", "-1", "nan", "none", "null"})
# More labels are no classes but something else, such as sentences.
MOST_LABELS = 1_000
# Rows that decide how a column of a file to score is read.
LOOKED_AT = 50

ENTAILMENT, LABEL, NUMBER = "entailment", "label", "number"
NLI_VALUES = dict(zip(NLI_LABELS, (1.0, 0.0, -1.0), strict=True))
NLI_NUMBERS = dict(zip(("0", "1", "2"), NLI_VALUES.values(), strict=True))
WORDS = {**dict.fromkeys(NEGATIVE_LABELS, 0.0), **dict.fromkeys(POSITIVE_LABELS, 1.0)}


def label_text(cell: Any) -> str:
    """The name of a label: 3, "3" and 3.0 are one, and so are "Neutral" and "neutral"."""
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    return str(cell).strip().lower()


def is_missing(cell: Any) -> bool:
    """Whether this cell says that a row has no label or no score."""
    return cell is None or str(cell).strip().lower() in MISSING


def scale_of(low: float, high: float) -> tuple[float, float] | None:
    """The first of `SCORE_SCALES` that holds every score from ``low`` to ``high``; None if none does."""
    return next(((bottom, top) for bottom, top in SCORE_SCALES if bottom <= low and high <= top), None)


def is_label_column(name: str, cells: Sequence[Any], first: str = "", second: str = "") -> bool:
    """Whether a column holds labels, by its name, or because it has words, 0 and 1, or numbers of inference labels.

    ``first`` and ``second`` are the names of the columns of sentences.
    """
    if normalize_name(name) in LABELS:
        return True
    numbers = {parse_number(text) for cell in cells if (text := as_text(cell)) is not None}
    is_inference = (normalize_name(first), normalize_name(second)) == NLI_PAIR
    return None in numbers or numbers <= {0.0, 1.0} or (is_inference and numbers <= {0.0, 1.0, 2.0})


# ---------------------------------------------------------------- a whole column


def are_fractions(cells: Sequence[Any]) -> bool:
    """Whether a "label" column holds numbers that are not all whole, as the similarity labels of other tools."""
    numbers = [parse_number(cell) for cell in cells if not is_missing(cell)]
    return None not in numbers and any(number % 1 for number in filter(None, numbers))


def read_scores(name: str, cells: Sequence[Any], rows: Sequence[int]) -> tuple[list[float], str]:
    """Gold scores and a note as of `to_gold`; InputError for a cell that is no number, with its number of ``rows``."""
    scores = []
    for row, cell in zip(rows, cells, strict=True):
        if (number := parse_number(cell)) is None:
            raise InputError(f"{name}, {bad_number('score', cell, row)}")
        scores.append(number)
    return to_gold(name, scores)


def to_gold(name: str, scores: list[float]) -> tuple[list[float], str]:
    """The scores on the scale 0–5, and a note on the change, "" if they were on that scale already.

    The scale is the first of `SCORE_SCALES` that holds every score: a file whose scores all lie in 0–1 is taken to
    be in 0–1. InputError if none does.
    """
    low, high = min(scores), max(scores)
    scale = scale_of(low, high)
    if scale is None:
        raise InputError(
            f"the scores of {name} run from {low:g} to {high:g}; give them in 0–5, 0–1, -1–1, 0–10 or 0–100"
        )
    if scale == (0.0, TOP_SCORE):
        return scores, ""
    bottom, top = scale
    gold = [(score - bottom) / (top - bottom) * TOP_SCORE for score in scores]
    return gold, f"scores from {bottom:g} to {top:g} stretched to 0–5"


def number_labels(name: str, cells: Sequence[Any]) -> tuple[list[int], tuple[str, ...], str]:
    """The numbers of labels, their names and a note. Labels of inference have the Hub's order, others are sorted."""
    texts = [label_text(cell) for cell in cells]
    distinct, names, note = set(texts), NLI_LABELS, ""
    if distinct == {"0", "1", "2"}:
        texts = [NLI_LABELS[int(text)] for text in texts]
        note = f"labels 0, 1, 2 read as {', '.join(NLI_LABELS)}"
    elif not distinct <= set(NLI_LABELS):
        names = tuple(sorted(distinct, key=lambda text: (len(text), text) if text.isdigit() else (99, text)))
        if len(names) > MOST_LABELS:
            raise InputError(
                f"{name} has {len(names):,} different labels, the first {names[0][:40]!r}; a label is one of "
                f"at most {MOST_LABELS}"
            )
    number = {text: at for at, text in enumerate(names)}
    return [number[text] for text in texts], names, note


# ---------------------------------------------------------------- a column in batches


@dataclass(frozen=True)
class GoldColumn:
    """The reading of a gold column."""

    name: str
    kind: str = NUMBER
    # The values of labels by their text in lower case; None for numbers.
    values: Mapping[str, float] | None = None

    @classmethod
    def of(cls, head: RowBatch, columns: PairColumns) -> GoldColumn | None:
        """The reading that the first rows suggest; None without a gold column, or if its labels mean nothing here."""
        name = columns.score or columns.label
        if name is None:
            return None
        texts = {label_text(cell) for cell in head.rows[name][:LOOKED_AT] if as_text(cell) is not None}
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
        labels = self.values
        values = [parse_number(cell) if labels is None else labels.get(label_text(cell)) for cell in cells]
        wrong = "is not a number" if labels is None else f"is none of {', '.join(labels)}"
        bad = {
            row: bad_number(self.name, cell).replace("is not a number", wrong)
            for row, cell in enumerate(cells)
            if values[row] is None and cell is not None and label_text(cell) not in ("", "-1")
        }
        return np.array([math.nan if value is None else value for value in values]), bad


def matches_of(values: np.ndarray, kind: str) -> tuple[np.ndarray, str] | None:
    """The rows that are matches, bool (N,), and the definition of a match; None where the values do not tell.

    ``values`` (N,) are those of `GoldColumn.read`, none of them NaN. A match is entailment against the rest; 1 against
    0; or a gold score of at least 4 on the scale 0 to 5, whatever scale the file has.
    """
    if kind == ENTAILMENT:
        matches, meaning = values == 1, "entailment is a match, neutral and contradiction are not"
    elif kind == LABEL:
        matches, meaning = values == 1, "what is labelled as the same is a match"
    elif set(values.tolist()) == {0.0, 1.0}:
        matches, meaning = values == 1, "1 is a match, 0 is not"
    elif len(values) and (scale := scale_of(values.min(), values.max())):
        least = scale[0] + POSITIVE_FROM / TOP_SCORE * (scale[1] - scale[0])
        matches, meaning = values >= least, f"a gold score of at least {least:g} (of {scale[1]:g}) is a match"
    else:
        return None
    return None if matches.all() or not matches.any() else (matches, meaning)
