"""FusedBert and FusedModernBert: transformers in inference, with fewer and larger operations.

The arithmetic is that of the modules of the transformers library. Query, key and value are one product; the bias, GELU
and the residual are added within the products (`training.inference.layers`); the weights are copied once into the
layout in which they multiply fastest.

``ARCHITECTURES`` says where each architecture of BERT's family keeps its weights. ModernBERT (Warner et al. 2024)
differs in each part: norms come before attention and the feed-forward network, positions are rotations of queries and
keys, most layers attend only to the tokens nearby, and the feed-forward network is gated (GeGLU). Any other
architecture runs as its own module (`training.inference.runner`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.inference.batching import Boundaries
from training.inference.layers import Int8Linear, ObservedLinear, attention, fused_linear, has_varlen, layer_norm
from training.parallel import run_parallel


@dataclass(frozen=True)
class WeightNames:
    """The names of an architecture's modules: the list of layers, and the modules within a layer."""

    layers: str = "encoder.layer"
    query: str = "attention.self.query"
    key: str = "attention.self.key"
    value: str = "attention.self.value"
    output: str = "attention.output.dense"
    output_norm: str = "attention.output.LayerNorm"
    up: str = "intermediate.dense"
    down: str = "output.dense"
    down_norm: str = "output.LayerNorm"


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
    linears = (names.query, names.key, names.value, names.output, names.up, names.down)
    # An adapter that is not merged yet, or a quantised matrix, is a subclass of Linear or something else.
    return all(type(layer.get_submodule(name)) is nn.Linear for layer in layers for name in linears)


def position_offset(backbone: Any) -> int:
    """The position id of the first token: 0, or in RoBERTa's family and MPNet the padding token's id plus one."""
    embeddings = getattr(backbone, "embeddings", None)
    padding_idx = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    return 0 if padding_idx is None else padding_idx + 1


class FusedBert:
    """A copy of a backbone's weights in ``dtype``, for inference. Its backbone must pass ``supports_fused``.

    With int8 it computes in float32 and records the ranges of its products' inputs until ``to_int8`` is called.
    """

    def __init__(self, backbone: Any, dtype: torch.dtype) -> None:
        names = ARCHITECTURES[backbone.config.model_type]
        embeddings = backbone.embeddings
        config = backbone.config
        linear = ObservedLinear if dtype == torch.int8 else fused_linear
        # The dtype of attention.
        self.dtype = dtype = torch.float32 if dtype == torch.int8 else dtype
        self.heads = int(config.num_attention_heads)
        self.token_embeddings = embeddings.word_embeddings.weight.detach().to(dtype, copy=True)
        # The row of padding comes first, if there is one.
        self.padding_idx = embeddings.position_embeddings.padding_idx
        positions = embeddings.position_embeddings.weight.detach()[self.padding_idx or 0 :]
        self.positions = len(positions)
        self.max_length = self.positions - (self.padding_idx is not None)
        if hasattr(embeddings, "token_type_embeddings"):
            # One block of positions for each token type.
            types = embeddings.token_type_embeddings.weight.detach()
            positions = (types[:, None] + positions).flatten(0, 1)
        self.position_embeddings = positions.to(dtype, copy=True)
        self.norm = layer_norm(embeddings.LayerNorm, dtype)
        layers = backbone.get_submodule(names.layers)
        self.layers = run_parallel([partial(FusedLayer, layer, names, self.heads, dtype, linear) for layer in layers])
        head_size = int(config.hidden_size) // self.heads
        # Whether ``bias`` may be `Boundaries`. MPNet has a bias between any two positions.
        self.unpadded = config.model_type != "mpnet" and has_varlen(self.token_embeddings.device, dtype, head_size)
        # (2 * max_length - 1, H), by distance, from 1 - max_length.
        self.relative_bias: Tensor | None = None
        if config.model_type == "mpnet":
            encoder = backbone.encoder
            device = self.token_embeddings.device
            distances = torch.arange(1 - self.max_length, self.max_length, device=device)
            bias = encoder.relative_attention_bias(encoder.relative_position_bucket(distances))
            self.relative_bias = bias.detach().to(dtype)

    def to_int8(self, attention_dtype: torch.dtype) -> None:
        """Rounds the weights and, from now on, the inputs of all products within the recorded ranges."""
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

        ``ids``, ``positions`` (of each token in its own text, from 0) and ``token_types`` (None = all 0) are (R, W)
        int64. ``bias`` is added to the attention's logits, broadcast to (R, H, W, W), such as a mask; or it is one for
        each layer; or, if ``unpadded``, the boundaries of the texts in a single row.
        """
        rows, width = ids.shape
        index = self._position_rows(ids, positions) + (0 if token_types is None else token_types * self.positions)
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

    def _position_rows(self, ids: Tensor, positions: Tensor) -> Tensor:
        """The row of each token in the table of positions. RoBERTa's family does not count padding in a text."""
        if self.padding_idx is None:
            return positions
        is_padding = (ids == self.padding_idx).long()
        counts = is_padding.cumsum(1)
        starts = torch.arange(ids.shape[1], device=ids.device) - positions
        earlier = (counts - is_padding).gather(1, starts)  # in the texts before it
        return (positions + 1 - counts + earlier) * (1 - is_padding)


