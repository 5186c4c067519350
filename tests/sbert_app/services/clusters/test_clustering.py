"""`clusters/clustering.py` and `summary.py`: HDBSCAN, the hierarchical tree, descriptions and keywords."""

import numpy as np
import pytest
from bag_encoder import BagEncoder
from hypothesis import given
from hypothesis import strategies as st

from sbert_app.services.background.watch import Watch
from sbert_app.services.clusters import clustering
from sbert_app.services.clusters.clustering import (
    HDBSCAN,
    HIERARCHICAL,
    ClusterSettings,
    by_size,
    cluster,
    linkage_tree,
)
from sbert_app.services.clusters.summary import describe_clusters, keywords, words
from sbert_app.services.corpus.corpus import EXAMPLE, Corpus
from sbert_app.services.corpus.embedded import encode
from sbert_app.services.store.cache import DiskCache
from training.errors import InputError, StoppedError

TOPICS = {
    "animals": "dog cat horse barks meows gallops fur paw tail",
    "music": "piano violin song chord melody plays tune singer stage",
    "money": "bank interest credit loan rate debt profit market tax",
}


def corpus_of(count: int) -> Corpus:
    """``count`` sentences of each topic: six of its nine words, and one word that all topics share."""
    random = np.random.default_rng(0)
    sentences = [
        " ".join(["the", *random.choice(vocabulary.split(), 6, replace=False)])
        for vocabulary in TOPICS.values()
        for _ in range(count)
    ]
    return Corpus("topics", sentences, {"topic": [topic for topic in TOPICS for _ in range(count)]})


@pytest.fixture
def cache(tmp_path):
    return DiskCache(tmp_path / "cache")


@pytest.fixture
def clustered(cache, home):
    """settings -> labels, of a corpus or of sentences."""

    def of(corpus, **settings):
        embedded = encode(
            corpus if isinstance(corpus, Corpus) else Corpus("mine", corpus), BagEncoder()
        )
        return cluster(embedded, ClusterSettings(**settings), cache, home)

    return of


def test_the_tree_finds_the_topics(clustered):
    for bound in ({"num_clusters": 3}, {"min_cosine": 0.35}):
        labels = clustered(corpus_of(20), method=HIERARCHICAL, **bound)
        assert sorted(np.bincount(labels).tolist()) == [20, 20, 20]
        assert [len(set(labels[at : at + 20])) for at in (0, 20, 40)] == [1, 1, 1]


@pytest.mark.slow
def test_dense_groups_are_the_topics_and_what_is_alone_is_in_none(clustered):
    corpus = corpus_of(40)
    alone = Corpus("topics", [*corpus.sentences, "zebra unlike anything said before or after"])
    labels = clustered(alone, min_cluster_size=10)
    assert labels.max() == 2
    for at in (0, 40, 80):
        counts = np.bincount(labels[at : at + 40] + 1, minlength=4)
        assert counts[1:].max() >= 30
    assert np.array_equal(labels, clustered(alone, min_cluster_size=10))


