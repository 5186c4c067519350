"""Encoding compared with sentence-transformers' other back ends, ONNX Runtime and OpenVINO, in their own environment.

    python -m venv peers
    peers/bin/pip install "sentence-transformers>=5,<6" "optimum-onnx[onnxruntime]" "optimum-intel[openvino]"
    python -m benchmarks peers --against peers/bin/python

They need an older version of transformers, hence the second environment. All sides encode the same sentences (STSb
test) in turn, one at a time.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from training.data.load import load_data
from training.errors import InputError
from training.evaluation.metrics import spearman
from training.models.encoder import Encoder
from training.sources.resolve import model_folder

BACKENDS = ("torch", "onnx", "openvino")
CHILD = Path(__file__).parent / "peer.py"


class Peer:
    """A back end in its own process."""

    def __init__(self, python: str, backend: str, folder: Path, sentences: Path) -> None:
        self.label = f"sentence-transformers, {backend}"
        self.vectors_file = sentences.with_suffix(".npy")
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        self.process = subprocess.Popen(
            [python, str(CHILD), backend, str(folder), str(sentences)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.versions: dict[str, str] = self._answer()["versions"]

    def encode(self) -> float:
        """Encode all sentences; returns the seconds."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self._answer()["seconds"])

    def close(self) -> np.ndarray:
        """End the process; returns the vectors of the last round."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)
        return np.load(self.vectors_file, allow_pickle=False)

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise InputError(
                f"{self.label} ended with code {self.process.wait()}; run benchmarks/peer.py by hand to see"
            )
        return json.loads(line)


def run(rounds: int = 5, against: str | None = None) -> dict[str, Any]:
    """Measure. Plain JSON; ``rows`` is the table, ours first; ``times_ours`` is each side's time divided by ours.

    Args:
        rounds: repetitions of each side; the median counts.
        against: the interpreter of the environment with the peers.

    Raises:
        InputError: there is no such interpreter, or a back end does not start.
    """
    if against is None or shutil.which(against) is None:
        raise InputError("name the interpreter of the peers' environment with --against, such as peers/bin/python")
    data, encoder, about = load_data("stsb:test"), Encoder.load("all-MiniLM-L6-v2"), machine.describe()
    sentences = [text for column in data.columns for text in column]
    gold = np.asarray(data.scores)
    vectors = {f"SBERT Lab, {str(encoder.dtype).removeprefix('torch.')}": encoder.encode(sentences)}
    with tempfile.TemporaryDirectory() as folder:
        peers = []
        for backend in BACKENDS:
            copy = Path(folder) / backend
            shutil.copytree(model_folder("all-MiniLM-L6-v2").path, copy)
            file = Path(folder) / f"{backend}.json"
            file.write_text(json.dumps(sentences), encoding="utf-8")
            peers.append(Peer(against, backend, copy, file))
        times: dict[str, list[float]] = {}
        for _ in range(rounds):
            started = time.perf_counter()
            encoder.encode(sentences)
            times.setdefault(next(iter(vectors)), []).append(time.perf_counter() - started)
            for peer in peers:
                times.setdefault(peer.label, []).append(peer.encode())
        vectors |= {peer.label: peer.close() for peer in peers}
    rows: list[dict[str, Any]] = []
    for label, taken in times.items():
        seconds, (u, v) = statistics.median(taken), np.split(vectors[label].astype(np.float32), 2)
        rows.append(
            {
                "side": label,
                "seconds": round(seconds, 4),
                "sentences_per_second": round(len(sentences) / seconds),
                "spearman": round(100 * spearman((u * v).sum(1), gold), 3),
            }
        )
    for row in rows:
        row["times_ours"] = round(row["seconds"] / rows[0]["seconds"], 2)
    return {
        "benchmark": "peers",
        "sentences": len(sentences),
        "rounds": rounds,
        "rows": rows,
        "peers": peers[-1].versions,
        "machine": about,
    }
