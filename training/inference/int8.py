"""int8: the products of a ``FusedBert`` in 8-bit integers, 1.6 to 2 times as fast as in bfloat16 on a CPU with VNNI.

Weights are rounded once, with a scale for each output channel. Inputs are rounded with one scale and zero point a
product, which are fixed beforehand: an ``ObservedLinear`` computes in float32 and records the ranges of its inputs
while some texts pass through (static quantisation: Jacob et al. 2018, section 3). Inputs beyond that range are clipped
later. GELU writes integers for the product after it; residuals and norms stay in float32.

Norms have a few channels of large values, which would leave a handful of integers to all others. Where a product
follows a norm, each input channel is therefore divided by a factor that its weights are multiplied by
(SmoothQuant: Xiao et al. 2023, section 4).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from training.inference.linear import REORDER_ROWS, FusedLinear

INPUT_MAX, WEIGHT_MAX = 255, 127  # the largest integers; weights are symmetric about 0
SIGN = 128  # 2 to the power of 7
SMOOTHING = 0.5  # SmoothQuant's α: how much of the inputs' range moves into the weights
SMALLEST = 1e-6  # a range never counts as less


class ObservedLinear(FusedLinear):
    """A float32 product that records the range of its inputs. Thread-safe."""

    def __init__(self, linears: Sequence[nn.Linear], scale: float, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(linears, scale, dtype)
        self.low = torch.zeros(self.weight.shape[1])  # by input channel; 0 is in every range
        self.high = torch.zeros(self.weight.shape[1])
        self._lock = threading.Lock()

    def __call__(self, x: Tensor) -> Tensor:
        low, high = x.aminmax(dim=0)
        with self._lock:
            self.low, self.high = torch.minimum(self.low, low), torch.maximum(self.high, high)
        return super().__call__(x)

    def quantization(self, factors: Tensor) -> tuple[float, int]:
        """Scale and zero point of inputs that are divided by ``factors`` (in,)."""
        low, high = float((self.low / factors).min()), float((self.high / factors).max())
        scale = max(high - low, SMALLEST) / INPUT_MAX
        return scale, round(-low / scale)

    def smoothing(self) -> Tensor:
        """A factor for each input channel (in,), of mean 1."""
        inputs = torch.maximum(self.high, -self.low).clamp_min(SMALLEST)
        weights = self.weight.abs().amax(dim=0).clamp_min(SMALLEST)
        factors = inputs**SMOOTHING / weights ** (1 - SMOOTHING)
        return factors / factors.mean()


class Int8Linear(FusedLinear):
    """x W^T + b with W and x rounded to 8 bits, by oneDNN.

    Args:
        observed: the product in float32, and what it saw.
        output: dtype of x W^T + b.
        smooth: divide input channels by factors, for inputs that come from a norm.
        following: the product that takes ``gelu``'s output.
    """

    def __init__(
        self,
        observed: ObservedLinear,
        output: torch.dtype = torch.float32,
        smooth: bool = False,
        following: ObservedLinear | None = None,
    ) -> None:
        factors = observed.smoothing() if smooth else torch.ones(observed.weight.shape[1])
        self.output = output
        self.scale, self.zero_point = observed.quantization(factors)
        self._factors = 1 / (self.scale * factors)
        self._offset = torch.full_like(factors, self.zero_point - SIGN)
        self._gelu_quantization = (1.0, 0) if following is None else following.quantization(torch.ones(1))
        weight = observed.weight * factors
        scales = weight.abs().amax(dim=1).clamp_min(SMALLEST) / weight_max()
        rounded = (weight / scales[:, None]).round().to(torch.int8)
        self.weight = torch.ops.onednn.qlinear_prepack(rounded, [REORDER_ROWS, weight.shape[1]])
        self.bias = observed.bias
        self._weight_scales = scales, torch.zeros(len(scales), dtype=torch.int64)

    def __call__(self, x: Tensor) -> Tensor:
        return self._pointwise(x, "none", (1.0, 0), self.output)

    def gelu(self, x: Tensor) -> Tensor:
        """GELU(x W^T + b), rounded for the following product: uint8."""
        return self._pointwise(x, "gelu", self._gelu_quantization, torch.uint8)

    def plus(self, x: Tensor, residual: Tensor) -> Tensor:
        product: tuple[Any, ...] = self._input(x), self.scale, self.zero_point, self.weight, *self._weight_scales
        result, added = (1.0, 0, self.output), (1.0, 0, "add", 1.0)  # scale and zero point, unused by floats
        multiply = torch.ops.onednn.qlinear_pointwise.binary
        return multiply(*product, residual, self.bias, *result, *added, "none", [], "none")

    def _pointwise(self, x: Tensor, then: str, quantization: tuple[float, int], output: torch.dtype) -> Tensor:
        product: tuple[Any, ...] = self._input(x), self.scale, self.zero_point, self.weight, *self._weight_scales
        return torch.ops.onednn.qlinear_pointwise(*product, self.bias, *quantization, output, then, [], "none")

    def _input(self, x: Tensor) -> Tensor:
        """x as integers; what comes from ``gelu`` is that already."""
        if x.dtype == torch.uint8:
            return x
        signed = torch.addcmul(self._offset, x.float(), self._factors).round_().clamp_(-SIGN, SIGN - 1)
        # PyTorch converts to int8 five times as fast as to uint8; the two differ by 128, which is the first bit.
        return signed.to(torch.int8).view(torch.uint8).bitwise_xor_(SIGN)


@cache
def weight_max() -> int:
    """The largest integer of a weight: 127, or 63 on processors that add two products in 16 bits (AVX2 without VNNI).

    There 2 * 255 * 127 overflows without a word; 2 * 255 * 63 does not.
    """
    return WEIGHT_MAX if float(_product(INPUT_MAX)) == INPUT_MAX * WEIGHT_MAX * _PROBE else WEIGHT_MAX // 2


@cache
def has_int8(device_type: str) -> bool:
    """Whether ``Int8Linear`` works here: PyTorch's private operators exist and multiply rightly."""
    if device_type != "cpu":
        return False
    try:
        return float(_product(1)) == WEIGHT_MAX * _PROBE
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):  # missing, or with other arguments
        return False


_PROBE = 64  # inputs and outputs of the product that is tried


def _product(value: int) -> Tensor:
    """The smallest element of a product of inputs that are all ``value`` and the largest weights."""
    weight = torch.full((_PROBE, _PROBE), WEIGHT_MAX, dtype=torch.int8)
    packed = torch.ops.onednn.qlinear_prepack(weight, [_PROBE, _PROBE])
    x, ones, zeros = torch.full((_PROBE, _PROBE), value, dtype=torch.uint8), torch.ones(_PROBE), torch.zeros(_PROBE)
    product: tuple[Any, ...] = (x, 1.0, 0, packed, ones, zeros.long())
    return torch.ops.onednn.qlinear_pointwise(*product, zeros, 1.0, 0, torch.float32, "none", [], "none").min()
