"""`tables/`, files as people really have them: refused with one clear line, or scored with bad rows marked.

``REFUSED`` maps a file to words of the sentence that refuses it; ``SCORED`` to how many rows come
out, how many of them have a cosine, and what the note says at which row. No file crashes, and no
row is lost.
"""

import csv
import gzip
import io
import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bag_encoder import BagEncoder

from sbert_app.services.files.layout import Layout
from sbert_app.services.files.score import score_file
from training.data.load import load_data
from training.data.tables.table import open_table
from training.errors import InputError

GOOD = (
    "sentence1,sentence2,score\nA man plays.,A man plays music.,4.5\nA dog runs.,A cat sleeps.,1\n"
)
Content = bytes | str | Callable[[], bytes]


@dataclass(frozen=True)
class Refused:
    name: str
    content: Content
    says: str


@dataclass(frozen=True)
class Scored:
    name: str
    content: Content
    rows: int
    scored: int
    notes: dict[int, str] = field(default_factory=dict)


def parquet(table: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=10)
    return file.getvalue()


def workbook(*rows, corner: str = "") -> bytes:
    book = openpyxl.Workbook()
    file = io.BytesIO()
    for row in rows:
        book.active.append(row)
    if corner:
        book.active[corner] = "far"
    book.save(file)
    return file.getvalue()


