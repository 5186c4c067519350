"""`data/load.py`: files of the Hub, FlagEmbedding, pandas, spreadsheets and their exporters, Git LFS."""

import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from openpyxl import Workbook

from training.catalogue import LABELLED, PAIRS, SCORED, TRIPLETS
from training.data.gold import GoldColumn
from training.data.load import load_data
from training.data.tables.lists import with_rows_of_lists
from training.data.tables.table import open_table, opened_file
from training.errors import InputError

PAIR = [
    ("A cat sleeps.", "A cat is asleep."),
    ("It rains.", "The sun shines."),
    ("He sings.", "He reads."),
]


def lines(path: Path, *rows: dict[str, object]) -> str:
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


def workbook(
    path: Path,
    *rows: tuple[object, ...],
    changes: Mapping[str, tuple[str, str]] = MappingProxyType({}),
) -> str:
    """A workbook; in the parts that ``changes`` names a pattern is replaced."""
    book = Workbook()
    plain = path.with_suffix(".plain")
    for row in rows:
        book.worksheets[0].append(row)
    book.save(plain)
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            text = old.read(name)
            if name in changes:
                pattern, replacement = changes[name]
                text, count = re.subn(pattern.encode(), replacement.encode(), text)
                assert count, f"{pattern} is not in {name}"
            new.writestr(name, text)
    return str(path)


@pytest.mark.parametrize(
    ("names", "label_names"),
    [
        (["similar", "different"], ("different", "similar")),
        (["contradiction", "entailment", "neutral"], ("entailment", "neutral", "contradiction")),
    ],
)
def test_class_names_in_a_parquet_file_decide_what_its_numbers_mean(tmp_path, names, label_names):
    features = {"info": {"features": {"label": {"_type": "ClassLabel", "names": names}}}}
    columns = [[a for a, _ in PAIR], [b for _, b in PAIR], [0, 1, 1]]
    table = pa.table(columns, ["sentence1", "sentence2", "label"])
    path = tmp_path / "pairs.parquet"
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(features)}), path)
    data = load_data(str(path))
    assert data.label_names == label_names
    assert [data.label_names[label] for label in data.labels] == [names[0], names[1], names[1]]


def test_lists_of_positives_and_negatives_are_rows(tmp_path):
    row = {"query": "q", "pos": ["p"], "neg": ["n1", "n2"]}
    flag = load_data(lines(tmp_path / "a.jsonl", row))
    assert (flag.kind, flag.columns) == (TRIPLETS, (["q", "q"], ["p", "p"], ["n1", "n2"]))
    mined = load_data(
        lines(tmp_path / "b.jsonl", {"anchor": "q", "positive": "p", "negatives": ["n1", "n2"]})
    )
    assert mined.columns == flag.columns
    texts = load_data(lines(tmp_path / "c.jsonl", *({"texts": pair} for pair in PAIR)))
    assert texts.columns == ([a for a, _ in PAIR], [b for _, b in PAIR])
    path = tmp_path / "d.csv"
    # An empty cell is no list.
    path.write_text("query,passage,label\n,a cat,yes\na dog,two cats,no\n")
    with opened_file(path) as table:
        assert (table.description, table.remarks) == ("UTF-8 text separated by commas", ())


def test_all_splits_of_a_file_are_read_with_a_note_or_one_by_its_name(tmp_path):
    path = tmp_path / "all.tsv"
    rows = [
        f"{split}\t{a}\t{b}\t{score}"
        for split, (a, b), score in zip(("train", "dev", "test"), PAIR, (5, 1, 0), strict=True)
    ]
    path.write_text(
        "\n".join(["split\tsentence1\tsentence2\tscore", *rows]) + "\n", encoding="utf-8"
    )
    data = load_data(str(path))
    assert len(data) == 3
    assert (
        "the column split holds 1 train, 1 dev, 1 test: all rows are read; ?split= takes one"
        in data.notes
    )
    assert load_data(f"{path}?split=test").columns == (["He sings."], ["He reads."])
    with pytest.raises(InputError, match="no rows of the split 'final'; it has train, dev, test"):
        load_data(f"{path}?split=final")


