"""FusedBert: the transformers of BERT's family, written out.

The same arithmetic as the modules of the transformers library, with fewer and larger steps: query, key and value
in one product; the bias, GELU and the residual added within the product (oneDNN's post-operations); weights
copied once into the layout in which oneDNN multiplies fastest. Attention is two batched products and a softmax:
on rows of 32 tokens (packing.py) that takes half the time of the kernels made for long texts.

``ARCHITECTURES`` says where each architecture keeps its weights. What is not in it runs as it is (inference.py). The
same layers are what is trained (trained_layer.py), with products and norms that have a way back.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.parallel import run_parallel

LONG_ROW_TOKENS = 256  # tokens a row from which PyTorch's fused attention is faster on a CPU
REORDER_ROWS = 1_024  # rows that a matrix is laid out for: a batch's tokens


@dataclass(frozen=True)
class WeightNames:
    """Where an architecture keeps its weights: the list of layers, and modules within a layer."""

    layers: str = "encoder.layer"
    query: str = "attention.self.query"
    key: str = "attention.self.key"
    value: str = "attention.self.value"
    output: str = "attention.output.dense"
    output_norm: str = "attention.output.LayerNorm"
    up: str = "intermediate.dense"
    down: str = "output.dense"
    down_norm: str = "output.LayerNorm"
    after_padding: bool = False  # positions are counted from the padding token's id plus one
    dropout: str = "hidden_dropout_prob"  # in the config
    attention_dropout: str = "attention_probs_dropout_prob"
    drops_output: bool = True  # whether what attention gives is dropped before it is added

    @property
    def linears(self) -> tuple[str, ...]:
        """The matrices of a layer."""
        return self.query, self.key, self.value, self.output, self.up, self.down


_ROBERTA = WeightNames(after_padding=True)
ARCHITECTURES = {
    "bert": WeightNames(),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "mpnet": replace(
        _ROBERTA,
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
        dropout="dropout",
        attention_dropout="attention_dropout",
        drops_output=False,
    ),
}


def supports_fused(backbone: nn.Module) -> bool:
    """Whether ``FusedBert`` computes what ``backbone`` computes: a known family, plain weights, erf's GELU."""
    config = backbone.config
    names = ARCHITECTURES.get(config.model_type)  # type: ignore[union-attr, arg-type]
    activation = getattr(config, "hidden_act", None) or getattr(config, "activation", None)
    if names is None or activation != "gelu" or getattr(config, "is_decoder", False):
        return False
    layers: Any = backbone.get_submodule(names.layers)
    # An adapter that is not merged yet, or a quantised matrix, is a subclass of Linear or something else.
    return all(type(layer.get_submodule(name)) is nn.Linear for layer in layers for name in names.linears)


class FusedBert:
    """A copy of a backbone's weights in ``dtype``, ready to compute. Make one only where ``supports_fused`` says so."""

    def __init__(self, backbone: Any, dtype: torch.dtype) -> None:
        names, parts, config = ARCHITECTURES[backbone.config.model_type], backbone.embeddings, backbone.config
        self.dtype = dtype
        self.heads = int(config.num_attention_heads)
        self.words = parts.word_embeddings.weight.detach().to(dtype, copy=True)
        first = parts.position_embeddings.padding_idx + 1 if names.after_padding else 0
        positions = parts.position_embeddings.weight.detach()[first:]
        self.longest = len(positions)
        if hasattr(parts, "token_type_embeddings"):  # kinds of tokens: one block of positions for each
            kinds = parts.token_type_embeddings.weight.detach()
            positions = (kinds[:, None] + positions).flatten(0, 1)
        self.positions = positions.to(dtype, copy=True)
        self.norm = FusedLayerNorm(parts.LayerNorm, dtype)
        make = partial(fused_linear, dtype=dtype), partial(FusedLayerNorm, dtype=dtype)
        self.layers = run_parallel(
            [partial(FusedLayer, layer, names, self.heads, *make) for layer in backbone.get_submodule(names.layers)]
        )
        self.distances: Tensor | None = None
        if config.model_type == "mpnet":  # a bias for each distance between two tokens, from -longest to longest
            encoder, steps = backbone.encoder, torch.arange(1 - self.longest, self.longest, device=self.words.device)
            bias = encoder.relative_attention_bias(encoder.relative_position_bucket(steps))
            self.distances = bias.detach().to(dtype)

    def __call__(
        self,
        ids: Tensor,
        positions: Tensor,
        bias: Tensor | Sequence[Tensor] | None = None,
        kinds: Tensor | None = None,
    ) -> Tensor:
        """Hidden states (R, W, D) of R rows of W tokens.

        Args:
            ids: (R, W) int64.
            positions: (R, W) int64, the place of each token in its text, from 0.
            bias: what is added to the attention's logits, broadcast to (R, heads, W, W): masks and such; or one
                for each layer.
            kinds: (R, W) int64, the token types; None = all 0.
        """
        rows, width = ids.shape
        where = positions if kinds is None else positions + kinds * self.longest
        hidden = self.norm(F.embedding(ids.flatten(), self.words) + F.embedding(where.flatten(), self.positions))
        biases = [bias] * len(self.layers) if bias is None or isinstance(bias, Tensor) else bias
        if self.distances is not None:
            near = self.distances[positions[:, None, :] - positions[:, :, None] + self.longest - 1]
            near = near.permute(0, 3, 1, 2)  # (R, H, W, W)
            biases = [near if bias is None else near + bias for bias in biases]
        for layer, own in zip(self.layers, biases, strict=True):
            hidden = layer(hidden, partial(attention, rows=rows, heads=self.heads, bias=own))
        return hidden.view(rows, width, -1)