def archive(**files: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as zipped:
        for name, content in files.items():
            zipped.writestr(name.replace("__", "/"), content)
    return out.getvalue()


def broken_parquet_page() -> bytes:
    """The footer is whole, the bytes of the first column are not."""
    whole = bytearray(
        parquet(pa.table({"s1": [f"sentence {i}" for i in range(500)], "s2": ["b"] * 500}))
    )
    whole[4:400] = b"\xff" * 396
    return bytes(whole)


def broken_sheet() -> bytes:
    """A workbook whose sheet ends in the middle of a tag."""
    whole = workbook(["s1", "s2"], ["a", "b"])
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(whole)) as source, zipfile.ZipFile(out, "w") as target:
        for entry in source.namelist():
            content = source.read(entry)
            target.writestr(
                entry, content[: len(content) // 2] if entry.endswith("sheet1.xml") else content
            )
    return out.getvalue()


def huge_cell() -> bytes:
    """A workbook of 0.1 MB whose one cell unpacks to 40 MB."""
    content = io.BytesIO()
    small = zipfile.ZipFile(io.BytesIO(workbook(["sentence1", "sentence2"], ["A", "B"])))
    with small, zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as large:
        for name in small.namelist():
            large.writestr(name, small.read(name).replace(b"A</t>", b"word " * (8 << 20) + b"</t>"))
    return content.getvalue()


def binary_strings() -> bytes:
    """A Parquet string column that holds bytes which are no UTF-8."""
    raw = pa.array([b"good", b"caf\xe9"], pa.binary()).view(pa.string())
    return parquet(pa.table({"s1": raw, "s2": ["a", "b"]}))


REFUSED = {
    "an empty file": Refused("a.csv", b"", "is empty"),
    "only a byte order mark": Refused("a.csv", b"\xef\xbb\xbf", "is empty"),
    "a header without rows": Refused(
        "a.csv",
        "sentence1,sentence2\n",
        "has a header with the columns sentence1, sentence2, but no rows",
    ),
    "a wall of columns": Refused(
        "a.csv", ",".join(f"c{i}" for i in range(5_000)) + "\n" + "," * 4_999, "5,000 columns"
    ),
    "a zip named .csv": Refused("a.csv", archive(inside=b"x"), "is a zip archive: unpack it first"),
    "a gzip named .csv": Refused("a.csv", gzip.compress(GOOD.encode()), "gzip archive"),
    "an OpenDocument that is no sheet": Refused(
        "a.csv", archive(**{"content.xml": b"<x/>"}), "damaged workbook"
    ),
    "a Word document": Refused(
        "a.xlsx", archive(**{"word/document.xml": b"<x/>"}), "a Word document"
    ),
    "half an old workbook": Refused(
        "a.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600, "damaged workbook"
    ),
    "a workbook with a cell in its farthest corner": Refused(
        "a.xlsx",
        lambda: workbook(["s1", "s2"], ["a", "b"], corner="XFD1048576"),
        "or too large to read",
    ),
    "an image": Refused("a.csv", b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4, "an image"),
    "a PDF": Refused("a.csv", b"%PDF-1.7\n%\xe2\xe3\n", "a PDF"),
    "random bytes": Refused("a.csv", bytes(range(256)) * 40, "is not a text file"),
    "UTF-16 that breaks off": Refused(
        "a.csv", GOOD.encode("utf-16")[:-1], "begins as UTF-16, but breaks it"
    ),
    "text named .parquet": Refused("a.parquet", GOOD, "is named .parquet, but it is not one"),
    "half a Parquet file": Refused(
        "a.parquet", lambda: parquet(pa.table({"s1": ["a"] * 99}))[:200], "no complete Parquet"
    ),
    "Parquet without rows": Refused(
        "a.parquet", lambda: parquet(pa.table({"s1": [], "s2": []})), "holds no rows"
    ),
    "Parquet with a broken page": Refused("a.parquet", broken_parquet_page, "broken"),
    "half a workbook": Refused(
        "a.xlsx", lambda: workbook(["s1", "s2"], ["a", "b"])[:3_000], "damaged"
    ),
    "a workbook with a broken sheet": Refused("a.xlsx", broken_sheet, "damaged workbook"),
    "a workbook with a header alone": Refused("a.xlsx", lambda: workbook(["s1", "s2"]), "no rows"),
    "no JSON": Refused("a.jsonl", "sentence1 sentence2\na b\n", "row 1 is not JSON"),
    "JSON lists": Refused("a.jsonl", '["a", 1]\n["c", 2]\n', "not a JSON object"),
    "JSON nested without end": Refused("a.jsonl", "[" * 100_000, "broken"),
    "an array that breaks off": Refused(
        "a.json", '[{"s1": "a", "s2": "b"}, {"s1": "c"', "row 2: the JSON is broken"
    ),
    "a workbook whose cell unpacks to 40 MB": Refused(
        "a.xlsx", huge_cell, "a cell of more than 1 MB"
    ),
}

SCORED = {
    "Latin-1": Scored("a.csv", "sentence1,sentence2\ncafé,thé\n".encode("latin-1"), 1, 1),
    "missing text": Scored("a.csv", "s1,s2\na,\n,b\n,\na,b\n", 4, 1, {1: "in s2", 2: "in s1", 3: "s1 and s2"}),
    "a row too short": Scored("a.csv", "s1,s2,score\na,b,1\nonly\na,b,2\n", 3, 2, {2: "1 field where"}),
    "scores that are no numbers": Scored(
        "a.csv", "s1,s2,score\na,b,abc\na,b,NaN\na,b,\na,b,inf\na,b,2\n", 5, 5,
        {1: "column score: 'abc' is not a number", 2: "'NaN' is not a number", 4: "'inf' is not a number"},
    ),
    "scores with a decimal comma": Scored("a.csv", "s1;s2;score\na;b;2,5\nc;d;0,1\n", 2, 2),
    "zero bytes in the text": Scored("a.csv", b"s1,s2\na\0b,c\nd,e\n", 2, 2, {1: "zero byte"}),
    "column names twice": Scored("a.csv", "s1,s2,s1,\na,b,c,d\n", 1, 1),
    "ten thousand words": Scored("a.csv", "s1,s2\n" + "word " * 10_000 + ",word\n", 1, 1, {1: "cut at 512 tokens"}),
    "no name at all": Scored("pairs", GOOD, 2, 2),
    "three columns without a header": Scored("a.csv", "He walks home.,She runs.,2.5\nIt is so.,So it is.,1\n", 2, 2),
    "two columns without a header": Scored("a.csv", "The sun shines today.,It is sunny.\nHe ran.,She ran.\n", 2, 2),
    "emoji and every script": Scored("a.csv", "s1,s2\n👩‍👩‍👧‍👦 💚,שלום\n你好,ไทย\n", 2, 2),
    "a column called cosine": Scored("a.csv", "s1,s2,cosine,note\na,b,mine,mine\n", 1, 1),
    "lines that are no JSON": Scored(
        "a.jsonl", '{"s1": "a", "s2": "b"}\nnonsense\n[1]\n{"s1": "a", "s2": "c"}\n', 4, 2,
        {2: "is not JSON", 3: "not a JSON object"},
    ),
    "half characters in JSON": Scored("a.jsonl", '{"s1": "\\ud83d", "s2": "b"}\n', 1, 1, {1: "half a character"}),
    "half characters in lists": Scored(
        "a.jsonl", '["a \\ud83d", "b"]\n["c", "d"]\n', 2, 2, {1: "half a character"}
    ),
    "numbers for sentences": Scored("a.jsonl", '{"s1": 5, "s2": null}\n{"s1": 5, "s2": "five"}\n', 2, 1, {1: "s2"}),
    "a number too long for JSON": Scored(
        "a.jsonl", '{"s1": "a", "s2": "b"}\n{"s1": ' + "9" * 5_000 + "}\n", 2, 1, {2: "is not JSON"}
    ),
    "Parquet with bytes that are no text": Scored("a.parquet", binary_strings, 2, 2, {2: "not UTF-8"}),
    "Parquet with names twice": Scored(
        "a.parquet", lambda: parquet(pa.Table.from_arrays([pa.array(["a"])] * 3, ["s1", "s2", "s1"])), 1, 1
    ),
    "a workbook with gaps": Scored(
        "a.xlsx", lambda: workbook([], [None, "s1", "s2"], [None, "a", "b"], [], ["x", None, "c"]), 3, 1,
        {2: "an empty line", 3: "no text in s1"},
    ),
    "numbers and formulas": Scored("a.xlsx", lambda: workbook(["s1", "s2"], [1, 2.5], ["=A1", "x"]), 2, 1, {2: "s1"}),
}  # fmt: skip


def put(folder: Path, case: Refused | Scored) -> Path:
    content = case.content() if callable(case.content) else case.content
    path = folder / case.name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("name", REFUSED)
def test_a_malformed_file_is_refused_with_one_clear_line(tmp_path, name):
    case = REFUSED[name]
    path = put(tmp_path, case)
    with pytest.raises(InputError, match=case.says) as error:
        score_file(path, [tmp_path / "out.csv", tmp_path / "out.parquet"], BagEncoder())
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500
    assert [file.name for file in tmp_path.iterdir()] == [case.name], "nothing half-written stays"


@pytest.mark.parametrize("name", SCORED)
def test_a_malformed_file_is_scored_with_its_bad_rows_marked(tmp_path, name):
    case = SCORED[name]
    path = put(tmp_path, case)
    before = path.read_bytes()
    outputs = [tmp_path / "scored.csv", tmp_path / "scored.parquet"]
    summary = score_file(path, outputs, BagEncoder())
    assert (summary.rows, summary.scored) == (case.rows, case.scored)

    cosine = summary.added["cosine"]
    note = summary.added["note"]
    layout = Layout.of(open_table(path))
    delimiter = "," if layout.delimiter == "\t" else layout.delimiter
    with outputs[0].open(encoding=layout.encoding, newline="") as file:
        written = list(csv.DictReader(file, delimiter=delimiter))
    assert len(written) == case.rows
    assert sum(row[cosine] != "" for row in written) == case.scored
    assert {at for at, row in enumerate(written, start=1) if row[note]} == set(case.notes)
    for at, words in case.notes.items():
        assert words in written[at - 1][note]

    typed = pq.read_table(outputs[1], columns=[cosine, note]).to_pydict()
    assert [value or "" for value in typed[note]] == [row[note] for row in written]
    texts = [
        f"{value:.6f}".replace(".", layout.decimal) if value is not None else ""
        for value in typed[cosine]
    ]
    assert texts == [row[cosine] for row in written]
    assert path.read_bytes() == before
    json.dumps(summary.to_dict(), allow_nan=False)


def test_devices_pipes_and_folders_are_not_opened_as_tables(tmp_path):
    """Nobody writes to the pipe: opening it would wait for ever."""
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    (tmp_path / "link.csv").symlink_to(tmp_path / "pipe.csv")
    with pytest.raises(InputError, match="is a folder; name a file in it, or beir:"):
        load_data(str(tmp_path))
    for path in (
        "pipe.csv",
        "link.csv",
        "zero.csv",
        "/dev/zero",
        "nowhere.csv",
        "missing/folder/a.csv",
    ):
        for read in (open_table, lambda path: load_data(str(path))):
            with pytest.raises(InputError, match=r"is not a file|neither a file|There is no file"):
                read(tmp_path / path)


def test_a_quoted_field_of_many_lines_is_bounded_as_a_line_is(tmp_path):
    """A quote that is never closed: 60 MB of it took 6 to 8 GB."""
    path = tmp_path / "open.csv"
    path.write_text('s1,s2\n"an open quote,b\n' + "and a line that goes on in it,c\n" * 100_000)
    rows = [
        row
        for batch in open_table(path).batches()
        for row in zip(*batch.rows.values(), strict=True)
    ]
    assert max(len(cell or "") for row in rows for cell in row) <= 2_000_000


def test_cells_that_repeat_are_held_once(tmp_path):
    """Two million rows of one pair took 5.6 GB."""
    texts = pa.array(["This sentence is the same in every row of the file."] * 1_000)
    pq.write_table(pa.table({"sentence1": texts, "sentence2": texts}), tmp_path / "same.parquet")
    columns = load_data(str(tmp_path / "same.parquet")).columns
    assert len({id(cell) for cells in columns for cell in cells}) == 1
