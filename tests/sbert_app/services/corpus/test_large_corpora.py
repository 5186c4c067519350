"""`corpus/embedded.py`, with small limits: files of vectors, samples, k-means, approximate search."""

import os

import numpy as np
import pytest
from bag_encoder import AnyModel, BagEncoder

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.clusters.clustering import join_nearest, k_means
from sbert_app.services.clusters.summary import keywords
from sbert_app.services.corpus import embedded
from sbert_app.services.corpus.corpus import Corpus, CorpusLimits
from sbert_app.services.corpus.embedded import (
    INCOMPLETE,
    EmbeddedCorpus,
    encode_to_file,
    fixed_sample,
    open_vectors,
    sample_of,
)
from sbert_app.services.corpus.open_corpora import EmbeddingCache
from sbert_app.services.corpus.search import search
from sbert_app.services.store.cache import remove_least_used
from training.data.dataset import Dataset
from training.errors import InputError, StoppedError

SENTENCES = [f"word{n % 7} topic{n % 3} sentence{n}" for n in range(100)]
SMALL = CorpusLimits(sentences=80, in_memory=20, map_points=30, clustered=40)


class TestVectorFile:
    def test_vectors_on_disk_are_memory_mapped_and_duplicates_encoded_once(self, tmp_path):
        progress = []
        encoder = BagEncoder()
        sentences = [*SENTENCES[:50], *SENTENCES[:50][::-1], "new", SENTENCES[0]]
        watch = Watch.of(lambda *done: progress.append(done))
        vectors = encode_to_file(tmp_path / "v" / "k.f32", sentences, encoder, watch, chunk=25)
        assert isinstance(vectors, np.memmap)
        assert not vectors.flags.writeable
        np.testing.assert_array_equal(vectors, BagEncoder().encode(sentences))
        assert encoder.seen == [*SENTENCES[:50], "new"]
        assert progress == [(0, 102), (25, 102), (50, 102), (75, 102), (100, 102), (102, 102)]

    def test_a_resumed_encoding_repeats_only_missing_and_half_written_rows(self, tmp_path):
        path = tmp_path / "k.f32"
        encoder = BagEncoder()
        with pytest.raises(StoppedError):
            encode_to_file(
                path,
                SENTENCES,
                encoder,
                Watch(should_stop=lambda: len(encoder.seen) > 60),
                chunk=30,
            )
        part = path.with_name(path.name + INCOMPLETE)
        assert (part.stat().st_size, path.exists()) == (60 * 64 * 4, False)
        part.write_bytes(part.read_bytes() + b"half a row")
        rest = BagEncoder()
        progress = []
        vectors = encode_to_file(
            path, SENTENCES, rest, Watch.of(lambda *done: progress.append(done)), chunk=30
        )
        assert rest.seen == SENTENCES[60:]
        assert progress[0] == (60, 100)
        np.testing.assert_array_equal(vectors, BagEncoder().encode(SENTENCES))
        again = BagEncoder()
        encode_to_file(path, SENTENCES, again)
        assert again.seen == []

    def test_a_file_of_another_size_and_a_folder_in_its_place_are_replaced(self, tmp_path):
        (path := tmp_path / "k.f32").mkdir()
        path.with_name(path.name + ".incomplete").mkdir()
        np.testing.assert_array_equal(
            encode_to_file(path, SENTENCES, BagEncoder()), BagEncoder().encode(SENTENCES)
        )
        path.write_bytes(b"damaged")
        np.testing.assert_array_equal(
            encode_to_file(path, SENTENCES, BagEncoder()), BagEncoder().encode(SENTENCES)
        )

    def test_a_file_of_vectors_of_another_shape_is_not_opened(self, tmp_path):
        path = tmp_path / "k.f32"
        encode_to_file(path, SENTENCES, BagEncoder())
        assert open_vectors(path, (100, 32)) is None

    def test_a_file_that_another_thread_has_just_completed_is_not_encoded_again(
        self, tmp_path, monkeypatch
    ):
        path = tmp_path / "k.f32"
        encode_to_file(path, SENTENCES, BagEncoder())
        # The file was not there when this thread looked, before it got the lock.
        looks = iter([None])
        monkeypatch.setattr(
            embedded, "open_vectors", lambda *file: next(looks, open_vectors(*file))
        )
        encoder = BagEncoder()
        encode_to_file(path, SENTENCES, encoder)
        assert encoder.seen == []

    def test_vectors_that_do_not_fit_on_the_disk_are_refused(self, tmp_path, monkeypatch):
        monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10})())
        with pytest.raises(InputError, match=r"take 25 KB, and .* has 10 bytes free"):
            encode_to_file(tmp_path / "other.f32", SENTENCES, BagEncoder())

    def test_the_least_recently_used_files_go_first(self, tmp_path):
        for age, name in enumerate("abc"):
            (tmp_path / f"{name}.f32").write_bytes(b"x" * 10)
            os.utime(tmp_path / f"{name}.f32", (1000 - age, 1000 - age))
        remove_least_used(tmp_path.glob("*.f32"), 20)
        assert sorted(file.name for file in tmp_path.glob("*.f32")) == ["a.f32", "b.f32"]


