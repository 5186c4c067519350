"""`components/file_panel.py`: what it shows, what a click on a head changes, and the name that the choices make."""

import re
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import openpyxl
import pytest

from sbert_app.pages.bulk.page import EXAMPLE
from sbert_app.pages.components.file_panel import (
    FilePanel,
    chosen_name,
    open_upload,
    with_role,
)
from sbert_app.services.container import Services
from sbert_app.services.files.taken import TakenFile
from sbert_app.services.results.transfer import read_labelled
from sbert_app.settings import Settings
from training.data.load import load_data
from training.errors import InputError


@pytest.fixture(scope="module")
def services(tmp_path_factory):
    return Services.start(Settings(home=tmp_path_factory.mktemp("home")))


@pytest.fixture
def upload(services):
    def write(name: str, text: str) -> str:
        path = services.settings.temp_folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture(scope="module")
def panel(services):
    with gr.Blocks():
        return FilePanel(services, gr.File(), "mine", "bulk")


def columns(panel, shown):
    return [shown[field] for field in panel.columns]


def roles(panel, shown) -> dict[str, str]:
    """The chosen role above each column."""
    html = str(shown[panel.table])
    menus = re.findall(r'<select data-column="([^"]*)".*?</select>', html, re.DOTALL)
    chosen = re.findall(r'<option value="([^"]*)" selected>', html)
    return dict(zip(menus, chosen, strict=True))


def chosen(panel, path, columns, column="", role="", labels=""):
    return panel.choose(
        path, "", None, *columns, "", SimpleNamespace(column=column, role=role, labels=labels)
    )


def test_what_is_found_by_name_is_chosen(panel, upload):
    shown = panel.describe(upload("plain.csv", "text1,text2,similarity,extra\na b,b c,1,x\n"))
    assert columns(panel, shown) == ["text1", "text2", "similarity"]
    assert roles(panel, shown) == {
        "text1": "1",
        "text2": "2",
        "similarity": "target",
        "extra": "unused",
    }
    assert not shown[panel.sheet]["visible"]
    assert shown[panel.read_as]["visible"]


def test_the_example_of_a_page_has_no_field_for_its_scale(panel):
    path = str(EXAMPLE)
    shown = panel.of(open_upload(path))
    assert not shown[panel.read_as]["visible"]
    read = columns(panel, shown)
    first, second, _ = read
    swapped = chosen(panel, path, read, second, "1")
    assert columns(panel, swapped)[:2] == [second, first]
    assert not swapped[panel.read_as]["visible"]


def test_the_columns_that_are_read_come_first(panel, upload):
    names = [f"nr_{n}" for n in range(20)]
    row = ",".join(str(n) for n in range(20))
    text = ",".join([*names, "sentence1", "sentence2", "score"]) + f"\n{row},a b,b c,3\n" * 5
    shown = panel.describe(upload("wide.csv", text))
    assert list(roles(panel, shown)) == ["sentence1", "sentence2", "score", *names[:9]]
    assert "11 more columns are not shown" in shown[panel.table]
    cells = re.findall(r'<td title="([^"]*)"', str(shown[panel.table]))
    assert cells[:5] == ["a b", "b c", "3", "0", "1"]


def test_what_is_read_by_its_cells_stands_with_the_evidence(panel, upload):
    rows = "".join(
        f"Where is room {n}?;How do I get to room {n}?;{n % 2};T-{n}\n" for n in range(6)
    )
    shown = panel.describe([upload("odd.csv", "frage_a;frage_b;wie;nr\n" + rows)])
    assert columns(panel, shown) == ["frage_a", "frage_b", "wie"]
    assert roles(panel, shown)["nr"] == "id"
    assert "judging words: 0 3, 1 3" in shown[panel.table]


def test_two_columns_swap_roles_when_one_takes_the_role_of_the_other(panel, upload):
    path = upload("plain.csv", "text1,text2,similarity,other\na b,b c,1,2\n")
    read = columns(panel, panel.describe(path))
    shown = chosen(panel, path, read, "other", "target")
    assert columns(panel, shown) == ["text1", "text2", "other"]
    shown = chosen(panel, path, ("text1", "text2", "other"), "text2", "1")
    assert columns(panel, shown) == ["text2", "text1", "other"]
    shown = chosen(panel, path, ("text1", "text2", "other"), "other", "unused")
    assert columns(panel, shown) == ["text1", "text2", "-"]
    assert not shown[panel.read_as]["visible"]
    assert with_role(("text1", "text2", "other"), "text1", "unused") == ("text2", "", "other")
    # "none of them", said twice.
    assert with_role(("text1", "text2", "-"), "-", "target") == ("text1", "text2", "-")


