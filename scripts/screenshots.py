"""Take the screenshots of the documentation: start the app, open each page, wait until it has computed, save a PNG.

python -m scripts.screenshots [name ...]      (needs the dev dependencies and a Chromium)

The app has a home folder of its own with the models and data of yours, so that no run or project of
yours is shown, and nothing is left in it. A PNG has 256 colours, a third of the bytes.
"""

import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

from scripts.running import FLAGS, chromium_path, end_workers
from training.data.load import load_data
from training.sources.home import home_folder

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "assets" / "screenshots"
COLOURS = 256


def nothing(page: Page) -> None:
    """Does nothing, for pages that compute when they are opened."""


def train(page: Page) -> None:
    """The first preset, from start to end."""
    expect(page.locator("#plan")).to_contain_text("200 steps of 16")
    page.click("#start")
    expect(page.locator("#run-status .chipword").first).to_have_text("finished", timeout=1_800_000)
    page.evaluate("window.scrollTo(0, 0)")


def judge(page: Page) -> None:
    """A project on STSb dev, and two raters: one gives the gold scores, the other differs by 1 in each fourth pair."""
    data = load_data("stsb:dev")
    pairs = zip(*data.columns, strict=True)
    gold = dict(zip(pairs, data.scores or (), strict=True))
    page.locator("#label-name").get_by_role("textbox").fill("Pairs of STSb")
    page.click("#label-create")
    expect(page.locator("#label-card [data-pair]")).to_be_visible()
    for rater in ("Ann", "Ben"):
        name = page.locator("#label-rater").get_by_role("textbox")
        name.fill(rater)
        name.press("Enter")
        expect(page.locator("#label-card .count")).to_contain_text("· 0 judged")
        expect(page.locator("#label-card .scores button")).to_have_count(7)
        for number in range(1, 31):
            first, second = page.locator("#label-card blockquote").all_inner_texts()
            score = round(gold[first, second])
            if rater == "Ben" and number % 4 == 0:
                score = abs(score - 1)
            _press(page, str(score))
    page.click("#label-measure")


def threshold(page: Page) -> None:
    page.get_by_role("tab", name="Threshold").click()


def many(page: Page) -> None:
    page.get_by_role("tab", name="Many sentences").click()
    page.click("#compare-all")


def a_point(page: Page) -> None:
    page.click("#map-plot .nsewdrag")


@dataclass(frozen=True)
class Shot:
    """One picture: its page, the steps before it, and what to wait for."""

    name: str
    path: str
    # The selector of an element that appears when the page has computed.
    ready: str
    before: Callable[[Page], None] = nothing
    width: int = 1280
    height: int = 900
    dark: bool = False
    # Whether the whole page is shown, and not only what fits the window.
    whole: bool = False


SHOTS = (
    Shot("compare", "/", "#answer .decides", whole=True),
    Shot("compare-dark-phone", "/", "#answer .decides", width=390, height=844, dark=True),
    Shot("many", "/", "#cosine-matrix .js-plotly-plot", many, whole=True),
    Shot("bulk", "/bulk", ".js-plotly-plot", whole=True),
    Shot("train", "/train", "#curve-measure .js-plotly-plot", train, height=1250),
    Shot("ablation", "/ablation", ".js-plotly-plot", whole=True),
    Shot("evaluate", "/evaluate", "#scores table", whole=True),
    Shot("threshold", "/evaluate", "#threshold-lines .js-plotly-plot", threshold, whole=True),
    Shot("explore", "/explore", ".nearest", a_point, whole=True),
    Shot("label", "/label", "#label-quality tbody tr", judge, whole=True),
    Shot("learn", "/learn?lesson=3", "#figure-3 .js-plotly-plot", whole=True),
)


def main(names: list[str]) -> None:
    """Take all pictures, or those named."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        for part in ("models", "data"):
            (home / part).symlink_to(home_folder() / part)
        command = [sys.executable, "app.py", "--port", str(port), "--home", str(home)]
        app = subprocess.Popen(command, cwd=ROOT)
        try:
            _wait(f"http://127.0.0.1:{port}")
            with sync_playwright() as playwright:
                chromium = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
                for shot in SHOTS:
                    if not names or shot.name in names:
                        scheme = "dark" if shot.dark else "light"
                        view = {"width": shot.width, "height": shot.height}
                        page = chromium.new_context(viewport=view, color_scheme=scheme).new_page()
                        _take(page, shot, f"http://127.0.0.1:{port}")
                        page.context.close()
                chromium.close()
        finally:
            app.terminate()
            app.wait()
            end_workers(home)


def _take(page: Page, shot: Shot, base: str) -> None:
    page.set_default_timeout(120_000)
    expect.set_options(timeout=120_000)
    page.goto(base + shot.path)
    # The first of them may be folded away.
    page.wait_for_selector(".card, table, .js-plotly-plot, .waiting", state="attached")
    shot.before(page)
    page.wait_for_selector(shot.ready)
    # Figures finish drawing in this time.
    page.wait_for_timeout(1_500)
    picture = Image.open(BytesIO(page.screenshot(full_page=shot.whole)))
    path = FOLDER / f"{shot.name}.png"
    # The means of what is seen, or the ground would take on a tint.
    few = picture.convert("RGB").quantize(
        COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE
    )
    few.save(path, optimize=True)
    print(f"{path} {path.stat().st_size // 1024} KB")


def _press(page: Page, key: str) -> None:
    """Press a key on Label and wait until the server has saved it."""
    card = page.locator("#label-card [data-pair]")
    version = card.get_attribute("data-version") or ""
    page.keyboard.press(key)
    expect(card).not_to_have_attribute("data-version", version)


def _wait(url: str) -> None:
    for _ in range(600):
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
    raise SystemExit("the app did not start")


if __name__ == "__main__":
    main(sys.argv[1:])
