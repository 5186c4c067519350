"""`tables/cells.py`: nested JSON, numbers of other countries, times of unknown places."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from training.data.load import load_data
from training.data.tables.cells import as_text, parse_number
from training.data.tables.table import open_table
from training.errors import InputError

COLUMNS = {
    "sentence1": ["A cat.", "A dog."],
    "sentence2": ["A lion.", "A wolf."],
    "score": [4, 3.5],
}


@pytest.mark.parametrize(("name", "indent"), [("pairs.json", 2), ("pairs.jsonl", None)])
def test_an_object_of_columns_is_read_as_columns(tmp_path, name, indent):
    path = tmp_path / name
    path.write_text(json.dumps(COLUMNS, indent=indent))
    table = open_table(path)
    assert next(table.batches()).rows == COLUMNS
    assert table.row_estimate == 2
    assert table.description.startswith("a JSON object of columns")
    assert load_data(str(path)).columns[0] == ["A cat.", "A dog."]


@pytest.mark.parametrize("second", [["A lion."], {"a": 1}])
def test_other_nesting_is_no_sentence(tmp_path, second):
    path = tmp_path / "pairs.jsonl"
    rows = [
        {"sentence1": ["A", "cat."], "sentence2": second},
        {"sentence1": "A dog.", "sentence2": "A wolf."},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    cells = next(open_table(path).batches()).rows
    assert as_text(cells["sentence1"][0]) is None
    data = load_data(str(path))
    assert data.columns == (["A dog."], ["A wolf."])
    assert "1 row with an empty sentence left out" in data.notes


@pytest.mark.parametrize("text", ["1.234,56", "1 234,5", "1'234.5", "1.234.567", "0x10", "1_000"])
def test_a_number_that_reads_differently_elsewhere_is_none_everywhere(tmp_path, text):
    assert parse_number(text) is None
    path = tmp_path / "pairs.csv"
    path.write_text(f'sentence1,sentence2,score\nA,B,"{text}"\nC,D,1\n')
    with pytest.raises(InputError, match=r"row 1, column score: .* is not a number"):
        load_data(str(path))


def test_a_time_zone_that_nobody_knows(tmp_path):
    path = tmp_path / "pairs.parquet"
    times = pa.array([0, 1], pa.timestamp("s", tz="Mars/Olympus"))
    pq.write_table(
        pa.table({"sentence1": ["A", "B"], "sentence2": ["C", "D"], "when": times}), path
    )
    read = next(open_table(path).batches()).rows["when"]
    assert [text[:19] for text in read] == ["1970-01-01 00:00:00", "1970-01-01 00:00:01"]


def test_a_long_text_that_repeats_comes_in_small_batches(tmp_path):
    path = tmp_path / "long.parquet"
    long = pa.array(["word " * 200_000])  # a megabyte, stored once
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 60), long).cast(pa.string())
    pq.write_table(pa.table({"sentence1": texts, "sentence2": ["B"] * 60}), path)
    assert path.stat().st_size < 200_000
    batches = open_table(path).batches()
    assert len(next(batches)) == 16


def test_a_text_that_is_no_sentence_is_refused(tmp_path):
    path = tmp_path / "huge.parquet"
    pq.write_table(pa.table({"sentence1": ["word " * 1_000_000], "sentence2": ["B"]}), path)
    with pytest.raises(InputError, match=r"huge\.parquet has a cell of 5 MB"):
        open_table(path)
