"""`learn/lessons/`, the claims of the lessons, measured with the real model and the real benchmark."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from depth import PROFILE

from sbert_app.pages.learn import lessons as package
from sbert_app.pages.learn import samples
from sbert_app.pages.learn.lesson import Context, Setup, lesson_number, lessons
from sbert_app.pages.learn.lessons import (
    collapse,
    cost,
    dimensions,
    heads,
    hubs,
    layers,
    limit,
    negation,
    orders,
    pooled_pair,
    prompts,
    rerank,
    temperature,
    whitening,
    without_tuning,
)
from sbert_app.services.background.watch import Watch
from sbert_app.services.experiments.ablations import ABLATIONS, precomputed_tables
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.runs.record import PRESETS
from sbert_app.services.runs.store import RunStore
from training.catalogue import DEFAULT_MODEL
from training.errors import InputError
from training.models.encoder import Encoder


@pytest.fixture(scope="module", autouse=True)
def few_pairs() -> Iterator[None]:
    """The gate measures on fewer pairs, some of which are encoded once for several lessons."""
    if PROFILE != "gate":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        for lesson, pairs in ((whitening, 200), (dimensions, 200), (prompts, 40)):
            patch.setattr(lesson, "PAIRS", pairs)
        patch.setattr(prompts, "PROMPTS", ("", "query: ", prompts.NONSENSE))
        patch.setattr(temperature, "TRAIN_PAIRS", 256)
        yield


@pytest.fixture(scope="module")
def context(home: Path) -> Context:
    return Context(ModelCache(home), RunStore(home))


@pytest.fixture
def models(context: Context) -> ModelCache:
    return context.models


def test_each_lesson_has_a_module_a_question_and_a_paper():
    assert [lesson.number for lesson in lessons()] == list(range(1, len(lessons()) + 1))
    folder = Path(package.__path__[0])
    assert sorted(lesson.key for lesson in lessons()) == sorted(
        file.stem for file in folder.glob("[!_]*.py")
    )
    for lesson in lessons():
        assert lesson.question.rstrip().endswith("?")
        assert lesson.paper
        assert any(source in lesson.section for source in ("Table", "section", "arXiv"))
        assert lesson.href.startswith("./")  # also behind a root path
    assert lessons()[2].href.removeprefix("./ablation?preset=").partition("&")[0] in ABLATIONS
    assert lessons()[3].href.removeprefix("./train?preset=") in PRESETS


def test_a_link_to_no_lesson_opens_the_first():
    for text in ("0", "four", None, str(len(lessons()) + 1)):
        assert lesson_number(text) == 1
    assert [lesson_number(str(lesson.number)) for lesson in lessons()] == [
        lesson.number for lesson in lessons()
    ]


def test_the_encoding_of_a_sample_is_reported_and_shared_by_all_measurements(context):
    texts: set[str | None] = set()
    fractions: list[float] = []

    def report(done: float, text: str | None = None, total: float = 1.0, /) -> None:
        texts.add(text)
        fractions.append(done / total)

    watched = replace(context, watch=Watch(report))
    sample = samples.encode_sample(watched, "scratch:1x32", 40)
    assert texts == {"Encoding 80 sentences with scratch:1x32"}
    assert fractions == [0, 0.8, 1]
    assert samples.encode_sample(context, "scratch:1x32", 40) is sample


def test_1_tuned_for_sentences_beats_everything_that_was_not(context):
    result = without_tuning.measure(context, "scratch:2x64", 100)
    rho = {row.label: row.rho for row in result.rows}
    tuned = f"{DEFAULT_MODEL}: mean"
    assert max(rho, key=rho.get) == tuned
    assert rho[tuned] > rho["random weights: CLS"] > 0
    # The last bar has the accent colour, and another model stands beside it.
    assert list(rho)[-4:] == [
        "scratch:2x64: word vectors",
        "scratch:2x64: CLS",
        "scratch:2x64: mean",
        tuned,
    ]
    assert result.timed.seconds > 0


def test_2_cells_add_up_and_cls_leaves_words_out_instead(context):
    found = pooled_pair.measure(
        context, "A man plays the guitar.", "Someone plays a guitar.", "max"
    )
    assert found.comparison.attribution.matrix.sum() == pytest.approx(
        found.comparison.cosine, abs=1e-4
    )
    word_a, word_b, share = found.strongest
    assert share == found.comparison.attribution.matrix.max()
    assert {word_a, word_b} == {"guitar"}
    cls = pooled_pair.measure(context, "A man plays.", "Someone plays.", "cls")
    assert cls.strongest is None
    assert len(cls.left_out) == len(["A", "man", "plays", ".", "Someone", "plays", "."])


def test_2_says_why_mean_beats_cls_by_the_figures_of_trained_models():
    trained = pooled_pair.trained_with(precomputed_tables("pooling")[pooled_pair.RAW_BASE])
    assert (
        trained["cls"].before < trained["max"].before
        and trained["cls"].after < trained["mean"].after
    )
    assert "CLS learns more, but from further back" in pooled_pair.compare_trained(trained)
    reversed_order = {"mean": trained["cls"], "cls": trained["mean"]}
    assert "no worse than mean" in pooled_pair.compare_trained(reversed_order)
    far_behind = trained | {"cls": pooled_pair.TrainedRho(before=30.0, after=31.0)}
    mean = trained["mean"].after
    assert pooled_pair.compare_trained(far_behind).endswith(
        f": CLS ends at 31.0, behind mean at {mean:.1f}."
    )


@pytest.mark.slow
def test_3_a_head_on_u_and_v_alone_only_memorises(context):
    found = heads.measure(context, 300)
    heads_of = {row.concatenation: row for row in found.rows}
    assert list(heads_of) == list(ABLATIONS["concat"].variants)
    assert heads_of["uv"].train_accuracy > 0.9
    assert heads_of["uv"].test_accuracy < found.chance + 0.1
    for name, row in heads_of.items():
        if name != "uv":
            assert row.test_accuracy > found.chance + 0.1, name


def test_4_a_pull_moves_the_cosines_but_hardly_the_order(context):
    free, pulled = (collapse.measure(context, "trained", pull) for pull in (0, 0.9))
    assert free.random_cosine < 0.1 and not free.collapsed
    assert pulled.random_cosine > 0.98 and pulled.collapsed
    assert abs(free.rho - pulled.rho) < 1.5
    assert free.uniformity < -3 < -0.2 < pulled.uniformity
    assert pulled.effective_rank < free.effective_rank / 3
    assert (
        (pulled.similar.mean() - pulled.unrelated.mean())
        < 0.02
        < (free.similar.mean() - free.unrelated.mean())
    )
    assert collapse.measure(context, "random", 0).collapsed


def test_5_rates_are_measured_once_for_each_request(context, monkeypatch):
    monkeypatch.setattr(cost, "PAIRS", 4)
    monkeypatch.setattr(cost, "SENTENCES", 16)
    rates = cost.measure(context, 1.0)
    assert rates is cost.measure(context, 1.0)
    assert rates.sentences_per_second > 0 and rates.pairs_per_second > 0
    assert rates is not cost.measure(context, 2.0)  # asked again: measured again


def test_6_with_length_one_three_orders_are_the_same(context):
    query = "The orchestra played too loudly."
    free, normalised = (orders.measure(context, query, on) for on in (False, True))
    assert [normalised.agreement[name] for name in ("dot", "euclidean")] == pytest.approx([1, 1])
    assert 0.8 < normalised.agreement["manhattan"] < 1
    assert free.agreement["euclidean"] < 0.9
    for line in normalised.lines:
        assert line.ranks["cosine"] == line.ranks["dot"] == line.ranks["euclidean"]
    assert normalised.rho["dot"] == pytest.approx(normalised.rho["cosine"], abs=0.01)
    assert free.rho["dot"] < free.rho["cosine"] - 5


def test_6_ranks_count_from_one():
    assert orders.ranks(np.array([0.1, 0.9, 0.5, 0.5 + 1e-9])).tolist() == [4, 1, 2, 3]


@pytest.mark.slow
def test_7_the_cross_encoder_changes_the_order_and_is_the_better_judge(context):
    found = rerank.measure(context, "The stock market fell sharply.", 10)
    assert [candidate.rank for candidate in found.candidates] == list(range(1, 11))
    assert sorted(candidate.cross_rank for candidate in found.candidates) == list(range(1, 11))
    assert "higher" in found.candidates[0].sentence  # by cosine the topic wins …
    best = min(found.candidates, key=lambda candidate: candidate.cross_rank)
    assert "fell" in best.sentence  # … by the cross-encoder the direction
    cosines = [candidate.cosine for candidate in found.candidates]
    assert cosines == sorted(cosines, reverse=True)
    bi, cross = rerank.quality(context)
    assert cross > bi > 80


def test_word_counts_cannot_see_word_order(context, models):
    found = negation.measure(context, negation.WORD_ORDER, "A dog bit a man.", "A man bit a dog.")
    np.testing.assert_allclose(found.by_scorer[negation.TF_IDF].contrast, 1, atol=1e-6)
    assert found.by_scorer[negation.TF_IDF].told_apart == 0
    assert found.own[negation.TF_IDF] == pytest.approx(1, abs=1e-6)
    assert found.own[negation.BI] < 1
    item = negation.items(negation.WORD_ORDER)[3]
    u, v = models.get(DEFAULT_MODEL, Encoder).encode([item.sentence, item.contrast])
    assert found.by_scorer[negation.BI].contrast[3] == pytest.approx(float(u @ v), abs=0.01)
    assert (
        found.by_scorer[negation.BI].unrelated.mean()
        < 0.3
        < found.by_scorer[negation.BI].paraphrase.mean()
    )


def test_pairs_that_are_told_apart_are_counted():
    scores = negation.Scores(np.array([0.9, 0.4]), np.array([0.8, 0.5]), np.array([0.1, 0.6]))
    assert (scores.told_apart, scores.above_unrelated) == (1, 1)


def test_an_empty_sentence_of_ones_own_is_named(context):
    with pytest.raises(InputError, match="the second sentence is empty"):
        negation.measure(context, negation.NEGATION, "A dog.", " ")


@pytest.mark.slow
def test_a_higher_temperature_spreads_crowded_vectors_and_every_one_learns(context):
    result = temperature.measure(context, "random")
    means = {training.temperature: float(training.random.mean()) for training in result.after}
    assert result.before.random.mean() > 0.9
    assert means[0.01] > means[0.02] > means[0.05]
    assert means[0.01] > 0.5 and means[0.1] < 0.2
    gap = result.before.similar.mean() - result.before.random.mean()
    assert all(training.similar.mean() - training.random.mean() > gap for training in result.after)


class TestWhitening:
    def test_whitened_vectors_have_the_identity_as_covariance(self):
        random = np.random.default_rng(0)
        vectors = random.normal(size=(200, 12)) @ random.normal(size=(12, 12)) + 5
        kernel, mean = whitening.whitening(vectors)
        white = (vectors - mean) @ kernel
        np.testing.assert_allclose(np.cov(white.T), np.eye(12), atol=1e-8)
        np.testing.assert_allclose(white.mean(axis=0), 0, atol=1e-8)

    def test_whitening_leaves_out_directions_without_variance(self):
        vectors = np.random.default_rng(0).normal(size=(30, 4))
        kernel, _ = whitening.whitening(np.hstack([vectors, vectors[:, :1]]))
        assert kernel.shape == (5, 4)

    def test_whitening_removes_the_cone_of_random_weights(self, context):
        found = whitening.measure(context, "random", 256)
        assert found.before.random_cosine > 0.9 and abs(found.after.random_cosine) < 0.05
        assert found.after.effective_rank > found.before.effective_rank
        assert found.after.dimensions == 256
        assert found.rho_by_dimension[256] == found.after.rho

    def test_whitening_keeps_at_most_the_dimensions_of_the_model(self, context):
        found = whitening.measure(context, "random cls", 10_000)
        assert found.after.dimensions <= 384


class TestLayers:
    def test_the_last_layer_is_what_the_model_encodes_with(self, context, models):
        encoder = models.get(DEFAULT_MODEL, Encoder)
        sentences = ["A dog.", "A much longer sentence about a dog.", "A dog."]
        found = layers.layer_vectors(encoder, sentences)
        for pooling, vectors in found.items():
            assert vectors.shape == (7, 3, 384)
            direct = models.get(DEFAULT_MODEL, Encoder, pooling).encode(sentences, normalize=False)
            np.testing.assert_allclose(vectors[-1], direct, atol=0.06)  # bfloat16 against float32
            # Whatever the batch.
            np.testing.assert_allclose(vectors[:, 0], vectors[:, 2], atol=1e-5)

    def test_cls_is_the_same_for_all_sentences_before_the_first_layer(self, context):
        found = layers.measure(context, DEFAULT_MODEL, 100)
        assert math.isnan(found.by_pooling["cls"][0])
        assert found.best("cls") > 0
        assert len(found.by_pooling["mean"]) == 7
        found = layers.measure(
            replace(context, setup=Setup("scratch:2x64", seed=3)), "scratch:2x64", 100
        )
        assert found.model == "scratch:2x64" and len(found.by_pooling["max"]) == 3


def test_seed_zero_takes_equal_distances_and_another_seed_draws():
    assert samples.sample_rows(11, 3, 0).tolist() == [0, 5, 10]
    drawn, again, other = (samples.sample_rows(1_000, 50, seed).tolist() for seed in (7, 7, 8))
    assert len(set(drawn)) == 50 and drawn == sorted(drawn)
    assert drawn == again != other
    assert samples.sample_rows(4, 10, 7).tolist() == [0, 1, 2, 3]


def test_data_without_gold_scores_is_refused(context, tmp_path):
    file = tmp_path / "labels.csv"
    file.write_text("sentence1,sentence2,label\na b,c d,yes\ne f,g h,no\n")
    with pytest.raises(InputError, match="the lessons need pairs with gold scores"):
        samples.gold_sample(replace(context, setup=Setup(data=str(file))), 10)


def test_a_nonsense_prompt_raises_all_cosines(context):
    result = prompts.measure(context, "")
    plain = result.of("")
    nonsense = result.of(prompts.NONSENSE)
    assert nonsense.random > plain.random + 0.05
    assert nonsense.similar > plain.similar
    assert plain.change.points == 0
    assert len(result.rows) == len(prompts.PROMPTS)
    assert "“xyzzy:” raises the mean cosine of random pairs" in prompts.describe(result)


def test_a_hub_is_the_neighbour_of_many_and_each_sentence_of_k_on_average(context):
    star = np.vstack([np.ones(8), np.eye(8) + 0.2])  # the first is near to all others
    assert hubs.hubness(star, 1).counts[0] == 8
    result = hubs.measure(context, "examples", 10)
    assert result.before.counts.mean() == result.centred.counts.mean() == 10
    assert result.before.counts.max() > 20
    assert f"one {result.before.counts.max()} times" in hubs.describe(result)


def test_half_the_dimensions_cost_little_and_the_first_are_not_special(context):
    result = dimensions.measure(context, "trained")
    whole = result.rows[0]
    half = result.nearest(0.5)
    assert half.dimensions == whole.dimensions / 2
    assert whole.first - half.random.mean() < 0.1 * whole.first  # as in the paper
    assert half.random.min() - 1 < half.first < half.random.max() + 1
    assert whole.random == pytest.approx(whole.first)


def test_geometry_bounds_the_pairs_that_can_be_the_nearest():
    pairs = np.array([(a, b) for b in range(5) for a in range(b)])
    for dimension, most in ((2, 5), (3, 9), (4, 10)):
        solved = limit.solved(limit.optimise(pairs, dimension, 0), pairs) * len(pairs)
        assert 0.5 * most <= round(solved) <= most


def test_a_vector_for_each_token_answers_what_one_vector_cannot(context, monkeypatch):
    monkeypatch.setattr(limit, "STEPS", 2)
    result = limit.measure.__wrapped__(context, 9)
    one, counts, late = result.text.values()
    assert one < 0.8 < late
    assert counts == 1.0
    texts, queries = limit.sentences(12)
    assert len(texts) == 12 and len(set(queries)) == 66
