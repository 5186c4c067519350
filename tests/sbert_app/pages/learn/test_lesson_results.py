"""`learn/page.py` and `learn/lessons/`, the HTML: prose keeps its markup, texts of models and users are escaped."""

import numpy as np
import pytest
from markup import HOSTILE, assert_escaped

from sbert_app.pages.components.templates import macro, render
from sbert_app.pages.learn.lesson import Setup, lessons
from sbert_app.pages.learn.lessons import (
    collapse,
    cost,
    heads,
    layers,
    negation,
    orders,
    rerank,
    temperature,
    whitening,
)
from sbert_app.pages.learn.samples import EncodedCorpus, EncodedSample, GoldSample, Timed
from sbert_app.pages.learn.teacher import ClassLink

TIMED = Timed(2.0, "12:00:00")
PAIRS = GoldSample([], [], np.ones(200))
CORPUS = EncodedCorpus([HOSTILE, "A dog."], np.eye(2, dtype=np.float32), TIMED)
RATES = cost.Rates(1_000, 100, 0.5, "stsb:dev", TIMED)


def test_the_prose_of_a_lesson_keeps_its_markup():
    for lesson in lessons():
        html = render("learn/templates/lesson.html", lesson=lesson) + macro("learn/question")(
            lesson
        )
        assert all(paragraph in html for paragraph in (*lesson.text, lesson.answer))
        assert html.count("<details") == 1


def test_an_address_stays_one_attribute():
    html = macro("learn/page_link")('/?a="><script>&b=2', "Open")
    assert html.startswith('<a class="page-link" href="/?a=&#34;&gt;&lt;script&gt;&amp;b=2">')


def test_a_rank_that_differs_is_marked():
    line = orders.Line("A dog.", 2.0, {"cosine": 1, "dot": 2, "euclidean": 1, "manhattan": 1})
    figures = dict.fromkeys(line.ranks, 0.5)
    html = orders.describe(
        orders.Orders([line], figures, figures, (1.0, 2.0), CORPUS, TIMED), normalised=True
    )
    assert html.count('class="red"') == 1
    assert "All vectors have length 1" in html


def test_sentences_and_names_are_escaped():
    line = orders.Line(HOSTILE, 2.0, {"cosine": 1, "dot": 2, "euclidean": 1, "manhattan": 1})
    figures = dict.fromkeys(line.ranks, 0.5)
    found = orders.Orders([line], figures, figures, (1.0, 2.0), CORPUS, TIMED)
    candidates = [
        rerank.Candidate(HOSTILE, 0.9, 0.1, 1, 2),
        rerank.Candidate("A dog.", 0.8, 0.7, 2, 1),
    ]
    sample = EncodedSample(HOSTILE, PAIRS, {}, TIMED)
    vectors = collapse.LessonVectors(80.0, 0.95, -0.1, 3.0, 384, np.ones(3), np.ones(3), sample)
    assert_escaped(orders.describe(found, normalised=False))
    assert_escaped(rerank.describe(rerank.Reranked(candidates, CORPUS, TIMED, TIMED), (85.0, 88.0)))
    assert_escaped(collapse.describe(vectors, 0.9, [(HOSTILE, HOSTILE)]))


class TestCost:
    def test_times_are_extrapolated_from_the_rates_of_this_machine(self):
        html = cost.describe(RATES, 1_000)
        assert "499,500" in html
        assert "1 h 23 min" in html  # 499,500 pairs at 100 a second
        assert "10,000: the paper’s case" in html
        assert "512 sentences and 64 pairs" in cost.describe(RATES, 10_000)
        assert "the paper’s case" not in cost.describe(RATES, 10_000)


def test_a_head_below_chance_is_explained_with_its_figures():
    rows = [
        heads.Head("uv", train_accuracy=0.98, test_accuracy=0.27),
        heads.Head("diff", train_accuracy=0.9, test_accuracy=0.6),
    ]
    result = heads.Heads(rows, chance=0.355, train_pairs=300, encode_seconds=1.0, train_seconds=1.0)
    html = heads.describe(result, {"uv": 80.71, "diff": 86.25})
    assert (
        "(u, v) is right on 98% of its training pairs and on 27% of new ones, fewer than the 36%"
        in html
    )
    assert "(|u−v|) is right" not in html
    assert "The shipped runs span 80.71 (u, v) to 86.25 (|u−v|)." in html


