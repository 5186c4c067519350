"""A real app and a real Chromium. One app for all browser tests; each test has a fresh browser context.

`open_page` gives a page that has been watched: a console error, an uncaught exception or a request to another host
fails the test that caused it.
"""

import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from paths import ROOT
from playwright.sync_api import Browser, Page, expect, sync_playwright

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


PATIENCE = 60_000  # milliseconds that a slow machine may take for anything
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="session")
def app_url(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the app, started as the README says."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url, log = f"http://127.0.0.1:{port}", tmp_path_factory.mktemp("app") / "log.txt"
    with log.open("w") as said:
        command = [sys.executable, "app.py", "--port", str(port), "--home", str(home)]
        app = subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=subprocess.STDOUT)
        try:
            _wait_until_up(url, app, log)
            yield url
        finally:
            app.terminate()
            app.wait(timeout=20)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One browser for all tests: the one on the PATH, else Playwright's own."""
    path = next((found for name in CHROMIUMS if (found := shutil.which(name))), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


CUT_OFF = "AbortError: signal is aborted", "Connection errored out."  # Gradio, of requests that a reload cuts off


@pytest.fixture
def open_page(chromium: Browser, app_url: str) -> Iterator[Callable[..., Page]]:
    """open_page("/bulk", width=390, dark=True) -> a page. Fails the test on errors and on foreign requests."""
    faults: list[str] = []
    contexts, loads = [], []

    def opened(path: str = "/", width: int = 1280, dark: bool = False) -> Page:
        context = chromium.new_context(
            viewport={"width": width, "height": 844 if width < 600 else 900},
            color_scheme="dark" if dark else "light",
            accept_downloads=True,
        )
        contexts.append(context)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("domcontentloaded", lambda loaded: loads.append(loaded))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: _own(request.url, app_url) or faults.append(f"asked {request.url}"))
        page.goto(app_url + path)
        return page

    yield opened
    for context in contexts:
        context.close()
    if len(loads) > len(contexts):  # one of them has been loaded anew
        faults = [fault for fault in faults if not any(said in fault for said in CUT_OFF)]
    assert faults == []


def _own(url: str, app_url: str) -> bool:
    return url.startswith((app_url, "data:", "blob:"))


def _wait_until_up(url: str, app: subprocess.Popen, log: Path) -> None:
    for _ in range(600):
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            assert app.poll() is None, f"the app ended: {log.read_text()}"
            time.sleep(0.1)
    raise AssertionError(f"the app did not start: {log.read_text()}")
