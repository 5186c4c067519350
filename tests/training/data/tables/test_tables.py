"""`tables/table.py`, `columns.py` and each format: what is written comes back, in any encoding."""

import csv
import io
import json
from datetime import datetime
from pathlib import Path

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from depth import examples
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from training.data.tables.cells import as_text, bad_number, parse_number
from training.data.tables.columns import PairColumns, free_name, unique_names
from training.data.tables.table import open_table
from training.data.tables.text import UnknownEncodingError, scan
from training.errors import InputError

PAIRS = [
    ("A man plays.", "Un café, déjà vu"),
    ('She said "no"', "two\nlines"),
    ("  spaces  ", "naïve; yes | no\tok"),
]
HEADER = ["sentence1", "sentence2"]


def rows_of(path: Path, size: int = 8192) -> list[tuple]:
    return [
        row
        for batch in open_table(path).batches(size)
        for row in zip(*batch.rows.values(), strict=True)
    ]


def notes_of(path: Path) -> dict[int, str]:
    return {
        batch.first_row + at: note
        for batch in open_table(path).batches()
        for at, note in batch.notes.items()
    }


def as_csv(rows, delimiter=",", **options) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, **options).writerows(rows)
    return text.getvalue()


def write_xlsx(path: Path, rows) -> None:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for line in book.active.iter_rows():
        for cell in line:
            if isinstance(cell.value, str):
                cell.data_type = "s"  # text that begins with "=" stays text
    book.save(path)


class TestFormats:
    @pytest.mark.parametrize(
        ("encoding", "words"),
        [("utf-8", "UTF-8"), ("utf-16-le", "UTF-16"), ("utf-16-be", "UTF-16")],
    )
    @pytest.mark.parametrize(("delimiter", "name"), [(";", "semicolons"), ("|", "vertical bars")])
    def test_delimited_text_in_any_encoding_is_named_in_words(
        self, tmp_path, encoding, words, delimiter, name
    ):
        path = tmp_path / "pairs.csv"
        path.write_bytes(as_csv([HEADER, *PAIRS], delimiter).encode(encoding))
        assert open_table(path).description == f"{words} text separated by {name}"
        assert rows_of(path) == PAIRS
        assert notes_of(path) == {}

    def test_json_lines_keep_their_types_and_find_late_columns(self, tmp_path):
        path = tmp_path / "pairs.jsonl"
        rows = [
            {"text1": "a", "text2": "ä", "score": 1},
            {"text1": None, "text2": "c", "score": 2.5, "new": [1]},
        ]
        path.write_text("\n".join(map(json.dumps, rows)))
        table = open_table(path)
        assert table.columns == ("text1", "text2", "score", "new")
        assert table.row_estimate == 2
        assert [str(field.type) for field in table.fields()] == [
            "string",
            "string",
            "double",
            "string",
        ]
        assert rows_of(path) == [("a", "ä", 1, None), (None, "c", 2.5, [1])]

    def test_a_json_array_is_read_object_by_object(self, tmp_path):
        path = tmp_path / "pairs.json"
        rows = [
            {"sentence1": f"a {i}" * 30, "sentence2": "b", "nested": {"x": [1, {"y": "}],{"}]}}
            for i in range(5_000)
        ]
        path.write_text(json.dumps(rows, indent=1))
        assert open_table(path).row_estimate == 5_000
        # Objects are taken apart, and lists stay.
        assert rows_of(path)[-1] == (*list(rows[-1].values())[:2], rows[-1]["nested"]["x"])

    def test_parquet_hands_its_types_on(self, tmp_path):
        path = tmp_path / "pairs.parquet"
        when = pa.array([datetime(2026, 1, 1), None], pa.timestamp("ns"))
        table = pa.table({"s1": ["a", None], "s2": ["b", "c"], "when": when, "tags": [["x"], []]})
        pq.write_table(table, path)
        batch = next(open_table(path).batches())
        assert batch.arrow.schema.types == table.schema.types
        assert batch.rows["s1"] == ["a", None]
        assert [field.type for field in open_table(path).fields()] == table.schema.types

    def test_a_workbook_is_text_as_the_cells_read(self, tmp_path):
        path = tmp_path / "pairs.xlsx"
        write_xlsx(
            path,
            [
                ["s1", "s2", "score", "day", "ok"],
                ["a", "ü", 4.2, datetime(2026, 11, 21), True],
                ["b"],
            ],
        )
        assert rows_of(path) == [
            ("a", "ü", "4.2", "2026-11-21", "TRUE"),
            ("b", None, None, None, None),
        ]

    def test_the_first_sheet_with_anything_in_it(self, tmp_path):
        path = tmp_path / "pairs.xlsx"
        book = openpyxl.Workbook()
        book.create_sheet("hidden").sheet_state = "hidden"
        book["hidden"].append(["no", "no"])
        sheet = book.create_sheet("pairs")
        sheet.append(HEADER)
        sheet.append(["a", "b"])
        book.save(path)
        table = open_table(path)
        assert table.description == "Workbook, sheet pairs"
        assert rows_of(path) == [("a", "b")]

    def test_a_sheet_with_both_sentences_in_a_cell_can_be_named(self, tmp_path):
        path = tmp_path / "pairs.xlsx"
        book = openpyxl.Workbook()
        for title in ("one", "two"):
            sheet = book.create_sheet(title)
            sheet.append(["text", "score"])
            sheet.append([f"{title} cat\n{title} dog", 3])
        book.save(path)
        table = open_table(path, sheet="two")
        assert table.columns == ("sentence1", "sentence2", "score")
        assert table.preview().rows["sentence1"] == ["two cat"]
        assert (table.sheet, table.sheets) == ("two", ("one", "two"))
        assert not table.is_default_sheet

    def test_the_bytes_decide_the_format_not_the_name(self, tmp_path):
        path = tmp_path / "a.csv"
        pq.write_table(pa.table({"s1": ["a"], "s2": ["b"]}), path)
        assert open_table(path).description == "Parquet"
        path.write_text('{"s1": "a", "s2": "b"}\n')
        assert rows_of(path) == [("a", "b")]


