"""The main state of each page looks as in the picture that is stored of it: a layout that breaks is seen.

Pictures are compared in structure, so that they hold on other machines: text in the metrics of Arial, which those of
Liberation Sans are; nothing that moves, and no estimate of a run, which is longer where a rate is known; then the mean
brightness of squares of 16 pixels. A figure that was measured anew, or a word more, changes few of them.
RENEW_PICTURES=1 stores them anew.
"""

import os
import shutil
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from conftest import show
from PIL import Image
from playwright.sync_api import Page, expect
from test_pages import PAGES

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PICTURES = Path(__file__).with_name("pictures")
STATES = {"compare": "/", "train": "/train", "ablation": "/ablation", "evaluate": "/evaluate", "explore": "/explore"}
STATES |= {"label": "/label", "learn": "/learn?lesson=3", "bulk": "/bulk"}
SQUARE = 16  # pixels
MOST_CHANGE = 20  # of 255, in the mean of a square
MOST_CHANGED = 0.08  # of all squares
LOOKS = 10  # at a page that is still drawn, a second apart
STILL = """* { font-family: "Liberation Sans", Arial, Helvetica, sans-serif !important; letter-spacing: 0 !important;
  transition: none !important; animation: none !important; caret-color: transparent !important; }
  #plan { display: none !important; }"""
ADOPT = """const sheet = new CSSStyleSheet(); sheet.replaceSync(`%s`); document.adoptedStyleSheets.push(sheet);"""


@pytest.fixture(scope="module", autouse=True)
def as_at_first(home: Path) -> None:
    """Without the runs and projects of other files' tests."""
    for part in ("runs", "annotations"):
        shutil.rmtree(home / part, ignore_errors=True)


def squares(page: Page) -> np.ndarray:
    """The mean brightness (rows, columns) of the squares of the first screen."""
    page.wait_for_timeout(1_000)
    picture = np.asarray(Image.open(BytesIO(page.screenshot())).convert("L"), dtype=np.float32)
    rows, columns = picture.shape[0] // SQUARE, picture.shape[1] // SQUARE
    cut = picture[: rows * SQUARE, : columns * SQUARE]
    return cut.reshape(rows, SQUARE, columns, SQUARE).mean(axis=(1, 3))


def settled(page: Page) -> np.ndarray:
    """The squares of a page that is drawn: as they were a look before."""
    seen, before = squares(page), None
    while before is None or not np.array_equal(seen, before):
        seen, before = squares(page), seen
    return seen


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", STATES)
def test_a_page_looks_as_its_picture(open_page, name, width):
    page = open_page(STATES[name], width=width)
    page.add_init_script(ADOPT % STILL)  # before a figure is drawn, as Plotly measures a text once
    page.reload()
    expect(page.locator(PAGES[STATES[name]]).first).to_be_attached()
    show(page, width)
    stored = PICTURES / f"{name}-{width}.png"
    if os.environ.get("RENEW_PICTURES"):
        Image.fromarray(settled(page).round().astype(np.uint8)).save(stored, optimize=True)
    known = np.asarray(Image.open(stored), dtype=np.float32)
    for _ in range(LOOKS):
        seen = squares(page)
        assert seen.shape == known.shape
        changed = np.abs(seen - known) > MOST_CHANGE
        if changed.mean() <= MOST_CHANGED:
            return
    raise AssertionError(f"{changed.mean():.0%} changed; first rows {np.flatnonzero(changed.any(1))[:9]}")


def test_a_picture_of_another_page_is_told_apart():
    """The test can fail: two pages differ by more than what is allowed."""
    for width in (1280, 390):
        first, second = (
            np.asarray(Image.open(PICTURES / f"{name}-{width}.png"), dtype=np.float32) for name in ("train", "compare")
        )
        assert (np.abs(first - second) > MOST_CHANGE).mean() > MOST_CHANGED
