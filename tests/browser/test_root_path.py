"""Behind a proxy that has the app under a path of its own, every link leads to a page of the app."""

import re

import pytest
from conftest import running_app
from playwright.sync_api import Browser, Page, expect
from test_every_page import PAGES

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ROOT = "/lab"
# Where the links of the page lead.
LINKS = "() => [...document.querySelectorAll('a[href]')].map((link) => new URL(link.href))"
OUTSIDE = f"""() => ({LINKS})().filter((to) => to.origin === location.origin && to.pathname !== "{ROOT}"
  && !to.pathname.startsWith("{ROOT}/")).map((to) => to.href)"""


@pytest.fixture(scope="module")
def page(chromium: Browser, home, tmp_path_factory):
    """A page whose requests below the path go to the app without it, as by the nginx of deploy/."""
    with running_app(home, tmp_path_factory.mktemp("lab") / "log.txt", "--root-path", ROOT) as url:
        context = chromium.new_context(base_url=url)
        context.set_default_timeout(60_000)
        context.route(
            re.compile(re.escape(url + ROOT)),
            lambda route: route.continue_(url=url + route.request.url.removeprefix(url + ROOT)),
        )
        yield context.new_page()
        context.close()


@pytest.mark.parametrize("path", ["/", "/explore", "/learn?lesson=3"])
def test_no_link_leaves_the_path(page: Page, path):
    page.goto(ROOT + path)
    expect(page.locator(PAGES[path]).first).to_be_visible()
    assert page.evaluate(OUTSIDE) == []


def test_links_of_lessons_navigation_and_views_open_what_they_say(page: Page):
    page.goto(f"{ROOT}/learn?lesson=3")
    page.locator("#page-link-3 a").click()
    expect(page.get_by_label("Concatenation")).to_be_checked()
    expect(page).to_have_url(re.compile(f"{ROOT}/ablation"))
    page.get_by_role("navigation").get_by_role("link", name="Train").click()
    expect(page.locator("#preset")).to_be_visible()
    page.locator("nav a.brand").click()
    expect(page.locator("#answer .card").first).to_be_visible()
    page.locator("#answer summary", has_text="Copy as a link").click()
    link = page.get_by_role("button", name="Copy the link")
    expect(link).to_have_attribute("data-copy", re.compile(rf"^http://[^/]+{ROOT}/\?a="))
