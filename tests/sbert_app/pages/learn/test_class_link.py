"""`learn/teacher.py`: a class is its link; what it says is read back, and what may not be named is refused."""

import threading
from types import SimpleNamespace
from unittest.mock import MagicMock
from urllib.parse import parse_qsl

import gradio as gr
import pytest
from paths import linked_home
from starlette.datastructures import QueryParams

from sbert_app.pages.learn import page as learn
from sbert_app.pages.learn import teacher
from sbert_app.pages.learn.lesson import STANDARD, Setup, lessons
from sbert_app.pages.learn.teacher import ClassLink, address_for_others, read_class
from sbert_app.services.access import AccessPolicy
from sbert_app.services.background.watch import UNWATCHED
from sbert_app.services.container import Services
from sbert_app.settings import Settings
from training.errors import InputError
from training.sources import hub

ACCESS = AccessPolicy()


def test_a_class_link_is_read_back_as_it_was_made():
    link = ClassLink("NLP & co. 101", Setup("org/model", "sickr", 7), (4, 8, 12))
    assert read_class(dict(parse_qsl(link.query)), ACCESS) == link


def test_a_setting_that_a_class_link_leaves_out_is_the_lessons_own():
    found = read_class({"lesson": "4", "model": "/etc/passwd"}, ACCESS)
    assert found == ClassLink() and found.setup == STANDARD
    assert found.numbers == tuple(lesson.number for lesson in lessons()) and found.query == ""
    assert read_class({"class": "A"}, ACCESS).setup == STANDARD
    assert ClassLink("A").query == "class=A"
    assert ClassLink("A", Setup(seed=7), (4, 8)).query == "class=A&seed=7&lessons=4,8"


def test_lessons_of_a_class_are_counted_within_its_selection():
    number, count, *_ = learn._show_lesson(8, ClassLink("A", selection=(4, 8)))
    assert number == 8 and "Lesson 2 of 2" in count


@pytest.mark.parametrize(
    ("page", "bound", "reached"),
    [
        # By a proxy.
        ("http://lab.example:7860/learn", "127.0.0.1", "http://lab.example:7860/learn"),
        ("http://192.168.1.20:7860/learn", "0.0.0.0", "http://192.168.1.20:7860/learn"),  # noqa: S104
        ("http://localhost:7860/learn", "0.0.0.0", "http://10.0.0.5:7860/learn"),  # noqa: S104
        ("http://[::1]/learn", "::", "http://10.0.0.5/learn"),
        ("http://127.0.0.1:7860/learn", "127.0.0.1", None),
    ],
)
def test_the_link_has_a_host_that_pupils_reach(monkeypatch, page, bound, reached):
    probe = MagicMock()
    probe.__enter__.return_value.getsockname.return_value = ("10.0.0.5", 40_000)
    monkeypatch.setattr(teacher.socket, "socket", lambda *_: probe)
    assert address_for_others(page, bound) == reached
    html = ClassLink("<b>A").links(page, Settings(host=bound, auth=("class", "secret")))
    assert (
        f'href="{reached or page}?class=%3Cb%3EA"' in html
        and "&lt;b&gt;A" in html
        and "secret" not in html
    )
    assert ("<svg" in html) == (reached is not None)
    assert ("--host 0.0.0.0" in html) == (reached is None)
    assert ("in its network" in html) == (reached not in (None, page))
    assert "log in as <b>class</b>" in html


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"seed": "x"}, "seed is 'x'"),
        ({"seed": "²"}, "whole number from 0"),
        ({"seed": str(2**32)}, "to 4,294,967,295"),
        ({"model": "/etc/passwd"}, "cannot be used here"),
        ({"data": "/etc/passwd"}, "cannot be used here"),
        ({"lessons": "4,99"}, "there is no lesson '99'"),
        ({"class": "A" * 81}, "at most 80 characters"),
    ],
)
def test_a_class_link_with_wrong_values_is_refused(values, message):
    with pytest.raises(InputError, match=message):
        read_class({"class": "A", **values}, ACCESS)


@pytest.mark.parametrize(
    "query",
    [
        {"class": "A", "model": "org/tiny"},
        {"class": "A", "data": "hf:org/set"},
        {"learn-layer-model": "org/tiny"},
    ],
)
def test_a_link_begins_no_download(home, tmp_path, monkeypatch, query):
    files = [SimpleNamespace(rfilename="model.safetensors", size=91_000_000)]
    monkeypatch.setattr(
        hub, "repo_info", lambda _: SimpleNamespace(id="org/set", sha="0", siblings=files)
    )
    with gr.Blocks():
        page = learn._LearnPage(Services.start(Settings(home=linked_home(home, tmp_path))))
    questions: dict = {}
    class_link, _, download, *_ = page.open(
        "1", questions, SimpleNamespace(query_params=QueryParams(query))
    )
    update = page.views[0].measure(UNWATCHED, questions, class_link)
    assert download.visible
    assert "Not on this machine yet: " in update[page.views[0].outputs[1]]
    assert "91 MB" in update[page.views[0].outputs[1]]
    page.encode_in_background(questions, class_link)
    assert not any(thread.name == "lessons" for thread in threading.enumerate())
    questions.clear()
    *_, download = page.open(
        "1", questions, SimpleNamespace(query_params=QueryParams({"class": "A", "seed": "7"}))
    )[:3]
    assert not download.visible and not questions
