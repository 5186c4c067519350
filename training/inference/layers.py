"""The layers of a transformer in inference: matrix products, LayerNorm and attention, with fewer and larger operations.

The bias, GELU and the residual are added within the matrix product. `OneDnnLinear` uses private
operators of PyTorch, the ones that torch.compile replaces Linear by.

`Int8Linear` multiplies 8-bit integers, 1.6 to 2 times as fast as bfloat16 on a CPU with VNNI.
Weights are rounded once, with a scale for each output channel. Inputs are rounded with one scale
and zero point for each product, which are fixed beforehand: an `ObservedLinear` computes in float32
and records the ranges of its inputs while some texts pass through (static quantisation: Jacob et
al. 2018, section 3). Later inputs beyond that range are clipped. GELU writes integers for the next
product. Residuals and norms stay in float32. The output of a norm has a few channels with large
values, which would leave only a few integers for all other channels. So if a product follows a
norm, each input channel is divided by a factor that its weights are multiplied by (SmoothQuant:
Xiao et al. 2023, section 4).

On NVIDIA GPUs attention gets the sentences of a batch one after the other in a single row, without
padding, and the position where each begins (`torch.nn.attention.varlen`, which is FlashAttention).

`has_onednn`, `has_int8` and `has_varlen` try these operators once on small numbers. If one is
missing, for example in an older PyTorch or on an older GPU, or gives other results, public
functions are used instead.
"""

import copy
import logging
import platform
import threading
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.inference.batching import Boundaries

log = logging.getLogger("sbert_lab.inference")

# Raised if an operator is missing, takes other arguments, or does not support this device.
UNUSABLE = (AttributeError, ImportError, NotImplementedError, RuntimeError, TypeError, ValueError)
# A weight's layout is optimised for inputs with this many rows, the tokens of a batch.
REORDER_ROWS = 1_024


