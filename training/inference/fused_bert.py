"""FusedBert: the transformers of BERT's family in inference, with fewer and larger operations.

The arithmetic is that of the modules of the transformers library. Query, key and value are one product; the bias, GELU
and the residual are added within the product (`training.inference.linear`); the weights are copied once into the
layout in which they multiply fastest. Attention is two batched products and a softmax, which on rows of 32 tokens
(`training.inference.batching`) takes half the time of the kernels made for long texts.

``ARCHITECTURES`` says where each architecture keeps its weights. Any other runs as its own module
(`training.inference.runner`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.errors import InputError
from training.inference.int8 import Int8Linear, ObservedLinear, has_int8
from training.inference.linear import FusedLinear, fused_linear
from training.inference.unpadded import Boundaries, has_varlen, varlen_attention
from training.parallel import run_parallel

LONG_ROW_TOKENS = 256  # tokens a row from which PyTorch's fused attention is faster on a CPU


@dataclass(frozen=True)
class WeightNames:
    """Where an architecture keeps its weights: the list of layers, and the modules within a layer."""

    layers: str = "encoder.layer"
    query: str = "attention.self.query"
    key: str = "attention.self.key"
    value: str = "attention.self.value"
    output: str = "attention.output.dense"
    output_norm: str = "attention.output.LayerNorm"
    up: str = "intermediate.dense"
    down: str = "output.dense"
    down_norm: str = "output.LayerNorm"

    @property
    def linears(self) -> tuple[str, ...]:
        """The linear modules of a layer."""
        return self.query, self.key, self.value, self.output, self.up, self.down


_BERT = WeightNames()
ARCHITECTURES = {
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "camembert": _BERT,
    "mpnet": replace(
        _BERT,
        query="attention.attn.q",
        key="attention.attn.k",
        value="attention.attn.v",
        output="attention.attn.o",
        output_norm="attention.LayerNorm",
    ),
    "distilbert": WeightNames(
        layers="transformer.layer",
        query="attention.q_lin",
        key="attention.k_lin",
        value="attention.v_lin",
        output="attention.out_lin",
        output_norm="sa_layer_norm",
        up="ffn.lin1",
        down="ffn.lin2",
        down_norm="output_layer_norm",
    ),
}


def supports_fused(backbone: nn.Module) -> bool:
    """Whether ``FusedBert`` computes what ``backbone`` does: a known architecture, plain weights, erf's GELU."""
    config = backbone.config
    names = ARCHITECTURES.get(config.model_type)  # type: ignore[union-attr, arg-type]
    activation = getattr(config, "hidden_act", None) or getattr(config, "activation", None)
    if names is None or activation != "gelu" or getattr(config, "is_decoder", False):
        return False
    layers: Any = backbone.get_submodule(names.layers)
    # An adapter that is not merged yet, or a quantised matrix, is a subclass of Linear or something else.
    return all(type(layer.get_submodule(name)) is nn.Linear for layer in layers for name in names.linears)


def check_int8(name: str, backbone: nn.Module) -> None:
    """InputError if a model cannot compute in int8 where its weights are."""
    device = next(backbone.parameters()).device
    if not has_int8(device.type):
        raise InputError(f"int8 needs a CPU whose PyTorch has oneDNN's 8-bit products, not {device.type}; choose auto")
    if not supports_fused(backbone):
        kind = getattr(getattr(backbone, "config", None), "model_type", "its kind")
        raise InputError(f"{name} cannot compute in int8: that is for BERT's family, not for {kind}; choose auto")


def position_offset(backbone: Any) -> int:
    """The position id of the first token: 0, or in RoBERTa's family and MPNet the padding token's id plus one."""
    embeddings = getattr(backbone, "embeddings", None)
    padding_idx = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    return 0 if padding_idx is None else padding_idx + 1


