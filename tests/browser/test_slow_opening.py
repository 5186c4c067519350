"""An opening that is slow undoes nothing: what a person types, uploads, chooses or opens before its answer stays."""

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect
from test_bulk import choose

pytestmark = pytest.mark.browser

QUESTIONS = re.compile(r"/gradio_api/(run|queue/join)")


@pytest.fixture
def open_slowly(window: BrowserContext, open_page: Callable[..., Page]) -> Iterator[Callable[[str, Callable], Page]]:
    """open_slowly(path, do) -> a page to which ``do`` was done before the server had the questions of its opening."""
    waiting, is_held = [], True

    def hold(route) -> None:
        if is_held:
            waiting.append(route)
        else:
            route.continue_()

    def open_and_do(path: str, do: Callable[[Page], None]) -> Page:
        nonlocal is_held
        page = open_page(path)
        expect(page.locator("h1")).to_be_visible()
        page.wait_for_timeout(2_000)
        assert waiting, "the page asks nothing as it opens"
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


def test_compare_keeps_typed_sentences_and_a_list(open_slowly):
    def do(page):
        page.fill("#sentence-a textarea", "It rains.")
        choose(page, "#compare-models .cross", "none")

    page = open_slowly("/?a=One.&b=Two.&cross=minilm-stsb", do)
    expect(page.locator("#sentence-a textarea")).to_have_value("It rains.")
    expect(page.locator("#sentence-b textarea")).to_have_value("Two.")
    expect(page.locator("#compare-models .cross input")).to_have_value("none")
    expect(page.locator("#answer .answer")).to_have_attribute("data-a", "It rains.")


def test_learn_keeps_a_lesson(open_slowly):
    page = open_slowly("/learn?lesson=2", lambda page: page.click("#go-5"))
    expect(page.locator("#lesson-5")).to_be_visible()
    expect(page.locator("#lesson-2")).to_be_hidden()
