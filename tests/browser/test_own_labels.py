"""From labelled pairs of one's own to a scored file: which model, which threshold, and the file scored with both."""

import re

import pytest
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]

VERBS = ("reset", "change", "delete", "find", "export", "print", "share", "rename", "move", "open")
THINGS = (
    "my password",
    "the invoice",
    "my user name",
    "the report",
    "a calendar",
    "the address",
    "my order",
)
MOST_CLICKS = 6


@pytest.fixture
def support(tmp_path):
    """Questions to a help desk, in a workbook's words: no column has a name that is known."""
    rows = ["frage_a;frage_b;gleich"]
    for thing in THINGS:
        for verb in VERBS:
            rows.append(f"How do I {verb} {thing}?;How can I {verb} {thing}?;1")
            rows.append(f"How do I {verb} {thing}?;Where is your office in Berlin, please?;0")
            rows.append(f"Who can {verb} {thing}?;What does the weather look like today?;0")
    path = tmp_path / "support.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_which_model_which_threshold_and_the_file_scored_take_six_clicks(open_page, support):
    page: Page = open_page("/evaluate?tab=threshold")
    clicks = 0

    def click(locator) -> None:
        nonlocal clicks
        clicks += 1
        locator.click()

    expect(page.locator("#threshold-status")).to_contain_text("Shipped with the app")
    page.set_input_files("#threshold-file input[type=file]", support)
    for column, role in (("frage_a", "1"), ("frage_b", "2"), ("gleich", "target")):
        expect(page.locator(f"#threshold-panel select[data-column={column}]")).to_have_value(role)

    read_as = page.locator("#threshold-columns-read-as input")
    read_as.fill("1:1, 0:0")
    read_as.blur()
    click(page.locator("#threshold-model input"))
    click(page.locator("#threshold-model").get_by_role("option", name="GloVe average, 50 d"))
    click(page.locator("#find-threshold"))
    status = page.locator("#threshold-status")
    expect(status.locator(".lead").first).to_have_text(
        re.compile(r"Take .+\. .+ at 0\.\d+: finds \d+% of the matches")
    )
    expect(status).to_contain_text("paired bootstrap")
    expect(status).to_contain_text("Measured on support.csv: 210 pairs, of which 70 are matches.")
    expect(status.locator("tbody")).to_have_count(3)
    chosen = (
        status.locator("tbody", has_text="all-MiniLM-L6-v2").get_by_role("link", name="Use").last
    )
    click(chosen)

    expect(page).to_have_url(re.compile(r"/bulk\?job=[0-9a-f]{16}&.*bulk-threshold=0\.\d{4}"))
    asked = float(re.search(r"bulk-threshold=([\d.]+)", page.url)[1])
    expect(page.locator("#bulk-panel")).to_contain_text("support.csv")
    expect(page.locator("#bulk-panel select[data-column=gleich]")).to_have_value("target")
    expect(page.locator("#bulk-columns-read-as input")).to_have_value("1:1, 0:0")
    expect(page).to_have_url(re.compile("bulk-columns-read-as="))
    click(page.locator("#score"))
    expect(page.locator("#status")).to_contain_text("210 of 210 pairs scored")
    expect(page.locator("#cut input[type=number]")).to_have_value(f"{asked:g}")
    click(page.locator("#cut button.use"))
    expect(page.locator("#matches .lead")).to_contain_text(re.compile(r"\d+ of 210 pairs match"))
    expect(page.locator("#matched-csv")).to_be_visible()
    assert clicks <= MOST_CLICKS
