"""An opening that is slow undoes nothing: what a person types, uploads, chooses or opens before its answer stays."""

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect
from test_bulk import choose

pytestmark = [pytest.mark.browser, pytest.mark.slow]

QUESTIONS = re.compile(r"/gradio_api/(run|queue/join)")


@pytest.fixture
def open_slowly(
    window: BrowserContext, open_page: Callable[..., Page]
) -> Iterator[Callable[[str, Callable], Page]]:
    """open_slowly(path, do) -> a page to which ``do`` was done before the server had the questions of its opening."""
    waiting = []
    is_held = True

    def hold(route) -> None:
        if is_held:
            waiting.append(route)
        else:
            route.continue_()

    def open_and_do(path: str, do: Callable[[Page], None]) -> Page:
        nonlocal is_held
        page = open_page(path)
        expect(page.locator("h1")).to_be_visible()
        while not waiting:
            page.wait_for_timeout(100)
        is_held = False
        do(page)
        page.wait_for_timeout(1_500)
        with page.expect_response(QUESTIONS):
            for route in waiting:
                route.continue_()
        page.wait_for_timeout(3_000)
        return page

    window.route(QUESTIONS, hold)
    yield open_and_do
    window.unroute(QUESTIONS, hold)


def file_of(tmp_path, name="mine.csv"):
    path = tmp_path / name
    rows = "".join(f"A man sleeps {n}.,A man is asleep {n}.,{n % 2}\n" for n in range(20))
    path.write_text(f"left,right,label\n{rows}", encoding="utf-8")
    return path


def test_compare_keeps_typed_sentences_and_a_list(open_slowly):
    def do(page):
        page.fill("#sentence-a textarea", "It rains.")
        choose(page, "#compare-models .cross", "none")

    page = open_slowly("/?a=One.&b=Two.&cross=minilm-stsb", do)
    expect(page.locator("#sentence-a textarea")).to_have_value("It rains.")
    expect(page.locator("#sentence-b textarea")).to_have_value("Two.")
    expect(page.locator("#compare-models .cross input")).to_have_value("none")
    expect(page.locator("#answer .answer")).to_have_attribute("data-a", "It rains.")


def test_learn_turns_no_page_before_it_has_opened_one(open_slowly):
    def do(page):
        expect(page.locator("#next")).to_be_disabled()
        expect(page.locator("#previous")).to_be_disabled()

    page = open_slowly("/learn?lesson=5", do)
    expect(page.locator("#lesson-5")).to_be_visible()
    expect(page.locator("#next")).to_be_enabled()
    expect(page.locator("#rail [aria-current=true]")).to_have_text("5 Cost")


def test_bulk_keeps_an_upload_and_a_model(open_slowly, tmp_path):
    def do(page):
        page.click("#bulk-models > button")
        choose(page, "#bulk-model", re.compile("all-mpnet-base-v2"))
        page.set_input_files("#upload input[type=file]", file_of(tmp_path))
        expect(page.locator("#bulk-panel")).to_contain_text("mine.csv")

    page = open_slowly("/bulk?bulk-model=tfidf", do)
    expect(page.locator("#bulk-panel")).to_contain_text("mine.csv")
    expect(page.locator("#bulk-model input")).to_have_value(re.compile("all-mpnet-base-v2"))


def test_explore_keeps_a_tab_and_a_source(open_slowly):
    def do(page):
        page.get_by_role("tab", name="Clusters").click()
        page.click("#corpus-choice > button")
        page.get_by_role("radio", name="Paste").check()
        page.fill("#corpus-text textarea", "One.\nTwo.")

    page = open_slowly("/explore?tab=pairs&corpus-source=data", do)
    expect(page.get_by_role("tab", name="Clusters")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("radio", name="Paste")).to_be_checked()
    expect(page.locator("#corpus-text textarea")).to_have_value("One.\nTwo.")


def test_train_keeps_a_field_and_a_list(open_slowly):
    def do(page):
        choose(page, "#train-base", re.compile("all-mpnet-base-v2"))
        page.fill("#run-name textarea, #run-name input", "mine")

    page = open_slowly("/train?preset=collapse", do)
    expect(page.locator("#train-base input")).to_have_value(re.compile("all-mpnet-base-v2"))
    expect(page.locator("#run-name").locator("textarea, input")).to_have_value("mine")


def test_evaluate_keeps_a_tab_a_list_and_a_number(open_slowly):
    def do(page):
        page.click("#two-models > button")
        choose(page, "#second-model", "TF-IDF")
        page.get_by_role("tab", name="Threshold").click()
        page.click("#threshold-settings > button")
        page.locator("#threshold-match input").fill("3")
        choose(page, "#threshold-data", re.compile("SNLI dev"))

    page = open_slowly("/evaluate?tab=cost&threshold-data=stsb:test&similarity=dot&paper=none", do)
    expect(page.get_by_role("tab", name="Threshold")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#threshold-data input")).to_have_value(re.compile("SNLI dev"))
    expect(page.locator("#threshold-match input")).to_have_value("3")
    page.get_by_role("tab", name="Quality").click()
    expect(page.locator("#scores caption").first).to_contain_text("dot product")
    expect(page.locator("#second-model input")).to_have_value("TF-IDF")
