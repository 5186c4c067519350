"""Maps: deterministic, faithful to neighbourhoods, aligned for two models; impossible ones give a clear error."""

import shutil

import numpy as np
import pytest
from bag_encoder import BagEncoder

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.corpus.corpus import Corpus, GoldPairs
from sbert_app.services.corpus.embedded import EmbeddedCorpus, encode
from sbert_app.services.corpus.open_corpora import SHIPPED, EmbeddingCache
from sbert_app.services.maps import projection
from sbert_app.services.maps.corpus_map import MapRequest, MapResult, compute_map, pair_distances
from sbert_app.services.maps.projection import (
    COMPILING,
    MapSettings,
    UmapProcess,
    compile_umap,
    compiled_code,
    draw,
    draw_aligned,
    is_compiled,
    map_key,
    project,
)
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.store.cache import DiskCache
from training.catalogue import DEFAULT_MODEL
from training.errors import InputError, Stopped
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
    return EmbeddedCorpus(Corpus("mine", sentences), np.asarray(vectors, dtype=np.float32), model, "mean", key, 0.0)


def purity(points, group):
    """Share of points whose nearest neighbour is of their group."""
    apart = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(apart, np.inf)
    return (group[apart.argmin(axis=1)] == group).mean()


class TestOneMap:
    @pytest.mark.parametrize("dimensions", [2, 3])
    def test_neighbours_stay_close(self, home, dimensions):
        vectors, group = clouds()
        points = draw(vectors, MapSettings(dimensions=dimensions, epochs=100), home)
        assert points.shape == (120, dimensions)
        assert points.dtype == np.float32
        assert purity(points, group) > 0.95

    @pytest.mark.slow
    def test_a_large_corpus_starts_from_its_principal_components(self, home):
        vectors, group = clouds(20_001)
        points = draw(vectors, MapSettings(epochs=30), home)
        assert purity(points[:1_000], group[:1_000]) > 0.95

    def test_the_same_seed_gives_the_same_map_and_another_seed_another(self, home):
        vectors, _ = clouds()
        first, again = (draw(vectors, QUICK, home) for _ in range(2))
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, draw(vectors, MapSettings(epochs=50, seed=1), home))

    def test_it_comes_from_the_cache_the_second_time(self, home, tmp_path, monkeypatch):
        embedded, cache = make_embedded(clouds()[0]), DiskCache(tmp_path)
        first = project([embedded], QUICK, cache, home)
        monkeypatch.setattr("sbert_app.services.maps.projection._draw", None)
        np.testing.assert_array_equal(project([embedded], QUICK, cache, home), first)

    def test_every_setting_makes_another_key(self):
        embedded = make_embedded(clouds()[0])
        changes = [{}, {"dimensions": 3}, {"neighbours": 5}, {"min_dist": 0.5}, {"seed": 1}, {"epochs": 3}]
        assert len({map_key(MapSettings(**change), embedded) for change in changes}) == len(changes)

    def test_progress_increases_to_the_end_and_a_stop_ends_the_work_at_once(self, home):
        vectors, _ = clouds(400)
        shares = []
        draw(vectors, MapSettings(), home, Watch.of(lambda done, _: shares.append(done)))
        assert shares == sorted(shares)
        assert 0.3 < shares[-1] <= 1
        watch = Watch.of(lambda done, _: shares.append(done), lambda: shares[-1] > 0.3)
        shares.append(0.0)
        with pytest.raises(Stopped):
            draw(vectors, MapSettings(epochs=100_000_000), home, watch)
        assert draw(vectors, QUICK, home).shape == (400, 2)

    def test_the_map_of_the_example_is_shipped(self, home):
        embeddings = ModelCache(home)
        embeddings = EmbeddingCache(embeddings, home)
        embedded = embeddings.embed(embeddings.example(), DEFAULT_MODEL, "mean")
        shipped = DiskCache(SHIPPED).get(map_key(MapSettings(), embedded))
        assert shipped is not None, "run python -m scripts.measure_examples map"
        assert shipped.shape == (461, 2)


