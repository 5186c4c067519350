"""Texts that a model cannot judge: it knows none of their tokens, or its vectors for them are not finite.

Examples are emoji, or the letters of a language that the model was not made for. All of their
tokens are the unknown token, so that any two such texts would be similar. They are reported, and by
default never match.
"""

from collections.abc import Sequence

import numpy as np

from sbert_app.formats import format_count
from training.errors import InputError
from training.models.model import Model
from training.pooling import is_finite

# The most texts that a warning lists.
MOST_NUMBERED = 5


def unknown_warnings(
    models: Sequence[Model | None], texts: Sequence[str], names: Sequence[str] = ()
) -> list[str]:
    """A warning for each model that knows no token of some texts. It gives their names, or else their numbers."""
    warnings = []
    for model in models:
        if model is None:
            continue
        rows = np.flatnonzero(model.is_unknown(texts)).tolist()
        if rows:
            warnings.append(unknown_warning(model.name, rows, names))
    return warnings


def unknown_warning(model: str, rows: Sequence[int], names: Sequence[str] = ()) -> str:
    """The warning about the texts at these positions; ``names`` are the names of all texts, if they have names."""
    if names:
        what = " and ".join(names[row] for row in rows)
    else:
        numbers = [f"{row + 1:,}" for row in rows[:MOST_NUMBERED]]
        if len(rows) > MOST_NUMBERED:
            numbers.append("…")
        what = f"{format_count(len(rows), 'sentence')} (number {', '.join(numbers)})"
    return f"{model} knows no token of {what}: similarities with such text mean nothing."


def check_finite(model: Model, vectors: np.ndarray, names: Sequence[str] = ()) -> np.ndarray:
    """Returns the vectors if all are finite. Otherwise raises InputError, which states the first text that is wrong."""
    wrong = np.flatnonzero(~is_finite(vectors))
    if len(wrong):
        what = names[wrong[0]] if names else f"input {wrong[0] + 1}"
        raise InputError(
            f"{model.name} gives NaN or infinite numbers for {what}; choose another model or text"
        )
    return vectors
