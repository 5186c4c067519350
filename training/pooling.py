"""Pooling: from one vector per token to one vector per sentence.

Sentence-BERT (Reimers & Gurevych 2019, section 3) compares three strategies: the mean of all output
vectors (its default), their maximum over time, and the output of the CLS token. Later models add
three: the last token (for decoders, which read from left to right), a mean with weights that grow
with the position (SGPT, Muennighoff 2022), and the sum divided by the square root of the length
(the transformer of Cer et al. 2018). Each is a pure function

    (hidden (B, T, D), mask (B, T) bool or None) -> (B, D)

in the table ``POOLINGS``, with its label and, for weighted sums, the weights of the tokens. To add
a pooling, write its function and add a line to the table. The mask is False for padding, on either
side, which never enters a pooled vector. None means no padding. Names joined by "+", such as
mean+max, concatenate vectors: (B, 2D). `pooling_function` can also leave a prompt out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from training.errors import InputError
from training.plugins import plugins

if TYPE_CHECKING:
    from torch import Tensor

Pool: TypeAlias = "Callable[[Tensor, Tensor | None], Tensor]"

# The pooling of models that do not give token vectors.
NO_POOLING = "none"
# The poolings of Table 6, which the pages compare.
PAPER_POOLINGS = ("mean", "max", "cls")


class Pooling(NamedTuple):
    """A pooling function, with its label and its weights."""

    pool: Pool
    label: str
    # The weight of each token in the sum, from the numbers of tokens and of skipped tokens; None if
    # it is not a sum.
    weights: Callable[[int, int], list[float]] | None = None

    def __call__(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        return self.pool(hidden, mask)


def is_finite(results: np.ndarray) -> np.ndarray:
    """Tells for each vector, or each score, whether it is finite: bool (N,)."""
    # A sum is finite only if every number is. Usually this one pass is enough.
    if np.isfinite(results.sum(dtype=np.float64)):
        return np.ones(len(results), dtype=bool)
    return np.isfinite(results.reshape(len(results), -1)).all(axis=1)


def normalize_rows(vectors: np.ndarray) -> np.ndarray:
    """Scales each row to length 1. Zero rows stay zero. Floats (N, D) -> the same dtype (N, D)."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, 1e-12)


