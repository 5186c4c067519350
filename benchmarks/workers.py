"""A sweep on one worker and on two: how much of the second one's time is gained.

The queue, the workers and the runs' folders are real; the training is a stand-in that sleeps for a fixed time, as on
two machines that do not share their processor. Everything runs on this machine, with a Redis server of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks import machine
from training.errors import InputError
from training.sources.home import home_folder

ROOT = Path(__file__).parents[1]
SWEEP = "pooling"
WORKERS = (1, 2)
PATIENCE = 60.0  # seconds beyond what the runs take


def run(runs: int = 24, seconds: float = 2.0) -> dict[str, Any]:
    """Seconds from the first run's start to the last one's end, for each number of workers.

    Args:
        runs: of the sweep, a multiple of its variants.
        seconds: that the stand-in takes for a run.
    """
    about = machine.describe()
    rows = [{"workers": workers, "seconds": round(_measure(workers, runs, seconds), 2)} for workers in WORKERS]
    for row in rows:
        row["times_one"] = round(rows[0]["seconds"] / row["seconds"], 2)
        row["ideal_seconds"] = round(runs * seconds / row["workers"], 2)
    return {"benchmark": "workers", "runs": runs, "seconds_each": seconds, "rows": rows, "machine": about}


def _measure(workers: int, runs: int, seconds: float) -> float:
    from sbert_app.services.experiments.ablations import ABLATIONS
    from sbert_app.services.experiments.sweeps import Sweeps
    from sbert_app.services.jobs.queue import Jobs
    from sbert_app.services.runs.store import RunStore

    with tempfile.TemporaryDirectory() as folder, _redis(Path(folder)) as address:
        home = Path(folder) / "home"
        home.mkdir()
        for kind in ("models", "data"):
            (home / kind).symlink_to(home_folder() / kind)
        with patch.dict(os.environ, {"SBERT_QUEUE": address}), _workers(workers, home, seconds):
            sweeps = Sweeps(Jobs(RunStore(home)))
            seeds = runs // len(ABLATIONS[SWEEP].variants)
            sweep = sweeps.start(SWEEP, seeds, {"max_steps": 1, "base": "scratch:1x32"})
            deadline = time.monotonic() + runs * seconds + PATIENCE
            while (found := sweeps.get(sweep.id)).state == "running":
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the sweep does not end: {found.counts}")
                time.sleep(0.1)
        records = [cell.run.record for cell in found.cells if cell.run is not None]
        if found.state != "finished":
            raise RuntimeError(f"the sweep is {found.state}: {records[0].reason}")
        return max(each.ended or 0 for each in records) - min(each.started or 0 for each in records)


@contextmanager
def _redis(folder: Path) -> Iterator[str]:
    """A Redis server of the benchmark's own -> its address."""
    program = shutil.which("redis-server")
    if program is None:
        raise InputError("the benchmark workers needs redis-server: sh scripts/find_redis.sh installs it")
    socket = folder / "redis.sock"
    server = subprocess.Popen(
        [program, "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(folder)],
        stdout=subprocess.DEVNULL,
    )
    try:
        while not socket.exists():
            time.sleep(0.05)
        yield f"unix://{socket}"
    finally:
        server.terminate()
        server.wait()


@contextmanager
def _workers(count: int, home: Path, seconds: float) -> Iterator[None]:
    """Worker processes that are ready."""
    command = [sys.executable, "-m", "benchmarks.workers", str(home), str(seconds)]
    processes = [subprocess.Popen([*command, f"host-{i}"], cwd=ROOT, stderr=subprocess.DEVNULL) for i in range(count)]
    try:
        for i in range(count):
            while not (home / f"host-{i}.ready").exists():
                if processes[i].poll() is not None:
                    raise RuntimeError(f"worker {i} has ended with exit code {processes[i].returncode}")
                time.sleep(0.05)
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def _work(home: Path, seconds: float, name: str) -> None:
    """A worker whose training sleeps."""
    from sbert_app.services.jobs import worker
    from training.trainer import train as module

    def stand_in(config: Any, folder: Path, **_: Any) -> module.RunResult:
        time.sleep(seconds)
        return module.RunResult(folder.name, "finished", 1, seconds)

    warm_up = worker._warm_up

    def ready() -> None:
        warm_up()
        (home / f"{name}.ready").touch()

    with patch.object(module, "train", stand_in), patch.object(worker, "_warm_up", ready):
        worker.run_worker(home, 0, name=name)


if __name__ == "__main__":
    _work(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
