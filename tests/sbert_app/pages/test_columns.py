"""The pickers of columns: what they show of a file, and the name that the choice gives the file."""

from __future__ import annotations

import gradio as gr
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
    return [shown[each].value for each in picker.inputs]


def test_what_is_found_by_name_is_chosen_and_everything_is_offered(picker, upload):
    shown = picker.show(upload("plain.csv", "text1,text2,similarity,extra\na,b,1,x\n"))
    assert shown[picker.row].visible
    assert values(picker, shown) == ["text1", "text2", "similarity"]
    assert [value for _, value in shown[picker.inputs[2]].choices] == ["", "text1", "text2", "similarity", "extra"]


def test_without_known_names_none_is_chosen_and_without_a_file_nothing_is_shown(picker, upload):
    assert values(picker, picker.show([upload("odd.csv", "no,left,right\n1,a,b\n")])) == ["", "", ""]
    for nothing in (None, [], upload("photo.png", "\x89PNG")):
        assert not picker.show(nothing)[picker.row].visible


def test_the_choice_is_the_name_of_a_copy_and_none_for_what_is_found_anyway(services, upload):
    odd = upload("odd.csv", "no,left,right,rank\n1,a b,b c,3\n2,c d,d e,0\n")
    assert chosen_name(services, odd, "", "", "", "") == odd
    copy = chosen_name(services, odd, "", "right", "left", "rank")
    assert load_data(copy).columns == (["b c", "d e"], ["a b", "c d"])
    services.access.check_data(copy)
    plain = upload("plain.csv", "sentence1,sentence2,score\na,b,1\n")
    assert chosen_name(services, plain, "", "sentence1", "sentence2", "score") == plain
    assert chosen_name(services, plain, "", "left", "right", "rank") == plain, "the columns of another of several files"


def test_half_a_choice_and_what_nobody_uploaded_are_refused(services, upload, tmp_path):
    odd = upload("odd.csv", "no,left,right\n1,a,b\n")
    with pytest.raises(InputError, match="choose the column of sentence 1"):
        chosen_name(services, odd, "", "", "right", "")
    foreign = tmp_path / "foreign.csv"
    foreign.write_text("left,right\na,b\n")
    with pytest.raises(InputError, match="cannot be used here"):
        chosen_name(services, str(foreign), "", "right", "left", "")
