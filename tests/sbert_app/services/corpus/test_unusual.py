"""`corpus/neighbours.py` and `clusters/summary.py`: hubs are near many, outliers far from all; nested topics."""

import numpy as np
import pytest

from sbert_app.services.background.watch import Watch
from sbert_app.services.clusters.summary import find_topics
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.corpus.neighbours import find_unusual
from sbert_app.services.corpus.search import nearest_in
from sbert_app.services.store.cache import DiskCache
from training.errors import InputError, StoppedError


def embedded(vectors, name="mine", key="key"):
    vectors = np.asarray(vectors, dtype=np.float32)
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return EmbeddedCorpus(
        Corpus(name, [f"{name} {i}" for i in range(len(vectors))]), vectors, "m", "mean", key, 0.0
    )


def test_a_central_vector_is_a_hub_and_a_remote_one_an_outlier(tmp_path):
    around = np.random.default_rng(0).standard_normal((200, 40)) + 2.5
    vectors = np.vstack([around, np.full((1, 40), 2.5), -np.eye(40)[:1] * 20])
    found = find_unusual(embedded(vectors), DiskCache(tmp_path))
    assert found.hubs[0] == 200 and found.found_by[200] == found.found_by.max() > 150
    assert found.outliers[0] == 201
    assert found.found_by.sum() == 202 * found.k
    with pytest.raises(InputError, match="at least 3 sentences"):
        find_unusual(embedded(np.eye(2)), DiskCache(tmp_path))


def test_another_threshold_is_applied_to_what_was_found(tmp_path):
    ours = embedded([[1, 0], [1, 1], [0, 1]])
    theirs = embedded([[0, 1], [1, 0.1]], "theirs", "other")
    found = nearest_in(ours, theirs, DiskCache(tmp_path))
    assert found.rows.tolist() == [1, 1, 0]
    assert found.matches(0.99).tolist() == [2, 0] and found.matches(0.5).tolist() == [2, 0, 1]
    again = nearest_in(ours, embedded([[1, 0], [1, 0]], "theirs", "other"), DiskCache(tmp_path))
    # Equal keys: nothing is computed again.
    np.testing.assert_array_equal(again.cosines, found.cosines)
    with pytest.raises(InputError, match="different dimensions"):
        nearest_in(ours, embedded(np.eye(3)), DiskCache(tmp_path))


def test_the_topics_of_a_map_are_nested_and_named_by_their_own_words():
    middle = np.repeat([[0, 0], [9, 0], [0, 9], [9, 9]], 60, axis=0)
    points = (middle + np.random.default_rng(0).standard_normal((240, 2))).astype(np.float32)
    words = np.repeat(["cats purr", "banks lend", "rain falls", "goals count"], 60)
    coarse, fine = find_topics(points, [f"{word} {i}" for i, word in enumerate(words)])
    assert len(set(coarse.labels)) <= len(set(fine.labels))
    assert all(len(set(coarse.labels[fine.labels == label])) == 1 for label in set(fine.labels))
    assert all(
        any(word in name for name in fine.names.values())
        for word in ("purr", "lend", "rain", "goals")
    )
    assert all(coarse.names.values())
    assert set(find_topics(points[:20], ["a"] * 20)[0].names.values()) == {""}
    with pytest.raises(StoppedError):
        find_topics(points, ["a"] * len(points), Watch(should_stop=lambda: True))
