"""`pages/explore/page.py`, the handlers: what a visitor, and a link, may open."""

from types import SimpleNamespace

import gradio as gr
import pytest
from paths import linked_home

from sbert_app.pages.explore.open_corpus import OpenCorpus
from sbert_app.pages.explore.page import CorpusChoice, _ExplorePage
from sbert_app.pages.explore.pairs import _PairsTab
from sbert_app.services.background.watch import UNWATCHED
from sbert_app.services.container import Services
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.settings import Settings
from training.errors import InputError
from training.names import ModelName
from training.sources import hub


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("hf:evil/set", "fetches no data sets"),
        ("+".join(["stsb:train"] * 21), "at most 20 can be used here"),
        ("/etc/passwd", "cannot be used here"),
    ],
)
def test_a_link_opens_only_what_may_be_named_elsewhere(home, tmp_path, monkeypatch, data, sentence):
    services = Services.start(Settings(home=linked_home(home, tmp_path), public=True))
    monkeypatch.setattr(Corpus, "from_data", lambda *_: pytest.fail("it was opened"))
    with gr.Blocks():
        page = _ExplorePage(services)
        choice = CorpusChoice("data", *[None] * 10, data, None)
        with pytest.raises(InputError, match=sentence):
            page.open(UNWATCHED, *choice, "scratch:1x32", "", [])
        with pytest.raises(InputError, match=sentence):
            _PairsTab(services, page.shared)._other(data, None, UNWATCHED)


@pytest.mark.parametrize(
    ("source", "data", "model", "missing"),
    [
        ("example", None, "org/tiny", "org/tiny (91 MB)"),
        ("data", "hf:org/set", "scratch:1x32", "hf:org/set (at most 91 MB)"),
    ],
)
def test_a_link_begins_no_download(home, tmp_path, monkeypatch, source, data, model, missing):
    files = [SimpleNamespace(rfilename="model.safetensors", size=91_000_000)]
    monkeypatch.setattr(
        hub, "repo_info", lambda _: SimpleNamespace(id="org/set", sha="0", siblings=files)
    )
    services = Services.start(Settings(home=linked_home(home, tmp_path)))
    with gr.Blocks():
        page = _ExplorePage(services)
    monkeypatch.setattr(page, "open", lambda *_: pytest.fail("it is opened"))
    update = page.open_at_first(
        UNWATCHED, *CorpusChoice(source, *[None] * 10, data, None), model, "", []
    )
    assert f"Not on this machine yet: {missing}. Press Open" in update[page.tab.status]
    assert update[page.fold].open


def test_the_downloads_belong_to_the_last_search_of_duplicates(home, tmp_path, monkeypatch):
    services = Services.start(Settings(home=linked_home(home, tmp_path)))
    file = tmp_path / "mine.csv"
    file.write_text("sentence\na dog runs\na dog runs fast\nsome birds fly\n")
    corpus = services.embeddings.add(Corpus.from_file(file))
    opened = OpenCorpus(corpus, ModelName.parse("scratch:1x32"))
    with gr.Blocks():
        tab = _PairsTab(services, _ExplorePage(services).shared)
    monkeypatch.setattr(tab, "_other", lambda *_: opened.embed(services.embeddings))
    downloads = (tab.download_kept, tab.download_all, tab.download_shared)

    within = tab.find_duplicates(UNWATCHED, opened, "", 0.9)
    assert [within[download]["visible"] for download in downloads] == [True, True, False]
    compared = tab.find_duplicates(UNWATCHED, opened, "other", 0.9)
    assert [compared[download]["visible"] for download in downloads] == [False, False, True]
