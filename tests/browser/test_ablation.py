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


def test_the_form_repeats_the_measured_figure_that_the_page_opens_with(open_page):
    page = opened(open_page)
    expect(page.locator("#ablation-figure .js-plotly-plot")).to_be_visible()
    expect(page.locator("#question")).to_contain_text("Mean stands out")
    expect(page.locator("#sweep-base input")).to_have_value("raw-bert-mini")
    expect(page.locator("#sweep-plan")).to_contain_text("Start repeats the figure")
    page.locator("#steps input").fill("20")
    page.locator("#steps input").press("Tab")
    expect(page.locator("#sweep-plan")).to_contain_text("Differs from the figure: steps.")
    page.locator("#numbers summary").first.click()
    table = page.locator("#numbers .ablation tbody tr")
    expect(table).to_have_count(3)
    expect(page.locator("#numbers")).to_contain_text("69.92")  # the paper's max
    expect(page.locator("#numbers")).to_contain_text(
        "24.3 points worse (95% 22.6 to 25.9), in all 5 seeds"
    )
    page.get_by_role("radio", name="all-MiniLM-L6-v2").check()
    expect(page.locator("#question")).to_contain_text("already tuned on sentence pairs")
    expect(page.locator("#sweep-base input")).to_have_value("all-MiniLM-L6-v2")
    expect(page.locator("#sweep-plan")).to_contain_text("Start repeats the figure")
    page.wait_for_url(re.compile("base=all-MiniLM-L6-v2"))
    page.locator("#numbers summary", has_text="Where these numbers").click()
    expect(page.locator("#numbers")).to_contain_text("python -m scripts.measure_ablation pooling")


def test_a_link_opens_an_ablation_from_a_base_with_its_own_settings(open_page):
    page = opened(open_page, "/ablation?preset=concat&base=all-MiniLM-L6-v2&steps=40")
    expect(page.locator("#question")).to_contain_text("softmax")
    expect(page.locator("#question")).to_contain_text("none ends above 86.2")
    expect(page.locator("#sweep-data")).to_be_visible()
    expect(page.locator("#steps input")).to_have_value("40")
    for name, words in (
        ("Objective", "loss"),
        ("Concatenation", "softmax"),
        ("Base", "pre-training"),
    ):
        page.get_by_role("radio", name=name, exact=True).check()
        expect(page.locator("#question")).to_contain_text(words)
    expect(page.locator("#sweep-base")).to_be_hidden()  # it is what is varied
    page.get_by_role("radio", name="Temperature").check()
    expect(page.locator("#question")).to_contain_text("Not measured yet")
    expect(page.locator("#ablation-figure .js-plotly-plot")).to_be_hidden()


def test_a_wrong_base_is_said_before_anything_starts(open_page, home: Path):
    page = opened(open_page)
    page.locator("#sweep-base input").fill("run:nowhere")
    page.locator("#sweep-base input").press("Enter")
    expect(page.locator("#sweep-plan .problem")).to_contain_text("here is no run")
    before = sorted((home / "experiments").glob("*"))
    page.locator("#start-sweep").click()
    expect(page.locator("#sweep-plan .problem")).to_contain_text("here is no run")
    assert before == sorted((home / "experiments").glob("*"))


@pytest.mark.slow
def test_a_sweep_runs_end_to_end_and_survives_a_reload(open_page, home: Path):
    page = opened(open_page)
    ask(page, 1, 2)
    page.locator("#start-sweep").click()
    expect(page.locator(CELL)).to_have_count(3)
    page.reload()
    expect(page.locator(f"{CELL}.finished")).to_have_count(3)
    expect(page.locator("#sweep-status")).to_contain_text("3 of 3 runs finished")
    page.locator("#numbers summary").first.click()
    expect(page.locator("#numbers")).to_contain_text("in the one seed: nothing to test")
    expect(
        page.locator(
            "#ablation-figure .legendtext", has_text="here (scratch:1x32, 1 seed, 2 steps)"
        )
    ).to_be_visible()
    sweep = json.loads(next((home / "experiments").glob("*-pooling.json")).read_text())
    assert sweep["changes"] == {"learning_rate": 1e-4, "max_steps": 2, "base": "scratch:1x32"}
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
