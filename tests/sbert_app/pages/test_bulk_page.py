"""`pages/bulk/page.py`, the handlers: a file becomes a job, which another visit finds again."""

import re
from html import unescape
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import gradio as gr
import pytest
from bag_encoder import AnyModel

from sbert_app.pages.bulk.models import USUAL_MODELS
from sbert_app.pages.bulk.page import _Page
from sbert_app.pages.evaluate import threshold
from sbert_app.services.background.watch import Watch
from sbert_app.services.container import Services
from sbert_app.services.files.jobs import ScoreJobs
from sbert_app.settings import Settings
from training.catalogue import DEFAULT_MODEL
from training.names import ModelName


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    services = Services.start(Settings(home=tmp_path_factory.mktemp("home")))
    object.__setattr__(services, "scoring", ScoreJobs(AnyModel(), services.settings.temp_folder))
    services.models.missing = lambda models, data="": [
        f"{name} (91 MB)" for name in models if "/" in name
    ]
    with gr.Blocks() as blocks:
        page = _Page(services)
        page.wire()
    page.blocks = blocks
    return page


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "mine.csv"
    rows = "".join(
        f"the dog {i} runs,the dog {i} runs,1\na cat {i},some birds fly,0\n" for i in range(10)
    )
    path.write_text("sentence1,sentence2,label\n" + rows)
    return path


def visit(page, **query):
    return list(page.visit(SimpleNamespace(query_params=query), "bag", "mean", "none", []))


def merged(updates):
    """The last value of each component."""
    return {component: value for update in updates for component, value in update.items()}


def test_a_link_begins_no_download(page, monkeypatch):
    monkeypatch.setattr(page.jobs, "start", lambda *_: pytest.fail("it is scored"))
    for models, missing in (
        (("org/tiny", "mean", "none"), "org/tiny"),
        (("bag", "mean", "org/cross"), "org/cross"),
    ):
        shown = merged(page.visit(SimpleNamespace(query_params={}), *models, []))
        assert f"Not on this machine yet: {missing} (91 MB). Press Score" in shown[page.status]
        assert shown[page.go].interactive


def test_with_the_models_that_it_opens_with_the_example_ships_scored(page, monkeypatch):
    monkeypatch.setattr(page.jobs, "start", None)  # nothing is computed
    query = SimpleNamespace(query_params={"bulk-threshold": "0.75"})
    shown = merged(page.visit(query, DEFAULT_MODEL, "mean", "none", []))
    assert "58</b> of 60 pairs scored" in shown[page.status]
    assert 'data-job=""' in shown[page.status]
    assert shown[page.duplicates.threshold] == "0.75"
    applied = page.duplicates.find(Watch(), shown[page.job], 0.75)
    assert "of 58 pairs match" in applied[page.duplicates.tab.status]
    # A further look makes no further job.
    files = set(page.services.settings.temp_folder.rglob("*"))
    assert merged(page.visit(query, DEFAULT_MODEL, "mean", "none", []))[page.job] == shown[page.job]
    assert set(page.services.settings.temp_folder.rglob("*")) == files


def test_a_file_is_kept_scored_and_found_again(page, pairs):
    opened = page.open(str(pairs), [])
    job = opened[page.job]
    assert opened[page.job_ids] == [job]
    assert f'data-job="{job}"' in opened[page.status]
    assert opened[page.panel.columns[2]] == "label"
    again = merged(visit(page, job=job))
    assert "mine.csv" in again[page.panel.table]
    assert "Press Score." in again[page.status]

    table = opened[page.table]
    pairs.unlink()
    scored = merged(
        page.score(
            None,
            table,
            "sentence1",
            "sentence2",
            "label",
            "1:1, 0:0",
            "bag",
            "mean",
            "none",
            job,
            [job],
            None,
        )
    )
    assert "20</b> of 20 pairs" in scored[page.status]
    assert "finished" in scored[page.history]
    assert "1 is a match, 0 is not" in scored[page.duplicates.decision].lower()
    seen = merged(visit(page, job=job))
    assert seen[page.status] == scored[page.status]
    assert seen[page.as_file].value == scored[page.as_file].value
    assert [seen[field] for field in page.panel.columns] == ["sentence1", "sentence2", "label"]
    assert seen[page.panel.read_as]["value"] == "1:1, 0:0"

    models = page.models
    query = SimpleNamespace(query_params={"job": job})
    of_job = merged(page.visit(query, *USUAL_MODELS, []))
    assert (of_job[models.model], of_job[models.cross]) == ("bag", "none")
    # A model that is in the address, or that a person has chosen, stays.
    assert seen[models.model] == gr.skip()
    assert seen[models.cross] == "none"
    assert [*page.visit_first(query, {"": object()}, *USUAL_MODELS, [])] == [
        {page.status: gr.skip()}
    ]

    applied = merged([page.duplicates.find(Watch(), job, 0.9)])
    assert "10</b> of 20 pairs match" in applied[page.duplicates.tab.status]
    [address] = re.findall(r'href="([^"]*)"', str(applied[page.duplicates.tab.status]))
    assert parse_qs(urlsplit(unescape(address)).query) == {
        "tab": ["pairs"],
        "repeats-threshold": ["0.90"],
        "corpus-model": ["bag"],
        "corpus-pooling": ["mean"],
    }
    low = page.duplicates.find(Watch(), job, 0.4)
    assert "explore" not in low[page.duplicates.tab.status]
    assert all(
        button["visible"] for button in (applied[each] for each in page.duplicates.downloads)
    )
    page.delete([job])
    assert "no longer kept" in merged(visit(page, job=job))[page.status]


def test_a_list_is_told_that_pairs_need_two_columns(page, tmp_path):
    path = tmp_path / "list.csv"
    rows = "".join(f"T-{n};{['mail', 'web'][n % 2]};Where is room {n}?\n" for n in range(12))
    path.write_text("nr;channel;question\n" + rows)
    opened = page.open(str(path), [])
    assert "one is found. If the file is a list of sentences" in opened[page.status]


def test_the_link_of_a_threshold_opens_the_file_as_it_was_read_there(page, pairs):
    how = ("", "", "sentence1", "sentence2", "label", "1:1, 0:0")
    link = threshold._link_to_bulk(page.services, str(pairs), how)
    choice = SimpleNamespace(threshold=SimpleNamespace(value=0.5))
    address = re.search(r'href="([^"]*)"', link(ModelName.parse(DEFAULT_MODEL), choice))[1]
    query = parse_qs(urlsplit(unescape(address)).query)
    shown = merged(visit(page, **{name: values[0] for name, values in query.items()}))
    assert [shown[field] for field in page.panel.columns] == ["sentence1", "sentence2", "label"]
    assert shown[page.panel.read_as]["value"] == "1:1, 0:0"


def test_every_update_is_among_the_outputs_of_its_event(page, pairs):
    """Gradio fails on an update of a component that its event does not name."""
    named = {
        id(component)
        for event in page.blocks.fns.values()
        if event.fn == page.open
        for component in event.outputs
    }
    updates = [*visit(page), page.open(str(pairs), []), page.open(None, [])]
    job = updates[-2][page.job]
    updates += [
        page.reopen(job, "windows-1252", None),
        *visit(page, job=job),
        *visit(page, job="0" * 16),
    ]
    assert {id(component) for update in updates for component in update} <= named
