"""Opening a page: what is sent, when it is painted and answers, and what that costs the app and the browser.

Each of the eight pages is opened in Chromium with an empty cache while the app is warm and its home
folder has 300 runs (copies of one). With another tree of the app (``--against FOLDER``) both are
opened in turn. Times are Chromium's own marks; a page is interactive at the end of the last task of
its main thread that took over 50 ms, if two seconds without such a task and without a pending answer
follow. The page is then opened twice more by the same browser, which has its files by now
(``again``: the last of these). Bytes, requests and processor seconds depend little on how busy the
machine is, but the times do.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, CDPSession, sync_playwright

from benchmarks import machine
from benchmarks.start_up import (
    ARGUMENTS,
    CLIENT,
    ROOT,
    copy_home,
    process_of,
    processor_seconds,
    request,
    started,
)
from scripts.running import FLAGS, chromium_path, end_workers

PAGES = ("", "bulk", "train", "ablation", "evaluate", "explore", "label", "learn")
# After this time without a long task a page counts as settled.
QUIET_MS = 2_000
MOST_SECONDS = 60
OBSERVE = """() => { window.longTasks = [];
  new PerformanceObserver((list) => window.longTasks.push(...list.getEntries().map((task) => [task.startTime,
    task.startTime + task.duration]))).observe({type: "longtask", buffered: true}); }"""
SETTLED = """(quiet) => { const paint = performance.getEntriesByName("first-contentful-paint")[0];
  const busy = Math.max(0, ...window.longTasks.map((task) => task[1]), paint?.startTime ?? Infinity);
  return document.querySelector("main h1, main h2") && performance.now() - busy > quiet; }"""
FIGURES = """() => { const paint = performance.getEntriesByName("first-contentful-paint")[0].startTime;
  return {paint: paint / 1000, interactive: Math.max(paint, ...window.longTasks.map((task) => task[1])) / 1000,
    components: window.gradio_config.components.length, events: window.gradio_config.dependencies.length,
    elements: document.querySelectorAll("*").length}; }"""
# Decimal places of the columns of the table.
DIGITS = {
    "paint": 2,
    "interactive": 2,
    "again": 2,
    "server_seconds": 3,
    "renderer_seconds": 2,
    "megabytes": 2,
    "requests": 0,
    "components": 0,
    "events": 0,
    "elements": 0,
}

Row = dict[str, Any]


def run(rounds: int = 7, runs: int = 300, against: str | None = None) -> dict[str, Any]:
    """The medians of each page, as a table.

    Args:
        rounds: openings of each page.
        runs: in the home folder.
        against: the folder of another version of the app, which is opened in turn with this one.
    """
    about = {**machine.describe(), **machine.rate()}
    trees = {"this": ROOT, **({"other": Path(against)} if against else {})}
    openings: dict[tuple[str, str], list[Row]] = {}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        command = ["app.py", "--home", str(make_home(Path(folder), runs)), "--port"]
        urls = {
            name: stack.enter_context(started(command, folder=tree))[1]
            for name, tree in trees.items()
        }
        browser = stack.enter_context(sync_playwright()).chromium.launch(
            executable_path=chromium_path(), args=FLAGS
        )
        for turn in range(rounds + 1):
            for page in PAGES:
                for name, url in urls.items():
                    if turn == 0:
                        # This loads the models of the app.
                        request(url, ARGUMENTS)
                        # A page is built when it is first asked for.
                        CLIENT.get(f"{url}/{page}").raise_for_status()
                    row = open_page(browser, f"{url}/{page}", process_of(url))
                    # The first opening is not counted.
                    if turn > 0:
                        openings.setdefault((page, name), []).append(row)
        browser.close()
        end_workers(Path(folder))
    rows = []
    for (page, name), openings_of_page in openings.items():
        row = {"page": page or "compare", "tree": name}
        for key in DIGITS:
            row[key] = median(key, openings_of_page)
        rows.append(row)
    return {"benchmark": "pages", "rounds": rounds, "runs": runs, "rows": rows, "machine": about}


def median(column: str, rows: list[Row]) -> float:
    # Without a number of digits, `round` returns an integer.
    digits = DIGITS[column] or None
    return round(statistics.median(row[column] for row in rows), digits)


def open_page(browser: Browser, url: str, app: int) -> Row:
    """The figures of one opening, until the page has settled. ``app``: the process of the server."""
    processes = browser.new_browser_cdp_session()
    # The context has an empty cache of its own.
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    network = context.new_cdp_session(page)
    # The ids of the requests without an answer, and the bytes of the answers.
    pending: set[str] = set()
    sizes: dict[str, int] = {}

    def note_end(event: dict[str, Any]) -> None:
        pending.discard(event["requestId"])
        sizes[event["requestId"]] = event.get("encodedDataLength", 0)

    network.on("Network.requestWillBeSent", lambda event: pending.add(event["requestId"]))
    network.on("Network.loadingFinished", note_end)
    network.on("Network.loadingFailed", note_end)
    network.send("Network.enable")
    page.add_init_script(f"({OBSERVE})()")

    def settle() -> Row:
        page.goto(url, wait_until="commit")
        end = time.monotonic() + MOST_SECONDS
        while time.monotonic() < end:
            if page.evaluate(SETTLED, QUIET_MS) and not pending:
                break
            page.wait_for_timeout(100)
        return page.evaluate(FIGURES)

    server_before = processor_seconds(app)
    renderer_before = renderer_seconds(processes)
    row = {
        **settle(),
        "server_seconds": processor_seconds(app) - server_before,
        "renderer_seconds": renderer_seconds(processes) - renderer_before,
        "megabytes": sum(sizes.values()) / 1e6,
        "requests": len(sizes),
    }
    settle()
    row["again"] = settle()["interactive"]
    context.close()
    return row


def renderer_seconds(browser: CDPSession) -> float:
    """The seconds that Chromium's processes that draw pages have used."""
    processes = browser.send("SystemInfo.getProcessInfo")["processInfo"]
    return sum(process["cpuTime"] for process in processes if process["type"] == "renderer")


def make_home(folder: Path, runs: int) -> Path:
    """A home folder with the models and data of this machine's home folder, and ``runs`` finished runs."""
    copy_home(folder)
    if runs == 0:
        return folder
    options = [
        "--objective",
        "regression",
        "--base",
        "scratch:1x32",
        "--max-steps",
        "4",
        "--name",
        "first",
    ]
    command = [sys.executable, "-m", "sbert_app", "train", *options, "--home", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [first] = [file.parent for file in folder.glob("runs/*/run.json")]
    for number in range(1, runs):
        copied = first.with_name(f"{first.name}-{number + 1}")
        shutil.copytree(first, copied, copy_function=os.link)
        # The files are links, so a file is replaced and not changed.
        (copied / "name.txt").unlink()
        (copied / "name.txt").write_text(f"run {number + 1}")
    return folder