CELL = st.text(
    st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\t\r\n"), max_size=30
)
XML_CELL = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"),
    min_size=1,
    max_size=30,
)
ROWS = st.lists(st.tuples(CELL, CELL), min_size=1, max_size=12)
ROUND_TRIP = settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


class TestRoundTrips:
    """Any Unicode text that a program writes comes back equal."""

    @ROUND_TRIP
    @given(
        ROWS,
        st.sampled_from([",", ";", "\t"]),
        st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"]),
    )
    # A file of nothing else is no text.
    @example([("control\x01 characters\x7f", "here and there\x1f")], ",", "utf-8")
    @example([("", "\r\t")], "\t", "utf-8")  # its first line looks complete, and its quotes are odd
    def test_csv_is_read_back_as_it_was_written(self, tmp_path, rows, delimiter, encoding):
        path = tmp_path / "pairs.csv"
        text = as_csv([HEADER, *rows], delimiter, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
        path.write_bytes(text.encode(encoding))
        assert rows_of(path, size=5) == rows

    @ROUND_TRIP
    @given(ROWS)
    def test_json_and_parquet_are_read_back_as_they_were_written(self, tmp_path, rows):
        objects = [dict(zip(HEADER, row, strict=True)) for row in rows]
        (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, objects)))
        (tmp_path / "pairs.json").write_text(
            json.dumps(objects, ensure_ascii=False), encoding="utf-8"
        )
        pq.write_table(pa.Table.from_pylist(objects), tmp_path / "pairs.parquet")
        for name in ("pairs.jsonl", "pairs.json", "pairs.parquet"):
            assert rows_of(tmp_path / name, size=5) == rows

    @settings(ROUND_TRIP, max_examples=15)
    @given(st.lists(st.tuples(XML_CELL, XML_CELL), min_size=1, max_size=6))
    def test_xlsx_is_read_back_as_it_was_written(self, tmp_path, rows):
        path = tmp_path / "pairs.xlsx"
        write_xlsx(path, [HEADER, *rows])
        assert rows_of(path, size=5) == rows


