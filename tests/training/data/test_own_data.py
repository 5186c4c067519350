"""`data/dataset.py`: data in memory: lists, tuples, dictionaries, DataFrames, data sets of the datasets library."""

import datasets
import numpy as np
import pandas as pd
import pytest

from training import Dataset, InputError, open_model, score
from training.catalogue import LABELLED, PAIRS, SCORED, SENTENCES, TRIPLETS
from training.data.dataset import as_dataset

FIRST = ["a cat", "a dog", "a car"]
SECOND = ["a kitten", "a puppy", "a tree"]


def test_pairs_have_scores_or_labels_or_neither():
    assert Dataset.from_pairs(FIRST, SECOND).kind == PAIRS
    scored = Dataset.from_pairs(FIRST, SECOND, np.array([1.0, 0.8, 0.0], dtype=np.float32))
    assert scored.kind == SCORED
    assert scored.scores == pytest.approx([5, 4, 0])
    assert scored.notes == ("read as: scores from 0 to 1 stretched to 0–5",)
    labelled = Dataset.from_pairs(FIRST, SECOND, labels=["same", "same", "other"])
    assert (labelled.kind, labelled.labels, labelled.label_names) == (
        LABELLED,
        [1, 1, 0],
        ("other", "same"),
    )


def test_rows_are_read_by_number_in_order_and_as_a_frame():
    data = Dataset.from_pairs(FIRST, SECOND, labels=["same", "same", "other"])
    assert data[0] == {"sentence1": "a cat", "sentence2": "a kitten", "label": "same"}
    assert list(data) == [data[0], data[1], data[-1]]
    assert data[1:].columns == (["a dog", "a car"], ["a puppy", "a tree"])
    assert data.to_pandas().equals(
        pd.DataFrame({"sentence1": FIRST, "sentence2": SECOND, "label": ["same", "same", "other"]})
    )
    with pytest.raises(IndexError):
        data[3]


def test_rows_of_a_list_are_texts_tuples_or_dictionaries():
    assert Dataset.from_list(FIRST).kind == SENTENCES
    assert Dataset.from_list(list(zip(FIRST, SECOND, strict=True))).columns == (FIRST, SECOND)
    assert Dataset.from_list([("a", "b", 4.5), ("c", "d", 0)]).scores == [4.5, 0]
    assert Dataset.from_list([("a", "b", "c"), ("d", "e", "f")]).kind == TRIPLETS
    rows = [
        {"text_a": "a", "text_b": "b", "similarity": 3, "id": 7},
        {"text_a": "c", "text_b": "", "similarity": 5},
    ]
    named = Dataset.from_list(rows, "mine")
    assert (named.name, named.columns, named.scores) == ("mine", (["a"], ["b"]), [3])
    assert named.notes[0] == "1 row with an empty sentence left out"


def test_cells_may_be_texts_in_some_rows_and_objects_in_others():
    rows = [
        {"text1": "a", "text2": "b", "by": "anna"},
        {"text1": "c", "text2": "d", "by": {"name": "boris"}},
    ]
    assert Dataset.from_list(rows).columns == (["a", "c"], ["b", "d"])


def test_frames_and_the_datasets_library_and_files_give_the_same(tmp_path):
    cells = {"sentence1": FIRST, "sentence2": SECOND, "score": [5.0, 4.0, 0.5]}
    frame = pd.DataFrame(cells)
    frame.to_csv(tmp_path / "pairs.csv", index=False)
    frame.to_csv(tmp_path / "pairs.csv.gz", index=False)
    expected = Dataset.from_pairs(FIRST, SECOND, cells["score"])
    for made in (
        as_dataset(frame, "x"),
        as_dataset(cells, "x"),
        as_dataset(datasets.Dataset.from_dict(cells), "x"),
        as_dataset(datasets.Dataset.from_dict(cells).to_iterable_dataset(), "x"),
        Dataset.from_file(tmp_path / "pairs.csv"),
        Dataset.from_file(str(tmp_path / "pairs.csv.gz")),
    ):
        assert (made.columns, made.scores) == (expected.columns, expected.scores)
    assert as_dataset(expected, "x") is expected


