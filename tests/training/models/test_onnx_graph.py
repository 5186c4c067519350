"""An encoder as ONNX: one graph whose vectors are those of the encoder, with pooling, head, dimensions and length 1."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from test_reference import dense, written
from tiny_models import make_model

from training.errors import InputError
from training.models.encoder import Encoder
from training.models.onnx_graph import FLOAT32, INT8, export_onnx

TEXTS = ["a cat", "the dog is eating food on the guitar", "", "the man " * 9]


def test_the_graph_computes_the_vectors_of_the_encoder(tmp_path: Path):
    folder = written(tmp_path / "model", make_model(tmp_path / "plain", num_hidden_layers=1), ["cls", "mean"])
    encoder = Encoder.load(f"{folder}?dim=40", dtype="float32", device="cpu")
    cosines = export_onnx(encoder, tmp_path / "out")
    exact, rounded = tmp_path / "out" / FLOAT32, tmp_path / "out" / INT8
    assert cosines == {str(exact): pytest.approx(1, abs=1e-4), str(rounded): pytest.approx(1, abs=0.1)}
    session = onnxruntime.InferenceSession(exact)
    for text in TEXTS:
        ids = np.array(encoder.tokenize([text]))
        hidden, vector = session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
        assert hidden.shape == (1, ids.shape[1], 32)
        np.testing.assert_allclose(vector, encoder.encode([text]), atol=1e-4)
    # The folder is that of a model, too.
    again = Encoder.load(str(tmp_path / "out"), dtype="float32", device="cpu")
    np.testing.assert_allclose(again.encode(TEXTS), encoder.encode(TEXTS), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["mpnet", "qwen3"])
def test_other_networks_and_a_head(tmp_path: Path, architecture: str):
    plain = make_model(tmp_path / "plain", architecture, num_hidden_layers=1)
    folder = written(tmp_path / "model", plain, "mean", dense())
    cosines = export_onnx(Encoder.load(str(folder), dtype="float32"), tmp_path / "out")
    assert cosines[str(tmp_path / "out" / FLOAT32)] > 0.9999


def test_a_table_of_vectors_needs_no_graph(tmp_path: Path):
    with pytest.raises(InputError, match="a table of vectors without a transformer"):
        export_onnx(Encoder.load("scratch:dan", vocabulary_of=["a cat"]), tmp_path / "out")
