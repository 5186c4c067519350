"""use:<folder>: SavedModels of TensorFlow, as TF Hub distributes the Universal Sentence Encoder."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from training.errors import InputError, StoppedError
from training.models.model import open_model, opener_of

DIMENSION = 6
SENTENCES = ["a dog", "a guitar and a man", "a", "Grüße", ""]


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow", exc_type=ImportError)


def made(
    tf: Any,
    folder: Path,
    body: Callable[[Any, Any], Any] | None = None,
    signature_only: bool = False,
) -> str:
    """A SavedModel that gives a text the vector of its length in bytes, times random numbers; returns its name."""
    weights = tf.Variable(np.random.default_rng(0).normal(size=(2, DIMENSION)).astype(np.float32))

    def embed(texts: Any) -> Any:
        length = tf.cast(tf.strings.length(texts), tf.float32)
        return tf.stack([length, tf.ones_like(length)], axis=1) @ weights

    def call(texts: Any) -> Any:
        return embed(texts) if body is None else body(tf, texts)

    module = tf.Module()
    module.weights = weights
    texts = tf.TensorSpec([None], tf.string)
    if signature_only:
        function = tf.function(lambda inputs: {"outputs": call(inputs)})
        signature = function.get_concrete_function(tf.TensorSpec([None], tf.string, name="inputs"))
        tf.saved_model.save(module, str(folder), {"serving_default": signature})
    else:
        module.__call__ = tf.function(call, input_signature=[texts])
        tf.saved_model.save(module, str(folder))
    return f"use:{folder}"


@pytest.mark.parametrize("signature_only", [False, True])
def test_a_saved_model_encodes_by_its_function_or_its_signature(tf, tmp_path, signature_only):
    encoder = open_model(made(tf, tmp_path / "use", signature_only=signature_only))
    weights = np.random.default_rng(0).normal(size=(2, DIMENSION)).astype(np.float32)
    lengths = np.array([[len(text.encode()), 1] for text in SENTENCES * 50], dtype=np.float32)
    found = encoder.encode(SENTENCES * 50, normalize=False)
    assert (found.dtype, encoder.dimension, encoder.pooling) == (np.float32, DIMENSION, "none")
    assert np.allclose(found, lengths @ weights, atol=1e-5)
    assert np.allclose(np.linalg.norm(encoder.encode(SENTENCES), axis=1), 1)
    assert encoder.encode([]).shape == (0, DIMENSION)


def test_a_saved_model_in_place_of_another_one_is_told_from_it(tf, tmp_path):
    def ones(tf: Any, texts: Any) -> Any:
        return tf.ones([tf.size(texts), DIMENSION])

    name = made(tf, tmp_path / "use")
    [before] = open_model(name).weights_sample(256)
    [again] = open_model(name).weights_sample(256)
    made(tf, tmp_path / "use", ones)
    [after] = open_model(name).weights_sample(256)
    assert np.array_equal(before[1], again[1])
    assert not np.array_equal(before[1], after[1])


def test_a_saved_model_is_evaluated_stops_and_reports_progress(tf, tmp_path):
    from training.evaluation.scoring import evaluate

    encoder = open_model(made(tf, tmp_path / "use"))
    assert -1 <= evaluate(encoder, "stsb:test")["spearman"]["cosine"] <= 1
    reported: list[tuple[int, int | None]] = []
    encoder.encode(
        [f"{i} cats" for i in range(100)],
        on_progress=lambda done, total: reported.append((done, total)),
    )
    assert reported == [(64, 100), (100, 100)]
    with pytest.raises(StoppedError):
        encoder.encode(SENTENCES, should_stop=lambda: True)
    with pytest.raises(InputError, match="pools nothing; leave the pooling out"):
        open_model(encoder.name, "mean")


def test_a_saved_model_that_reads_files_is_refused(tf, tmp_path):
    def body(tf: Any, texts: Any) -> Any:
        return tf.strings.to_number(tf.map_fn(tf.io.read_file, texts))[:, None]

    name = made(tf, tmp_path / "use", body)
    with pytest.raises(
        InputError, match="cannot be opened as an encoder of sentences: it holds ReadFile"
    ):
        open_model(name)


def test_a_saved_model_that_is_not_an_encoder_is_refused(tf, tmp_path):
    with pytest.raises(InputError, match=r"an array of the shape \(1,\)"):
        open_model(
            made(
                tf,
                tmp_path / "flat",
                lambda tf, texts: tf.cast(tf.strings.length(texts), tf.float32),
            )
        )
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/saved_model.pb").write_bytes(b"no protocol buffer")
    with pytest.raises(InputError, match="cannot be opened as an encoder of sentences"):
        open_model(f"use:{tmp_path / 'broken'}")


def test_without_tensorflow_or_a_saved_model_it_says_so(tmp_path, monkeypatch):
    (tmp_path / "saved_model.pb").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    assert opener_of(f"use:{tmp_path}").group == "baseline"
    with pytest.raises(InputError, match=r'in the clone of SBERT Lab, pip install "\.\[use\]"'):
        open_model(f"use:{tmp_path}")
    with pytest.raises(InputError, match=r"there is no saved_model\.pb"):
        open_model(f"use:{tmp_path / 'absent'}")
