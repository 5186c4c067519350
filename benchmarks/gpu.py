"""A GPU: encoding, training, cross-encoding and the most similar pair beside sentence-transformers, in one command.

    python -m benchmarks gpu --json                     at most 8 minutes on a machine with one NVIDIA GPU
    python -m benchmarks gpu --device cpu --small       shows that it works; its figures mean nothing

It needs neither gradio nor a network: torch, transformers, sentence-transformers, accelerate,
pydantic. Weights of BERT-base's shape are random. all-MiniLM-L6-v2 and the STS benchmark are taken
from $SBERT_HOME (`benchmarks.gpu_home` packs both into 48 MB). Without them, the weights of MiniLM's
shape are random too, and the sentences are taken from assets/.

Each part (`benchmarks.gpu_parts`) is a process with a time limit of its own, so that one that hangs
or breaks the device takes nothing else with it. Rows are printed to stderr as they are measured,
and saved after each part.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import gpu_home, machine
from training.device import pick_device
from training.errors import InputError

ROOT = Path(__file__).parents[1]
# The time limit of each part in seconds.
PARTS = {
    "check": 25,
    "rho": 20,
    "encode": 100,
    "train": 60,
    "cross": 25,
    "pairs": 20,
    "profile": 20,
    "compiled": 50,
}
PACKAGES = (
    "accelerate",
    "charset_normalizer",
    "pydantic",
    "scipy",
    "sentence_transformers",
    "transformers",
)

Result = dict[str, Any]


def run(
    device: str = "auto",
    small: bool = False,
    seconds: float = 480,
    on_partial: Callable[[Result], object] | None = None,
) -> Result:
    """Measure every part.

    Args:
        device: auto, cuda, cpu.
        small: tiny models and few sentences.
        seconds: in all; what has not begun by then is left out.
        on_partial: called with the result so far after each part.

    Returns:
        Plain JSON: a list of rows for each part; ``notes`` says what was left out, and why.

    Raises:
        InputError: the device cannot be used, or a package is missing.
    """
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(
            f"this benchmark needs {', '.join(missing)}: pip install {' '.join(missing)}"
        )
    used = str(pick_device(device))
    if used == "cpu" and not small:
        raise InputError(
            "there is no GPU here; --device cpu --small shows that the benchmark works"
        )
    started = time.monotonic()
    notes: list[dict[str, str]] = []
    about = {"benchmark": "gpu", "device": used, "small": small, "machine": machine.describe()}
    result: Result = {**about, "notes": notes}
    with tempfile.TemporaryDirectory() as folder:
        home, result["weights"] = gpu_home.prepare(Path(folder))
        for part, limit in PARTS.items():
            seconds_left = seconds - (time.monotonic() - started)
            if seconds_left < 5:
                notes.append({"part": part, "note": "left out: the time was up"})
                continue
            # The limits are for a GPU, not for a machine that shows that the benchmark works.
            part_seconds = seconds_left if small else min(limit, seconds_left)
            result[part], note = measure(part, used, small, home, part_seconds)
            if note:
                notes.append({"part": part, "note": note})
            result["seconds"] = round(time.monotonic() - started, 1)
            if on_partial is not None:
                on_partial(result)
    return result


def measure(
    part: str, device: str, small: bool, home: Path, limit: float
) -> tuple[list[dict[str, Any]], str]:
    """The rows that a part has printed when it ends or its time is up, and what went wrong, or ""."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu_parts",
        part,
        "--device",
        device,
    ]
    if small:
        command.append("--small")
    environment = {
        **os.environ,
        "SBERT_HOME": str(home),
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if device == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        timer = threading.Timer(limit, process.kill)
        timer.start()
        try:
            for line in process.stdout or ():
                # Libraries print other lines.
                if line.startswith('{"'):
                    print(f"{part}: {line}", end="", file=sys.stderr, flush=True)
                    rows.append(json.loads(line))
            process.wait()
        finally:
            is_late = not timer.is_alive()
            timer.cancel()
            # This does nothing to a process that has ended.
            process.kill()
            process.wait()
        errors.seek(0)
        messages = errors.read().strip().splitlines()
    if is_late:
        return rows, f"stopped after {limit:.0f} s"
    if process.returncode:
        return rows, f"failed: {messages[-1] if messages else f'exit code {process.returncode}'}"
    return rows, ""
