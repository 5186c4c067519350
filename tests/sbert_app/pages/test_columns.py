"""The pickers of columns: what they show of a file, and the name that the choice gives the file."""

import gradio as gr
import openpyxl
import pytest

from sbert_app.pages.components.upload_options import ColumnPicker, chosen_name
from sbert_app.services.container import Services
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
def picker():
    with gr.Blocks():
        return ColumnPicker("mine")


def values(picker, shown):
    return [shown[each]["value"] for each in picker.columns]


def test_what_is_found_by_name_is_chosen_and_everything_is_offered(picker, upload):
    shown = picker.show(upload("plain.csv", "text1,text2,similarity,extra\na,b,1,x\n"))
    assert shown[picker.row]["visible"]
    assert not shown[picker.sheet]["visible"]
    assert values(picker, shown) == ["text1", "text2", "similarity"]
    offered = [value for _, value in shown[picker.columns[2]]["choices"]]
    assert offered == ["", "text1", "text2", "similarity", "extra"]


def test_without_known_names_their_content_is_guessed_and_marked(picker, upload):
    rows = "".join(f"Where is room {n}?;How do I get to room {n}?;{n % 2}\n" for n in range(6))
    shown = picker.show([upload("odd.csv", "frage_a;frage_b;wie\n" + rows)])
    assert values(picker, shown) == ["frage_a", "frage_b", "wie"]
    assert ("wie (judging words: 0 3, 1 3)", "wie") in shown[picker.columns[2]]["choices"]
    shown = picker.show(upload("half.csv", "sentence1;sentence2;gleich\n" + rows))
    assert values(picker, shown) == ["sentence1", "sentence2", "gleich"]
    assert ("sentence1", "sentence1") in shown[picker.columns[0]]["choices"], "found by its name"


def test_what_cannot_be_guessed_is_left_open_and_without_a_file_nothing_is_shown(picker, upload):
    shown = picker.show([upload("odd.csv", "no,left,right\n1,a,b\n")])
    assert values(picker, shown) == ["", "", ""]
    assert shown[picker.columns[0]]["choices"][0] == ("choose a column", "")
    triplets = picker.show(upload("triplets.csv", "anchor,positive,negative\na b,c d,e f\n"))
    assert triplets[picker.columns[0]]["choices"][0] == ("anchor, positive, negative", "")
    for nothing in (None, [], upload("photo.png", "\x89PNG")):
        assert not picker.show(nothing)[picker.row]["visible"]


@pytest.fixture
def workbook(services):
    """Its first sheet is about it, the second holds pairs, the third other pairs."""
    book = openpyxl.Workbook()
    for title, rows in (
        ("About", [["Exported on Monday by the help desk."], ["Do not pass it on."]]),
        ("Pairs", [["links", "rechts"], *([f"a sentence {n}", f"another sentence {n}"] for n in range(4))]),
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


def test_a_workbook_opens_with_the_sheet_that_holds_pairs_and_another_can_be_picked(services, picker, workbook):
    shown = picker.show(workbook)
    sheet = shown[picker.sheet]
    assert (sheet["choices"], sheet["value"], sheet["visible"]) == (["About", "Pairs", "More"], "Pairs", True)
    assert values(picker, shown)[:2] == ["links", "rechts"]
    other = picker.show(workbook, "", "More")
    assert values(picker, other)[:2] == ["sentence1", "sentence2"]

    pairs = chosen_name(services, workbook, "", "Pairs", "links", "rechts", "")
    more = chosen_name(services, workbook, "", "More", "sentence1", "sentence2", "")
    assert load_data(pairs).columns[0][0] == "a sentence 0"
    assert load_data(more).columns == (["here is one"], ["there is one"])
    assert load_data(more).name == "book.xlsx"


def test_half_a_choice_and_what_nobody_uploaded_are_refused(services, upload, tmp_path):
    odd = upload("odd.csv", "no,left,right\n1,a,b\n")
    refusal = r"choose the column of sentence 1, below the file: odd\.csv has the columns"
    for second in ("right", ""):
        with pytest.raises(InputError, match=refusal):
            chosen_name(services, odd, "", None, "", second, "")
    foreign = tmp_path / "foreign.csv"
    foreign.write_text("left,right\na,b\n")
    with pytest.raises(InputError, match="cannot be used here"):
        chosen_name(services, str(foreign), "", None, "right", "left", "")


@pytest.mark.parametrize(("read_as", "scores"), [("", [1.0, 5.0]), ("1-5", [0.0, 5.0]), ("1:2.5, 5:0", [2.5, 0.0])])
def test_the_scale_and_the_labels_are_typed_beside_the_columns(services, upload, picker, read_as, scores):
    columns = ("left", "right", "rank")
    file = upload("rated.csv", f"{','.join(columns)}\na dog,a cat,1\na cow,a pig,5\n")
    assert picker.show(file)[picker.read_as]["value"] == ""
    data = load_data(chosen_name(services, file, "", None, *columns, read_as))
    assert data.scores == scores
    with pytest.raises(InputError, match="'often' is no scale"):
        chosen_name(services, file, "", None, *columns, "often")
