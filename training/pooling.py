"""Pooling: from one vector per token to one vector per sentence.

Sentence-BERT (Reimers & Gurevych 2019, section 3) compares three strategies: the mean of all output vectors
(its default), their maximum over time, and the output of the CLS token. Later models add three: the last token (of
decoders, which read from left to right), a mean with weights that grow with the position (SGPT, Muennighoff 2022), and
the sum divided by the square root of the length (the transformer of Cer et al. 2018). Each is a pure
function

    (hidden (B, T, D), mask (B, T) bool or None) -> (B, D)

in the table ``POOLINGS``, with its words and, where the vector is a weighted sum, the weights of its tokens: a new
pooling is its function and its line there. The mask is False for padding, on either side, which never enters a pooled
vector; None means no padding. Names joined by "+", such as mean+max, concatenate: (B, 2D). `pooling_function` also
leaves a prompt out.
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

# The pooling of a model that has no tokens here.
NO_POOLING = "none"
# The poolings of Table 6, which the pages compare.
PAPER_POOLINGS = ("mean", "max", "cls")


class Pooling(NamedTuple):
    """A pooling, with its words and its weights."""

    pool: Pool
    label: str
    # The weight of each token in the sum, by the number of tokens and of those skipped at the start; None for no sum.
    weights: Callable[[int, int], list[float]] | None = None

    def __call__(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        return self.pool(hidden, mask)


def is_finite(results: np.ndarray) -> np.ndarray:
    """Whether each vector, or each score, is made of numbers alone: bool (N,)."""
    if np.isfinite(results.sum(dtype=np.float64)):
        return np.ones(len(results), dtype=bool)
    return np.isfinite(results.reshape(len(results), -1)).all(axis=1)


def normalize_rows(vectors: np.ndarray) -> np.ndarray:
    """Each row scaled to length 1, as for cosines; a row of zeros stays. Floats (N, D) -> the same dtype (N, D)."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def mean(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Average over the real tokens, summed in float32. (B, T, D) -> (B, D) float32."""
    # Torch is imported here and below, as the table must be quick to read.
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
    import torch

    if mask is None:
        return hidden[:, 0].float()
    return hidden[torch.arange(len(hidden), device=hidden.device), mask.int().argmax(dim=1)].float()


def last_token(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Output vector of the last real token. (B, T, D) -> (B, D) float32."""
    import torch

    if mask is None:
        return hidden[:, -1].float()
    last = mask.shape[1] - 1 - mask.flip(1).int().argmax(dim=1)
    return hidden[torch.arange(len(hidden), device=hidden.device), last].float()


def weighted_mean(hidden: Tensor, mask: Tensor | None, skipped: int = 0) -> Tensor:
    """Average over the real tokens with the weights 1, 2, 3, … (B, T, D) -> (B, D) float32.

    ``skipped`` tokens came before the first one, and have taken the first weights.
    """
    import torch

    if mask is None:
        weights = torch.arange(1.0, hidden.shape[1] + 1, device=hidden.device)[None] + skipped  # (1, T)
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


POOLINGS = {
    "mean": Pooling(mean, "mean", lambda length, skipped: [1 / max(1, length - skipped)] * length),
    "max": Pooling(max_over_time, "max"),
    "cls": Pooling(first_token, "CLS"),
    "lasttoken": Pooling(last_token, "last-token"),
    "weightedmean": Pooling(
        weighted_mean,
        "weighted-mean",
        lambda length, skipped: [i / max(1, sum(range(skipped + 1, length + 1))) for i in range(1, length + 1)],
    ),
    "mean_sqrt_len_tokens": Pooling(
        mean_sqrt_len, "mean × √length", lambda length, skipped: [max(1, length - skipped) ** -0.5] * length
    ),
}


def poolings() -> dict[str, Pooling]:
    """The built-in poolings and those of plug-ins, by name."""
    return POOLINGS | {name: pooling for name, pooling in plugins(Pooling).items() if name not in POOLINGS}


def pooling_label(name: str) -> str:
    """A pooling in words, such as "CLS", or "mean + max" for a concatenation."""
    table = poolings()
    return " + ".join(table[part].label if part in table else part for part in name.split("+"))


def parse_pooling(name: str) -> tuple[str, ...]:
    """The poolings that ``name`` concatenates, in order; mostly one. InputError if one is unknown."""
    parts = tuple(name.split("+"))
    if any(part not in POOLINGS for part in parts):
        table = poolings()
        if not set(parts) <= set(table):
            raise InputError(f"pooling {name!r} is unknown; choose {', '.join(table)}, or several joined by +")
    return parts


def pooling_function(name: str, skipped: int = 0) -> Pool:
    """The function of a name, or of several joined by "+": (B, T, D), mask -> (B, D), or (B, kD) for k names.

    The first ``skipped`` tokens of each sentence, those of a prompt, do not enter the vector.
    """
    parts = parse_pooling(name)
    functions = [POOLINGS[part] if part in POOLINGS else poolings()[part] for part in parts]
    if len(parts) == 1 and not skipped:
        return functions[0].pool

    import torch

    def pool(hidden: Tensor, mask: Tensor | None) -> Tensor:
        if skipped:
            mask = _without_first(hidden, mask, skipped)
        vectors = [
            weighted_mean(hidden, mask, skipped) if function.pool is weighted_mean else function(hidden, mask)
            for function in functions
        ]
        return torch.cat(vectors, dim=1)

    return pool


def _without_first(hidden: Tensor, mask: Tensor | None, skipped: int) -> Tensor:
    """The mask (B, T) without the first ``skipped`` real tokens of each row, but always with the last."""
    import torch

    real = torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device) if mask is None else mask
    number = real.cumsum(dim=1)
    return real & (number > torch.clamp(number[:, -1:] - 1, max=skipped))
