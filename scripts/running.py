"""The browser and the worker processes of an app that tests, benchmarks or screenshots run.

``find_browser.sh`` installs the browser where there is none. Workers outlive the app that has
started them, but not a test or a benchmark.
"""

import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# A run writes its checkpoint within this time.
ENDING_SECONDS = 10.0


def chromium_path() -> str | None:
    """The browser on the PATH; None for Playwright's own."""
    for name in BROWSERS:
        path = shutil.which(name)
        if path is not None:
            return path
    return None


def workers_of(home: Path) -> list[psutil.Process]:
    """The running workers of a home folder, whether the app or ``sbert-lab worker`` has started them."""
    workers = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        is_worker = "worker" in words or "sbert_app.services.jobs.worker" in words
        if is_worker and str(home) in words and _is_running(process):
            workers.append(process)
    return workers


def end_workers(home: Path) -> None:
    """Ends the workers of a home folder and their runs, so that nothing writes into it. Kills them after a while."""
    processes = []
    for worker in workers_of(home):
        with suppress(psutil.NoSuchProcess):
            processes += [worker, *worker.children(recursive=True)]
            worker.terminate()
    for process in _wait(processes):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    _wait(processes)


def _wait(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """The processes that still run after `ENDING_SECONDS`."""
    end = time.monotonic() + ENDING_SECONDS
    alive = [process for process in processes if _is_running(process)]
    while alive and time.monotonic() < end:
        time.sleep(0.05)
        alive = [process for process in alive if _is_running(process)]
    return alive


def _is_running(process: psutil.Process) -> bool:
    try:
        # A zombie has ended, but its parent, such as the app, has not noticed yet.
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