class TestEncoding:
    def test_a_foreign_byte_at_row_200_000_is_found_before_reading_starts(self, tmp_path):
        path = tmp_path / "pairs.csv"
        path.write_bytes(
            b"sentence1,sentence2\n" + b"plain,ascii\n" * 200_000 + "déjà,vu\n".encode("cp1252")
        )
        table = open_table(path)
        assert table.description.startswith("Windows-1252")
        assert table.row_estimate == 200_001
        for batch in table.batches():
            last = batch
        assert last.rows["sentence1"][-1] == "déjà"

    def test_codes_that_fit_no_encoding_are_refused_until_one_is_named(self, tmp_path):
        path = tmp_path / "pairs.csv"
        path.write_bytes(b"s1,s2\n" + bytes(range(128, 256)) + b",x\n")
        with pytest.raises(
            UnknownEncodingError, match=r"Name its encoding \(--encoding\), such as windows-1252"
        ):
            scan(path)
        assert scan(path, "latin-1").encoding in ("latin-1", "iso8859-1")

    def test_broken_bytes_are_marked_and_do_not_turn_good_utf8_into_nonsense(self, tmp_path):
        path = tmp_path / "pairs.csv"
        path.write_bytes(b"s1,s2\n" + "déjà,vu\n".encode() * 50 + b"bro\xffken,x\n")
        assert rows_of(path)[0] == ("déjà", "vu")
        assert rows_of(path)[-1] == ("bro\ufffdken", "x")
        assert notes_of(path) == {51: "holds bytes that are not UTF-8, shown as �"}
        path.write_bytes("s1,s2\nä,ö\nä,ö\nä,ö\nä,ö\nä,ö\nä,ü".encode()[:-1])
        assert rows_of(path)[-1] == ("ä", "\ufffd")

    def test_a_line_of_17_megabytes_is_refused_before_it_fills_the_memory(self, tmp_path):
        path = tmp_path / "pairs.csv"
        path.write_bytes(b"s1,s2\na,b\n" + b"x" * (17 << 20))
        with pytest.raises(InputError, match=r"line 3, is longer than 16 MB"):
            open_table(path)


class TestQuotes:
    def test_an_unclosed_quote_costs_a_note_not_the_rest_of_the_file(self, tmp_path):
        path = tmp_path / "pairs.csv"
        path.write_text('s1,s2\na,b\n"open,c\n' + "d,e\n" * 1000)
        assert rows_of(path)[1:3] == [('"open', "c"), ("d", "e")]
        assert len(rows_of(path)) == 1002
        assert list(notes_of(path)) == [2]

    def test_text_behind_a_closing_quote_stays(self, tmp_path):
        path = tmp_path / "pairs.csv"
        path.write_text('s1,s2\n"Yes" he said,ok\n"Yes, well" he said,ok\n')
        assert rows_of(path) == [('"Yes" he said', "ok"), ("Yes, well he said", "ok")]
        assert list(notes_of(path)) == [1, 2]

    def test_a_tab_separated_file_is_quoted_or_never_was(self, tmp_path):
        path = tmp_path / "pairs.tsv"
        path.write_text('s1\ts2\n"Hello\tthere\n"whole"\tx\nsaid "so"\ty\n"Bye\tnow\n')
        assert rows_of(path) == [
            ('"Hello', "there"),
            ('"whole"', "x"),
            ('said "so"', "y"),
            ('"Bye', "now"),
        ]
        assert notes_of(path) == {}
        assert any("never quoted" in remark for remark in open_table(path).remarks)
        path.write_text('s1\ts2\na\t"two\nlines"\nb\t"say ""x"""\n')
        assert rows_of(path) == [("a", "two\nlines"), ("b", 'say "x"')]

    def test_a_field_of_many_megabytes(self, tmp_path):
        path = tmp_path / "pairs.csv"
        path.write_text("s1,s2\n" + "x" * 11_000_000 + ",b\nc,d\n")
        assert [len(row[0]) for row in rows_of(path)] == [11_000_000, 1]


