"""`data/load.py`: files that can be read in several ways; how they are read is said, or they are refused."""

import json

import pytest
from openpyxl import Workbook

from training.catalogue import LABELLED
from training.data.load import load_data
from training.errors import InputError

PAIR = [
    ("A cat sleeps.", "A cat is asleep."),
    ("It rains.", "The sun shines."),
    ("He sings.", "He reads."),
]


def table(path, header, rows, separator=","):
    path.write_text(
        "\n".join(separator.join(map(str, row)) for row in [header, *rows]) + "\n", encoding="utf-8"
    )
    return str(path)


def scored(path, name, scores, separator=","):
    rows = [(*pair, score) for pair, score in zip(PAIR, scores, strict=True)]
    return load_data(table(path, ("sentence1", "sentence2", name), rows, separator))


@pytest.mark.parametrize(
    ("header", "rows", "columns"),
    [
        (("text1", "text2"), [(1, 2), (3, 4)], "columns text1, text2"),
        (("query", "text"), [(1, "A cat sleeps."), (2, "It rains.")], "column query"),
    ],
)
def test_ids_in_place_of_sentences_are_said_to_be_some(tmp_path, header, rows, columns):
    notes = load_data(table(tmp_path / "a.csv", header, rows)).notes
    sentence = (
        f"Numbers or codes alone are in the {columns}: if they are ids, name the columns of texts."
    )
    assert notes.count(sentence) == 1
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps(dict(zip(header, row, strict=True))) for row in rows))
    assert sentence in load_data(str(path)).notes
    rows = [("A cat sleeps.", "7"), ("It rains.", "Seven")]
    assert load_data(table(tmp_path / "b.csv", ("text1", "text2"), rows)).notes == ()


def test_a_first_row_that_may_be_data_is_said_to_be_read_as_the_header(tmp_path):
    data = load_data(table(tmp_path / "a.csv", ("cat", "dog"), [("car", "bus"), ("sun", "moon")]))
    assert data.columns == (["car", "sun"], ["bus", "moon"])
    header = (
        "The first row is read as the header: the columns cat, dog; if it is data, add one above."
    )
    assert data.notes == (header, "cat and dog, the only columns, are read as the two sentences.")
    sentences = [("A cat sleeps on the mat.", "A dog sleeps on the mat.", "1")] * 2
    with pytest.raises(InputError) as refused:
        load_data(table(tmp_path / "b.csv", ("links", "rechts", "gleich"), sentences))
    assert "read as the header" not in str(refused.value)


def test_numbers_from_0_on_are_the_names_that_pandas_writes(tmp_path):
    data = load_data(table(tmp_path / "a.csv", ("0", "1"), PAIR))
    assert data.columns == tuple(map(list, zip(*PAIR, strict=True)))
    assert data.notes == ("0 and 1, the only columns, are read as the two sentences.",)


def test_fields_beyond_the_header_are_said_but_for_empty_ones(tmp_path):
    rows = [(*PAIR[0], "4,5"), (*PAIR[1], "1,25"), (*PAIR[2], "0")]
    notes = load_data(table(tmp_path / "a.csv", ("sentence1", "sentence2", "score"), rows)).notes
    marked = (
        "marked rows: 2, the first is row 1: 4 fields where the header has 3; beyond the header: 5"
    )
    assert marked in notes
    trailing = [(*pair, score, "", "") for pair, score in zip(PAIR, (4.5, 0, 1), strict=True)]
    assert (
        load_data(table(tmp_path / "b.csv", ("sentence1", "sentence2", "score"), trailing)).notes
        == ()
    )


def test_a_header_among_the_rows_of_files_put_together_is_left_out(tmp_path):
    rows = [(*PAIR[0], 4.5), ("sentence1", "sentence2", "score"), (*PAIR[1], 0)]
    data = load_data(table(tmp_path / "a.csv", ("sentence1", "sentence2", "score"), rows))
    assert (data.scores, list(data.rows)) == ([4.5, 0], [1, 3])
    assert "1 row equal to the header left out" in data.notes


@pytest.mark.parametrize(
    "value",
    [
        {"version": 1, "examples": [{"sentence1": a, "sentence2": b} for a, b in PAIR]},
        {
            "features": [],
            "rows": [
                {"row_idx": at, "row": {"text1": a, "text2": b}} for at, (a, b) in enumerate(PAIR)
            ],
        },
    ],
)
def test_rows_within_an_object(tmp_path, value):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(value))
    assert load_data(str(path)).columns == tuple(map(list, zip(*PAIR, strict=True)))


@pytest.mark.parametrize(
    ("name", "cells", "scores"),
    [
        ("Similarity (1-7)", ("4", "1", "7"), [2.5, 0, 5]),
        ("rating", ("5 - the same", "1 - unrelated", "3 - maybe"), [5, 1, 3]),
        ("rating", ("5 (the same)", "1,5 (unrelated)", "3: alike"), [5, 1.5, 3]),
    ],
)
def test_scales_in_names_and_words_beside_numbers(tmp_path, name, cells, scores):
    data = scored(tmp_path / "a.tsv", name, cells, "\t")
    assert data.scores == pytest.approx(scores)


def test_more_names_of_labels(tmp_path):
    for name in ("entailment_judgment", "is_similar", "Duplicate?", "Is_Equivalent"):
        data = scored(tmp_path / "a.csv", name, ("1", "0", "1"))
        assert (data.kind, data.label_names, data.labels) == (LABELLED, ("0", "1"), [1, 0, 1])
    data = scored(tmp_path / "a.csv", "label", ("very similar", "not similar", "somewhat similar"))
    assert data.notes[-1].endswith(
        "?labels=not similar:0,somewhat similar:1,very similar:0 says it"
    )


def test_a_second_judgement_is_said_to_be_unread(tmp_path):
    rows = [(*pair, score, 1) for pair, score in zip(PAIR, (4.5, 0, 1), strict=True)]
    data = load_data(
        table(tmp_path / "a.csv", ("sentence1", "sentence2", "score", "similarity"), rows)
    )
    assert data.scores == [4.5, 0, 1]
    assert data.notes == ("not read: the column similarity; ?columns= says which columns are",)


@pytest.mark.parametrize("missing", ["NULL", "\\N"])
def test_missing_values_as_databases_write_them_are_no_text(tmp_path, missing):
    data = load_data(
        table(tmp_path / "a.csv", ("sentence1", "sentence2"), [*PAIR, ("A dog.", missing)])
    )
    assert (len(data), data.notes) == (3, ("1 row with an empty sentence left out",))


def test_a_sheet_of_ids_is_not_read_before_one_of_sentences(tmp_path):
    book = Workbook()
    path = tmp_path / "a.xlsx"
    for row in (("id1", "id2"), (1, 2)):
        book.worksheets[0].append(row)
    pairs = book.create_sheet("Pairs")
    for row in (("left", "right"), *PAIR):
        pairs.append(row)
    book.save(path)
    assert load_data(str(path)).columns == tuple(map(list, zip(*PAIR, strict=True)))
