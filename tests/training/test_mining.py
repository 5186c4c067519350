"""`training/search.py` and `clustering.py`: the most similar pairs and near duplicates agree with brute force."""

import numpy as np
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import training.search as module
from training import clustering
from training.clustering import near_duplicates
from training.data.load import load_data
from training.errors import InputError, StoppedError
from training.models.encoder import Encoder
from training.search import most_similar_pairs, paraphrase_mining


def unit(vectors) -> np.ndarray:
    vectors = np.asarray(vectors, dtype=np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


@st.composite
def clouds(draw) -> np.ndarray:
    """Up to 90 unit vectors, among them equal ones, near ones and opposite ones."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    centres = random.normal(size=(draw(st.integers(1, 12)), draw(st.sampled_from([2, 8, 64]))))
    chosen = random.integers(0, len(centres), draw(st.integers(0, 90)))
    noise = random.normal(size=(len(chosen), centres.shape[1])) * draw(
        st.sampled_from([0, 1e-3, 0.03, 1])
    )
    return unit(centres[chosen] + noise).reshape(-1, centres.shape[1])


def by_hand(vectors: np.ndarray) -> list[tuple[int, int, float]]:
    """Every pair, best first."""
    exact = vectors.astype(np.float64)
    found = [
        (i, j, float(exact[i] @ exact[j]))
        for i in range(len(exact))
        for j in range(i + 1, len(exact))
    ]
    return sorted(found, key=lambda pair: -pair[2])


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 16)


class TestMostSimilarPairs:
    @pytest.mark.usefixtures("small_blocks")
    @settings(max_examples=examples(50))
    @given(vectors=clouds(), k=st.integers(1, 200))
    def test_they_are_those_of_brute_force(self, vectors, k):
        found = most_similar_pairs(vectors, k)
        best = by_hand(vectors)[:k]
        assert [cosine for *_, cosine in found] == pytest.approx(
            [cosine for *_, cosine in best], abs=1e-6
        )
        exact = {(i, j): cosine for i, j, cosine in by_hand(vectors)}
        assert all(cosine == pytest.approx(exact[i, j], abs=1e-6) for i, j, cosine in found)
        assert len({pair[:2] for pair in found}) == len(found)

    @pytest.mark.usefixtures("small_blocks")
    @settings(max_examples=examples(50))
    @given(vectors=clouds(), threshold=st.floats(-1, 1))
    def test_a_threshold_lets_in_what_reaches_it(self, vectors, threshold):
        found = {pair[:2] for pair in most_similar_pairs(vectors, 10_000, threshold)}
        every = by_hand(vectors)
        assert {(i, j) for i, j, cosine in every if cosine > threshold + 1e-6} <= found
        assert found <= {(i, j) for i, j, cosine in every if cosine >= threshold - 1e-6}

    def test_among_equals_the_first_come_first(self):
        vectors = unit([[1, 0], [1, 0], [0, 1], [0, 1]])
        assert most_similar_pairs(vectors, 3) == [(0, 1, 1.0), (2, 3, 1.0), (0, 2, 0.0)]
        assert most_similar_pairs(vectors[:1], 3) == most_similar_pairs(vectors[:0], 3) == []

    def test_zero_pairs_are_refused(self):
        with pytest.raises(InputError, match="the number of pairs is 0; it must be at least 1"):
            most_similar_pairs(unit(np.eye(3)), 0)

    @pytest.mark.usefixtures("small_blocks")
    def test_it_reports_progress_and_can_be_stopped(self):
        vectors = unit(np.eye(40))
        told = []
        most_similar_pairs(vectors, 1, on_progress=lambda done, count: told.append((done, count)))
        assert told == [(done, 6) for done in range(1, 7)]
        with pytest.raises(StoppedError):
            most_similar_pairs(vectors, 1, should_stop=lambda: len(told) > 0)

    def test_real_sentences_as_sentence_transformers_mines_them(self):
        from sentence_transformers import util

        encoder = Encoder.load("all-MiniLM-L6-v2", dtype="float32")
        data = load_data("stsb:dev")
        sentences = list(dict.fromkeys(data.columns[0] + data.columns[1]))[:300]
        mined = util.paraphrase_mining_embeddings(
            encoder.encode(sentences), max_pairs=10_000, top_k=100
        )[:100]
        found = paraphrase_mining(encoder, sentences, max_pairs=100, batch_size=64)
        assert [cosine for cosine, *_ in found] == pytest.approx(
            [min(cosine, 1) for cosine, *_ in mined], abs=1e-5
        )
        assert {(i, j) for _, i, j in found[:90]} <= {(int(i), int(j)) for _, i, j in mined}
        above = paraphrase_mining(encoder, sentences, threshold=0.8)
        assert above[:50] == found[:50] and min(cosine for cosine, *_ in above) >= 0.8


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(clustering, "ROWS", 16)


@pytest.mark.usefixtures("small_parts")
class TestNearDuplicates:
    @settings(max_examples=examples(50))
    @given(vectors=clouds(), threshold=st.floats(0.1, 1.1))
    def test_it_agrees_with_reading_the_sentences_one_by_one(self, vectors, threshold):
        original = near_duplicates(vectors, threshold)
        cosines = vectors.astype(np.float64) @ vectors.astype(np.float64).T
        kept = np.flatnonzero(original == np.arange(len(original)))
        for row, own in enumerate(original):
            assert own in kept
            earlier = kept[kept < row]
            if own == row:
                assert (cosines[row, earlier] < threshold + 1e-6).all()
            else:
                assert own < row
                assert cosines[row, own] >= threshold - 1e-6

    @settings(max_examples=examples(50))
    @given(vectors=clouds(), split=st.integers(0, 90), threshold=st.floats(0.1, 1.1))
    def test_of_two_files_the_most_similar_of_the_other_is_found(self, vectors, split, threshold):
        mine = vectors[:split]
        others = vectors[split:]
        found = near_duplicates(mine, threshold, others=others)
        assert len(found) == len(mine)
        cosines = mine.astype(np.float64) @ others.astype(np.float64).T
        for row, other in enumerate(found):
            highest = cosines[row].max(initial=-1)
            if other < 0:
                assert highest < threshold + 1e-6
            else:
                assert cosines[row, other] >= max(threshold, highest) - 1e-6

    def test_it_can_be_stopped(self):
        vectors = unit(np.eye(3))
        for others in (None, vectors):
            with pytest.raises(StoppedError):
                near_duplicates(vectors, 0.9, should_stop=lambda: True, others=others)


def test_vectors_of_two_models_are_not_compared():
    with pytest.raises(InputError, match="of 3 and of 4 dimensions"):
        near_duplicates(unit(np.eye(3)), others=unit(np.eye(4)))


def test_near_duplicates_of_many_vectors_are_found_in_cells(monkeypatch):
    monkeypatch.setattr(module, "MAX_EXACT", 1_000)
    random = np.random.default_rng(0)
    first = unit(random.normal(size=(1_500, 64)))
    again = unit(first + 0.02 * random.normal(size=first.shape))
    original = near_duplicates(np.concatenate([first, again]), 0.9)
    assert (original[:1_500] == np.arange(1_500)).all()
    assert (original[1_500:] == np.arange(1_500)).mean() > 0.95
