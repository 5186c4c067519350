"""A real app and a real Chromium. One app for all browser tests; each test has a fresh browser context.

A page of `open_page` is monitored: a console error, an uncaught exception or a request to another host fails the test.
"""

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT
from playwright.sync_api import Browser, Page, expect, sync_playwright

from scripts.chromium import FLAGS, chromium_path

TIMEOUT_MS = 60_000  # for any one expectation, on a slow machine
START_UP_SECONDS = 240
# What Gradio logs about requests that a reload aborts.
ABORTED = ("AbortError: signal is aborted", "Connection errored out.")
expect.set_options(timeout=TIMEOUT_MS)


@pytest.fixture(scope="session")
def app_url(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the app, started as the README says."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url, log = f"http://127.0.0.1:{port}", tmp_path_factory.mktemp("app") / "log.txt"
    with log.open("w") as output:
        command = [sys.executable, "app.py", "--port", str(port), "--home", str(home)]
        app = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        try:
            _wait_until_up(url, app, log)
            yield url
        finally:
            app.terminate()
            app.wait(timeout=20)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One browser for all tests: the one on the PATH, else Playwright's own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Browser, app_url: str) -> Iterator[Callable[..., Page]]:
    """open_page("/bulk", width=390, dark=True) -> a page. Fails the test on errors and on requests to other hosts."""
    faults: list[str] = []
    contexts, loads = [], []

    def open_context(path: str = "/", width: int = 1280, dark: bool = False) -> Page:
        context = chromium.new_context(
            viewport={"width": width, "height": 844 if width < 600 else 900},
            color_scheme="dark" if dark else "light",
            accept_downloads=True,
        )
        contexts.append(context)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("domcontentloaded", lambda loaded: loads.append(loaded))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: _is_local(request.url, app_url) or faults.append(f"requested {request.url}"))
        page.goto(app_url + path)
        return page

    yield open_context
    for context in contexts:
        context.close()
    if len(loads) > len(contexts):  # a page was reloaded
        faults = [fault for fault in faults if not any(text in fault for text in ABORTED)]
    assert faults == []


@pytest.fixture
def new_project(open_page: Callable[..., Page]) -> Callable[..., Page]:
    """new_project() -> the Label page with the form of a new project open, whether or not the app has projects."""

    def open_form(**how: Any) -> Page:
        page = open_page("/label", **how)
        expect(page.locator("#label-card [data-version]")).to_be_visible()  # its projects are known
        if not page.locator("#label-name").is_visible():
            page.get_by_role("button", name="A new project").click()
        return page

    return open_form


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
