"""The most similar pairs: exact with and without bfloat16; near duplicates; equal texts; CSV files."""

import csv

import numpy as np
import pytest
from bag_encoder import BagEncoder
from hypothesis import given
from hypothesis import strategies as st

import sbert_app.services.corpus.similar_pairs as module
from sbert_app.services.background.watch import Watch
from sbert_app.services.corpus import Corpus, encode, most_similar_pairs, near_duplicates
from sbert_app.services.corpus.similar_pairs import (
    find_near_duplicates,
    first_of_each_text,
    save_pairs,
    save_without_near_duplicates,
    similar_pairs,
)
from training.errors import InputError, Stopped


def unit(vectors) -> np.ndarray:
    vectors = np.asarray(vectors, dtype=np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


@st.composite
def clouds(draw) -> np.ndarray:
    """Up to 90 unit vectors, among them equal ones, near ones and opposite ones."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    centres = random.normal(size=(draw(st.integers(1, 12)), draw(st.sampled_from([2, 8, 64]))))
    chosen = random.integers(0, len(centres), draw(st.integers(0, 90)))
    noise = random.normal(size=(len(chosen), centres.shape[1])) * draw(st.sampled_from([0, 1e-3, 0.03, 1]))
    return unit(centres[chosen] + noise).reshape(-1, centres.shape[1])


def by_hand(vectors: np.ndarray) -> list[tuple[int, int, float]]:
    """Every pair, best first."""
    exact = vectors.astype(np.float64)
    found = [(i, j, float(exact[i] @ exact[j])) for i in range(len(exact)) for j in range(i + 1, len(exact))]
    return sorted(found, key=lambda pair: -pair[2])


@pytest.fixture(params=["rough product first", "float32 alone"])
def product(request, monkeypatch):
    """Both ways, on any processor: bfloat16 is computed everywhere, if not everywhere fast."""
    monkeypatch.setattr("training.device.has_native_bfloat16", lambda device: request.param == "rough product first")


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 16)


class TestMostSimilarPairs:
    @pytest.mark.usefixtures("product", "small_blocks")
    @given(vectors=clouds(), k=st.integers(1, 200))
    def test_they_are_those_of_brute_force(self, vectors, k):
        found = most_similar_pairs(vectors, k)
        best = by_hand(vectors)[:k]
        assert [cosine for *_, cosine in found] == pytest.approx([cosine for *_, cosine in best], abs=1e-6)
        exact = {(i, j): cosine for i, j, cosine in by_hand(vectors)}
        assert all(cosine == pytest.approx(exact[i, j], abs=1e-6) for i, j, cosine in found)
        assert len({pair[:2] for pair in found}) == len(found)

    @pytest.mark.usefixtures("product", "small_blocks")
    @given(vectors=clouds(), threshold=st.floats(-1, 1))
    def test_a_threshold_lets_in_what_reaches_it(self, vectors, threshold):
        found = {pair[:2] for pair in most_similar_pairs(vectors, 10_000, threshold)}
        every = by_hand(vectors)
        assert {(i, j) for i, j, cosine in every if cosine > threshold + 1e-6} <= found
        assert found <= {(i, j) for i, j, cosine in every if cosine >= threshold - 1e-6}

    @given(clouds())
    def test_a_rough_product_is_within_its_tolerance(self, vectors):
        import torch

        exact = torch.from_numpy(vectors)
        rough = (exact.bfloat16() @ exact.bfloat16().T).float()
        assert float((rough - exact @ exact.T).abs().max() if len(vectors) else 0) <= module.TOLERANCE

    @pytest.mark.parametrize("n", [0, 1, 2, 3, 10])
    def test_few_and_identical_sentences(self, n):
        found = most_similar_pairs(unit(np.ones((n, 4))), 5)
        assert [pair[:2] for pair in found] == [(i, j) for i in range(n) for j in range(i + 1, n)][:5]
        assert all(cosine == pytest.approx(1) and cosine <= 1 for *_, cosine in found)

    def test_among_equals_the_first_come_first(self):
        vectors = unit([[1, 0], [1, 0], [0, 1], [0, 1]])
        assert most_similar_pairs(vectors, 3) == [(0, 1, 1.0), (2, 3, 1.0), (0, 2, 0.0)]

    @pytest.mark.usefixtures("small_blocks")
    def test_it_reports_progress_and_can_be_stopped(self):
        vectors, told = unit(np.eye(40)), []
        most_similar_pairs(vectors, 1, watch=Watch.of(lambda done, count: told.append((done, count))))
        assert told == [(done, 6) for done in range(1, 7)]
        with pytest.raises(Stopped):
            most_similar_pairs(vectors, 1, watch=Watch(should_stop=lambda: len(told) > 0))

    def test_zero_pairs_are_refused(self):
        with pytest.raises(InputError, match="the number of pairs is 0; it must be at least 1"):
            most_similar_pairs(unit(np.eye(3)), 0)

    def test_real_sentences_as_sentence_transformers_mines_them(self):
        from sentence_transformers import util

        from training.models.encoder import Encoder

        corpus = Corpus("stsb", Corpus.from_data("stsb:dev").sentences[:1_000])
        vectors = encode(corpus, Encoder.load("all-MiniLM-L6-v2")).vectors
        mined = util.paraphrase_mining_embeddings(vectors, max_pairs=10_000, top_k=100)[:100]
        found = most_similar_pairs(vectors, 100)
        assert [cosine for *_, cosine in found] == pytest.approx([min(cosine, 1) for cosine, *_ in mined], abs=1e-5)
        assert {pair[:2] for pair in found[:90]} <= {(int(i), int(j)) for _, i, j in mined}


class TestNearDuplicates:
    @pytest.mark.usefixtures("product", "small_blocks")
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

    def test_it_can_be_stopped(self):
        with pytest.raises(Stopped):
            near_duplicates(unit(np.eye(3)), 0.9, watch=Watch(should_stop=lambda: True))


SENTENCES = [
    "The dog sleeps.",
    "the   DOG sleeps.",
    "A dog sleeps.",
    "=SUM(A1) costs nothing",
    "Rain falls, again.",
    "!!!",
]


@pytest.fixture
def embedded():
    return encode(Corpus("mine", SENTENCES, {"sentence": list("abcdef"), "stars": [1, 2, 3, 4, 5, 6]}), BagEncoder())


def test_the_same_words_are_the_same_text_whatever_their_case_and_marks(embedded):
    assert first_of_each_text([*SENTENCES, "the dog... sleeps", "???"]).tolist() == [0, 2, 3, 4, 5, 7]
    shown, hidden = similar_pairs(embedded, 1, hide_same=False), similar_pairs(embedded, 1)
    assert (shown.compared, shown.same_text, shown.combinations) == (6, 0, 15)
    assert (hidden.compared, hidden.same_text, hidden.combinations) == (5, 1, 10)
    assert hidden.pairs[0][:2] == (0, 2)


def test_the_file_of_pairs_counts_rows_from_one_and_runs_no_formula(embedded, tmp_path):
    found = similar_pairs(embedded, 100, threshold=-1)
    with save_pairs(found, embedded.corpus, tmp_path).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 10
    assert (rows[0]["row1"], rows[0]["row2"], rows[0]["sentence2"]) == ("1", "3", "A dog sleeps.")
    assert float(rows[0]["cosine"]) == pytest.approx(found.pairs[0][2], abs=1e-6)
    cells = {cell for row in rows for cell in row.values()}
    assert "'=SUM(A1) costs nothing" in cells
    assert not any(cell.startswith("=") for cell in cells)


def test_the_file_without_repeats_keeps_the_other_columns(embedded, tmp_path):
    found = find_near_duplicates(embedded, 0.99)
    assert found.original.tolist() == [0, 0, 2, 3, 4, 5]
    with save_without_near_duplicates(found, embedded.corpus, tmp_path).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["stars"] for row in rows] == ["1", "3", "4", "5", "6"]
    assert [row["sentence (file)"] for row in rows] == ["a", "c", "d", "e", "f"]


def test_without_pairs_the_file_has_only_a_header(embedded, tmp_path):
    path = save_pairs(similar_pairs(embedded, 5, threshold=1.0), embedded.corpus, tmp_path)
    assert path.read_text() == "cosine,row1,row2,sentence1,sentence2\n"
