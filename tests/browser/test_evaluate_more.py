"""The other tabs of the Evaluate page, in a browser: triplets and labels, transfer, folds."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser


@pytest.fixture
def opened(open_page: Callable[..., Page]) -> Callable[..., Page]:
    def tab(name: str, **how: object) -> Page:
        page = open_page("/evaluate", **how)
        expect(page.locator("#scores table").first).to_be_visible()
        if name != "Threshold":
            page.get_by_role("tab", name="More").click()
        page.get_by_role("tab", name=name).click()
        return page

    return tab


def upload(page: Page, place: str, text: str) -> None:
    page.locator(f"{place} input[type=file]").set_input_files(
        {"name": "mine.csv", "mimeType": "text/csv", "buffer": text.encode()}
    )
    expect(page.locator(place)).to_contain_text("mine")
    # They move what stands below.
    expect(page.locator(place.replace("-file", "-panel") + " section")).to_be_visible()


@pytest.mark.slow
def test_triplets_of_stsb_and_labels_of_a_file(opened):
    page = opened("Triplets and labels")
    page.click("#score-labels")
    expect(page.locator("#labels-status .lead")).to_contain_text(
        re.compile(r"closer in 99\.\d\d% of 264 triplets")
    )
    rows = [
        f"{who} plays.,{other}"
        for who in ("A man", "A girl", "A band")
        for other in (
            f"{who} makes music.,entailment",
            "He <b>sings</b>.,neutral",
            f"No {who}.,contradiction",
        )
    ]
    upload(page, "#labels-file", "\n".join(["sentence1,sentence2,label", *rows]))
    page.click("#score-labels")
    expect(page.locator("#labels-status .lead")).to_contain_text(
        "with the labels as an order, on 9 pairs"
    )
    expect(page.locator("#labels-spread .js-plotly-plot")).to_be_visible()


def test_a_threshold_is_shown_at_once_and_found_on_a_file_with_labels(opened):
    page = opened("Threshold")
    table = page.locator("#threshold-status table")
    expect(table.locator("tbody tr")).to_have_count(5)
    expect(page.locator("#threshold-status .lead")).to_contain_text("Take all-MiniLM-L6-v2.")
    expect(page.locator("#threshold-status")).to_contain_text(
        "STSb dev: 1,500 pairs, of which 264 are matches"
    )
    expect(page.locator("#threshold-status")).to_contain_text("Shipped with the app: measured ")
    expect(page.locator("#threshold-curve .js-plotly-plot")).to_be_visible()
    expect(page.locator("#threshold-lines .js-plotly-plot")).to_be_visible()
    rows = "".join(
        f"A man plays {i}.,A man is playing {i}.,yes\nA dog {i}.,<b>Stocks</b> fell.,no\n"
        for i in range(9)
    )
    upload(page, "#threshold-file", "sentence1,sentence2,label\n" + rows)
    page.get_by_role("button", name="Precision of at least 95%").click()
    page.fill("#threshold-precision input", "0.9")
    expect(page.get_by_role("button", name="Precision of at least 90%")).to_be_visible()
    page.click("#find-threshold")
    expect(page.locator("#threshold-status")).to_contain_text(
        "on mine.csv: 18 pairs, of which 9 are matches"
    )
    expect(page.locator("#threshold-status")).to_contain_text("Yes is a match, no is not.")
    expect(table).to_contain_text("precision ≥ 90%")


@pytest.mark.slow
def test_a_number_is_typed_through_those_out_of_its_range(opened):
    page = opened("Threshold")
    page.click("#threshold-settings > button")
    field = page.locator("#threshold-precision input")
    field.fill("")
    field.press_sequentially("0.8")
    expect(page.locator("#threshold-settings > button")).to_contain_text(
        "Precision of at least 80%"
    )
    field.fill("7")
    field.blur()
    expect(field).to_have_value("0.999")


@pytest.mark.slow
def test_cost_shows_every_size_of_the_vectors_and_where_it_was_measured(opened):
    page = opened("Cost")
    expect(page.locator("#cost-table tbody tr")).to_have_count(5)
    expect(page.locator("#cost-table tbody tr").first.locator("td")).to_have_count(4)
    expect(page.locator("#cost-status .lead")).to_contain_text(
        "384 dimensions in float32, 1,536 bytes a vector"
    )
    expect(page.locator("#cost-table")).to_contain_text(
        re.compile(r"Shipped with the app, measured on .+ cores?:")
    )
    expect(page.locator("#cost-figure .js-plotly-plot")).to_be_visible()


@pytest.mark.slow
def test_transfer_scores_each_model_and_says_why_one_has_no_score(opened):
    page = opened("Transfer")
    rows = "".join(
        f"a good film number {i},good\nan awful thing number {i},bad\n" for i in range(12)
    )
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


@pytest.mark.slow
def test_folds_are_runs_that_a_reload_does_not_lose(opened):
    page = opened("Folds")
    expect(page.locator("#folds-table")).not_to_be_empty()  # the tab is there as a whole
    page.fill("#folds-steps input", "1")
    page.click("#start-folds")
    expect(page.locator("#folds-table tbody tr")).to_have_count(4)
    page.click("#stop-folds")
    expect(page.locator("#folds-table")).to_contain_text(re.compile("stopped|finished"))
    page.reload()
    expect(page.get_by_role("tab", name="Folds")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#folds-table .lead")).to_contain_text("stsb-dev-by-genre.csv, topic")
    page.click("#delete-folds")
    page.get_by_role("button", name="Delete it and all its runs").click()
    expect(page.locator("#folds-table")).to_contain_text("Shipped with the app")
