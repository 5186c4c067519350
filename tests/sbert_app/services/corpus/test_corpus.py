"""A corpus: sentences of a text, a file or a data set, their vectors, the cache, the nearest neighbours."""

import faiss
import numpy as np
import pytest
from bag_encoder import BagEncoder
from hypothesis import given
from hypothesis import strategies as st

from sbert_app.services.background.watch import Watch
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import encode, fingerprint
from sbert_app.services.corpus.neighbours import neighbours
from sbert_app.services.store.cache import DiskCache
from training import search as search_module
from training.data.dataset import Dataset
from training.errors import InputError, StoppedError
from training.models.encoder import Encoder


def unit(n, dimension=16, seed=0):
    vectors = np.random.default_rng(seed).standard_normal((n, dimension)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


class TestSentences:
    def test_up_to_the_limit(self):
        corpus = Corpus.from_dataset(
            Dataset("numbers", (list(map(str, range(1_005))),)), most=1_000
        )
        assert len(corpus) == 1_000
        assert corpus.notes == ("Only the first 1,000 of 1,005 sentences are used.",)
        with pytest.raises(InputError, match="contains no sentence"):
            Corpus("none", [])

    @given(st.lists(st.text(), min_size=1), st.lists(st.text(), min_size=1))
    def test_different_sentences_have_different_digests(self, first, second):
        assert (Corpus("a", first).digest == Corpus("b", second).digest) == (first == second)


class TestFile:
    def test_other_columns_stay_one_may_be_named_and_repetitions_stay_rows(self, tmp_path):
        path = tmp_path / "mine.csv"
        path.write_text('sentence,kind\n"A man, asleep.",x\n,y\nA dog barks.,z\n', encoding="utf-8")
        corpus = Corpus.from_file(path)
        assert corpus.sentences == ["A man, asleep.", "A dog barks."]
        assert corpus.columns == {"kind": ["x", "z"]}
        assert corpus.empty == 1
        path = tmp_path / "mine.csv"
        path.write_text("a,b\nfirst,second\n", encoding="utf-8")
        assert Corpus.from_file(path, "b").sentences == ["second"]
        with pytest.raises(InputError, match="a, b"):
            Corpus.from_file(path, "c")
        path.write_text("sentence\nsame\nsame\n", encoding="utf-8")
        assert Corpus.from_file(path).sentences == ["same", "same"]
        path = tmp_path / "notes.txt"
        path.write_text("A dog, asleep.\nA cat; awake.\n\nRain\n", encoding="utf-8")
        assert Corpus.from_file(path).sentences == ["A dog, asleep.", "A cat; awake.", "Rain"]

    def test_a_file_of_pairs_gives_its_different_sentences_and_gold_pairs(self, tmp_path):
        path = tmp_path / "p.csv"
        path.write_text("sentence1,sentence2,score\na b,c d,5\nc d,e f,1\n", encoding="utf-8")
        corpus = Corpus.from_file(path)
        assert corpus.sentences == ["a b", "c d", "e f"]
        assert corpus.columns["role"] == ["first sentence", "second sentence", "second sentence"]
        assert corpus.gold.rows.tolist() == [[0, 1], [1, 2]]
        assert corpus.gold.gold.tolist() == [5, 1]


class TestData:
    def test_a_set_has_its_different_sentences_and_gold_pairs(self):
        corpus = Corpus.from_data("stsb:dev")
        assert len(corpus) == len(set(corpus.sentences)) == 2_910
        assert corpus.gold.rows.shape == (1_500, 2)
        assert corpus.sentences[corpus.gold.rows[0, 1]] == "A man wearing a hard hat is dancing."
        assert Corpus.from_dataset(Dataset("mine", (["a", "a", "b"],))).sentences == ["a", "a", "b"]

    def test_an_unknown_name_is_refused(self):
        for name in ("", "stsb:dev+nonsense"):
            with pytest.raises(InputError, match="choose one of stsb"):
                Corpus.from_data(name)


class TestEncode:
    def test_vectors_come_from_the_cache_the_second_time(self, tmp_path):
        cache = DiskCache(tmp_path)
        encoder = BagEncoder()
        corpus = Corpus("c", ["A man sleeps.", "A dog barks."])
        first, second = (encode(corpus, encoder, cache) for _ in range(2))
        np.testing.assert_array_equal(first.vectors, second.vectors)
        assert len(encoder.seen) == 2
        assert (first.seconds > 0, second.seconds) == (True, 0)

    def test_a_stopped_encoding_leaves_no_files(self, tmp_path):
        with pytest.raises(StoppedError):
            encode(
                Corpus("c", ["a", "b"]),
                BagEncoder(),
                DiskCache(tmp_path),
                watch=Watch(should_stop=lambda: True),
            )
        assert list(tmp_path.iterdir()) == []

    def test_the_fingerprint_depends_on_pooling_and_weights(self):
        encoder = Encoder.load("scratch:1x32")
        mean = fingerprint(encoder)
        assert fingerprint(encoder.with_pooling("max")) != mean
        assert fingerprint(Encoder.load("scratch:1x32")) == mean
        assert fingerprint(Encoder.load("scratch:1x32", seed=1)) != mean


class TestNeighbours:
    @given(st.integers(1, 40), st.integers(1, 10), st.integers(0, 5))
    def test_they_are_the_nearest_with_the_sentence_itself_first(self, n, k, seed):
        vectors = unit(n, seed=seed)
        k = min(k, n)
        rows, distances = neighbours(vectors, k)
        assert rows[:, 0].tolist() == list(range(n))
        exact = np.sort(1 - vectors @ vectors.T, axis=1)[:, :k]
        np.testing.assert_allclose(distances, np.clip(exact, 0, 2), atol=1e-5)

    def test_each_of_many_duplicates_finds_itself(self):
        vectors = np.repeat(unit(2), 50, axis=0)
        rows, distances = neighbours(vectors, 5)
        assert rows[:, 0].tolist() == list(range(100))
        assert all(len(set(row)) == 5 for row in rows.tolist())
        assert distances.max() < 1e-5

    def test_the_search_for_neighbours_can_be_stopped(self):
        with pytest.raises(StoppedError):
            neighbours(unit(10), 3, watch=Watch(should_stop=lambda: True))

    def test_a_large_corpus_is_searched_approximately_and_deterministically(self, monkeypatch):
        vectors = unit(3_000)
        exact, _ = neighbours(vectors, 10)
        monkeypatch.setattr(search_module, "MAX_EXACT", 1_000)
        found, _ = neighbours(vectors, 10)
        again, _ = neighbours(vectors, 10)
        np.testing.assert_array_equal(found, again)
        hits = np.mean(
            [len(set(a) & set(b)) / 10 for a, b in zip(exact.tolist(), found.tolist(), strict=True)]
        )
        assert hits > 0.5  # random vectors have no cells: real sentences are found far better

    def test_many_queries_of_a_sample_are_searched_approximately_too(self):
        sample = unit(100)
        assert isinstance(search_module.neighbour_index(sample, 100), faiss.IndexFlatIP)
        assert isinstance(search_module.neighbour_index(sample, 10**9), faiss.IndexIVFFlat)