def test_columns_as_pandas_writes_them_to_json(tmp_path):
    columns = {
        name: {str(at): pair[side] for at, pair in enumerate(PAIR)}
        for side, name in enumerate(("sentence1", "sentence2"))
    }
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps(columns), encoding="utf-8")
    assert load_data(str(path)).columns == ([a for a, _ in PAIR], [b for _, b in PAIR])


def test_a_workbook_with_an_empty_style_of_fills_is_read(tmp_path):
    empty = {"xl/styles.xml": (r"<fill>\s*<patternFill */>\s*</fill>", "<fill/>")}
    data = load_data(
        workbook(tmp_path / "a.xlsx", ("sentence1", "sentence2"), *PAIR, changes=empty)
    )
    assert (data.kind, len(data)) == (PAIRS, 3)


def test_formulas_without_a_value_and_error_cells_are_no_text(tmp_path):
    rows = [
        ("sentence1", "sentence2", "score"),
        (*PAIR[0], 4),
        ("A dog.", '=CONCAT("a","b")', 2),
        ("It snows.", "#N/A", 1),
    ]
    data = load_data(workbook(tmp_path / "a.xlsx", *rows))
    assert (data.kind, data.columns) == (SCORED, ([PAIR[0][0]], [PAIR[0][1]]))
    assert data.notes[0] == "2 rows with an empty sentence left out"


def test_an_escaped_escape_in_a_cell_is_its_text(tmp_path):
    change = {"xl/worksheets/sheet1.xml": ("PLACE", "_x005F_x000D_ code")}
    data = load_data(
        workbook(
            tmp_path / "a.xlsx", ("sentence1", "sentence2"), ("A cat.", "PLACE"), changes=change
        )
    )
    assert data.columns[1] == ["_x000D_ code"]


def test_titles_above_the_header_are_left_out_with_a_note(tmp_path):
    path = tmp_path / "report.csv"
    path.write_text("Ratings of May,,\n\nsentence1,sentence2,score\na cat,a dog,5\na car,a bus,0\n")
    data = load_data(str(path))
    assert (data.kind, data.scores) == (SCORED, [5, 0])
    assert any("The header seems to be in row 3" in note for note in data.notes)
    rows = [
        ("Ratings",),
        (),
        ("by", "me"),
        ("sentence1", "sentence2", "score"),
        (*PAIR[0], 4.5),
        (*PAIR[1], 0),
    ]
    assert load_data(workbook(tmp_path / "a.xlsx", *rows)).scores == [4.5, 0]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_pointer_of_git_lfs_is_named(tmp_path, suffix):
    path = tmp_path / f"data.{suffix}"
    path.write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12345\n"
    )
    with pytest.raises(InputError, match="is a Git LFS pointer and not the data: run git lfs pull"):
        load_data(str(path))


