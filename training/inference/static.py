"""StaticRunner: encoders without a network, whose sentence vector is the mean of rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from training.inference.runner import Hidden, Ids, InferenceRunner, Row

SENTENCES = 2_048  # a batch


class StaticRunner(InferenceRunner[Ids]):
    """In place of hidden states, ``hidden`` returns the mean of each text's rows (n, 1, D), and no mask."""

    def __init__(self, table: nn.Embedding) -> None:
        self.table = table.weight.detach().clone()
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
        means = F.embedding_bag(torch.from_numpy(ids).to(self.device), self.table, offsets, mode="mean")
        return means[:, None], None
