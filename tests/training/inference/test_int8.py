"""`inference/layers.py`, int8: vectors and scores stay close to float32's; machines and models that cannot."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny_models import make_model
from torch import nn

from training.errors import InputError
from training.inference import layers
from training.inference.layers import Int8Linear, ObservedLinear, has_int8
from training.models.cross_encoder import CrossEncoder
from training.models.encoder import Encoder
from training.objectives.pairs import Regression
from training.trainer.training_model import TrainingModel

needs_int8 = pytest.mark.skipif(not has_int8("cpu"), reason="PyTorch has no 8-bit products here")
SENTENCES = ["a man is playing a guitar", "the dog runs in the park", "a", ""]


@pytest.fixture
def product() -> tuple[nn.Linear, ObservedLinear, torch.Tensor]:
    """A product that has seen inputs with two channels of large values, as norms have them."""
    torch.manual_seed(0)
    linear = nn.Linear(64, 48)
    x = torch.randn(200, 64)
    x[:, :2] *= 40
    observed = ObservedLinear(linear.weight, linear.bias)
    with torch.no_grad():
        observed(x[:100])
        observed(x[100:])
    return linear, observed, x


def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """The length of the difference, in lengths of what is expected."""
    return float((actual.float() - expected).norm() / expected.norm())


@needs_int8
@torch.no_grad()
def test_a_product_in_8_bits_is_close_to_that_in_32_bits(product, monkeypatch):
    linear, observed, x = product
    rounded = Int8Linear(observed, smooth=True)
    residual = torch.randn(200, 48)
    assert relative_error(rounded(x), linear(x)) < 0.02
    assert relative_error(rounded.plus(x, residual), linear(x) + residual) < 0.02
    # Where two products are added in 16 bits, weights leave room.
    monkeypatch.setattr(layers, "weight_max", lambda: 63)
    assert relative_error(Int8Linear(observed, smooth=True)(x), linear(x)) < 0.04


def test_inputs_beyond_the_range_that_was_seen_are_clipped(product):
    _, observed, _ = product
    edge = torch.full((1, 64), float(observed.high.max()))
    plain = Int8Linear(observed)
    torch.testing.assert_close(plain(edge * 100), plain(edge))


@needs_int8
@torch.no_grad()
def test_channels_of_large_values_leave_integers_to_the_others(product):
    linear, observed, x = product
    small = linear.weight[:, :2].zero_()  # what the large channels carry does not count
    assert not small.any()
    observed.weight[:, :2] = 0
    smooth, plain = (Int8Linear(observed, smooth=smooth)(x) for smooth in (True, False))
    assert relative_error(smooth, linear(x)) < relative_error(plain, linear(x)) / 2


@needs_int8
@pytest.mark.parametrize("architecture", ["bert", "mpnet", "distilbert"])
def test_an_encoder_in_int8(tmp_path: Path, architecture: str):
    folder = str(make_model(tmp_path / architecture, architecture))
    encoder = Encoder.load(f"{folder}?dtype=int8", device="cpu")
    assert encoder.dtype == torch.int8
    assert encoder.name.endswith("?dtype=int8")
    exact = Encoder.load(folder, dtype="float32", device="cpu").encode(SENTENCES)
    assert (encoder.encode(SENTENCES) * exact).sum(axis=1).min() > 0.98
    assert encoder.backbone.get_input_embeddings().weight.dtype == torch.float32  # type: ignore[operator]


@pytest.mark.slow
@needs_int8
def test_the_shipped_cross_encoder_in_int8():
    pairs = [
        ("a man plays a guitar", "someone makes music"),
        ("a man plays a guitar", "the dog sleeps"),
        ("", ""),
    ]
    exact, rounded = (
        CrossEncoder.load(name) for name in ("minilm-stsb?dtype=float32", "minilm-stsb?dtype=int8")
    )
    assert rounded.dtype == torch.int8
    np.testing.assert_allclose(rounded.predict(pairs), exact.predict(pairs), atol=0.05)


def test_models_without_int8_are_refused_and_none_is_trained_in_int8(tmp_path: Path):
    folder = str(make_model(tmp_path / "modern", "modernbert"))
    with pytest.raises(
        InputError, match="cannot compute in int8: that is for BERT's family, not for modernbert"
    ):
        Encoder.load(folder, dtype="int8", device="cpu")
    if not has_int8("cpu"):
        pytest.skip("PyTorch has no 8-bit products here")
    encoder = Encoder.load("scratch:1x32?dtype=int8", device="cpu")
    with pytest.raises(InputError, match="int8 is for inference"):
        TrainingModel(encoder, Regression())


def test_machines_without_int8_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = str(make_model(tmp_path / "tiny"))
    has_int8.cache_clear()
    monkeypatch.setattr(torch.ops, "onednn", SimpleNamespace())
    try:
        with pytest.raises(
            InputError, match="int8 needs a CPU whose PyTorch has oneDNN's 8-bit products"
        ):
            Encoder.load(folder, dtype="int8", device="cpu")
    finally:
        has_int8.cache_clear()
    assert not has_int8("cuda")
