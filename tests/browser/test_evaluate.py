"""The Evaluate page in a real Chromium: a measured table at once, one's own cell by cell, and where a model errs."""

import csv
import re

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

PAIRS = [
    ("A man plays the guitar.", "A man is playing a guitar.", 4.8),
    ("A dog runs.", "The dog does not run.", 1.9),
    ("Stocks fell on Monday.", "A <b>cat</b> sleeps.", 0.0),
    ("Two women dance.", "Two women are dancing.", 5.0),
    ("It is raining.", "The sun shines.", 1.0),
    ("A girl eats an apple.", "A girl eats fruit.", 3.6),
]
# Rows of one pair are judgements of it: these are four times as many different pairs.
ROWS = [
    (f"{first} {number}", f"{second} {number}", score)
    for number in range(4)
    for first, second, score in PAIRS
]


@pytest.fixture
def mine(tmp_path):
    """A small file of scored pairs."""
    file = tmp_path / "mine.csv"
    with file.open("w", newline="") as out:
        csv.writer(out).writerows([("sentence1", "sentence2", "score"), *ROWS])
    return file


def choose(page, picker, *names):
    """Only these models or data sets."""
    box = page.locator(picker)
    expect(box.locator(".token")).not_to_have_count(0)
    box.locator(".remove-all").click()
    expect(box.locator(".token")).to_have_count(0)
    for name in names:
        box.locator("input").fill(name)
        box.locator("input").press("Enter")
        expect(box.locator(".token")).to_have_count(names.index(name) + 1)


def pick(page, picker, name):
    """One of a list."""
    field = page.locator(f"{picker} input")
    field.fill(name)
    field.press("Enter")
    # Gradio takes Enter a frame later; the name is lost if the focus goes before.
    expect(field).not_to_be_focused()


def measured(page, models, files=()):
    """Press Measure with these models on these files alone, and wait until every cell is there."""
    page.click("#measure-others > button")
    choose(page, "#evaluate-models", *models)
    choose(page, "#evaluate-data")
    page.set_input_files("#evaluate-files input[type=file]", list(files))
    # The table is there when the files have arrived. It has the ending of a name in an element of
    # its own.
    expect(page.locator("#evaluate-files table")).to_contain_text(files[-1].stem)
    expect(page.locator("#evaluate-panel section")).to_be_visible()  # they move the button
    page.click("#measure")
    expect(page.locator("#shipped-again")).to_be_visible()


def test_the_page_opens_with_a_measured_table(open_page):
    page = open_page("/evaluate")
    table = page.locator("#scores")
    expect(table).to_contain_text("Shipped with the app")
    expect(table).to_contain_text("python -m scripts.measure_evaluation")
    expect(table.locator("tr", has_text="GloVe average").first).to_contain_text("41.09")
    expect(table.locator("tr.paper-row").first).to_contain_text("58.02")
    page.click("#two-models > button")
    expect(page.locator("#findings")).to_contain_text("paired bootstrap")
    page.click("#speed > button")
    expect(page.locator("#quality-speed .js-plotly-plot")).to_be_visible()


def test_the_shipped_table_under_every_measure(open_page):
    page = open_page("/evaluate")
    table = page.locator("#scores")
    page.get_by_role(
        "button", name="Spearman ρ of the cosine; rows from the paper: Table 1"
    ).click()
    for name in ("dot product", "negative Euclidean", "negative Manhattan"):
        page.locator("#similarity").get_by_text(name, exact=True).click()
        expect(table.locator("caption").first).to_contain_text(name)
        expect(table.locator("tr.paper-row")).to_have_count(0)
    page.click("#two-models > button")
    expect(page.locator("#findings")).to_contain_text("Press Measure")
    page.locator("#similarity").get_by_text("cosine", exact=True).click()
    expect(table.locator("tr.paper-row")).to_have_count(9)
    page.locator("#paper").get_by_text("Tables 1 and 2").click()
    expect(table.locator("tr.paper-row")).to_have_count(21)
    page.locator("#paper").get_by_text("none").click()
    expect(table.locator("tr.paper-row")).to_have_count(0)
    page.locator("#pearson").get_by_role("checkbox").check()
    expect(table).to_contain_text("Reimers et al. (2016)")
    expect(
        page.get_by_role("button", name="Pearson r of the cosine; rows from the paper: none")
    ).to_be_visible()


def test_two_models_are_compared_in_words_and_the_table_is_copied(open_page):
    page = open_page("/evaluate")
    page.click("#two-models > button")
    pick(page, "#first-model", "GloVe average, 50 d")
    pick(page, "#second-model", "TF-IDF")
    expect(page.locator("#findings")).to_contain_text(
        "points better than GloVe average, 50 d on STSb (95% "
    )
    pick(page, "#first-model", "TF-IDF")
    expect(page.locator("#findings")).to_contain_text("two different models")
    page.get_by_role("button", name="Copy the table").click()
    for form, words in (("LaTeX", r"\begin{tabular}"), ("Markdown", "|---")):
        page.locator("#copy-form").get_by_text(form, exact=True).click()
        expect(page.locator("#copy-text")).to_contain_text(words)


