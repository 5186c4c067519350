"""Every page opens and, once it has loaded, can be read in both themes and fits a telephone.

Those marked slow elsewhere open each page again as on a telephone, in the dark, and go through it
by keyboard.
"""

import re
from pathlib import Path

import pytest
from conftest import show
from playwright.sync_api import expect

from sbert_app.server.pages import standalone

pytestmark = pytest.mark.browser

# Google's Web Vitals call a cumulative layout shift below 0.1 good.
MOST_SHIFT = 0.1
# Each layout shift of the page so far: when, how much, and what has moved.
SHIFTS = """() => new Promise((resolve) => {
  const named = ({node, previousRect, currentRect}) =>
    `${node?.id || node?.className || node?.nodeName} ${previousRect.top} -> ${currentRect.top}`;
  const observer = new PerformanceObserver((list) => resolve(list.getEntries()
    .filter((shift) => !shift.hadRecentInput)
    .map((shift) => [shift.startTime, shift.value, shift.sources.map(named)])));
  observer.observe({type: "layout-shift", buffered: true});
  setTimeout(resolve, 1000, []);
})"""
LOW_CONTRAST = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")
# page -> what has to be there before it is complete
PAGES = {
    "/": "#answer .card .place.wrong",  # the small orange
    "/?tab=many": "#times .lead",
    "/bulk": "#histogram .js-plotly-plot",
    "/train": "#run-status .card",
    "/ablation": ".js-plotly-plot",
    "/evaluate": "#scores table",
    "/explore": "#map-plot .nsewdrag",
    "/label": "#label-card [data-version]",
    "/learn?lesson=3": "#result-3 .measured",
}


@pytest.mark.parametrize("path", PAGES)
def test_a_page_opens_is_legible_in_both_themes_and_fits_a_telephone(open_page, path):
    page = open_page(path)
    expect(page.locator(PAGES[path]).first).to_be_visible()
    page.add_style_tag(content="* { transition: none !important; }")
    assert page.evaluate(LOW_CONTRAST) == []
    page.locator("#theme-switch").click()
    expect(page.get_by_role("button", name="Light", exact=True)).to_be_visible()
    assert page.evaluate(LOW_CONTRAST) == []
    show(page, width=390)
    # Figures follow a moment later.
    page.wait_for_function("document.documentElement.scrollWidth <= 390")


@pytest.mark.parametrize("path", PAGES)
def test_nothing_jumps_while_a_page_opens(open_page, path):
    # At the first opening the browser fetches the script of each kind of component.
    expect(open_page(path).locator(PAGES[path]).first).to_be_visible()
    page = open_page(path, height=720)
    expect(page.locator(PAGES[path]).first).to_be_visible()
    page.wait_for_timeout(3_000)  # what stands below follows
    shifts = page.evaluate(SHIFTS)
    assert sum(value for _, value, _ in shifts) < MOST_SHIFT, shifts


def test_what_stands_below_the_navigation_and_the_heading_waits_for_them(open_page):
    page = open_page("/?tab=many")
    tabs = page.get_by_role("tablist").first
    expect(tabs).to_be_visible()
    page.locator("header.site-nav").evaluate(
        "navigation => navigation.classList.remove('site-nav')"
    )
    expect(tabs).not_to_be_visible()
    page.locator("main header").first.evaluate("navigation => navigation.classList.add('site-nav')")
    expect(tabs).to_be_visible()
    page.locator("main h1").evaluate("heading => heading.remove()")
    expect(tabs).not_to_be_visible()


@pytest.mark.slow
def test_eight_open_tabs_answer_like_one(open_page):
    """A browser allows six connections to a host: a page that kept one would let the seventh wait for ever."""
    pages = [open_page(path) for path in ("/", *["/label"] * 6, "/learn?lesson=2")]
    expect(pages[-1].locator("#result-2 .measured").first).to_be_visible()
    first = pages[0]
    first.bring_to_front()
    first.locator("#sentence-b textarea").fill(first.locator("#sentence-a textarea").input_value())
    expect(first.locator("#answer .card .score b").first).to_have_text("1.00")


