"""Start-up and latency: the time until the first page, until the first answer, and of a request once warm.

``python app.py`` is started several times, in turn with a bare Gradio app whose one page has as
many components and events as the front page, and with another tree of the app (``--against
FOLDER``). Over HTTP the first page is requested, then the cosine of a pair, which waits for the
encoder, then both scores. The seconds of processor time depend little on how busy the machine is,
but the times do. Then the first event of the front page is sent by new sessions, to measure its
cost and the memory of a session. Once warm, the same pair is requested repeatedly, alternating with
an endpoint of the bare app that returns immediately: the difference is the time of SBERT Lab
itself.
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
import psutil

from benchmarks import machine
from sbert_app.services.compare.comparison import compare_by_name
from sbert_app.services.models.cache import ModelCache
from training.names import ModelName
from training.sources.home import home_folder

ROOT = Path(__file__).parents[1]
PAIR = {
    "sentence_a": "The medicine is safe for children.",
    "sentence_b": "The medicine is not safe for children.",
}
MODELS = {"model": "all-MiniLM-L6-v2", "pooling": "mean", "cross_encoder": "minilm-stsb"}
ARGUMENTS = {**PAIR, **MODELS}
COSINE_ALONE = {**ARGUMENTS, "cross_encoder": "none"}
# The front page has 88 components, 64 events and 12 endpoints.
BARE = """
import sys
import gradio as gr
with gr.Blocks(analytics_enabled=False) as app:
    for number in range(22):
        with gr.Row():
            text = gr.Textbox(label=f"text {number}")
            choice = gr.Dropdown(["one", "two"], value="one", label=f"choice {number}")
            button = gr.Button(f"button {number}")
        gr.on([text.change, choice.change], lambda *values: values, [text, choice], [text, choice], queue=False)
        button.click(lambda: "", None, text, queue=False)
        app.load(lambda: "", None, text, queue=False)
    def compare(sentence_a: str) -> dict:
        return {"cosine": 0.0}
    for number in range(12):
        gr.api(compare, api_name=f"compare{number or ''}", queue=False)
