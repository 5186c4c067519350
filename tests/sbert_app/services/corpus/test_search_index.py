"""The quantized index: exact cosines of nearly all of the nearest, from a fraction of the memory."""

import numpy as np
import pytest

from sbert_app.services.corpus import search_index
from sbert_app.services.corpus.search_index import BITS, QuantizedIndex

DIMENSION = 96


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    """20,000 in 500 clusters, none of them around the origin, as sentence vectors are."""
    draw = np.random.default_rng(0)
    centres = draw.standard_normal((500, DIMENSION)) + 0.5 * draw.standard_normal(DIMENSION)
    return unit(centres[draw.integers(0, 500, 20_000)] + 0.7 * draw.standard_normal((20_000, DIMENSION)))


@pytest.fixture(scope="module")
def queries(vectors: np.ndarray) -> np.ndarray:
    draw = np.random.default_rng(1)
    return unit(vectors[draw.integers(0, len(vectors), 50)] + 0.03 * draw.standard_normal((50, DIMENSION)))


@pytest.mark.parametrize("bits", BITS)
def test_nearly_all_of_the_nearest_are_found_with_exact_cosines(vectors, queries, bits, monkeypatch):
    monkeypatch.setitem(search_index.CANDIDATES, bits, {1: 800, 8: 40}[bits])  # of 20,000
    cosines, rows = QuantizedIndex(vectors, bits).nearest(queries, 10)
    best = np.argsort(-(queries @ vectors.T), axis=1)[:, :10]
    recall = np.mean([len(set(found) & set(true)) / 10 for found, true in zip(rows, best, strict=True)])
    assert recall >= 0.99
    np.testing.assert_allclose(cosines, np.take_along_axis(queries @ vectors.T, rows, 1), atol=1e-6)
    assert (np.diff(cosines, axis=1) <= 0).all()
    assert (cosines.dtype, rows.dtype) == (np.float32, np.int64)


@pytest.mark.parametrize("bits", BITS)
def test_parts_that_are_searched_in_parallel_answer_as_one(vectors, queries, bits, monkeypatch):
    whole = QuantizedIndex(vectors, bits)
    monkeypatch.setattr(search_index, "MIN_PART", 3_000)
    monkeypatch.setattr("training.parallel.num_threads", lambda: 3)
    split = QuantizedIndex(vectors, bits)
    assert (len(whole._parts), len(split._parts)) == (1, 3)
    for mine, other in zip(whole.nearest(queries, 10), split.nearest(queries, 10), strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-6)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("count", [1, 7])
def test_few_vectors_are_all_found(vectors, bits, count):
    cosines, rows = QuantizedIndex(vectors[:count], bits).nearest(vectors[:1], count)
    assert rows[0, 0] == 0
    assert sorted(rows[0]) == list(range(count))
    assert cosines[0, 0] == pytest.approx(1, abs=1e-6)
    assert (cosines <= 1).all()


def test_equal_vectors_come_in_the_order_of_their_rows(vectors):
    same = np.repeat(vectors[:1], 100, axis=0)
    assert QuantizedIndex(same).nearest(vectors[:1], 5)[1].tolist() == [[0, 1, 2, 3, 4]]


def test_a_memory_map_is_searched_where_it_is(vectors, queries, tmp_path):
    np.save(tmp_path / "vectors.npy", vectors)
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    for mine, other in zip(
        QuantizedIndex(mapped).nearest(queries, 3), QuantizedIndex(vectors).nearest(queries, 3), strict=True
    ):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("dimension", [3, 50])
def test_any_number_of_dimensions_will_do(vectors, dimension):
    some = unit(vectors[:200, :dimension])
    assert (QuantizedIndex(some).nearest(some, 1)[1][:, 0] == np.arange(200)).all()


def test_another_number_of_bits_is_an_error(vectors):
    with pytest.raises(ValueError, match="1 or 8 bits a dimension, not 4"):
        QuantizedIndex(vectors, 4)
