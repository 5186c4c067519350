"""The Train page in a real Chromium: runs are started, followed in two tabs, stopped, resumed, compared, exported."""

import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from scripts.running import end_workers

pytestmark = pytest.mark.browser

IS_AFTER = """step => Number(document.querySelector("#run-status").innerText.match(/step ([\\d,]+) of|$/)[1]
  ?.replaceAll(",", "")) > step"""
STATUS = "#run-status .card.run"

# Wait until a number of frames are drawn.
FRAMES = """frames => new Promise(done => {
    const draw = left => left ? requestAnimationFrame(() => draw(left - 1)) : done();
    draw(frames);
})"""


@pytest.fixture(scope="module", autouse=True)
def stop_workers(home: Path) -> Iterator[None]:
    """Workers outlive the app, as they should, but not the tests."""
    yield
    end_workers(home)


def choose(page: Page, field: str, option: str | re.Pattern[str]) -> None:
    """Choose in a list of the form."""
    page.locator(f"{field} input").click()
    page.get_by_role("option", name=option).first.click()


def unfold(page: Page, title: str) -> None:
    """Open a part of the form that is folded away; its fields get their values again some frames later."""
    page.get_by_role("button", name=re.compile(f"^{title}")).click()
    page.evaluate(FRAMES, 20)


def set_up(page: Page, name: str, steps: int, base: str = "scratch:1x32") -> None:
    """Fill the form in for a run that takes no time."""
    expect(page.locator("#plan")).to_contain_text("scored pairs")
    page.locator("#train-base input").fill(base)
    page.locator("#train-base input").press("Enter")
    if not page.get_by_label("Maximum steps").is_visible():
        unfold(page, "Optimisation")
    page.get_by_label("Maximum steps").fill(str(steps))
    page.locator("#run-name textarea").fill(name)


def start(page: Page, name: str, steps: int) -> None:
    set_up(page, name, steps)
    page.click("#start")
    expect(page.locator(STATUS)).to_contain_text(name)


def row(page: Page, name: str):
    return page.locator("#run-list tr", has_text=name)


def step(page: Page) -> int:
    found = re.search(r"step ([\d,]+) of", page.locator(STATUS).inner_text())
    return int(found[1].replace(",", "")) if found else 0


def test_the_page_opens_ready_to_start_and_says_what_the_curves_will_say(open_page, home):
    shutil.rmtree(home / "runs", ignore_errors=True)  # those of other pages' tests
    page = open_page("/train")
    expect(page.locator("#to-settings")).to_be_hidden()  # they are in sight
    expect(page.locator("#run-status")).to_contain_text("No run yet")
    expect(page.locator("#run-status")).to_contain_text("Cosine of random pairs")
    expect(page.locator("#plan")).to_contain_text("5,749 scored pairs · 200 steps of 16")
    told = re.compile("time known after 20 steps|the rate of")
    expect(page.locator("#plan")).to_contain_text(told)
    page.locator("#preset input").click()
    page.get_by_role("option", name="watch it collapse").click()
    expect(page.locator("#plan")).to_contain_text("20 steps of 16")


def test_a_setting_that_is_changed_at_once_is_estimated_too(open_page):
    page = open_page("/train")
    set_up(page, "", 2, base="scratch:1x64")
    page.get_by_label("Maximum steps").fill("3")
    expect(page.locator("#plan")).to_contain_text("3 steps of 16")


def test_the_address_has_what_is_changed_from_the_preset(open_page):
    page = open_page("/train?preset=collapse")
    expect(page.locator("#plan")).to_contain_text("20 steps of 16")
    unfold(page, "Optimisation")
    page.get_by_label("Maximum steps").fill("12")
    expect(page.locator("#lesson")).to_contain_text("Changed from the preset: Maximum steps.")
    expect(page).to_have_url(re.compile(r"preset=collapse&changed=%7B%22max_steps%22%3A12%7D$"))
    other = open_page("/train" + page.url.partition("/train")[2])
    expect(other.locator("#plan")).to_contain_text("12 steps of 16")
    expect(other.locator("#lesson")).to_contain_text("Changed from the preset: Maximum steps.")
    other.locator("#preset input").click()
    other.get_by_role("option", name="short demo").click()
    expect(other).to_have_url(re.compile(r"/train\?preset=\w+$"))