def test_labels_as_pandas_writes_them_beside_a_gap(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("sentence1,sentence2,label\na cat,a dog,1.0\na car,a bus,0.0\na sun,a moon,\n")
    data = load_data(str(path))
    assert (data.kind, [data.label_names[label] for label in data.labels]) == (LABELLED, ["1", "0"])


@pytest.mark.parametrize(
    ("labels", "values", "note"),
    [
        ("+-+", ["1", "0", "1"], "read as: + is 1, - is 0; 1 is a match, 0 is not"),
        ("121", ["1", "2", "1"], "labels (1, 2) that do not say which pairs are matches"),
    ],
)
def test_labels_with_unclear_names_are_read_with_a_note(tmp_path, labels, values, note):
    data = load_data(
        lines(
            tmp_path / "a.jsonl",
            *({"text1": "a", "text2": "b", "label": label} for label in labels),
        )
    )
    assert [data.label_names[label] for label in data.labels] == values
    assert note in data.notes[-1]


@pytest.mark.parametrize(
    ("row", "kind", "note"),
    [
        (
            {"anchor": "a", "positive": "b", "negative_1": "c", "negative_2": "d"},
            TRIPLETS,
            "the column negative_2",
        ),
        ({"sent0": "a", "sent1": "b", "hard_neg": "c"}, TRIPLETS, ""),
        (
            {"query": "a", "positive": "b", "negative": "c", "label": 1},
            TRIPLETS,
            "the column label",
        ),
        ({"#1 String": "a", "#2 String": "b", "Quality": "1"}, LABELLED, ""),
        (
            {"text1": "a", "text2": "b", "label": 1, "label_text": "not_entailment"},
            LABELLED,
            "the column label",
        ),
    ],
)
def test_columns_that_are_not_read_are_named(tmp_path, row, kind, note):
    data = load_data(lines(tmp_path / "a.jsonl", row))
    assert (data.kind, data.label_names) == (
        kind,
        (str(row[list(row)[-1]]).lower(),) * (kind == LABELLED),
    )
    assert [remark for remark in data.notes if "not read" in remark] == (
        [f"not read: {note}; ?columns= says which columns are"] if note else []
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"score": "★★★☆☆"}, r"row 1, column score: '★★★☆☆' is not a number; write a number"),
    ],
)
def test_scores_that_are_stars_are_to_be_written_as_numbers(tmp_path, row, message):
    with pytest.raises(InputError, match=message):
        load_data(lines(tmp_path / "a.jsonl", {"text1": "a", "text2": "b", **row}))


@pytest.mark.parametrize("second", ["text", "text.1"])
def test_the_second_of_two_columns_of_one_name_is_the_other_sentence(tmp_path, second):
    path = tmp_path / "a.csv"
    path.write_text(f"text,{second},score\na cat,a dog,1.5\n")
    assert load_data(str(path)).scores == [1.5]


def test_a_backslash_before_a_quote_is_an_escape_and_is_noted(tmp_path):
    path = tmp_path / "mysql.csv"
    path.write_text(
        'sentence1,sentence2,score\n"He said \\"hi, all\\" to me","A greeting",4.5\n"A dog","C:\\\\x",1\n'
    )
    data = load_data(str(path))
    assert data.columns == (['He said "hi, all" to me', "A dog"], ["A greeting", "C:\\x"])
    assert 'A backslash is read as an escape: \\" is a quotation mark.' in data.notes


@pytest.mark.parametrize(
    ("head", "rows"),
    [
        # R has no name above the numbers of its rows; some programs write two byte order marks, or
        # titles of two cells.
        ('"sentence1","sentence2","score"', ['"1","a cat","a dog",4', '"2","a car","a bus",0']),
        ("\ufeff\ufeffsentence1,sentence2,score", ["a cat,a dog,4", "a car,a bus,0"]),
        ("Written by,me,\nsentence1,sentence2,score", ["a cat,a dog,4", "a car,a bus,0"]),
    ],
)
def test_headers_that_are_not_quite_those_of_the_rows(tmp_path, head, rows):
    path = tmp_path / "a.csv"
    path.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    data = load_data(str(path))
    assert (data.columns, data.scores) == ((["a cat", "a car"], ["a dog", "a bus"]), [4, 0])


@pytest.mark.parametrize("more", ["Total,,42", "\ufeffsentence1,sentence2,label"])
def test_a_sum_or_a_header_among_labels_does_not_change_their_reading(tmp_path, more):
    path = tmp_path / "a.csv"
    path.write_text(
        f"sentence1,sentence2,label\na cat,a dog,1\n{more}\na car,a bus,0\n", encoding="utf-8"
    )
    assert load_data(str(path)).labels == [1, 0]
    with opened_file(path) as table:
        gold = GoldColumn.in_table(table, table.reading.pair())
    assert gold.read_as == "1 is a match, 0 is not"


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b'<table border="1">\n', "a web page: fetch the file itself, or save its table"),
        (b"{\\rtf1 a cat}\n", "an RTF document"),
        (b"\xff\xff\xff\xff\x10\x01", "an Arrow file: save it as Parquet"),
    ],
)
def test_files_of_other_kinds_are_named(tmp_path, start, kind):
    path = tmp_path / "a.csv"
    path.write_bytes(start)
    with pytest.raises(InputError, match=f"a.csv is {re.escape(kind)}"):
        load_data(str(path))


