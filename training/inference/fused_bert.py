"""FusedBert and FusedModernBert: transformers in inference, with fewer and larger operations.

They compute the same as the modules of the transformers library. Query, key and value are one
product. The bias, GELU and the residual are added within the products
(`training.inference.layers`). The weights are copied once into the layout that multiplies fastest.

``ARCHITECTURES`` lists the names of the weights in each architecture of BERT's family. ModernBERT
(Warner et al. 2024) differs in each part: norms come before attention and the feed-forward network,
positions are rotations of queries and keys, most layers attend only to nearby tokens, and the
feed-forward network is gated (GeGLU). Any other architecture runs as its own module
(`training.inference.runner`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.inference.batching import Boundaries
from training.inference.layers import (
    Int8Linear,
    ObservedLinear,
    attention,
    fused_linear,
    has_varlen,
    layer_norm,
)
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
    """Tells whether ``FusedBert`` can replace ``backbone``: a known architecture, plain weights, GELU with erf."""
    config: Any = backbone.config
    names = ARCHITECTURES.get(config.model_type)
    if names is None or getattr(config, "is_decoder", False):
        return False
    # DistilBERT names the setting ``activation``.
    activation = getattr(config, "hidden_act", None) or getattr(config, "activation", None)
    linears = (names.query, names.key, names.value, names.output, names.up, names.down)
    return activation == "gelu" and _are_plain(backbone.get_submodule(names.layers), linears)


def _are_plain(layers: Any, names: Sequence[str]) -> bool:
    """Tells whether the modules of these names are plain: adapters and quantised matrices are subclasses of Linear."""
    modules = (layer.get_submodule(name) for layer in layers for name in names)
    return all(type(module) is nn.Linear for module in modules)


def position_offset(backbone: Any) -> int:
    """Returns the first token's position id: 0, or in RoBERTa's family and MPNet the padding token's id plus one."""
    embeddings = getattr(backbone, "embeddings", None)
    padding_idx = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    return 0 if padding_idx is None else padding_idx + 1