def test_a_run_is_started_watched_and_finishes(open_page):
    page = open_page("/train")
    start(page, "a short one", 2)
    expect(row(page, "a short one")).to_contain_text("finished")
    expect(page.locator("#curve-loss .js-plotly-plot")).to_be_visible()


@pytest.mark.slow
def test_a_live_run_in_two_tabs_outlives_a_reload_stop_and_resume(open_page):
    page = open_page("/train")
    start(page, "a long one", 1_000_000)
    expect(page.locator("#curve-loss .js-plotly-plot")).to_be_visible()
    expect(page.locator(STATUS)).to_contain_text(re.compile(r"left · [\d,]+ sentences/s · cpu"))
    page.reload()
    expect(page.locator(STATUS)).to_contain_text("a long one")
    before = step(page)
    other = open_page("/train")
    expect(row(other, "a long one")).to_contain_text("running")
    page.wait_for_function(IS_AFTER, arg=before)
    other.click("#stop-run")
    for tab in (page, other):
        expect(row(tab, "a long one")).to_contain_text("stopped")
    stopped_at = step(page)
    page.click("#resume-run")
    expect(row(other, "a long one")).to_contain_text("running")
    page.wait_for_function(IS_AFTER, arg=stopped_at)
    page.click("#stop-run")
    expect(row(page, "a long one")).to_contain_text("stopped")


@pytest.mark.slow
def test_a_finished_run_is_exported_compared_renamed_overlaid_and_deleted(open_page, tmp_path):
    page = open_page("/train")
    expect(page.locator("#plan")).to_contain_text("scored pairs")
    start(page, "an earlier one", 2)
    expect(row(page, "an earlier one")).to_contain_text("finished")
    page.get_by_role("radio", name="max").check()
    start(page, "a short one", 12)
    expect(page).to_have_url(re.compile(r"/train\?.*run=[\w-]+a-short-one"))
    expect(row(page, "a short one")).to_contain_text("finished")
    expect(page.locator(STATUS)).to_contain_text("best Spearman ρ ×100")
    expect(page.locator(STATUS)).to_contain_text("against the base")
    # As soon as it has ended.
    expect(page.locator("#plan")).to_contain_text("from the rate of “a short one”")

    with page.expect_download() as download:
        page.click("#export-run")
    with zipfile.ZipFile(download.value.path()) as packed:
        assert {"a-short-one/modules.json", "a-short-one/model.safetensors"} <= set(
            packed.namelist()
        )
        assert "stsb:train" in packed.read("a-short-one/README.md").decode()

    row(page, "an earlier one").locator("input").check()
    expect(page.locator("#curve-measure .scatterlayer .trace")).to_have_count(2)
    expect(page.locator("#curve-measure .legend .traces")).to_have_count(2)

    page.get_by_text("Rename, delete, push to the Hub, log").click()
    name = page.locator("#new-name textarea, #new-name input")
    # The field is mounted when its section opens, and gets its value then.
    expect(name).to_have_value("a short one")
    page.evaluate(FRAMES, 20)  # … and once more some frames later, over what was typed meanwhile
    name.fill("<b>mine</b>")
    page.click("#rename-run")
    expect(page.locator(STATUS).locator("h2")).to_have_text("<b>mine</b>")
    expect(page.locator("#run-log")).to_contain_text("finished after 12 steps")

    compare = page.locator(STATUS).get_by_role("link", name="Open in Compare").get_attribute("href")
    compared = open_page(compare.removeprefix("."))
    expect(compared.locator("#answer .card").first).to_contain_text("<b>mine</b> · max pooling")
    expect(compared.get_by_role("radio", name="max").first).to_be_checked()
    compared.locator(".model input").first.click()
    expect(compared.locator("[role=option]", has_text="run: <b>mine</b>").first).to_be_visible()

    settings = (
        page.locator(STATUS).get_by_role("link", name="Use these settings").get_attribute("href")
    )
    again = open_page(f"/{settings}")
    expect(again.locator("#fold-optimisation")).to_contain_text("Optimisation: 12 steps")
    unfold(again, "Optimisation")
    expect(again.get_by_label("Maximum steps")).to_have_value("12")
    expect(again.get_by_role("radio", name="max")).to_be_checked()
    again.locator("#filter-runs textarea, #filter-runs input").fill("mine finished")
    expect(again.locator("#run-list tbody tr")).to_have_count(1)

    page.click("#delete-run")
    page.click("#confirm-delete")
    expect(row(page, "mine")).to_have_count(0)
    expect(row(page, "an earlier one")).to_have_count(1)


