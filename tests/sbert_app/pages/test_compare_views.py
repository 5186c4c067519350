"""`pages/compare/answers.py`: scores with their meaning, words, tokens; and the snippets to copy."""

import json
import re
import shlex
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from markup import HOSTILE

from sbert_app.figures.compare import word_map
from sbert_app.figures.style import model_colours
from sbert_app.pages.compare import answers
from sbert_app.pages.compare.answers import Answer, Question
from sbert_app.pages.components.messages import attribution
from sbert_app.services.compare.comparison import Comparison, LeftOut, Side
from sbert_app.services.compare.examples import ExamplePair
from sbert_app.services.compare.token_score import score_tokens
from sbert_app.services.models.cache import ModelCache
from training.evaluation.attribution import Attribution, Word, WordAttribution
from training.evaluation.calibration import Calibration
from training.models.st_models import SparseEncoder, Term
from training.names import ModelName

CURVE = Calibration((0.0, 1.0), (0.0, 5.0), (0.0, 5.0), (0.0, 5.0))


def side(text: str, truncated: bool = False) -> Side:
    words = [Word(match[0], *match.span(), ()) for match in re.finditer(r"\w+|[^\w\s]", text)]
    return Side(text, ["[CLS]", *text.split(), "[SEP]"], words, truncated)


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


def answer(scored: Comparison | None = None, **changes: object) -> Answer:
    scored = scored or comparison()
    return Answer(
        Question(scored.a.text, scored.b.text, ModelName(scored.model)), scored, **changes
    )


def shown(
    scored: Comparison | None = None, curve: Calibration | None = CURVE, **changes: object
) -> str:
    """The answer to a pair, whose cosines under all poolings have one curve."""
    errors = changes.pop("failures", ())
    measuring = changes.pop("measuring", False)
    found = answer(scored, **changes)
    curves = [dict.fromkeys(each.by_pooling, curve) for each in found.comparisons]
    return answers.result(found, curves, measuring, errors)


class TestScores:
    def test_a_calibrated_model_shows_scores_on_the_gold_scale(self):
        card = {"spearman": {"test": 86.4}}
        scored = comparison(
            cross_encoder="minilm-stsb", cross_score=0.4, cross_ms=9.0, card=card, own_pooling="max"
        )
        html = shown(scored, example=judged(gold=4.6), failures=["No such model"])
        assert (
            "Cosine · all-MiniLM-L6-v2 · mean pooling" in html
            and "trained with max pooling, not" in html
        )
        assert "about 3.0 on people’s 0–5 scale" in html
        assert 'style="left:60.0%;' in html
        assert html.count('<section class="card') == 3
        assert "Spearman’s ρ 86.4 on STSb test" in html
        assert html.index("0.60") < html.index("No such model")
        assert "The model is wrong here: 3.0 of 5, and the annotators say 4.6." in html
        assert "such a pair should get 2.5 at most" in shown(example=judged(expected=(0, 2.5)))
        html = shown(curve=None)
        assert "not calibrated for this model" in html and "0–5 scale" not in html
        assert "calibrating" in shown(curve=None, measuring=True)

    def test_a_verdict_that_two_scores_share_is_said_once(self):
        scored = comparison(cross_encoder="minilm-stsb", cross_score=0.6)
        cards = shown(scored).partition('<section class="reason"')[0]
        assert cards.count("roughly the same") == 1
        assert "different, on the same topic" in shown(replace(scored, cross_score=0.2))

    @pytest.mark.parametrize(
        ("curve", "scored", "holds"),
        [
            ({}, {}, "STSb; on other text about 6 of 10"),
            ({}, {"pooling": "max", "cosine": 0.6}, "STSb; other text not measured"),
            ({}, {"model": "run:1"}, "STSb; other text not measured"),
            ({"fitted_on": "mine.csv"}, {}, "mine.csv"),
        ],
    )
    def test_a_score_says_how_sure_it_is_where_that_was_measured(self, curve, scored, holds):
        wide = Calibration((0.0, 0.9), (0.0, 4.5), (0.0, 3.6), (1.0, 5.0), **curve)
        said = f"People scored 8 of 10 such pairs between 2.4 and 3.7 ({holds})."
        assert said in shown(comparison(**scored), wide)

    def test_a_range_of_one_score_is_not_said(self):
        assert "People scored" not in shown()

    def test_a_model_has_its_colour_as_first_and_as_second(self):
        other = comparison(model="all-mpnet-base-v2")
        for first, second in ((comparison(), other), (other, comparison())):
            asked = Question(
                "A dog barks.", "A cat sleeps.", ModelName(first.model), second=second.model
            )
            html = answers.result(
                Answer(asked, first, second), [dict.fromkeys(first.by_pooling, CURVE)] * 2
            )
            cards = dict(
                re.findall(r'<section class="card mark-(\w+)"><h2>.*?Cosine · ([\w-]+)', html)
            )
            assert {model: colour for colour, model in cards.items()} == {
                "all-MiniLM-L6-v2": "blue",
                "all-mpnet-base-v2": model_colours(["all-mpnet-base-v2"])[0],
            }
        assert model_colours(["all-MiniLM-L6-v2"] * 2)[1] != "blue", (
            "two poolings of one model can be told apart"
        )

    def test_a_cut_sentence_another_language_and_another_pooling_are_said(self):
        long = replace(side("word " * 579, truncated=True), unread=340)
        html = shown(comparison(b=long, cross_encoder="c", cross_score=0.4, cross_is_cut=True))
        cards = html.split('<section class="card')
        assert "The model reads only the first 239 words of the second sentence." in cards[1]
        assert cards[2].count("as far as it was read") == 1
        assert "Only the beginnings were compared" in cards[2] and "first sentence" not in "".join(
            cards[1:]
        )
        chinese = replace(side("今天天气很好我们去公园。 " * 60, truncated=True), unread=39)
        assert "The model reads only the beginning of the first sentence." in shown(
            comparison(a=chinese), None
        )
        german = replace(side("Ein Hund bellt."), language="German")
        assert "The first sentence looks like German" in shown(comparison(a=german))
        both = shown(comparison(a=german, b=german))
        assert both.count("German") == both.count("Both sentences look like German") == 1

    def test_a_pair_that_the_model_cannot_read_has_no_verdict(self):
        blind = replace(side("🍎"), unknown=("🍎",))
        scored = comparison(
            a=blind,
            is_blind=True,
            cross_encoder="minilm-stsb",
            cross_score=0.95,
            cross_ms=9.0,
            cross_is_blind=True,
        )
        html = shown(scored)
        assert (
            "all-MiniLM-L6-v2 does not know 🍎: it reads each as the same unknown token, [UNK]."
            in html
        )
        assert html.count("says nothing about this pair") == 1
        assert "the same meaning" not in html and 'class="axis"' not in html
        assert "Why?" not in html and "under each pooling" not in html


