"""`components/templates.py` and `messages.py`: templates escape what they are given; the shared macros."""

import jinja2
import pytest
from markup import HOSTILE, assert_escaped
from markupsafe import Markup

from sbert_app.pages.components.messages import error_message, error_of, progress_bar, sentence_case
from sbert_app.pages.components.templates import macro
from sbert_app.services.background.tasks import TaskProgress
from sbert_app.services.runs.record import RunNotFoundError


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *((name, (HOSTILE,)) for name in ("section", "lead", "note", "waiting", "error")),
        ("heading", (HOSTILE, HOSTILE)),
        ("notes", ([HOSTILE],)),
        ("bar", (0.5, HOSTILE)),
        ("progress", (HOSTILE, 0.5, HOSTILE)),
        ("card", (HOSTILE, HOSTILE, HOSTILE, HOSTILE)),
        ("tiles", ([(HOSTILE, HOSTILE, HOSTILE)],)),
        ("table", ([(HOSTILE, HOSTILE)], [[HOSTILE]], HOSTILE, HOSTILE)),
    ],
)
def test_a_macro_escapes_every_text(name, arguments):
    assert_escaped(macro(name)(*arguments))


def test_markup_is_inserted_unescaped_and_a_missing_value_is_an_error():
    assert macro("note")(Markup("<b>ρ</b>")) == '<p class="note"><b>ρ</b></p>'
    with pytest.raises(jinja2.UndefinedError):
        macro("card")()


def test_bars_have_labels_cells_their_class_and_progress_the_time_left():
    assert macro("bar")(0.424) == '<div class="bar"><i style="width:42.4%"></i></div>'
    labelled = macro("bar")(0.424, "rows scored")
    assert 'role="progressbar" aria-label="rows scored"' in labelled
    assert 'aria-valuenow="42"' in labelled
    html = macro("table")([("run", ""), ("ρ", "number")], [["first", 0.8]], caption="Runs")
    assert "<caption>Runs</caption>" in html
    assert '<tr><th scope="row">first</th><td class="number">0.8</td></tr>' in html
    html = progress_bar(TaskProgress("Encoding", 1, 4, 4.0))
    assert "Encoding · 25% · 12 s left" in html
    assert 'aria-valuenow="25"' in html


def test_a_bar_whose_share_is_unknown_moves_and_states_no_percentage():
    html = progress_bar(TaskProgress("Loading all-MiniLM-L6-v2", 0, 1, 4.0))
    assert "Loading all-MiniLM-L6-v2 …" in html and "%" not in html.replace("width:0.0%", "")
    assert '<div class="bar moving" role="progressbar" aria-label="done">' in html


def test_an_error_message_is_capitalized_unless_it_begins_with_a_name():
    assert (
        error_message("row 3 is empty") == '<div class="problem" role="alert">Row 3 is empty</div>'
    )
    for text in ("empty.csv is empty", "hf:org/name has no split", "/x is no file", "2 runs", ""):
        assert sentence_case(text) == text


def test_an_error_of_the_user_is_shown_and_a_fault_is_raised():
    def fail():
        raise RunNotFoundError("there is no run x")

    assert "There is no run x" in error_of(fail)
    assert error_of(lambda: "a result") == ""
    with pytest.raises(ZeroDivisionError):
        error_of(lambda: 1 / 0)