@pytest.mark.parametrize(
    "labels",
    [(["similar"], ["different"]), ([{"choices": ["similar"]}], [{"choices": ["different"]}])],
)
def test_a_list_of_one_label_is_the_label(tmp_path, labels):
    """doccano and Label Studio write them; a list of several stays none."""
    rows = [dict(zip(("sentence1", "sentence2"), pair, strict=True)) for pair in PAIR]
    cells = [*labels, ["similar", "different"]]
    data = load_data(
        lines(
            tmp_path / "a.jsonl",
            *({**row, "label": cell} for row, cell in zip(rows, cells, strict=True)),
        )
    )
    assert [data.label_names[label] for label in data.labels] == ["similar", "different"]
    assert "read as: similar is a match, different is not" in data.notes


def test_rows_that_are_lists_or_of_several_lines(tmp_path):
    """The training data of sentence-transformers, and what jq writes."""
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps(pair) for pair in PAIR), encoding="utf-8")
    assert (load_data(str(path)).kind, load_data(str(path)).columns[1][0]) == (PAIRS, PAIR[0][1])
    path.write_text(json.dumps([[*pair, 1.5] for pair in PAIR]), encoding="utf-8")
    assert load_data(f"{path}?scale=0-5").scores == [1.5] * 3
    path.write_text(
        json.dumps(["A cat.", "It rains.", "He sings.", "We go."], indent=1), encoding="utf-8"
    )
    assert load_data(str(path)).columns == (["A cat.", "It rains.", "He sings.", "We go."],)
    row = {"sentence1": "a cat", "sentence2": "a dog", "score": 4.5}
    path.write_text("\n".join(json.dumps(row, indent=2) for _ in range(2)), encoding="utf-8")
    data = load_data(str(path))
    assert (data.columns, data.scores) == ((["a cat"] * 2, ["a dog"] * 2), [4.5, 4.5])
    path.write_text(json.dumps(row, indent=2) + "\n{\n", encoding="utf-8")
    with pytest.raises(InputError, match="row 2: the JSON is broken here"):
        load_data(str(path))


def test_an_object_of_splits_is_a_column_of_splits(tmp_path):
    row = {"sentence1": "a cat", "sentence2": "a dog", "score": 4.5}
    path = tmp_path / "a.json"
    path.write_text(
        json.dumps({"train": [row, row], "test": [{**row, "score": 0}]}), encoding="utf-8"
    )
    assert load_data(f"{path}?split=test").scores == [0]
    assert (
        "the column split holds 2 train, 1 test: all rows are read; ?split= takes one"
        in load_data(str(path)).notes
    )


@pytest.mark.parametrize(
    "text",
    [
        'Timestamp,"What is so good here, and why?"\n2026/01/02 9:00:00 AM GMT+1,The room\n2026/01/03,The view\n',
        "What is good about it?,What could be better here?\nThe room,The view\nThe view,The room\n",
        'Id,text\nNo.,What is good?\n"{""ImportId"":""id""}","{""ImportId"":""Q5""}"\n1,The room\n2,The view\n',
    ],
)
def test_the_questions_of_a_form_are_no_row(tmp_path, text):
    """Google Forms, LimeSurvey and Qualtrics."""
    path = tmp_path / "a.csv"
    path.write_text(text, encoding="utf-8")
    with opened_file(path) as table:
        assert (len(table.columns), table.columns[0]) == (2, text.split(",")[0])
        assert next(table.batches()).rows[table.columns[1]][0] in ("The room", "The view")
        assert len(load_data(f"{path}?columns={table.columns[1]}")) == 2


