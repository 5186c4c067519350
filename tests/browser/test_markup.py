"""HTML and JavaScript in sentences, columns, names of files, runs and raters: none runs, none becomes an element."""

import csv
import re

import pytest
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]

MARKUP = (
    "<img src=x onerror=window.ran=1>",
    '"><svg onload=window.ran=2>',
    "<script>window.ran=3</script>",
    '<a href="javascript:window.ran=4">go</a>',
    "</title></style></textarea><img src=x onerror=window.ran=5>",
    "<b onmouseover=window.ran=6>bold</b>",
    "[x](javascript:window.ran=7)",
)
FILE = "<img src=x onerror=window.ran=8>.csv"
ELEMENTS = """() => {
  const found = [];
  const visit = (root) => root.querySelectorAll("*").forEach((element) => {
    for (const {name, value} of element.attributes) {
      const isHandler = /^on/i.test(name) && /window.ran/.test(value);
      if (isHandler || /^\\s*javascript:/i.test(value) || (name === "src" && value === "x"))
        found.push(element.outerHTML.slice(0, 160));
    }
    if (element.tagName === "SCRIPT" && /^window.ran/.test(element.textContent)) found.push(element.outerHTML);
    if (element.shadowRoot) visit(element.shadowRoot);
  });
  visit(document);
  return found;
}"""


def check(page: Page) -> None:
    page.wait_for_timeout(500)  # what loads an image that is not there fails a moment later
    assert page.evaluate("window.ran") is None
    assert page.evaluate(ELEMENTS) == []


def hover(page: Page, place: str) -> None:
    """Go over a figure, so that it shows its texts."""
    box = page.locator(place).first.bounding_box()
    assert box is not None
    for step in range(64):
        x = (step % 8 + 0.5) / 8
        y = (step // 8 + 0.5) / 8
        page.mouse.move(box["x"] + box["width"] * x, box["y"] + box["height"] * y)
        page.wait_for_timeout(20)


@pytest.fixture
def pairs(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    path = folder / FILE.replace("/", "")
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = [
            (f"{MARKUP[i % 7]} one {i}", f"{MARKUP[i % 3]} two {i}", i % 6, MARKUP[i % 7])
            for i in range(24)
        ]
        csv.writer(file).writerows([("sentence1", "sentence2", "score", MARKUP[0]), *rows])
    return path


def test_hostile_text_in_a_scored_file_stays_text(open_page, pairs):
    page = open_page("/bulk")
    expect(page.locator("#csv")).to_be_visible()  # the example is scored
    page.set_input_files("#upload input[type=file]", pairs)
    expect(page.locator("#bulk-panel")).to_contain_text("one 0")
    page.click("#score")
    expect(page.locator("#status")).to_contain_text("24 pairs scored")
    page.click("#cut button.use")
    expect(page.locator("#matches")).to_contain_text("match")
    for place in ("#scatter .js-plotly-plot", "#histogram .js-plotly-plot"):
        hover(page, place)
    check(page)
    page.reload()
    expect(page.locator("#bulk-history")).to_contain_text("csv")
    check(page)


def test_hostile_text_in_the_name_of_a_run_stays_text(open_page):
    page = open_page("/train")
    expect(page.locator("#plan")).to_contain_text("scored pairs")
    page.locator("#train-base input").fill("scratch:1x32")
    page.locator("#train-base input").press("Enter")
    page.get_by_role("button", name="Optimisation").click()
    page.get_by_label("Maximum steps").fill("3")
    page.locator("#run-name textarea").fill(MARKUP[0])
    page.click("#start")
    expect(page.locator("#run-list")).to_contain_text("onerror")
    check(page)


def test_hostile_text_in_a_project_and_its_raters_stays_text(new_project, pairs):
    page = new_project()
    page.set_input_files("#label-file input[type=file]", pairs)
    expect(page.locator("#label-panel section")).to_be_visible()
    page.locator("#label-name").get_by_role("textbox").fill(f"{MARKUP[0]} p")
    page.locator("#label-count input[type=number]").fill("15")
    page.locator("#label-create").click()
    expect(page.locator("#label-card .count")).to_contain_text("Pair 1 of 15")
    # Not the one before.
    expect(page.locator("#label-card blockquote").first).to_contain_text(re.compile(r" one \d"))
    rater = page.locator("#label-rater").get_by_role("textbox")
    rater.fill(MARKUP[0])
    rater.press("Enter")
    # Six scores, and “cannot judge”.
    expect(page.locator("#label-card .scores button")).to_have_count(7)
    expect(rater).not_to_be_focused()  # so that a digit is a score
    page.keyboard.press("3")
    expect(page.locator("#label-agreement")).to_contain_text("onerror")
    check(page)
