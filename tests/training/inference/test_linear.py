"""`inference/layers.py`: oneDNN's private operators multiply as public functions do, and are not needed."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny_models import make_model
from torch import nn

from training.inference.layers import FusedLinear, OneDnnLinear, fused_linear, has_onednn
from training.models.encoder import Encoder

SENTENCES = ["a man is playing a guitar", "the dog", ""]


@pytest.fixture
def no_cache() -> Iterator[None]:
    """The check is made anew, in the test and after it."""
    has_onednn.cache_clear()
    yield
    has_onednn.cache_clear()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.1)])
@torch.no_grad()
def test_onednn_multiplies_as_linear_does(dtype: torch.dtype, tolerance: float):
    if not has_onednn("cpu", dtype):
        pytest.skip("no oneDNN here")
    layer = nn.Linear(48, 32)
    x = torch.randn(70, 48).to(dtype)
    residual = torch.randn(70, 32).to(dtype)
    plain, fast = (kind(layer.weight, layer.bias, dtype) for kind in (FusedLinear, OneDnnLinear))
    for a, b in [
        (plain(x), fast(x)),
        (plain.gelu(x), fast.gelu(x)),
        (plain.plus(x, residual), fast.plus(x, residual)),
    ]:
        torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


def broken(*arguments: object) -> None:
    raise RuntimeError("these arguments are not expected")


def wrong(x: torch.Tensor, weight: torch.Tensor, *rest: object) -> torch.Tensor:
    return torch.zeros(len(x), weight.shape[0])


wrong.binary = lambda x, residual, *rest: residual  # type: ignore[attr-defined]
UNUSABLE = {
    "missing": SimpleNamespace(),
    "with other arguments": SimpleNamespace(
        _reorder_linear_weight=broken, _linear_pointwise=broken
    ),
    "wrong": SimpleNamespace(
        _reorder_linear_weight=lambda weight, rows: weight, _linear_pointwise=wrong
    ),
}


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize("operators", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_without_usable_operators_vectors_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operators: SimpleNamespace
):
    folder = str(make_model(tmp_path / "tiny"))
    expected = Encoder.load(folder, dtype="float32", device="cpu").encode(SENTENCES)
    has_onednn.cache_clear()
    monkeypatch.setattr(torch.ops, "mkldnn", operators)
    assert not has_onednn("cpu", torch.float32)
    assert not has_onednn("cpu", torch.bfloat16) and not has_onednn("cuda", torch.float32)
    assert type(fused_linear(torch.ones(4, 4), None, torch.float32)) is FusedLinear
    actual = Encoder.load(folder, dtype="float32", device="cpu").encode(SENTENCES)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)
