"""Judgements of several people as columns, lists or rows; exports of labelling tools; data sets as they lie on disk.

The rows of the table of tools in docs/data.md are the tests here.
"""

import json

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from training import Dataset
from training.catalogue import LABELLED, PAIRS, SCORED
from training.data.load import load_data
from training.errors import InputError

PAIRS_OF_TEXTS = [
    ("A dog runs across the field.", "A dog is running over a meadow."),
    ("Two women drink tea.", "Two women are having tea together."),
    ("A boy paints a fence.", "Prices rose by two percent."),
    ("The shop opens late.", "A cat sleeps on the sofa."),
]
SCORES = [5, 4, 0, 1]
WORDS = ["yes", "yes", "no", "no"]


def jsonl(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


def table(path, header, rows):
    lines = [",".join(map(str, row)) for row in [header.split(","), *rows]]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def task(at, results):
    """A task of Label Studio with an annotation for each of the results."""
    text1, text2 = PAIRS_OF_TEXTS[at]
    annotations = [
        {"id": n, "was_cancelled": False, "result": [{"value": value}]}
        for n, value in enumerate(results)
    ]
    return {
        "id": at,
        "data": {"text1": text1, "text2": text2},
        "annotations": annotations,
        "predictions": [],
    }


def rows_of(judgements, name="score", **more):
    return [
        {"text1": one, "text2": other, name: judgement, **more}
        for (one, other), judgement in zip(PAIRS_OF_TEXTS, judgements, strict=True)
    ]


TOOLS = {
    "Label Studio, JSON": [
        task(at, [{"rating": score}, {"rating": score}]) for at, score in enumerate(SCORES)
    ],
    "Label Studio, JSON with a cancelled annotation": [
        {
            **task(at, [{"rating": score}]),
            "annotations": [*task(at, [{"rating": score}])["annotations"], cancelled],
        }
        for at, score in enumerate(SCORES)
        for cancelled in [{"was_cancelled": True, "result": [{"value": {"rating": 3}}]}]
    ],
    "Label Studio, JSON-MIN": rows_of(
        [[{"rating": score}] for score in SCORES], "similar", annotator=1, lead_time=3.2
    ),
    "Argilla 1": rows_of(
        [
            [{"value": score, "status": "submitted"}, {"value": 3, "status": "discarded"}]
            for score in SCORES
        ],
        "similarity",
        **{"similarity-suggestion": 3},
    ),
    "Argilla 2": [
        {
            "fields": {"text1": one, "text2": other},
            "responses": {"similarity": [{"value": score, "user_id": "u"}]},
        }
        for (one, other), score in zip(PAIRS_OF_TEXTS, SCORES, strict=True)
    ],
    "Argilla 2, flat": rows_of(
        [[score, score] for score in SCORES],
        "similarity.responses",
        **{"similarity.suggestion.score": 0.4},
    ),
}


@pytest.mark.parametrize("tool", TOOLS)
def test_the_scores_of_a_labelling_tool_are_read(tmp_path, tool):
    data = load_data(jsonl(tmp_path / "a.jsonl", TOOLS[tool]))
    assert (data.kind, data.scores) == (SCORED, SCORES)
    (tmp_path / "a.json").write_text(json.dumps(TOOLS[tool], indent=1))
    assert load_data(str(tmp_path / "a.json")).scores == SCORES


CHOICES = [["similar"], ["similar"], ["different"], ["different"]]
LABELS = {
    "Prodigy, accept or reject": (
        [
            row | {"label": "SIMILAR", "_task_hash": at}
            for at, row in enumerate(rows_of(["accept", "accept", "reject", "reject"], "answer"))
        ],
        ["accept", "accept", "reject", "reject"],
    ),
    "Prodigy, choice": (
        rows_of(
            [["similar"], ["similar"], ["different"], ["different"]], "accept", answer="accept"
        ),
        None,
    ),
    "doccano": (rows_of([["similar"], ["similar"], ["different"], ["different"]], "label"), None),
    "doccano, both sentences in one text": (
        [
            {"id": at, "text": "\n".join(pair), "label": [word]}
            for at, (pair, word) in enumerate(
                zip(PAIRS_OF_TEXTS, ["similar", "similar", "different", "different"], strict=True)
            )
        ],
        None,
    ),
    "Label Studio, choices": (
        [
            task(at, [{"choices": [word]}])
            for at, word in enumerate(["similar", "similar", "different", "different"])
        ],
        None,
    ),
}


@pytest.mark.parametrize("tool", LABELS)
def test_the_labels_of_a_labelling_tool_are_read(tmp_path, tool):
    rows, names = LABELS[tool]
    data = load_data(jsonl(tmp_path / "a.jsonl", rows))
    assert data.kind == LABELLED
    assert [data.label_names[label] for label in data.labels] == (
        names or ["similar"] * 2 + ["different"] * 2
    )


def test_label_studio_writes_json_into_cells_of_csv(tmp_path):
    path = tmp_path / "a.csv"
    rows = [
        f'{one},{other},"[{{""rating"": {score}}}]"'
        for (one, other), score in zip(PAIRS_OF_TEXTS, SCORES, strict=True)
    ]
    path.write_text("\n".join(["text1,text2,similar", *rows]) + "\n")
    assert load_data(str(path)).scores == SCORES


def test_rejected_assignments_of_mechanical_turk_are_left_out(tmp_path):
    header = "HITId,WorkerId,AssignmentStatus,Input.sentence1,Input.sentence2,Answer.score"
    rows = []
    for at, (pair, score) in enumerate(zip(PAIRS_OF_TEXTS, SCORES, strict=True)):
        rows += [
            (f"H{at}", "W1", "Approved", *pair, score),
            (f"H{at}", "W2", "Approved", *pair, max(score - 1, 0)),
        ]
        rows.append((f"H{at}", "W3", "Rejected", *pair, 5 - score))
    data = load_data(table(tmp_path / "a.csv", header, rows))
    assert data.scores == [4.5, 3.5, 0, 0.5]
    assert data.notes[0] == "4 rows rejected, discarded or cancelled left out"
    assert data.notes[-1].startswith("4 pairs by 2 raters, α 0.9")
    one = load_data(f"{tmp_path / 'a.csv'}?raters=W1")
    assert one.scores == SCORES
    with pytest.raises(InputError, match="has no rater 'W9'; it has W1, W2, W3"):
        load_data(f"{tmp_path / 'a.csv'}?raters=W9")


@pytest.mark.parametrize("header", ["sentence", "anchor,positive,negative", "q1,q2"])
def test_raters_of_data_without_judgements_are_refused(tmp_path, header):
    path = table(tmp_path / "a.csv", header, [header.split(",")[::-1], header.upper().split(",")])
    with pytest.raises(InputError, match="leave out"):
        load_data(f"{path}?raters=W1")


def test_labels_are_those_of_the_majority_and_divided_ones_are_out(tmp_path):
    votes = [("yes", "yes", "no"), ("yes", "yes", "yes"), ("no", "no", "no"), ("yes", "no", "")]
    rows = [(*pair, *cells) for pair, cells in zip(PAIRS_OF_TEXTS, votes, strict=True)]
    data = load_data(table(tmp_path / "a.csv", "sentence1,sentence2,rater_1,rater_2,rater_3", rows))
    assert [data.label_names[label] for label in data.labels] == ["yes", "yes", "no"]
    assert "1 row with a label on which raters are equally divided left out" in data.notes
    assert any(
        note.startswith("3 pairs by 3 raters, α ") and "(nominal)" in note for note in data.notes
    )


def test_equal_pairs_without_a_rater_column_are_several_judgements(tmp_path):
    rows = [
        (*pair, value)
        for pair, score in zip(PAIRS_OF_TEXTS, SCORES, strict=True)
        for value in (score, score / 2)
    ]
    data = load_data(table(tmp_path / "a.csv", "sentence1,sentence2,score", rows))
    assert (len(data), data.scores) == (4, [3.75, 3, 0, 0.75])
    assert list(data.rows) == [1, 3, 5, 7]
    # One pair that occurs twice is no rating by two people.
    rows = [(*pair, score) for pair, score in zip(PAIRS_OF_TEXTS, SCORES, strict=True)]
    assert (
        len(load_data(table(tmp_path / "b.csv", "sentence1,sentence2,score", [*rows, rows[0]])))
        == 5
    )


def test_unsure_words_are_left_out_or_counted_as_no(tmp_path):
    rows = [
        (*pair, word)
        for pair, word in zip(PAIRS_OF_TEXTS, ["yes", "maybe", "no", "no"], strict=True)
    ]
    path = table(tmp_path / "a.csv", "Frage A,Frage B,gleich?", rows)
    data = load_data(path)
    assert (data.kind, len(data)) == (LABELLED, 3)
    assert "1 row without a gold label (maybe: 1) left out" in data.notes
    counted = load_data(f"{path}?labels={data.unclear_as_no}")
    assert [counted.label_names[label] for label in counted.labels] == ["1", "0", "0", "0"]
    assert counted.unclear_as_no == ""


def test_second_headers_of_survey_monkey_are_no_rows(tmp_path):
    header = "Respondent ID,How similar are they?,Sentence 1,Sentence 2"
    rows = [("", "Response", "Open-Ended Response", "Open-Ended Response")]
    rows += [(100 + at, SCORES[at], *pair) for at, pair in enumerate(PAIRS_OF_TEXTS)]
    assert load_data(table(tmp_path / "a.csv", header, rows)).scores == SCORES


@pytest.mark.parametrize("layout", ["jsonl", "parquet", "datasets", "saved"])
def test_nested_fields_have_dotted_names(tmp_path, layout):
    rows = [
        {
            "sentence1": one,
            "sentence2": other,
            "labels": {"label": score, "real-label": score + 0.25},
        }
        for (one, other), score in zip(PAIRS_OF_TEXTS, SCORES, strict=True)
    ]
    columns = "sentence1,sentence2,labels.real-label"
    if layout == "jsonl":
        data = load_data(f"{jsonl(tmp_path / 'a.jsonl', rows)}?columns={columns}&scale=0-6")
        assert data.scores == pytest.approx([(score + 0.25) * 5 / 6 for score in SCORES])
        return
    if layout == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
        assert load_data(str(tmp_path / "a.parquet")).scores == SCORES
        return
    made = datasets.Dataset.from_list(rows)
    if layout == "datasets":
        assert Dataset.from_datasets(made).scores == SCORES
        return
    made.save_to_disk(tmp_path / "saved")
    assert load_data(str(tmp_path / "saved")).scores == SCORES
    datasets.DatasetDict({"train": made, "test": made.select([0, 2])}).save_to_disk(
        tmp_path / "both"
    )
    assert load_data(f"{tmp_path / 'both'}?split=test").scores == [5, 0]
    with pytest.raises(InputError, match="has no split 'final'; it has train, test"):
        load_data(f"{tmp_path / 'both'}?split=final")


@pytest.mark.parametrize("separator", ["\n", "\t"])
def test_both_sentences_may_be_in_one_cell(tmp_path, separator):
    path = tmp_path / "a.csv"
    lines = [
        f'E-{at},"{separator.join(pair)}",{SCORES[at] / 5}'
        for at, pair in enumerate(PAIRS_OF_TEXTS)
    ]
    path.write_text("\n".join(["PairID,Text,Score", *lines]) + "\n")
    data = load_data(str(path))
    assert (list(zip(*data.columns, strict=True)), data.scores) == (
        PAIRS_OF_TEXTS,
        pytest.approx(SCORES),
    )
    assert "Text holds both sentences in each cell." in data.notes


@pytest.mark.parametrize("name", ["a.txt", "a.csv"])
@pytest.mark.parametrize("separator", ["||", "|||", "::"])
def test_separators_of_several_characters(tmp_path, name, separator):
    path = tmp_path / name
    rows = [
        separator.join([f"1-{at}", *pair, str(SCORES[at])])
        for at, pair in enumerate(PAIRS_OF_TEXTS)
    ]
    path.write_text("\n".join(rows) + "\n")
    data = load_data(str(path))
    assert (list(zip(*data.columns, strict=True)), data.scores) == (PAIRS_OF_TEXTS, SCORES)


def test_a_line_separator_of_unicode_in_a_cell_ends_no_line(tmp_path):
    path = tmp_path / "a.txt"
    rows = [
        f"Yes.\u2028{first}||{second}||{SCORES[at]}"
        for at, (first, second) in enumerate(PAIRS_OF_TEXTS)
    ]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    assert load_data(str(path)).scores == SCORES


def test_a_wide_first_row_does_not_hide_the_tabs(tmp_path):
    path = tmp_path / "a.txt"
    rows = ["\t".join([*pair, str(SCORES[at])]) for at, pair in enumerate(PAIRS_OF_TEXTS)]
    path.write_text("\n".join(["some, words, with, many, commas, in, them, first", *rows]) + "\n")
    assert load_data(str(path)).scores == SCORES


def test_grades_of_which_some_are_missing_are_scores(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", rows_of([5.0, 4.0, 0.0, 0.0], "label"))
    assert load_data(path).scores == [5, 4, 0, 0]


def test_a_scale_may_be_reversed(tmp_path):
    path = table(
        tmp_path / "a.csv",
        "text1,text2,Overall",
        [(*pair, 4 - at) for at, pair in enumerate(PAIRS_OF_TEXTS)],
    )
    assert load_data(f"{path}?scale=4-1").scores == pytest.approx([0, 5 / 3, 10 / 3, 5])


def test_figures_are_asked_whether_they_can_be_true(tmp_path):
    rows = [(*pair, 3) for pair in PAIRS_OF_TEXTS] + [
        ("NS", "NS", 3),
        ("NS", "It rains all day long.", 3),
    ]
    notes = load_data(table(tmp_path / "a.csv", "sentence1,sentence2,score", rows)).notes
    assert "a placeholder seems to stand for sentences: NS (3 times); leave these rows out" in notes
    assert "the judgement of all 6 rows is 3.0: is it the right column?" in notes


def test_python_names_columns_too():
    rows = [{"a": one, "b": other, "eins": 1, "zwei": 0} for one, other in PAIRS_OF_TEXTS]
    rows[0] |= {"eins": 0, "zwei": 1}
    for make in (
        Dataset.from_list,
        lambda rows: Dataset.from_datasets(datasets.Dataset.from_list(rows)),
    ):
        with pytest.raises(
            InputError, match=r"alike the two sentences are. eins \(0, 1\) or zwei \(1, 0\)"
        ):
            make(rows)
    assert Dataset.from_list(rows, columns="a,b,eins").kind == LABELLED
    assert Dataset.from_list(rows, columns="a,b,-").kind == PAIRS
    assert Dataset.from_datasets(datasets.Dataset.from_list(rows), columns="b,a,zwei").columns[
        0
    ] == [other for _, other in PAIRS_OF_TEXTS]
