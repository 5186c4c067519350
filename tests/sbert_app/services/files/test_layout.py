"""What comes out of a file has the format, the layout and the columns of what went in."""

import openpyxl
import pytest
from bag_encoder import BagEncoder

from sbert_app.services.files.doctor import clean, examine
from sbert_app.services.files.layout import Layout, suffix_like
from sbert_app.services.files.matches import MatchOutputs, apply_threshold
from sbert_app.services.files.score import score_file
from training.data.load import load_data
from training.data.tables.table import open_table

GERMAN = (
    "Ticket-Nr;Satz A;Satz B;Wert\n7;Öffnen.;Öffnen.;4,5\n8;=1+1;Zu.;0,5\n9;Regen.;Sonne.;1,5\n"
)
COLUMNS = ["Satz A", "Satz B", "Wert"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "cp1252", "utf-16", "utf-8"])
def test_semicolons_byte_order_mark_and_decimal_commas_are_kept(tmp_path, encoding):
    path = tmp_path / "in.csv"
    output = tmp_path / "out.csv"
    path.write_bytes(GERMAN.encode(encoding))
    score_file(path, [output], BagEncoder(), columns=COLUMNS)
    assert output.read_bytes().startswith(b"\xef\xbb\xbf") == (encoding != "utf-8")
    header, first, *_ = output.read_text(encoding="utf-8-sig").splitlines()
    assert header == "Ticket-Nr;Satz A;Satz B;Wert;cosine;note"
    assert first == "7;Öffnen.;Öffnen.;4,5;1,000000;"
    again = open_table(output)
    assert (again.columns[-2:], again.row_estimate) == (("cosine", "note"), 3)
    tabs = tmp_path / "in.tsv"
    output = tmp_path / "out.tsv"
    tabs.write_bytes(GERMAN.replace(";", "\t").encode(encoding))
    score_file(tabs, [output], BagEncoder(), columns=COLUMNS)
    assert output.read_text(encoding="utf-8-sig").splitlines()[1] == first.replace(";", "\t")


def test_tabs_json_and_workbooks_have_their_own_format_and_others_csv(tmp_path):
    texts = {"a.txt": "sentence1\tsentence2\na\tb\n", "a.csv": "sentence1|sentence2\na|b\n"}
    texts |= {
        "a.jsonl": '{"sentence1": "a", "sentence2": "b"}\n',
        "b.jsonl": '{"query": "a", "pos": ["b"]}\n',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    assert [suffix_like(open_table(tmp_path / name)) for name in texts] == [
        ".tsv",
        ".csv",
        ".jsonl",
        ".jsonl",
    ]
    assert Layout.of(open_table(tmp_path / "a.csv")) == Layout("|")
    score_file(tmp_path / "a.txt", [tmp_path / "of-tabs.csv"], BagEncoder())
    assert (
        (tmp_path / "of-tabs.csv").read_text().startswith("sentence1,sentence2,cosine,note\na,b,")
    )


def test_a_workbook_comes_out_with_numbers_and_without_formulas(tmp_path):
    book = openpyxl.Workbook()
    path = tmp_path / "in.xlsx"
    output = tmp_path / "out.xlsx"
    for row in [
        ("sentence1", "sentence2", "score", "id"),
        ("A cat.", "A cat.", 5, "=x"),
        ("A dog.", None, 1, "b"),
    ]:
        book.active.append(row)
    book.active["D2"].data_type = "s"
    book.save(path)
    assert suffix_like(open_table(path)) == ".xlsx"
    score_file(path, [output], BagEncoder())
    rows = list(openpyxl.load_workbook(output).active.values)
    assert rows[0] == ("sentence1", "sentence2", "score", "id", "cosine", "note")
    assert [row[3:] for row in rows[1:]] == [("=x", 1, None), ("b", None, "no text in sentence2")]
    assert open_table(output).columns == rows[0]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet", ".xlsx"])
def test_deduplicated_rows_keep_their_columns(tmp_path, suffix):
    path = tmp_path / "in.csv"
    scored = tmp_path / "scored.parquet"
    kept = tmp_path / f"kept{suffix}"
    path.write_text(GERMAN, encoding="utf-8-sig")
    summary = score_file(path, [scored], BagEncoder(), columns=COLUMNS)
    outputs = MatchOutputs([], None, kept, Layout.of(open_table(path)))
    apply_threshold(scored, summary.columns, "cosine", 0.9, outputs)
    rows = open_table(kept).preview(9).rows
    assert list(rows) == [
        "Ticket-Nr",
        *COLUMNS,
        "cosine",
        "note",
        "sentence",
        "row",
        "group",
        "stands_for",
    ]
    assert [str(cell) for cell in rows["Ticket-Nr"]] == ["7", "8", "8", "9", "9"]
    assert rows["sentence"][0] == "Öffnen."


def test_a_clean_file_has_the_layout_of_its_source(tmp_path):
    path = tmp_path / "in.csv"
    output = tmp_path / "clean.csv"
    path.write_text("sentence1;sentence2;score\na;b;4,5\na;b;0,5\nÄ;d;1,5\n", encoding="utf-8-sig")
    data = load_data(str(path))
    assert clean(open_table(path), output, data, examine(data)) == 1
    assert output.read_text(encoding="utf-8-sig") == "sentence1;sentence2;score\nÄ;d;1,5\n"
