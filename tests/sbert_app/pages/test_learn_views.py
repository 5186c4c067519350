"""The HTML of the Learn page: prose keeps its markup, texts of models and users never become markup."""

from dataclasses import replace

import numpy as np
import pytest

from sbert_app.pages.learn import views
from sbert_app.services.compare.throughput import Throughput
from sbert_app.services.lessons.collapse import LessonVectors
from sbert_app.services.lessons.cost import Rates
from sbert_app.services.lessons.heads import Head, Heads
from sbert_app.services.lessons.orders import Line, Orders
from sbert_app.services.lessons.rerank import Candidate, Reranked
from sbert_app.services.lessons.sample import EncodedCorpus, EncodedSample
from sbert_app.services.lessons.text import lessons

HOSTILE = "<script>alert(1)</script>"
CORPUS = EncodedCorpus([HOSTILE, "A dog."], np.eye(2, dtype=np.float32), 1.0, "12:00:00")
RATES = Rates(Throughput(1_000, 100, 0.5), 2.0, "12:00:00")


def assert_escaped(html):
    assert "<script" not in html
    assert "&lt;script&gt;" in html


@pytest.mark.parametrize("lesson", lessons(), ids=lambda lesson: lesson.key)
def test_the_prose_of_a_lesson_keeps_its_markup(lesson):
    html = views.lesson_text(lesson, 7) + views.question(lesson)
    assert all(paragraph in html for paragraph in (*lesson.text, lesson.answer))
    assert f"Lesson {lesson.number} of 7" in html
    assert html.count("<details") == 1


def test_an_address_with_a_users_text_stays_one_attribute():
    html = views.page_link(lessons()[1], '/?a="><script>&b=2')
    assert html.startswith('<a class="page-link" href="/?a=&#34;&gt;&lt;script&gt;&amp;b=2">')


def test_sentences_and_names_are_escaped():
    line = Line(HOSTILE, 2.0, 0.5, {"cosine": 1, "dot": 2, "euclidean": 1, "manhattan": 1})
    figures = dict.fromkeys(line.ranks, 0.5)
    orders = Orders([line], figures, figures, (1.0, 2.0), CORPUS, 3.0)
    candidates = [Candidate(HOSTILE, 0.9, 0.1, 1, 2), Candidate("A dog.", 0.8, 0.7, 2, 1)]
    sample = EncodedSample(HOSTILE, np.ones(3), {}, 1.0, "12:00:00")
    vectors = LessonVectors(80.0, 0.95, 0.1, -0.1, 3.0, 384, np.ones(3), np.ones(3), sample)
    assert_escaped(views.orders(orders, normalised=False))
    assert_escaped(views.rerank(Reranked(candidates, CORPUS, 1.0, 2.0), (85.0, 88.0), 200))
    assert_escaped(views.collapse(vectors, 0.9, [(HOSTILE, HOSTILE)]))


def test_a_rank_that_differs_from_the_cosines_is_marked():
    line = Line("A dog.", 2.0, 0.5, {"cosine": 1, "dot": 2, "euclidean": 1, "manhattan": 1})
    figures = dict.fromkeys(line.ranks, 0.5)
    html = views.orders(Orders([line], figures, figures, (1.0, 2.0), CORPUS, 3.0), normalised=True)
    assert html.count('class="red"') == 1
    assert "All vectors have length 1" in html


class TestCost:
    def test_times_are_extrapolated_from_the_rates(self):
        html = views.cost(RATES, 1_000)
        assert "499,500" in html
        assert "1 h 23 min" in html  # 499,500 pairs at 100 a second
        assert "10,000: the paper’s case" in html

    def test_the_papers_case_comes_once(self):
        assert "512 sentences and 64 pairs" in views.cost(RATES, 10_000)
        assert "the paper’s case" not in views.cost(RATES, 10_000)

    def test_without_a_cross_encoder_its_rate_is_zero(self):
        rates = replace(RATES, throughput=Throughput(1_000, None, 0.5))
        assert "<b>0</b><span>pairs/s</span>" in views.cost(rates, 1_000)


def test_a_head_below_chance_is_explained_with_its_figures():
    rows = [Head("uv", seen=0.98, unseen=0.27), Head("diff", seen=0.9, unseen=0.6)]
    result = Heads(rows, chance=0.355, train_pairs=300, encode_seconds=1.0, train_seconds=1.0)
    labels = {"uv": "(u, v)", "diff": "(|u−v|)"}
    html = views.heads(result, labels, {"uv": 66.04, "diff": 69.78}, {"uv": 80.71, "diff": 86.25})
    assert "(u, v) is right on 98% of its training pairs and on 27% of new ones, fewer than the 36%" in html
    assert "(|u−v|) is right" not in html
    assert "The shipped runs span 80.71 (u, v) to 86.25 (|u−v|)." in html