class FusedBert:
    """A copy of a backbone's weights in ``dtype``, for inference. Its backbone must pass ``supports_fused``.

    With int8 it computes in float32 and records the ranges of what it sees until ``to_int8`` is called.
    """

    def __init__(self, backbone: Any, dtype: torch.dtype) -> None:
        names, embeddings, config = ARCHITECTURES[backbone.config.model_type], backbone.embeddings, backbone.config
        linear = ObservedLinear if dtype == torch.int8 else fused_linear
        dtype = torch.float32 if dtype == torch.int8 else dtype
        self.dtype = dtype  # of attention
        self.heads = int(config.num_attention_heads)
        self.token_embeddings = embeddings.word_embeddings.weight.detach().to(dtype, copy=True)
        positions = embeddings.position_embeddings.weight.detach()[position_offset(backbone) :]
        self.max_length = len(positions)
        if hasattr(embeddings, "token_type_embeddings"):  # one block of positions for each token type
            types = embeddings.token_type_embeddings.weight.detach()
            positions = (types[:, None] + positions).flatten(0, 1)
        self.position_embeddings = positions.to(dtype, copy=True)
        self.norm = FusedLayerNorm(embeddings.LayerNorm, dtype)
        self.layers = run_parallel(
            [
                partial(FusedLayer, layer, names, self.heads, dtype, linear)
                for layer in backbone.get_submodule(names.layers)
            ]
        )
        head_size = int(config.hidden_size) // self.heads
        # Whether ``bias`` may be `Boundaries`. MPNet has a bias between any two positions.
        self.unpadded = config.model_type != "mpnet" and has_varlen(self.token_embeddings.device, dtype, head_size)
        self.relative_bias: Tensor | None = None  # (2 * max_length - 1, H), by distance, from 1 - max_length
        if config.model_type == "mpnet":
            encoder, device = backbone.encoder, self.token_embeddings.device
            distances = torch.arange(1 - self.max_length, self.max_length, device=device)
            bias = encoder.relative_attention_bias(encoder.relative_position_bucket(distances))
            self.relative_bias = bias.detach().to(dtype)

    def to_int8(self, attention_dtype: torch.dtype) -> None:
        """Round the weights and, from now on, the inputs of all products within the ranges that were recorded."""
        self.dtype = attention_dtype
        if self.relative_bias is not None:
            self.relative_bias = self.relative_bias.to(attention_dtype)
        run_parallel([partial(layer.to_int8, attention_dtype) for layer in self.layers])

    def __call__(
        self,
        ids: Tensor,
        positions: Tensor,
        bias: Tensor | Sequence[Tensor] | Boundaries | None = None,
        token_types: Tensor | None = None,
    ) -> Tensor:
        """Hidden states (R, W, D) of R rows of W tokens.

        Args:
            ids: (R, W) int64.
            positions: (R, W) int64, the position of each token in its own text, from 0.
            bias: added to the attention's logits, broadcast to (R, H, W, W), such as a mask; or one for each layer;
                or, if ``unpadded``, the boundaries of the texts in a single row.
            token_types: (R, W) int64; None = all 0.
        """
        rows, width = ids.shape
        index = positions if token_types is None else positions + token_types * self.max_length
        embedded = F.embedding(ids.flatten(), self.token_embeddings)
        hidden = self.norm(embedded + F.embedding(index.flatten(), self.position_embeddings))
        is_one = bias is None or isinstance(bias, Tensor | Boundaries)
        biases: Sequence[Any] = [bias] * len(self.layers) if is_one else bias  # type: ignore[assignment]
        if self.relative_bias is not None:
            distances = positions[:, None, :] - positions[:, :, None] + self.max_length - 1
            relative = self.relative_bias[distances].permute(0, 3, 1, 2)  # (R, H, W, W)
            biases = [relative if bias is None else relative + bias for bias in biases]
        for layer, layer_bias in zip(self.layers, biases, strict=True):
            hidden = layer(hidden, rows, layer_bias)
        return hidden.view(rows, width, -1)


class FusedLayer:
    """Self-attention and the feed-forward network, each with its residual and norm."""

    def __init__(
        self,
        layer: nn.Module,
        names: WeightNames,
        heads: int,
        dtype: torch.dtype,
        linear: Callable[[Sequence[nn.Linear], float, torch.dtype], FusedLinear] = fused_linear,
    ) -> None:
        part: Any = layer.get_submodule
        query, key, value = part(names.query), part(names.key), part(names.value)
        self.heads = heads
        scale = (query.out_features // heads) ** -0.5  # of the attention's logits, multiplied into the query
        self.projection = linear([query, key, value], scale, dtype)
        self.output = linear([part(names.output)], 1.0, dtype)
        self.output_norm = FusedLayerNorm(part(names.output_norm), dtype)
        self.up = linear([part(names.up)], 1.0, dtype)
        self.down = linear([part(names.down)], 1.0, dtype)
        self.down_norm = FusedLayerNorm(part(names.down_norm), dtype)

    def to_int8(self, attention_dtype: torch.dtype) -> None:
        """See ``FusedBert.to_int8``."""
        seen: Any = (self.projection, self.output, self.up, self.down)
        projection, output, up, down = seen
        self.projection = Int8Linear(projection, attention_dtype, smooth=True)
        self.output = Int8Linear(output)
        self.up = Int8Linear(up, smooth=True, following=down)
        self.down = Int8Linear(down)

    def __call__(self, hidden: Tensor, rows: int, bias: Tensor | Boundaries | None) -> Tensor:
        """Hidden states (R*W, D) of R rows, and the bias on the attention's logits or boundaries -> (R*W, D)."""
        context = attention(self.projection(hidden), rows, self.heads, bias)
        hidden = self.output_norm(self.output.plus(context, hidden))
        return self.down_norm(self.down.plus(self.up.gelu(hidden), hidden))


class FusedLayerNorm:
    """LayerNorm over the last dimension, with or without a bias."""

    def __init__(self, norm: nn.LayerNorm, dtype: torch.dtype) -> None:
        self.shape, self.eps = norm.normalized_shape, norm.eps
        self.weight = norm.weight.detach().to(dtype, copy=True)
        self.bias = None if norm.bias is None else norm.bias.detach().to(dtype, copy=True)

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.shape, self.weight, self.bias, self.eps)


def attention(projected: Tensor, rows: int, heads: int, bias: Tensor | Boundaries | None) -> Tensor:
    """Query (scaled), key and value of R rows of W tokens (R*W, 3D) -> context (R*W, D).

    ``bias`` is added to the logits (R, H, W, W), or says where the texts of a single row begin.
    """
    if isinstance(bias, Boundaries):
        return varlen_attention(projected, heads, bias)
    qkv = projected.view(rows, -1, 3, heads, projected.shape[1] // (3 * heads)).permute(2, 0, 3, 1, 4)
    if projected.device.type != "cpu" or qkv.shape[3] > LONG_ROW_TOKENS:
        query, key, value = qkv.unbind()
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=1.0)
    else:
        context = _attention_by_products(qkv, bias)
    return context.transpose(1, 2).reshape(len(projected), -1)


def _attention_by_products(qkv: Tensor, bias: Tensor | None) -> Tensor:
    """(3, R, H, W, D/H) -> (R, H, W, D/H)."""
    _, rows, heads, width, size = qkv.shape
    query, key, value = qkv.contiguous().view(3, rows * heads, width, size).unbind()
    logits = torch.bmm(query, key.transpose(1, 2)).view(rows, heads, width, width)
    weights = torch.softmax(logits if bias is None else logits.add_(bias), dim=-1)
    return torch.bmm(weights.view(-1, width, width), value).view(rows, heads, width, size)
