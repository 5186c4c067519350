"""Dropout as cheap as it can be on a CPU, from a generator of one's own.

PyTorch draws 64 random bits for every single value, on one core: a tenth of a training step. Here four values share
64 bits, from NumPy's generator, which is twice as fast: a value is dropped with probability p to within 1/65,536,
and what stays is scaled by 1/(1-p).

Shares of a batch are computed side by side (trainee.py); were all to draw from PyTorch's one generator, their order
would be chance and no run could be repeated. So each draws from the generator that `drawing_from` names.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.models.loading import importing

ATTENTION = "sbert_lab_dropout"  # the name under which transformers finds `attention`
_thread = threading.local()


@contextmanager
def drawing_from(generator: np.random.Generator) -> Iterator[None]:
    """Inside the block, in this thread, dropout draws from ``generator``."""
    before = getattr(_thread, "generator", None)
    _thread.generator = generator
    try:
        yield
    finally:
        _thread.generator = before


def dropout(x: Tensor, p: float) -> Tensor:
    """Any shape, floating, on a CPU."""
    return x * kept(draw(x.numel()), p, x.dtype).view(x.shape) if p else x


def draw(count: int) -> Tensor:
    """Random int16 (count,). Outside of `drawing_from` from a generator that PyTorch's own one seeds."""
    generator = getattr(_thread, "generator", None) or np.random.default_rng(int(torch.randint(2**63 - 1, ())))
    return torch.from_numpy(generator.bit_generator.random_raw(-(-count // 4)).view(np.int16))[:count]


def kept(bits: Tensor, p: float, dtype: torch.dtype) -> Tensor:
    """Random int16 -> as many factors: 0 with probability ``p``, else 1/(1-p). The bits' memory may be theirs."""
    stays = torch.ge(bits, round(p * 2**16) - 2**15, out=bits)  # 0 or 1
    if dtype == torch.bfloat16:
        return stays.mul_(_bits_of(1 / (1 - p))).view(dtype)
    return stays.to(dtype).mul_(1 / (1 - p))


@cache
def _bits_of(number: float) -> int:
    """Of a bfloat16, as an int16."""
    return int(torch.tensor(number, dtype=torch.bfloat16).view(torch.int16))


class Dropout(nn.Module):
    """In the place of nn.Dropout."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """``x``, and while training `dropout` of it."""
        return dropout(x, self.p) if self.training else x


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
    """softmax(q kᵀ · scaling + mask), dropout, times v. (B, H, T, d) -> (B, T, H, d), as transformers calls it."""
    scores = query @ key.transpose(2, 3) * (scaling or query.shape[-1] ** -0.5)
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = Dropout(dropout).train(module.training)(F.softmax(scores, dim=-1))
    return (weights @ value).transpose(1, 2).contiguous(), None


def replace_dropout(backbone: nn.Module) -> None:
    """Make every dropout of a transformer, adapters included, one of ours: in its modules and in its attention."""
    with importing:
        from transformers import AttentionInterface, PreTrainedModel
        from transformers.masking_utils import AttentionMaskInterface, eager_mask

    for parent in list(backbone.modules()):
        for name, child in parent.named_children():
            if type(child) is nn.Dropout:
                parent.register_module(name, Dropout(child.p))
    AttentionInterface.register(ATTENTION, attention)
    AttentionMaskInterface.register(ATTENTION, eager_mask)
    transformer = next(module for module in backbone.modules() if isinstance(module, PreTrainedModel))
    if transformer._supports_attention_backend:  # the others have a module for the dropout of attention too
        transformer.set_attn_implementation(ATTENTION)
