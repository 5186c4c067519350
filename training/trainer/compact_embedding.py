"""The word embeddings in training: only the rows that the data uses, and of their gradient what a batch touches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CompactEmbedding(nn.Module):
    """Those word embeddings that the training data uses, as one small parameter.

    Adam leaves a row alone whose gradient has always been zero, so to train these rows only is to train all of
    them, at a third of the cost for the STS benchmark: the word embeddings are half of MiniLM's weights. Of their
    gradient a batch touches a few hundred rows; it is kept, and only those are written.
    """

    def __init__(self, table: nn.Embedding, used: Iterable[int] | None) -> None:
        super().__init__()
        place = table.weight.device
        self._table = [table]  # in a list, so that it is no parameter of this module
        self.used = torch.tensor(sorted(range(table.num_embeddings) if used is None else used), device=place)
        self.rows = nn.Parameter(table.weight.detach()[self.used].clone())
        self._position = torch.zeros(table.num_embeddings, dtype=torch.int64, device=place)
        self._position[self.used] = torch.arange(len(self.used), device=place)
        self._gradient = torch.zeros_like(self.rows)
        self._touched = torch.empty(0, dtype=torch.int64, device=place)

    def find(self, ids: Tensor) -> Tensor:
        """Token ids (…) -> their rows (…). Padding gets any row: it is masked everywhere."""
        return self._position[ids]

    def vectors(self, positions: Tensor) -> Tensor:
        """Rows (…) -> the vectors (…, D), cut off from the gradient of ``rows``."""
        return F.embedding(positions, self.rows.detach())

    def receive(self, found: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor]:
        """Make the gradient of ``rows`` from those of the vectors looked up: rows (…) and gradients (…, D).

        Its length is given back, or nothing if they are not trained.
        """
        if not found:
            return []
        positions, gradients = zip(*found, strict=True)
        self._gradient[self._touched] = 0
        self._touched = torch.cat([rows.flatten() for rows in positions])
        self._gradient.index_add_(0, self._touched, torch.cat([part.flatten(0, -2).float() for part in gradients]))
        self.rows.grad = self._gradient
        return [torch.linalg.vector_norm(self._gradient)]

    @torch.no_grad()
    def write_back(self) -> None:
        """Put the rows as they are now into the whole table."""
        self._table[0].weight[self.used] = self.rows
