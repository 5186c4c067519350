"""Many requests at once: embeddings over HTTP beside infinity-emb (``serving``), and users of pairs (``users``).

    python -m venv infinity
    infinity/bin/pip install torch==2.13.0 "infinity-emb[torch,server]" "transformers<4.56" "click<8.2"
    python -m benchmarks serving --against infinity/bin/python

``serving``: eight clients of ``/v1/embeddings`` send the sentences of STSb test, 32 a request, and
wait for each answer. The answers of both servers are lists of numbers, OpenAI's default of plain
HTTP. The servers run at the same time and are asked in turn.

``users``: one user and 32 call ``compare`` (both models, attribution) repeatedly without a pause,
each time with another pair of the STS benchmark, on an idle machine and during an ordinary training
run that is started through the app.
"""

import shutil
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import numpy as np

from benchmarks import machine
from benchmarks.start_up import CLIENT, MODELS, copy_home, request, started
from scripts.running import end_workers
from training.data.load import load_data
from training.errors import InputError
from training.evaluation.metrics import spearman
from training.sources.resolve import model_folder

MODEL = "all-MiniLM-L6-v2"
# The number of clients at once, and of the sentences in a request.
CLIENTS = 8
SENTENCES = 32
OURS = ["app.py", "--port"]
INFINITY = [
    "-c",
    "from infinity_emb.cli import cli; cli()",
    "v2",
    "--engine",
    "torch",
    "--device",
    "cpu",
    "--no-bettertransformer",
    "--served-model-name",
    MODEL,
]


def run_serving(rounds: int = 5, against: str | None = None) -> dict[str, Any]:
    """Sentences a second as a table, the median over rounds.

    Args:
        rounds: repetitions of each side.
        against: the interpreter of the environment with infinity-emb.

    Raises:
        InputError: there is no such interpreter.
    """
    if against is None or shutil.which(against) is None:
        raise InputError(
            "name the interpreter of infinity-emb's environment with --against: infinity/bin/python"
        )
    about = machine.describe()
    data = load_data("stsb:test")
    sentences = [text for column in data.columns for text in column]
    folder = str(model_folder(MODEL).path)
    seconds: dict[str, list[float]] = {}
    vectors: dict[str, np.ndarray] = {}
    with ExitStack() as servers:
        _, url = servers.enter_context(started(OURS))
        addresses = {"SBERT Lab, default": f"{url}/v1"}
        for dtype in ("float32", "bfloat16"):
            command = [*INFINITY, "--model-id", folder, "--dtype", dtype, "--port"]
            _, url = servers.enter_context(started(command, against, "/models"))
            addresses[f"infinity-emb, --dtype {dtype}"] = url
        for _ in range(rounds + 1):
            for name, url in addresses.items():
                began = time.perf_counter()
                vectors[name] = _embed(url, sentences)
                seconds.setdefault(name, []).append(time.perf_counter() - began)
    # The first round warms up.
    medians = {name: statistics.median(times[1:]) for name, times in seconds.items()}
    ours = medians["SBERT Lab, default"]
    gold = np.asarray(data.scores)
    return {
        "benchmark": "serving",
        "model": MODEL,
        "clients": CLIENTS,
        "sentences_a_request": SENTENCES,
        "rounds": rounds,
        "rows": [
            {
                "side": name,
                "seconds": round(seconds_of_side, 3),
                "sentences_per_second": round(len(sentences) / seconds_of_side),
                "times_ours": round(seconds_of_side / ours, 2),
                "spearman": _spearman(vectors[name], gold),
            }
            for name, seconds_of_side in medians.items()
        ],
        "machine": about,
    }


def _embed(url: str, sentences: list[str]) -> np.ndarray:
    """The vectors of all sentences (N, D), in requests of several clients at once."""

    def ask(first: int) -> np.ndarray:
        body = {"model": MODEL, "input": sentences[first : first + SENTENCES]}
        rows = CLIENT.post(f"{url}/embeddings", json=body).raise_for_status().json()["data"]
        return np.array([row["embedding"] for row in rows], dtype=np.float32)

    with ThreadPoolExecutor(CLIENTS) as pool:
        return np.concatenate(list(pool.map(ask, range(0, len(sentences), SENTENCES))))


def _spearman(vectors: np.ndarray, gold: np.ndarray) -> float:
    unit_vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    # The vectors of the first column of the pairs, then those of the second.
    first, second = np.split(unit_vectors, 2)
    return round(100 * spearman((first * second).sum(axis=1), gold), 2)


def run_users(rounds: int = 10, users: int = 32) -> dict[str, Any]:
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
        home = copy_home(Path(folder))
        with started(["app.py", "--home", str(home), "--port"]) as (_, url):
            # The first requests warm up.
            for pair in pairs[:20]:
                _compare(url, pair)
            for is_training in (False, True):
                run_id = _start_run(url) if is_training else None
                for concurrent in (1, users):
                    rows.append(
                        {
                            "users": concurrent,
                            "training": is_training,
                            **_measure(url, pairs, concurrent, rounds),
                        }
                    )
                if run_id is not None:
                    request(url, {"run_id": run_id}, "stop_run")
        end_workers(home)
    return {"benchmark": "users", "pairs_each": rounds, "rows": rows, "machine": about}


def _measure(
    url: str, pairs: list[tuple[str, ...]], concurrent: int, rounds: int
) -> dict[str, Any]:
    times: list[float | None] = []

    def user(number: int) -> None:
        for turn in range(rounds):
            pair = pairs[(number * rounds + turn) % len(pairs)]
            times.append(_timed(url, pair))

    started_at = time.perf_counter()
    with ThreadPoolExecutor(concurrent) as pool:
        # A list, because errors are raised only when the results are read.
        list(pool.map(user, range(concurrent)))
    seconds = time.perf_counter() - started_at
    answer_times = sorted(milliseconds for milliseconds in times if milliseconds is not None)
    twentieths = statistics.quantiles(answer_times, n=20, method="inclusive")
    return {
        "p50_ms": round(statistics.median(answer_times), 1),
        "p95_ms": round(twentieths[-1], 1),
        "longest_ms": round(answer_times[-1], 1),
        "answers_per_second": round(len(answer_times) / seconds, 1),
        "failed": len(times) - len(answer_times),
    }


def _compare(url: str, pair: tuple[str, ...]) -> None:
    request(url, {"sentence_a": pair[0], "sentence_b": pair[1], **MODELS})


def _timed(url: str, pair: tuple[str, ...]) -> float | None:
    """Milliseconds of a request; None if it failed."""
    started_at = time.perf_counter()
    try:
        _compare(url, pair)
    except httpx2.HTTPError:
        return None
    return (time.perf_counter() - started_at) * 1000


def _start_run(url: str) -> str:
    """Start a run that outlasts the measurement, and wait for its first steps."""
    settings = {"objective": "regression", "pooling": "mean", "epochs": 10, "name": "busy"}
    run_id = request(url, settings, "start_run")["id"]
    while True:
        events = request(url, {"run_id": run_id}, "run_status")["events"]
        if any(event["kind"] == "train" for event in events):
            return run_id
        time.sleep(0.5)
