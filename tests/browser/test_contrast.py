"""Texts can be read, in the light and in the dark: a contrast of at least 4.5:1, as WCAG 2.2 AA asks."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

LOW_CONTRAST = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("path", "ready"),
    [
        ("/", "#answer .place.wrong"),  # the small orange
        ("/bulk", "#histogram .js-plotly-plot"),
        ("/train", "#run-status .card"),
        ("/evaluate", "#quality-speed .js-plotly-plot"),
        ("/learn?lesson=3", "#result-3 .measured"),
    ],
)
def test_in_both_themes(open_page, path, ready):
    page = open_page(path)
    expect(page.locator(ready).first).to_be_visible()
    page.add_style_tag(content="* { transition: none !important; }")
    assert page.evaluate(LOW_CONTRAST) == []
    page.locator("#theme-switch").click()
    expect(page.locator("#theme-switch")).to_have_text("Light")
    assert page.evaluate(LOW_CONTRAST) == []
