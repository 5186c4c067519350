"""What the Compare page shows of a pair: scores with their meaning, words, tokens; and the snippets to copy."""

import json
import shlex
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from markup import HOSTILE
from training.models.sparse import SparseEncoder, Term

from sbert_app.figures.compare import word_map
from sbert_app.pages.compare import answers
from sbert_app.pages.compare.answers import Question
from sbert_app.pages.components.messages import attribution
from sbert_app.pages.components.templates import macro
from sbert_app.services.compare.comparison import Comparison, LeftOut, Side
from sbert_app.services.compare.examples import ExamplePair
from sbert_app.services.compare.token_score import score_tokens
from sbert_app.services.models.cache import ModelCache
from training.evaluation.attribution import Attribution, WordAttribution
from training.evaluation.calibration import Calibration
from training.names import ModelName

CURVE = Calibration((0.0, 1.0), (0.0, 5.0), (0.0, 5.0), (0.0, 5.0))


def side(text: str, truncated: bool = False) -> Side:
    return Side(text, ["[CLS]", *text.split(), "[SEP]"], [], truncated)


def judged(gold: float | None = None, expected: tuple[float, float] | None = None) -> ExamplePair:
    return ExamplePair("", "A dog barks.", "A cat sleeps.", "", expected, gold)


def comparison(**changes: object) -> Comparison:
    values = {
        "model": "all-MiniLM-L6-v2",
        "pooling": "mean",
        "a": side("A dog barks."),
        "b": side("A cat sleeps."),
        "cosine": 0.6,
        "by_pooling": {"mean": 0.6, "max": 0.8, "cls": -0.1},
        "encoder_ms": 12.0,
        "attribution": None,
    }
    return Comparison(**(values | changes))


class TestScores:
    def test_scores_have_their_place_on_the_gold_scale_if_the_model_is_calibrated(self):
        card = {"spearman": {"test": 86.4}}
        scored = comparison(cross_encoder="minilm-stsb", cross_score=0.4, cross_ms=9.0, card=card, own_pooling="max")
        html = answers.result([scored], [CURVE], judged(gold=4.6), errors=["No such model"])
        assert "Cosine · all-MiniLM-L6-v2 · mean pooling" in html and "trained with max pooling, not" in html
        assert "about 3.0 on people’s 0–5 scale" in html
        assert 'style="left:60.0%;' in html
        assert html.count("<section") == 3
        assert "Spearman’s ρ 86.4 on STSb test" in html
        assert html.index("0.60") < html.index("No such model")
        assert "The model is wrong here: 3.0 of 5, and the annotators say 4.6." in html
        html = answers.result([comparison()], [CURVE], judged(expected=(0, 2.5)))
        assert "such a pair should get 2.5 at most" in html
        html = answers.result([comparison()], [None])
        assert "not calibrated for this model" in html and "0–5 scale" not in html
        assert "calibrating" in answers.result([comparison()], [None], measuring=True)

    def test_a_score_says_how_sure_it_is_and_what_it_was_fitted_on(self):
        html = answers.result([comparison()], [Calibration((0.0, 0.9), (0.0, 4.5), (0.0, 3.6), (1.0, 5.0))])
        assert "People gave 80% of such pairs of STSb train between 2.4 and 3.7 (8 of 10 on STSb, 6 of 10 on" in html
        assert "People gave" not in answers.result([comparison()], [CURVE])

    def test_a_cut_sentence_another_language_and_another_pooling_are_said(self):
        long = replace(side("word " * 579, truncated=True), unread=340)
        html = answers.result([comparison(b=long, cross_encoder="c", cross_score=0.4, cross_is_cut=True)], [CURVE])
        cards = html.split("<section")
        assert "The model reads only the first 239 words of the second sentence." in cards[1]
        assert "Only the beginnings were compared" in cards[2] and "first sentence" not in html
        chinese = replace(side("今天天气很好我们去公园。 " * 60, truncated=True), unread=39)
        assert "The model reads only the beginning of the first sentence." in answers.result(
            [comparison(a=chinese)], [None]
        )
        german = replace(side("Ein Hund bellt."), language="German")
        assert "The first sentence looks like German" in answers.result([comparison(a=german)], [CURVE])
        both = answers.result([comparison(a=german, b=german)], [CURVE])
        assert both.count("German") == both.count("Both sentences look like German") == 1

    def test_a_pair_that_the_model_cannot_read_has_no_verdict_and_no_scale(self):
        blind = replace(side("🍎"), unknown=("🍎",), is_unknown=True)
        scored = comparison(a=blind, cross_encoder="minilm-stsb", cross_score=0.95, cross_ms=9.0, cross_is_blind=True)
        html = answers.result([scored], [CURVE])
        assert "all-MiniLM-L6-v2 does not know 🍎: it reads each as the same unknown token, [UNK]." in html
        assert html.count("says nothing about this pair") == 2
        assert "the same meaning" not in html and 'class="axis"' not in html
        assert answers.poolings(scored, {"mean": CURVE, "max": None}) == ""

    def test_the_reason_is_told_from_the_word_map(self):
        matrix = np.array([[0.0, 0.0, 0.0], [0.0, 0.5, 0.1], [0.0, 0.1, -0.2]])
        exact = Attribution(["[CLS]", "dog", "runs"], ["[CLS]", "dog", "not"], matrix, 0.5)
        html = answers.result([comparison(attribution=exact)], [CURVE])
        assert "“dog” adds most to the cosine, 0.60 of 0.50; “not” takes 0.10 away." in html


