"""Templates escape what they are given; the shared macros mark up text, bars, figures and tables."""

import ast
from collections.abc import Iterator

import jinja2
import pytest
from jinja2 import meta, nodes
from markupsafe import Markup
from paths import ROOT

from sbert_app.pages.components.messages import error_message, error_of, progress_bar, sentence_case
from sbert_app.pages.components.templates import _environment, macro
from sbert_app.services.background.tasks import TaskProgress
from sbert_app.services.runs.record import RunBusy, RunNotFound
from training.errors import InputError

HOSTILE = "<script>alert(1)</script>"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("heading", (HOSTILE, HOSTILE)),
        ("section", (HOSTILE,)),
        ("lead", (HOSTILE,)),
        ("note", (HOSTILE,)),
        ("notes", ([HOSTILE],)),
        ("waiting", (HOSTILE,)),
        ("error", (HOSTILE,)),
        ("bar", (0.5, HOSTILE)),
        ("progress", (HOSTILE, 0.5, HOSTILE)),
        ("card", (HOSTILE, HOSTILE, HOSTILE, HOSTILE)),
        ("tiles", ([(HOSTILE, HOSTILE, HOSTILE)],)),
        ("table", ([(HOSTILE, HOSTILE)], [[HOSTILE]], HOSTILE, HOSTILE)),
    ],
)
def test_a_macro_escapes_every_text(name, arguments):
    html = macro(name)(*arguments)
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def calls_of(function: str) -> Iterator[tuple[str, int, set[str]]]:
    """Each call of `macro` or `render` with a name that stands in the code: the name, and what it is given."""
    for file in sorted((ROOT / "sbert_app").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(ast.Call(ast.Name("macro"), [ast.Constant(name)]), given, keywords):
                    kind = "macro"
                case ast.Call(ast.Name("render"), [ast.Constant(name)], keywords):
                    kind, given = "render", []
                case _:
                    continue
            is_plain = not any(isinstance(each, ast.Starred) for each in given) and all(each.arg for each in keywords)
            if kind == function and is_plain:
                yield str(name), len(given), {str(each.arg) for each in keywords}


def test_each_macro_is_given_what_it_takes():
    wrong = [
        (name, given, named)
        for name, given, named in calls_of("macro")
        if given > len(taken := macro(name).arguments) or not named <= set(taken[given:])  # type: ignore[attr-defined]
    ]
    assert wrong == []


def test_each_template_is_given_all_that_it_shows():
    environment = _environment()
    for name, _, named in calls_of("render"):
        template = environment.parse(environment.loader.get_source(environment, name)[0])
        made = {
            name.name
            for node in template.find_all(nodes.Assign)
            for name in node.find_all(nodes.Name)
            if name.ctx == "store"
        }
        assert meta.find_undeclared_variables(template) <= named | made, name


def test_markup_among_the_values_is_inserted_as_it_is():
    assert macro("note")(Markup("<b>ρ</b>")) == '<p class="note"><b>ρ</b></p>'


def test_a_value_that_is_not_given_is_an_error():
    with pytest.raises(jinja2.UndefinedError):
        macro("card")()


def test_a_bar_has_a_role_only_with_a_label():
    assert macro("bar")(0.424) == '<div class="bar"><i style="width:42.4%"></i></div>'
    labelled = macro("bar")(0.424, "rows scored")
    assert 'role="progressbar" aria-label="rows scored"' in labelled
    assert 'aria-valuenow="42"' in labelled


def test_the_cells_of_a_table_have_the_class_of_their_column():
    html = macro("table")([("run", ""), ("ρ", "number")], [["first", 0.8]], caption="Runs")
    assert "<caption>Runs</caption>" in html
    assert '<tr><th scope="row">first</th><td class="number">0.8</td></tr>' in html


def test_progress_names_the_step_how_much_is_done_and_the_time_left():
    html = progress_bar(TaskProgress("Encoding", 1, 4, 4.0))
    assert "Encoding · 25% · 12 s left" in html
    assert 'aria-valuenow="25"' in html


class TestErrors:
    def test_a_message_begins_with_a_capital_letter(self):
        assert error_message("row 3 is empty") == '<div class="problem" role="alert">Row 3 is empty</div>'

    @pytest.mark.parametrize("text", ["empty.csv is empty", "hf:org/name has no split", "/x is no file", "2 runs", ""])
    def test_a_name_at_the_beginning_stays_as_it_is(self, text):
        assert sentence_case(text) == text

    @pytest.mark.parametrize("kind", [InputError, RunBusy, RunNotFound])
    def test_an_error_for_the_user_is_shown(self, kind):
        def fail():
            raise kind("there is no run x")

        assert "There is no run x" in error_of(fail)

    def test_success_shows_nothing(self):
        assert error_of(lambda: "a result") == ""

    def test_a_fault_of_the_app_is_not_hidden(self):
        with pytest.raises(ZeroDivisionError):
            error_of(lambda: 1 / 0)