def test_a_page_that_is_being_built_shows_the_navigation_first(open_page, window):
    shown = []

    def answer_first(route) -> None:
        shown.append(route.request.method)
        if len(shown) == 1:
            route.fulfill(
                body=standalone("opening", current="label", root="/"), content_type="text/html"
            )
        else:
            route.continue_()

    window.route("**/label", answer_first)
    page = open_page("/label")
    expect(page.locator(PAGES["/label"])).to_be_visible()
    expect(page.locator("nav a[aria-current=page]")).to_have_text("Label")
    window.unroute("**/label", answer_first)
    assert shown == ["GET", "HEAD", "GET"]


def test_a_page_that_is_left_says_so(open_page):
    page = open_page("/label")
    expect(page.locator(PAGES["/label"])).to_be_visible()
    page.evaluate("navigator.sendBeacon = address => localStorage.setItem('left', address)")
    page.goto(page.url.replace("label", "learn"))
    assert "/gradio_api/heartbeat/" in page.evaluate("localStorage.getItem('left')")


def test_the_address_names_what_is_chosen_and_back_undoes_a_step(open_page):
    page = open_page("/evaluate?tab=folds&folds-steps=70")
    expect(page.get_by_role("tab", name="Folds")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#folds-steps input")).to_have_value("70")
    page.locator("#folds-steps input").fill("80")
    expect(page).to_have_url(re.compile("tab=folds&folds-steps=80"))
    page.get_by_role("tab", name="Transfer").click()
    expect(page).to_have_url(re.compile("tab=transfer"))
    page.go_back()
    expect(page.get_by_role("tab", name="Folds")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#folds-steps input")).to_have_value("80")


@pytest.mark.slow
def test_the_address_opens_a_corpus(open_page):
    page = open_page(
        "/explore?tab=search&corpus-source=data&corpus-data=stsb:test&corpus-pooling=max"
    )
    expect(page.locator("#corpus-status")).to_contain_text("max pooling")
    expect(page.get_by_role("tab", name="Search")).to_have_attribute("aria-selected", "true")
    page.click("#corpus-choice > button")
    expect(page.get_by_role("radio", name="max").first).to_be_checked()


# page -> the values of its controls, where True stands for checked or pressed, and the address that
# names them
VALUES: dict[str, tuple[dict[str, str | bool], str]] = {
    "/": (
        {"#sentence-a textarea": "A dog barks.", "fieldset:has-text('Pooling') [value=max]": True},
        r"a=A\+dog\+barks\..*pooling=max",
    ),
    "/train": ({"#preset input": "Try it: watch it fail: max pooling"}, "preset=max"),
    "/evaluate": (
        {
            "[role=tab]:has-text('More')": True,
            "[role=tab]:has-text('Folds')": True,
            "#folds-steps input": "80",
        },
        "tab=folds&folds-steps=80",
    ),
    "/explore": (
        {"[role=tab]:has-text('Search')": True, "#search-query textarea": "A storm is coming."},
        r"search-query=A\+storm",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("path", VALUES)
def test_an_address_gives_a_second_browser_what_was_chosen(open_page, chromium, path):
    page = open_page(path)
    controls, address = VALUES[path]
    expect(page.locator(PAGES[path]).first).to_be_visible()
    page.wait_for_timeout(3_000)  # until the address is restored, it does not follow
    for control, value in controls.items():
        field = page.locator(control).first
        if value is True:
            field.click()
        else:
            field.fill(value)
            field.press("Enter")
    expect(page).to_have_url(re.compile(address))
    other = chromium.new_context().new_page()
    other.goto(page.url)
    for control, value in controls.items():
        field = other.locator(control).first
        if value is not True:
            expect(field).to_have_value(value)
        elif "[role=tab]" in control:
            expect(field).to_have_attribute("aria-selected", "true")
        else:
            expect(field).to_be_checked()
    other.context.close()
