"""`training/search.py` and `similarities.py`: similarities and search are those of sentence-transformers.

The quantized index: exact cosines of nearly all of the nearest, from a fraction of the memory.
"""

import numpy as np
import pytest
import torch
from sentence_transformers import util

import training.search as search_index
from training.data.load import load_data
from training.errors import InputError
from training.models.encoder import Encoder
from training.search import (
    CANDIDATES,
    QuantizedIndex,
    SearchIndex,
    checked_index,
    semantic_search,
    similarity,
)
from training.similarities import SIMILARITIES

DIMENSION = 96


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    """20,000 in 500 clusters, none of them around the origin, as sentence vectors are."""
    draw = np.random.default_rng(0)
    centres = draw.standard_normal((500, DIMENSION)) + 0.5 * draw.standard_normal(DIMENSION)
    return unit(
        centres[draw.integers(0, 500, 20_000)] + 0.7 * draw.standard_normal((20_000, DIMENSION))
    )


@pytest.fixture(scope="module")
def queries(vectors: np.ndarray) -> np.ndarray:
    draw = np.random.default_rng(1)
    return unit(
        vectors[draw.integers(0, len(vectors), 50)] + 0.03 * draw.standard_normal((50, DIMENSION))
    )


THEIRS = {
    "cosine": util.cos_sim,
    "dot": util.dot_score,
    "euclidean": util.euclidean_sim,
    "manhattan": util.manhattan_sim,
}


@pytest.fixture(scope="module")
def real() -> np.ndarray:
    """The vectors of 700 different sentences of the STS benchmark."""
    data = load_data("stsb:dev")
    sentences = list(dict.fromkeys(data.columns[0] + data.columns[1]))[:700]
    return Encoder.load("all-MiniLM-L6-v2").encode(sentences)


@pytest.mark.parametrize("function", SIMILARITIES)
def test_the_similarity_of_each_with_each(vectors, function):
    u = 3 * vectors[:7]
    v = vectors[7:12]
    expected = THEIRS[function](u, v).numpy()
    np.testing.assert_allclose(similarity(u, v, function), expected, atol=1e-5)
    tensors = similarity(torch.from_numpy(u), torch.from_numpy(v), function)
    np.testing.assert_allclose(tensors.numpy(), expected, atol=1e-5)
    assert similarity(u[0], v[0], function).shape == (1, 1)


@pytest.mark.parametrize("function", [*SIMILARITIES, util.dot_score])
def test_search_finds_what_sentence_transformers_finds(real, function, monkeypatch):
    monkeypatch.setattr(search_index, "ROWS", 200)
    queries = real[:200]
    corpus = 2 * real[200:]
    expected = util.semantic_search(
        queries, corpus, top_k=5, score_function=THEIRS.get(function, function)
    )
    found = semantic_search(queries, corpus, top_k=5, score_function=function)
    for mine, theirs in zip(found, expected, strict=True):
        assert [hit["score"] for hit in mine] == pytest.approx(
            [hit["score"] for hit in theirs], abs=1e-5
        )
        apart = [a["corpus_id"] != b["corpus_id"] for a, b in zip(mine, theirs, strict=True)]
        assert not any(apart) or len({round(hit["score"], 5) for hit in mine}) < 5, (
            "but for equal scores"
        )


@pytest.mark.parametrize("bits", CANDIDATES)
def test_an_index_serves_any_number_of_searches(real, bits):
    index = QuantizedIndex(real, bits)
    exact = semantic_search(real[:20], SearchIndex(real), top_k=3)
    found = semantic_search(2 * real[:20], index, top_k=3)
    for mine, best in zip(found, exact, strict=True):
        assert [hit["corpus_id"] for hit in mine] == [hit["corpus_id"] for hit in best]
        assert [hit["score"] for hit in mine] == pytest.approx(
            [hit["score"] for hit in best], abs=1e-5
        )


def test_a_small_or_empty_corpus_is_searched(vectors):
    [hits] = semantic_search(vectors[0], vectors[:3], top_k=10)
    assert hits[0] == {"corpus_id": 0, "score": pytest.approx(1)} and len(hits) == 3
    assert semantic_search(vectors[:2], vectors[:0]) == [[], []]
    assert [
        hit["corpus_id"]
        for hit in semantic_search(vectors[0], np.repeat(vectors[:1], 4, axis=0))[0]
    ] == [
        0,
        1,
        2,
        3,
    ]


