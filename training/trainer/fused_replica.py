"""FusedTwin: training's forward and backward for the transformers of BERT's family, written out, on a CPU.

The layers are those of `fused_bert` with a way back (trained_layer.py), on a stream of tokens (stream.py). Only the
pooling at the end is left to autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.inference.fused_bert import ARCHITECTURES
from training.trainer.compact_embedding import CompactEmbedding
from training.trainer.dropout import draw, drawing_from, kept
from training.trainer.fused_layer import Dropped, Rates, Trace, TrainedLayer, Way, drop
from training.trainer.fused_parts import Normed, Tape, Trained, TrainedDense, TrainedNorm, TrainedTable
from training.trainer.replica import Column, ForwardOutput, MicroBatch, Replica, gradient_norms
from training.trainer.unpadded_batch import UnpaddedBatch, unpad_batch


@dataclass
class FusedMicroBatch(MicroBatch):
    """And where its tokens lie, and what is dropped of them."""

    tokens: UnpaddedBatch
    begun: Tensor | None  # dropout's factors after the first norm (M, D); None = nothing is dropped
    dropped: list[Dropped]  # in each layer


@dataclass
class FusedForwardOutput(ForwardOutput):
    """And what the way back needs."""

    share: FusedMicroBatch
    way: Way
    begun: Normed  # the norm before the layers
    traces: list[Trace]  # of each layer
    hidden: Tensor  # (M, D), where autograd's way begins
    tape: Tape = field(default_factory=dict)


class FusedReplica(Replica):
    """Make one only where `fused_bert.fits` says so."""

    def __init__(self, backbone: Any, words: CompactEmbedding, pooling: str, dtype: torch.dtype) -> None:
        super().__init__(words, pooling, dtype)
        config = backbone.config
        names, embeddings = ARCHITECTURES[config.model_type], backbone.embeddings
        self.parts: list[Trained] = []
        self.positions = self._table(embeddings.position_embeddings.weight)
        self.first = embeddings.position_embeddings.padding_idx + 1 if names.after_padding else 0
        kinds = getattr(embeddings, "token_type_embeddings", None)
        self.kinds = None if kinds is None else self._table(kinds.weight)
        self.norm = self._norm(embeddings.LayerNorm)
        self.buckets = self.distances = None
        if config.model_type == "mpnet":
            encoder, longest = backbone.encoder, len(self.positions.rows)
            self.buckets = encoder.relative_position_bucket(torch.arange(1 - longest, longest))
            self.distances = self._table(encoder.relative_attention_bias.weight)
        self.heads = int(config.num_attention_heads)
        make = self.heads, self._product, self._norm
        self.layers = [TrainedLayer(layer, names, *make) for layer in backbone.get_submodule(names.layers)]
        rate = getattr(config, names.dropout)
        self.rates = Rates(getattr(config, names.attention_dropout), rate if names.drops_output else 0.0, rate)
        self.links = [link for part in self.parts for link in part.links]

    def collate(self, ids: Column, generator: np.random.Generator) -> FusedMicroBatch:
        tokens, width = unpad_batch(ids, self.dtype), self.positions.rows.shape[1]
        with drawing_from(generator):
            begun, rate = None, self.rates.hidden
            if rate:
                begun = kept(draw(len(tokens.ids) * width), rate, self.dtype).view(-1, width)
            dropped = [drop(tokens, self.heads, width, self.rates, self.dtype) for _ in self.layers]
        return FusedMicroBatch(self.words.find(tokens.ids), tokens, begun, dropped)

    @torch.inference_mode()
    def forward(self, share: FusedMicroBatch) -> FusedForwardOutput:
        tokens, words = share.tokens, self.words.vectors(share.positions)
        x = words.to(self.dtype) + self.positions.forward(tokens.positions + self.first)
        if self.kinds is not None:
            x += self.kinds.rows[0]
        way = Way(tokens, self.heads, self._bias(tokens))
        begun, traces = self.norm.forward(x), list[Trace]()
        hidden = begun.y if share.begun is None else begun.y * share.begun
        for layer, dropped in zip(self.layers, share.dropped, strict=True):
            traces.append(layer.forward(hidden, way, dropped))
            hidden = traces[-1].end.y
        with torch.inference_mode(False):
            hidden = hidden.clone().requires_grad_()
            vectors = self.pooling(F.embedding(tokens.places, hidden), tokens.mask).float()
        return FusedForwardOutput(vectors, None, share, way, begun, traces, hidden)

    def backward(self, part: FusedForwardOutput, upstream: Tensor) -> None:
        (found,) = torch.autograd.grad(part.vectors, part.hidden, upstream)
        with torch.inference_mode():
            of_bias: Tensor | None = None
            for layer in reversed(self.layers):
                found, of_logits = layer.backward(found, part.traces.pop(), part.way, part.tape)
                if self.distances is not None:
                    of_bias = of_logits if of_bias is None else of_bias.add_(of_logits)
            dropped = part.share.begun
            part.of_words = self.norm.backward(found if dropped is None else found * dropped, part.begun, part.tape)
            self._of_tables(part, part.of_words, of_bias)

    def summing(self, parts: Sequence[FusedForwardOutput], pieces: int) -> list[Callable[[], list[Tensor]]]:
        tapes = [part.tape for part in parts]
        large = [part for part in self.parts if isinstance(part, TrainedDense)]
        small = [part for part in self.parts if not isinstance(part, TrainedDense)]
        return [partial(_receive, each, tapes) for each in [[part] for part in large] + [small]]

    def _bias(self, tokens: UnpaddedBatch) -> Tensor | None:
        """What is added to the attention's logits (R, H or 1, W, W)."""
        if self.distances is None:
            return tokens.bias
        near = self.distances.forward(self._buckets_of(tokens)).permute(0, 3, 1, 2)
        return near if tokens.bias is None else near + tokens.bias

    def _buckets_of(self, tokens: UnpaddedBatch) -> Tensor:
        """Which distance lies between two tokens of a row (R, W, W)."""
        assert self.buckets is not None  # noqa: S101 - where there are distances there are buckets of them
        where = tokens.row_positions
        return self.buckets[where[:, None, :] - where[:, :, None] + len(self.positions.rows) - 1]

    def _of_tables(self, part: FusedForwardOutput, of_x: Tensor, of_bias: Tensor | None) -> None:
        tokens, tape = part.way.tokens, part.tape
        self.positions.backward(of_x, tokens.positions + self.first, tape)
        if self.kinds is not None:
            self.kinds.backward(of_x.sum(dim=0, keepdim=True), torch.zeros(1, dtype=torch.int64), tape)
        if self.distances is not None and of_bias is not None:
            self.distances.backward(of_bias.permute(0, 2, 3, 1), self._buckets_of(tokens), tape)

    def _table(self, weight: Tensor) -> TrainedTable:
        self.parts.append(table := TrainedTable(weight, self.dtype))
        return table

    def _product(self, linears: Sequence[nn.Linear], scale: float) -> TrainedDense:
        self.parts.append(product := TrainedDense(linears, scale, self.dtype))
        return product

    def _norm(self, module: nn.LayerNorm) -> TrainedNorm:
        self.parts.append(norm := TrainedNorm(module, self.dtype))
        return norm


def _receive(parts: Sequence[Trained], tapes: Sequence[Tape]) -> list[Tensor]:
    return gradient_norms([each for part in parts for each in part.receive([tape[part] for tape in tapes])])
