"""Start-up and a warm pair: how long until the page is there, until it has computed, and until a pair is answered.

``python app.py`` is started cold several times, in turn with a bare Gradio app of one text box, and asked over
HTTP: the first page, then the first answer of ``compare`` (which waits for the models). Warm, the same pair is asked
again and again, in turn with an endpoint that returns at once, so that the difference is SBERT Lab's own share.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAIR = ["The medicine is safe for children.", "The medicine is not safe for children."]
ASKED = [*PAIR, "all-MiniLM-L6-v2", "mean", "minilm-stsb"]
BARE = """
import sys
import gradio as gr
with gr.Blocks(analytics_enabled=False) as app:
    box = gr.Textbox()
    def compare(sentence_a: str) -> dict:
        return {"cosine": 0.0}
    gr.api(compare, api_name="compare", queue=False)
app.launch(server_port=int(sys.argv[1]), quiet=True, ssr_mode=False)
"""
APPS = {"SBERT Lab": (["app.py", "--port"], ASKED), "bare Gradio": (["-c", BARE], PAIR[:1])}


def run(rounds: int = 3, pairs: int = 100) -> dict[str, Any]:
    """Medians in seconds (start) and milliseconds (a pair), for SBERT Lab and for a bare Gradio app.

    Args:
        rounds: cold starts of each.
        pairs: warm requests of each.
    """
    starts: dict[str, list[dict[str, float]]] = {name: [] for name in APPS}
    for _ in range(rounds):
        for name, (command, asked) in APPS.items():
            with started(command) as (first_page, url):
                begun = time.perf_counter()
                _ask(url, asked)
                starts[name].append({"page": first_page, "answer": first_page + time.perf_counter() - begun})
    with started(APPS["SBERT Lab"][0]) as (_, lab), started(APPS["bare Gradio"][0]) as (_, bare):
        http = {"SBERT Lab": lambda: _ask(lab, ASKED), "bare Gradio": lambda: _ask(bare, PAIR[:1])}
        warm = _alternate(http, pairs)
        memory = _memory_mb(lab)
    return {
        "start_seconds": {
            name: {key: round(statistics.median(run[key] for run in runs), 2) for key in ("page", "answer")}
            for name, runs in starts.items()
        },
        "warm_pair_over_http_ms": {name: _quantiles(times) for name, times in warm.items()},
        "warm_pair_in_the_server_ms": _quantiles(_in_process(pairs)),
        "idle_memory_mb": memory,
        "rounds": rounds,
        "pairs": pairs,
    }


def _in_process(pairs: int) -> list[float]:
    """The server's own share: both models, the three poolings and the word map of one pair."""
    from sbert_app.services.compare.comparison import compare_by_name
    from sbert_app.services.models.cache import ModelCache
    from sbert_app.settings import Settings

    shelf = ModelCache(Settings.gather().home)
    return _alternate({"pair": lambda: compare_by_name(shelf, *ASKED)}, pairs)["pair"]


def _alternate(work: dict[str, Callable[[], Any]], times: int) -> dict[str, list[float]]:
    """Milliseconds of each, A B A B …, after ten that are not counted."""
    found: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(times + 10):
        for name, do in work.items():
            begun = time.perf_counter()
            do()
            if turn >= 10:
                found[name].append((time.perf_counter() - begun) * 1000)
    return found


def _quantiles(milliseconds: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(milliseconds, n=20)
    return {"p50": round(statistics.median(milliseconds), 1), "p95": round(cuts[-1], 1)}


@contextmanager
def started(command: list[str]) -> Iterator[tuple[float, str]]:
    """Seconds to the first page, and the address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url, begun = f"http://127.0.0.1:{port}", time.perf_counter()
    environment = {**os.environ, "GRADIO_ANALYTICS_ENABLED": "False"}
    app = subprocess.Popen([sys.executable, *command, str(port)], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    try:
        while True:
            try:
                with urllib.request.urlopen(url, timeout=60) as page:
                    page.read()
                break
            except (urllib.error.URLError, ConnectionError):
                if app.poll() is not None:
                    raise RuntimeError(f"{command} ended with {app.returncode}") from None
                time.sleep(0.02)
        _PROCESSES[url] = app.pid
        yield time.perf_counter() - begun, url
    finally:
        app.terminate()
        app.wait()


_PROCESSES: dict[str, int] = {}


def _memory_mb(url: str) -> int | None:
    status = Path(f"/proc/{_PROCESSES[url]}/status")
    if not status.exists():
        return None
    return next(int(line.split()[1]) // 1024 for line in status.read_text().splitlines() if line.startswith("VmRSS"))


def _ask(url: str, values: list[str]) -> Any:
    request = urllib.request.Request(
        f"{url}/gradio_api/run/compare", json.dumps({"data": values}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)