class TestReason:
    CHANGES = (
        LeftOut("a", "dog", -0.3, 0.1),
        LeftOut("a", ".", 0.4, 0.4),
        LeftOut("b", "cat", 0.15, -0.2),
        LeftOut("b", "sleeps", -0.01, 0.0),
    )

    def test_the_sentence_is_told_from_the_table_and_marks_stand_for_nothing(self):
        found = answers.reason(
            answer(comparison(cross_encoder="c", cross_score=0.5), changes=self.CHANGES)
        )
        assert [row.word for row in found.rows] == ["dog", "cat", "sleeps"], (
            "what changes the cosine most comes first"
        )
        dog, cat, _ = found.rows
        assert (dog.cosine, cat.cosine, dog.cross) == pytest.approx((0.3, 0.75, 0.6))
        assert found.sentence == (
            "“dog” raises the cosine most: without it 0.30. “cat” lowers it most: without it 0.75."
        )
        assert [row.decides for row in found.rows] == [True, False, False]
        assert [row.decides_cross for row in found.rows] == [False, True, False]

    def test_a_cosine_below_zero_has_a_true_minus_sign(self):
        found = answers.reason(answer(changes=[LeftOut("a", "dog", -0.64, None)]))
        assert found.sentence.endswith("without it −0.04.")

    def test_each_row_has_both_scores_and_their_changes(self):
        html = shown(comparison(cross_encoder="c", cross_score=0.5), changes=self.CHANGES)
        rows = re.findall(
            r"<tr( class=.decides.)?><th scope=.row.>(\w+) <small>(\w+)</small></th>", html
        )
        assert [(word, sentence, bool(mark)) for mark, word, sentence in rows] == [
            ("dog", "first", True),
            ("cat", "second", False),
            ("sleeps", "second", False),
        ]
        assert "0.30 <small>−0.30</small>" in html and "0.60 <small>+0.10</small>" in html
        without_cross = shown(
            changes=[change._replace(cross_change=None) for change in self.CHANGES]
        )
        assert (
            "cross-encoder"
            not in without_cross.partition('<section class="reason"')[2].partition("</section>")[0]
        )

    def test_a_word_that_both_sentences_have_is_told_apart(self):
        found = answers.reason(
            answer(changes=[LeftOut("a", "dog", -0.1, None), LeftOut("b", "dog", -0.3, None)])
        )
        assert (
            found.sentence
            == "“dog” in the second sentence raises the cosine most: without it 0.30."
        )

    def test_where_no_word_decides_none_is_marked(self):
        found = answers.reason(
            answer(changes=[LeftOut("a", "dog", -0.004, None), LeftOut("b", "cat", 0.013, None)])
        )
        assert (
            found.sentence
            == "No single word decides: without any one of them the cosine changes by at most 0.01."
        )
        assert not any(row.decides for row in found.rows)

    def test_the_reason_for_a_short_pair_needs_no_click(self):
        assert "Leaving out each word …" in shown()
        assert shown().count('<td class="number">…</td>') == 6
        long = comparison(a=side("word " * 40))
        assert answers.reason(answer(long)) is None and "Why?" not in shown(long)
        assert answers.reason(answer(long, changes=self.CHANGES)).rows
        assert not answers.is_automatic(answer(comparison(sent_to="example.org")))

    def test_many_words_are_in_a_fold_but_for_those_that_the_sentence_names(self):
        changes = [LeftOut("a", f"word{number}", -0.1, None) for number in range(8)]
        html = shown(changes=[*changes, LeftOut("b", "not", 0.05, None)])
        assert (
            html.index("without it 0.65")
            < html.index(">not <")
            < html.index("<summary>3 more words</summary>")
        )


