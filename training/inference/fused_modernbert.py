"""FusedModernBert: ModernBERT (Warner et al. 2024) in inference, with fewer and larger operations.

As `training.inference.fused_bert`, for an architecture that differs in each part: norms come before attention and the
feed-forward network, positions are rotations of queries and keys, most layers attend only to the tokens nearby, and the
feed-forward network is gated (GeGLU). The weights are copied once into the layout in which they multiply fastest;
the residuals are added within the products.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.inference.fused_bert import FusedLayerNorm, attention
from training.inference.linear import fused_linear
from training.inference.unpadded import Boundaries, has_varlen
from training.parallel import run_parallel

Bias = Tensor | Boundaries | None
LOCAL = "sliding_attention"
_LINEARS = ("attn.Wqkv", "attn.Wo", "mlp.Wi", "mlp.Wo")


def supports_fused_modernbert(backbone: nn.Module) -> bool:
    """Whether ``FusedModernBert`` computes what ``backbone`` does: plain weights, erf's GELU, default rotations."""
    config: Any = backbone.config
    if config.model_type != "modernbert" or config.hidden_activation != "gelu":
        return False
    rotations = [each for each in config.rope_parameters.values() if each is not None]
    if any(each.get("rope_type", "default") != "default" for each in rotations):
        return False
    layers: Any = backbone.get_submodule("layers")
    return all(type(layer.get_submodule(name)) is nn.Linear for layer in layers for name in _LINEARS)


class FusedModernBert:
    """A copy of a backbone's weights in ``dtype``, for inference. It must pass ``supports_fused_modernbert``."""

    def __init__(self, backbone: Any, dtype: torch.dtype) -> None:
        config = backbone.config
        self.dtype = dtype
        self.heads = int(config.num_attention_heads)
        self.window = int(config.sliding_window)  # tokens to either side, in local layers
        self.token_embeddings = backbone.embeddings.tok_embeddings.weight.detach().to(dtype, copy=True)
        head_size = int(config.hidden_size) // self.heads
        self.unpadded = has_varlen(self.token_embeddings.device, dtype, head_size, self.window)
        self.norm = FusedLayerNorm(backbone.embeddings.norm, dtype)
        self.final_norm = FusedLayerNorm(backbone.final_norm, dtype)
        self.layers = run_parallel([partial(FusedModernBertLayer, layer, dtype) for layer in backbone.layers])
        self.is_local = [kind == LOCAL for kind in config.layer_types]
        self.frequencies = {
            kind: getattr(backbone.rotary_emb, f"{kind}_inv_freq").detach().float() for kind in set(config.layer_types)
        }

    def __call__(self, ids: Tensor, positions: Tensor, bias: Bias = None) -> Tensor:
        """Hidden states (R, W, D) of R rows of W tokens; arguments as of `FusedBert`, with one bias for all layers."""
        rows, width = ids.shape
        hidden = self.norm(F.embedding(ids.flatten(), self.token_embeddings))
        rotations = {kind: self._rotation(positions, frequencies) for kind, frequencies in self.frequencies.items()}
        local_bias = self._local_bias(positions, bias) if any(self.is_local) else bias
        for layer, is_local in zip(self.layers, self.is_local, strict=True):
            cos, sin = rotations[LOCAL if is_local else "full_attention"]
            hidden = layer(hidden, rows, self.heads, cos, sin, local_bias if is_local else bias)
        return self.final_norm(hidden).view(rows, width, -1)

    def _rotation(self, positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines (R*W, 1, 1, d) float32 of the angle of each pair of a head's dimensions."""
        angles = positions.flatten()[:, None].float() * frequencies
        angles = torch.cat([angles, angles], dim=-1)[:, None, None]
        return angles.cos(), angles.sin()

    def _local_bias(self, positions: Tensor, bias: Bias) -> Bias:
        """The bias that also keeps tokens further apart than the window from each other."""
        if isinstance(bias, Boundaries):
            return bias._replace(window=self.window) if bias.longest > self.window + 1 else bias
        if positions.shape[1] <= self.window + 1:  # no two tokens of a row are
            return bias
        far = (positions[:, None, :, None] - positions[:, None, None, :]).abs() > self.window
        if bias is None:
            bias = torch.zeros(far.shape, dtype=self.dtype, device=far.device)
        return bias.masked_fill(far, torch.finfo(self.dtype).min)


class FusedModernBertLayer:
    """Self-attention and the gated feed-forward network, each after its norm and with its residual."""

    def __init__(self, layer: Any, dtype: torch.dtype) -> None:
        is_first = not isinstance(layer.attn_norm, nn.LayerNorm)  # its input is normalised already
        self.attention_norm = None if is_first else FusedLayerNorm(layer.attn_norm, dtype)
        self.scale = layer.attn.head_dim**-0.5  # of the attention's logits, multiplied into the query
        self.projection = fused_linear([layer.attn.Wqkv], 1.0, dtype)
        self.output = fused_linear([layer.attn.Wo], 1.0, dtype)
        self.mlp_norm = FusedLayerNorm(layer.mlp_norm, dtype)
        weights, bias = layer.mlp.Wi.weight.chunk(2), layer.mlp.Wi.bias
        halves: list[Any] = [  # the linear module that computes both as two
            SimpleNamespace(weight=weight, bias=half)
            for weight, half in zip(weights, (None, None) if bias is None else bias.chunk(2), strict=True)
        ]
        self.up, self.gate = (fused_linear([half], 1.0, dtype) for half in halves)
        self.down = fused_linear([layer.mlp.Wo], 1.0, dtype)

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
