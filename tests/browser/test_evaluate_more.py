"""The other tabs of the Evaluate page, in a browser: triplets and labels, transfer, folds."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser


@pytest.fixture
def opened(open_page: Callable[..., Page]) -> Callable[..., Page]:
    def tab(name: str, **how: object) -> Page:
        page = open_page("/evaluate", **how)
        expect(page.locator("#measure")).to_be_visible()
        page.get_by_role("tab", name=name).click()
        return page

    return tab


def upload(page: Page, place: str, text: str) -> None:
    page.locator(f"{place} input[type=file]").set_input_files(
        {"name": "mine.csv", "mimeType": "text/csv", "buffer": text.encode()}
    )
    expect(page.locator(place)).to_contain_text("mine")


def test_triplets_of_stsb_and_labels_of_a_file(opened):
    page = opened("Triplets and labels")
    page.click("#score-labels")
    expect(page.locator("#labels-status .lead")).to_contain_text(re.compile(r"closer in 99\.\d\d% of 264 triplets"))
    rows = "A man plays.,A man makes music.,entailment\nA man plays.,He <b>sings</b>.,neutral\n"
    rows += "A dog.,No dog.,contradiction\n"
    upload(page, "#labels-file", "sentence1,sentence2,label\n" + 3 * rows)
    page.click("#score-labels")
    expect(page.locator("#labels-status .lead").first).to_contain_text("average precision")
    expect(page.locator("#labels-status .lead").last).to_contain_text("with the labels as an order, on 9 pairs")
    expect(page.locator("#labels-spread .js-plotly-plot")).to_be_visible()


def test_a_file_of_neither_kind_is_said_in_one_sentence(opened):
    page = opened("Triplets and labels")
    upload(page, "#labels-file", "sentence\nonly one\n")
    page.click("#score-labels")
    expect(page.locator("#labels-status .problem")).to_contain_text("this needs triplets, or pairs with labels")


def test_transfer_scores_each_model_and_says_why_one_has_no_score(opened):
    page = opened("Transfer")
    rows = "".join(f"a good film number {i},good\nan awful thing number {i},bad\n" for i in range(12))
    upload(page, "#transfer-file", "text,label\n" + rows)
    box = page.locator("#transfer-models input")
    box.fill("minilm-stsb")
    box.press("Enter")
    page.get_by_role("heading", name="Evaluate").click()  # closes the list
    page.click("#score-transfer")
    table = page.locator("#transfer-status table")
    expect(table).to_contain_text("100.00")
    expect(table).to_contain_text("TF-IDF")
    expect(table).to_contain_text("a cross-encoder has no sentence embeddings")
    expect(table).to_contain_text("50.00")  # always the largest class


def test_folds_are_runs_that_a_reload_does_not_lose(opened):
    page = opened("Folds")
    page.fill("#folds-steps input", "1")
    page.click("#start-folds")
    expect(page.locator("#folds-table tbody tr")).to_have_count(4)
    page.click("#stop-folds")
    expect(page.locator("#folds-table")).to_contain_text(re.compile("stopped|finished"))
    page.reload()
    page.get_by_role("tab", name="Folds").click()
    expect(page.locator("#folds-table .lead")).to_contain_text("stsb-dev-by-genre.csv, topic")
