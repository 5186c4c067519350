"""Corpora too large for the memory or a map, by small limits: files of vectors, samples, k-means, estimates."""

import os
import subprocess
import sys

import numpy as np
import pytest
from bag_encoder import BagEncoder
from paths import ROOT
from waiting import wait_until

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.clusters.clustering import K_MEANS, ClusterSettings, cluster, join_nearest, k_means
from sbert_app.services.clusters.summary import keywords, keywords_of
from sbert_app.services.corpus.corpus import Corpus, CorpusLimits
from sbert_app.services.corpus.embedded import (
    INCOMPLETE,
    EmbeddedCorpus,
    encode_to_file,
    fixed_sample,
    open_vectors,
    rows_done,
    sample_of,
)
from sbert_app.services.corpus.open_corpora import EmbeddingCache
from sbert_app.services.corpus.search import search
from sbert_app.services.store.cache import DiskCache, remove_least_used
from training.errors import InputError, Stopped
from training.search import estimate_seconds

SENTENCES = [f"word{n % 7} topic{n % 3} sentence{n}" for n in range(100)]
SMALL = CorpusLimits(sentences=80, in_memory=20, map_points=30, clustered=40)


class Models:
    """One encoder under any name."""

    def __init__(self):
        self.one = BagEncoder()

    def get(self, name, type_, pooling=None, role=None):
        return self.one


class StoppingEncoder(BagEncoder):
    """Stops the encoding, as the user or a killed process would, after so many sentences."""

    def __init__(self, most):
        super().__init__()
        self.most = most

    def encode(self, sentences, normalize=True, on_progress=None, should_stop=None):
        if len(self.seen) + len(sentences) > self.most:
            raise Stopped
        return super().encode(sentences)


SLOWLY = """
import sys, time
from pathlib import Path
from bag_encoder import BagEncoder
from sbert_app.services.corpus.embedded import encode_to_file

class SlowEncoder(BagEncoder):
    def encode(self, sentences, **options):
        time.sleep(0.1)
        return super().encode(sentences)

encode_to_file(Path(sys.argv[1]), sys.argv[2:], SlowEncoder(), chunk=2)
"""


