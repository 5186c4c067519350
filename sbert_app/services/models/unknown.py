"""Texts about which a model says nothing: it knows none of their tokens, or gives no numbers for them.

Such are emoji, or the letters of a language that the model was not made for: all of their tokens are one, the unknown
one, so that any two of them are similar. A note marks them, and by default they are neither matches nor duplicates.
"""

from collections.abc import Sequence

import numpy as np

from sbert_app.formats import format_count
from training.errors import InputError
from training.models.model import Model
from training.pooling import is_finite

# The texts that a warning numbers.
MOST_NUMBERED = 5


def unknown_warnings(models: Sequence[Model | None], texts: Sequence[str], names: Sequence[str] = ()) -> list[str]:
    """A sentence for each model that knows no token of some of the texts, which names them or else numbers them."""
    rows_of = [(model.name, np.flatnonzero(model.is_unknown(texts)).tolist()) for model in models if model is not None]
    return [unknown_warning(model, rows, names) for model, rows in rows_of if rows]


def unknown_warning(model: str, rows: Sequence[int], names: Sequence[str] = ()) -> str:
    """The sentence about texts at these positions."""
    numbers = ", ".join(f"{row + 1:,}" for row in rows[:MOST_NUMBERED]) + ", …" * (len(rows) > MOST_NUMBERED)
    what = f"{format_count(len(rows), 'sentence')} (number {numbers})"
    what = " and ".join(names[row] for row in rows) if names else what
    return f"{model} knows no token of {what}: similarities with such text mean nothing."


def check_finite(model: Model, vectors: np.ndarray, names: Sequence[str] = ()) -> np.ndarray:
    """The vectors, if all are numbers. InputError, which names or numbers the first text whose vector is not."""
    if len(wrong := np.flatnonzero(~is_finite(vectors))):
        what = names[wrong[0]] if names else f"input {wrong[0] + 1}"
        raise InputError(f"{model.name} gives NaN or infinite numbers for {what}; choose another model or text")
    return vectors
