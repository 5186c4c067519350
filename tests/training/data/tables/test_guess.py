"""Columns of sentences and of judgements, guessed from their first rows."""

import pytest

from training.data.tables.guess import guess_sentences, guess_target, sentence_columns

QUESTIONS = [f"How do I change the name of account {n}?" for n in range(12)]
ANSWERS = [f"Where is the setting for the name in account {n}?" for n in range(12)]
CHINESE = [f"如何更改帐户名称第{n}号" for n in range(12)]
HINDI = [f"मैं खाते {n} का नाम कैसे बदलूँ" for n in range(12)]
SKUS = [f"SKU-{n:05}" for n in range(12)]
NAMES = ["Ann Lee", "Bo Diaz", "Cy Wong"] * 4
PRICES = [f"{n * 7.5:.2f}" for n in range(1, 13)]


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ({"frage_a": QUESTIONS, "frage_b": ANSWERS, "gleich": ["0", "1"] * 6}, ("frage_a", "frage_b")),
        ({"sku": SKUS, "title": QUESTIONS, "price": PRICES}, ("title",)),
        ({"文": CHINESE, "句": CHINESE[::-1]}, ("文", "句")),
        ({"x": HINDI}, ("x",)),
        ({"author": NAMES, "remark": [text * 5 for text in QUESTIONS]}, ("remark",)),
        ({"text_a": QUESTIONS, "text_b": ANSWERS, "remark": QUESTIONS}, ("text_a", "text_b")),
        ({"when": ["2026-11-21 00:00:00"] * 12, "url": ["https://a.example/b c"] * 12, "n": list(range(12))}, ()),
        ({"empty": [None] * 12, "blank": [" "] * 12}, ()),
        ({}, ()),
    ],
)
def test_sentences_are_letters_in_several_words_that_differ(rows, found):
    assert guess_sentences(rows) == found


def test_single_words_that_repeat_are_no_sentences():
    assert sentence_columns({"label": ["very similar", "not similar"] * 30, "one": ["word"] * 60}) == []


@pytest.mark.parametrize(
    ("rows", "of_pairs", "found"),
    [
        ({"gleich": ["0", "1"] * 6, "price": PRICES}, True, "gleich"),
        ({"same": [True, False] * 6}, True, "same"),
        ({"ok": ["Ja", "nein"] * 6, "rank": ["3", "5"] * 6}, True, "ok"),
        ({"kind": ["entailment", "neutral", "contradiction"] * 4}, True, "kind"),
        ({"no": [str(n) for n in range(1, 13)], "rank": ["3,5", "5", "1"] * 4}, True, "rank"),
        ({"cosine": [-0.2, 0.9, 0.4]}, True, "cosine"),
        ({"price": PRICES}, True, None),
        ({"first": ["1", "0"] * 6, "second": ["0", "1"] * 6}, True, None),
        ({"always": ["1"] * 12}, True, None),
        ({"topic": ["billing", "shipping", "returns"] * 4}, False, "topic"),
        ({"topic": ["billing", "shipping", "returns"] * 4}, True, None),
    ],
)
def test_judgements_are_labels_else_a_small_range_else_classes_of_single_sentences(rows, of_pairs, found):
    assert guess_target(rows, of_pairs) == found
