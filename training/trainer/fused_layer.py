"""A layer of `fused_bert` for training: forward with dropout, and backward, written out.

Autograd would find the same gradients. But a training step on a few hundred tokens has thousands of operations, each
of which autograd meets several times, and shares of a batch that are computed side by side wait for one another
whenever they do something in Python. Written out there is a fifth of that to do.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from training.inference.fused_bert import FusedLayer
from training.trainer.dropout import draw, kept
from training.trainer.fused_parts import Normed, Tape
from training.trainer.unpadded_batch import UnpaddedBatch


class Rates(NamedTuple):
    """With what probability dropout drops a number."""

    attention: float  # of the attention's weights
    output: float  # of what attention gives
    hidden: float  # of what the feed-forward network gives


class Dropped(NamedTuple):
    """Dropout's factors in a layer, see `dropout.kept`; None = nothing is dropped."""

    attention: Tensor | None  # (R, H, W, W)
    output: Tensor | None  # (M, D)
    hidden: Tensor | None  # (M, D)


class Way(NamedTuple):
    """What all layers share: the share of the batch, and how it is looked at."""

    tokens: UnpaddedBatch
    heads: int
    bias: Tensor | None  # added to the attention's logits (R, H, W, W)


class Attended(NamedTuple):
    """Attention, for the way back. R rows of W tokens, H heads of size d."""

    qkv: Tensor  # (3, R*H, W, d)
    weights: Tensor  # (R, H, W, W), before dropout
    dropped: Tensor  # after it


class Trace(NamedTuple):
    """A layer, for the way back."""

    x: Tensor  # (M, D)
    dropped: Dropped
    attended: Attended
    context: Tensor  # (M, D)
    middle: Normed
    up: Tensor  # (M, U), before GELU
    active: Tensor  # (M, U), after it
    end: Normed


class TrainedLayer(FusedLayer):
    """Its products are `TrainedDense`, its norms `TrainedNorm`."""

    def forward(self, x: Tensor, way: Way, dropped: Dropped) -> Trace:
        """Hidden states (M, D) -> what becomes of them; the next are ``end.y`` of it."""
        attended, context = attend(self.projection(x), way, dropped.attention)
        middle = self.output_norm.forward(_plus(x, self.output(context), dropped.output))
        up = self.up(middle.y)
        active = F.gelu(up)
        end = self.down_norm.forward(_plus(middle.y, self.down(active), dropped.hidden))
        return Trace(x, dropped, attended, context, middle, up, active, end)

    def backward(self, upstream: Tensor, trace: Trace, way: Way, tape: Tape) -> tuple[Tensor, Tensor]:
        """The gradient of the next hidden states (M, D) -> of these (M, D), and of the logits (R, H, W, W)."""
        of_sum = self.down_norm.backward(upstream, trace.end, tape)
        of_active = self.down.backward(_times(of_sum, trace.dropped.hidden), trace.active, tape)
        of_up = torch.ops.aten.gelu_backward(of_active, trace.up)
        of_middle = self.up.backward(of_up, trace.middle.y, tape, residual=of_sum)
        of_sum = self.output_norm.backward(of_middle, trace.middle, tape)
        of_context = self.output.backward(_times(of_sum, trace.dropped.output), trace.context, tape)
        of_projected, of_logits = attend_back(of_context, trace.attended, way, trace.dropped.attention)
        return self.projection.backward(of_projected, trace.x, tape, residual=of_sum), of_logits


def attend(projected: Tensor, way: Way, factors: Tensor | None) -> tuple[Attended, Tensor]:
    """Query (scaled), key and value (M, 3D), dropout's factors (R, H, W, W) -> attention, its context (M, D)."""
    rows, heads = way.tokens.rows, way.heads
    lying = way.tokens.spread(projected)
    qkv = lying.view(rows, -1, 3, heads, lying.shape[1] // (3 * heads)).permute(2, 0, 3, 1, 4).contiguous()
    width, size = qkv.shape[3:]
    qkv = qkv.view(3, rows * heads, width, size)
    logits = torch.bmm(qkv[0], qkv[1].transpose(1, 2)).view(rows, heads, width, width)
    weights = torch.softmax(logits if way.bias is None else logits.add_(way.bias), dim=-1)
    dropped = _times(weights, factors)
    context = torch.bmm(dropped.view(-1, width, width), qkv[2]).view(rows, heads, width, size)
    context = context.transpose(1, 2).reshape(rows * width, heads * size)
    return Attended(qkv, weights, dropped), way.tokens.gather(context)


def attend_back(upstream: Tensor, attended: Attended, way: Way, factors: Tensor | None) -> tuple[Tensor, Tensor]:
    """The gradient of the context (M, D) -> of query, key and value (M, 3D), and of the logits (R, H, W, W)."""
    qkv, weights, dropped = attended
    rows, heads, width, _ = weights.shape
    lying = way.tokens.spread_gradient(upstream).view(rows, width, heads, -1).transpose(1, 2)
    of_context = lying.reshape(rows * heads, width, -1)
    of_qkv = torch.empty_like(qkv)
    torch.bmm(dropped.view(-1, width, width).transpose(1, 2), of_context, out=of_qkv[2])
    of_weights = torch.bmm(of_context, qkv[2].transpose(1, 2)).view(weights.shape)
    if factors is not None:
        of_weights.mul_(factors)
    of_logits = torch.ops.aten._softmax_backward_data(of_weights, weights, -1, weights.dtype)
    flat = of_logits.view(-1, width, width)
    torch.bmm(flat, qkv[1], out=of_qkv[0])
    torch.bmm(flat.transpose(1, 2), qkv[0], out=of_qkv[1])
    of_lying = of_qkv.view(3, rows, heads, width, -1).permute(1, 3, 0, 2, 4).reshape(rows * width, -1)
    return way.tokens.gather(of_lying), of_logits


def drop(tokens: UnpaddedBatch, heads: int, dimension: int, rates: Rates, dtype: torch.dtype) -> Dropped:
    """Draw the factors of a layer."""
    rows, width = tokens.row_positions.shape
    states = torch.Size((len(tokens.ids), dimension))
    shapes = [torch.Size((rows, heads, width, width)), states, states]
    sizes = [shape.numel() if rate else 0 for shape, rate in zip(shapes, rates, strict=True)]
    bits = draw(sum(sizes)).split(sizes)  # drawn at once
    return Dropped(
        *(
            kept(own, rate, dtype).view(shape) if rate else None
            for own, rate, shape in zip(bits, rates, shapes, strict=True)
        )
    )


def _times(x: Tensor, factors: Tensor | None) -> Tensor:
    return x if factors is None else x * factors


def _plus(x: Tensor, y: Tensor, factors: Tensor | None) -> Tensor:
    return x + y if factors is None else torch.addcmul(x, y, factors)
