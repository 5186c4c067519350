"""Each kind of result downloads as a file that opens from disk, asks nobody for anything and is accessible."""

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import read_offline
from playwright.sync_api import Page, expect
from test_page_layout import SERIOUS

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FIGURE = ".js-plotly-plot"


def compare_all(page: Page) -> None:
    page.click("#compare-all")


def choose_an_error(page: Page) -> None:
    page.locator("#over label").first.click()
    expect(page.locator(f"#errors-map {FIGURE}")).to_be_visible()


def press_a_point(page: Page) -> None:
    page.locator("#map-plot .nsewdrag").click()
    expect(page.locator("#map-nearest .nearest")).to_be_visible()


# kind -> page, what to do there, what has to be there then, a heading of the report
KINDS = {
    "many": ("/?tab=many", compare_all, f"#cosine-matrix {FIGURE}", "The most similar"),
    "errors": (
        "/evaluate?tab=errors",
        choose_an_error,
        "#slices summary",
        "Rated too high by the model",
    ),
    "map": ("/explore", press_a_point, f"#map-plot {FIGURE}", "The nearest sentences"),
    "lesson": ("/learn?lesson=13", lambda _: None, "#result-13 .measured", "Measured"),
}


def opened_offline(chromium, page: Page, name: str, tmp_path: Path, heading: str) -> None:
    with page.expect_download() as download:
        page.locator(f"#report-{name}").click()
    file = tmp_path / "report.html"
    download.value.save_as(file)
    with read_offline(chromium, file) as reader:
        expect(reader.get_by_role("heading", name=heading, exact=True)).to_be_visible()
        found = Axe().run(reader).response["violations"]
        serious = [
            (fault["id"], fault["nodes"][0]["html"][:200])
            for fault in found
            if fault["impact"] in SERIOUS
        ]
    assert serious == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_opens_offline_and_can_be_read(chromium, open_page, tmp_path, kind):
    path, prepare, ready, heading = KINDS[kind]
    page = open_page(path)
    expect(page.locator("h1")).to_be_visible()
    prepare(page)
    expect(page.locator(ready).first).to_be_visible()
    opened_offline(chromium, page, kind, tmp_path, heading)


def test_a_project_of_ratings_is_reported_under_its_name(chromium, new_project, tmp_path):
    page = new_project()
    page.locator("#label-name").get_by_role("textbox").fill("<i>Support</i>")
    page.locator("#label-count input[type=number]").fill("15")
    page.locator("#label-create").click()
    expect(page.locator("#label-card [data-pair]")).to_be_visible()
    expect(page.locator("#report-label")).to_be_hidden()  # nothing is judged
    rater = page.locator("#label-rater").get_by_role("textbox")
    rater.fill("Ann")
    rater.press("Enter")
    expect(page.locator("#label-card .scores button")).to_have_count(7)
    expect(rater).not_to_be_focused()  # so that a digit is a score
    page.keyboard.press("4")
    expect(page.locator("#label-agreement")).to_contain_text("Ann")
    opened_offline(chromium, page, "label", tmp_path, "<i>Support</i>")
