"""Maps: deterministic, faithful to neighbourhoods, aligned for two models; impossible ones give a clear error."""

import os
import shutil
import signal
import threading

import numpy as np
import pytest
from bag_encoder import BagEncoder
from waiting import wait_until

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.corpus.corpus import Corpus, GoldPairs
from sbert_app.services.corpus.embedded import EmbeddedCorpus, encode
from sbert_app.services.corpus.neighbours import neighbours
from sbert_app.services.corpus.open_corpora import SHIPPED, EmbeddingCache
from sbert_app.services.maps import projection
from sbert_app.services.maps.corpus_map import compute_map, pair_distances
from sbert_app.services.maps.projection import (
    COMPILING,
    MapSettings,
    UmapProcess,
    compile_umap,
    compiled_code,
    draw,
    is_compiled,
    map_key,
    project,
)
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.store.cache import DiskCache
from training.catalogue import DEFAULT_MODEL
from training.errors import InputError, StoppedError
from training.names import ModelName

QUICK = MapSettings(epochs=50)


def clouds(n=120, groups=3, dimension=16, seed=0, spread=1):
    """Unit vectors in groups, which are well separated with a spread of 1, and the group of each."""
    random = np.random.default_rng(seed)
    group = np.arange(n) % groups
    vectors = random.standard_normal((groups, dimension))[group] * 4
    vectors += spread * random.standard_normal((n, dimension))
    vectors = vectors.astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), group


def make_embedded(vectors, sentences=None, key="key", model="bag-of-words"):
    sentences = sentences or [f"sentence {n}" for n in range(len(vectors))]
    return EmbeddedCorpus(
        Corpus("mine", sentences), np.asarray(vectors, dtype=np.float32), model, "mean", key, 0.0
    )


def purity(points, group):
    """Share of points whose nearest neighbour is of their group."""
    apart = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(apart, np.inf)
    return (group[apart.argmin(axis=1)] == group).mean()


class TestOneMap:
    def test_neighbours_stay_close_and_the_same_seed_gives_the_same_map(
        self, home, tmp_path, monkeypatch
    ):
        vectors, group = clouds()
        embedded = make_embedded(vectors)
        cache = DiskCache(tmp_path)
        [points] = project([embedded], QUICK, cache, home)
        assert points.shape == (120, 2)
        assert points.dtype == np.float32
        assert purity(points, group) > 0.95
        np.testing.assert_array_equal(points, draw([vectors], QUICK, home)[0])
        assert not np.array_equal(points, draw([vectors], MapSettings(epochs=50, seed=1), home)[0])
        monkeypatch.setattr(projection, "draw", None)
        np.testing.assert_array_equal(project([embedded], QUICK, cache, home), [points])

    def test_each_setting_of_a_map_is_part_of_its_key_in_the_cache(self):
        embedded = make_embedded(clouds()[0])
        changes = [
            {},
            {"dimensions": 3},
            {"neighbours": 5},
            {"min_dist": 0.5},
            {"seed": 1},
            {"epochs": 3},
        ]
        assert len({map_key(MapSettings(**change), embedded) for change in changes}) == len(changes)

    def test_progress_increases_to_the_end(self, home):
        vectors, _ = clouds(400)
        shares = []
        draw([vectors], MapSettings(), home, Watch.of(lambda done, _: shares.append(done)))
        assert shares == sorted(shares)
        assert 0.3 < shares[-1] <= 1

    def test_a_stop_ends_the_drawing_at_once(self, home):
        vectors, _ = clouds(400)
        shares = [0.0]
        watch = Watch.of(lambda done, _: shares.append(done), lambda: shares[-1] > 0.3)
        with pytest.raises(StoppedError):
            draw([vectors], MapSettings(epochs=100_000_000), home, watch)
        assert draw([vectors], QUICK, home)[0].shape == (400, 2)

    def test_the_map_of_the_example_is_shipped(self, home):
        embeddings = EmbeddingCache(ModelCache(home), home)
        embedded = embeddings.embed(embeddings.example(), DEFAULT_MODEL, "mean")
        shipped = DiskCache(SHIPPED).get(map_key(MapSettings(), embedded))
        assert shipped is not None, "run python -m scripts.measure_examples map"
        assert shipped.shape == (461, 2)