def test_a_class_of_single_sentences_may_be_another_column(services, panel, upload):
    rows = "".join(f"Where is room {n}?,{'ab'[n % 2]},{'cd'[n // 2 % 2]}\n" for n in range(12))
    path = upload("topics.csv", "text,label,other\n" + rows)
    read = columns(panel, panel.describe(path))
    assert read == ["text", "", "label"]
    shown = chosen(panel, path, read, "other", "target")
    assert columns(panel, shown) == ["text", "", "other"]
    data = read_labelled(chosen_name(services, path, "", None, "text", "", "other"))
    assert set(data.labels) == {"c", "d"}


def test_a_question_has_a_button_for_each_answer(panel, upload):
    rows = "".join(
        f"Where is room {n}?;How do I get to room {n}?;{['yes', 'no'][n % 2]};{n % 2}\n"
        for n in range(8)
    )
    path = upload("two.csv", "frage_a;frage_b;eins;zwei\n" + rows)
    shown = panel.describe(path)
    buttons = re.findall(
        r'<button type="button" data-column="([^"]*)" data-role="([^"]*)"', str(shown[panel.table])
    )
    assert buttons == [("eins", "target"), ("zwei", "target"), ("-", "target")]
    assert columns(panel, shown) == ["frage_a", "frage_b", ""]
    answered = chosen(panel, path, ("frage_a", "frage_b", ""), "-", "target")
    assert columns(panel, answered) == ["frage_a", "frage_b", "-"]
    assert "<button" not in answered[panel.table]


def test_roles_that_a_file_does_not_tell_are_left_open(panel, upload):
    shown = panel.describe([upload("odd.csv", "no,left,right\n1,a,b\n")])
    assert columns(panel, shown) == ["", "", ""]
    triplets = panel.describe(upload("triplets.csv", "anchor,positive,negative\na b,c d,e f\n"))
    assert roles(panel, triplets) == {
        "anchor": "anchor",
        "positive": "positive",
        "negative": "negative",
    }
    for nothing in (None, []):
        assert "<section" not in panel.describe(nothing)[panel.table]
    assert "has no column" not in panel.describe(upload("empty.csv", ""))[panel.table]
    assert "problem" in panel.describe(upload("empty.csv", ""))[panel.table]


def test_no_text_of_a_file_becomes_markup(panel, upload):
    evil = "<script>alert(1)</script>"
    path = upload("evil.csv", f"sentence1,sentence2,{evil}\n{evil},{evil},{evil}\n" * 3)
    html = panel.describe(path)[panel.table]
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def test_rows_that_are_left_out_and_duplicates_are_counted(panel, upload):
    rows = "a dog,a cat,yes\na dog,a cat,yes\na cow,,no\na pig,a sow,maybe\n"
    shown = panel.describe(upload("faults.csv", "sentence1,sentence2,label\n" + rows))
    assert "1 row: equal to an earlier one, ignoring case and spaces" in shown[panel.table]
    assert "maybe: 1" in shown[panel.table]


def test_labels_that_say_neither_yes_nor_no_count_as_no_on_request(services, panel, upload):
    rows = "a dog,a cat,yes\na hen,an egg,no\na pig,a sow,maybe\n"
    path = upload("unclear.csv", "sentence1,sentence2,label\n" + rows)
    shown = panel.describe(path)
    [labels] = re.findall(r'data-labels="([^"]*)"', str(shown[panel.table]))
    counted = chosen(panel, path, columns(panel, shown), labels=labels)
    assert counted[panel.read_as]["value"] == labels
    assert "maybe: 1" not in counted[panel.table]
    assert "data-labels" not in counted[panel.table]
    data = load_data(chosen_name(services, path, "", None, *columns(panel, shown), labels))
    assert [data.label_names[label] for label in data.labels] == ["1", "0", "0"]
    # A person who empties the field again sees the first reading.
    again = panel.read_anew(path, "", None, *columns(panel, shown), "")
    assert "maybe: 1" in again[panel.table]


