"""Unpadded batches: the sentences of a batch one after the other in a single row, for NVIDIA GPUs.

Attention is told where each sentence begins, and computes nothing else (`torch.nn.attention.varlen`, which is
FlashAttention). ``has_varlen`` tries that operator once; where it is missing or returns something else, batches are
packed and masked as on a CPU (`training.inference.batching`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from training.inference.batching import PackedBatch, Row, plan

log = logging.getLogger("sbert_lab.inference")

HEAD_SIZES = range(8, 257, 8)  # dimensions of a head that the operator takes


class Boundaries(NamedTuple):
    """Where each of the n sentences in a row begins, in place of a bias on the attention's logits."""

    starts: Tensor  # (n + 1,) int32: sentence i is the tokens from starts[i] to starts[i + 1]
    longest: int  # tokens
    window: int | None = None  # tokens to either side that a token attends to; None = its whole sentence


def boundaries(packed: PackedBatch) -> Boundaries:
    """Those of a batch of one row. The padding at its end counts as one more sentence."""
    tokens = packed.ids.numel()
    sequence_ids = packed.sequence_ids.flatten()
    firsts = packed.token_index[:, 0]  # still on the host: nothing waits for a GPU
    used = int((sequence_ids > 0).sum())
    ends = [torch.tensor([used])] if used < tokens else []
    starts = torch.cat([firsts, *ends, torch.tensor([tokens])])
    longest = max(packed.token_index.shape[1], tokens - used)
    return Boundaries(starts.int(), longest)


def plan_unpadded(lengths: Sequence[int], token_budget: int) -> Iterator[list[Row]]:
    """Batches of one row each, of about ``token_budget`` tokens; sentences of similar length share one."""
    for group in plan(lengths, token_budget):
        yield [group.tolist()]


def varlen_attention(projected: Tensor, heads: int, where: Boundaries) -> Tensor:
    """Query (scaled), key and value of N tokens (N, 3D) -> context (N, D)."""
    from torch.nn.attention.varlen import varlen_attn

    query, key, value = projected.view(len(projected), 3, heads, -1).unbind(1)
    window: dict[str, Any] = {} if where.window is None else {"window_size": (where.window, where.window)}
    starts, longest = where.starts, where.longest
    context: Any = varlen_attn(query, key, value, starts, starts, longest, longest, scale=1.0, **window)
    return context.flatten(1)


@cache
def has_varlen(device: torch.device, dtype: torch.dtype, head_size: int, window: int | None = None) -> bool:
    """Whether ``varlen_attention`` works on this device, and computes what PyTorch's usual attention does."""
    if device.type != "cuda" or dtype not in (torch.float16, torch.bfloat16) or head_size not in HEAD_SIZES:
        return False
    try:
        return varlen_agrees(device, dtype, head_size, window)
    except (AttributeError, ImportError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        # An older PyTorch, or a GPU before Ampere.
        log.info("batches are packed and masked, as unpadded attention does not run here: %s", error)
        return False


@torch.inference_mode()
def varlen_agrees(device: torch.device, dtype: torch.dtype, head_size: int, window: int | None = None) -> bool:
    """Whether ``varlen_attention`` returns on sentences of 3, 1 and 12 tokens what each of them gives alone.

    With a window it is tried with one of 2 tokens.
    """
    lengths, heads = [3, 1, 12], 2
    values = torch.arange(sum(lengths) * 3 * heads * head_size, device=device).mul(997).sin()
    projected = values.to(dtype).view(sum(lengths), -1)
    starts = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)
    small_window = None if window is None else 2
    found = varlen_attention(projected, heads, Boundaries(starts, max(lengths), small_window))
    expected = attention_alone(projected.float(), heads, lengths, small_window)
    return torch.allclose(found.float(), expected, rtol=0, atol=0.05)


def attention_alone(projected: Tensor, heads: int, lengths: Sequence[int], window: int | None = None) -> Tensor:
    """The result of ``varlen_attention``, by PyTorch's usual attention, one sentence after the other."""
    contexts = []
    for part in projected.split(list(lengths)):
        query, key, value = part.view(len(part), 3, heads, -1).permute(1, 2, 0, 3)  # (H, T, d) each
        place = torch.arange(len(part), device=part.device)
        mask = None if window is None else (place[:, None] - place).abs() <= window
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=1.0)
        contexts.append(context.transpose(0, 1).flatten(1))
    return torch.cat(contexts)
