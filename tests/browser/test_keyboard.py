"""Every page by keyboard alone: Tab goes through all its controls to the footer, and shows where it is."""

import pytest
from playwright.sync_api import Page, expect
from test_pages import PAGES

from sbert_app.pages.learn.lesson import lessons

pytestmark = [pytest.mark.browser, pytest.mark.slow]

MOST_STOPS = 200  # of a page; more would be a trap
# page -> what it is for, and the most presses of the Tab key from the content on, where the link at the top leads
MOST_TO_ACTION = {
    "/": ("#sentence-a textarea", 2),
    "/bulk": ("#score", 8),
    "/train": ("#start", 2),
    "/ablation": ("#start-sweep", 18),
    "/evaluate": ("#measure", 11),
    "/explore": ("#map-colour input", 7),
    "/learn?lesson=3": ("#learn-train-pairs input", 5),
}
# The element with the focus: what it is, whether a ring is drawn around it, whether it is the page's last link.
FOCUSED = """() => {
  const element = document.activeElement;
  if (!element || element === document.body) return null;
  const style = getComputedStyle(element), box = element.getBoundingClientRect();
  const place = element.closest("[id]");
  return {
    name: `${element.tagName.toLowerCase()} in #${place ? place.id : ""} ${element.getAttribute("aria-label") || element.innerText || ""}`,
    ring: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 && box.width > 1 && box.height > 1,
    last: element.closest(".page-footer") !== null,
  };
}"""  # noqa: E501


@pytest.mark.parametrize(
    ("path", "ready"),
    [
        ("/", "#word-map .js-plotly-plot"),
        ("/?tab=many", "#times .lead"),
        ("/bulk", "#histogram .js-plotly-plot"),
        ("/train", "#plan:has-text('steps of')"),
        ("/ablation", ".js-plotly-plot"),
        ("/evaluate", "#scores table"),
        ("/explore", "#map-plot .nsewdrag"),
        ("/label", "#label-card [data-version]"),
        ("/learn?lesson=9", "#result-9 .measured"),
    ],
)
def test_tab_reaches_the_footer_and_shows_every_stop(open_page, path, ready):
    page: Page = open_page(path)
    expect(page.locator(ready).first).to_be_visible()
    hidden, stops = [], ["the start"]
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        focused = page.evaluate(FOCUSED)
        assert focused is not None, f"the focus left the page after {stops}"
        stops.append(focused["name"])
        if not focused["ring"]:
            hidden.append(focused["name"])
        if focused["last"]:
            break
    else:
        raise AssertionError(f"{MOST_STOPS} stops, and the footer was not among them")
    assert hidden == []


@pytest.mark.parametrize("path", ["/", "/train", "/explore", "/learn?lesson=9"])
def test_the_arrow_keys_choose_among_radio_buttons(open_page, path):
    page: Page = open_page(path)
    group = page.locator("fieldset:visible:has(input[type=radio])").first
    expect(group).to_be_visible()
    expect(group.locator("input:checked")).to_have_count(1)
    before = group.locator("input:checked").input_value()
    group.locator("input:checked").focus()
    page.keyboard.press("ArrowRight")
    expect(group.locator("input:checked")).to_have_count(1)
    expect(group.locator("input:checked")).not_to_have_value(before)
    expect(group.locator("input:checked")).to_be_focused()


@pytest.mark.parametrize("path", MOST_TO_ACTION)
def test_few_stops_lead_to_what_a_page_is_for(open_page, path):
    action, most = MOST_TO_ACTION[path]
    page: Page = open_page(path)
    expect(page.locator(PAGES.get(path, action)).first).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # skips the navigation
    expect(page.locator("main")).to_be_focused()
    stops = []
    while len(stops) < most and not page.locator(f":is({action}):focus").count():
        page.keyboard.press("Tab")
        stops.append(page.evaluate(FOCUSED)["name"])
    assert page.locator(f":is({action}):focus").count(), stops


def test_chips_are_one_stop_among_which_the_arrow_keys_move(open_page):
    page: Page = open_page("/learn?lesson=9")
    expect(page.locator("#go-9")).to_have_js_property("tabIndex", 0)
    expect(page.locator("#rail [tabindex='0']")).to_have_count(1)
    page.locator("#go-9").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#go-10")).to_be_focused()
    expect(page.locator(".lesson-page h2")).to_have_text(lessons()[8].title)  # it is opened by Enter alone
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('#rail')") is None