class TestLeftOut:
    CHANGES = (LeftOut("a", "dog", 2, 5, -0.3, 0.1), LeftOut("b", "cat", 2, 5, 0.15, -0.2))

    def test_each_word_has_a_colour_and_a_row(self):
        html = answers.left_out(self.CHANGES, comparison())
        assert 'A <span style="background:rgba(0,114,178,0.63)" title="+0.300">dog</span> barks.' in html
        assert "rgba(213,94,0,0.36)" in html
        assert html.index("<td>dog</td>") < html.index("<td>cat</td>"), "what adds most comes first"
        assert "cross-encoder" in html
        html = answers.left_out([change._replace(cross_change=None) for change in self.CHANGES], comparison())
        assert "cross-encoder" not in html
        assert "no word to leave out" in answers.left_out([], comparison())


class TestAttribution:
    GRADIENTS = "integrated gradients, 64 steps, remainder 0.012"

    def test_each_word_has_what_it_adds_and_the_sums_stand_beside_the_cosine(self):
        added = np.array([0.0, 0.4]), np.array([-0.1])
        html = attribution(
            WordAttribution(["[CLS]", "dog"], ["cat"], *added, 0.632, self.GRADIENTS, (0.22, 0.73), (0.012, 0.002))
        )
        assert "<b>Integrated gradients, 64 steps, remainder 0.012.</b>" in html
        assert 'style="background:rgba(0,114,178,0.63)" title="+0.400">dog</span>' in html
        assert 'style="background:rgba(213,94,0,0.22)" title="−0.100">cat</span>' in html
        assert (
            "The first sentence: 0.220 with padding in place of its words, +0.400 from its words, together 0.620 of "
            "the cosine 0.632; remainder +0.012." in html
        )
        assert "<td>cat</td><td>second</td>" in html

    def test_occlusion_says_that_its_figures_do_not_sum(self):
        html = attribution(WordAttribution([HOSTILE], [], np.array([0.2]), np.array([]), 0.7))
        assert "<b>Occlusion.</b>" in html and "do not sum to the score" in html
        assert "of the cosine" not in html and "<script" not in html


def test_a_model_that_compares_tokens_is_a_third_score_with_its_own_map(home):
    asked = Question("a man plays", "the guitar", ModelName("scratch:1x32"), second="maxsim:scratch:1x32")
    answer = answers.compute(ModelCache(home), asked, None)
    assert answer.second is None and not answer.errors
    found = answer.tokens
    assert [row[:2] for row in found.rows][:3] == [("first", "a"), ("first", "man"), ("first", "plays")]
    assert sum(float(row[-1]) for row in found.rows) == pytest.approx(found.score, abs=1e-3)
    shown = answers.result([answer.comparison], [None], tokens=found)
    assert "Late interaction · MaxSim of scratch:1x32" in shown and f"{found.score:.2f}" in shown
    assert "<caption>Late interaction" in answers.token_map(found) and answers.token_map(None) == ""


