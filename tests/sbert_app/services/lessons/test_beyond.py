"""Lessons 8 to 12, measured with the real models: what they measure, not what a model happens to score."""

import math
from pathlib import Path

import numpy as np
import pytest

from sbert_app.services.lessons import contrast, crowding, layers, sample, whitening
from sbert_app.services.lessons.setup import Setup
from sbert_app.services.models.cache import ModelCache
from training.errors import InputError
from training.registry import DEFAULT_MODEL


@pytest.fixture(scope="module")
def models(home: Path) -> ModelCache:
    return ModelCache(home)


def words(text):
    return sorted("".join(c if c.isalnum() else " " for c in text.lower()).split())


class TestContrast:
    def test_a_swap_has_exactly_the_words_of_its_sentence_and_a_paraphrase_has_not(self):
        for item in contrast.items(contrast.WORD_ORDER):
            assert words(item.contrast) == words(item.sentence) and item.contrast != item.sentence
            assert words(item.paraphrase) != words(item.sentence)

    def test_every_negation_negates(self):
        for item in contrast.items(contrast.NEGATION):
            assert any(word in words(item.contrast) for word in ("not", "no", "never", "nobody", "cannot")), item
        assert len(set(contrast.items(contrast.NEGATION))) == 20

    def test_word_counts_cannot_see_order(self, models, home):
        found = contrast.measure(models, home, contrast.WORD_ORDER, "A dog bit a man.", "A man bit a dog.")
        np.testing.assert_allclose(found.by_scorer[contrast.TF_IDF].contrast, 1, atol=1e-6)
        assert found.by_scorer[contrast.TF_IDF].told_apart == 0
        assert found.own[contrast.TF_IDF] == pytest.approx(1, abs=1e-6)
        assert found.own[contrast.BI] < 1

    def test_scores_are_those_of_the_models(self, models, home):
        found = contrast.measure(models, home, contrast.NEGATION, "It is hot.", "It is not hot.")
        item = contrast.items(contrast.NEGATION)[3]
        u, v = models.encoder(DEFAULT_MODEL).encode([item.sentence, item.contrast])
        assert found.by_scorer[contrast.BI].contrast[3] == pytest.approx(float(u @ v), abs=0.01)
        assert found.by_scorer[contrast.BI].unrelated.mean() < 0.3 < found.by_scorer[contrast.BI].paraphrase.mean()

    def test_the_counts_are_of_items(self):
        scores = contrast.Scores(np.array([0.9, 0.4]), np.array([0.8, 0.5]), np.array([0.1, 0.6]))
        assert (scores.told_apart, scores.above_unrelated) == (1, 1)

    def test_an_empty_sentence_is_refused(self, models, home):
        with pytest.raises(InputError, match="the second sentence is empty"):
            contrast.measure(models, home, contrast.NEGATION, "A dog.", " ")


@pytest.fixture(scope="module")
def from_crowded(models, home):
    return crowding.measure(models, home, "random")


class TestCrowding:
    def test_a_low_temperature_leaves_crowded_vectors_crowded_and_a_higher_one_spreads_them(self, from_crowded):
        means = {each.temperature: float(each.random.mean()) for each in from_crowded.after}
        assert from_crowded.before.random.mean() > 0.9
        assert means[0.01] > means[0.02] > means[0.05]
        assert means[0.01] > 0.5 and means[0.1] < 0.2

    def test_every_temperature_learns(self, from_crowded):
        for each in from_crowded.after:
            gap = each.similar.mean() - each.random.mean()
            assert gap > from_crowded.before.similar.mean() - from_crowded.before.random.mean()

    def test_the_same_seed_gives_the_same_figures(self, models, home, from_crowded):
        crowding.measure.cache_clear()
        again = crowding.measure(models, home, "random")
        assert [each.rho for each in again.after] == pytest.approx([each.rho for each in from_crowded.after])


class TestWhitening:
    def test_whitened_vectors_have_covariance_one(self):
        random = np.random.default_rng(0)
        vectors = random.normal(size=(200, 12)) @ random.normal(size=(12, 12)) + 5
        kernel, mean = whitening.whitening(vectors)
        white = (vectors - mean) @ kernel
        np.testing.assert_allclose(np.cov(white.T), np.eye(12), atol=1e-8)
        np.testing.assert_allclose(white.mean(axis=0), 0, atol=1e-8)

    def test_directions_without_variance_are_left_out(self):
        vectors = np.random.default_rng(0).normal(size=(30, 4))
        kernel, _ = whitening.whitening(np.hstack([vectors, vectors[:, :1]]))
        assert kernel.shape == (5, 4)

    def test_it_removes_the_cone_of_random_weights(self, models, home):
        found = whitening.measure(models, home, "random", 256)
        assert found.before.random_cosine > 0.9 and abs(found.after.random_cosine) < 0.05
        assert found.after.effective_rank > found.before.effective_rank
        assert found.after.dimensions == 256
        assert found.rho_by_dimension[256] == found.after.rho

    def test_no_more_dimensions_are_kept_than_there_are(self, models, home):
        found = whitening.measure(models, home, "random cls", 10_000)
        assert found.after.dimensions <= 384


class TestLayers:
    def test_the_last_layer_is_what_the_model_encodes_with(self, models, home):
        encoder = models.encoder(DEFAULT_MODEL)
        sentences = ["A dog.", "A much longer sentence about a dog.", "A dog."]
        found = layers.layer_vectors(encoder, sentences)
        for pooling, vectors in found.items():
            assert vectors.shape == (7, 3, 384)
            direct = models.encoder(DEFAULT_MODEL, pooling).encode(sentences, normalize=False)
            np.testing.assert_allclose(vectors[-1], direct, atol=0.06)  # bfloat16 against float32
            np.testing.assert_allclose(vectors[:, 0], vectors[:, 2], atol=1e-5)  # whatever the batch

    def test_cls_is_the_same_for_all_sentences_before_the_first_layer(self, models, home):
        found = layers.measure(models, home, DEFAULT_MODEL, 100)
        assert math.isnan(found.by_pooling["cls"][0])
        assert found.best("cls") > 0
        assert len(found.by_pooling["mean"]) == 7

    def test_the_model_of_a_class_is_measured(self, models, home):
        found = layers.measure(models, home, "scratch:2x64", 100, Setup("scratch:2x64", seed=3))
        assert found.model == "scratch:2x64" and len(found.by_pooling["max"]) == 3


class TestSamples:
    def test_seed_zero_takes_equal_distances_and_another_draws(self):
        assert sample.sample_rows(11, 3, 0).tolist() == [0, 5, 10]
        drawn = sample.sample_rows(1_000, 50, 7)
        assert len(set(drawn.tolist())) == 50 and (np.diff(drawn) > 0).all()
        assert drawn.tolist() == sample.sample_rows(1_000, 50, 7).tolist() != sample.sample_rows(1_000, 50, 8).tolist()
        assert sample.sample_rows(4, 10, 7).tolist() == [0, 1, 2, 3]

    def test_data_without_gold_scores_is_refused(self, home, tmp_path):
        file = tmp_path / "labels.csv"
        file.write_text("sentence1,sentence2,label\na b,c d,yes\ne f,g h,no\n")
        with pytest.raises(InputError, match="the lessons need pairs with gold scores"):
            sample.gold_sample(home, 10, Setup(data=str(file)))
