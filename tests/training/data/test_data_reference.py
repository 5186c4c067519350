"""Names of files with an encoding: read, joined, made absolute; and what loading does with them."""

from pathlib import Path

import pytest

from training.data.load import load_data
from training.data.reference import FileReference, absolute_names, names_file, parse_file, split_names
from training.errors import InputError

RUSSIAN = [("Кот спит на диване.", "Кошка дремлет."), ("Собака лает во дворе.", "Пёс шумит.")]


@pytest.fixture
def koi8(tmp_path: Path) -> Path:
    path = tmp_path / "пары.csv"
    rows = "".join(f"{one},{other},{score}\n" for (one, other), score in zip(RUSSIAN, (5, 3), strict=True))
    path.write_text("sentence1,sentence2,score\n" + rows, encoding="koi8-r")
    return path


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("a.csv", ("a.csv", None)),
        ("a.csv?encoding=koi8-r", ("a.csv", "koi8-r")),
        ("a?b.csv?encoding=big5", ("a?b.csv", "big5")),
        ("a.csv?encoding=", ("a.csv", None)),
        ("a.csv?x=1", ("a.csv?x=1", None)),
    ],
)
def test_a_name_is_read_and_written(text, file):
    assert parse_file(text) == FileReference(*file)
    assert parse_file(str(FileReference(*file))) == FileReference(*file)


def test_a_path_that_exists_is_taken_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("odd.csv?encoding=koi8-r").touch()
    assert parse_file("odd.csv?encoding=koi8-r") == FileReference("odd.csv?encoding=koi8-r")
    Path("c++.csv").touch()
    assert split_names("c++.csv?encoding=koi8-r") == ["c++.csv?encoding=koi8-r"]
    assert split_names("a.csv?encoding=koi8-r+stsb:dev") == ["a.csv?encoding=koi8-r", "stsb:dev"]


def test_names_for_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.csv").touch()
    Path("b.csv").touch()
    here = tmp_path.resolve()
    assert absolute_names("a.csv+b.csv?encoding=big5+stsb:dev", "koi8-r") == (
        f"{here}/a.csv?encoding=koi8-r+{here}/b.csv?encoding=big5+stsb:dev"
    )
    assert absolute_names("a.csv") == f"{here}/a.csv"
    assert names_file("stsb:dev+a.csv")
    assert not names_file("stsb:dev+c.csv")


def test_a_file_is_read_in_the_encoding_that_is_named(koi8):
    data = load_data(f"{koi8}?encoding=koi8-r")
    assert list(zip(*data.columns, strict=True)) == RUSSIAN
    assert data.name == "пары.csv"
    assert load_data(f"{koi8}?encoding=cp1251").columns != data.columns
    with pytest.raises(InputError, match="there is no text encoding 'klingon'"):
        load_data(f"{koi8}?encoding=klingon")


def test_what_was_found_out_is_among_the_notes(koi8):
    [remark] = load_data(str(koi8)).notes
    assert remark.startswith("The text is not UTF-8; it is read as KOI8-R")
    assert not any("not UTF-8" in note for note in load_data(f"{koi8}?encoding=koi8-r").notes)