class FusedLinear:
    """Computes x W^T + b, or x W^T without a bias: (M, in) -> (M, out). W and b are copied."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        self.weight = weight.detach().to(dtype, copy=True)
        self.bias = None if bias is None else bias.detach().to(dtype, copy=True)

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def gelu(self, x: Tensor) -> Tensor:
        """Computes GELU(x W^T + b)."""
        return F.gelu(self(x))

    def plus(self, x: Tensor, residual: Tensor) -> Tensor:
        """Computes x W^T + b + residual (M, out)."""
        return self(x) + residual


class OneDnnLinear(FusedLinear):
    """A `FusedLinear` that uses oneDNN, with the weight in a blocked layout and the rest as post-operations.

    On AMD processors oneDNN is also twice as fast in float32 as the library that Linear calls.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        super().__init__(weight, bias, dtype)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(self.weight, REORDER_ROWS)

    def __reduce__(self) -> tuple[Any, ...]:
        """Supports pickle and deepcopy, as PyTorch cannot copy weights in oneDNN's layout."""
        return OneDnnLinear, (self.weight.to_dense(), self.bias, self.weight.dtype)

    def __call__(self, x: Tensor) -> Tensor:
        # The last three arguments are the post-operation, its scalars and its variant.
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "none")

    def gelu(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "gelu", [], "none")

    def plus(self, x: Tensor, residual: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise.binary(x, residual, self.weight, self.bias, "add")


def fused_linear(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> FusedLinear:
    """Makes a product with the fastest implementation for the device of the weights."""
    kind = OneDnnLinear if has_onednn(weight.device.type, dtype) else FusedLinear
    return kind(weight, bias, dtype)


@cache
def has_onednn(device_type: str, dtype: torch.dtype) -> bool:
    """Tells whether `OneDnnLinear` works: on x86, for bfloat16 with AVX-512, and with the same results as its base."""
    is_x86 = device_type == "cpu" and platform.machine() in {"x86_64", "AMD64"}
    if not is_x86 or not torch.backends.mkldnn.is_available():
        return False
    x = torch.linspace(-1, 1, 8 * 32).view(8, 32)
    weight = torch.linspace(-1, 1, 16 * 32).view(16, 32).sin()
    bias = torch.linspace(-1, 1, 16)
    residual = x[:, :16].contiguous()
    rounded = x.to(dtype)
    expected = FusedLinear(weight, bias, torch.float32)
    try:
        if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return False
        actual = OneDnnLinear(weight, bias, dtype)
        pairs = [
            (actual(rounded), expected(x)),
            (actual.gelu(rounded), expected.gelu(x)),
            (actual.plus(rounded, residual.to(dtype)), expected.plus(x, residual)),
        ]
    except UNUSABLE:
        return False
    tolerance = 1e-4 if dtype == torch.float32 else 0.2
    return all(torch.allclose(a.float(), b, rtol=0, atol=tolerance) for a, b in pairs)


# The largest integers. Weights are symmetric about 0.
INPUT_MAX = 255
WEIGHT_MAX = 127
SIGN_BIT = 128
SMOOTHING = 0.5  # SmoothQuant's α: the share of the inputs' range that moves into the weights
SMALLEST = 1e-6  # the least width of a range
TRIAL_SIZE = 64  # the rows and columns of the matrices in `_smallest_product`


class ObservedLinear(FusedLinear):
    """A float32 product that records the range of its inputs. Thread-safe."""

    def __init__(
        self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__(weight, bias, dtype)
        # The range of each input channel. Every range contains 0.
        self.low = self.high = torch.zeros(self.weight.shape[1])
        self._lock = threading.Lock()

    def __call__(self, x: Tensor) -> Tensor:
        low, high = x.aminmax(dim=0)
        with self._lock:
            self.low = torch.minimum(self.low, low)
            self.high = torch.maximum(self.high, high)
        return super().__call__(x)

    def quantization(self, factors: Tensor) -> tuple[float, int]:
        """Returns scale and zero point of inputs that are divided by ``factors``, (in,) or (1,)."""
        low = float((self.low / factors).min())
        high = float((self.high / factors).max())
        scale = max(high - low, SMALLEST) / INPUT_MAX
        return scale, round(-low / scale)

    def smoothing(self) -> Tensor:
        """Returns the factor that each input channel is divided by, (in,), with mean 1."""
        inputs = torch.maximum(self.high, -self.low).clamp_min(SMALLEST)
        weights = self.weight.abs().amax(dim=0).clamp_min(SMALLEST)
        factors = inputs**SMOOTHING / weights ** (1 - SMOOTHING)
        return factors / factors.mean()


class Int8Linear(FusedLinear):
    """Computes x W^T + b with W and x rounded to 8 bits, with oneDNN.

    Args:
        observed: the product in float32, with the ranges that it has recorded.
        output: the dtype of the result.
        smooth: divide input channels by `ObservedLinear.smoothing`, for inputs that come from a norm.
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
        # `_input` multiplies x by these factors and adds this offset. The result is first a signed
        # integer, so the zero point is lowered by SIGN_BIT.
        self._factors = 1 / (self.scale * factors)
        self._offset = torch.full_like(factors, self.zero_point - SIGN_BIT)
        # Scale and zero point of the result of `gelu`, which is called only if there is a
        # ``following`` product.
        self._gelu_quantization = (1.0, 0)
        if following is not None:
            # Its inputs come from GELU and not from a norm, so they are not smoothed.
            self._gelu_quantization = following.quantization(torch.ones(1))
        # The inputs are divided by the factors, so the weights are multiplied by them.
        weight = observed.weight * factors
        scales = weight.abs().amax(dim=1).clamp_min(SMALLEST) / weight_max()
        rounded = (weight / scales[:, None]).round().to(torch.int8)
        self.weight = torch.ops.onednn.qlinear_prepack(rounded, [REORDER_ROWS, weight.shape[1]])
        self.bias = observed.bias
        # Scales and zero points for each output channel.
        self._weight_quantization = scales, torch.zeros(len(scales), dtype=torch.int64)

    def __call__(self, x: Tensor) -> Tensor:
        return self._pointwise(x, "none", (1.0, 0), self.output)

    def gelu(self, x: Tensor) -> Tensor:
        """Computes GELU(x W^T + b), rounded for the following product: uint8."""
        return self._pointwise(x, "gelu", self._gelu_quantization, torch.uint8)

    def plus(self, x: Tensor, residual: Tensor) -> Tensor:
        multiply = torch.ops.onednn.qlinear_pointwise.binary
        # Scale, zero point and dtype of the result. Floats do not use scale and zero point.
        result = (1.0, 0, self.output)
        # Scale and zero point of the residual, the operation, and the factor of the residual.
        added = (1.0, 0, "add", 1.0)
        # The last three arguments: no activation follows.
        return multiply(
            *self._operands(x), residual, self.bias, *result, *added, "none", [], "none"
        )

    def _pointwise(
        self, x: Tensor, activation: str, quantization: tuple[float, int], output: torch.dtype
    ) -> Tensor:
        multiply = torch.ops.onednn.qlinear_pointwise
        return multiply(
            *self._operands(x), self.bias, *quantization, output, activation, [], "none"
        )

    def _operands(self, x: Tensor) -> tuple[Any, ...]:
        """Returns the arguments of oneDNN's operators that describe x and W."""
        return self._input(x), self.scale, self.zero_point, self.weight, *self._weight_quantization

    def _input(self, x: Tensor) -> Tensor:
        """Rounds x to integers. The output of ``gelu`` is rounded already."""
        if x.dtype == torch.uint8:
            return x
        scaled = torch.addcmul(self._offset, x.float(), self._factors)
        signed = scaled.round_().clamp_(-SIGN_BIT, SIGN_BIT - 1)
        # PyTorch converts to int8 five times as fast as to uint8. The two differ by 128, which is
        # the first bit.
        return signed.to(torch.int8).view(torch.uint8).bitwise_xor_(SIGN_BIT)


@cache
def weight_max() -> int:
    """Returns the largest integer for a weight: 127, or 63 if the processor adds two products in 16 bits.

    On such processors (AVX2 without VNNI) 2 * 255 * 127 silently overflows, and 2 * 255 * 63 does
    not.
    """
    # Each element is the sum of `TRIAL_SIZE` equal products, unless it overflows.
    overflows = _smallest_product(INPUT_MAX) != INPUT_MAX * WEIGHT_MAX * TRIAL_SIZE
    return WEIGHT_MAX // 2 if overflows else WEIGHT_MAX


@cache
def has_int8(device_type: str) -> bool:
    """Tells whether `Int8Linear` works: on a CPU whose PyTorch has oneDNN's 8-bit operators, with right results."""
    try:
        return device_type == "cpu" and _smallest_product(1) == WEIGHT_MAX * TRIAL_SIZE
    except UNUSABLE:
        return False


def _smallest_product(value: int) -> float:
    """Returns the smallest element of the product of inputs that are all ``value`` with the largest weights."""
    ones = torch.ones(TRIAL_SIZE)
    zeros = torch.zeros(TRIAL_SIZE)
    shape = [TRIAL_SIZE, TRIAL_SIZE]
    x = torch.full(shape, value, dtype=torch.uint8)
    weight = torch.full(shape, WEIGHT_MAX, dtype=torch.int8)
    packed = torch.ops.onednn.qlinear_prepack(weight, shape)
    # The inputs and the weights, each with scale and zero point.
    product: tuple[Any, ...] = (x, 1.0, 0, packed, ones, zeros.long())
    # After the bias, the arguments are scale, zero point and dtype of the result, and no activation.
    result = torch.ops.onednn.qlinear_pointwise(
        *product, zeros, 1.0, 0, torch.float32, "none", [], "none"
    )
    return float(result.min())


LONG_ROW_TOKENS = 256  # on longer rows PyTorch's fused attention is faster on a CPU
HEAD_SIZES = range(8, 257, 8)  # dimensions of a head that the unpadded operator supports


def layer_norm(norm: nn.LayerNorm, dtype: torch.dtype) -> nn.Module:
    """Copies a LayerNorm in ``dtype``, without gradients."""
    return copy.deepcopy(norm).to(dtype).requires_grad_(False)


def attention(projected: Tensor, rows: int, heads: int, bias: Tensor | Boundaries | None) -> Tensor:
    """Computes the context (R*W, D) from the scaled query, key and value of R rows of W tokens (R*W, 3D).

    ``bias`` is added to the logits (R, H, W, W), or contains the boundaries of the texts in a
    single row.
    """
    if isinstance(bias, Boundaries):
        return varlen_attention(projected, heads, bias)
    size = projected.shape[1] // (3 * heads)
    qkv = projected.view(rows, -1, 3, heads, size).permute(2, 0, 3, 1, 4)  # (3, R, H, W, D/H)
    width = qkv.shape[3]
    if projected.device.type != "cpu" or width > LONG_ROW_TOKENS:
        query, key, value = qkv.unbind()
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=1.0)
    else:
        # On a CPU, two batched products and a softmax take half the time of PyTorch's kernels,
        # which are made for long texts.
        query, key, value = qkv.contiguous().view(3, rows * heads, width, size).unbind()
        logits = torch.bmm(query, key.transpose(1, 2)).view(rows, heads, width, width)
        if bias is not None:
            logits.add_(bias)
        weights = torch.softmax(logits, dim=-1)
        context = torch.bmm(weights.view(-1, width, width), value).view(rows, heads, width, size)
    return context.transpose(1, 2).reshape(len(projected), -1)


def varlen_attention(projected: Tensor, heads: int, boundaries: Boundaries) -> Tensor:
    """Computes the context (N, D) from the scaled query, key and value of N tokens (N, 3D)."""
    # Older versions of PyTorch do not have it.
    from torch.nn.attention.varlen import varlen_attn

    query, key, value = projected.view(len(projected), 3, heads, -1).unbind(1)  # (N, H, d)
    window: dict[str, Any] = {}
    # Older versions of PyTorch do not have the argument, so it is passed only if there is a window.
    if boundaries.window is not None:
        window["window_size"] = (boundaries.window, boundaries.window)
    # Queries and keys have the same boundaries and the same longest sentence.
    context: Any = varlen_attn(
        query,
        key,
        value,
        boundaries.starts,
        boundaries.starts,
        boundaries.longest,
        boundaries.longest,
        scale=1.0,
        **window,
    )
    return context.flatten(1)


@cache
def has_varlen(
    device: torch.device, dtype: torch.dtype, head_size: int, window: int | None = None
) -> bool:
    """Tells whether `varlen_attention` works on this device, with the results of PyTorch's usual attention."""
    is_half = dtype in (torch.float16, torch.bfloat16)
    if device.type != "cuda" or not is_half or head_size not in HEAD_SIZES:
        return False
    try:
        return varlen_agrees(device, dtype, head_size, window)
    except UNUSABLE as error:
        log.info(
            "batches are packed and masked, as unpadded attention does not run here: %s", error
        )
        return False


@torch.inference_mode()
def varlen_agrees(
    device: torch.device, dtype: torch.dtype, head_size: int, window: int | None = None
) -> bool:
    """Tells whether `varlen_attention` gives the same results for sentences of 3, 1 and 12 tokens together and alone.

    If there is a window, one of 2 tokens is tried.
    """
    lengths = [3, 1, 12]
    heads = 2
    # Numbers from -1 to 1 without a pattern, which leave the random numbers of a run as they are.
    values = torch.arange(sum(lengths) * 3 * heads * head_size, device=device).mul(997).sin()
    projected = values.to(dtype).view(sum(lengths), -1)
    starts = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)
    small_window = None if window is None else 2
    actual = varlen_attention(projected, heads, Boundaries(starts, max(lengths), small_window))
    expected = attention_alone(projected.float(), heads, lengths, small_window)
    return torch.allclose(actual.float(), expected, rtol=0, atol=0.05)


def attention_alone(
    projected: Tensor, heads: int, lengths: Sequence[int], window: int | None = None
) -> Tensor:
    """Computes the result of `varlen_attention` with PyTorch's usual attention, one sentence after the other."""
    contexts = []
    for part in projected.split(list(lengths)):
        query, key, value = part.view(len(part), 3, heads, -1).permute(1, 2, 0, 3)  # (H, T, d)
        place = torch.arange(len(part), device=part.device)
        mask = None if window is None else (place[:, None] - place).abs() <= window
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=1.0)
        contexts.append(context.transpose(0, 1).flatten(1))
    return torch.cat(contexts)