def test_vectors_that_cannot_be_compared_are_refused_in_one_sentence(vectors):
    with pytest.raises(InputError, match="vectors of 96 and of 50 dimensions cannot be compared"):
        similarity(vectors[:2], vectors[:2, :50])
    with pytest.raises(InputError, match="vectors of 50 and of 96 dimensions cannot be compared"):
        semantic_search(vectors[:2, :50], vectors)
    with pytest.raises(
        InputError, match="similarity 'cosin' is unknown; choose cosine, dot, euclidean, manhattan"
    ):
        similarity(vectors[:2], vectors[:2], "cosin")
    with pytest.raises(InputError, match="top_k is 0; it must be at least 1"):
        semantic_search(vectors[:2], vectors, top_k=0)


@pytest.mark.parametrize("bits", CANDIDATES)
def test_nearly_all_of_the_nearest_are_found_with_exact_cosines(
    vectors, queries, bits, monkeypatch
):
    monkeypatch.setitem(search_index.CANDIDATES, bits, {1: 800, 8: 40}[bits])  # of 20,000
    cosines, rows = QuantizedIndex(vectors, bits).nearest(queries, 10)
    best = np.argsort(-(queries @ vectors.T), axis=1)[:, :10]
    recall = np.mean(
        [len(set(found) & set(true)) / 10 for found, true in zip(rows, best, strict=True)]
    )
    assert recall >= 0.99
    np.testing.assert_allclose(cosines, np.take_along_axis(queries @ vectors.T, rows, 1), atol=1e-6)
    assert (np.diff(cosines, axis=1) <= 0).all()
    assert (cosines.dtype, rows.dtype) == (np.float32, np.int64)


@pytest.mark.parametrize("bits", CANDIDATES)
def test_parts_that_are_searched_in_parallel_answer_as_one(vectors, queries, bits, monkeypatch):
    whole = QuantizedIndex(vectors, bits)
    monkeypatch.setattr(search_index, "MIN_PART", 3_000)
    monkeypatch.setattr("training.parallel.num_threads", lambda: 3)
    split = QuantizedIndex(vectors, bits)
    assert (len(whole._parts), len(split._parts)) == (1, 3)
    for mine, other in zip(whole.nearest(queries, 10), split.nearest(queries, 10), strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-6)


@pytest.mark.parametrize("bits", CANDIDATES)
def test_few_vectors_are_all_found_of_any_number_of_dimensions(vectors, bits):
    few = unit(vectors[:7, :3])
    cosines, rows = QuantizedIndex(few, bits).nearest(few[:1], 7)
    assert rows[0, 0] == 0 and sorted(rows[0]) == list(range(7))
    assert cosines[0, 0] == pytest.approx(1, abs=1e-6) and (cosines <= 1).all()
    assert QuantizedIndex(vectors[:1], bits).nearest(vectors[:1], 1)[1].tolist() == [[0]]


def test_equal_vectors_come_in_the_order_of_their_rows(vectors):
    same = np.repeat(vectors[:1], 100, axis=0)
    assert QuantizedIndex(same).nearest(vectors[:1], 5)[1].tolist() == [[0, 1, 2, 3, 4]]


def test_an_index_has_1_or_8_bits_a_dimension(vectors):
    with pytest.raises(ValueError, match="1 or 8 bits a dimension, not 4"):
        QuantizedIndex(vectors, 4)


def test_a_memory_map_is_searched_where_it_is(vectors, queries, tmp_path):
    np.save(tmp_path / "vectors.npy", vectors)
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    for mine, other in zip(
        QuantizedIndex(mapped).nearest(queries, 3),
        QuantizedIndex(vectors).nearest(queries, 3),
        strict=True,
    ):
        np.testing.assert_array_equal(mine, other)


def test_one_bit_is_checked_and_one_byte_taken_where_it_finds_too_few(vectors, monkeypatch):
    monkeypatch.setitem(search_index.CANDIDATES, 1, 800)
    good = checked_index(vectors)
    assert (good.bits, "of their ten nearest." in good.note) == (1, True)
    loud = np.random.default_rng(0).standard_normal(vectors.shape).astype(np.float32)
    loud[:, :8] *= 30
    loud = unit(loud)
    index = checked_index(loud)
    assert (index.bits, "too few; this index has one byte a dimension" in index.note) == (8, True)
    best = np.argsort(-(loud[:20] @ loud.T), axis=1)[:, :10]
    found = index.nearest(loud[:20], 10)[1]
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, best, strict=True)]) >= 0.99
