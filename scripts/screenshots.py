"""Take the screenshots of the README: start the app, open each page, wait until it has computed, save a PNG.

python -m scripts.screenshots [page ...]      (needs the dev dependencies and a Chromium)
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "assets" / "screenshots"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@dataclass(frozen=True)
class Shot:
    """One picture: where, what to click, what to wait for."""

    name: str
    path: str
    ready: str  # a selector that is there when the page has computed
    clicks: tuple[str, ...] = ()
    width: int = 1280
    height: int = 900
    dark: bool = False
    whole: bool = False  # the whole page, not only what fits the window


SHOTS = (
    Shot("compare", "/", "#word-map .js-plotly-plot", whole=True),
    Shot("compare-dark-phone", "/", "#answer .card", width=390, height=844, dark=True),
    Shot("many", "/", "#cosine-matrix .js-plotly-plot", ("role=tab[name='Many sentences']",), whole=True),
    Shot("bulk", "/bulk", ".js-plotly-plot", whole=True),
    Shot("train", "/train", "button:has-text('Start')", whole=True),
    Shot("ablation", "/ablation", ".js-plotly-plot", whole=True),
    Shot("evaluate", "/evaluate", "#quality-speed .js-plotly-plot", height=1600),
    Shot("explore", "/explore", ".nearest", ("#map-plot .nsewdrag",), whole=True),
    Shot("learn", "/learn?lesson=3", "#result-3 .measured", whole=True),
)


def main(names: list[str]) -> None:
    """Take all pictures, or those named."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    app = subprocess.Popen([sys.executable, "app.py", "--port", str(port)], cwd=ROOT)
    try:
        _wait(f"http://127.0.0.1:{port}")
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            for shot in SHOTS:
                if not names or shot.name in names:
                    scheme = "dark" if shot.dark else "light"
                    view = {"width": shot.width, "height": shot.height}
                    page = chromium.new_context(viewport=view, color_scheme=scheme).new_page()
                    _take(page, shot, f"http://127.0.0.1:{port}")
            chromium.close()
    finally:
        app.terminate()
        app.wait()


def _take(page: Page, shot: Shot, base: str) -> None:
    page.set_default_timeout(120_000)
    page.goto(base + shot.path)
    page.wait_for_selector(".card, table, .js-plotly-plot")
    for click in shot.clicks:
        page.click(click)
    page.wait_for_selector(shot.ready)
    page.wait_for_timeout(1_500)  # let figures finish drawing
    page.screenshot(path=FOLDER / f"{shot.name}.png", full_page=shot.whole)
    print(FOLDER / f"{shot.name}.png")


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
