"""StaticRunner: encoders without a network, whose pooled vector is the sum of rows of a table, scaled by their number.

In place of hidden states and a mask it returns that vector, as one token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from training.inference.runner import Hidden, Ids, InferenceRunner, Row

SENTENCES = 2_048  # a batch
STATIC_POOLINGS = ("mean", "mean_sqrt_len_tokens")  # which leave a text of one token as it is


class StaticRunner(InferenceRunner[Ids]):
    """``hidden`` returns the pooled rows of each text (n, 1, D), and no mask. ``pooling``: of `STATIC_POOLINGS`."""

    def __init__(self, table: nn.Embedding, pooling: str = "mean") -> None:
        self.table, self.pooling = table.weight.detach().clone(), pooling
        self.device = self.table.device

    def batches(self, lengths: list[int], token_budget: int) -> Iterator[list[Row]]:
        for start in range(0, len(lengths), SENTENCES):
            yield [list(range(start, min(start + SENTENCES, len(lengths))))]

    def hidden(self, texts: Sequence[Ids], rows: list[Row]) -> Hidden:
        chosen = [texts[i] for row in rows for i in row]
        lengths = np.fromiter(map(len, chosen), dtype=np.int64, count=len(chosen))
        ends = lengths.cumsum()
        ids = np.fromiter(chain.from_iterable(chosen), dtype=np.int64, count=int(ends[-1]))
        offsets = torch.from_numpy(ends - lengths).to(self.device)
        pooled = F.embedding_bag(torch.from_numpy(ids).to(self.device), self.table, offsets, mode="mean")
        if self.pooling == "mean_sqrt_len_tokens":
            pooled = pooled * torch.from_numpy(lengths).to(self.device).sqrt()[:, None]
        return pooled[:, None], None
