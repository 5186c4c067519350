"""Word embeddings restricted to the token ids that occur in the training data, with a sparsely written gradient."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CompactEmbedding(nn.Module):
    """The V' rows of an embedding table that the training data uses, as one trainable parameter.

    Adam without weight decay leaves a row alone whose gradient has always been zero. So training only the rows in use
    is exact, and on the STS benchmark costs a third: half of MiniLM's weights are word embeddings. A batch touches a
    few hundred rows; the gradient buffer is kept and only those rows are zeroed and rewritten.

    Args:
        table: the whole embedding, V rows. It is updated by `write_back` only.
        used: the token ids in use; None for all of them.
    """

    def __init__(self, table: nn.Embedding, used: Iterable[int] | None) -> None:
        super().__init__()
        device = table.weight.device
        # Gemma multiplies the vectors that it looks up, and takes those that it is given as they are.
        self.scale = float(getattr(table, "scalar_embed_scale", 1.0))
        self._table = [table]  # in a list, so that it is not registered as a submodule
        self.used = torch.tensor(sorted(range(table.num_embeddings) if used is None else used), device=device)
        self.weight = nn.Parameter(table.weight.detach()[self.used].clone())  # (V', D) float32
        self._row_of = torch.zeros(table.num_embeddings, dtype=torch.int64, device=device)
        self._row_of[self.used] = torch.arange(len(self.used), device=device)
        # torch.nn.Embedding never trains this row, which some models also use as the last token of a text.
        self._untrained = (self.used == (-1 if table.padding_idx is None else table.padding_idx)).nonzero().flatten()
        self._gradient = torch.zeros_like(self.weight)
        self._touched = torch.empty(0, dtype=torch.int64, device=device)

    def rows(self, ids: Tensor) -> Tensor:
        """Token ids (...) -> row numbers (...), int64. Ids not in use, such as padding, map to row 0."""
        return self._row_of[ids]

    def forward(self, rows: Tensor) -> Tensor:
        """Row numbers (...) -> vectors (..., D) float32, detached from ``weight``."""
        vectors = F.embedding(rows, self.weight.detach())
        return vectors if self.scale == 1 else vectors * self.scale

    def set_gradient(self, rows: Sequence[Tensor], gradients: Sequence[Tensor], add: bool = False) -> list[Tensor]:
        """Set the gradient of ``weight`` from those of the vectors that were looked up.

        Args:
            rows: of each micro-batch, row numbers (...).
            gradients: of each micro-batch, (..., D) in any floating dtype; summed in float32.
            add: to the gradient that there is, in place of replacing it.

        Returns:
            The norm of the gradient, in a list of one.
        """
        touched = torch.cat([part.flatten() for part in rows])
        if not add:
            self._gradient[self._touched] = 0
        of_rows = torch.cat([part.flatten(0, -2).float() for part in gradients])
        self._gradient.index_add_(0, touched, of_rows, alpha=self.scale)
        self._gradient[self._untrained] = 0
        self._touched = torch.cat([self._touched, touched]) if add else touched
        self.weight.grad = self._gradient
        return [torch.linalg.vector_norm(self._gradient)]

    @torch.no_grad()
    def write_back(self) -> None:
        """Copy the rows into the whole table."""
        self._table[0].weight[self.used] = self.weight
