"""Every figure downloads as PNG and SVG and every table as CSV, on every page that has one, also by keyboard."""

import csv
import io
import re
from pathlib import Path

import pytest
from conftest import read_offline
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser


def content(page: Page, press) -> bytes:
    with page.expect_download() as download:
        press()
    return Path(download.value.path()).read_bytes()


@pytest.mark.parametrize(
    ("path", "figure"),
    [
        ("/ablation", "#ablation-figure"),
        pytest.param("/explore", "#map-plot", marks=pytest.mark.slow),
    ],
)
def test_a_figure_is_downloaded_as_png_and_svg(open_page, path, figure):
    page = open_page(path)
    plot = page.locator(f"{figure} .js-plotly-plot").first
    expect(plot).to_be_visible()
    expect(plot).to_have_attribute("aria-label", re.compile(r"\w{5}"))  # more than "Plot"
    buttons = plot.locator("xpath=following-sibling::div[1]").locator("button")
    expect(buttons).to_have_count(2)
    expect(buttons.last).to_have_attribute("aria-label", "Download the figure as SVG")
    assert content(page, buttons.first.click).startswith(b"\x89PNG")
    buttons.last.focus()
    svg = content(page, lambda: page.keyboard.press("Enter")).decode()
    assert svg.startswith("<svg")
    assert "#1f2933" in svg or "rgb(31, 41, 51)" in svg  # dark text on white, in any theme


def test_a_table_is_downloaded_as_csv(open_page):
    page = open_page("/ablation", dark=True)
    page.locator("#numbers summary").first.click()
    first = page.locator("#numbers table.plain").first
    expect(first.locator("button.download")).to_have_attribute(
        "aria-label", "Download the table as CSV"
    )
    rows = list(
        csv.reader(io.StringIO(content(page, first.locator("button.download").click).decode()))
    )
    assert len(rows) == first.locator("tr").count()
    assert len(set(map(len, rows))) == 1
    assert not any("CSV" in cell for cell in rows[0])


def test_a_cell_that_a_spreadsheet_would_execute_is_text(open_page, tmp_path):
    file = tmp_path / "evil.csv"
    file.write_text('sentence1,sentence2\n"=1+1, 2","says ""hi"""\nA dog.,A cat.\n')
    page = open_page("/bulk")
    expect(page.locator("#csv")).to_be_visible()  # the example is scored
    page.set_input_files("#upload input[type=file]", file)
    expect(page.locator("#bulk-panel table")).to_contain_text("=1+1, 2")
    page.click("#score")
    expect(page.locator("#rows summary")).to_be_visible()
    page.locator("#rows summary").click()
    press = page.locator("#rows table button.download").click
    text = content(page, press).decode()
    assert "'=1+1, 2" in text
    assert any('says "hi"' in row for row in csv.reader(io.StringIO(text)))


def test_a_report_opens_from_disk_and_asks_nobody(chromium, open_page, tmp_path):
    page = open_page("/")
    expect(page.locator("#answer .decides")).to_be_visible()
    file = tmp_path / "report.html"
    file.write_bytes(content(page, page.locator("#report-comparison").click))
    with read_offline(chromium, file, color_scheme="dark") as reader:
        expect(reader.locator(".word-map")).to_be_visible()
        expect(reader.locator("h2", has_text="Scores")).to_be_visible()
        expect(reader.locator("dd", has_text="all-MiniLM-L6-v2").first).to_be_visible()
        assert reader.evaluate("document.body.classList.contains('dark')")
