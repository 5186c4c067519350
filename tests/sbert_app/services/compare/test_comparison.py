"""Comparison: three poolings from one pass; leave-one-out; all pairs with measured times."""

import json

import numpy as np
import pytest

from sbert_app.services.compare.comparison import (
    compare,
    compare_all,
    compare_by_name,
    leave_one_out,
    leave_one_out_by_name,
)
from sbert_app.services.models.cache import ModelCache
from training.errors import InputError
from training.models.cross_encoder import CrossEncoder
from training.models.encoder import Encoder
from training.names import ModelName

A = "The medicine is safe for children."
B = "The medicine is not safe for <b>children</b>."


@pytest.fixture(scope="module")
def encoder():
    return Encoder.load("all-MiniLM-L6-v2", dtype="float32")


@pytest.fixture(scope="module")
def crosser():
    return CrossEncoder.load("minilm-stsb", dtype="float32")


def test_one_pass_gives_the_cosines_of_each_pooling_as_plain_json(encoder, crosser):
    found = compare(encoder, None, A, B)
    for pooling, cosine in found.by_pooling.items():
        u, v = encoder.with_pooling(pooling).encode([A, B])
        assert cosine == pytest.approx(float(u @ v), abs=1e-5)
    assert found.cosine == found.by_pooling["mean"]
    assert found.cross_score is None
    answer = json.loads(json.dumps(compare(encoder, crosser, A, B).to_json(), allow_nan=False))
    assert -1 <= answer["cosine"] <= 1
    assert 0 <= answer["cross_encoder"] <= 1
    assert np.sum(answer["matrix"]) == pytest.approx(answer["cosine"], abs=1e-3)
    assert len(answer["matrix"]) == len(answer["words_a"])


def test_under_cls_pooling_there_is_no_exact_map(encoder):
    found = compare(encoder.with_pooling("cls"), None, A, B)
    assert found.attribution is None
    assert found.to_json()["matrix"] is None
    assert "medicine" in found.to_json()["words_a"]


def test_a_sentence_that_is_truncated_is_marked(encoder):
    found = compare(encoder, None, "word " * 10_000, "word")
    assert found.a.truncated
    assert not found.b.truncated


def test_a_negation_lowers_both_scores_most(home):
    models = ModelCache(home)
    name = ModelName.parse("all-MiniLM-L6-v2")
    found = compare_by_name(
        models, "She never said that.", "He said that.", name, "", "minilm-stsb"
    )
    changes = leave_one_out_by_name(models, found)
    assert max(changes, key=lambda change: change.cosine_change).word == "never"
    assert max(changes, key=lambda change: change.cross_change).word == "never"
    long = compare_by_name(models, "word " * 100, "word " * 30, ModelName.parse("all-MiniLM-L6-v2"))
    assert len(leave_one_out_by_name(models, long)) == 120


def test_each_sentence_is_read_with_its_own_prompt_when_a_word_is_left_out(encoder):
    query = encoder.with_prompt("query: ")
    document = encoder.with_prompt("document: ")
    found = compare(query, None, "cats purr", "kittens", document)
    cats = leave_one_out(query, None, found, document)[0]
    without = compare(query, None, "purr", "kittens", document)
    assert cats.cosine_change == pytest.approx(without.cosine - found.cosine, abs=1e-4)


def test_the_pooling_of_a_name_counts_unless_another_is_chosen(home):
    models = ModelCache(home)
    name = ModelName.parse("all-MiniLM-L6-v2:max")
    typed, chosen = (compare_by_name(models, A, B, name, pooling) for pooling in ("", "cls"))
    assert (typed.model, typed.pooling, typed.own_pooling) == ("all-MiniLM-L6-v2", "max", "mean")
    assert (
        typed.cosine
        == compare_by_name(models, A, B, ModelName.parse("all-MiniLM-L6-v2"), "max").cosine
    )
    assert (chosen.pooling, chosen.cosine) == ("cls", typed.by_pooling["cls"])
    assert (models.own_pooling(name), models.own_pooling(str(name).removesuffix(":max"))) == (
        "max",
        "mean",
    )


def test_an_empty_sentence_is_named(encoder):
    for a, b, which in (("", "x", "first"), ("x", "  \n ", "second")):
        with pytest.raises(InputError, match=f"the {which} sentence is empty"):
            compare(encoder, None, a, b)


def test_odd_text_is_compared_like_any_other(encoder):
    for odd in ("\x00\x07 bell", "‮right to left", "a" * 5000, "\ud800"):
        comparison = compare(encoder, None, odd, "A plain sentence.")
        assert np.isfinite(comparison.cosine)
        leave_one_out(encoder, None, comparison)


def test_leaving_a_word_out_is_scoring_the_pair_without_it(encoder, crosser):
    found = compare(encoder, crosser, A, B)
    changes = leave_one_out(encoder, crosser, found)
    words = [change.word for change in changes if change.side == "a"]
    assert words == ["The", "medicine", "is", "safe", "for", "children", "."]
    medicine = next(
        change for change in changes if change.word == "medicine" and change.side == "a"
    )
    without = compare(encoder, crosser, "The is safe for children.", B)
    assert medicine.cosine_change == pytest.approx(without.cosine - found.cosine, abs=1e-4)
    assert medicine.cross_change == pytest.approx(without.cross_score - found.cross_score, abs=1e-3)


def test_all_pairs_are_ranked_and_timed(encoder, crosser):
    text = "A cat sleeps.\n\n  The stock market fell. \nA kitten is asleep.\n"
    found = compare_all(encoder, crosser, text)
    assert found.lines == ["A cat sleeps.", "The stock market fell.", "A kitten is asleep."]
    best = found.ranked()[0]
    assert best[2:] == ("A cat sleeps.", "A kitten is asleep.")
    assert len(found.ranked()) == 3
    assert np.allclose(found.cosine, found.cosine.T)
    assert np.allclose(np.diag(found.cosine), 1, atol=1e-5)
    assert found.cross.shape == (3, 3)
    assert found.encode_seconds > 0
    assert found.cross_seconds > 0


def test_many_lines_leave_out_the_cross_encoder_with_a_note(encoder, crosser):
    comparisons = compare_all(
        encoder, crosser, "\n".join(f"Sentence number {i}." for i in range(31))
    )
    assert comparisons.cross is None
    assert "465 passes" in comparisons.notes[0]


def test_too_many_or_too_few_lines_are_refused(encoder):
    with pytest.raises(InputError, match="got 501 lines with text"):
        compare_all(encoder, None, "x\n" * 501)
    for text in ("only one", "\n\n"):
        with pytest.raises(InputError, match="paste 2 to 500"):
            compare_all(encoder, None, text)


def test_words_that_the_model_does_not_know_are_named(encoder, crosser):
    found = compare(encoder, crosser, "🍎", "🚗 !")
    assert (found.a.unknown, found.b.unknown) == (("🍎",), ("🚗",))
    assert found.is_blind and found.cross_is_blind
    found = compare(encoder, crosser, "I like 🍎.", "I like 🚗.")
    assert found.is_blind and found.cross_is_blind, "it reads the same sentence twice"
    found = compare(encoder, crosser, "I like 🍎.", "I like 🍎.")
    assert not found.is_blind and not found.cross_is_blind
    found = compare(encoder, None, "I like 🍎.", A)
    assert found.a.unknown == ("🍎",) and found.b.unknown == ()
    assert not found.is_blind
    found = compare(encoder, crosser, "他喜欢苹果。", "他讨厌苹果。")
    assert 0 < len(found.a.unknown) < len(found.a.words), "most are unknown, not all"
    assert found.is_blind and found.cross_is_blind
