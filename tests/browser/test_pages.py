"""Every page opens and, once it has loaded, can be read in both themes and fits a telephone.

Those marked slow elsewhere open each page again as on a telephone, in the dark, and go through it by keyboard.
"""

from pathlib import Path

import pytest
from conftest import show
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

LOW_CONTRAST = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")
# page -> what has to be there before it is complete
PAGES = {
    "/": "#answer .place.wrong",  # the small orange
    "/?tab=many": "#cosine-matrix .js-plotly-plot",
    "/bulk": "#histogram .js-plotly-plot",
    "/train": "#run-status .card",
    "/ablation": ".js-plotly-plot",
    "/evaluate": "#quality-speed .js-plotly-plot",
    "/explore": "#map-plot .nsewdrag",
    "/label": "#label-card [data-version]",
    "/learn?lesson=3": "#result-3 .measured",
}


@pytest.mark.parametrize("path", PAGES)
def test_it_opens_can_be_read_in_both_themes_and_fits_a_telephone(open_page, path):
    page = open_page(path)
    expect(page.locator(PAGES[path]).first).to_be_visible()
    page.add_style_tag(content="* { transition: none !important; }")
    assert page.evaluate(LOW_CONTRAST) == []
    page.locator("#theme-switch").click()
    expect(page.locator("#theme-switch")).to_have_text("Light")
    assert page.evaluate(LOW_CONTRAST) == []
    show(page, width=390)
    page.wait_for_function("document.documentElement.scrollWidth <= 390")  # figures follow a moment later


@pytest.mark.slow
def test_twelve_open_tabs_answer_like_one(open_page):
    """A browser allows six connections to a host: a page that kept one would let the seventh wait for ever."""
    pages = [open_page(path) for path in (*PAGES, "/", "/learn?lesson=1", "/learn?lesson=2")]
    expect(pages[-1].locator("#result-2 .measured").first).to_be_visible()
    first = pages[0]
    first.bring_to_front()
    first.locator("#sentence-b textarea").fill(first.locator("#sentence-a textarea").input_value())
    expect(first.locator("#answer .card .score b").first).to_have_text("1.00")


def test_a_page_that_is_left_says_so(open_page):
    page = open_page("/label")
    expect(page.locator(PAGES["/label"])).to_be_visible()
    page.evaluate("navigator.sendBeacon = address => localStorage.setItem('left', address)")
    page.goto(page.url.replace("label", "learn"))
    assert "/gradio_api/heartbeat/" in page.evaluate("localStorage.getItem('left')")