def test_a_file_is_taken_to_the_pages_that_can_use_it_with_its_roles(services, panel, upload):
    path = upload("plain.csv", "text1,text2,similarity,other\na b,b c,1,2\nc d,d e,2,3\n")
    links = re.findall(r'href="([^"?]*)\?file=(\w+)', str(panel.describe(path)[panel.table]))
    assert [page for page, _ in links] == ["evaluate", "explore", "explore", "train", "label"]
    shown = chosen(panel, path, ("text1", "text2", "similarity"), "other", "target")
    token = re.search(r"\?file=(\w+)", str(shown[panel.table]))[1]
    taken = panel.take(SimpleNamespace(query_params={"file": token}))
    assert taken[panel.upload] == path
    assert columns(panel, taken) == ["text1", "text2", "other"]


def test_a_link_to_a_file_that_is_gone_or_is_no_upload_says_so(services, panel, upload, tmp_path):
    path = upload("gone.csv", "text\nHere is one.\n")
    token = re.search(r"\?file=(\w+)", str(panel.describe(path)[panel.table]))[1]
    Path(path).unlink()
    foreign = tmp_path / "foreign.csv"
    foreign.write_text("text\nHere is one.\n")
    foreign_token = services.taken.put(TakenFile(str(foreign)))
    for name, sentence in (
        (token, "deleted"),
        ("0" * 32, "deleted"),
        (foreign_token, "cannot be used here"),
    ):
        assert sentence in panel.take(SimpleNamespace(query_params={"file": name}))[panel.table]


@pytest.fixture
def workbook(services):
    """Its first sheet is about it, the second holds pairs, the third other pairs."""
    book = openpyxl.Workbook()
    for title, rows in (
        ("About", [["Exported on Monday by the help desk."], ["Do not pass it on."]]),
        (
            "Pairs",
            [
                ["links", "rechts"],
                *([f"a sentence {n}", f"another sentence {n}"] for n in range(4)),
            ],
        ),
        ("More", [["sentence1", "sentence2"], ["here is one", "there is one"]]),
    ):
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    del book["Sheet"]
    path = services.settings.temp_folder / "book.xlsx"
    path.parent.mkdir(parents=True, exist_ok=True)
    book.save(path)
    return str(path)


def test_a_workbook_opens_with_the_sheet_that_holds_pairs(services, panel, workbook):
    shown = panel.describe(workbook)
    sheet = shown[panel.sheet]
    assert (sheet["choices"], sheet["value"], sheet["visible"]) == (
        ["About", "Pairs", "More"],
        "Pairs",
        True,
    )
    assert columns(panel, shown)[:2] == ["links", "rechts"]
    other = panel.describe(workbook, "", "More")
    assert columns(panel, other)[:2] == ["sentence1", "sentence2"]

    pairs = chosen_name(services, workbook, "", "Pairs", "links", "rechts", "")
    more = chosen_name(services, workbook, "", "More", "sentence1", "sentence2", "")
    assert load_data(pairs).columns[0][0] == "a sentence 0"
    assert load_data(more).columns == (["here is one"], ["there is one"])
    assert load_data(more).name == "book.xlsx"


def test_half_a_choice_of_columns_is_refused(services, upload):
    odd = upload("odd.csv", "no,left,right\n1,a,b\n")
    refusal = r"choose the column of sentence 1, in the head of the table: odd\.csv has the columns"
    for second in ("right", ""):
        with pytest.raises(InputError, match=refusal):
            chosen_name(services, odd, "", None, "", second, "")


def test_a_file_that_nobody_uploaded_is_refused(services, tmp_path):
    foreign = tmp_path / "foreign.csv"
    foreign.write_text("left,right\na,b\n")
    with pytest.raises(InputError, match="cannot be used here"):
        chosen_name(services, str(foreign), "", None, "right", "left", "")


@pytest.mark.parametrize(
    ("read_as", "scores"), [("", [1.0, 5.0]), ("1-5", [0.0, 5.0]), ("1:2.5, 5:0", [2.5, 0.0])]
)
def test_the_scale_and_the_labels_are_typed_beside_the_columns(services, upload, read_as, scores):
    columns = ("left", "right", "rank")
    file = upload("rated.csv", f"{','.join(columns)}\na dog,a cat,1\na cow,a pig,5\n")
    data = load_data(chosen_name(services, file, "", None, *columns, read_as))
    assert data.scores == scores
    with pytest.raises(InputError, match="'often' is no scale"):
        chosen_name(services, file, "", None, *columns, "often")
