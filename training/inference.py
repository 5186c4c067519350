"""The transformer as ``encode`` runs it: no dropout, no gradients, in the precision of choice."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from training.batching import Batch

HiddenStates = Callable[[Batch], Tensor]  # Batch of (B, T) -> (B, T, D)


def inference_copy(backbone: nn.Module, dtype: torch.dtype) -> HiddenStates:
    """``backbone``'s weights as they are now, ready to compute hidden states in ``dtype``."""
    model = backbone if dtype == torch.float32 else copy.deepcopy(backbone).to(dtype).requires_grad_(False)

    def hidden_states(batch: Batch) -> Tensor:
        mask = None if batch.mask is None else batch.mask.long()
        return model(input_ids=batch.ids, attention_mask=mask).last_hidden_state

    return hidden_states
