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
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def workers_of(home: Path) -> list[psutil.Process]:
    """The workers that run, whether the app or ``sbert-lab worker`` has started them."""
    workers = []
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if (
            {"worker", "sbert_app.services.jobs.worker"} & set(line)
            and str(home) in line
            and _runs(process)
        ):
            workers.append(process)
    return workers


def end_workers(home: Path) -> None:
    """Ends the workers with their runs, which write into the folder until then, and kills those that take too long."""
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
    while (
        alive := [process for process in processes if _runs(process)]
    ) and time.monotonic() < end:
        time.sleep(0.05)
    return alive


def _runs(process: psutil.Process) -> bool:
    """Whether a process runs: it may have ended without its parent, such as the app, having noticed."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