def test_a_run_that_cannot_work_is_refused_before_it_is_started(open_page):
    page = open_page("/train")
    expect(page.locator("#plan")).to_contain_text("scored pairs")
    page.locator("#train-data input").fill("snli:train")
    page.locator("#train-data input").press("Enter")
    told = "regression needs pairs with a score, but snli:train holds labelled pairs; classification learns"
    expect(page.locator("#plan .problem")).to_contain_text(told, ignore_case=True)
    runs = page.locator("#run-list tbody tr").count()
    page.click("#start")
    expect(page.locator("#plan .problem")).to_contain_text(told, ignore_case=True)
    choose(page, "#objective", "classification")
    expect(page.locator("#plan")).to_contain_text("549,367 labelled pairs · 200 steps of 16")
    expect(page.get_by_label("Concatenation")).to_be_visible()
    unfold(page, "Optimisation")
    page.get_by_label("Learning rate").fill("fast")
    expect(page.locator("#plan .problem")).to_contain_text(
        "Learning rate is 'fast'", ignore_case=True
    )
    assert page.locator("#run-list tbody tr").count() == runs


def test_a_file_of_ones_own_chooses_the_objective(open_page, tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text(
        "sentence1,sentence2,label\n"
        + "A dog barks.,It is loud.,yes\nA cat sleeps.,It runs.,no\n" * 20
    )
    page = open_page("/train")
    choose(page, "#preset", "My own data: a file")
    expect(page.locator("#plan .problem")).to_contain_text("no training data yet")
    page.set_input_files("input[type=file] >> nth=0", file)
    expect(page.locator("#plan")).to_contain_text("40 labelled pairs")
    expect(page.locator("#objective input")).to_have_value("classification")


@pytest.mark.slow
def test_mined_negatives_are_shown_before_they_are_used(open_page):
    page = open_page("/train")
    expect(page.locator("#plan")).to_contain_text("scored pairs")
    expect(page.locator("#mine-negatives")).to_be_hidden()
    choose(page, "#objective", "mnrl")
    page.locator("#train-base input").fill("scratch:1x32")
    page.locator("#train-base input").press("Enter")
    page.locator("#mine-negatives input").check()
    expect(page.locator("#plan")).to_contain_text("mined by scratch:1x32 before the first step")
    page.click("#preview-negatives")
    expect(page.locator("#mined-negatives dl")).to_have_count(12)
    expect(page.locator("#mined-negatives .note").first).to_contain_text(
        "Hard negatives are mined among"
    )
    choose(page, "#objective", "margin-mse")
    expect(page.locator("#train-teacher")).to_be_visible()
    expect(page.locator("#plan")).to_contain_text("the teacher minilm-stsb computes the targets")
    choose(page, "#objective", "regression")
    expect(page.locator("#train-teacher")).to_be_hidden()
    expect(page.locator("#mine-negatives")).to_be_hidden()


def test_a_preset_fills_the_form(open_page):
    page = open_page("/train")
    choose(page, "#preset", "The paper: STSb recipe")
    expect(page.locator("#lesson")).to_contain_text("Section 4.2")
    expect(page.locator("#plan")).to_contain_text("1,440 steps of 16")
    expect(page.locator("#fold-optimisation")).to_contain_text(
        "Optimisation: 4 epochs, batch 16, lr 2e-5, seed 0"
    )
    page.get_by_role("radio", name="max").check()
    expect(page.locator("#lesson")).to_contain_text("Changed from the preset: Pooling.")