class TestSmallAndOdd:
    @pytest.mark.parametrize(
        ("sentences", "words"),
        [
            (["one"], "there is one here"),
            (["one", "two"], "there are 2 here"),
            (["one", "two", "three"], "there are 3 here"),
            (["same"] * 10, "all are the same here"),
        ],
    )
    def test_too_few_distinct_sentences_are_refused(self, home, tmp_path, sentences, words):
        embedded = encode(Corpus.from_text("\n".join(sentences)), BagEncoder())
        with pytest.raises(InputError, match=f"at least 5 different sentences; {words}"):
            project([embedded], QUICK, DiskCache(tmp_path), home)
        with pytest.raises(InputError, match="at least 5 different sentences"):
            project([embedded, embedded], QUICK, DiskCache(tmp_path), home)

    @pytest.mark.parametrize("dimensions", [2, 3])
    @pytest.mark.parametrize("n", [5, 6, 10])
    def test_from_five_on_there_is_a_map(self, home, tmp_path, n, dimensions):
        embedded = make_embedded(clouds(n)[0])
        settings = MapSettings(dimensions=dimensions, epochs=20)
        (drawn,) = project([embedded], settings, DiskCache(tmp_path), home)
        assert drawn.shape == (n, dimensions)
        other = make_embedded(clouds(n, seed=1)[0])
        before, after = project([embedded, other], settings, DiskCache(tmp_path), home)
        assert before.shape == after.shape == (n, dimensions)

    def test_a_few_sentences_many_times_over(self, home, tmp_path):
        vectors = np.repeat(clouds(5)[0], 60, axis=0)
        embedded = make_embedded(vectors, [f"sentence {n // 60}" for n in range(300)])
        assert np.isfinite(project([embedded], QUICK, DiskCache(tmp_path), home)).all()
        other = make_embedded(vectors[::-1], embedded.corpus.sentences)
        both = project([embedded, other], QUICK, DiskCache(tmp_path), home)
        assert np.isfinite(both).all()

    def test_a_collapsed_model_is_refused(self, home, tmp_path):
        embedded = make_embedded(np.tile(clouds(1)[0], (20, 1)))
        with pytest.raises(InputError, match="gives all 20 sentences the same vector"):
            project([embedded], QUICK, DiskCache(tmp_path), home)

    def test_vectors_of_nothing_but_zeros(self, home, tmp_path):
        vectors = clouds(30)[0]
        vectors[:3] = 0
        assert np.isfinite(project([make_embedded(vectors)], QUICK, DiskCache(tmp_path), home)).all()

    @pytest.mark.parametrize(
        ("setting", "words"),
        [
            ({"dimensions": 4}, "2 or 3 dimensions"),
            ({"neighbours": 1}, "from 2 to 200"),
            ({"neighbours": 201}, "from 2 to 200"),
            ({"min_dist": -0.1}, "0.99"),
            ({"min_dist": float("nan")}, "0.99"),
            ({"seed": -1}, "the seed is -1"),
            ({"seed": 2**31}, "the seed is"),
        ],
    )
    def test_invalid_settings_are_refused(self, home, tmp_path, setting, words):
        with pytest.raises(InputError, match=words):
            project([make_embedded(clouds()[0])], MapSettings(**setting), DiskCache(tmp_path), home)


class TestAlignedMaps:
    def test_both_keep_neighbours_and_each_sentence_has_about_the_same_position(self, home):
        vectors, group = clouds(200, groups=4)
        after, _ = clouds(200, groups=4, seed=3)
        before_map, after_map = draw_aligned(vectors, after, MapSettings(), home)
        assert purity(before_map, group) > 0.95
        assert purity(after_map, group) > 0.95
        moved = np.linalg.norm(before_map - after_map, axis=1).mean()
        strangers = np.linalg.norm(before_map - after_map[::-1], axis=1).mean()
        assert moved < strangers / 2

    def test_of_the_same_vectors_are_almost_one(self, home):
        vectors, _ = clouds(200, spread=8)
        first, second = draw_aligned(vectors, vectors, MapSettings(), home)
        deviation = first.std(axis=0).max()
        assert np.median(np.linalg.norm(first - second, axis=1)) < 0.25 * deviation

    def test_the_same_seed_gives_the_same_maps(self, home):
        before, after = clouds()[0], clouds(seed=1)[0]
        first, again = (draw_aligned(before, after, QUICK, home) for _ in range(2))
        np.testing.assert_array_equal(first, again)

    def test_the_cache_keeps_both_and_their_order(self, home, tmp_path, monkeypatch):
        before, after = make_embedded(clouds()[0], key="a"), make_embedded(clouds(seed=1)[0], key="b")
        cache = DiskCache(tmp_path)
        drawn = project([before, after], QUICK, cache, home)
        assert map_key(QUICK, before, after) != map_key(QUICK, after, before)
        monkeypatch.setattr("sbert_app.services.maps.projection._draw", None)
        np.testing.assert_array_equal(project([before, after], QUICK, cache, home), drawn)

    def test_two_corpora_cannot_be_aligned(self, home, tmp_path):
        one, other = make_embedded(clouds(10)[0]), make_embedded(clouds(10)[0], [f"other {n}" for n in range(10)])
        with pytest.raises(InputError, match="the same sentences"):
            project([one, other], QUICK, DiskCache(tmp_path), home)

    def test_stop(self, home):
        with pytest.raises(Stopped):
            draw_aligned(*[clouds()[0]] * 2, MapSettings(epochs=100_000), home, Watch(should_stop=lambda: True))

    def test_sentences_with_the_same_neighbours_under_both_models_stay_together_best(self, home):
        before, _ = clouds(200, groups=4, spread=8)
        after = before.copy()
        after[100:] = before[100:][::-1]  # to another group, among other neighbours
        moved = np.linalg.norm(np.subtract(*draw_aligned(before, after, MapSettings(), home)), axis=1)
        assert np.median(moved[:100]) < 0.5 * np.median(moved[100:])