@pytest.mark.slow
def test_own_files_are_measured_cell_by_cell_and_remembered(open_page, mine):
    page = open_page("/evaluate")
    measured(page, ["tfidf", "glove", "all-MiniLM-L6-v2:cls", "run:nowhere"], [mine])
    table = page.locator("#scores")
    expect(table).to_contain_text("Measured here: 3 of 4 cells")
    expect(table.locator("th", has_text="mine.csv")).to_contain_text("24 pairs")
    expect(table.locator(".problem")).to_contain_text("there is no run 'nowhere'")
    expect(table.locator("tr", has_text="CLS pooling").first.locator("td").first).to_contain_text(
        re.compile(r"\d\d")
    )
    page.click("#two-models > button")
    expect(page.locator("#findings")).to_contain_text("on mine.csv")
    page.get_by_role("button", name="Spearman ρ of the cosine").click()
    page.locator("#pearson").get_by_role("checkbox").check()
    expect(table.locator("caption").first).to_contain_text("Pearson")
    page.click("#measure")
    expect(table).to_contain_text("3 cached, with the speed of their first run")
    page.click("#shipped-again")
    expect(table).to_contain_text("Shipped with the app")
    expect(page.locator("#shipped-again")).to_be_hidden()


def test_a_file_without_gold_scores_is_gradio_errors(open_page, tmp_path):
    file = tmp_path / "plain.csv"
    file.write_text("sentence1,sentence2\nA dog runs.,A cat sleeps.\n")
    page = open_page("/evaluate")
    measured(page, ["tfidf"], [file])
    expect(page.locator("#scores .problem")).to_contain_text("needs a score or a label")
    for chart in ("#quality-speed", "#findings", "#first-model"):
        expect(page.locator(chart)).to_be_hidden()  # there is nothing to show


def test_a_long_measurement_is_stopped(open_page):
    page = open_page("/evaluate")
    page.click("#measure-others > button")
    choose(page, "#evaluate-models", "scratch:8x384", "scratch:9x384")
    page.click("#measure")
    expect(page.locator("#evaluate-status")).to_contain_text("of 2: scratch:8x384 on STSb")
    page.click("#stop-measure")
    expect(page.locator("#evaluate-status .problem")).to_contain_text("Stopped")
    expect(page.locator("#measure")).to_be_enabled()


@pytest.mark.slow
def test_where_a_model_errs(open_page):
    page = open_page("/evaluate")
    page.get_by_role("tab", name="Errors").click()
    expect(page.locator("#errors-status")).to_contain_text("1,500 pairs")
    page.locator("#slices summary").click()
    for by in ("mean length", "negation", "words in common"):
        expect(page.locator("#slices")).to_contain_text(by)
    page.locator("#under label").nth(1).click()
    expect(page.locator("#errors-pair")).to_contain_text("all cells sum to the cosine")
    expect(page.locator("#errors-map .js-plotly-plot")).to_be_visible()


@pytest.mark.slow
def test_compare_says_on_which_file_the_calibration_was_fitted(open_page, tmp_path):
    files = [tmp_path / "first.csv", tmp_path / "second.csv"]
    for number, file in enumerate(files):
        rows = [(f"{a} {number} {i}", b, gold) for i, (a, b, gold) in enumerate(ROWS * 3)]
        with file.open("w", newline="") as out:
            csv.writer(out).writerows([("sentence1", "sentence2", "score"), *rows])
    page = open_page("/evaluate?tab=calibration")
    said = page.locator("#calibrate-status")
    # It opens with a check of what ships.
    expect(said).to_contain_text("7 more pairs are left out because it was fitted on them")
    for place, file in zip(("#calibrate", "#calibrate-check"), reversed(files), strict=True):
        page.set_input_files(f"{place}-file input[type=file]", file)
        expect(page.locator(f"{place}-panel section")).to_be_visible()
    page.click("#calibrate")
    expect(said).to_contain_text("is now fitted on 72 pairs of second.csv; Compare uses it")
    expect(said).to_contain_text("On 72 pairs of first.csv, the 80% band holds")
    expect(page.locator("#reliability .js-plotly-plot")).to_be_visible()
    compare = open_page("/?a=A dog runs.&b=A cat sleeps.")
    expect(compare.locator("#answer")).to_contain_text("(second.csv)")
    compare = open_page("/?a=A dog runs.&b=A cat sleeps.&model=all-MiniLM-L6-v2:mean")
    expect(compare.locator("#answer")).to_contain_text("(second.csv)")  # a pooling in the name
    assert "calibrate-" not in page.url
    page.click("#calibrate-back")
    expect(page.locator("#calibrate-status")).to_contain_text("is now the one fitted on STSb train")