class FusedLayer:
    """Self-attention and the feed-forward network, each with its residual and norm."""

    def __init__(
        self, layer: nn.Module, names: WeightNames, heads: int, dtype: torch.dtype, linear: Callable[..., Any]
    ) -> None:
        part: Any = layer.get_submodule
        query = part(names.query)
        key = part(names.key)
        value = part(names.value)
        self.heads = heads
        # The scale of the attention's logits is multiplied into the query.
        scale = (query.out_features // heads) ** -0.5
        weight = torch.cat([query.weight * scale, key.weight, value.weight])
        self.projection = linear(weight, torch.cat([query.bias * scale, key.bias, value.bias]), dtype)
        linears = (part(name) for name in (names.output, names.up, names.down))
        self.output, self.up, self.down = (linear(module.weight, module.bias, dtype) for module in linears)
        self.output_norm = layer_norm(part(names.output_norm), dtype)
        self.down_norm = layer_norm(part(names.down_norm), dtype)

    def to_int8(self, attention_dtype: torch.dtype) -> None:
        """Does for one layer what ``FusedBert.to_int8`` does."""
        projection = self.projection
        output = self.output
        up = self.up
        down = self.down
        self.projection = Int8Linear(projection, attention_dtype, smooth=True)
        self.output = Int8Linear(output)
        self.up = Int8Linear(up, smooth=True, following=down)
        self.down = Int8Linear(down)

    def __call__(self, hidden: Tensor, rows: int, bias: Tensor | Boundaries | None) -> Tensor:
        """Hidden states (R*W, D) of R rows, and the bias on the attention's logits or boundaries -> (R*W, D)."""
        context = attention(self.projection(hidden), rows, self.heads, bias)
        hidden = self.output_norm(self.output.plus(context, hidden))
        return self.down_norm(self.down.plus(self.up.gelu(hidden), hidden))


Bias = Tensor | Boundaries | None
LOCAL = "sliding_attention"
MODERNBERT_LINEARS = ("attn.Wqkv", "attn.Wo", "mlp.Wi", "mlp.Wo")


def supports_fused_modernbert(backbone: nn.Module) -> bool:
    """Whether ``FusedModernBert`` computes what ``backbone`` does: plain weights, erf's GELU, default rotations."""
    config: Any = backbone.config
    if config.model_type != "modernbert" or config.hidden_activation != "gelu":
        return False
    rotations = filter(None, config.rope_parameters.values())
    if any(rotation.get("rope_type", "default") != "default" for rotation in rotations):
        return False
    layers: Any = backbone.get_submodule("layers")
    return all(type(layer.get_submodule(name)) is nn.Linear for layer in layers for name in MODERNBERT_LINEARS)


class FusedModernBert:
    """A copy of a backbone's weights in ``dtype``, for inference. It must pass ``supports_fused_modernbert``."""

    def __init__(self, backbone: Any, dtype: torch.dtype) -> None:
        config = backbone.config
        self.dtype = dtype
        self.heads = int(config.num_attention_heads)
        # Tokens to either side that a token of a local layer attends to.
        self.window = int(config.sliding_window)
        self.token_embeddings = backbone.embeddings.tok_embeddings.weight.detach().to(dtype, copy=True)
        head_size = int(config.hidden_size) // self.heads
        self.unpadded = has_varlen(self.token_embeddings.device, dtype, head_size, self.window)
        self.norm = layer_norm(backbone.embeddings.norm, dtype)
        self.final_norm = layer_norm(backbone.final_norm, dtype)
        self.layers = run_parallel([partial(FusedModernBertLayer, layer, dtype) for layer in backbone.layers])
        self.is_local = [kind == LOCAL for kind in config.layer_types]
        self.frequencies = {
            kind: getattr(backbone.rotary_emb, f"{kind}_inv_freq").detach().float() for kind in set(config.layer_types)
        }

    def __call__(self, ids: Tensor, positions: Tensor, bias: Bias = None) -> Tensor:
        """Hidden states (R, W, D) of R rows of W tokens; arguments as of `FusedBert`, with one bias for all layers."""
        rows, width = ids.shape
        hidden = self.norm(F.embedding(ids.flatten(), self.token_embeddings))
        # Cosines and sines (R*W, 1, 1, d) float32 of the angle of each pair of a head's dimensions.
        places = positions.flatten()[:, None].float()
        angles = {kind: (places * turns).repeat(1, 2)[:, None, None] for kind, turns in self.frequencies.items()}
        rotations = {kind: (angle.cos(), angle.sin()) for kind, angle in angles.items()}
        local_bias = self._local_bias(positions, bias) if any(self.is_local) else bias
        for layer, is_local in zip(self.layers, self.is_local, strict=True):
            cos, sin = rotations[LOCAL if is_local else "full_attention"]
            hidden = layer(hidden, rows, self.heads, cos, sin, local_bias if is_local else bias)
        return self.final_norm(hidden).view(rows, width, -1)

    def _local_bias(self, positions: Tensor, bias: Bias) -> Bias:
        """The bias of local layers, which also keeps tokens further apart than the window from each other."""
        if isinstance(bias, Boundaries):
            return bias._replace(window=self.window) if bias.longest > self.window + 1 else bias
        if positions.shape[1] <= self.window + 1:
            # No two tokens of a row are further apart.
            return bias
        far = (positions[:, None, :, None] - positions[:, None, None, :]).abs() > self.window
        if bias is None:
            bias = torch.zeros(far.shape, dtype=self.dtype, device=far.device)
        return bias.masked_fill(far, torch.finfo(self.dtype).min)


class FusedModernBertLayer:
    """Self-attention and the gated feed-forward network, each after its norm and with its residual."""

    def __init__(self, layer: Any, dtype: torch.dtype) -> None:
        # The input of the first layer is normalised already.
        is_first = not isinstance(layer.attn_norm, nn.LayerNorm)
        self.attention_norm = None if is_first else layer_norm(layer.attn_norm, dtype)
        # The scale of the attention's logits is multiplied into the query.
        self.scale = layer.attn.head_dim**-0.5
        self.projection = fused_linear(layer.attn.Wqkv.weight, layer.attn.Wqkv.bias, dtype)
        self.output = fused_linear(layer.attn.Wo.weight, layer.attn.Wo.bias, dtype)
        self.mlp_norm = layer_norm(layer.mlp_norm, dtype)
        # One linear module computes the feed-forward network's input and its gate; here each is a product of its own.
        up, gate = layer.mlp.Wi.weight.chunk(2)
        up_bias, gate_bias = (None, None) if layer.mlp.Wi.bias is None else layer.mlp.Wi.bias.chunk(2)
        self.up = fused_linear(up, up_bias, dtype)
        self.gate = fused_linear(gate, gate_bias, dtype)
        self.down = fused_linear(layer.mlp.Wo.weight, layer.mlp.Wo.bias, dtype)

    def __call__(self, hidden: Tensor, rows: int, heads: int, cos: Tensor, sin: Tensor, bias: Bias) -> Tensor:
        """Hidden states (R*W, D) of R rows -> (R*W, D)."""
        normed = hidden if self.attention_norm is None else self.attention_norm(hidden)
        projected = self._rotate(self.projection(normed), heads, cos, sin)
        hidden = self.output.plus(attention(projected, rows, heads, bias), hidden)
        normed = self.mlp_norm(hidden)
        return self.down.plus(self.up.gelu(normed) * self.gate(normed), hidden)

    def _rotate(self, projected: Tensor, heads: int, cos: Tensor, sin: Tensor) -> Tensor:
        """Query, key and value (N, 3D): the first two rotated in float32, the query scaled."""
        parts = projected.view(len(projected), 3, heads, -1)
        turned = parts[:, :2].float()
        half = turned.shape[-1] // 2
        across = torch.cat([-turned[..., half:], turned[..., :half]], dim=-1)
        turned = turned * cos + across * sin
        turned[:, 0] *= self.scale
        return torch.cat([turned.to(projected.dtype), parts[:, 2:]], dim=1).flatten(1)