class TestVectorFile:
    def test_it_is_what_the_encoder_gives_mapped_into_memory(self, tmp_path):
        progress = []
        vectors = encode_to_file(
            tmp_path / "v" / "k.f32", SENTENCES, BagEncoder(), Watch.of(lambda *done: progress.append(done)), chunk=30
        )
        assert isinstance(vectors, np.memmap)
        assert not vectors.flags.writeable
        np.testing.assert_array_equal(vectors, BagEncoder().encode(SENTENCES))
        assert progress == [(0, 100), (30, 100), (60, 100), (90, 100), (100, 100)]

    def test_equal_sentences_are_encoded_once_however_far_apart(self, tmp_path):
        encoder, sentences = BagEncoder(), [*SENTENCES[:50], *SENTENCES[:50][::-1], "new", SENTENCES[0]]
        vectors = encode_to_file(tmp_path / "k.f32", sentences, encoder, chunk=25)
        assert encoder.seen == [*SENTENCES[:50], "new"]
        np.testing.assert_array_equal(vectors, BagEncoder().encode(sentences))

    def test_after_a_stop_only_what_is_missing_is_encoded(self, tmp_path):
        path = tmp_path / "k.f32"
        with pytest.raises(Stopped):
            encode_to_file(path, SENTENCES, StoppingEncoder(65), chunk=30)
        assert (rows_done(path, 64), path.exists()) == (60, False)
        rest, progress = BagEncoder(), []
        vectors = encode_to_file(path, SENTENCES, rest, Watch.of(lambda *done: progress.append(done)), chunk=30)
        assert rest.seen == SENTENCES[60:]
        assert progress[0] == (60, 100)
        np.testing.assert_array_equal(vectors, BagEncoder().encode(SENTENCES))
        again = BagEncoder()
        encode_to_file(path, SENTENCES, again)
        assert again.seen == []

    def test_a_file_of_another_size_and_a_folder_in_its_place_are_replaced(self, tmp_path):
        (path := tmp_path / "k.f32").mkdir()
        path.with_name(path.name + ".incomplete").mkdir()
        np.testing.assert_array_equal(encode_to_file(path, SENTENCES, BagEncoder()), BagEncoder().encode(SENTENCES))
        path.write_bytes(b"damaged")
        np.testing.assert_array_equal(encode_to_file(path, SENTENCES, BagEncoder()), BagEncoder().encode(SENTENCES))

    def test_after_kill_9_another_process_goes_on_from_the_rows_that_are_there(self, tmp_path):
        path = tmp_path / "k.f32"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
        killed = subprocess.Popen([sys.executable, "-c", SLOWLY, str(path), *SENTENCES], env=environment)
        wait_until(lambda: rows_done(path, 64) >= 10 or killed.poll() is not None)
        killed.kill()
        killed.wait()
        done, rest = rows_done(path, 64), BagEncoder()
        assert 10 <= done < 100
        vectors = encode_to_file(path, SENTENCES, rest, chunk=30)
        assert rest.seen == SENTENCES[done:]
        np.testing.assert_array_equal(vectors, BagEncoder().encode(SENTENCES))

    def test_a_row_that_was_half_written_is_written_again(self, tmp_path):
        path = tmp_path / "k.f32"
        with pytest.raises(Stopped):
            encode_to_file(path, SENTENCES, StoppingEncoder(30), chunk=30)
        part = path.with_name(path.name + INCOMPLETE)
        part.write_bytes(part.read_bytes() + b"half a row")
        np.testing.assert_array_equal(
            encode_to_file(path, SENTENCES, BagEncoder(), chunk=30), BagEncoder().encode(SENTENCES)
        )

    def test_a_file_of_another_shape_is_none_and_a_full_disk_is_said(self, tmp_path, monkeypatch):
        path = tmp_path / "k.f32"
        encode_to_file(path, SENTENCES, BagEncoder())
        assert open_vectors(path, (100, 32)) is None
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
    def test_a_large_corpus_is_cut_at_the_limit_and_its_vectors_survive_a_restart(self, tmp_path):
        models = Models()
        embeddings = EmbeddingCache(models, tmp_path, limits=SMALL)
        key = embeddings.add(Corpus.from_text("\n".join(SENTENCES), most=SMALL.sentences))
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
        assert sample.rows.tolist() == sorted(set(sample.rows.tolist())) == fixed_sample(100, 30).tolist()
        assert sample.embedded.corpus.columns["n"] == sample.rows.tolist()
        np.testing.assert_array_equal(sample.embedded.vectors, embedded.vectors[sample.rows])
        assert sample.embedded.key != embedded.key
        assert sample_of(embedded, 100).embedded is embedded


@pytest.mark.parametrize(("dimension", "bits"), [(256, 1), (64, 8)])
def test_vectors_of_many_dimensions_are_searched_by_one_bit_of_each(tmp_path, monkeypatch, dimension, bits):
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
        with pytest.raises(Stopped):
            k_means(vectors, 3, Watch(should_stop=lambda: True))

    def test_the_others_join_the_clusters_of_their_neighbours_in_the_sample(self, blobs):
        vectors, kinds = blobs
        sample = fixed_sample(600, 90)
        sample_labels = np.where(kinds[sample] == 2, -1, kinds[sample]).astype(np.int64)
        labels = join_nearest(vectors, sample, sample_labels, UNWATCHED)
        np.testing.assert_array_equal(labels, np.where(kinds == 2, -1, kinds))

    def test_they_are_clusters_like_any_other(self, blobs, tmp_path):
        vectors, _ = blobs
        corpus = Corpus("c", [f"sentence {n}" for n in range(600)])
        embedded = EmbeddedCorpus(corpus, vectors, "m", "mean", "key", 0.0)
        labels = cluster(embedded, ClusterSettings(K_MEANS, num_clusters=3), DiskCache(tmp_path), tmp_path)
        assert np.bincount(labels).tolist() == sorted(np.bincount(labels).tolist(), reverse=True)
        assert len(np.bincount(labels)) == 3

    def test_keywords_of_a_sample_have_every_label(self):
        labels = np.arange(100) % 7
        assert keywords_of(SENTENCES, labels, 2) == keywords(SENTENCES, labels, 2)
        assert set(keywords_of(SENTENCES, labels, 2, most=20)) == set(range(7))


def test_the_time_of_all_pairs_grows_with_their_number():
    vectors = np.random.default_rng(0).standard_normal((4_096, 8)).astype(np.float32)
    assert 0 < estimate_seconds(vectors[:1_000]) < estimate_seconds(np.tile(vectors, (30, 1)))