def mean(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Average over the real tokens, summed in float32. (B, T, D) -> (B, D) float32."""
    # Commands read the table without torch, which takes seconds to import.
    import torch

    if mask is None:
        return hidden.mean(dim=1, dtype=torch.float32)
    total = hidden.masked_fill(~mask.unsqueeze(-1), 0).sum(dim=1, dtype=torch.float32)
    return total / mask.sum(dim=1, keepdim=True).clamp(min=1)


def max_over_time(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Maximum of each dimension over the real tokens. (B, T, D) -> (B, D) float32."""
    import torch

    if mask is not None:
        hidden = hidden.masked_fill(~mask.unsqueeze(-1), torch.finfo(hidden.dtype).min)
    return hidden.amax(dim=1).float()


def first_token(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Output vector of the first real token, ``[CLS]`` or ``<s>``. (B, T, D) -> (B, D) float32."""
    if mask is None:
        return hidden[:, 0].float()
    # argmax returns the position of the first True.
    first = mask.int().argmax(dim=1)  # (B,)
    return hidden.take_along_dim(first[:, None, None], dim=1)[:, 0].float()


def last_token(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Output vector of the last real token. (B, T, D) -> (B, D) float32."""
    if mask is None:
        return hidden[:, -1].float()
    # argmax returns the position of the first True, counted from the end of the row.
    last = mask.shape[1] - 1 - mask.flip(1).int().argmax(dim=1)  # (B,)
    return hidden.take_along_dim(last[:, None, None], dim=1)[:, 0].float()


def weighted_mean(hidden: Tensor, mask: Tensor | None, skipped: int = 0) -> Tensor:
    """Average over the real tokens with the weights 1, 2, 3, … (B, T, D) -> (B, D) float32.

    With ``skipped`` tokens of a prompt, which are not in the sum, the weights begin at skipped + 1.
    """
    if mask is None:
        # (1, T)
        weights = hidden.new_ones(1, hidden.shape[1]).float().cumsum(dim=1) + skipped
    else:
        weights = ((mask.cumsum(dim=1) + skipped) * mask).float()
        hidden = hidden.masked_fill(~mask.unsqueeze(-1), 0)
    total = (hidden.float() * weights.unsqueeze(-1)).sum(dim=1)
    return total / weights.sum(dim=1, keepdim=True).clamp(min=1)


def mean_sqrt_len(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Sum over the real tokens, divided by the square root of their number. (B, T, D) -> (B, D) float32."""
    import torch

    if mask is None:
        return hidden.sum(dim=1, dtype=torch.float32) / hidden.shape[1] ** 0.5
    total = hidden.masked_fill(~mask.unsqueeze(-1), 0).sum(dim=1, dtype=torch.float32)
    return total / mask.sum(dim=1, keepdim=True).clamp(min=1).sqrt()


def _growing_weights(length: int, skipped: int) -> list[float]:
    """Returns the weights of `weighted_mean`. They sum to 1 over the tokens that are not skipped."""
    total = max(1, sum(range(skipped + 1, length + 1)))
    return [number / total for number in range(1, length + 1)]


POOLINGS = {
    "mean": Pooling(mean, "mean", lambda length, skipped: [1 / max(1, length - skipped)] * length),
    "max": Pooling(max_over_time, "max"),
    "cls": Pooling(first_token, "CLS"),
    "lasttoken": Pooling(last_token, "last-token"),
    "weightedmean": Pooling(weighted_mean, "weighted-mean", _growing_weights),
    "mean_sqrt_len_tokens": Pooling(
        mean_sqrt_len,
        "mean × √length",
        lambda length, skipped: [max(1, length - skipped) ** -0.5] * length,
    ),
}


def poolings() -> dict[str, Pooling]:
    """Returns all poolings by name, built-in ones and the ones that plug-ins add."""
    # The built-in poolings come first, and a plug-in cannot replace one.
    return POOLINGS | plugins(Pooling) | POOLINGS


def pooling_label(name: str) -> str:
    """Returns the label of a pooling, such as "CLS", or "mean + max" for a concatenation."""
    table = poolings()
    return " + ".join(table[part].label if part in table else part for part in name.split("+"))


def parse_pooling(name: str) -> tuple[str, ...]:
    """Splits a name into the poolings that it concatenates, usually one. InputError if one is unknown."""
    parts = tuple(name.split("+"))
    # Plug-ins are loaded only for names that are not built in.
    if not set(parts) <= set(POOLINGS):
        table = poolings()
        if not set(parts) <= set(table):
            raise InputError(
                f"pooling {name!r} is unknown; choose {', '.join(table)}, or several joined by +"
            )
    return parts


def pooling_function(name: str, skipped: int = 0) -> Pool:
    """Returns the function (B, T, D), mask -> (B, D) of a name. It returns (B, kD) for k names joined by "+".

    The first ``skipped`` tokens of each sentence, which belong to a prompt, do not enter the
    vector.
    """
    functions = []
    # Plug-ins are loaded only for names that are not built in.
    for part in parse_pooling(name):
        functions.append(POOLINGS[part] if part in POOLINGS else poolings()[part])
    if len(functions) == 1 and not skipped:
        return functions[0].pool

    import torch

    def pool(hidden: Tensor, mask: Tensor | None) -> Tensor:
        if skipped:
            mask = _without_first(hidden, mask, skipped)
        vectors = []
        for function in functions:
            # The weights of this pooling also count the skipped tokens.
            if function.pool is weighted_mean:
                vectors.append(weighted_mean(hidden, mask, skipped))
            else:
                vectors.append(function(hidden, mask))
        return torch.cat(vectors, dim=1)

    return pool


def _without_first(hidden: Tensor, mask: Tensor | None, skipped: int) -> Tensor:
    """Removes the first ``skipped`` real tokens of each row from the mask (B, T), but never the last one."""
    if mask is None:
        mask = hidden.new_ones(hidden.shape[:2]).bool()
    numbers = mask.cumsum(dim=1)  # (B, T), the real tokens of a row counted from 1
    counts = numbers[:, -1:]  # (B, 1)
    skipped_of_rows = (counts - 1).clamp(max=skipped)
    return mask & (numbers > skipped_of_rows)
