"""`corpus/search.py`: the most similar pairs of a corpus; equal texts; CSV files."""

import csv

import numpy as np
import pytest
from bag_encoder import BagEncoder

from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import encode
from sbert_app.services.corpus.search import (
    NearDuplicates,
    find_near_duplicates,
    first_of_each_text,
    save_like_file,
    save_pairs,
    save_rows,
    similar_pairs,
)

SENTENCES = [
    "The dog sleeps.",
    "the   DOG sleeps.",
    "A dog sleeps.",
    "=SUM(A1) costs nothing",
    "Rain falls, again.",
    "!!!",
]


@pytest.fixture
def embedded():
    return encode(
        Corpus("mine", SENTENCES, {"sentence": list("abcdef"), "stars": [1, 2, 3, 4, 5, 6]}),
        BagEncoder(),
    )


def test_the_same_words_are_the_same_text_whatever_their_case_and_marks(embedded):
    assert first_of_each_text([*SENTENCES, "the dog... sleeps", "???"]).tolist() == [
        0,
        2,
        3,
        4,
        5,
        7,
    ]
    shown = similar_pairs(embedded, 1, hide_same=False)
    hidden = similar_pairs(embedded, 1)
    assert (shown.compared, shown.same_text, shown.combinations) == (6, 0, 15)
    assert (hidden.compared, hidden.same_text, hidden.combinations) == (5, 1, 10)
    assert hidden.pairs[0][:2] == (0, 2)


def test_the_file_of_pairs_counts_rows_from_one_and_runs_no_formula(embedded, tmp_path):
    found = similar_pairs(embedded, 100, threshold=-1)
    with save_pairs(found, embedded.corpus, tmp_path).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 10
    assert (rows[0]["row1"], rows[0]["row2"], rows[0]["sentence2"]) == ("1", "3", "A dog sleeps.")
    assert float(rows[0]["cosine"]) == pytest.approx(found.pairs[0][2], abs=1e-6)
    cells = {cell for row in rows for cell in row.values()}
    assert "'=SUM(A1) costs nothing" in cells
    assert not any(cell.startswith("=") for cell in cells)


def test_the_file_without_repeats_keeps_the_other_columns(embedded, tmp_path):
    found = find_near_duplicates(embedded, 0.99)
    assert found.original.tolist() == [0, 0, 2, 3, 4, 5]
    path = save_rows(embedded.corpus, found.originals, tmp_path, "kept.csv")
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["stars"] for row in rows] == ["1", "3", "4", "5", "6"]
    assert [row["sentence (file)"] for row in rows] == ["a", "c", "d", "e", "f"]


def test_duplicates_of_a_file_come_out_as_the_rows_came_in(tmp_path):
    source = tmp_path / "list.csv"
    lines = [
        "Nr;Frage;topic",
        "1;Wo ist das Büro?;a",
        "2;;b",
        "3;Wo ist das Büro?;c",
        "4;Wann öffnet es?;d",
    ]
    source.write_text("\n".join(lines) + "\n", encoding="utf-8-sig")
    corpus = Corpus.from_file(source, "Frage")
    found = NearDuplicates(np.array([0, 0, 2]), 0.95, 0.0)
    everything = save_like_file(corpus, found, tmp_path / "all.csv", kept_only=False).read_text(
        "utf-8"
    )
    added = ["group;kept", "1;true", ";false", "1;false", "4;true"]
    assert everything.splitlines() == [
        f"\ufeff{lines[0]};{added[0]}",
        *map(";".join, zip(lines[1:], added[1:], strict=True)),
    ]
    kept = save_like_file(corpus, found, tmp_path / "kept.csv", kept_only=True).read_text("utf-8")
    assert kept.splitlines() == [f"\ufeff{lines[0]}", lines[1], lines[4]]


def test_duplicates_of_a_file_of_pairs_come_out_as_the_rows_came_in(tmp_path):
    """A row is a duplicate if each of its sentences is one of the sentence in the same row above."""
    source = tmp_path / "pairs.csv"
    lines = [
        "id;sentence1;sentence2;score",
        "7;The dog sleeps.;A cat eats.;2",
        "8;The  dog sleeps.;A cat eats.;3",
        "9;;A cat eats.;4",
        "10;The dog sleeps.;Rain falls.;1",
        "11;The dog is asleep.;A cat eats.;5",
    ]
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    corpus = Corpus.from_file(source)
    assert corpus.text_columns == ("sentence1", "sentence2")
    originals = {"The dog is asleep.": "The dog sleeps.", "The  dog sleeps.": "The dog sleeps."}
    original = []
    for sentence in corpus.sentences:
        original.append(corpus.sentences.index(originals.get(sentence, sentence)))
    found = NearDuplicates(np.array(original), 0.95, 0.0)
    everything = save_like_file(corpus, found, tmp_path / "all.csv", kept_only=False)
    added = ["group;kept", "1;true", "1;false", ";false", "4;true", "1;false"]
    assert everything.read_text("utf-8").splitlines() == [
        ";".join(line) for line in zip(lines, added, strict=True)
    ]
    kept = save_like_file(corpus, found, tmp_path / "kept.csv", kept_only=True)
    assert kept.read_text("utf-8").splitlines() == [lines[0], lines[1], lines[4]]


def test_rows_without_a_kept_one_leave_no_line(tmp_path, monkeypatch):
    source = tmp_path / "list.csv"
    source.write_text("sentence,n\na,1\na,2\nb,3\n", encoding="utf-8")
    corpus = Corpus.from_file(source)
    monkeypatch.setattr(type(corpus.table).batches, "__defaults__", (1,))
    found = NearDuplicates(np.array([0, 0, 2]), 0.95, 0.0)
    kept = save_like_file(corpus, found, tmp_path / "kept.csv", kept_only=True)
    assert kept.read_text("utf-8") == "sentence,n\na,1\nb,3\n"
