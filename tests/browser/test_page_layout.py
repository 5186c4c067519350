"""What all pages share: few words and controls at first, figures as wide as their frames, one way
home, one Stop, and nothing that axe-core finds serious, in the light, in the dark and on a
telephone.

A page is opened once at a desk and once on a telephone, and each check leaves it as the next can
use it.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import show
from playwright.sync_api import Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout
from test_every_page import PAGES

from sbert_app.pages.learn.lesson import lessons

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CONTROLS = Path(__file__).with_name("controls.js").read_text(encoding="utf-8")
# page -> the most controls that it shows at first, at 1440 x 900
MOST_CONTROLS = {
    "/": 20,
    "/?tab=many": 20,
    "/bulk": 18,
    "/train": 20,
    "/ablation": 18,
    "/evaluate": 18,
    "/explore": 20,
    "/label": 18,
    "/learn?lesson=3": 32,
}
# page -> what has to be there before it is complete, where that is more than the tests of `PAGES`
# wait for
COMPLETE = {**PAGES, "/": "#answer .decides", "/train": "#plan:has-text('steps of')"}
MOST_STOPS = 200  # of the Tab key; more would be a trap
# page -> what it is for, and the most presses of the Tab key from the content on, where the link at
# the top leads
MOST_TO_ACTION = {
    "/": ("#sentence-a textarea", 2),
    "/bulk": ("#score", 8),
    "/train": ("#start", 2),
    "/ablation": ("#start-sweep", 18),
    "/evaluate": ("#measure-others > button", 18),
    "/explore": ("#map-colour input", 7),
    "/learn?lesson=3": ("#learn-train-pairs input", 5),
}
# The element with the focus: what it is, whether it is `action`, whether a ring is drawn around it,
# and whether it is the page's last link.
FOCUSED = """(action) => {
  const element = document.activeElement;
  if (!element || element === document.body) return null;
  const style = getComputedStyle(element), box = element.getBoundingClientRect();
  const place = element.closest("[id]"), label = element.getAttribute("aria-label") || element.innerText || "";
  return {
    name: `${element.tagName.toLowerCase()} in #${place ? place.id : ""} ${label}`,
    isAction: action !== null && element.matches(action),
    ring: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 && box.width > 1 && box.height > 1,
    last: element.closest(".page-footer") !== null,
  };
}"""
SERIOUS = ("serious", "critical")
WIDTHS = (1440, 1280, 390)
# Of each figure in sight: what it is, its width, that of what is around it, and of its axes where
# they end.
FIGURES = """() => [...document.querySelectorAll(".js-plotly-plot")].filter((plot) => plot.clientWidth > 0).map((plot) => {
  const frame = plot.parentElement.getBoundingClientRect(), drawn = plot.querySelector(".main-svg").getBoundingClientRect();
  return {name: plot.closest("[id]").id, width: drawn.width, frame: frame.width, left: drawn.left - frame.left};
})"""  # noqa: E501
FITTED = f"() => ({FIGURES})().every((each) => Math.abs(each.width - each.frame) <= 3 && Math.abs(each.left) <= 2)"


def settled(page: Page) -> list[dict]:
    """The figures of the page, when all of them fit or a moment has passed."""
    with suppress(PlaywrightTimeout):  # what does not fit is told by name
        page.wait_for_function(FITTED, timeout=10_000)
    return [
        each
        for each in page.evaluate(FIGURES)
        if abs(each["width"] - each["frame"]) > 3 or abs(each["left"]) > 2
    ]


# The words that can be seen, without those of figures, and without the lessons, which are there to
# be read.
WORDS = """() => {
  const walk = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  let text = "";
  while (walk.nextNode()) {
    const parent = walk.currentNode.parentElement, box = parent.getBoundingClientRect();
    const isSeen = box.width > 1 && parent.checkVisibility({visibilityProperty: true, opacityProperty: true});
    const isCounted = isSeen && !parent.closest(".site-nav, .js-plotly-plot, article.lesson");
    if (isCounted) text += ` ${walk.currentNode.textContent}`;
  }
  return (text.match(/[\\p{L}\\p{N}]\\S*/gu) || []).length;
}"""
HEIGHT = "document.documentElement.scrollHeight"
MOST_WORDS = 380
MOST_PIXELS = 1_900
# What stands below the box that it describes.
BELOW = """() => [...document.querySelectorAll("label:has(> input:is([type=checkbox], [type=radio]))")]
  .filter((label) => label.offsetWidth && label.lastElementChild.offsetTop >= label.firstElementChild.offsetTop + 16)
  .map((label) => label.innerText)"""
# Of the folds in sight and the switch of the theme: those that a finger misses 20 pixels above or
# below their middle.
MISSED = """() => [...document.querySelectorAll("#theme-switch, button.label-wrap")].filter((each) => {
  each.scrollIntoView({block: "center"});
  const {left, top, width, height} = each.getBoundingClientRect();
  return width && ![-20, 20].every((away) => each.contains(document.elementFromPoint(left + width / 2, top + height / 2 + away)));
}).map((each) => each.innerText)"""  # noqa: E501
# The arrows of folds that stand outside of their frames.
OUTSIDE = """() => [...document.querySelectorAll("button.label-wrap")].filter((fold) => fold.offsetWidth &&
  fold.lastElementChild.getBoundingClientRect().right > fold.parentElement.getBoundingClientRect().right
).map((fold) => fold.innerText)"""
IN_SIGHT = """() => {
  const nav = document.querySelector(".site-nav nav"), link = nav.querySelector("a[aria-current]");
  const seen = nav.getBoundingClientRect(), here = link.getBoundingClientRect();
  return here.left >= seen.left && here.right <= seen.right + 1;
}"""


def few_controls_and_words_are_seen_at_first(page: Page, path: str) -> None:
    controls = page.evaluate(CONTROLS)
    assert len(controls) <= MOST_CONTROLS[path], controls
    show(page, 1280)
    page.wait_for_timeout(1_000)
    assert page.evaluate(WORDS) <= MOST_WORDS
    # Learn opens with its first lesson.
    assert "lesson" in path or page.evaluate(HEIGHT) <= MOST_PIXELS


def the_tab_key_skips_the_navigation_leads_soon_to_the_action_and_shows_every_stop(
    page: Page, path: str
) -> None:
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#content")).to_be_focused()
    action, most = MOST_TO_ACTION.get(path, (None, 0))
    stops: list[dict] = []
    while not stops or not stops[-1]["last"]:
        assert len(stops) < MOST_STOPS, "the footer is not among the stops"
        page.keyboard.press("Tab")
        focused = page.evaluate(FOCUSED, action)
        assert focused is not None, f"the focus left the page after {stops[-1:]}"
        stops.append(focused)
    assert [stop["name"] for stop in stops if not stop["ring"]] == []
    assert action is None or any(stop["isAction"] for stop in stops[:most]), stops[:most]


def axe_finds_nothing_serious(page: Page, path: str) -> None:
    page.add_style_tag(content="* { transition: none !important; animation: none !important; }")
    # Gradio's place of a figure until it is drawn
    expect(page.get_by_label("Empty value")).to_have_count(0)
    # What is out of date is dimmed on purpose.
    faults = [
        f"{fault['id']}: {node['html'][:200]}"
        for fault in Axe().run(page, {"exclude": [[".stale"]]}).response["violations"]
        if fault["impact"] in SERIOUS
        for node in fault["nodes"]
    ]
    assert faults == []


def the_brand_and_the_title_have_one_left_edge_and_there_is_no_idle_stop(
    page: Page, path: str
) -> None:
    brand = page.locator("nav a.brand")
    title = page.locator("h1")
    assert abs(brand.bounding_box()["x"] - title.bounding_box()["x"]) <= 1
    assert page.get_by_role("button", name=re.compile("^Stop")).count() <= 1


def every_figure_of_every_tab_has_the_width_of_its_frame(page: Page, path: str) -> None:
    show(page, WIDTHS[0])
    tabs = page.get_by_role("tab")
    for index in range(max(1, tabs.count())):
        if index < tabs.count():
            tabs.nth(index).click()
            # Its figure is drawn, or its example begins to be computed.
            page.wait_for_timeout(1_000)
        for width in WIDTHS:
            show(page, width)
            assert settled(page) == [], f"tab {index} at {width} px"
    show(page, WIDTHS[0])


def nothing_changes_for_the_worse_in_the_dark(page: Page, path: str) -> None:
    page.locator("#theme-switch").click()
    assert settled(page) == []
    axe_finds_nothing_serious(page, path)


def the_words_of_a_checkbox_stand_beside_it(page: Page, path: str) -> None:
    if path == "/evaluate":
        page.get_by_role("tab").first.click()
    for _ in range(2):  # what is in a fold may have folds
        page.evaluate(
            "document.querySelectorAll('button.label-wrap:not(.open)').forEach((fold) => fold.click())"
        )
        page.wait_for_timeout(500)
    assert (
        path == "/label"
        or page.locator("input:is([type=checkbox], [type=radio]):visible").count() > 0
    )
    assert page.evaluate(BELOW) == []


def the_brand_leads_home(page: Page, path: str) -> None:
    page.locator("nav a.brand").click()
    expect(page).to_have_title("Compare · SBERT Lab")


def the_open_page_is_in_sight_in_the_navigation(page: Page, path: str) -> None:
    page.wait_for_function(IN_SIGHT)


def folds_and_the_theme_are_as_tall_as_a_finger_and_arrows_stand_in_their_frames(
    page: Page, path: str
) -> None:
    assert page.evaluate(MISSED) == []
    assert page.evaluate(OUTSIDE) == []


def every_tab_is_no_wider_than_the_screen(page: Page, path: str) -> None:
    tabs = page.get_by_role("tablist").first.get_by_role("tab")
    for index in range(tabs.count()):
        tabs.nth(index).scroll_into_view_if_needed()
        tabs.nth(index).click()
        expect(tabs.nth(index)).to_have_attribute("aria-selected", "true")
        page.wait_for_function("document.documentElement.scrollWidth <= innerWidth")


Check = Callable[[Page, str], None]
AT_A_DESK: tuple[Check, ...] = (
    few_controls_and_words_are_seen_at_first,
    the_tab_key_skips_the_navigation_leads_soon_to_the_action_and_shows_every_stop,
    axe_finds_nothing_serious,
    the_brand_and_the_title_have_one_left_edge_and_there_is_no_idle_stop,
    every_figure_of_every_tab_has_the_width_of_its_frame,
    nothing_changes_for_the_worse_in_the_dark,
    the_words_of_a_checkbox_stand_beside_it,
    the_brand_leads_home,
)
ON_A_TELEPHONE: tuple[Check, ...] = (
    the_open_page_is_in_sight_in_the_navigation,
    axe_finds_nothing_serious,
    folds_and_the_theme_are_as_tall_as_a_finger_and_arrows_stand_in_their_frames,
    every_tab_is_no_wider_than_the_screen,
)


@pytest.mark.parametrize(
    ("width", "checks"), [(1440, AT_A_DESK), (390, ON_A_TELEPHONE)], ids=["desk", "telephone"]
)
@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_laid_out_well(open_page, path, width, checks, subtests):
    page = open_page(path, width=width)
    expect(page.locator(COMPLETE[path]).first).to_be_visible()
    expect(page.locator("body.opened")).to_be_attached()
    for check in checks:
        with subtests.test(check.__name__):
            check(page, path)


def test_a_page_that_always_changes_is_shown_all_the_same(open_page):
    page = open_page("/ablation")
    page.evaluate("setInterval(() => document.body.classList.toggle('changes'), 50)")
    expect(page.locator("body.opened")).to_be_attached()
    expect(page.locator("#question")).to_be_visible()


def test_learn_opens_with_a_lesson_of_few_words_that_is_not_long(open_page):
    page = open_page("/learn", width=1280)
    expect(page.locator("#result-1 .measured").first).to_be_visible()
    page.wait_for_timeout(1_000)
    assert page.evaluate(WORDS) <= MOST_WORDS
    assert page.evaluate(HEIGHT) <= MOST_PIXELS


def test_a_figure_that_was_drawn_in_a_hidden_tab_fits_when_it_is_seen(open_page):
    page = open_page("/evaluate?tab=threshold", width=1440)
    page.get_by_role("tab", name="More").click()
    page.get_by_role("tab", name="Threshold").click()
    expect(page.locator("#threshold-lines .js-plotly-plot")).to_be_visible()
    page.get_by_role("tab", name="Quality").click()
    show(page, 1280)
    page.get_by_role("tab", name="Threshold").click()
    assert settled(page) == []
    assert len(page.evaluate(FIGURES)) >= 1


def test_the_arrow_keys_choose_a_tab_and_the_tab_key_leaves_them(open_page):
    page = open_page("/evaluate")
    tabs = page.get_by_role("tablist").first.get_by_role("tab")
    expect(tabs.nth(1)).to_have_js_property("tabIndex", -1)
    tabs.first.focus()
    page.keyboard.press("ArrowRight")
    expect(tabs.nth(1)).to_be_focused()
    expect(tabs.nth(1)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("End")
    expect(tabs.last).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Tab")
    assert not page.get_by_role("tablist").first.evaluate(
        "row => row.contains(document.activeElement)"
    )


def test_chips_are_one_stop_among_which_the_arrow_keys_move(open_page):
    page = open_page("/learn?lesson=9")
    expect(page.locator("#go-9")).to_have_js_property("tabIndex", 0)
    expect(page.locator("#rail [tabindex='0']")).to_have_count(1)
    page.locator("#go-9").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#go-10")).to_be_focused()
    # It is opened by Enter alone.
    expect(page.locator(".lesson-page h2")).to_have_text(lessons()[8].title)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('#rail')") is None


def test_on_a_telephone_the_result_is_on_the_first_screen_and_a_half(open_page):
    page = open_page("/", width=390)
    expect(page.locator(PAGES["/"]).first).to_be_visible()
    result = page.locator("#answer .card").first.bounding_box()
    settings = page.locator(".model").first.bounding_box()
    assert result["y"] <= 1.5 * 844 < 844 * 2
    assert result["y"] < settings["y"]


@pytest.mark.parametrize(
    ("tab", "table"),
    [("sts", "#scores"), ("threshold", "#threshold-status"), ("cost", "#cost-table")],
)
def test_a_telephone_shows_all_columns_of_a_table_without_scrolling(open_page, tab, table):
    page = open_page(f"/evaluate?tab={tab}", width=390)
    box = page.locator(f"{table} .scores")
    expect(box).to_be_visible()
    assert box.evaluate("box => box.scrollWidth <= box.clientWidth")
    cells = box.locator("tbody tr").first.locator("[data-head]")
    assert cells.count() >= 4
    assert all(
        0
        <= each.bounding_box()["x"]
        < each.bounding_box()["x"] + each.bounding_box()["width"]
        <= 390
        for each in cells.all()
    )
