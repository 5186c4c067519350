"""Dropout on a CPU from NumPy's bit generators.

PyTorch's CPU dropout draws 64 random bits per element, single-threaded: about a tenth of a training step. Here four
elements share 64 bits, so the drop probability is exact to 1/65,536.

Micro-batches run in parallel threads. Were they to draw from PyTorch's one global generator, the result would depend
on thread scheduling; instead each thread draws from the generator set by `use_generator`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.models.loading import importing

ATTENTION = "sbert_lab_dropout"  # the name under which `attention` is registered with transformers
_thread = threading.local()


@contextmanager
def use_generator(generator: np.random.Generator) -> Iterator[None]:
    """Inside the block, dropout in this thread draws from ``generator``."""
    previous = getattr(_thread, "generator", None)
    _thread.generator = generator
    try:
        yield
    finally:
        _thread.generator = previous


def dropout_mask(shape: torch.Size, p: float, dtype: torch.dtype) -> Tensor:
    """A CPU tensor of 0 with probability ``p``, else 1 / (1 - p).

    Outside of `use_generator` the random bits come from a generator seeded by PyTorch's global one.
    """
    generator = getattr(_thread, "generator", None) or np.random.default_rng(int(torch.randint(2**63 - 1, ())))
    count = shape.numel()
    bits = torch.from_numpy(generator.bit_generator.random_raw(-(-count // 4)).view(np.int16))[:count]
    kept = torch.ge(bits, round(p * 2**16) - 2**15, out=bits)  # 0 or 1, in the memory of the bits
    return kept.to(dtype).mul_(1 / (1 - p)).view(shape)


class Dropout(nn.Module):
    """Replaces `torch.nn.Dropout`, on CPU tensors of any shape."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return x * dropout_mask(x.shape, self.p, x.dtype) if self.training and self.p else x


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, None]:
    """dropout(softmax(q kᵀ · scaling + mask)) v, with the signature of transformers' attention functions.

    Args:
        module: the attention layer; dropout is applied while it is in training mode.
        query, key, value: (B, H, T, d).
        attention_mask: added to the logits, broadcast to (B, H, T, T).
        scaling: of the logits; None is 1 / sqrt(d).
        dropout: the probability.

    Returns:
        The context (B, T, H, d), and None in place of the attention weights.
    """
    scores = query @ key.transpose(2, 3) * (scaling or query.shape[-1] ** -0.5)
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = F.softmax(scores, dim=-1)
    if module.training and dropout:
        weights = weights * dropout_mask(weights.shape, dropout, weights.dtype)
    return (weights @ value).transpose(1, 2).contiguous(), None


def has_dropout(backbone: nn.Module) -> bool:
    """Whether any layer of the module drops anything in training mode."""
    return any(isinstance(module, nn.Dropout) and module.p > 0 for module in backbone.modules())


def replace_dropout(backbone: nn.Module) -> None:
    """Make every dropout of a transformer (adapters and attention included) draw as above. In place."""
    with importing:
        from transformers import AttentionInterface, PreTrainedModel
        from transformers.masking_utils import AttentionMaskInterface, eager_mask

    for parent in list(backbone.modules()):
        for name, child in parent.named_children():
            if type(child) is nn.Dropout:
                parent.register_module(name, Dropout(child.p))
    AttentionInterface.register(ATTENTION, attention)
    AttentionMaskInterface.register(ATTENTION, eager_mask)
    transformer = next((module for module in backbone.modules() if isinstance(module, PreTrainedModel)), None)
    if (
        transformer is not None and transformer._supports_attention_backend
    ):  # the others (MPNet) have an nn.Dropout in their attention
        transformer.set_attn_implementation(ATTENTION)