class TestFindings:
    """Sentences made from figures, whichever way these fall."""

    @pytest.mark.parametrize(
        ("bi", "cross", "finding"),
        [
            (
                2,
                18,
                "The cross-encoder is better here: it puts the paraphrase above the negation in 18 of 20 cases, ",
            ),
            (12, 14, "The cross-encoder is hardly better here"),
            (
                9,
                3,
                "The cross-encoder is worse here: it puts the paraphrase above the negation in 3 of 20 cases",
            ),
        ],
    )
    def test_the_cross_encoder_is_judged_by_its_count(self, bi, cross, finding):
        def scores(told_apart):
            paraphrase = np.where(np.arange(20) < told_apart, 0.9, 0.5)
            return negation.Scores(paraphrase, np.full(20, 0.8), np.full(20, 0.1))

        by_scorer = {"TF-IDF": scores(0), "bi-encoder": scores(bi), "cross-encoder": scores(cross)}
        own = dict.fromkeys(by_scorer, 0.5)
        html = negation.describe(negation.Contrast(by_scorer, own, HOSTILE, TIMED), "negation")
        assert finding in html
        assert f"and above the paraphrase in {20 - bi}" in html
        assert ("Guessing would give half" in html) == (cross <= 11)
        assert_escaped(html)

    @staticmethod
    def trained(tau, mean, rho=60.0):
        return temperature.TrainedCosines(
            tau, rho, np.full(10, mean), np.full(4, min(1.0, mean + 0.2))
        )

    def crowding(self, means, rhos=(60.0, 60.0), before=50.0):
        after = [
            self.trained(tau, mean, rho)
            for tau, mean, rho in zip((0.01, 0.1), means, rhos, strict=True)
        ]
        result = temperature.Trainings(self.trained(None, 0.93, before), after, 512, PAIRS, TIMED)
        return temperature.describe(result, after[0])

    def test_the_effect_of_the_temperature_is_told_from_the_figures(self):
        assert "0.72 after τ = 0.01 and of 0.05 after τ = 0.1" in self.crowding((0.72, 0.05))
        assert "From this start the temperature hardly matters" in self.crowding((0.04, 0.02))
        assert "the order is about as good" in self.crowding((0.7, 0.1), (60.0, 61.0))
        assert "8.0 points lower" in self.crowding((0.7, 0.1), (55.0, 63.0))
        assert "nothing to teach" in self.crowding((0.7, 0.1), before=85.0)

    @pytest.mark.parametrize(
        ("after", "said"), [(75.0, "raises ρ by 20.0"), (50.0, "lowers ρ by 5.0"), (55.2, "leaves")]
    )
    def test_whitening_is_said_to_help_or_not(self, after, said):
        sample = EncodedSample(HOSTILE, PAIRS, {}, TIMED)
        spreads = (
            whitening.Spread(55.0, 0.93, 130.0, 384),
            whitening.Spread(after, 0.0, 250.0, 256),
        )
        html = whitening.describe(whitening.Whitened(*spreads, {256: after}, sample))
        assert f"Whitening to 256 dimensions {said}" in html
        assert_escaped(html)

    @pytest.mark.parametrize(
        ("rho", "first_last", "said"),
        [
            (
                [60.0, 66.0, 80.0],
                82.0,
                ("the last is the best single layer: 80.0", "raises ρ by 2.0"),
            ),
            (
                [60.0, 66.0, 46.0],
                46.1,
                ("layer 1 is the best single one: 66.0", "about where it was"),
            ),
            ([float("nan"), 54.0, 55.0], 50.0, ("within 1.0 points", "lowers ρ by 5.0")),
        ],
    )
    def test_layers_are_compared_by_their_figures(self, rho, first_last, said):
        by_pooling = dict.fromkeys(("mean", "max", "cls"), rho)
        result = layers.Layers(
            HOSTILE, by_pooling, dict.fromkeys(by_pooling, first_last), PAIRS, TIMED
        )
        html = layers.describe(result, "mean")
        assert all(part in html for part in said)
        assert ("–" in html) == np.isnan(rho).any()
        assert_escaped(html)


class TestSheet:
    def test_the_sheet_has_the_questions_of_the_class_without_the_answers(self):
        link = ClassLink(HOSTILE, Setup(seed=7), (4, 8))
        sheet = link.sheet(answers=False)
        answers = link.sheet(answers=True)
        for html in (sheet, answers):
            assert_escaped(html)
            assert (
                all(lessons()[n - 1].question in html for n in (4, 8))
                and lessons()[0].question not in html
            )
        assert lessons()[3].answer not in sheet and "seed 7" in sheet and "Name: __" in sheet
        assert (
            lessons()[3].answer in answers
            and lessons()[3].idea not in answers
            and "Name: __" not in answers
        )
        address = link.sheet_address(answers=True)
        assert address.startswith("learn/sheet?class=") and address.endswith(
            "&lessons=4,8&answers=1"
        )