class TestSmallAndOdd:
    def test_too_few_distinct_sentences_are_refused(self, home, tmp_path):
        for sentences, words in (
            (["one", "two", "three"], "at least 5 different sentences; there are 3 here"),
            (["same"] * 10, "at least 5 different sentences; all are the same here"),
        ):
            embedded = encode(Corpus("c", sentences), BagEncoder())
            for spaces in ([embedded], [embedded, embedded]):
                with pytest.raises(InputError, match=words):
                    project(spaces, QUICK, DiskCache(tmp_path), home)

    def test_a_model_that_gives_all_sentences_the_same_vector_is_refused(self, home, tmp_path):
        embedded = make_embedded(np.tile(clouds(1)[0], (20, 1)))
        with pytest.raises(InputError, match="gives all 20 sentences the same vector"):
            project([embedded], QUICK, DiskCache(tmp_path), home)

    def test_two_different_corpora_are_refused(self, home, tmp_path):
        one = make_embedded(clouds(10)[0])
        other = make_embedded(clouds(10)[0], [f"other {n}" for n in range(10)])
        with pytest.raises(InputError, match="the same sentences"):
            project([one, other], QUICK, DiskCache(tmp_path), home)

    @pytest.mark.parametrize(("n", "dimensions"), [(5, 2), (5, 3), (10, 3)])
    def test_from_five_on_there_is_a_map(self, home, tmp_path, n, dimensions):
        settings = MapSettings(dimensions=dimensions, epochs=20)
        spaces = [make_embedded(clouds(n, seed=seed)[0]) for seed in range(2)]
        for count in (1, 2):
            maps = project(spaces[:count], settings, DiskCache(tmp_path), home)
            assert [drawn.shape for drawn in maps] == [(n, dimensions)] * count

    def test_a_few_sentences_many_times_over_and_vectors_of_nothing_but_zeros(self, home, tmp_path):
        vectors = np.repeat(clouds(5)[0], 60, axis=0)
        embedded = make_embedded(vectors, [f"sentence {n // 60}" for n in range(300)])
        other = make_embedded(vectors[::-1], embedded.corpus.sentences)
        assert np.isfinite(project([embedded, other], QUICK, DiskCache(tmp_path), home)).all()
        vectors = clouds(30)[0]
        vectors[:3] = 0
        assert np.isfinite(
            project([make_embedded(vectors)], QUICK, DiskCache(tmp_path), home)
        ).all()

    def test_invalid_settings_are_refused(self, home, tmp_path):
        for setting, words in (
            ({"dimensions": 4}, "2 or 3 dimensions"),
            ({"neighbours": 201}, "from 2 to 200"),
            ({"min_dist": float("nan")}, "0.99"),
            ({"seed": 2**31}, "the seed is"),
        ):
            with pytest.raises(InputError, match=words):
                project(
                    [make_embedded(clouds()[0])], MapSettings(**setting), DiskCache(tmp_path), home
                )


class TestAlignedMaps:
    def test_aligned_maps_keep_neighbours_at_about_the_same_positions(
        self, home, tmp_path, monkeypatch
    ):
        first, group = clouds(200, groups=4)
        second, _ = clouds(200, groups=4, seed=3)
        before = make_embedded(first, key="a")
        after = make_embedded(second, key="b")
        cache = DiskCache(tmp_path)
        maps = project([before, after], MapSettings(), cache, home)
        assert purity(maps[0], group) > 0.95
        assert purity(maps[1], group) > 0.95
        moved = np.linalg.norm(maps[0] - maps[1], axis=1).mean()
        strangers = np.linalg.norm(maps[0] - maps[1][::-1], axis=1).mean()
        assert moved < strangers / 2
        np.testing.assert_array_equal(maps, draw([first, second], MapSettings(), home))
        assert map_key(QUICK, before, after) != map_key(QUICK, after, before)
        monkeypatch.setattr(projection, "draw", None)
        np.testing.assert_array_equal(project([before, after], MapSettings(), cache, home), maps)

    def test_of_the_same_vectors_are_almost_one(self, home):
        vectors, _ = clouds(200, spread=8)
        first, second = draw([vectors, vectors], MapSettings(), home)
        deviation = first.std(axis=0).max()
        assert np.median(np.linalg.norm(first - second, axis=1)) < 0.25 * deviation

    def test_sentences_with_the_same_neighbours_in_both_models_move_least(self, home):
        before, _ = clouds(200, groups=4, spread=8)
        after = before.copy()
        after[100:] = before[100:][::-1]  # to another group, among other neighbours
        moved = np.linalg.norm(np.subtract(*draw([before, after], MapSettings(), home)), axis=1)
        assert np.median(moved[:100]) < 0.5 * np.median(moved[100:])


