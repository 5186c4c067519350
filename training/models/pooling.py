"""Pooling: from one vector per token to one vector per sentence.

Sentence-BERT (Reimers & Gurevych 2019, section 3) compares three strategies: the mean of all output vectors
(its default), their maximum over time, and the output of the CLS token. Each is a pure function

    (hidden (B, T, D), mask (B, T) bool or None) -> (B, D)

in the table ``POOLINGS``. The mask is False for padding, which never enters a pooled vector; None means no padding.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from training.errors import InputError

Pooling = Callable[[Tensor, Tensor | None], Tensor]


def mean(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Average over the real tokens, summed in float32. (B, T, D) -> (B, D) float32."""
    if mask is None:
        return hidden.mean(dim=1, dtype=torch.float32)
    total = hidden.masked_fill(~mask.unsqueeze(-1), 0).sum(dim=1, dtype=torch.float32)
    return total / mask.sum(dim=1, keepdim=True).clamp(min=1)


def max_over_time(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Maximum of each dimension over the real tokens. (B, T, D) -> (B, D) float32."""
    if mask is not None:
        hidden = hidden.masked_fill(~mask.unsqueeze(-1), torch.finfo(hidden.dtype).min)
    return hidden.amax(dim=1).float()


def cls(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Output vector of the first token, ``[CLS]`` or ``<s>``. (B, T, D) -> (B, D) float32."""
    return hidden[:, 0].float()


POOLINGS: dict[str, Pooling] = {"mean": mean, "max": max_over_time, "cls": cls}


def check_pooling(name: str | None) -> None:
    """InputError unless ``name`` is in ``POOLINGS`` or None."""
    if name is not None and name not in POOLINGS:
        raise InputError(f"pooling {name!r} is unknown; choose {', '.join(POOLINGS)}")
