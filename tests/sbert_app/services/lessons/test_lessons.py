"""The claims of the lessons, measured with the real model and the real benchmark."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbert_app.pages.learn.demos import DEMOS
from sbert_app.services.compare.throughput import Throughput
from sbert_app.services.experiments.ablations import ABLATIONS
from sbert_app.services.lessons import collapse, cost, heads, orders, pooled_pair, rerank, sample, without_tuning
from sbert_app.services.lessons.text import lesson_number, lessons
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.runs.presets import PRESETS
from training.errors import InputError
from training.registry import DEFAULT_MODEL


@pytest.fixture(scope="module")
def models(home: Path) -> ModelCache:
    return ModelCache(home)


# ------------------------------------------------------------ what they say


def test_there_are_twelve_lessons_each_with_a_demo_a_question_and_figures_from_a_paper():
    assert [lesson.number for lesson in lessons()] == list(range(1, 13))
    assert [lesson.key for lesson in lessons()] == list(DEMOS)
    for lesson in lessons():
        assert lesson.question.rstrip().endswith("?")
        assert len(lesson.answer) > 80
        assert lesson.paper
        assert any(source in lesson.section for source in ("Table", "section", "arXiv"))


def test_a_lesson_is_read_in_five_minutes():
    for lesson in lessons():
        words = " ".join([lesson.idea, *lesson.text, lesson.try_it, lesson.paper_note, lesson.question, lesson.answer])
        assert len(words.split()) < 5 * 110  # slow reading, and time to play


def test_links_lead_to_presets_that_exist():
    links = {lesson.number: lesson.href for lesson in lessons()}
    assert links[3].removeprefix("/ablation?preset=") in ABLATIONS
    assert links[4].removeprefix("/train?preset=") in PRESETS


def test_the_papers_figures_are_those_of_the_ablation_page():
    variants = ABLATIONS["pooling"].variants
    assert dict(lessons()[1].paper)["max"].endswith(f"{variants['max'].paper:.2f}")
    told = " ".join(figure for _, figure in lessons()[2].paper)
    assert all(f"{ABLATIONS['concat'].variants[name].paper:.2f}" in told for name in ("uv", "uv+diff"))


@pytest.mark.parametrize(
    ("asked", "number"), [("4", 4), ("1", 1), ("12", 12), ("13", 1), ("0", 1), ("four", 1), ("", 1), (None, 1)]
)
def test_a_link_to_no_lesson_opens_the_first(asked, number):
    assert lesson_number(asked) == number


# ------------------------------------------------------------ what they measure


def test_1_tuned_for_sentences_beats_everything_that_was_not(models, home):
    found = without_tuning.measure(models, home, DEFAULT_MODEL, 100)
    rho = {row.label: row.rho for row in found.rows}
    assert max(rho, key=rho.get) == f"{DEFAULT_MODEL}: mean"
    assert rho[f"{DEFAULT_MODEL}: mean"] > rho[f"{DEFAULT_MODEL}: CLS"] > rho["random weights: CLS"] > 0
    assert list(rho)[-1] == f"{DEFAULT_MODEL}: mean"  # the bar in the accent colour
    assert found.seconds > 0


def test_1_another_model_stands_beside_the_default(models, home):
    rows = without_tuning.measure(models, home, "scratch:2x64", 100).rows
    assert [row.label for row in rows][-4:] == [
        "scratch:2x64: word vectors",
        "scratch:2x64: CLS",
        "scratch:2x64: mean",
        f"{DEFAULT_MODEL}: mean",
    ]


def test_2_cells_add_up_and_cls_leaves_words_out_instead(models, home):
    found = pooled_pair.measure(models, home, "A man plays the guitar.", "Someone plays a guitar.", "max")
    assert found.comparison.attribution.matrix.sum() == pytest.approx(found.comparison.cosine, abs=1e-4)
    word_a, word_b, share = found.strongest
    assert share == found.comparison.attribution.matrix.max()
    assert {word_a, word_b} == {"guitar"}
    cls = pooled_pair.measure(models, home, "A man plays.", "Someone plays.", "cls")
    assert cls.strongest is None
    assert len(cls.left_out) == len(["A", "man", "plays", ".", "Someone", "plays", "."])


def test_2_the_poolings_of_the_sample_are_those_of_the_encoder(models, home):
    found = sample.encode_sample(models, home, DEFAULT_MODEL, 100)
    first = sample.gold_sample(home, 100).first
    for name, (u, _) in found.by_pooling.items():
        direct = models.encoder(DEFAULT_MODEL, name).encode(first, normalize=False)
        np.testing.assert_allclose(u, direct, atol=0.06)  # bfloat16, other batches


def test_3_a_head_on_u_and_v_alone_only_memorises(models, home):
    found = heads.measure(models, home, 300)
    heads_of = {row.concatenation: row for row in found.rows}
    assert list(heads_of) == list(ABLATIONS["concat"].variants)
    assert heads_of["uv"].seen > 0.9
    assert heads_of["uv"].unseen < found.chance + 0.1
    for name, row in heads_of.items():
        if name != "uv":
            assert row.unseen > found.chance + 0.1, name


def test_4_a_pull_moves_the_cosines_and_hardly_the_order(models, home):
    free, pulled = (collapse.measure(models, home, "trained", pull) for pull in (0, 0.9))
    assert free.random_cosine < 0.1 and not free.collapsed
    assert pulled.random_cosine > 0.98 and pulled.collapsed
    assert abs(free.rho - pulled.rho) < 1.5
    assert free.uniformity < -3 < -0.2 < pulled.uniformity
    assert pulled.effective_rank < free.effective_rank / 3
    assert (pulled.similar.mean() - pulled.unrelated.mean()) < 0.02 < (free.similar.mean() - free.unrelated.mean())


def test_4_random_weights_have_collapsed_without_a_pull(models, home):
    assert collapse.measure(models, home, "random", 0).collapsed


@given(st.floats(0, 0.99), st.integers(0, 1_000))
def test_4_pulled_vectors_have_length_one_and_never_part(pull, seed):
    vectors = np.random.default_rng(seed).normal(size=(6, 5)) + 1
    moved = collapse.pulled(vectors, pull)
    np.testing.assert_allclose(np.linalg.norm(moved, axis=1), 1)
    free = collapse.pulled(vectors, 0)
    assert (moved @ moved.T).sum() >= (free @ free.T).sum() - 1e-9


def test_5_rates_are_measured_once_for_each_request(models, home):
    found = cost.rates(models, home, 1.0)
    assert found is cost.rates(models, home, 1.0)
    assert found.throughput.sentences_per_second > 0 and found.throughput.pairs_per_second > 0
    assert found is not cost.rates(models, home, 2.0)  # asked again: measured again


def test_5_ten_times_the_sentences_cost_ten_times_and_a_hundred_times():
    throughput = Throughput(sentences_per_second=1_000, pairs_per_second=500, product_seconds=0.5)
    bi, cross = cost.both_seconds(throughput, 10_000)
    assert bi == pytest.approx(10_000 / 1_000 + 0.5)
    assert cross == pytest.approx(49_995_000 / 500)
    less_bi, less_cross = cost.both_seconds(throughput, 1_000)
    assert cross / less_cross == pytest.approx(100, rel=0.01)
    assert bi / less_bi == pytest.approx(10, rel=0.06)
    assert cost.pairs_of(10_000) == 49_995_000


def test_6_with_length_one_three_orders_are_the_same(models, home):
    query = "The orchestra played too loudly."
    free, normalised = (orders.measure(models, home, query, on) for on in (False, True))
    assert [normalised.agreement[name] for name in ("dot", "euclidean")] == pytest.approx([1, 1])
    assert 0.8 < normalised.agreement["manhattan"] < 1
    assert free.agreement["euclidean"] < 0.9
    for line in normalised.lines:
        assert line.ranks["cosine"] == line.ranks["dot"] == line.ranks["euclidean"]
    assert normalised.rho["dot"] == pytest.approx(normalised.rho["cosine"], abs=0.01)
    assert free.rho["dot"] < free.rho["cosine"] - 5


def test_6_ranks_count_from_one_and_ties_keep_their_place():
    assert orders.ranks(np.array([0.1, 0.9, 0.5, 0.5 + 1e-9])).tolist() == [4, 1, 2, 3]


def test_7_the_cross_encoder_changes_the_order_and_is_the_better_judge(models, home):
    found = rerank.measure(models, home, "The stock market fell sharply.", 10)
    assert [candidate.rank for candidate in found.candidates] == list(range(1, 11))
    assert sorted(candidate.cross_rank for candidate in found.candidates) == list(range(1, 11))
    assert "higher" in found.candidates[0].sentence  # by cosine the topic wins …
    best = min(found.candidates, key=lambda candidate: candidate.cross_rank)
    assert "fell" in best.sentence  # … by the cross-encoder the direction
    cosines = [candidate.cosine for candidate in found.candidates]
    assert cosines == sorted(cosines, reverse=True)
    bi, cross = rerank.quality(models, home)
    assert cross > bi > 80


@pytest.mark.parametrize("blank", ["", "  \n"])
def test_an_empty_query_is_refused(models, home, blank):
    with pytest.raises(InputError, match="the query is empty"):
        orders.measure(models, home, blank, True)
    with pytest.raises(InputError, match="the query is empty"):
        rerank.measure(models, home, blank, 10)
