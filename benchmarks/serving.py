"""Embeddings over HTTP: eight clients of ``/v1/embeddings``, beside the server infinity-emb in its own environment.

    python -m venv infinity
    infinity/bin/pip install torch==2.13.0 "infinity-emb[torch,server]" "transformers<4.56" "click<8.2"
    python -m benchmarks serving --against infinity/bin/python

Each client sends the sentences of STSb test, 32 a request, and waits for each answer; the answers of both servers are
lists of numbers, OpenAI's default of plain HTTP. The servers run at the same time and are asked in turn.
"""

from __future__ import annotations

import json
import shutil
import statistics
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.start_up import started
from training.data.load import load_data
from training.errors import InputError
from training.evaluation.metrics import spearman
from training.sources.resolve import model_folder

MODEL = "all-MiniLM-L6-v2"
CLIENTS, SENTENCES = 8, 32  # at once; a request
OURS = ["app.py", "--port"]
INFINITY = [
    *("-c", "from infinity_emb.cli import cli; cli()", "v2"),
    *("--engine", "torch", "--device", "cpu", "--no-bettertransformer"),
    *("--served-model-name", MODEL),
]


def run(rounds: int = 5, against: str | None = None) -> dict[str, Any]:
    """Sentences a second as a table, the median over rounds.

    Args:
        rounds: repetitions of each side.
        against: the interpreter of the environment with infinity-emb.

    Raises:
        InputError: there is no such interpreter.
    """
    if against is None or shutil.which(against) is None:
        raise InputError("name the interpreter of infinity-emb's environment with --against: infinity/bin/python")
    about = machine.describe()
    data = load_data("stsb:test")
    sentences = [text for column in data.columns for text in column]
    folder = str(model_folder(MODEL).path)
    seconds: dict[str, list[float]] = {}
    vectors: dict[str, np.ndarray] = {}
    with ExitStack() as servers:
        addresses = {"SBERT Lab, default": servers.enter_context(started(OURS))[1] + "/v1"}
        for dtype in ("float32", "bfloat16"):
            command = [*INFINITY, "--model-id", folder, "--dtype", dtype, "--port"]
            _, url = servers.enter_context(started(command, against, "/models"))
            addresses[f"infinity-emb, --dtype {dtype}"] = url
        for _ in range(rounds + 1):
            for name, url in addresses.items():
                began = time.perf_counter()
                vectors[name] = _embed(url, sentences)
                seconds.setdefault(name, []).append(time.perf_counter() - began)
    median = {name: statistics.median(each[1:]) for name, each in seconds.items()}  # the first warms up
    ours = next(iter(median.values()))
    return {
        "benchmark": "serving",
        "model": MODEL,
        "clients": CLIENTS,
        "sentences_a_request": SENTENCES,
        "rounds": rounds,
        "rows": [
            {
                "side": name,
                "seconds": round(each, 3),
                "sentences_per_second": round(len(sentences) / each),
                "times_ours": round(each / ours, 2),
                "spearman": _spearman(vectors[name], np.asarray(data.scores)),
            }
            for name, each in median.items()
        ],
        "machine": about,
    }


def _embed(url: str, sentences: list[str]) -> np.ndarray:
    """The vectors of all sentences (N, D), in requests of several clients at once."""

    def ask(first: int) -> np.ndarray:
        body = {"model": MODEL, "input": sentences[first : first + SENTENCES]}
        request = urllib.request.Request(
            f"{url}/embeddings", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            return np.array([each["embedding"] for each in json.load(answer)["data"]], dtype=np.float32)

    with ThreadPoolExecutor(CLIENTS) as pool:
        return np.concatenate(list(pool.map(ask, range(0, len(sentences), SENTENCES))))


def _spearman(vectors: np.ndarray, gold: np.ndarray) -> float:
    u, v = np.split(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), 2)
    return round(100 * spearman((u * v).sum(axis=1), gold), 2)
