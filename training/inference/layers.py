"""The layers of a transformer in inference: matrix products, LayerNorm and attention, with fewer and larger operations.

Products add the bias, GELU and the residual within the matrix product. `OneDnnLinear` uses operators of PyTorch that
are private: torch.compile puts them in place of Linear.

`Int8Linear` multiplies 8-bit integers, 1.6 to 2 times as fast as bfloat16 on a CPU with VNNI. Weights are rounded once,
with a scale for each output channel. Inputs are rounded with one scale and zero point a product, which are fixed
beforehand: an `ObservedLinear` computes in float32 and records the ranges of its inputs while some texts pass through
(static quantisation: Jacob et al. 2018, section 3). Inputs beyond that range are clipped later. GELU writes integers
for the product after it; residuals and norms stay in float32. Norms have a few channels of large values, which would
leave a handful of integers to all others. Where a product follows a norm, each input channel is therefore divided by a
factor that its weights are multiplied by (SmoothQuant: Xiao et al. 2023, section 4).

On NVIDIA GPUs attention takes the sentences of a batch one after the other in a single row, without padding, and is
told where each begins (`torch.nn.attention.varlen`, which is FlashAttention).

`has_onednn`, `has_int8` and `has_varlen` try such operators once on small numbers. Where one is missing, as in an older
PyTorch or on an older GPU, or computes something else, public functions compute the same.
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

# The exceptions of an operator that is missing, takes other arguments, or has no kernel for this device.
UNUSABLE = (AttributeError, ImportError, NotImplementedError, RuntimeError, TypeError, ValueError)
REORDER_ROWS = 1_024  # rows of the input that a weight's layout is optimised for: the tokens of a batch


class FusedLinear:
    """x W^T + b, or x W^T without a bias, optionally with what follows: (M, in) -> (M, out). W and b are copied."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        self.weight = weight.detach().to(dtype, copy=True)
        self.bias = None if bias is None else bias.detach().to(dtype, copy=True)

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

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        super().__init__(weight, bias, dtype)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(self.weight, REORDER_ROWS)

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle and deepcopy, as PyTorch copies no weight in oneDNN's layout."""
        return OneDnnLinear, (self.weight.to_dense(), self.bias, self.weight.dtype)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "none")

    def gelu(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "gelu", [], "none")

    def plus(self, x: Tensor, residual: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise.binary(x, residual, self.weight, self.bias, "add")


def fused_linear(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> FusedLinear:
    """The fastest implementation for the device that the weights are on."""
    kind = OneDnnLinear if has_onednn(weight.device.type, dtype) else FusedLinear
    return kind(weight, bias, dtype)


@cache
def has_onednn(device_type: str, dtype: torch.dtype) -> bool:
    """Whether `OneDnnLinear` works here: on x86, for bfloat16 with AVX-512, if its methods agree with its base's."""
    is_x86 = device_type == "cpu" and platform.machine() in {"x86_64", "AMD64"}
    if not is_x86 or not torch.backends.mkldnn.is_available():
        return False
    # The caller's random numbers stay as they are.
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        layer = nn.Linear(32, 16)
        x = torch.linspace(-1, 1, 8 * 32).view(8, 32)
        layer.weight.copy_(torch.linspace(-1, 1, 16 * 32).view(16, 32).sin())
        layer.bias.copy_(torch.linspace(-1, 1, 16))
        residual = x[:, :16].contiguous()
        rounded = x.to(dtype)
        expected = FusedLinear(layer.weight, layer.bias, torch.float32)
        try:
            if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
                return False
            actual = OneDnnLinear(layer.weight, layer.bias, dtype)
            pairs = [
                (actual(rounded), expected(x)),
                (actual.gelu(rounded), expected.gelu(x)),
                (actual.plus(rounded, residual.to(dtype)), expected.plus(x, residual)),
            ]
        except UNUSABLE:
            return False
    tolerance = 1e-4 if dtype == torch.float32 else 0.2
    return all(torch.allclose(a.float(), b, rtol=0, atol=tolerance) for a, b in pairs)


# The largest integers; weights are symmetric about 0.
INPUT_MAX = 255
WEIGHT_MAX = 127
SIGN_BIT = 128
SMOOTHING = 0.5  # SmoothQuant's α: how much of the inputs' range moves into the weights
# A range never counts as less.
SMALLEST = 1e-6
TRIED_SIZE = 64  # the inputs and the outputs of the product that is tried


class ObservedLinear(FusedLinear):
    """A float32 product that records the range of its inputs. Thread-safe."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(weight, bias, dtype)
        # By input channel; 0 is in every range.
        self.low = self.high = torch.zeros(self.weight.shape[1])
        self._lock = threading.Lock()

    def __call__(self, x: Tensor) -> Tensor:
        low, high = x.aminmax(dim=0)
        with self._lock:
            self.low = torch.minimum(self.low, low)
            self.high = torch.maximum(self.high, high)
        return super().__call__(x)

    def quantization(self, factors: Tensor) -> tuple[float, int]:
        """Scale and zero point of inputs that are divided by ``factors`` (in,)."""
        low = float((self.low / factors).min())
        high = float((self.high / factors).max())
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

    ``observed`` is the product in float32, with the ranges that it recorded; ``output`` the dtype of the result.
    ``smooth`` divides input channels by factors, for inputs that come from a norm; ``following`` is the product that
    takes ``gelu``'s output.
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
        self._offset = torch.full_like(factors, self.zero_point - SIGN_BIT)
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
        # Scale and zero point are unused by floats.
        result = (1.0, 0, self.output)
        added = (1.0, 0, "add", 1.0)
        multiply = torch.ops.onednn.qlinear_pointwise.binary
        return multiply(*product, residual, self.bias, *result, *added, "none", [], "none")

    def _pointwise(self, x: Tensor, then: str, quantization: tuple[float, int], output: torch.dtype) -> Tensor:
        product: tuple[Any, ...] = self._input(x), self.scale, self.zero_point, self.weight, *self._weight_scales
        return torch.ops.onednn.qlinear_pointwise(*product, self.bias, *quantization, output, then, [], "none")

    def _input(self, x: Tensor) -> Tensor:
        """x as integers; the output of ``gelu`` already holds them."""
        if x.dtype == torch.uint8:
            return x
        signed = torch.addcmul(self._offset, x.float(), self._factors).round_().clamp_(-SIGN_BIT, SIGN_BIT - 1)
        # PyTorch converts to int8 five times as fast as to uint8; the two differ by 128, which is the first bit.
        return signed.to(torch.int8).view(torch.uint8).bitwise_xor_(SIGN_BIT)


@cache
def weight_max() -> int:
    """The largest integer of a weight: 127, or 63 on processors that add two products in 16 bits (AVX2 without VNNI).

    There 2 * 255 * 127 overflows without a word; 2 * 255 * 63 does not.
    """
    return WEIGHT_MAX if _smallest_product(INPUT_MAX) == INPUT_MAX * WEIGHT_MAX * TRIED_SIZE else WEIGHT_MAX // 2


@cache
def has_int8(device_type: str) -> bool:
    """Whether `Int8Linear` works here: on a CPU whose PyTorch has oneDNN's 8-bit operators, which multiply rightly."""
    try:
        return device_type == "cpu" and _smallest_product(1) == WEIGHT_MAX * TRIED_SIZE
    except UNUSABLE:
        return False


def _smallest_product(value: int) -> float:
    """The smallest element of a product of inputs that are all ``value`` and the largest weights."""
    size = TRIED_SIZE
    ones = torch.ones(TRIED_SIZE)
    zeros = torch.zeros(TRIED_SIZE)
    x = torch.full((size, size), value, dtype=torch.uint8)
    weight = torch.full((size, size), WEIGHT_MAX, dtype=torch.int8)
    packed = torch.ops.onednn.qlinear_prepack(weight, [size, size])
    product: tuple[Any, ...] = (x, 1.0, 0, packed, ones, zeros.long())
    result = torch.ops.onednn.qlinear_pointwise(*product, zeros, 1.0, 0, torch.float32, "none", [], "none")
    return float(result.min())


LONG_ROW_TOKENS = 256  # tokens a row from which PyTorch's fused attention is faster on a CPU
HEAD_SIZES = range(8, 257, 8)  # dimensions of a head that the unpadded operator takes


def layer_norm(norm: nn.LayerNorm, dtype: torch.dtype) -> nn.Module:
    """A copy of a LayerNorm in ``dtype``, without gradients."""
    return copy.deepcopy(norm).to(dtype).requires_grad_(False)


def attention(projected: Tensor, rows: int, heads: int, bias: Tensor | Boundaries | None) -> Tensor:
    """Query (scaled), key and value of R rows of W tokens (R*W, 3D) -> context (R*W, D).

    ``bias`` is added to the logits (R, H, W, W), or says where the texts of a single row begin. On a CPU, two batched
    products and a softmax take half the time of the kernels made for long texts.
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
        query, key, value = qkv.contiguous().view(3, rows * heads, width, size).unbind()
        logits = torch.bmm(query, key.transpose(1, 2)).view(rows, heads, width, width)
        weights = torch.softmax(logits if bias is None else logits.add_(bias), dim=-1)
        context = torch.bmm(weights.view(-1, width, width), value).view(rows, heads, width, size)
    return context.transpose(1, 2).reshape(len(projected), -1)


def varlen_attention(projected: Tensor, heads: int, where: Boundaries) -> Tensor:
    """Query (scaled), key and value of N tokens (N, 3D) -> context (N, D)."""
    from torch.nn.attention.varlen import varlen_attn

    query, key, value = projected.view(len(projected), 3, heads, -1).unbind(1)
    window: dict[str, Any] = {} if where.window is None else {"window_size": (where.window, where.window)}
    starts = where.starts
    longest = where.longest
    context: Any = varlen_attn(query, key, value, starts, starts, longest, longest, scale=1.0, **window)
    return context.flatten(1)


@cache
def has_varlen(device: torch.device, dtype: torch.dtype, head_size: int, window: int | None = None) -> bool:
    """Whether `varlen_attention` works on this device, and computes what PyTorch's usual attention does."""
    if device.type != "cuda" or dtype not in (torch.float16, torch.bfloat16) or head_size not in HEAD_SIZES:
        return False
    try:
        return varlen_agrees(device, dtype, head_size, window)
    except UNUSABLE as error:
        log.info("batches are packed and masked, as unpadded attention does not run here: %s", error)
        return False


@torch.inference_mode()
def varlen_agrees(device: torch.device, dtype: torch.dtype, head_size: int, window: int | None = None) -> bool:
    """Whether `varlen_attention` returns on sentences of 3, 1 and 12 tokens what each of them gives alone.

    With a window it is tried with one of 2 tokens.
    """
    lengths = [3, 1, 12]
    heads = 2
    values = torch.arange(sum(lengths) * 3 * heads * head_size, device=device).mul(997).sin()
    projected = values.to(dtype).view(sum(lengths), -1)
    starts = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)
    small_window = None if window is None else 2
    actual = varlen_attention(projected, heads, Boundaries(starts, max(lengths), small_window))
    expected = attention_alone(projected.float(), heads, lengths, small_window)
    return torch.allclose(actual.float(), expected, rtol=0, atol=0.05)


def attention_alone(projected: Tensor, heads: int, lengths: Sequence[int], window: int | None = None) -> Tensor:
    """The result of `varlen_attention`, by PyTorch's usual attention, one sentence after the other."""
    contexts = []
    for part in projected.split(list(lengths)):
        query, key, value = part.view(len(part), 3, heads, -1).permute(1, 2, 0, 3)  # (H, T, d)
        place = torch.arange(len(part), device=part.device)
        mask = None if window is None else (place[:, None] - place).abs() <= window
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=1.0)
        contexts.append(context.transpose(0, 1).flatten(1))
    return torch.cat(contexts)