class TestOpenCorpora:
    def test_the_vectors_of_a_large_corpus_survive_a_restart(self, tmp_path):
        models = AnyModel()
        embeddings = EmbeddingCache(models, tmp_path, limits=SMALL)
        key = embeddings.add(Corpus.from_dataset(Dataset("c", (SENTENCES,)), SMALL.sentences))
        embedded = embeddings.embed(key, "bag")
        assert len(embedded) == 80
        assert embedded.corpus.notes == ("Only the first 80 of 100 sentences are used.",)
        assert isinstance(embedded.vectors, np.memmap)
        assert search(embedded, SENTENCES[42], models.one, 3).by_cosine[0].row == 42
        restarted = EmbeddingCache(models, tmp_path, limits=SMALL)
        restarted.add(embedded.corpus)
        models.one.seen.clear()
        assert restarted.embed(key, "bag").seconds == 0
        assert models.one.seen == []

    def test_a_sample_is_a_corpus_of_its_own(self):
        corpus = Corpus("c", SENTENCES, {"n": list(range(100))})
        embedded = EmbeddedCorpus(corpus, BagEncoder().encode(SENTENCES), "m", "mean", "key", 0.0)
        sample = sample_of(embedded, 30)
        assert (
            sample.rows.tolist()
            == sorted(set(sample.rows.tolist()))
            == fixed_sample(100, 30).tolist()
        )
        assert sample.embedded.corpus.columns["n"] == sample.rows.tolist()
        np.testing.assert_array_equal(sample.embedded.vectors, embedded.vectors[sample.rows])
        assert sample.embedded.key != embedded.key
        assert sample_of(embedded, 100).embedded is embedded


@pytest.mark.parametrize(("dimension", "bits"), [(256, 1), (64, 8)])
def test_vectors_of_many_dimensions_are_searched_by_one_bit_of_each(
    tmp_path, monkeypatch, dimension, bits
):
    monkeypatch.setattr("sbert_app.services.corpus.embedded.MAX_EXACT", 50)
    random = np.random.default_rng(1).standard_normal((100, dimension)).astype(np.float32)
    (random / np.linalg.norm(random, axis=1, keepdims=True)).tofile(tmp_path / "v.f32")
    vectors = np.memmap(tmp_path / "v.f32", np.float32, "r", shape=random.shape)
    for searched in (vectors, np.array(vectors)):  # in a file, and in memory
        index = EmbeddedCorpus(Corpus("c", SENTENCES), searched, "m", "mean", "key", 0.0).index
        assert (index.bits, index.exact) == (bits, False)
        assert index.nearest(searched[7:8], 1)[1].item() == 7


class TestClusters:
    @pytest.fixture
    def blobs(self) -> tuple[np.ndarray, np.ndarray]:
        """600 unit vectors around three directions, and which direction."""
        random = np.random.default_rng(1)
        kinds = random.integers(0, 3, 600)
        vectors = np.eye(3, 16)[kinds] + 0.05 * random.standard_normal((600, 16))
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32), kinds

    def test_k_means_finds_what_is_apart_the_same_way_each_time(self, blobs):
        vectors, kinds = blobs
        labels = k_means(vectors, 3, UNWATCHED, rows=100)
        assert len({(int(a), int(b)) for a, b in zip(labels, kinds, strict=True)}) == 3
        np.testing.assert_array_equal(labels, k_means(vectors, 3, UNWATCHED, rows=100))
        with pytest.raises(StoppedError):
            k_means(vectors, 3, Watch(should_stop=lambda: True))

    def test_sentences_outside_the_sample_join_the_clusters_of_neighbours(self, blobs):
        vectors, kinds = blobs
        sample = fixed_sample(600, 90)
        sample_labels = np.where(kinds[sample] == 2, -1, kinds[sample]).astype(np.int64)
        labels = join_nearest(vectors, sample, sample_labels, UNWATCHED)
        np.testing.assert_array_equal(labels, np.where(kinds == 2, -1, kinds))

    def test_keywords_cover_every_label(self):
        labels = np.arange(100) % 7
        assert set(keywords(SENTENCES, labels, 2, most=20)) == set(range(7))
