"""Open corpora by key, each encoded once for each model and pooling, however many threads ask."""

import threading

import numpy as np
import pytest
from bag_encoder import AnyModel, BagEncoder

from sbert_app.services.background.watch import Watch
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.open_corpora import EmbeddingCache
from training.errors import InputError, StoppedError

SENTENCES = ["A man sleeps.", "A dog barks.", "A man is asleep."]


class SlowEncoder(BagEncoder):
    """Waits until it is let go, or stopped."""

    def __init__(self):
        super().__init__()
        self.begun = threading.Event()
        self.go = threading.Event()

    def encode(self, sentences, normalize=True, on_progress=None, should_stop=None):
        self.begun.set()
        while not self.go.wait(0.01):
            if should_stop is not None and should_stop():
                raise StoppedError
        return super().encode(sentences, normalize, on_progress)


@pytest.fixture
def embeddings(tmp_path):
    return EmbeddingCache(AnyModel(), tmp_path)


class TestCorpora:
    def test_the_same_corpus_has_the_same_key_and_another_column_another(self, embeddings):
        first, second = (embeddings.add(Corpus("c", SENTENCES)) for _ in range(2))
        assert first == second
        assert embeddings.add(Corpus("c", SENTENCES, {"kind": ["a", "b", "c"]})) != first
        assert embeddings.corpus(first).sentences == SENTENCES

    def test_the_least_recently_used_is_evicted_and_the_error_says_so(self, tmp_path):
        embeddings = EmbeddingCache(AnyModel(), tmp_path, max_sentences=5)
        first, second = (embeddings.add(Corpus("c", [str(n), "and"])) for n in range(2))
        embeddings.corpus(first)
        third = embeddings.add(Corpus("c", ["one", "more"]))
        assert [len(embeddings.corpus(key)) for key in (first, third)] == [2, 2]
        with pytest.raises(InputError, match="not open any more"):
            embeddings.corpus(second)

    def test_a_corpus_above_the_limit_of_the_cache_is_held_alone(self, tmp_path):
        embeddings = EmbeddingCache(AnyModel(), tmp_path, max_sentences=2)
        assert len(embeddings.corpus(embeddings.add(Corpus("c", SENTENCES)))) == 3

    def test_the_example_is_opened_again_after_a_larger_corpus(self, tmp_path):
        embeddings = EmbeddingCache(AnyModel(), tmp_path, max_sentences=2)
        key = embeddings.example()
        embeddings.add(Corpus("c", SENTENCES))
        assert embeddings.example() == key
        assert len(embeddings.corpus(key)) == 461


class TestSpaces:
    def test_a_corpus_is_encoded_once_and_not_again_after_a_restart(self, embeddings, tmp_path):
        key = embeddings.add(Corpus("c", SENTENCES))
        reports = []
        first = embeddings.embed(
            key, "bag", watch=Watch.of(lambda done, of: reports.append((done, of)))
        )
        assert reports[-1] == (3, 3)
        assert embeddings.embed(key, "bag").vectors is first.vectors
        assert len(embeddings.models.one.seen) == 3
        restarted = EmbeddingCache(AnyModel(), tmp_path)
        again = restarted.embed(restarted.add(Corpus("c", SENTENCES)), "bag")
        np.testing.assert_array_equal(again.vectors, first.vectors)
        assert again.seconds == 0
        assert restarted.models.one.seen == []

    def test_two_names_of_one_text_share_vectors_and_keep_their_names(self, embeddings):
        first = embeddings.embed(embeddings.add(Corpus("one", SENTENCES)), "bag")
        second = embeddings.embed(embeddings.add(Corpus("two", SENTENCES)), "bag")
        assert second.vectors is first.vectors
        assert (first.corpus.name, second.corpus.name) == ("one", "two")

    def test_concurrent_requests_encode_once(self, tmp_path):
        slow = SlowEncoder()
        embeddings = EmbeddingCache(AnyModel(slow), tmp_path)
        key = embeddings.add(Corpus("c", SENTENCES))
        found = []
        threads = [
            threading.Thread(target=lambda: found.append(embeddings.embed(key, "bag")))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        slow.begun.wait()
        slow.go.set()
        for thread in threads:
            thread.join()
        assert len(slow.seen) == 3  # sentences: encoded once
        assert len({id(embedded.vectors) for embedded in found}) == 1

    def test_a_waiting_request_can_be_stopped_and_the_other_continues(self, tmp_path):
        slow = SlowEncoder()
        embeddings = EmbeddingCache(AnyModel(slow), tmp_path)
        key = embeddings.add(Corpus("c", SENTENCES))
        first = threading.Thread(target=embeddings.embed, args=(key, "bag"))
        first.start()
        slow.begun.wait()
        with pytest.raises(StoppedError):
            embeddings.embed(key, "bag", watch=Watch(should_stop=lambda: True))
        slow.go.set()
        first.join()
        assert embeddings.embed(key, "bag").vectors.shape == (3, 64)

    def test_memory_is_bounded(self, tmp_path, monkeypatch):
        """An evicted corpus is read from the disk, so its vectors are another array."""
        # Four sentences.
        monkeypatch.setattr("sbert_app.services.corpus.open_corpora.MAX_BYTES", 4 * 64 * 4)
        embeddings = EmbeddingCache(AnyModel(), tmp_path)
        first, second = (embeddings.add(Corpus("c", [*SENTENCES, f"and {n}"])) for n in range(2))
        vectors = embeddings.embed(first, "bag").vectors
        assert embeddings.embed(first, "bag").vectors is vectors
        embeddings.embed(second, "bag")
        again = embeddings.embed(first, "bag").vectors
        assert again is not vectors
        np.testing.assert_array_equal(again, vectors)
