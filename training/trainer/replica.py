"""The replica: a low-precision copy of the transformer that runs forward and backward during training.

The trained weights (the master weights) are float32. Before each step they are copied into the replica in the compute
dtype (`Replica.sync_weights`). Micro-batches run through it in parallel threads, and their gradients are summed in
float32 into the master weights' ``grad`` (`Replica.reduce_gradients`). In float32 the replica shares the memory of the
master weights, so there is nothing to copy.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from training.inference.batching import pad
from training.models.pooling import Pooling
from training.trainer.compact_embedding import CompactEmbedding
from training.trainer.dropout import replace_dropout, use_generator

TokenIds = Sequence[Sequence[int]]  # of B sentences


class MicroBatch(NamedTuple):
    """A part of a batch, padded: B sentences of at most T tokens."""

    rows: Tensor  # (B, T) int64, rows of `CompactEmbedding`
    mask: Tensor | None  # (B, T) bool, True = a real token; None = all are real
    generator: np.random.Generator  # of dropout


@dataclass
class ForwardOutput:
    """The result of a forward pass, which holds its autograd graph until `Replica.backward`."""

    vectors: Tensor  # (B, D) float32, pooled vectors
    inputs: Tensor  # (B, T, D), word embeddings: a leaf of the graph
    input_gradient: Tensor | None = None  # (B, T, D), set by `Replica.backward` if word embeddings are trained
    gradients: Sequence[Tensor | None] = ()  # set by `Replica.backward`, one per master weight; None = not used


class MasterParameter(NamedTuple):
    """A trained float32 weight and its copy in the replica (the same tensor where the replica is float32)."""

    weight: nn.Parameter
    copy: nn.Parameter


class Replica:
    """Any transformer of the transformers library, or word vectors with LSTMs, in training mode.

    ``forward`` and ``backward`` may be called from several threads, each with its own micro-batch.

    Args:
        backbone: the module with the master weights, adapters included.
        embeddings: the word embeddings, which are looked up outside of the module.
        pooling: see `training.models.pooling`.
        dtype: of the forward and backward pass.
    """

    def __init__(self, backbone: nn.Module, embeddings: CompactEmbedding, pooling: Pooling, dtype: torch.dtype) -> None:
        self.embeddings, self.pooling, self.dtype = embeddings, pooling, dtype
        self.device = embeddings.weight.device
        self.shares_memory = dtype == torch.float32
        shared = {id(weight): weight for weight in backbone.parameters()} if self.shares_memory else {}
        self.module = copy.deepcopy(backbone, shared).to(dtype).train()
        if self.device.type == "cpu":
            replace_dropout(self.module)
        self.parameters = [
            MasterParameter(weight, self.module.get_parameter(name))
            for name, weight in backbone.named_parameters()
            if weight.requires_grad
        ]

    def collate(self, ids: TokenIds, generator: np.random.Generator) -> MicroBatch:
        """Pad the token ids of B sentences, none of them empty. Dropout will draw from ``generator``."""
        batch = pad(ids, 0)  # any token id pads: the mask hides it
        mask = None if batch.mask is None else batch.mask.to(self.device)
        return MicroBatch(self.embeddings.rows(batch.ids.to(self.device)), mask, generator)

    def sync_weights(self, pieces: int) -> list[Callable[[], None]]:
        """Tasks, about ``pieces``, that together copy the master weights into the replica."""
        if self.shares_memory:
            return []
        by_size = sorted(self.parameters, key=lambda parameter: -parameter.weight.numel())  # dealt out evenly
        return [partial(_copy_weights, by_size[first::pieces]) for first in range(pieces)]

    def forward(self, batch: MicroBatch) -> ForwardOutput:
        """Pooled vectors of a micro-batch."""
        trains_inputs = self.embeddings.weight.requires_grad and torch.is_grad_enabled()
        inputs = self.embeddings(batch.rows).to(self.dtype).requires_grad_(trains_inputs)
        mask = None if batch.mask is None else batch.mask.long()
        with use_generator(batch.generator):
            hidden = self.module(inputs_embeds=inputs, attention_mask=mask).last_hidden_state
        return ForwardOutput(self.pooling(hidden, batch.mask).float(), inputs)

    @torch.no_grad()
    def embed(self, batch: MicroBatch) -> Tensor:
        """The vectors (B, D) of `forward`, without a graph. ``forward`` will draw the same dropout after it."""
        again = batch._replace(generator=copy.deepcopy(batch.generator))
        return self.forward(again).vectors

    def backward(self, output: ForwardOutput, gradient: Tensor) -> None:
        """Compute an output's gradients from the gradient of the loss by its vectors (B, D). Frees its graph."""
        leaves = [parameter.copy for parameter in self.parameters]
        trains_inputs = output.inputs.requires_grad
        found = torch.autograd.grad(
            output.vectors, [output.inputs, *leaves] if trains_inputs else leaves, gradient, allow_unused=True
        )
        output.input_gradient, output.gradients = (found[0], found[1:]) if trains_inputs else (None, found)

    def reduce_gradients(
        self, outputs: Sequence[ForwardOutput], pieces: int, add: bool = False
    ) -> list[Callable[[], list[Tensor]]]:
        """Tasks, about ``pieces``, that together set the master weights' ``grad`` to the sum over the micro-batches.

        With ``add`` the sum is added to the gradient that there is. Each task returns gradient norms: computed right
        after the sum, while the gradient is in the cache.
        """
        weights = [parameter.weight for parameter in self.parameters]
        parts = list(zip(weights, zip(*(output.gradients for output in outputs), strict=True), strict=True))
        return [partial(_sum_gradients, parts[first::pieces], add) for first in range(pieces)]


@torch.no_grad()
def _copy_weights(parameters: Sequence[MasterParameter]) -> None:
    torch._foreach_copy_([each.copy for each in parameters], [each.weight for each in parameters])


@torch.no_grad()
def _sum_gradients(parts: Sequence[tuple[nn.Parameter, Sequence[Tensor | None]]], add: bool) -> list[Tensor]:
    sums = []
    for weight, gradients in parts:
        used = [gradient for gradient in gradients if gradient is not None]
        if not used:
            continue
        if weight.grad is None:  # allocated once: page faults on fresh memory cost more than the sum
            weight.grad = torch.empty_like(weight)
        if not add:
            weight.grad.copy_(used.pop(0))
        for gradient in used:
            weight.grad.add_(gradient)
        sums.append(weight.grad)
    return gradient_norms(sums)


@torch.no_grad()
def gradient_norms(gradients: list[Tensor]) -> list[Tensor]:
    """The Euclidean norm of each tensor."""
    return list(torch._foreach_norm(gradients)) if gradients else []
