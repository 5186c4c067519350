"""A real app and a real Chromium. One app for all browser tests; each test is a new visitor, in the same window.

A page of `open_page` is monitored: a console error, an uncaught exception or a request to another
host fails the test.
"""

import csv
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    expect,
    sync_playwright,
)

from sbert_app.pages import PAGES
from scripts.running import FLAGS, chromium_path

TIMEOUT_MS = 120_000  # for any one expectation, on a machine that is busy with other work
START_UP_SECONDS = 240
# What Gradio logs about requests that a reload aborts.
ABORTED = (
    "AbortError: signal is aborted",
    "AbortError: BodyStreamBuffer was aborted",
    "Connection errored out.",
)
expect.set_options(timeout=TIMEOUT_MS)


@pytest.fixture(scope="session")
def app_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the app prints."""
    return tmp_path_factory.mktemp("app") / "log.txt"


@pytest.fixture(scope="session")
def app_url(home: Path, app_log: Path) -> Iterator[str]:
    """The address of the app, started as the README says."""
    with running_app(home, app_log) as url:
        yield url


@contextmanager
def running_app(home: Path, log: Path, *options: str) -> Iterator[str]:
    """The address of an app of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with log.open("w") as output:
        command = [sys.executable, "app.py", "--port", str(port), "--home", str(home), *options]
        app = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        try:
            _wait_until_up(url, app, log)
            for name in PAGES[1:]:  # a page is built when it is first asked for
                urllib.request.urlopen(f"{url}/{name}", timeout=START_UP_SECONDS).close()
            yield url
        finally:
            app.terminate()
            app.wait()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One browser for all tests: the one on the PATH, else Playwright's own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def window(chromium: Browser) -> Iterator[BrowserContext]:
    """One window for all tests, as a fresh one would fetch and compile 18 MB of scripts anew."""
    context = chromium.new_context(
        accept_downloads=True, permissions=["clipboard-read", "clipboard-write"]
    )
    context.set_default_timeout(TIMEOUT_MS)
    # Stays, so that there is one by which to clear the storage when all others are closed
    context.new_page()
    yield context
    context.close()


@pytest.fixture
def open_page(window: BrowserContext, app_url: str, app_log: Path) -> Iterator[Callable[..., Page]]:
    """open_page("/bulk", width=390, dark=True) -> a page. Fails the test on errors and on requests to other hosts.

    All pages of a test are one visitor's. After it they are closed, and the visitor's cookies and
    storage are removed.
    """
    faults: list[str] = []
    loads: list[Page] = []
    opened = 0

    def open_tab(
        path: str = "/", width: int = 1280, dark: bool = False, height: int | None = None
    ) -> Page:
        nonlocal opened
        opened += 1
        page = window.new_page()
        show(page, width, dark, height)
        page.on(
            "console",
            lambda message: faults.append(_where(message)) if message.type == "error" else None,
        )
        page.on("domcontentloaded", lambda loaded: loads.append(loaded))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on(
            "request",
            lambda request: (
                _is_local(request.url, app_url) or faults.append(f"requested {request.url}")
            ),
        )
        page.goto(app_url + path)
        return page

    yield open_tab
    blank, *tabs = window.pages
    for page in tabs:  # also what a link has opened
        page.close()
    window.clear_cookies()
    stored = "local_storage,indexeddb,service_workers,cache_storage"
    window.new_cdp_session(blank).send(
        "Storage.clearDataForOrigin", {"origin": app_url, "storageTypes": stored}
    )
    if len(loads) > opened:  # a page was reloaded
        faults = [fault for fault in faults if not any(text in fault for text in ABORTED)]
    assert faults == [], f"the app has printed: {app_log.read_text()[-8000:]}"


def show(page: Page, width: int = 1280, dark: bool = False, height: int | None = None) -> None:
    """Give the page a telephone's or a desk's size, and the colours of the day or the night."""
    usual = 844 if width < 600 else 900
    page.set_viewport_size({"width": width, "height": height or usual})
    page.emulate_media(color_scheme="dark" if dark else "light")


@pytest.fixture
def new_project(open_page: Callable[..., Page]) -> Callable[..., Page]:
    """new_project() -> the Label page with the form of a new project open, whether or not the app has projects."""

    def open_form(**how: Any) -> Page:
        page = open_page("/label", **how)
        expect(page.locator("#label-card [data-version]")).to_be_visible()  # its projects are known
        fold = page.get_by_role("button", name="A new project")
        if "open" not in (fold.get_attribute("class") or ""):
            fold.click()
        # Gradio draws what a fold holds when it is opened.
        expect(page.locator("#label-name")).to_be_visible()
        return page

    return open_form


def choosing(page: Page) -> None:
    """Open the fold in which another corpus or model is chosen; it closes when it is opened."""
    if not page.locator("#corpus-source").is_visible():
        page.locator("#corpus-choice > button").click()


def downloaded(page: Page, button: str) -> list[dict[str, str]]:
    """The rows of the CSV file that a button downloads."""
    with page.expect_download() as download:
        page.click(button)
    with Path(download.value.path()).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@contextmanager
def read_offline(chromium: Browser, file: Path, **how: Any) -> Iterator[Page]:
    """A report in a browser without a network, which must ask nobody for anything and report no fault."""
    context = chromium.new_context(offline=True, **how)
    reader = context.new_page()
    asked = []
    faults = []
    reader.on("request", lambda request: asked.append(request.url))
    reader.on(
        "console", lambda message: faults.append(message.text) if message.type == "error" else None
    )
    reader.on("pageerror", lambda error: faults.append(str(error)))
    reader.goto(file.as_uri())
    yield reader
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == faults == []
    context.close()


def _where(message: ConsoleMessage) -> str:
    return f"{message.text} {message.location.get('url', '')}"


def _is_local(url: str, app_url: str) -> bool:
    return url.startswith((app_url, "data:", "blob:"))


def _wait_until_up(url: str, app: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + START_UP_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            assert app.poll() is None, f"the app ended: {log.read_text()}"
            time.sleep(0.1)
    raise AssertionError(f"the app did not start in {START_UP_SECONDS} s: {log.read_text()}")
