"""What can be put around any objective: vectors of length 1, and several dimensions at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from training.objectives.base import Vectors


class Normalized(nn.Module):
    """An objective on vectors scaled to length 1, for models whose own output is.

    Args:
        objective: any.
    """

    def __init__(self, objective: nn.Module) -> None:
        super().__init__()
        self.objective = objective

    def forward(self, vectors: Vectors, target: Tensor | None = None) -> Tensor:
        return self.objective([F.normalize(column, dim=1) for column in vectors], target)


class Matryoshka(nn.Module):
    """An objective at several dimensions: the sum of its losses on the first d dimensions, scaled to length 1.

    So a vector can be truncated to any of these d after training. Targets that are vectors are truncated too.

    Source: Kusupati et al. 2022, "Matryoshka Representation Learning", equation 1, with weights of 1;
    `MatryoshkaLoss` in sentence-transformers.

    Args:
        objective: any.
        dims: d, from 1 to D.
    """

    def __init__(self, objective: nn.Module, dims: Sequence[int]) -> None:
        super().__init__()
        self.objective, self.dims = objective, tuple(sorted(dims, reverse=True))

    def forward(self, vectors: Vectors, target: Tensor | None = None) -> Tensor:
        def loss(dim: int) -> Tensor:
            short = target[..., :dim] if target is not None and target.ndim == 3 else target
            return self.objective([F.normalize(column[:, :dim], dim=1) for column in vectors], short)

        first, *others = map(loss, self.dims)
        return sum(others, first)
