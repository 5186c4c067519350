"""A file with the columns that were chosen: a copy that every reader understands."""

import pytest

from sbert_app.services.files.uploads import ChosenColumns, named_columns
from training.data.load import load_data
from training.data.tables.table import open_table
from training.errors import InputError


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(
        "left;right;rank;kind\nA man;A person;3.5;yes\nA dog;;1;no\nA cat;A kitten;5;yes\n", encoding="utf-8"
    )
    return path


def test_the_copy_has_the_chosen_columns_under_names_that_readers_know(mine, tmp_path):
    copy = named_columns(open_table(mine), ChosenColumns("left", "right", "rank"), tmp_path)
    data = load_data(str(copy))
    assert data.columns == (["A man", "A cat"], ["A person", "A kitten"])
    assert data.scores == [3.5, 5.0]
    assert list(data.rows) == [1, 3], "as in the file"
    assert named_columns(open_table(mine), ChosenColumns("left", "right", "rank"), tmp_path) == copy


def test_words_are_labels_and_a_single_column_is_sentences(mine, tmp_path):
    data = load_data(str(named_columns(open_table(mine), ChosenColumns("right", "left", "kind"), tmp_path)))
    assert (data.columns[0], data.label_names) == (["A person", "A kitten"], ("yes",))
    data = load_data(str(named_columns(open_table(mine), ChosenColumns("left", None, "kind"), tmp_path)))
    assert data.columns == (["A man", "A dog", "A cat"],)


def test_topics_stay_with_their_rows_and_an_encoding_is_kept(tmp_path):
    path = tmp_path / "old.csv"
    path.write_bytes("links,rechts\nMädchen,Bücher\n".encode("cp1252"))
    copy = named_columns(open_table(path, "windows-1252"), ChosenColumns("rechts", "links"), tmp_path)
    assert load_data(str(copy)).columns == (["Bücher"], ["Mädchen"])
    path = tmp_path / "arguments.csv"
    path.write_text("x,y,z,Topic\na,b,1,guns\nc,d,2,gay marriage\n")
    copy = named_columns(open_table(path), ChosenColumns("x", "y", "z"), tmp_path)
    assert open_table(copy).columns == ("sentence1", "sentence2", "score", "topic")
    assert open_table(copy).preview().rows["topic"] == ["guns", "gay marriage"]


def test_what_is_found_anyway_needs_no_copy(tmp_path):
    path = tmp_path / "plain.csv"
    path.write_text("text1,text2,similarity\na,b,1\n")
    found = ChosenColumns.by_name(open_table(path))
    assert found == ChosenColumns("text1", "text2", "similarity")
    assert named_columns(open_table(path), found, tmp_path) is None
    assert named_columns(open_table(path), ChosenColumns("text2", "text1", "similarity"), tmp_path) is not None


def test_a_column_is_chosen_once_and_is_there_and_two_of_ids_are_no_pair(mine, tmp_path):
    with pytest.raises(InputError, match="the column left is chosen twice"):
        named_columns(open_table(mine), ChosenColumns("left", "left"), tmp_path)
    with pytest.raises(InputError, match=r"mine\.csv has no column 'gone'"):
        named_columns(open_table(mine), ChosenColumns("left", "gone"), tmp_path)
    path = tmp_path / "ids.csv"
    path.write_text("id1,id2\n1,2\n3,4\n")
    assert ChosenColumns.suggested(open_table(path)) == (None, frozenset())