class FusedLayer:
    """Self-attention and the feed-forward network, each with its residual and norm.

    Args:
        layer: the module, whose parts are where ``names`` says.
        heads: of the attention.
        dense: makes a product: of linear modules, side by side, the first of them enlarged by a factor.
        norm: makes a norm.
    """

    def __init__(
        self,
        layer: nn.Module,
        names: WeightNames,
        heads: int,
        fused_linear: Callable[[Sequence[nn.Linear], float], Any],
        norm: Callable[[nn.LayerNorm], Any],
    ) -> None:
        part: Any = layer.get_submodule
        query, key, value = part(names.query), part(names.key), part(names.value)
        scale = (query.out_features // heads) ** -0.5  # of the attention's logits, worked into the query
        self.projection = fused_linear([query, key, value], scale)
        self.output = fused_linear([part(names.output)], 1.0)
        self.output_norm = norm(part(names.output_norm))
        self.up = fused_linear([part(names.up)], 1.0)
        self.down = fused_linear([part(names.down)], 1.0)
        self.down_norm = norm(part(names.down_norm))

    def __call__(self, hidden: Tensor, attend: Callable[[Tensor], Tensor]) -> Tensor:
        """Hidden states (M, D), and what makes context (M, D) of query, key and value (M, 3D) -> (M, D)."""
        hidden = self.output_norm(self.output.plus(attend(self.projection(hidden)), hidden))
        return self.down_norm(self.down.plus(self.up.gelu(hidden), hidden))


def attention(projected: Tensor, rows: int, heads: int, bias: Tensor | None) -> Tensor:
    """Query (scaled), key and value of R rows of W tokens (R*W, 3D) -> context (R*W, D).

    ``bias`` is added to the logits (R, H, W, W).
    """
    qkv = projected.view(rows, -1, 3, heads, projected.shape[1] // (3 * heads)).permute(2, 0, 3, 1, 4)
    if projected.device.type != "cpu" or qkv.shape[3] > LONG_ROW_TOKENS:
        query, key, value = qkv.unbind()
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=1.0)
    else:
        context = _by_products(qkv, bias)
    return context.transpose(1, 2).reshape(len(projected), -1)


def _by_products(qkv: Tensor, bias: Tensor | None) -> Tensor:
    _, rows, heads, width, size = qkv.shape
    query, key, value = qkv.contiguous().view(3, rows * heads, width, size).unbind()
    logits = torch.bmm(query, key.transpose(1, 2)).view(rows, heads, width, width)
    weights = torch.softmax(logits if bias is None else logits.add_(bias), dim=-1)
    return torch.bmm(weights.view(-1, width, width), value).view(rows, heads, width, size)


class FusedLayerNorm:
    """LayerNorm over the last dimension."""

    def __init__(self, norm: nn.LayerNorm, dtype: torch.dtype) -> None:
        self.shape, self.eps = norm.normalized_shape, norm.eps
        self.weight = norm.weight.detach().to(dtype, copy=True)
        self.bias = norm.bias.detach().to(dtype, copy=True)

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.shape, self.weight, self.bias, self.eps)


class FusedLinear:
    """x W^T + b, and what comes next: (M, in) -> (M, out).

    W and b are those of one linear module or of several side by side, the first of them enlarged by ``scale``.
    """

    def __init__(self, linears: Sequence[nn.Linear], scale: float, dtype: torch.dtype) -> None:
        scales = [scale] + [1.0] * (len(linears) - 1)
        pairs = list(zip(linears, scales, strict=True))
        self.weight = torch.cat([linear.weight.detach() * factor for linear, factor in pairs]).to(dtype)
        self.bias = torch.cat([linear.bias.detach() * factor for linear, factor in pairs]).to(dtype)

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def gelu(self, x: Tensor) -> Tensor:
        return F.gelu(self(x))

    def plus(self, x: Tensor, residual: Tensor) -> Tensor:
        return self(x) + residual


class OneDnnLinear(FusedLinear):
    """The same by oneDNN, with the weight in its own layout and what comes next done while it multiplies.

    These are the operators that torch.compile puts in place of Linear. On AMD processors they are also twice as
    fast in float32 as the library that Linear itself calls.
    """

    def __init__(self, linears: Sequence[nn.Linear], scale: float, dtype: torch.dtype) -> None:
        super().__init__(linears, scale, dtype)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(self.weight, REORDER_ROWS)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "none")

    def gelu(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "gelu", [], "none")

    def plus(self, x: Tensor, residual: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise.binary(x, residual, self.weight, self.bias, "add")


def fused_linear(linears: Sequence[nn.Linear], scale: float, dtype: torch.dtype) -> FusedLinear:
    """The fastest kind for where the weights are."""
    return (OneDnnLinear if has_onednn(linears[0].weight.device, dtype) else FusedLinear)(linears, scale, dtype)


def has_onednn(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies this here: an x86 processor, and for bfloat16 one with AVX-512."""
    if (
        device.type != "cpu"
        or platform.machine() not in {"x86_64", "AMD64"}
        or not torch.backends.mkldnn.is_available()
    ):
        return False
    return dtype == torch.float32 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
