"""`pages/compare/two_sentences.py`, the handlers: what a link may do, and when the reason is shown."""

import threading
import time
from types import SimpleNamespace

import gradio as gr
import pytest
from paths import linked_home

from sbert_app.pages.compare.two_sentences import TwoSentences
from sbert_app.services import container
from sbert_app.services.compare import calibration
from sbert_app.services.container import Services
from sbert_app.settings import Settings
from training.sources import hub


@pytest.fixture(scope="module")
def page(home, tmp_path_factory):
    own = linked_home(home, tmp_path_factory.mktemp("home"))
    with gr.Blocks():
        page = TwoSentences(Services.start(Settings(home=own)))
        page.wire()
    return page


def test_a_link_begins_no_download(page, monkeypatch):
    """It names the models with their sizes, and a button downloads them."""
    files = [SimpleNamespace(rfilename="model.safetensors", size=91_000_000)]
    monkeypatch.setattr(hub, "repo_info", lambda _: SimpleNamespace(siblings=files))
    monkeypatch.setattr(
        page.services.models, "download", lambda *_: pytest.fail("it is downloaded")
    )
    request = SimpleNamespace(
        query_params={"a": "A cat.", "b": "A kitten.", "model": "org/tiny", "cross": "none"}
    )
    *_, shown_model, stopped = page.open_link(request)
    assert stopped == (
        "A cat.",
        "A kitten.",
        "org/tiny",
        page.pooling.value,
        "none",
        page.second.value,
    )
    questions: dict = {}
    update = page.answer_pair(request, *stopped, None, shown_model, stopped, questions)
    assert "Not on this machine yet: org/tiny (91 MB)" in update[page.answer]
    assert update[page.download]["visible"]
    assert page.open_link(SimpleNamespace(query_params={"a": "A cat."}))[-1] is None


def test_a_sentence_that_is_empty_in_the_address_stays_empty(page):
    a, b, model, *_ = page.open_link(SimpleNamespace(query_params={"a": "", "b": "x", "model": ""}))
    assert (a, b) == ("", "x")
    assert model == gr.skip()


def test_the_reason_follows_the_answer_and_a_long_pair_waits_for_a_click(page):
    request = SimpleNamespace(query_params={}, headers={})
    questions: dict = {}
    asked = [
        "She never said that.",
        "He said that.",
        "all-MiniLM-L6-v2",
        "mean",
        "none",
        page.second.value,
    ]
    first = page.answer_pair(request, *asked, None, "all-MiniLM-L6-v2", None, questions)
    assert "Leaving out each word" in first[page.answer]
    assert not first[page.ask_reason]["visible"]
    assert "“never” lowers the cosine most" in page.add_reason(questions)
    assert "value" not in page.add_reason(questions), "it is measured once"
    long = ["word " * 40, *asked[1:]]
    shown = page.answer_pair(request, *long, None, "all-MiniLM-L6-v2", None, questions)
    assert shown[page.ask_reason]["visible"]
    assert "value" not in page.add_reason(questions), "a long pair waits for a click"
    assert "Why?" in page.add_reason(questions, is_asked=True)


def test_the_cosine_does_not_wait_for_the_cross_encoder(page):
    """A page that is opened while the app loads its models shows the cosine first, and the other score after it."""
    *inputs, shown_model, stopped = page.open_link(SimpleNamespace(query_params={}))
    inputs = [
        field.value for field in (page.a, page.b, page.model, page.pooling, page.cross, page.second)
    ]
    request = SimpleNamespace(headers={})
    questions = {}
    models = page.services.models
    assert not models.has("minilm-stsb")
    first = page.answer_first(request, *inputs, None, shown_model, stopped, questions)
    assert "cosine" in first[page.answer].lower()
    assert questions["shown"].comparison.cross_score is None
    assert not models.has("minilm-stsb")
    page.answer_pair(request, *inputs, None, shown_model, stopped, questions)
    assert questions["shown"].comparison.cross_score is not None
    again = page.answer_first(request, *inputs, None, shown_model, stopped, questions)
    assert again == {page.answer: gr.skip()}


def test_a_model_without_a_scale_shows_how_far_its_calibration_is_and_then_its_verdict(
    page, monkeypatch
):
    is_half_done, is_seen = threading.Event(), threading.Event()

    def fit(encoder, home, watch):
        watch.report(1, None, 2)
        is_half_done.set()
        assert is_seen.wait(10)
        return calibration.stored_curve(encoder, home, watch)

    monkeypatch.setattr(container, "stored_curve", fit)
    monkeypatch.setattr(calibration, "QUICK_PAIRS", 60)
    model = "scratch:1x32"
    request = SimpleNamespace(query_params={}, headers={})
    questions: dict = {}
    asked = ["A cat.", "A kitten.", model, "mean", "none", page.second.value]
    answer = page.answer_pair(request, *asked, None, model, None, questions)
    assert f"Calibrating {model}" in answer[page.calibrating]
    assert is_half_done.wait(10)
    # The first of three poolings is half done.
    assert f"Calibrating {model} · 17%" in page.show_calibrated(questions)[page.calibrating]
    is_seen.set()
    while page.services.calibration_progress(model):
        time.sleep(0.05)
    answer = page.show_calibrated(questions)
    assert answer[page.calibrating] == ""
    assert "of 5" in answer[page.answer]