def test_similar_pairs_of_stsb_are_near_on_both_maps(home):
    embeddings = EmbeddingCache(ModelCache(home), home)
    pairs = Corpus.from_data("stsb:dev")
    rows = pairs.gold.rows[:150]
    gold = pairs.gold.gold[:150]
    corpus = Corpus("part", pairs.sentences[: int(rows.max()) + 1], gold=GoldPairs(rows, gold))
    messages = []
    under = (ModelName(DEFAULT_MODEL, pooling="mean"), ModelName(DEFAULT_MODEL, pooling="cls"))
    request = embeddings, embeddings.add(corpus), under, MapSettings(epochs=100)
    drawn = compute_map(
        *request, Watch(lambda done, message=None, total=1.0: messages.append(message))
    )
    assert [embedded.pooling for embedded in drawn.embedded] == ["mean", "cls"]
    assert not drawn.from_cache
    assert compute_map(*request).from_cache
    assert messages[-1].startswith("Drawing the map of")
    distances = pair_distances(drawn, corpus.gold)
    assert distances.count == (gold >= 4).sum()
    cosines = zip(distances.cosines, distances.random_cosines, strict=True)
    assert all(near > by_chance + 0.3 for near, by_chance in cosines)
    assert all(distance < 0.5 for distance in distances.on_map)
    assert pair_distances(drawn, GoldPairs(np.array([[0, 1]]), np.array([3.9]))) is None


class TestCompiling:
    @pytest.fixture
    def new_home(self, home, tmp_path):
        """A home folder with compiled code, in which no map has been drawn."""
        draw(clouds()[:1], QUICK, home)
        assert any(compiled_code(home).rglob("layouts.*.nbc"))
        shutil.copytree(compiled_code(home), compiled_code(tmp_path))
        (compiled_code(tmp_path) / "complete").unlink()
        return tmp_path

    def test_only_the_first_map_of_a_version_compiles_umap(self, home, new_home, monkeypatch):
        descriptions = []
        watch = Watch(lambda done, description=None, total=1.0: descriptions.append(description))
        drawn = draw(clouds()[:1], QUICK, new_home, watch)
        assert COMPILING in descriptions
        # Another process draws the same map.
        np.testing.assert_array_equal(drawn, draw(clouds()[:1], QUICK, home))
        descriptions.clear()
        draw(clouds()[:1], QUICK, new_home, watch)
        assert COMPILING not in descriptions
        # One timer for each process that waits.
        wait_until(
            lambda: (
                [*map(type, threading.enumerate())].count(threading.Timer)
                == len(projection._waiting)
            )
        )
        (compiled_code(new_home) / "complete").unlink()
        # The process that waits is taken, and there is no second one.
        monkeypatch.setattr(
            projection, "UmapProcess", lambda *_: projection._waiting.pop(new_home)[0]
        )
        compile_umap(new_home)
        assert is_compiled(new_home)
        compile_umap(new_home)
        monkeypatch.setattr(projection, "version", lambda package: "9.9")
        assert not is_compiled(new_home)

    def test_a_process_that_fails_says_so(self, home):
        vectors = clouds()[0]
        with pytest.raises(InputError, match="ended unexpectedly, with exit code 1"):
            UmapProcess(home).draw([(vectors, vectors[:, :2], vectors[:, :3])], QUICK, UNWATCHED)

    @pytest.mark.parametrize(
        "is_waiting", [False, True], ids=["at its start", "before a map too large for a pipe"]
    )
    def test_a_process_that_hangs_is_given_up(self, home, monkeypatch, is_waiting):
        vectors = np.tile(clouds()[0], (100, 1))
        process = UmapProcess(home)
        if is_waiting:
            process.draw([(clouds()[0], *neighbours(clouds()[0], 5))], QUICK, UNWATCHED)
        monkeypatch.setattr(projection, "STALLED_SECONDS", 1.0)
        os.kill(process._process.pid, signal.SIGSTOP)
        try:
            with pytest.raises(InputError, match="did nothing for"):
                process.draw([(vectors, vectors[:, :2], vectors[:, :3])], QUICK, UNWATCHED)
        finally:
            process.end()
        assert not process.is_alive()