def test_the_terms_of_a_sparse_encoder_are_its_map():
    terms = [Term("guitar", 1.5, 2.0, 3.0, True, False), Term("man", 1.0, 0.0, 0.0, True, False)]
    model = Mock(spec=SparseEncoder)
    model.with_settings.return_value = model
    model.terms.return_value = terms
    models = SimpleNamespace(get=lambda name, type_: model)
    found = score_tokens(models, ModelName("some/splade"), "a", "b")
    assert (found.score, found.rows) == (3.0, [("guitar", "1.50", "2.00 added", "+3.0000")])
    assert "of 2 in all" in found.what


@pytest.mark.parametrize(("cross", "second"), [("minilm-stsb?depth=3", ""), ("", "scratch:1x32?dim=few")])
def test_a_name_that_cannot_be_read_hides_no_cosine(home, cross, second):
    asked = Question.parse("A dog barks.", "A cat sleeps.", "scratch:1x32", "mean", cross, second)
    answer = answers.compute(ModelCache(home), asked, None)
    assert [str(name) for name in asked.models] == ["scratch:1x32"]
    assert -1 <= answer.comparison.cosine <= 1
    assert (answer.comparison.cross_score, answer.second) == (None, None)
    (said,) = answer.errors
    assert "is no setting of a model" in said or "must be a whole number" in said


def test_no_text_of_a_user_becomes_markup():
    hostile = comparison(a=side(HOSTILE), b=side(HOSTILE), model=HOSTILE)
    change = LeftOut("a", HOSTILE, 0, len(HOSTILE), -0.3, None)
    shown = [
        answers.result([hostile], [CURVE], judged(1.0), errors=[HOSTILE]),
        answers.left_out([change], hostile),
        macro("compare/tokens")(sides=[("First", hostile.a)]),
    ]
    assert not any("<script" in html for html in shown)
    assert all("&lt;script&gt;" in html for html in shown)


class TestSnippets:
    def test_a_link_holds_every_input_unless_no_address_could(self):
        link = answers.link("http://host/", Question("One & two", "drei", ModelName("m"), "max"))
        assert link.startswith("http://host/?")
        assert parse_qs(urlsplit(link).query) == {"a": ["One & two"], "b": ["drei"], "model": ["m"], "pooling": ["max"]}
        assert (
            answers.link("http://host/", Question("word " * 2_000, "x", ModelName("m")))
            == "These sentences are too long for a link."
        )

    def test_python_and_curl_quote_the_sentences(self):
        code = answers.as_python(Question('say "hi"', "it's", ModelName("m"), "mean"))
        compile(code, "snippet", "exec")
        assert "CrossEncoder" not in code
        asked = Question("a", "b", ModelName("m"), cross="minilm-stsb")
        assert "CrossEncoder.load('minilm-stsb')" in answers.as_python(asked)
        asked = Question("it's", "b", ModelName("m"), "max")
        arguments = shlex.split(answers.as_curl("http://host", asked).replace("\\\n", ""))
        sent = {"sentence_a": "it's", "sentence_b": "b", "model": "m", "pooling": "max", "cross_encoder": "none"}
        assert json.loads(arguments[-1]) == sent


def test_the_word_map_of_a_text_of_several_sentences_is_summed_by_sentence():
    words = ["[CLS]", *(["Rain", "falls", *["on"] * 12, "."] * 3), "[SEP]"]
    figure = word_map(words, ["a", "b"], np.full((len(words), 2), 0.01))
    assert np.allclose(figure.data[0].z, [[0.16, 0.16], [0.15, 0.15], [0.16, 0.16]])
    assert figure.layout.yaxis.ticktext[1] == "Rain falls on o…"
    exact = Attribution(words, ["a", "b"], np.full((len(words), 2), 0.01), 0.94)
    assert "orange), summed by the sentences of a long text. The cells sum to the cosine, 0.9400." in attribution(exact)
