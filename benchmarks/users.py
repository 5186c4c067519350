"""Concurrent users: the latency of a pair over HTTP for one user and for 32, on an idle machine and during training.

Each user calls ``compare`` (both models, attribution) repeatedly without a pause, each time with another pair of the
STS benchmark. The training run is an ordinary one, started through the app.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.start_up import started
from training.data.load import load_data
from training.sources.home import home_folder

MODELS = ["all-MiniLM-L6-v2", "mean", "minilm-stsb"]


def run(rounds: int = 10, users: int = 32) -> dict[str, Any]:
    """Milliseconds, as a table: p50, p95, maximum, answers per second, number of failures.

    Args:
        rounds: requests of each user.
        users: the number of concurrent users.
    """
    about = machine.describe()
    columns = load_data("stsb:dev").columns
    pairs = list(zip(*columns, strict=True))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for part in ("models", "data"):  # which are not downloaded again
            shutil.copytree(home_folder() / part, home / part, symlinks=True)
        with started(["app.py", "--home", str(home), "--port"]) as (_, url):
            for pair in pairs[:20]:
                _request(url, "compare", [*pair, *MODELS])
            for busy in (False, True):
                run_id = _start_run(url) if busy else None
                for concurrent in (1, users):
                    rows.append({"users": concurrent, "training": busy, **_measure(url, pairs, concurrent, rounds)})
                if run_id is not None:
                    _request(url, "stop_run", [run_id])
    return {"benchmark": "users", "pairs_each": rounds, "rows": rows, "machine": about}


def _measure(url: str, pairs: list[tuple[str, ...]], concurrent: int, rounds: int) -> dict[str, Any]:
    def user(number: int) -> list[float | None]:
        return [_timed(url, pairs[(number * rounds + turn) % len(pairs)]) for turn in range(rounds)]

    started_at = time.perf_counter()
    with ThreadPoolExecutor(concurrent) as pool:
        times = [time for times in pool.map(user, range(concurrent)) for time in times]
    seconds = time.perf_counter() - started_at
    good = sorted(time for time in times if time is not None)
    return {
        "p50_ms": round(statistics.median(good), 1),
        "p95_ms": round(statistics.quantiles(good, n=20)[-1], 1),
        "longest_ms": round(good[-1], 1),
        "answers_per_second": round(len(good) / seconds, 1),
        "failed": len(times) - len(good),
    }


def _timed(url: str, pair: tuple[str, ...]) -> float | None:
    """Milliseconds of a request; None if it failed."""
    started_at = time.perf_counter()
    try:
        _request(url, "compare", [*pair, *MODELS])
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None
    return (time.perf_counter() - started_at) * 1000


def _start_run(url: str) -> str:
    """Start a run that outlasts the measurement, and wait for its first steps."""
    settings = ["regression", "stsb:train", "stsb:dev", MODELS[0], "mean", "uv+diff", 10, 0, 16, 2e-5, 0, "busy", None]
    run_id = _request(url, "start_run", settings)["id"]
    while not any(event["kind"] == "train" for event in _request(url, "run_status", [run_id, 0])["events"]):
        time.sleep(0.5)
    return run_id


def _request(url: str, name: str, values: list[Any]) -> Any:
    request = urllib.request.Request(
        f"{url}/gradio_api/run/{name}", json.dumps({"data": values}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)["data"][0]
