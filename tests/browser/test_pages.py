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
