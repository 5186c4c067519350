"""What all objectives share."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

Vectors = Sequence[Tensor]  # one (B, D) float32 per column


def required(target: Tensor | None) -> Tensor:
    """The target, of an objective that needs one. TypeError without it: an error of the program."""
    if target is None:
        raise TypeError("this objective needs a target")
    return target
