"""The speed of this version beside another one, in turn: python -m benchmarks versions --against FOLDER

FOLDER is a checkout of the other version. Both run in the environment of this one, each in a
process of its own.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SENTENCES = "2,758 sentences with all-MiniLM-L6-v2"
PAIRS = "1,379 pairs with minilm-stsb"
STEP = "a training step of 16 pairs, regression"
LANGUAGE_STEP = "a training step of 16 sentences, mlm"
ONE_USER = "a pair over HTTP, one user"
USERS = "a pair over HTTP, 16 users at once"


def run(rounds: int = 5, against: str | None = None) -> dict[str, Any]:
    """Medians in seconds, as a table.

    Args:
        rounds: how often each version is measured.
        against: the folder of the other version.

    Raises:
        InputError: there is no such folder.
    """
    from benchmarks import machine
    from training.errors import InputError

    if against is None or not Path(against, "training").is_dir():
        raise InputError("name the folder of the other version with --against")
    about = {**machine.describe(), **machine.rate()}
    trees = {"this": ROOT, "before": Path(against).resolve()}
    seconds: dict[str, dict[str, list[float]]] = {"this": {}, "before": {}}
    for turn in range(rounds):
        # The order changes, because the second version meets a warmer machine.
        for name in sorted(trees, reverse=turn % 2 == 0):
            for work, value in _in_a_process(trees[name]).items():
                seconds[name].setdefault(work, []).append(value)
    rows = []
    for work, values in seconds["this"].items():
        this = statistics.median(values)
        before = statistics.median(seconds["before"][work])
        rows.append(
            {
                "work": work,
                "this": round(this, 4),
                "before": round(before, 4),
                "ratio": round(this / before, 3),
            }
        )
    return {
        "benchmark": "versions",
        "before": Path(against).name,
        "rounds": rounds,
        "rows": rows,
        "machine": about,
    }


def _in_a_process(tree: Path) -> dict[str, float]:
    """The figures of the version in a folder, whose packages are imported from there."""
    code = f"import runpy; runpy.run_path({__file__!r}, run_name='__main__')"
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=tree, env=environment, stdout=subprocess.PIPE, check=True
    )
    # The last line, as libraries may print others.
    return dict(json.loads(process.stdout.splitlines()[-1]))


def measure() -> dict[str, float]:
    """The seconds of each work by the version whose folder is the working directory."""
    from benchmarks.serving import run_users
    from benchmarks.train import sbert_lab
    from training.data.load import load_data
    from training.models.cross_encoder import CrossEncoder
    from training.models.encoder import Encoder

    first, second = load_data("stsb:test").columns
    sentences = [*first, *second]
    pairs = list(zip(first, second, strict=True))
    encoder = Encoder.load("all-MiniLM-L6-v2")
    cross_encoder = CrossEncoder.load("minilm-stsb")
    # The first calls warm up.
    encoder.encode(sentences[:300])
    cross_encoder.predict(pairs[:100])
    # The rows of an app that is not training come first.
    one_user, many_users, *_ = run_users(rounds=5, users=16)["rows"]
    train_regression = sbert_lab("all-MiniLM-L6-v2", "auto")
    train_mlm = sbert_lab("all-MiniLM-L6-v2", "auto", objective="mlm")
    return {
        SENTENCES: min(_seconds(lambda: encoder.encode(sentences)) for _ in range(2)),
        PAIRS: min(_seconds(lambda: cross_encoder.predict(pairs)) for _ in range(2)),
        STEP: train_regression(25, 0).seconds_per_step,
        LANGUAGE_STEP: train_mlm(25, 0).seconds_per_step,
        ONE_USER: one_user["p50_ms"] / 1000,
        USERS: many_users["p50_ms"] / 1000,
    }


def _seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    from sbert_app.process import configure_process

    configure_process()
    print(json.dumps(measure()))
