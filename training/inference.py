"""The transformer as ``encode`` runs it: no dropout, no gradients, in the precision of choice, on all cores.

An ``Inference`` holds a copy of a backbone's weights. Architectures of BERT's family run as ``FusedBert`` on packed
rows; any other runs as its own module on padded batches. Either way ``map`` cuts the work into batches, computes
them side by side (workers.py), and hands each batch's hidden states to the function that reduces them, to sentence
vectors for example.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from training import workers
from training.batching import pad, plan
from training.errors import Stopped
from training.fused_bert import FusedBert, fits
from training.packing import Row, lay_out, plan_rows

TOKEN_BUDGET = {"cpu": 1_024, "mps": 8_192, "cuda": 32_768}  # tokens a batch

Result = TypeVar("Result")
Ids = Sequence[Sequence[int]]  # token ids of each sentence; none is empty
Hidden = tuple[Tensor, Tensor | None]  # (n, T, D) of n sentences, and which are real (n, T); None = all
Reduce = Callable[[Tensor, Tensor | None], Result]


class Inference(ABC):
    """A backbone's weights as they were when this was made."""

    device: torch.device

    def map(
        self, ids: Ids, reduce: Reduce[Result], should_stop: Callable[[], bool] | None = None
    ) -> Iterator[tuple[list[int], Result]]:
        """Batch by batch: the sentences it held, by number, and ``reduce`` of their hidden states and mask.

        ``reduce`` runs in a worker's thread, in inference mode. ``should_stop`` is asked before each batch; once it
        says yes, what is under way is given back and ``Stopped`` is raised.
        """
        stopped = False

        def batches() -> Iterator[list[Row]]:
            nonlocal stopped
            lengths = [len(row) for row in ids]
            share = -(-sum(lengths) // workers.count())  # a small job is cut so that each worker gets a part
            for rows in self.batches(lengths, min(share, TOKEN_BUDGET[self.device.type])):
                if should_stop is not None and should_stop():
                    stopped = True
                    return
                yield rows

        def compute(rows: list[Row]) -> tuple[list[int], Result]:
            with torch.inference_mode():
                return [i for row in rows for i in row], reduce(*self.hidden(ids, rows))

        yield from workers.spread(compute, batches())
        if stopped:
            raise Stopped

    @abstractmethod
    def batches(self, lengths: list[int], budget: int) -> Iterator[list[Row]]:
        """Sentences that are computed together: rows, which hold the numbers of one or more sentences each."""

    @abstractmethod
    def hidden(self, ids: Ids, rows: list[Row]) -> Hidden:
        """The hidden states of the sentences in ``rows``, one after the other."""


class PackedInference(Inference):
    """Several sentences in a row, through ``FusedBert``."""

    def __init__(self, backbone: nn.Module, dtype: torch.dtype) -> None:
        self.device = next(backbone.parameters()).device
        self.transformer = FusedBert(backbone, dtype)

    def batches(self, lengths: list[int], budget: int) -> Iterator[list[Row]]:
        return plan_rows(lengths, budget)

    def hidden(self, ids: Ids, rows: list[Row]) -> Hidden:
        packed = lay_out(ids, rows).to(self.device)
        bias = packed.attention_bias(self.transformer.dtype)
        return packed.unpack(self.transformer(packed.ids, packed.positions, bias)), packed.mask


class PaddedInference(Inference):
    """One sentence in a row, through a module of the transformers library."""

    def __init__(self, backbone: nn.Module, dtype: torch.dtype, pad_id: int) -> None:
        self.device = next(backbone.parameters()).device
        self.transformer = copy.deepcopy(backbone).to(dtype).requires_grad_(False).eval()
        self.pad_id = pad_id

    def batches(self, lengths: list[int], budget: int) -> Iterator[list[Row]]:
        for group in plan(lengths, budget):
            yield [[int(i)] for i in group]

    def hidden(self, ids: Ids, rows: list[Row]) -> Hidden:
        batch = pad([ids[row[0]] for row in rows], self.pad_id)
        mask = None if batch.mask is None else batch.mask.to(self.device, non_blocking=True)
        states = self.transformer(
            input_ids=batch.ids.to(self.device, non_blocking=True),
            attention_mask=None if mask is None else mask.long(),
        ).last_hidden_state
        return states, mask


def prepare(backbone: nn.Module, dtype: torch.dtype, pad_id: int) -> Inference:
    """``backbone``, copied and prepared to compute in ``dtype``."""
    return PackedInference(backbone, dtype) if fits(backbone) else PaddedInference(backbone, dtype, pad_id)