class TestRows:
    def test_ragged_rows_are_kept_with_a_note_that_loses_nothing(self, tmp_path):
        path = tmp_path / "pairs.csv"
        path.write_text("s1,s2,score\na,b\na,b,1,surplus,more\na,b,1\n")
        assert rows_of(path) == [("a", "b", None), ("a", "b", "1"), ("a", "b", "1")]
        assert notes_of(path) == {
            1: "2 fields where the header has 3",
            2: "5 fields where the header has 3; beyond the header: surplus | more",
        }

    def test_empty_lines_keep_their_place_but_not_at_the_end(self, tmp_path):
        path = tmp_path / "pairs.csv"
        path.write_text("\n\ns1,s2\na,b\n\n\nc,d\n\n\n")
        assert rows_of(path) == [("a", "b"), (None, None), (None, None), ("c", "d")]
        assert notes_of(path) == {2: "an empty line", 3: "an empty line"}

    @pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\r\r\n"])
    def test_line_ends_of_every_system(self, tmp_path, end):
        path = tmp_path / "pairs.csv"
        path.write_bytes(end.join(["s1,s2", "a,b", "c,d"]).encode())
        assert rows_of(path) == [("a", "b"), ("c", "d")]

    def test_excels_line_of_the_delimiter(self, tmp_path):
        path = tmp_path / "pairs.csv"
        path.write_text("sep=|\ns1|s2\na, b; c|d\n" + "a|b\n" * 30)
        assert rows_of(path)[0] == ("a, b; c", "d")
        assert len(open_table(path).preview(10)) == 10

    def test_one_sentence_a_line_keeps_its_commas(self, tmp_path):
        path = tmp_path / "corpus.txt"
        path.write_text("sentence\nWell, yes.\nNo; or, perhaps, yes.\n")
        # It has no header.
        assert rows_of(path) == [("sentence",), ("Well, yes.",), ("No; or, perhaps, yes.",)]

    def test_row_numbers_go_on_across_batches_and_parts(self, tmp_path):
        path = tmp_path / "pairs.csv"
        path.write_text("s1,s2\n" + "".join(f"{i},x\n" for i in range(1, 11)) + "only\n")
        batches = list(open_table(path).batches(4))
        assert [batch.first_row for batch in batches] == [1, 5, 9]
        part = batches[2].part(1, 3)
        assert (part.first_row, part.rows["s1"], list(part.notes)) == (10, ["10", "only"], [1])


class TestHeader:
    def test_a_first_line_of_data_is_no_header(self, tmp_path):
        path = tmp_path / "pairs.csv"
        path.write_text("A man is playing a guitar.,A man plays.,4.2\na,b,1\n")
        table = open_table(path)
        assert table.columns == ("column_1", "column_2", "column_3")
        assert len(rows_of(path)) == 2
        assert table.remarks == (
            "The first line is data, not a header, so the columns are called column_1 to column_3.",
        )

    def test_names_become_different_in_more_than_case_and_the_user_is_told(self):
        names, remarks = unique_names(["text", "text", "", "text_2"])
        assert names == ("text", "text_3", "column_3", "text_2")
        assert len(remarks) == 2
        assert free_name("cosine", ["Cosine", "cosine_2"]) == "cosine_3"


def table_with(tmp_path, *columns, row=None):
    path = tmp_path / "pairs.csv"
    path.write_text(as_csv([columns, row or ["x"] * len(columns)]))
    return open_table(path)


