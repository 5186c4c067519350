"""The faults of a data set, and the file without them."""

from bag_encoder import BagEncoder
from command_line import read_csv

from sbert_app.services.files.doctor import clean, examine
from training.data.dataset import Dataset
from training.data.load import load_data
from training.data.tables.table import open_table
from training.models.encoder import Encoder

TEXT = """sentence1,sentence2,label
A cat.,A tiger.,yes
a  cat.,A TIGER.,yes
A tiger.,A cat.,yes
A dog.,A wolf.,yes
A wolf.,A dog.,no
A sea.,A sea.,yes
Known.,🚀,no
Tested.,Before.,yes
,Nothing.,no
Good.,Well.,yes
"""


class Reader(BagEncoder):
    """An encoder that knows ASCII."""

    def is_unknown(self, sentences):
        return [not sentence.isascii() for sentence in sentences]


def test_a_file_is_examined_and_written_without_its_faults(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text(TEXT, encoding="utf-8")
    data = load_data(str(path))
    findings = examine(data, Reader(), {"tests": Dataset.from_pairs(["BEFORE."], ["Tested."])})
    assert {finding.what: finding.rows for finding in findings} == {
        "equal to others that have another label": [4, 5],
        "equal to an earlier one, ignoring case and spaces": [2, 3],
        "a sentence and itself": [6],
        "also in tests": [8],
        "text of which bag-of-words knows no token": [7],
        "text without a letter or digit": [7],
    }
    assert str(findings[0]) == "2 rows: equal to others that have another label (row 4, 5)"
    output = tmp_path / "clean.csv"
    assert clean(open_table(path), output, data, findings) == 2
    assert [row["sentence1"] for row in read_csv(output)] == ["A cat.", "Good."]


def test_equal_pairs_may_differ_a_little_in_their_scores():
    near = Dataset.from_pairs(["a", "a", "b", "b"], ["c", "c", "d", "d"], [4.0, 4.5, 0.0, 5.0])
    assert [finding.rows for finding in examine(near)] == [[3, 4], [2]]
    assert not examine(Dataset.from_pairs(["a", "b"], ["b", "a"], labels=["entailment", "neutral"]))


def test_triplets_are_compared_with_tests_in_either_order():
    triplets = Dataset.from_list([("a", "b", "c"), ("a", "c", "b")])
    tests = Dataset.from_pairs(["C"], ["a"])
    assert list(map(str, examine(triplets, None, {"tests": tests}))) == [
        "2 rows: also in tests (row 1, 2)"
    ]


def test_labels_out_of_balance_are_named_and_stay():
    [finding] = examine(
        Dataset.from_pairs(list("abcdefghij"), list("ABCDEFGHIJ"), labels=["no"] * 9 + ["yes"])
    )[1:]
    assert (str(finding), finding.is_left_out) == ("9 of 10 labels are no", False)


def test_symbols_and_markup_are_named_and_stay():
    findings = examine(
        Dataset.from_pairs(
            ["Fish &amp; chips.", "!!!", "if a < b"], ["<b>Food</b>", "So.", "c > d"]
        )
    )
    assert [(str(finding), finding.is_left_out) for finding in findings] == [
        ("1 row: text without a letter or digit (row 2)", False),
        ("1 row: tags or entities (row 1)", False),
    ]


def test_a_language_that_the_model_was_not_made_for_is_named(home):
    german = [
        "Der Hund läuft über die Straße.",
        "Die Katze schläft auf dem Sofa.",
        "Wir gehen heute ins Kino.",
    ]
    findings = examine(Dataset.from_pairs(german, german[::-1]), Encoder.load("all-MiniLM-L6-v2"))
    assert "the texts look like German; all-MiniLM-L6-v2 was trained on English" in map(
        str, findings
    )