app.launch(server_port=int(sys.argv[1]), quiet=True, ssr_mode=False)
"""
# What any app with a transformer has to import.
IMPORTS = "import time, torch, transformers.models.bert.modeling_bert; print(time.process_time())"
SESSIONS = 40
# The rounds of requests that are not counted.
WARM_UP = 10
# Its connections stay open, as those of browsers and of OpenAI's clients do.
CLIENT = httpx2.Client(timeout=300, trust_env=False)
LAB = ["app.py", "--port"]


def run(rounds: int = 3, pairs: int = 100, against: str | None = None) -> dict[str, Any]:
    """Medians in seconds (start) and milliseconds (a request), for SBERT Lab and for a bare Gradio app.

    Args:
        rounds: starts of each app.
        pairs: requests to each app once warm.
        against: the folder of another version of the app, which is started in turn with this one.
    """
    about = {**machine.describe(), **machine.rate()}
    trees = {"SBERT Lab": ROOT, **({"other": Path(against)} if against else {})}
    starts: dict[str, list[dict[str, float]]] = {name: [] for name in (*trees, "bare Gradio")}
    imports: list[float] = []
    for _ in range(rounds):
        for name, tree in trees.items():
            starts[name].append(_start(tree))
        with started(["-c", BARE]) as (seconds, url):
            starts["bare Gradio"].append(
                {"page": seconds, "page_cpu": processor_seconds(process_of(url))}
            )
        process = subprocess.run(
            [sys.executable, "-c", IMPORTS], capture_output=True, check=True, text=True
        )
        imports.append(float(process.stdout))
    with started(LAB) as (_, lab), started(["-c", BARE]) as (_, bare):
        http = {
            "SBERT Lab": lambda: request(lab, ARGUMENTS),
            "bare Gradio": lambda: _request_bare(bare),
        }
        warm = _alternate(http, pairs)
        memory = _memory_mb(lab)
    medians: dict[str, dict[str, float]] = {}
    for name, figures in starts.items():
        medians[name] = {}
        for key in figures[0]:
            medians[name][key] = round(statistics.median(start[key] for start in figures), 2)
    return {
        "start_seconds": medians,
        "imports_cpu_seconds": round(statistics.median(imports), 2),
        "warm_pair_over_http_ms": {name: _quantiles(times) for name, times in warm.items()},
        "warm_pair_in_the_server_ms": _quantiles(_in_process(pairs)),
        "idle_memory_mb": round(memory),
        "rounds": rounds,
        "pairs": pairs,
        "machine": about,
    }


def _start(tree: Path) -> dict[str, float]:
    """Seconds from the command to the page, to the cosine of a pair and to both scores, elapsed and of the processor.

    The last two figures are the processor time of the first event of a session in milliseconds, and
    the memory of a session in megabytes.
    """
    with started(LAB, folder=tree) as (seconds, url):
        app = process_of(url)
        figures = {"page": seconds, "page_cpu": processor_seconds(app)}
        command_time = time.perf_counter() - seconds
        request(url, COSINE_ALONE)
        figures["cosine"] = time.perf_counter() - command_time
        figures["cosine_cpu"] = processor_seconds(app)
        request(url, ARGUMENTS)
        figures["answer"] = time.perf_counter() - command_time
        figures["answer_cpu"] = processor_seconds(app)
        _settle(app)
        config = CLIENT.get(f"{url}/config").raise_for_status().json()
        # An event without inputs can be sent by itself.
        events = [
            event["id"]
            for event in config["dependencies"]
            if event["backend_fn"] and not event["inputs"] and event["queue"] is False
        ]
        memory_before = _memory_mb(url)
        processor_before = processor_seconds(app)
        for number in range(SESSIONS):
            body = {"data": [], "fn_index": events[0], "session_hash": f"session{number}"}
            CLIENT.post(f"{url}/gradio_api/run/predict", json=body).raise_for_status()
        processor = processor_seconds(app) - processor_before
        figures["first_event_cpu_ms"] = processor / SESSIONS * 1_000
        figures["session_mb"] = (_memory_mb(url) - memory_before) / SESSIONS
    return figures


def _settle(app: int) -> None:
    """Waits until the app has been idle for two seconds: it has built its pages and compiled umap-learn."""
    is_busy = True
    while is_busy:
        before = processor_seconds(app)
        time.sleep(2)
        is_busy = processor_seconds(app) - before > 0.2


def _in_process(pairs: int) -> list[float]:
    """Milliseconds without HTTP: both models, three poolings and the attribution of a pair."""
    models = ModelCache(home_folder())
    name = ModelName.parse(MODELS["model"])

    def compare() -> None:
        compare_by_name(
            models,
            PAIR["sentence_a"],
            PAIR["sentence_b"],
            name,
            MODELS["pooling"],
            MODELS["cross_encoder"],
        )

    return _alternate({"pair": compare}, pairs)["pair"]


def _alternate(work: dict[str, Callable[[], Any]], times: int) -> dict[str, list[float]]:
    """Milliseconds of each function, called in alternation, without the first `WARM_UP` rounds."""
    milliseconds: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(WARM_UP + times):
        for name, function in work.items():
            started_at = time.perf_counter()
            function()
            if turn >= WARM_UP:
                milliseconds[name].append((time.perf_counter() - started_at) * 1000)
    return milliseconds


def _quantiles(milliseconds: list[float]) -> dict[str, float]:
    twentieths = statistics.quantiles(milliseconds, n=20, method="inclusive")
    return {"p50": round(statistics.median(milliseconds), 1), "p95": round(twentieths[-1], 1)}


@contextmanager
def started(
    command: list[str], python: str = sys.executable, page: str = "", folder: Path = ROOT
) -> Iterator[tuple[float, str]]:
    """Starts an app by a command and a free port. Yields the seconds to its first page, and its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    started_at = time.perf_counter()
    environment = {**os.environ, "GRADIO_ANALYTICS_ENABLED": "False", "DO_NOT_TRACK": "1"}
    app = subprocess.Popen(
        [python, *command, str(port)], cwd=folder, env=environment, stdout=subprocess.DEVNULL
    )
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


def processor_seconds(process: int) -> float:
    """The seconds that a process has used of all processors, in user and system mode."""
    times = psutil.Process(process).cpu_times()
    return times.user + times.system


def _memory_mb(url: str) -> float:
    return psutil.Process(_PROCESSES[url]).memory_info().rss / 2**20


def request(url: str, arguments: Mapping[str, Any], endpoint: str = "compare") -> Any:
    """The answer of an endpoint of the app at ``url``."""
    answer = CLIENT.post(f"{url}/api/{endpoint}", json=dict(arguments))
    return answer.raise_for_status().json()


def _request_bare(url: str) -> Any:
    answer = CLIENT.post(f"{url}/gradio_api/run/compare", json={"data": [PAIR["sentence_a"]]})
    return answer.raise_for_status().json()["data"][0]


def copy_home(folder: Path) -> Path:
    """Copies the models, the data and the compiled code of this machine's home folder. Returns the new home folder."""
    for part in ("models", "data", "numba"):
        if (home_folder() / part).exists():
            shutil.copytree(home_folder() / part, folder / part, symlinks=True)
    return folder