def test_class_labels_of_the_datasets_library_have_their_names():
    features = datasets.Features(
        premise=datasets.Value("string"),
        hypothesis=datasets.Value("string"),
        label=datasets.ClassLabel(names=["no", "yes"]),
    )
    rows = datasets.Dataset.from_dict(
        {"premise": FIRST, "hypothesis": SECOND, "label": [1, 0, -1]}, features=features
    )
    made = Dataset.from_datasets(rows)
    assert (made.columns[0], made.labels, made.label_names) == (FIRST[:2], [1, 0], ("no", "yes"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Dataset.from_pairs(FIRST, SECOND[:2]),
            "differ in length: sentence1 has 3, sentence2 has 2",
        ),
        (
            lambda: Dataset.from_pairs("a cat", "a dog"),
            "sentence1 is one text; give a list of them",
        ),
        (
            lambda: Dataset.from_pairs(FIRST, SECOND, ["1", "2", "high"]),
            "row 3, column score: 'high' is not a number",
        ),
        (lambda: Dataset.from_pairs([], []), "pairs holds no usable row"),
        (
            lambda: Dataset.from_pairs(FIRST, SECOND, [5, 4, 0], [1, 1, 0]),
            "scores or labels, not both",
        ),
        (lambda: Dataset.from_pandas(pd.DataFrame({"x": [1]})), "DataFrame has the column x"),
        (lambda: Dataset.from_datasets(datasets.DatasetDict()), "give one of them"),
        (
            lambda: Dataset.from_list([object()]),
            "row 1 is of type object; a row is a dictionary, a pair",
        ),
        (
            lambda: as_dataset(pd.Series([7]), "train_data"),
            "train_data is a Series; give a Dataset",
        ),
        (lambda: Dataset.from_file("nowhere.csv"), "There is no file nowhere.csv"),
    ],
)
def test_data_that_cannot_be_used_is_refused_in_one_sentence(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_the_pairs_of_a_frame_get_a_score_each():
    frame = pd.DataFrame(
        {"id": [1, 2, 3, 4], "left": [*FIRST, None], "right": [*SECOND, "a bus"]},
        index=list("wxyz"),
    )
    scored = score(frame, "tfidf", columns="left,right")
    assert list(scored.columns) == ["id", "left", "right", "score"]
    assert scored.index.equals(frame.index)
    assert list(frame.columns) == ["id", "left", "right"]
    expected = open_model("tfidf").score(list(zip(FIRST, SECOND, strict=True)))
    np.testing.assert_array_equal(scored["score"], np.array([*expected, np.nan], dtype=np.float32))
    again = score(
        scored.rename(columns={"left": "sentence1", "right": "sentence2"}), open_model("tfidf")
    )
    assert list(again.columns)[-1] == "score_2"
    assert score(frame[:0], "tfidf", columns="left,right").empty


def test_a_frame_whose_columns_are_in_doubt_is_asked_about():
    texts = pd.DataFrame({"one": FIRST, "two": SECOND, "three": FIRST[::-1]})
    with pytest.raises(InputError, match="but two with sentences are needed"):
        score(texts[["one"]], "tfidf")
    with pytest.raises(InputError, match="columns"):
        score(texts, "tfidf")


def test_score_names_an_argument_that_is_not_a_frame():
    with pytest.raises(
        InputError, match="score takes a DataFrame and then a model; its first argument is a list"
    ):
        score(FIRST, "tfidf")


def test_a_dataset_is_shown_in_a_line_and_in_a_notebook_by_its_first_rows():
    data = Dataset.from_pairs(
        ["<b>one</b>"] + ["x"] * 9, ["y"] * 10, [each / 9 for each in range(10)], name="m" * 200
    )
    assert len(repr(data)) < 100
    assert repr(data).endswith("…', 10 scored pairs)")
    html = data._repr_html_()
    assert "&lt;b&gt;one" in html
    assert "<b>" not in html
    assert html.count("<tr>") == 1 + 5
    assert "stretched" in html
