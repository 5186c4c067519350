"""Start-up and latency: the time until the first page, until the first answer, and of a request once warm.

``python app.py`` is started several times, alternating with a bare Gradio app with one text box. Over HTTP the first
page is requested, then ``compare``, which waits for the models. Once warm, the same pair is requested repeatedly,
alternating with an endpoint that returns immediately: the difference is the time of SBERT Lab itself.
"""

import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from benchmarks import machine
from training.sources.home import home_folder

ROOT = Path(__file__).parents[1]
PAIR = {
    "sentence_a": "The medicine is safe for children.",
    "sentence_b": "The medicine is not safe for children.",
}
MODELS = {"model": "all-MiniLM-L6-v2", "pooling": "mean", "cross_encoder": "minilm-stsb"}
ARGUMENTS = {**PAIR, **MODELS}
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
# Its connections stay open, as those of browsers and of OpenAI's clients do.
CLIENT = httpx2.Client(timeout=300, trust_env=False)


def run(rounds: int = 3, pairs: int = 100) -> dict[str, Any]:
    """Medians in seconds (start) and milliseconds (a request), for SBERT Lab and for a bare Gradio app.

    Args:
        rounds: starts of each app.
        pairs: requests to each app once warm.
    """
    about = {**machine.describe(), **machine.rate()}
    starts: dict[str, list[dict[str, float]]] = {name: [] for name in APPS}
    for _ in range(rounds):
        for name, (command, ask) in APPS.items():
            with started(command) as (first_page, url):
                started_at = time.perf_counter()
                ask(url)
                starts[name].append({"page": first_page, "answer": first_page + time.perf_counter() - started_at})
    with started(APPS["SBERT Lab"][0]) as (_, lab), started(APPS["bare Gradio"][0]) as (_, bare):
        http = {"SBERT Lab": lambda: request(lab, ARGUMENTS), "bare Gradio": lambda: _request_bare(bare)}
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
        "machine": about,
    }


def _in_process(pairs: int) -> list[float]:
    """Milliseconds without HTTP: both models, three poolings and the attribution of a pair."""
    from sbert_app.services.compare.comparison import compare_by_name
    from sbert_app.services.models.cache import ModelCache
    from sbert_app.settings import Settings
    from training.names import ModelName

    models = ModelCache(Settings.gather().home)
    a, b, model, pooling, cross_encoder = ARGUMENTS.values()
    name = ModelName.parse(model)
    return _alternate({"pair": lambda: compare_by_name(models, a, b, name, pooling, cross_encoder)}, pairs)["pair"]


def _alternate(work: dict[str, Callable[[], Any]], times: int) -> dict[str, list[float]]:
    """Milliseconds of each function, called in alternation, after ten uncounted rounds."""
    milliseconds: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(times + 10):
        for name, do in work.items():
            started_at = time.perf_counter()
            do()
            if turn >= 10:
                milliseconds[name].append((time.perf_counter() - started_at) * 1000)
    return milliseconds


def _quantiles(milliseconds: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(milliseconds, n=20, method="inclusive")
    return {"p50": round(statistics.median(milliseconds), 1), "p95": round(cuts[-1], 1)}


@contextmanager
def started(
    command: list[str], python: str = sys.executable, page: str = "", folder: Path = ROOT
) -> Iterator[tuple[float, str]]:
    """Start an app by a command that ends with a port; yields the seconds to its first page, and its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url, started_at = f"http://127.0.0.1:{port}", time.perf_counter()
    environment = {**os.environ, "GRADIO_ANALYTICS_ENABLED": "False", "DO_NOT_TRACK": "1"}
    app = subprocess.Popen([python, *command, str(port)], cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    try:
        while True:
            try:
                with urllib.request.urlopen(url + page, timeout=60) as answer:
                    answer.read()
                break
            except (urllib.error.URLError, ConnectionError):
                if app.poll() is not None:
                    raise RuntimeError(f"{command} ended with {app.returncode}") from None
                time.sleep(0.02)
        _PROCESSES[url] = app.pid
        yield time.perf_counter() - started_at, url
    finally:
        app.terminate()
        app.wait()


_PROCESSES: dict[str, int] = {}


def process_of(url: str) -> int:
    """The id of the process that `started` has started."""
    return _PROCESSES[url]


def _memory_mb(url: str) -> int | None:
    status = Path(f"/proc/{_PROCESSES[url]}/status")
    if not status.exists():
        return None
    return next(int(line.split()[1]) // 1024 for line in status.read_text().splitlines() if line.startswith("VmRSS"))


def request(url: str, arguments: Mapping[str, Any], endpoint: str = "compare") -> Any:
    """The answer of an endpoint of the app at ``url``."""
    answer = CLIENT.post(f"{url}/api/{endpoint}", json=dict(arguments))
    return answer.raise_for_status().json()


def _request_bare(url: str) -> Any:
    answer = CLIENT.post(f"{url}/gradio_api/run/compare", json={"data": [PAIR["sentence_a"]]})
    return answer.raise_for_status().json()["data"][0]


APPS: dict[str, tuple[list[str], Callable[[str], Any]]] = {
    "SBERT Lab": (["app.py", "--port"], lambda url: request(url, ARGUMENTS)),
    "bare Gradio": (["-c", BARE], _request_bare),
}


def copy_home(folder: Path) -> Path:
    """Fill a home folder with the models, the data and the compiled code of this machine's own."""
    for part in ("models", "data", "numba"):
        if (home_folder() / part).exists():
            shutil.copytree(home_folder() / part, folder / part, symlinks=True)
    return folder
