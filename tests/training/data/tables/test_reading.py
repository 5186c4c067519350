"""What a table's columns are: by what the user says, by their names, by their cells; and what is asked."""

import pytest

from training.data.tables.reading import TableReading
from training.errors import InputError

QUESTIONS = [f"How do I change the name of account {n}?" for n in range(12)]
ANSWERS = [f"Where is the setting for the name in account {n}?" for n in range(12)]
CHINESE = [f"如何更改帐户名称第{n}号" for n in range(12)]
HINDI = [f"मैं खाते {n} का नाम कैसे बदलूँ" for n in range(12)]
SKUS = [f"SKU-{n:05}" for n in range(12)]
TOPICS = ["the old invoice", "late shipping", "a return"] * 4
PRICES = [f"{n * 7.5:.2f}" for n in range(1, 13)]
PAIR = {"sentence1": QUESTIONS, "sentence2": ANSWERS}


def read(rows, *requested):
    return TableReading.of("pairs.csv", rows, requested)


@pytest.mark.parametrize(
    ("rows", "sentences"),
    [
        (
            {"frage_a": QUESTIONS, "frage_b": ANSWERS, "gleich": ["0", "1"] * 6},
            ("frage_a", "frage_b"),
        ),
        (
            {"sentence_0": QUESTIONS, "sentence_1": ANSWERS, "label": PRICES},
            ("sentence_0", "sentence_1"),
        ),
        ({"text": QUESTIONS, "text_pair": ANSWERS}, ("text", "text_pair")),
        (
            {"Input.sentence1": QUESTIONS, "Input.sentence2": ANSWERS},
            ("Input.sentence1", "Input.sentence2"),
        ),
        ({"question": QUESTIONS, "paraphrase": ANSWERS}, ("question", "paraphrase")),
        ({"sku": SKUS, "title": QUESTIONS, "price": PRICES}, ("title",)),
        ({"文": CHINESE, "句": CHINESE[::-1]}, ("文", "句")),
        ({"x": HINDI}, ("x",)),
        (
            {
                "Ticket-Nr": SKUS,
                "channel": ["mail", "chat"] * 6,
                "topic": TOPICS,
                "Frage": QUESTIONS,
            },
            ("Frage",),
        ),
        ({"author": QUESTIONS, "remark": [text * 5 for text in QUESTIONS]}, ("remark",)),
        ({"text_a": QUESTIONS, "text_b": ANSWERS, "remark": QUESTIONS}, ("text_a", "text_b")),
        (
            {
                "when": ["2026-11-21 00:00:00"] * 12,
                "url": ["https://a.example/b c"] * 12,
                "n": list(range(12)),
            },
            (),
        ),
        ({"empty": [None] * 12, "blank": [" "] * 12}, ()),
        ({}, ()),
    ],
)
def test_sentences_are_found_by_column_names_or_by_their_cells(rows, sentences):
    assert read(rows).sentences == sentences


@pytest.mark.parametrize(
    ("more", "judgement"),
    [
        ({"gleich": ["0", "1"] * 6, "price": PRICES}, "gleich"),
        ({"same": [True, False] * 6}, "same"),
        ({"kind": ["entailment", "neutral", "contradiction"] * 4}, "kind"),
        ({"no": [str(n) for n in range(1, 13)], "rank": ["3,5", "5", "1"] * 4}, "rank"),
        ({"cosine": [-0.2, 0.9, 0.4] * 4}, "cosine"),
        ({"human_rating": [5, 0, 3] * 4, "length": [3, 4, 5] * 4}, "human_rating"),
        ({"label": ["SIMILAR"] * 12, "answer": ["accept", "reject", "ignore"] * 4}, "answer"),
        ({"price": PRICES}, None),
        ({"always": ["1"] * 12}, None),
        ({"topic": ["billing", "shipping", "returns"] * 4}, None),
    ],
)
def test_the_judgement_of_pairs_is_the_one_column_that_can_be_one(more, judgement):
    reading = read(PAIR | more)
    assert (reading.target, reading.doubts) == (judgement, ())