class TestCorpusMap:
    @pytest.fixture
    def embeddings(self, home):
        return EmbeddingCache(ModelCache(home), home)

    def test_two_poolings_of_stsb(self, embeddings):
        """What people find similar is near on both maps, and random pairs are not."""
        pairs = Corpus.from_data("stsb:dev")
        rows, gold = pairs.gold.rows[:150], pairs.gold.gold[:150]
        corpus = Corpus("part", pairs.sentences[: int(rows.max()) + 1], gold=GoldPairs(rows, gold))
        messages = []
        under = (ModelName(DEFAULT_MODEL, pooling="mean"), ModelName(DEFAULT_MODEL, pooling="cls"))
        wanted = MapRequest(embeddings.add(corpus), *under, MapSettings(epochs=100))
        drawn = compute_map(embeddings, wanted, Watch(lambda done, message=None, total=1.0: messages.append(message)))
        assert [embedded.pooling for embedded in drawn.embedded] == ["mean", "cls"]
        assert not drawn.from_cache
        assert compute_map(embeddings, wanted).from_cache
        assert messages[-1].startswith("Drawing the map of")
        found = pair_distances(drawn, corpus.gold)
        assert found.count == (gold >= 4).sum()
        assert all(near > by_chance + 0.3 for near, by_chance in zip(found.cosines, found.random_cosines, strict=True))
        assert all(distance < 0.5 for distance in found.on_map)

    def test_without_similar_pairs_there_is_no_distance(self):
        embedded = make_embedded(clouds(10)[0])
        drawn = MapResult([embedded], [embedded.vectors[:, :2]], "key", True, 0.0)
        assert pair_distances(drawn, GoldPairs(np.array([[0, 1]]), np.array([3.9]))) is None


class TestCompiling:
    @pytest.fixture
    def new_home(self, home, tmp_path):
        """A home folder with compiled code, in which no map has been drawn."""
        draw(clouds()[0], QUICK, home)
        assert any(compiled_code(home).rglob("layouts.*.nbc"))
        shutil.copytree(compiled_code(home), compiled_code(tmp_path))
        (compiled_code(tmp_path) / "complete").unlink()
        return tmp_path

    def test_the_first_map_says_that_it_compiles_and_later_ones_of_this_version_do_not(
        self, home, new_home, monkeypatch
    ):
        descriptions = []
        watch = Watch(lambda done, description=None, total=1.0: descriptions.append(description))
        drawn = draw(clouds()[0], QUICK, new_home, watch)
        assert COMPILING in descriptions
        # Another process draws the same map.
        np.testing.assert_array_equal(drawn, draw(clouds()[0], QUICK, home))
        descriptions.clear()
        draw(clouds()[0], QUICK, new_home, watch)
        assert COMPILING not in descriptions
        (compiled_code(new_home) / "complete").unlink()
        # The process that waits is taken, and there is no second one.
        monkeypatch.setattr(projection, "UmapProcess", lambda *_: projection._waiting.pop(new_home))
        compile_umap(new_home)
        assert is_compiled(new_home)
        compile_umap(new_home)
        monkeypatch.setattr(projection, "version", lambda package: "9.9")
        assert not is_compiled(new_home)

    def test_a_process_that_fails_says_so(self, home):
        vectors = clouds()[0]
        with pytest.raises(InputError, match="ended unexpectedly, with exit code 1"):
            UmapProcess(home).draw([(vectors, vectors[:, :2], vectors[:, :3])], QUICK, UNWATCHED)
