"""The browser of the browser tests and of the screenshots: see ``find_browser.sh``, which installs one."""

from __future__ import annotations

import shutil

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium_path() -> str | None:
    """The one on the PATH; None for Playwright's own."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)