class TestTree:
    @given(st.integers(0, 2**32 - 1), st.integers(2, 40))
    def test_it_is_that_of_scipy_on_all_distances(self, seed, n):
        from scipy.cluster.hierarchy import linkage
        from scipy.spatial.distance import pdist

        vectors = np.random.default_rng(seed).normal(size=(n, 8)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        found = clustering.condensed_distances(vectors, Watch())
        assert found == pytest.approx(pdist(vectors.astype(np.float64), "cosine"), abs=1e-6)
        assert linkage(found, "average")[:, 2] == pytest.approx(
            linkage(pdist(vectors, "cosine"), "average")[:, 2], abs=1e-5
        )

    def test_the_distance_of_two_groups_is_the_mean_over_their_pairs(self, cache):
        embedded = encode(corpus_of(5), BagEncoder())
        joined = linkage_tree(embedded, cache)
        labels = cluster(
            embedded, ClusterSettings(HIERARCHICAL, num_clusters=2), cache, cache.folder
        )
        between = 1 - (embedded.vectors @ embedded.vectors.T)[labels == 0][:, labels == 1].mean()
        assert joined[-1, 2] == pytest.approx(between, abs=1e-6)

    def test_the_tree_is_computed_once(self, cache, monkeypatch):
        embedded = encode(corpus_of(5), BagEncoder())
        joined = linkage_tree(embedded, cache)
        monkeypatch.setattr(clustering, "condensed_distances", None)
        assert np.array_equal(linkage_tree(embedded, cache), joined)

    def test_building_the_tree_can_be_stopped(self, cache):
        with pytest.raises(StoppedError):
            linkage_tree(
                encode(corpus_of(5), BagEncoder()), cache, watch=Watch(should_stop=lambda: True)
            )

    def test_too_many_sentences_are_refused_with_a_way_out(self, cache, monkeypatch):
        monkeypatch.setattr(clustering, "MAX_TREE_SENTENCES", 10)
        with pytest.raises(
            InputError, match=r"10 sentences are the most; this corpus has 15\. Choose HDBSCAN"
        ):
            linkage_tree(encode(corpus_of(5), BagEncoder()), cache)


class TestUnclusterable:
    @pytest.mark.parametrize(
        ("sentences", "method", "words"),
        [
            (["one"], HIERARCHICAL, "at least 2 different sentences; there is one here"),
            (["one", "two", "three"], HDBSCAN, "at least 5 different sentences; there are 3 here"),
            (["same"] * 10, HIERARCHICAL, "at least 2 different sentences; all are the same here"),
        ],
    )
    def test_the_error_says_how_many_sentences_there_are(self, clustered, sentences, method, words):
        with pytest.raises(InputError, match=words):
            clustered(sentences, method=method)

    @pytest.mark.parametrize(
        ("sentences", "labels"), [(["one", "two"], [0, 1]), (["two"] + ["one"] * 9, [1] + [0] * 9)]
    )
    def test_two_different_ones_make_a_tree(self, clustered, sentences, labels):
        assert clustered(sentences, method=HIERARCHICAL, min_cosine=0.9).tolist() == labels

    def test_invalid_settings_are_refused(self, clustered):
        for settings, refusal in (
            (
                {"method": "dbscan"},
                "no clustering method 'dbscan'; choose hdbscan or k-means or hierarchical",
            ),
            (
                {"min_cluster_size": 1},
                "the smallest cluster has 1 sentences; it must be at least 2",
            ),
            (
                {"min_cluster_size": 100},
                "clusters of 100 sentences or more were requested, but there are only 15",
            ),
            ({"method": HIERARCHICAL, "min_cosine": 2}, "the cosine is 2; it must be from −1 to 1"),
            (
                {"method": HIERARCHICAL, "num_clusters": 16},
                "16 clusters were requested; 15 sentences can make 1 to 15",
            ),
        ):
            with pytest.raises(InputError, match=refusal):
                clustered(corpus_of(5), **settings)


@given(st.lists(st.integers(-1, 6), max_size=40))
def test_numbers_follow_size_and_groups_stay(labels):
    found = by_size(np.array(labels, dtype=np.int64))
    pairs = list(zip(labels, found.tolist(), strict=True))
    assert len(set(pairs)) == len(set(labels)) == len(set(found.tolist()))
    assert all((old == -1) == (new == -1) for old, new in pairs)
    sizes = np.bincount(found[found >= 0])
    assert (np.diff(sizes) <= 0).all()


class TestDescribeClusters:
    @pytest.fixture
    def found(self):
        embedded = encode(corpus_of(20), BagEncoder())
        labels = np.repeat([0, 1, -1], 20)
        return embedded, describe_clusters(embedded, labels)

    def test_each_has_its_rows_words_and_sentences(self, found):
        _, (animals, music, outside) = found
        assert [group.number for group in (animals, music, outside)] == [1, 2, 0]
        assert animals.rows.tolist() == list(range(20))
        assert set(animals.keywords) <= set(TOPICS["animals"].split())
        assert set(music.keywords) <= set(TOPICS["music"].split())
        assert len(animals.keywords) == 6
        assert outside.keywords == outside.representatives == []

    def test_the_cosine_is_the_mean_over_the_pairs_of_a_cluster(self, found):
        embedded, (animals, *_) = found
        cosines = embedded.vectors[:20] @ embedded.vectors[:20].T
        assert animals.cosine == pytest.approx(cosines[np.triu_indices(20, 1)].mean(), abs=1e-6)

    def test_the_first_representative_is_nearest_to_the_centre(self, found):
        embedded, (animals, *_) = found
        nearest = (embedded.vectors[:20] @ embedded.vectors[:20].sum(0)).argmax()
        assert animals.representatives[0] == nearest
        assert len(animals.representatives) == 3

    def test_no_text_represents_twice(self):
        embedded = encode(Corpus("mine", ["A dog.", "a dog", "A dog!", "cats"]), BagEncoder())
        (first, second) = describe_clusters(embedded, np.array([0, 0, 0, 1]))
        assert len(first.representatives) == 1
        assert (second.representatives, second.cosine) == ([3], None)


class TestKeywords:
    def test_keywords_leave_out_function_words_and_words_of_all_clusters(self):
        texts = [
            "a cake made with flour to eat",
            "a pie made with apples to eat",
            "the car was driven to the town",
        ] * 4
        by_class = keywords(texts, np.array([0, 0, 1] * 4))
        assert not {"with", "to", "made", "was", "the", "a"} & {
            word for words in by_class.values() for word in words
        }
        assert all(by_class.values())

    def test_one_class_alone_has_no_keywords(self):
        assert keywords(["a dog runs", "a dog sleeps"], np.zeros(2, dtype=int)) == {0: []}

    def test_the_keywords_of_a_topic_are_its_words(self):
        by_topic = keywords(corpus_of(30).sentences, np.repeat([0, 1, 2], 30), k=9)
        for label, topic in enumerate(TOPICS.values()):
            assert set(by_topic[label]) == set(topic.split())

    def test_how_long_something_is_cooked_is_not_what_recipes_are_about(self):
        corpus = Corpus.from_file(EXAMPLE)
        is_recipe = np.array(corpus.columns["domain"]) == "cooking"
        words_of_recipes = keywords(corpus.sentences, is_recipe.astype(int))[1]
        assert "until" not in words_of_recipes
        assert "carrot" in words_of_recipes

    def test_what_a_word_is(self):
        assert list(words("The dog's 3 tails, 2nd!")) == ["the", "dog's", "tails", "nd"]
        assert list(words("Ärger über Öl: Кошка спит...")) == [
            "ärger",
            "über",
            "öl",
            "кошка",
            "спит",
        ]
        assert list(words("猫が寝る")) == ["猫が", "が寝", "寝る"]
