"""axe-core finds nothing serious on any page: in the light, in the dark, on a telephone."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import show
from playwright.sync_api import expect
from test_pages import PAGES

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SERIOUS = ("serious", "critical")


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False)])
@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing_serious(open_page, path, width, dark):
    page = open_page(path, width=width, dark=dark)
    expect(page.locator(PAGES[path]).first).to_be_visible()
    page.add_style_tag(content="* { transition: none !important; animation: none !important; }")
    show(page, width, dark)
    expect(page.get_by_label("Empty value")).to_have_count(0)  # Gradio's place of a figure until it is drawn
    found = [
        f"{fault['id']}: {node['html'][:200]}"
        for fault in Axe().run(page).response["violations"]
        if fault["impact"] in SERIOUS
        for node in fault["nodes"]
    ]
    assert found == []
