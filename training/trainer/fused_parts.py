"""The parts of a layer that hold trained weights: products, norms and tables, each with its backward written out.

Backward a part hands on the gradient of its input and puts what is needed for that of its weights on the share's
tape. When all shares have come back, `receive` makes the gradients of the weights from the tapes of all of them: for
a matrix one product over the tokens of all shares. Computed share by share, it would be written to memory by every
one of them and added up from there, and memory is what the cores wait for in a step of a few hundred tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.inference.fused_bert import FusedLayerNorm, FusedLinear
from training.trainer.replica import MasterParameter


class Trained(Protocol):
    """A part."""

    links: list[MasterParameter]  # its weights

    def receive(self, found: Sequence[Any]) -> list[Tensor]:
        """Set the gradients of the trained weights from what lies on the tapes, one by share, and give them back."""


Tape = dict[Trained, Any]


class TrainedDense(FusedLinear):
    """A product. On the tape: the gradient of its output (M, out) and its input (M, in)."""

    def __init__(self, linears: Sequence[nn.Linear], scale: float, dtype: torch.dtype) -> None:
        super().__init__(linears, scale, dtype)
        sizes = [linear.out_features for linear in linears]
        scales = [scale] + [1.0] * (len(linears) - 1)
        pieces = list(zip(linears, self.weight.split(sizes), self.bias.split(sizes), scales, strict=True))
        self.of_weight = [MasterParameter(linear.weight, weight, scale) for linear, weight, _, scale in pieces]
        self.of_bias = [MasterParameter(linear.bias, bias, scale) for linear, _, bias, scale in pieces]
        self.links = self.of_weight + self.of_bias

    def backward(self, upstream: Tensor, x: Tensor, tape: Tape, residual: Tensor | None = None) -> Tensor:
        """The gradient of the output (M, out) -> that of the input ``x`` (M, in), on top of ``residual`` (M, in)."""
        tape[self] = upstream, x
        return upstream @ self.weight if residual is None else torch.addmm(residual, upstream, self.weight)

    def receive(self, found: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor]:
        (upstream, x), *others = found
        of_weight, of_bias = upstream.t() @ x, upstream.sum(dim=0)
        for upstream, x in others:
            of_weight.addmm_(upstream.t(), x)
            of_bias.add_(upstream.sum(dim=0))
        return [
            each
            for links, gradient in ((self.of_weight, of_weight), (self.of_bias, of_bias))
            for link, piece in zip(links, gradient.split([len(link.weight) for link in links]), strict=True)
            for each in link.receive([piece])
        ]


class Normed(NamedTuple):
    """What a norm has given, and what it needs to come back."""

    y: Tensor  # (M, D)
    x: Tensor  # (M, D)
    mean: Tensor  # (M, 1)
    rstd: Tensor  # (M, 1)


class TrainedNorm(FusedLayerNorm):
    """A norm. On the tape: the gradients of its weight and bias, (D,) each."""

    def __init__(self, norm: nn.LayerNorm, dtype: torch.dtype) -> None:
        super().__init__(norm, dtype)
        self.links = [MasterParameter(norm.weight, self.weight), MasterParameter(norm.bias, self.bias)]

    def forward(self, x: Tensor) -> Normed:
        """Vectors (M, D)."""
        y, mean, rstd = torch.native_layer_norm(x, self.shape, self.weight, self.bias, self.eps)
        return Normed(y, x, mean, rstd)

    def backward(self, upstream: Tensor, normed: Normed, tape: Tape) -> Tensor:
        """The gradient of what ``forward`` has given (M, D) -> that of its input (M, D)."""
        _, x, mean, rstd = normed
        of_x, *tape[self] = torch.ops.aten.native_layer_norm_backward(
            upstream, x, self.shape, mean, rstd, self.weight, self.bias, [True, True, True]
        )
        return of_x

    def receive(self, found: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        pairs = zip(self.links, zip(*found, strict=True), strict=True)
        return [each for link, pieces in pairs for each in link.receive(pieces)]


class TrainedTable:
    """Rows that are looked up, (N, …). On the tape: the gradient of the whole table."""

    def __init__(self, weight: Tensor, dtype: torch.dtype) -> None:
        self.rows = weight.detach().to(dtype, copy=True)
        self.links = [MasterParameter(weight, self.rows)]

    def forward(self, which: Tensor) -> Tensor:
        """Numbers of rows (…), int64 -> the rows (…, D)."""
        return F.embedding(which, self.rows)

    def backward(self, upstream: Tensor, which: Tensor, tape: Tape) -> None:
        """The gradient (…, D) of the rows ``which`` (…)."""
        tape[self] = torch.ops.aten.embedding_dense_backward(upstream, which, len(self.rows), -1, False)

    def receive(self, found: Sequence[Tensor]) -> list[Tensor]:
        return self.links[0].receive(found)