class FusedBert:
    """A copy of a backbone's weights in ``dtype``, for inference. The backbone must pass ``supports_fused``.

    With int8 it computes in float32 and records the ranges of the inputs of products, until
    ``to_int8`` is called.
    """

    def __init__(self, backbone: Any, dtype: torch.dtype) -> None:
        config = backbone.config
        names = ARCHITECTURES[config.model_type]
        embeddings = backbone.embeddings
        linear: Callable[..., Any] = fused_linear
        # For int8 the products compute in float32, and record the ranges of their inputs for `to_int8`.
        if dtype == torch.int8:
            linear = ObservedLinear
            dtype = torch.float32
        # The dtype of attention, which callers also make its ``bias`` in.
        self.dtype = dtype
        self.heads = int(config.num_attention_heads)
        self.token_embeddings = embeddings.word_embeddings.weight.detach().to(dtype, copy=True)
        # In RoBERTa's family and MPNet the table begins with the row of the padding token. The rows
        # before it are not used.
        self.padding_idx = embeddings.position_embeddings.padding_idx
        table = embeddings.position_embeddings.weight.detach()[self.padding_idx or 0 :]
        # The number of rows for each token type: one for each position, and one for the padding token
        # if the table begins with it.
        self.table_size = len(table)
        self.max_length = self.table_size
        if self.padding_idx is not None:
            self.max_length -= 1
        if hasattr(embeddings, "token_type_embeddings"):
            # The table is repeated for each token type, whose vector is added to it.
            types = embeddings.token_type_embeddings.weight.detach()
            table = (types[:, None] + table).flatten(0, 1)
        self.position_embeddings = table.to(dtype, copy=True)
        self.norm = layer_norm(embeddings.LayerNorm, dtype)
        layers = backbone.get_submodule(names.layers)
        self.layers = run_parallel(
            [partial(FusedLayer, layer, names, self.heads, dtype, linear) for layer in layers]
        )
        device = self.token_embeddings.device
        head_size = int(config.hidden_size) // self.heads
        is_mpnet = config.model_type == "mpnet"
        # Whether ``bias`` may be `Boundaries`. MPNet has a bias between any two positions.
        self.unpadded = not is_mpnet and has_varlen(device, dtype, head_size)
        # MPNet's bias for each distance of two tokens, from 1 - max_length to max_length - 1:
        # (2 * max_length - 1, H).
        self.relative_bias: Tensor | None = None
        if is_mpnet:
            encoder = backbone.encoder
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
        """Computes hidden states (R, W, D) of R rows of W tokens.

        Args:
            ids: token ids, (R, W) int64.
            positions: the position of each token in its own text, from 0, (R, W) int64.
            bias: what is added to the attention's logits, broadcast to (R, H, W, W), such as a
                mask; or a bias for each layer; or, if ``unpadded``, the boundaries of the texts in
                a single row.
            token_types: (R, W) int64; None = all 0.
        """
        rows, width = ids.shape
        index = self._position_rows(ids, positions)
        if token_types is not None:
            # The rows for the token type 1 follow the rows for 0.
            index = index + token_types * self.table_size
        embedded = F.embedding(ids.flatten(), self.token_embeddings)
        hidden = self.norm(embedded + F.embedding(index.flatten(), self.position_embeddings))
        biases: Any = bias
        if self.relative_bias is not None:
            distances = positions[:, None, :] - positions[:, :, None]
            # The first row is for the distance 1 - max_length.
            bias_rows = distances + self.max_length - 1
            relative = self.relative_bias[bias_rows].permute(0, 3, 1, 2)  # (R, H, W, W)
            if bias is None:
                biases = relative
            elif isinstance(bias, Tensor):
                biases = relative + bias
            else:
                # A bias for each layer. `Boundaries` cannot occur, as MPNet is never ``unpadded``.
                biases = [relative + layer_bias for layer_bias in biases]
        # A single bias is the same for all layers.
        if biases is None or isinstance(biases, Tensor | Boundaries):
            biases = [biases] * len(self.layers)
        for layer, layer_bias in zip(self.layers, biases, strict=True):
            hidden = layer(hidden, rows, layer_bias)
        return hidden.view(rows, width, -1)

    def _position_rows(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Returns the row of each token in the table of positions, (R, W).

        RoBERTa's family numbers the real tokens of a text from 1. Padding tokens, which a text may
        contain, have the row 0.
        """
        if self.padding_idx is None:
            return positions
        is_padding = (ids == self.padding_idx).long()
        # The number of padding tokens in the row up to each token, which is counted too.
        counts = is_padding.cumsum(1)
        # The number of them before the start of the token's text.
        starts = torch.arange(ids.shape[1], device=ids.device) - positions
        earlier = (counts - is_padding).gather(1, starts)
        # A real token has the number positions + 1, less the padding tokens before it in its text.
        return (positions + 1 - counts + earlier) * (1 - is_padding)


class FusedLayer:
    """Self-attention and the feed-forward network, each with its residual and norm."""

    def __init__(
        self,
        layer: nn.Module,
        names: WeightNames,
        heads: int,
        dtype: torch.dtype,
        linear: Callable[..., Any],
    ) -> None:
        submodule: Any = layer.get_submodule
        query = submodule(names.query)
        key = submodule(names.key)
        value = submodule(names.value)
        output = submodule(names.output)
        up = submodule(names.up)
        down = submodule(names.down)
        self.heads = heads
        # The scale of the attention's logits is multiplied into the query.
        scale = (query.out_features // heads) ** -0.5
        weight = torch.cat([query.weight * scale, key.weight, value.weight])
        bias = torch.cat([query.bias * scale, key.bias, value.bias])
        self.projection = linear(weight, bias, dtype)
        self.output = linear(output.weight, output.bias, dtype)
        self.up = linear(up.weight, up.bias, dtype)
        self.down = linear(down.weight, down.bias, dtype)
        self.output_norm = layer_norm(submodule(names.output_norm), dtype)
        self.down_norm = layer_norm(submodule(names.down_norm), dtype)

    def to_int8(self, attention_dtype: torch.dtype) -> None:
        """Implements ``FusedBert.to_int8`` for one layer."""
        # ``projection`` and ``up`` follow a norm, so their inputs are smoothed (SmoothQuant). The
        # result of ``projection`` goes into attention.
        self.projection = Int8Linear(self.projection, attention_dtype, smooth=True)
        self.output = Int8Linear(self.output)
        # This reads the ranges of ``down``, which is replaced afterwards.
        self.up = Int8Linear(self.up, smooth=True, following=self.down)
        self.down = Int8Linear(self.down)

    def __call__(self, hidden: Tensor, rows: int, bias: Tensor | Boundaries | None) -> Tensor:
        """Computes hidden states (R*W, D) from (R*W, D), with a bias on the attention's logits or boundaries."""
        context = attention(self.projection(hidden), rows, self.heads, bias)
        hidden = self.output_norm(self.output.plus(context, hidden))
        return self.down_norm(self.down.plus(self.up.gelu(hidden), hidden))


Bias = Tensor | Boundaries | None
LOCAL = "sliding_attention"
MODERNBERT_LINEARS = ("attn.Wqkv", "attn.Wo", "mlp.Wi", "mlp.Wo")


def supports_fused_modernbert(backbone: nn.Module) -> bool:
    """Tells whether ``FusedModernBert`` can replace ``backbone``: plain weights, GELU with erf, default rotations."""
    config: Any = backbone.config
    if config.model_type != "modernbert" or config.hidden_activation != "gelu":
        return False
    for rotation in config.rope_parameters.values():
        if rotation and rotation.get("rope_type", "default") != "default":
            return False
    return _are_plain(backbone.get_submodule("layers"), MODERNBERT_LINEARS)


class FusedModernBert:
    """A copy of a backbone's weights in ``dtype``, for inference.

    The backbone must pass ``supports_fused_modernbert``.
    """

    def __init__(self, backbone: Any, dtype: torch.dtype) -> None:
        config = backbone.config
        self.dtype = dtype
        self.heads = int(config.num_attention_heads)
        # How many tokens to either side a token attends to in a local layer.
        self.window = int(config.sliding_window)
        token_embeddings = backbone.embeddings.tok_embeddings.weight.detach()
        self.token_embeddings = token_embeddings.to(dtype, copy=True)
        head_size = int(config.hidden_size) // self.heads
        self.unpadded = has_varlen(self.token_embeddings.device, dtype, head_size, self.window)
        self.norm = layer_norm(backbone.embeddings.norm, dtype)
        self.final_norm = layer_norm(backbone.final_norm, dtype)
        self.layers = run_parallel(
            [partial(FusedModernBertLayer, layer, dtype) for layer in backbone.layers]
        )
        self.layer_types = tuple(config.layer_types)
        # By the type of a layer: the angles by which one position rotates each pair of a head's
        # dimensions, (d/2,).
        self.frequencies = {}
        for kind in set(self.layer_types):
            frequencies = getattr(backbone.rotary_emb, f"{kind}_inv_freq")
            self.frequencies[kind] = frequencies.detach().float()

    def __call__(self, ids: Tensor, positions: Tensor, bias: Bias = None) -> Tensor:
        """Computes hidden states (R, W, D). The arguments are as in `FusedBert`, with one bias for all layers."""
        rows, width = ids.shape
        hidden = self.norm(F.embedding(ids.flatten(), self.token_embeddings))
        # Cosines and sines (R*W, 1, 1, d) float32 of the angle of each pair of a head's dimensions, i
        # and i + d/2. So the d/2 angles are repeated.
        places = positions.flatten()[:, None].float()
        rotations = {}
        for kind, frequencies in self.frequencies.items():
            angles = (places * frequencies).repeat(1, 2)[:, None, None]
            rotations[kind] = (angles.cos(), angles.sin())
        biases: dict[str, Bias] = dict.fromkeys(rotations, bias)
        if LOCAL in biases:
            biases[LOCAL] = self._local_bias(positions, bias)
        for layer, kind in zip(self.layers, self.layer_types, strict=True):
            cos, sin = rotations[kind]
            hidden = layer(hidden, rows, self.heads, cos, sin, biases[kind])
        return self.final_norm(hidden).view(rows, width, -1)

    def _local_bias(self, positions: Tensor, bias: Bias) -> Bias:
        """Returns the bias of local layers, which also separates tokens further apart than the window."""
        longest = bias.longest if isinstance(bias, Boundaries) else positions.shape[1]
        if longest <= self.window + 1:
            # No two tokens are further apart.
            return bias
        if isinstance(bias, Boundaries):
            return bias._replace(window=self.window)
        far = (positions[:, None, :, None] - positions[:, None, None, :]).abs() > self.window
        if bias is None:
            bias = torch.zeros(far.shape, dtype=self.dtype, device=far.device)
        return bias.masked_fill(far, torch.finfo(self.dtype).min)


class FusedModernBertLayer:
    """Self-attention and the gated feed-forward network. A norm comes before each, and a residual is added after it."""

    def __init__(self, layer: Any, dtype: torch.dtype) -> None:
        # The input of the first layer is normalised already.
        is_first = not isinstance(layer.attn_norm, nn.LayerNorm)
        self.attention_norm = None if is_first else layer_norm(layer.attn_norm, dtype)
        # The scale of the attention's logits is multiplied into the query.
        self.scale = layer.attn.head_dim**-0.5
        self.projection = fused_linear(layer.attn.Wqkv.weight, layer.attn.Wqkv.bias, dtype)
        self.output = fused_linear(layer.attn.Wo.weight, layer.attn.Wo.bias, dtype)
        self.mlp_norm = layer_norm(layer.mlp_norm, dtype)
        # One linear module computes the feed-forward network's input and its gate. Here they are
        # separate products.
        up, gate = layer.mlp.Wi.weight.chunk(2)
        up_bias = None
        gate_bias = None
        if layer.mlp.Wi.bias is not None:
            up_bias, gate_bias = layer.mlp.Wi.bias.chunk(2)
        self.up = fused_linear(up, up_bias, dtype)
        self.gate = fused_linear(gate, gate_bias, dtype)
        self.down = fused_linear(layer.mlp.Wo.weight, layer.mlp.Wo.bias, dtype)

    def __call__(
        self, hidden: Tensor, rows: int, heads: int, cos: Tensor, sin: Tensor, bias: Bias
    ) -> Tensor:
        """Computes hidden states (R*W, D) from (R*W, D)."""
        normed = hidden if self.attention_norm is None else self.attention_norm(hidden)
        projected = self._rotate(self.projection(normed), heads, cos, sin)
        hidden = self.output.plus(attention(projected, rows, heads, bias), hidden)
        normed = self.mlp_norm(hidden)
        return self.down.plus(self.up.gelu(normed) * self.gate(normed), hidden)

    def _rotate(self, projected: Tensor, heads: int, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotates query and key in float32, and scales the query: query, key and value (N, 3D) -> (N, 3D)."""
        parts = projected.view(len(projected), 3, heads, -1)  # (N, 3, H, d)
        query_key = parts[:, :2].float()
        # The dimensions i and i + d/2 are rotated as a pair.
        half = query_key.shape[-1] // 2
        across = torch.cat([-query_key[..., half:], query_key[..., :half]], dim=-1)
        rotated = query_key * cos + across * sin
        rotated[:, 0] *= self.scale
        return torch.cat([rotated.to(projected.dtype), parts[:, 2:]], dim=1).flatten(1)