class TestPickColumns:
    def test_pairs_are_found_by_name(self, tmp_path):
        for columns, pair in {
            ("Sentence 1", "SENTENCE_2"): ("Sentence 1", "SENTENCE_2"),
            ("id", "text_a", "text_b"): ("text_a", "text_b"),
            ("premise", "hypothesis", "label"): ("premise", "hypothesis"),
            ("query", "passage"): ("query", "passage"),
        }.items():
            columns_of_pairs = table_with(tmp_path, *columns).reading.pair()
            assert (columns_of_pairs.sentence1, columns_of_pairs.sentence2) == pair

    def test_triplets_are_found_by_name(self, tmp_path):
        found = table_with(tmp_path, "anchor", "positive", "negative").reading.pair()
        assert found == PairColumns("anchor", "positive", negative="negative")

    def test_columns_that_are_named_are_found_in_any_case(self, tmp_path):
        table = table_with(tmp_path, "s1", "s2", "mine", "yours", "rank", "score")
        assert table.reading.with_columns(["yours", "MINE"]).pair() == PairColumns(
            "yours", "mine", score="score"
        )
        assert table.reading.with_columns(["yours", "mine", "rank"]).target == "rank"

    def test_without_two_columns_of_sentences_what_is_needed_is_told(self, tmp_path):
        with pytest.raises(
            InputError, match="foo, bar, baz, but two with sentences are needed: call them sen"
        ):
            table_with(tmp_path, "foo", "bar", "baz").reading.pair()

    def test_a_numeric_label_is_a_score_but_for_nli(self, tmp_path):
        assert (
            table_with(tmp_path, "s1", "s2", "label", row=["a", "b", "3.5"]).reading.pair().score
            == "label"
        )
        assert (
            table_with(tmp_path, "s1", "s2", "label", row=["a", "b", "yes"]).reading.pair().label
            == "label"
        )
        nli = table_with(
            tmp_path, "premise", "hypothesis", "label", row=["a", "b", "0"]
        ).reading.pair()
        assert (nli.score, nli.label) == (None, "label")
        for name in ("Similarity_Score", "gold", "relatedness"):
            assert table_with(tmp_path, "s1", "s2", name).reading.pair().score == name

    def test_columns_that_do_not_exist_or_repeat_are_refused(self, tmp_path):
        for requested, message in {
            ("s1", "nope"): "has no column 'nope'; it has the columns s1, s2, score",
            ("s1", "s1"): "name two different columns",
            ("s1", "s2", "score", "s1"): "Name one column, two, or three",
        }.items():
            with pytest.raises(InputError, match=message):
                table_with(tmp_path, "s1", "s2", "score").reading.with_columns(requested)

    def test_a_single_sentence_column(self, tmp_path):
        assert table_with(tmp_path, "id", "Text").reading.sentence() == "Text"
        assert table_with(tmp_path, "whatever").reading.sentence() == "whatever"
        assert table_with(tmp_path, "id", "x").reading.with_columns(["X"]).sentence() == "x"
        with pytest.raises(InputError, match="call the one to use sentence"):
            table_with(tmp_path, "id", "x").reading.sentence()


def test_cells_are_read_as_numbers():
    numbers = {
        "4.2": 4.2,
        " -1.5 ": -1.5,
        "0,85": 0.85,
        "1e-3": 0.001,
        3: 3.0,
        True: 1.0,
        ".5": 0.5,
    }
    assert [parse_number(value) for value in numbers] == [*numbers.values()]
    for value in ("abc", "", "NaN", "inf", float("nan"), None, "1,2,3", [1]):
        assert parse_number(value) is None


def test_a_complaint_about_a_number_names_row_and_column():
    assert bad_number("score", "abc", 17) == "row 17, column score: 'abc' is not a number"


def test_cells_are_read_as_text():
    for value in (None, "", " \t", float("nan")):
        assert as_text(value) is None
    assert [as_text(value) for value in ("a", 5, b"\xc3\xa4")] == ["a", "5", "ä"]