def test_the_evidence_is_told_only_where_the_cells_decide():
    reading = read({"links": QUESTIONS, "rechts": ANSWERS, "gleich?": ["ja", "nein", "ja"] * 4})
    assert reading.notes == [
        "links and rechts are read as the two sentences.",
    ]
    reading = read(PAIR | {"wie": ["ja", "nein", "ja"] * 4})
    assert reading.notes == ["wie is read as the judgement: judging words: ja 8, nein 4."]
    assert read(PAIR | {"score": [4, 5, 1] * 4}).notes == []


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (
            {"first": ["1", "0"] * 6, "second": ["0", "1"] * 6},
            "alike the two sentences are? first (1, 0) or second (0, 1)?",
        ),
        ({"label": ["SIMILAR"] * 12, "match": ["yes", "no"] * 6}, "label is the same in all rows"),
    ],
)
def test_several_candidates_are_asked_about_with_what_to_type(more, says):
    reading = read(PAIR | more)
    with pytest.raises(InputError) as asked:
        reading.check()
    question = str(asked.value)
    assert says in question
    first = reading.doubts[0].candidates[0]
    assert (
        f"Type --columns sentence1,sentence2,{first}, or sentence1,sentence2,- for none" in question
    )
    assert read(PAIR | more, "sentence1", "sentence2", first).target == first
    none = read(PAIR | more, "sentence1", "sentence2", "-")
    assert (none.target, none.doubts) == (None, ())


def test_unknown_words_of_a_judgement_matter_only_for_positives():
    reading = read(PAIR | {"urteil": ["passt", "passt nicht"] * 6})
    reading.check()
    with pytest.raises(
        InputError, match="may one of these columns say which pairs belong together"
    ):
        reading.check(for_positives=True)
    read(PAIR | {"urteil": ["passt", "passt nicht"] * 6}, "sentence1", "sentence2").check(
        for_positives=True
    )


def test_columns_beside_the_sentences_have_roles_too():
    reading = read(
        PAIR
        | {
            "pair_id": SKUS,
            "rater": ["anna", "boris"] * 6,
            "set": ["train", "test"] * 6,
            "AssignmentStatus": ["Approved"] * 12,
            "genre": ["news"] * 12,
            "score": [1, 2] * 6,
        }
    )
    roles = [column.role for column in reading.columns]
    assert roles == [
        "sentence1",
        "sentence2",
        "id",
        "rater",
        "split",
        "status",
        "category",
        "score",
    ]


def test_a_negative_may_be_named_beside_a_column_of_splits():
    reading = read(
        PAIR | {"other": ANSWERS[::-1], "part": ["train", "test"] * 6},
        "sentence1",
        "sentence2",
        "other",
    )
    assert [column.role for column in reading.columns] == [
        "anchor",
        "positive",
        "negative",
        "split",
    ]


def test_several_texts_without_names_are_asked():
    reading = read({"eins": QUESTIONS, "zwei": ANSWERS, "drei": QUESTIONS[::-1]})
    with pytest.raises(
        InputError, match="which column holds the sentences, or which two hold pairs"
    ):
        reading.check()
    assert read(reading.rows, "eins", "drei").sentences == ("eins", "drei")


@pytest.mark.parametrize("endings", ["012", "123", "abc"])
def test_a_series_of_three_columns_is_not_read_as_a_pair(endings):
    names = [f"frage{ending}" for ending in endings]
    texts = (QUESTIONS, ANSWERS, QUESTIONS[::-1])
    reading = read(dict(zip(names, texts, strict=True)))
    with pytest.raises(InputError, match="which two hold pairs"):
        reading.check()


def test_single_sentences_have_classes():
    assert (
        read({"text": QUESTIONS, "topic": ["billing", "shipping", "returns"] * 4}).target == "topic"
    )
