"""Vectors in fewer bits: the codes are those of sentence-transformers and FAISS, bfloat16 is torch's."""

import numpy as np
import pytest
import torch
from sentence_transformers.util import quantize_embeddings

from training.errors import InputError
from training.quantization import PRECISIONS, bytes_per_vector, quantize, ranges, restore
from training.similarities import cosine


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    """Unit vectors (300, 40), the last dimension constant."""
    drawn = np.random.default_rng(0).normal(size=(300, 40)).astype(np.float32)
    drawn[:, -1] = 0
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def test_int8_and_bfloat16_are_those_of_the_libraries_in_stated_sizes(vectors):
    calibration = vectors[:200]
    expected = quantize_embeddings(vectors, "int8", calibration_embeddings=calibration)
    np.testing.assert_array_equal(quantize(vectors, "int8", ranges(calibration)), expected)
    expected = torch.from_numpy(vectors).to(torch.bfloat16)
    codes = quantize(vectors, "bfloat16", ranges(vectors))
    np.testing.assert_array_equal(codes, expected.view(torch.uint16).numpy())
    np.testing.assert_array_equal(
        restore(codes, "bfloat16", ranges(vectors)), expected.float().numpy()
    )
    assert [bytes_per_vector(384, name) for name in PRECISIONS] == [1536, 768, 384, 48]
    with pytest.raises(InputError, match="calibrated on several vectors, not on 1"):
        ranges(vectors[:1])


@pytest.mark.parametrize("dimension", [40, 32, 13])
def test_binary_is_their_ubinary(vectors, dimension):
    kept = vectors[:, :dimension]
    codes = quantize(kept, "ubinary", ranges(kept))
    np.testing.assert_array_equal(codes, quantize_embeddings(kept, "ubinary"))
    assert codes.shape[1] == bytes_per_vector(dimension, "ubinary")
    np.testing.assert_array_equal(restore(codes, "ubinary", ranges(kept)) > 0, kept > 0)


def test_int8_is_that_of_faiss(vectors):
    import faiss

    index = faiss.IndexScalarQuantizer(
        40, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
    )
    index.train(vectors)
    index.add(vectors)
    restored = restore(quantize(vectors, "int8", ranges(vectors)), "int8", ranges(vectors))
    apart = np.abs(index.reconstruct_n(0, 300) - restored)
    assert (apart > 1e-6).mean() < 1e-3, (
        "but for values on the border of two steps, where rounding decides"
    )
    assert apart.max() < 1.01 * np.ptp(vectors, axis=0).max() / 255


def test_fewer_bits_are_further_from_the_cosine(vectors):
    u = vectors[:150]
    v = vectors[150:]
    errors = []
    for precision in PRECISIONS:
        a, b = (
            restore(quantize(each, precision, ranges(vectors)), precision, ranges(vectors))
            for each in (u, v)
        )
        errors.append(np.abs(cosine(a, b) - cosine(u, v)).mean())
    assert errors[0] == 0
    assert errors == sorted(errors)
    equal_bits = ((u > 0) == (v > 0)).mean(axis=1)
    np.testing.assert_allclose(cosine(a, b), 2 * equal_bits - 1, atol=1e-6)