def test_a_first_sentence_that_asks_is_a_row(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(
        "Where is the black cat?,Is the cat black?\nWhere is it?,It is here.\nYes.,No.\n",
        encoding="utf-8",
    )
    assert len(load_data(str(path))) == 3


def test_a_title_of_columns_above_the_header_may_be_a_usual_name(tmp_path):
    rows = [
        ("Sentences", None, "Gold"),
        ("sentence1", "sentence2", "score"),
        *((*pair, 4.5) for pair in PAIR),
    ]
    assert load_data(workbook(tmp_path / "a.xlsx", *rows)).scores == [4.5] * 3


def test_bytes_as_pandas_writes_them_are_their_text(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text(
        "sentence1\tsentence2\nb'a caf\\xc3\\xa9'\tb\"it's\"\nb'\tb'x\n", encoding="utf-8"
    )
    assert load_data(str(path)).columns == (["a café", "b'"], ["it's", "b'x"])


def test_a_question_and_a_sentence_are_a_pair(tmp_path):
    path = lines(
        tmp_path / "a.jsonl",
        {"question": "Who sings?", "sentence": "He sings.", "label": "entailment"},
    )
    assert load_data(path).columns == (["Who sings?"], ["He sings."])


@pytest.mark.parametrize(
    "head",
    ["Satz 1;Satz 2;Bewertung", "句子1;句子2;相似度", "фраза_1;фраза_2;оценка", "文1;文2;類似度"],
)
def test_names_of_columns_in_other_languages(tmp_path, head):
    path = tmp_path / "a.csv"
    rows = "".join(f"{at};{at + 7};{a};{b};4,5\n" for at, (a, b) in enumerate(PAIR))
    path.write_text(f"id1;id2;{head}\n{rows}", encoding="utf-8")
    data = load_data(str(path))
    assert (data.columns[1], data.scores) == ([b for _, b in PAIR], [4.5] * 3)
    path.write_text("rater1,rater2,answer\n4,5,12\n", encoding="utf-8")
    with pytest.raises(InputError, match="has the columns rater1, rater2, answer"):
        load_data(str(path))


def test_the_note_of_a_row_with_empty_lists_does_not_move_to_another_row(tmp_path):
    first, second = map(list, zip(*PAIR, strict=True))
    row = {"sent1": first, "sent2": second, "id": "a"}
    empty = {"sent1": [], "sent2": [], "id": "\ud83d"}
    # The layout is read from the first rows.
    path = lines(tmp_path / "a.jsonl", *[row] * 600, empty, row, row | {"id": "\ud83d"})
    noted = []
    for batch in with_rows_of_lists(open_table(path)).batches():
        noted += [batch.first_row + at for at in batch.notes]
    # Each of the 601 rows before the last one is three pairs.
    assert noted == [3 * 601 + 1]


@pytest.mark.parametrize(
    ("text", "what"), [("CafÃ© MÃ¼ller", "a wrong encoding"), ("It&#39;s me", "a web page")]
)
def test_letters_that_were_misread_before_are_named(tmp_path, text, what):
    path = lines(
        tmp_path / "a.jsonl",
        {"sentence1": "Très bien", "sentence2": text},
        {"sentence1": "é", "sentence2": "ü"},
    )
    [note] = load_data(path).notes
    assert note.startswith("sentence2 holds ") and what in note and text in note


def test_both_sentences_as_lists_of_one_length_are_as_many_pairs(tmp_path):
    """As in the older files of mteb, which are one row."""
    first, second = map(list, zip(*PAIR, strict=True))
    path = lines(tmp_path / "a.jsonl", {"sent1": first, "sent2": second, "labels": [1, 0, 1]})
    data = load_data(path)
    assert (list(zip(*data.columns, strict=True)), list(data.labels)) == (PAIR, [1, 0, 1])

    row = {"sent1": first, "sent2": second}
    path = lines(tmp_path / "a.jsonl", *[row] * 19, row | {"sent2": second[:2]})
    with pytest.raises(InputError, match="lists have different lengths: 3 in sent1, 2 in sent2"):
        load_data(path)


def test_a_batch_of_empty_lists_has_no_rows(tmp_path):
    row = {"sent1": ["a", "b"], "sent2": ["c", "d"], "labels": [1, 0]}
    path = lines(tmp_path / "a.jsonl", *[row] * 500, {key: [] for key in row})
    with opened_file(Path(path)) as table:
        assert [len(batch) for batch in table.batches(500)] == [1000]
