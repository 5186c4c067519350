"""The twin: the transformer that goes forward and backward in training, in the dtype of choice.

The weights that are trained are float32. Before every step the twin is made equal to them (bfloat16 where the
processor multiplies it), shares of a batch go through it side by side, and their gradients are summed in float32.
What a share needs beside the weights is laid out before, while Adam still changes them.
``AutogradReplica`` takes any transformer; `fused_twin.FusedTwin` is faster for those of BERT's family on a CPU.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from training.inference.batching import pad
from training.models.pooling import POOLINGS
from training.trainer.compact_embedding import CompactEmbedding
from training.trainer.dropout import drawing_from, replace_dropout

Column = Sequence[Sequence[int]]  # the token ids of one column of a batch


@dataclass(frozen=True)
class MasterParameter:
    """A trained weight and its like in the twin, which is larger by ``scale``."""

    weight: Tensor
    twin: Tensor
    scale: float = 1.0

    @torch.no_grad()
    def receive(self, gradients: Sequence[Tensor | None]) -> list[Tensor]:
        """Set the weight's gradient to the sum of the twin's, in the order given; None = it had no part.

        The gradient is given back, or nothing if nobody had a part in it.
        """
        there = [part for part in gradients if part is not None]
        if there and self.weight.grad is None:  # kept from then on: fresh memory costs more than the sum
            self.weight.grad = torch.empty_like(self.weight)
        for number, part in enumerate(there):
            self.weight.grad.add_(part) if number else self.weight.grad.copy_(part)  # type: ignore[union-attr]
        if there and self.scale != 1:
            self.weight.grad.mul_(self.scale)  # type: ignore[union-attr]
        return [self.weight.grad] if there and self.weight.grad is not None else []


@dataclass
class MicroBatch:
    """A share of a batch, laid out: all of its way through the twin that does not depend on the weights."""

    positions: Tensor  # (…), int64, rows of `CompactEmbedding`


@dataclass
class ForwardOutput:
    """A share on its way."""

    vectors: Tensor  # (B, D) float32
    of_words: Tensor | None  # (…, D), once it has gone backward, if words are trained: their gradients


class Replica(ABC):
    """Forward and backward may be called for several shares side by side, each with its own `MicroBatch`."""

    def __init__(self, words: CompactEmbedding, pooling: str, dtype: torch.dtype) -> None:
        self.words, self.pooling, self.dtype = words, POOLINGS[pooling], dtype
        self.links: list[MasterParameter] = []  # every trained weight that is in the twin

    def refreshing(self, pieces: int) -> list[Callable[[], None]]:
        """What makes the twin equal to the trained weights, in about so many pieces of work."""
        links = sorted(self.links, key=lambda link: -link.weight.numel())  # to deal them out evenly
        return [partial(_refresh, links[first::pieces]) for first in range(pieces)]

    @abstractmethod
    def collate(self, ids: Column, generator: np.random.Generator) -> MicroBatch:
        """Token ids of B sentences, none of them empty; dropout draws from ``generator``."""

    @abstractmethod
    def forward(self, share: Any) -> ForwardOutput:
        """A share that ``collate`` has made -> the vectors of its sentences."""

    @abstractmethod
    def backward(self, part: Any, upstream: Tensor) -> None:
        """The gradient of the loss by the vectors (B, D) of a part that ``forward`` has made -> its gradients."""

    @abstractmethod
    def summing(self, parts: Sequence[Any], pieces: int) -> list[Callable[[], list[Tensor]]]:
        """What sets the gradients of the trained weights from those of the parts, in pieces of work.

        Each piece gives back how long its gradients are, which costs least just after they are written.
        """


@dataclass
class PaddedMicroBatch(MicroBatch):
    """And what the module is told."""

    mask: Tensor | None  # (B, T) bool, which tokens are real; None = all
    generator: np.random.Generator


@dataclass
class PaddedForwardOutput(ForwardOutput):
    """And what autograd needs."""

    words: Tensor  # (…, D), where the share's graph begins
    gradients: tuple[Tensor | None, ...] = ()  # once it has gone backward: of each link's twin


class AutogradReplica(Replica):
    """A copy of the module itself, on padded batches."""

    def __init__(self, backbone: nn.Module, words: CompactEmbedding, pooling: str, dtype: torch.dtype) -> None:
        super().__init__(words, pooling, dtype)
        self.module = copy.deepcopy(backbone).to(dtype).train()
        self.device = words.rows.device
        if self.device.type == "cpu":
            replace_dropout(self.module)
        self.links = [
            MasterParameter(weight, self.module.get_parameter(name))
            for name, weight in backbone.named_parameters()
            if weight.requires_grad
        ]

    def collate(self, ids: Column, generator: np.random.Generator) -> PaddedMicroBatch:
        batch = pad(ids, 0)  # which token pads does not matter: it is masked
        mask = None if batch.mask is None else batch.mask.to(self.device)
        return PaddedMicroBatch(self.words.find(batch.ids.to(self.device)), mask, generator)

    def forward(self, share: PaddedMicroBatch) -> PaddedForwardOutput:
        words = self.words.vectors(share.positions).to(self.dtype).requires_grad_(self.words.rows.requires_grad)
        with drawing_from(share.generator):
            seen = None if share.mask is None else share.mask.long()
            hidden = self.module(inputs_embeds=words, attention_mask=seen).last_hidden_state
        return PaddedForwardOutput(self.pooling(hidden, share.mask).float(), None, words)

    def backward(self, part: PaddedForwardOutput, upstream: Tensor) -> None:
        twins = [link.twin for link in self.links]
        trained = part.words.requires_grad
        found = torch.autograd.grad(
            part.vectors, [part.words, *twins] if trained else twins, upstream, allow_unused=True
        )
        part.gradients = found[1:] if trained else found
        part.of_words = found[0] if trained else None

    def summing(self, parts: Sequence[PaddedForwardOutput], pieces: int) -> list[Callable[[], list[Tensor]]]:
        by_link = list(zip(self.links, zip(*(part.gradients for part in parts), strict=True), strict=True))
        return [partial(_receive, by_link[first::pieces]) for first in range(pieces)]


@torch.no_grad()
def _refresh(links: Sequence[MasterParameter]) -> None:
    torch._foreach_copy_([link.twin for link in links], [link.weight for link in links])
    for link in links:
        if link.scale != 1:
            link.twin.mul_(link.scale)


def _receive(found: Sequence[tuple[MasterParameter, tuple[Tensor | None, ...]]]) -> list[Tensor]:
    return gradient_norms([each for link, gradients in found for each in link.receive(gradients)])


@torch.no_grad()
def gradient_norms(gradients: list[Tensor]) -> list[Tensor]:
    """Euclidean, of each one."""
    return list(torch._foreach_norm(gradients)) if gradients else []
