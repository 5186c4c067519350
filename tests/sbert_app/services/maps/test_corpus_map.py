"""What the map of a corpus says of two models."""

import numpy as np

from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.maps.corpus_map import MapResult, moved_neighbours


def test_two_models_are_compared_by_shared_neighbours():
    vectors = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    turned = vectors.copy()
    turned[7] = -turned[7]
    corpus = Corpus("fifty", [f"sentence {n}" for n in range(50)])
    spaces = [EmbeddedCorpus(corpus, each, "m", "mean", "key", 0.0) for each in (vectors, turned)]
    points = np.zeros((50, 2), dtype=np.float32)
    share, sentences = moved_neighbours(MapResult(spaces, [points, points], "key", False, 1.0))
    assert 0.8 < share < 1
    assert sentences[0] == "sentence 7"
    assert moved_neighbours(MapResult([spaces[0]] * 2, [points, points], "key", False, 1.0)) == (
        1.0,
        [],
    )
    assert moved_neighbours(MapResult(spaces[:1], [points], "key", False, 1.0)) is None


def test_no_more_than_all_neighbours_are_shared_among_duplicates():
    vectors = np.zeros((60, 8), dtype=np.float32)
    vectors[:, 0] = 1
    corpus = Corpus("copies", ["the same"] * 60)
    spaces = [EmbeddedCorpus(corpus, vectors, "m", "mean", "key", 0.0)] * 2
    points = np.zeros((60, 2), dtype=np.float32)
    share, _ = moved_neighbours(MapResult(spaces, [points, points], "key", False, 1.0))
    assert share == 1
