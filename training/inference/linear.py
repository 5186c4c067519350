"""Linear layers for inference: the bias, GELU and the residual are added within the matrix product where possible.

``OneDnnLinear`` uses operators of PyTorch that are private: torch.compile puts them in place of Linear. ``has_onednn``
tries them once; where they are missing or do something else, ``FusedLinear`` computes the same with public functions.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

REORDER_ROWS = 1_024  # rows of the input that a weight's layout is optimised for: the tokens of a batch


class FusedLinear:
    """x W^T + b, or x W^T without a bias, optionally with what follows: (M, in) -> (M, out).

    W and b are those of one linear module, or of several concatenated, the first of them multiplied by ``scale``.
    """

    def __init__(self, linears: Sequence[nn.Linear], scale: float, dtype: torch.dtype) -> None:
        scales = [scale] + [1.0] * (len(linears) - 1)
        pairs = list(zip(linears, scales, strict=True))
        self.weight = torch.cat([linear.weight.detach() * factor for linear, factor in pairs]).to(dtype)
        has_bias = linears[0].bias is not None
        biases = [linear.bias.detach() * factor for linear, factor in pairs] if has_bias else []
        self.bias = torch.cat(biases).to(dtype) if has_bias else None

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def gelu(self, x: Tensor) -> Tensor:
        """GELU(x W^T + b)."""
        return F.gelu(self(x))

    def plus(self, x: Tensor, residual: Tensor) -> Tensor:
        """x W^T + b + residual (M, out)."""
        return self(x) + residual


class OneDnnLinear(FusedLinear):
    """The same by oneDNN, with the weight in its own blocked layout and the rest as post-operations of the product.

    On AMD processors oneDNN is also twice as fast in float32 as the library that Linear calls.
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
    """The fastest implementation for the device that the weights are on."""
    kind = OneDnnLinear if has_onednn(linears[0].weight.device.type, dtype) else FusedLinear
    return kind(linears, scale, dtype)


@cache
def has_onednn(device_type: str, dtype: torch.dtype) -> bool:
    """Whether ``OneDnnLinear`` works here: on x86, for bfloat16 with AVX-512, and if its operators multiply rightly."""
    if device_type != "cpu" or platform.machine() not in {"x86_64", "AMD64"}:
        return False
    try:
        if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return False
        return torch.backends.mkldnn.is_available() and _onednn_agrees(dtype)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):  # missing, or with other arguments
        return False


@torch.no_grad()
def _onednn_agrees(dtype: torch.dtype) -> bool:
    """Whether each method of ``OneDnnLinear`` returns on small numbers what the same method of its base returns."""
    with torch.random.fork_rng(devices=[]):  # the caller's random numbers stay as they are
        layer = nn.Linear(32, 16)
    x = torch.linspace(-1, 1, 8 * 32).view(8, 32)
    layer.weight.copy_(torch.linspace(-1, 1, 16 * 32).view(16, 32).sin())
    layer.bias.copy_(torch.linspace(-1, 1, 16))
    expected, actual = FusedLinear([layer], 1.0, torch.float32), OneDnnLinear([layer], 1.0, dtype)
    residual = x[:, :16].contiguous()
    tolerance = 1e-4 if dtype == torch.float32 else 0.2
    return all(
        bool(torch.isclose(a.float(), b, rtol=0, atol=tolerance).all())
        for a, b in (
            (actual(x.to(dtype)), expected(x)),
            (actual.gelu(x.to(dtype)), expected.gelu(x)),
            (actual.plus(x.to(dtype), residual.to(dtype)), expected.plus(x, residual)),
        )
    )
