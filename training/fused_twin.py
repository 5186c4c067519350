"""FusedTwin: training's forward and backward for the transformers of BERT's family, written out, on a CPU.

The layers of `fused_bert` with dropout, on a stream of tokens (stream.py), and with one thing done in its own time:
the gradient of a matrix. On the way back each product only hands on the gradient of its input and puts what is needed
for that of its weight on the share's tape. When all shares have come back, a weight's gradient is one product over
the tokens of all of them, one core for each weight: computed share by share, it would be written to memory by every
one of them and added up from there, and memory is what the cores wait for in a step of a few hundred tokens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.dropout import drawing_from, dropout
from training.fused_bert import FAMILIES, Dense, FusedLayer, Norm, attention
from training.stream import Stream, stream
from training.twin import Column, Link, Part, Twin
from training.words import Words

_thread = threading.local()

Tape = dict["TrainedDense", tuple[Tensor, Tensor]]  # the gradient of a product's output (M, out), its input (M, in)


class FusedTwin(Twin):
    """Make one only where `fused_bert.fits` says so."""

    def __init__(self, backbone: Any, words: Words, pooling: str, dtype: torch.dtype) -> None:
        super().__init__(words, pooling, dtype)
        config = backbone.config
        names, embeddings = FAMILIES[config.model_type], backbone.embeddings
        self.drop = partial(dropout, p=getattr(config, names.dropout))
        self.first = embeddings.position_embeddings.padding_idx + 1 if names.after_padding else 0
        self.positions = self._linked(embeddings.position_embeddings.weight)
        kinds = getattr(embeddings, "token_type_embeddings", None)
        self.kinds = None if kinds is None else self._linked(kinds.weight)
        self.norm = self._norm(embeddings.LayerNorm)
        self.buckets = self.distances = None
        if config.model_type == "mpnet":
            encoder, steps = backbone.encoder, torch.arange(1 - len(self.positions), len(self.positions))
            self.buckets = encoder.relative_position_bucket(steps)
            self.distances = self._linked(encoder.relative_attention_bias.weight)
        self.drop_weights = partial(dropout, p=getattr(config, names.attention_dropout))
        self.heads = int(config.num_attention_heads)
        self.products: list[TrainedDense] = []
        make = self.heads, self._product, self._norm
        self.layers = [FusedLayer(layer, names, *make) for layer in backbone.get_submodule(names.layers)]
        if not names.drops_output:
            for layer in self.layers:
                layer.output.drop = partial(dropout, p=0.0)

    def forward(self, ids: Column, generator: torch.Generator) -> Part:
        tokens = stream(ids, self.dtype)
        positions, words = self.words.look_up(tokens.ids)
        words = words.to(self.dtype).requires_grad_()
        tape: Tape = {}
        with drawing_from(generator), _recording(tape):
            hidden = F.embedding(tokens.places, self._through(words, tokens))
        return Part(positions, words, self.pooling(hidden, tokens.mask).float(), tape=tape)

    def summing(self, parts: Sequence[Part], pieces: int) -> list[Callable[[], None]]:
        tapes: list[Tape] = [part.tape for part in parts]
        each = [partial(product.receive, [tape[product] for tape in tapes]) for product in self.products]
        return each + super().summing(parts, 1)

    def all_links(self) -> list[Link]:
        return [link for product in self.products for link in product.links] + self.links

    def _through(self, words: Tensor, tokens: Stream) -> Tensor:
        """Word vectors (M, D) -> hidden states (M, D)."""
        hidden, bias = words + F.embedding(tokens.positions + self.first, self.positions), tokens.bias
        if self.kinds is not None:
            hidden = hidden + self.kinds[0]
        if self.buckets is not None and self.distances is not None:
            where = tokens.row_positions
            steps = where[:, None, :] - where[:, :, None] + len(self.positions) - 1
            near = F.embedding(self.buckets[steps], self.distances).permute(0, 3, 1, 2)  # (R, H, W, W)
            bias = near if bias is None else near + bias
        attend = partial(attention, rows=tokens.rows, heads=self.heads, bias=bias, drop=self.drop_weights)
        hidden = self.drop(self.norm(hidden))
        for layer in self.layers:
            hidden = layer(hidden, lambda projected: tokens.gather(attend(tokens.spread(projected))))
        return hidden

    def _linked(self, weight: Tensor) -> Tensor:
        twin = weight.detach().to(self.dtype, copy=True).requires_grad_()
        self.links.append(Link(weight, twin))
        return twin

    def _product(self, linears: Sequence[nn.Linear], scale: float) -> TrainedDense:
        self.products.append(TrainedDense(linears, scale, self.dtype, self.drop))
        return self.products[-1]

    def _norm(self, module: nn.LayerNorm) -> Norm:
        norm = Norm(module, self.dtype)
        norm.weight, norm.bias = self._linked(module.weight), self._linked(module.bias)
        return norm


class TrainedDense(Dense):
    """A product whose weight is trained: its gradient waits on the tape."""

    def __init__(
        self, linears: Sequence[nn.Linear], scale: float, dtype: torch.dtype, drop: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__(linears, scale, dtype)
        self.drop = drop
        sizes = [linear.out_features for linear in linears]
        scales = [scale] + [1.0] * (len(linears) - 1)
        pieces = list(zip(linears, self.weight.split(sizes), self.bias.split(sizes), scales, strict=True))
        self.of_weight = [Link(linear.weight, weight, scale) for linear, weight, _, scale in pieces]
        self.of_bias = [Link(linear.bias, bias, scale) for linear, _, bias, scale in pieces]

    @property
    def links(self) -> list[Link]:
        return self.of_weight + self.of_bias

    def __call__(self, x: Tensor) -> Tensor:
        return _Product.apply(x, self, _thread.tape)

    def plus(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.drop(self(x)) + residual

    @torch.no_grad()
    def receive(self, found: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Set the gradients of the trained weights from the tapes of all shares."""
        (upstream, x), *others = found
        of_weight, of_bias = upstream.t() @ x, upstream.sum(dim=0)
        for upstream, x in others:
            of_weight.addmm_(upstream.t(), x)
            of_bias.add_(upstream.sum(dim=0))
        for links, gradient in ((self.of_weight, of_weight), (self.of_bias, of_bias)):
            for link, piece in zip(links, gradient.split([len(link.weight) for link in links]), strict=True):
                link.receive([piece])


class _Product(torch.autograd.Function):
    """x W^T + b. Backward: the input's gradient now, the weight's from the tape."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dense: TrainedDense, tape: Tape) -> Tensor:
        ctx.save_for_backward(x)
        ctx.dense, ctx.tape = dense, tape
        return F.linear(x, dense.weight, dense.bias)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        ctx.tape[ctx.dense] = upstream[0], x.detach()  # else the tape would hold the graph, which holds the tape
        return upstream[0] @ ctx.dense.weight, None, None


@contextmanager
def _recording(tape: Tape) -> Iterator[None]:
    """Inside the block, in this thread, products take ``tape`` for theirs."""
    _thread.tape = tape
    try:
        yield
    finally:
        del _thread.tape