def test_the_map_is_said_to_be_how_the_pooling_adds_up():
    exact = Attribution(
        ["[CLS]", "dog"], ["[CLS]", "cat"], np.array([[0.1, 0.0], [-0.02, 0.52]]), 0.6
    )
    html = shown(comparison(attribution=exact))
    assert (
        "Word by word: how mean pooling adds up" in html
        and "all cells sum to the cosine, 0.6000." in html
    )
    assert 'style="background:rgba(0,114,178,0.63)">0.520</td>' in html
    assert "Word by word" not in shown(comparison(pooling="cls", attribution=None))


def test_each_word_has_the_colour_of_what_the_score_loses_without_it():
    html = attribution(
        WordAttribution(["The", "dog"], [HOSTILE], np.array([0.0, 0.4]), np.array([-0.1]), 0.632)
    )
    assert "Each word is left out in turn" in html
    assert 'style="background:rgba(0,114,178,0.63)" title="+0.400">dog</span>' in html
    assert 'style="background:rgba(213,94,0,0.22)" title="−0.100">' in html
    assert "<script" not in html


def test_a_model_that_compares_tokens_is_a_third_score_with_its_own_map(home):
    asked = Question(
        "a man plays", "the guitar", ModelName("scratch:1x32"), second="maxsim:scratch:1x32"
    )
    answer = answers.compute(ModelCache(home), asked, None)
    assert answer.second is None and not answer.errors
    found = answer.tokens
    assert [row[:2] for row in found.rows][:3] == [
        ("first", "a"),
        ("first", "man"),
        ("first", "plays"),
    ]
    assert sum(float(row[-1]) for row in found.rows) == pytest.approx(found.score, abs=1e-3)
    html = answers.result(answer, [dict.fromkeys(answer.comparison.by_pooling)])
    assert "Late interaction · MaxSim of scratch:1x32" in html and f"{found.score:.2f}" in html
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


@pytest.mark.parametrize(
    ("cross", "second"), [("minilm-stsb?depth=3", ""), ("", "scratch:1x32?dim=few")]
)
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
    exact = Attribution([HOSTILE], [HOSTILE], np.array([[0.6]]), 0.6)
    change = LeftOut("a", HOSTILE, -0.3, None)
    html = shown(
        replace(hostile, attribution=exact),
        example=judged(1.0),
        changes=[change],
        failures=[HOSTILE],
    )
    assert "<script" not in html
    assert html.count("&lt;script&gt;") > 10


class TestSnippets:
    def test_a_link_holds_every_input_unless_no_address_could(self):
        link = answers.link("http://host/", Question("One & two", "drei", ModelName("m"), "max"))
        assert link.startswith("http://host/?")
        assert parse_qs(urlsplit(link).query) == {
            "a": ["One & two"],
            "b": ["drei"],
            "model": ["m"],
            "pooling": ["max"],
        }
        assert (
            answers.link("http://host/", Question("word " * 2_000, "x", ModelName("m")))
            == "These sentences are too long for a link."
        )

    def test_python_and_curl_quote_the_sentences(self):
        code = answers.as_python(Question('say "hi"', "it's", ModelName("m"), "mean"))
        compile(code, "snippet", "exec")
        assert "CrossEncoder" not in code
        asked = Question("a", "b", ModelName("m"), cross="minilm-stsb")
        assert "CrossEncoder('minilm-stsb')" in answers.as_python(asked)
        asked = Question("it's", "b", ModelName("m"), "max")
        arguments = shlex.split(answers.as_curl("http://host", asked).replace("\\\n", ""))
        sent = {
            "sentence_a": "it's",
            "sentence_b": "b",
            "model": "m",
            "pooling": "max",
            "cross_encoder": "none",
        }
        assert json.loads(arguments[-1]) == sent


def test_the_word_map_of_a_text_of_several_sentences_is_summed_by_sentence():
    words = ["[CLS]", *(["Rain", "falls", *["on"] * 12, "."] * 3), "[SEP]"]
    exact = Attribution(words, ["a", "b"], np.full((len(words), 2), 0.01), 0.94)
    figure = word_map(exact)
    assert np.allclose(figure.data[0].z, [[0.16, 0.16], [0.15, 0.15], [0.16, 0.16]])
    assert figure.layout.yaxis.ticktext[1] == "Rain falls on o…"
    assert "the cosine, 0.9400. Longer texts are summed by sentence" in attribution(exact)
    assert "summed" not in attribution(Attribution(["a"], ["b"], np.array([[0.5]]), 0.5))
