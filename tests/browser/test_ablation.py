"""The Ablation page in a real Chromium: it opens with precomputed tables, and a new sweep fills cell by cell."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

CELL = "#grid a.cell"


def opened(open_page, path="/ablation", **how):
    page = open_page(path, **how)
    expect(page.locator("#question")).to_contain_text("?")
    expect(page.locator("#sweep-plan .plan")).to_be_visible()
    return page


def ask(page, seeds, steps):
    """Fill the form in with a base that learns in no time."""
    page.locator("#seeds input[type=number]").fill(str(seeds))
    page.locator("#seeds input[type=number]").press("Tab")
    page.locator("#steps input").fill(str(steps))
    page.locator("#steps input").press("Tab")
    page.locator("#sweep-base input").fill("scratch:1x32")
    page.locator("#sweep-base input").press("Enter")
    expect(page.locator("#sweep-plan")).to_contain_text(f"{steps:,} steps each")
    expect(page.locator("#sweep-plan")).to_contain_text(f"= {3 * seeds} runs")


def test_the_page_opens_with_the_measured_pooling_table(open_page):
    page = opened(open_page)
    table = page.locator("#shipped")
    expect(table.locator(".ablation tbody tr")).to_have_count(3)
    expect(table).to_contain_text("69.92")  # the paper's max
    expect(table).to_contain_text("scores best over these seeds")
    expect(table).to_contain_text("python -m scripts.measure_ablation pooling")
    expect(table).to_contain_text("seed")
    expect(page.locator("#legend")).to_contain_text("bert-base-uncased")
    expect(page.locator("#shipped-figure .js-plotly-plot")).to_be_visible()


def test_a_link_opens_an_ablation_and_each_has_its_question_and_a_table_or_an_honest_empty_place(open_page):
    page = opened(open_page, "/ablation?preset=concat")
    expect(page.locator("#question")).to_contain_text("softmax")
    expect(page.locator("#sweep-data")).to_be_visible()
    for name, words in (("Objective", "loss"), ("Concatenation", "softmax"), ("Base", "pre-training")):
        page.get_by_role("radio", name=name).check()
        expect(page.locator("#question")).to_contain_text(words)
        expect(page.locator("#shipped")).to_contain_text(re.compile("Not measured yet|Where these numbers"))
    expect(page.locator("#sweep-base")).to_be_hidden()  # it is what is varied


def test_a_wrong_base_is_said_before_anything_starts(open_page, home: Path):
    page = opened(open_page)
    page.locator("#sweep-base input").fill("run:nowhere")
    page.locator("#sweep-base input").press("Enter")
    expect(page.locator("#sweep-plan .problem")).to_contain_text("here is no run")
    before = sorted((home / "experiments").glob("*"))
    page.locator("#start-sweep").click()
    expect(page.locator("#sweep-plan .problem")).to_contain_text("here is no run")
    assert before == sorted((home / "experiments").glob("*"))


def test_a_sweep_runs_end_to_end_and_survives_a_reload(open_page, home: Path):
    page = opened(open_page)
    ask(page, 1, 2)
    page.locator("#start-sweep").click()
    expect(page.locator(CELL)).to_have_count(3)
    page.reload()
    expect(page.locator(f"{CELL}.finished")).to_have_count(3)
    expect(page.locator("#sweep-status")).to_contain_text("3 of 3 runs finished")
    expect(page.locator("#sweep-table tbody tr")).to_have_count(3)
    expect(page.locator("#sweep-table")).to_contain_text("in the one seed: nothing to test")
    expect(page.locator("#sweep-figure .js-plotly-plot")).to_be_visible()
    sweep = json.loads(next((home / "experiments").glob("*-pooling.json")).read_text())
    assert sweep["changes"] == {"max_steps": 2, "base": "scratch:1x32"}
    link = page.locator(CELL).first
    first = sweep["runs"][0]
    assert (first["label"], first["config"]["seed"]) == ("mean", 0)
    assert (home / "runs" / first["run"] / "model").is_dir()
    link.click()
    expect(page).to_have_url(re.compile(r"/train\?run=" + first["run"]))
    expect(page.locator("#run-status")).to_contain_text("pooling: mean, seed 0")


@pytest.mark.slow
def test_a_sweep_is_stopped_resumed_and_deleted_in_any_tab(open_page):
    page = opened(open_page)
    ask(page, 2, 100_000)
    page.locator("#start-sweep").click()
    expect(page.locator(f"{CELL}.running")).to_have_count(1)
    other = opened(open_page)
    expect(other.locator(CELL)).to_have_count(6)
    other.locator("#stop-sweep").click()
    expect(page.locator(f"{CELL}.stopped")).to_have_count(6)
    page.locator("#resume-sweep").click()
    expect(page.locator(f"{CELL}.running")).to_have_count(1)
    page.locator("#stop-sweep").click()
    expect(page.locator(f"{CELL}.stopped")).to_have_count(6)
    page.locator("#delete-sweep").click()
    page.get_by_role("button", name="Delete it and all its runs").click()
    expect(page.locator("#sweep-status")).not_to_contain_text("0 of 6")
