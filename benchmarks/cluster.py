"""Files of pairs (``cluster``) and runs (``runs``) on Ray: their cost, how they grow with the nodes, their memory.

``cluster``:

- ``overhead``: `score` of the same files by both engines, in turn, each a process of its own; with
  a static model, which takes little more than reading and writing, and with the default one. Rates
  are those after a fifth of the parts, when every worker has loaded its model; the time until the
  first part stands apart.
- ``weak_scaling``: simulated nodes of one core on this machine (`ray.cluster_utils`), the same number
  of blocks for each, and an encoder that sleeps for each sentence, as on nodes that do not share their
  processor.
- ``memory``: of the driver and its workers while the static model scores a million rows; it does
  not depend on the load of the machine.

``runs``: how much of the nodes' time is used by many short runs. The queue, the worker, Ray and the
runs' folders are real; the nodes are simulated, and the training is a stand-in that sleeps. Before the
measurement, each node has executed a warm-up run, which starts the process of its actor and imports
the packages. The warm-up runs wait for each other, so that each node gets one.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import psutil

from benchmarks import machine
from benchmarks.bulk import StubEncoder, write_pairs
from benchmarks.static import static_model
from sbert_app.services.background.ray_cluster import MISSING, RayCluster, disconnect
from sbert_app.services.background.watch import State
from sbert_app.services.files import shards
from sbert_app.services.files.blocks import ShardJob
from sbert_app.services.files.shards import Worker, run_job
from sbert_app.services.jobs.queue import RunQueue
from sbert_app.services.jobs.worker import Worker as QueueWorker
from sbert_app.services.runs import on_ray as runs_on_ray
from sbert_app.services.runs.store import RunStore
from training.catalogue import DEFAULT_MODEL
from training.errors import InputError
from training.trainer.config import RunConfig
from training.trainer.train import RunResult

ROOT = Path(__file__).parents[1]
FILES = 10
ENGINES = ("local", "ray")
# Seconds between two readings of memory.
POLL_SECONDS = 0.5
# Points of the memory curve in the result.
POINTS = 40
# The name of Ray's actors in the list of processes.
WORKER = "ray::MapWorker"
# The seconds and the rows of a block of the weak scaling. A row has two sentences.
BLOCK_SLEEPS = 1.0
SLEEPING_ROWS = 500
# All workers start within this time, in seconds.
PATIENCE = 600.0


def run_cluster(
    rounds: int = 2,
    rows: int = 200_000,
    model_rounds: int = 1,
    memory_rows: int = 1_000_000,
    nodes: Sequence[int] = (1, 2, 4, 8),
    blocks: int = 30,
) -> dict[str, Any]:
    """Plain JSON; every list is a table.

    Args:
        rounds: measurements of each engine with the static model; the median counts.
        rows: to score.
        model_rounds: measurements of each engine with the default model, ten minutes each; 0 for
            none.
        memory_rows: to score with the static model while the memory is read.
        nodes: numbers of simulated nodes.
        blocks: for each node.

    Raises:
        InputError: Ray is not installed.
    """
    if find_spec("ray") is None:
        raise InputError(MISSING)
    about = machine.describe()
    with tempfile.TemporaryDirectory(prefix="sbert-lab-") as name:
        folder = Path(name)
        static_model(folder / "static")
        scaling = [_sleeping(count, blocks, folder / f"nodes-{count}") for count in nodes]
        static = _overhead(str(folder / "static"), rows, rounds, folder / "static-rows")
        default: list[dict[str, Any]] = []
        if model_rounds:
            default = _overhead(DEFAULT_MODEL, rows, model_rounds, folder / "default-rows")
        many = folder / "many-rows"
        block_rows = _write_files(many, memory_rows)
        curve = _score(many, many / "out", str(folder / "static"), "ray", block_rows)
    for row in scaling:
        row["efficiency"] = round(scaling[0]["seconds"] / row["seconds"], 3)
    return {
        "benchmark": "cluster",
        "overhead": [*static, *default],
        "weak_scaling": scaling,
        **growth(curve),
        "memory_rows": memory_rows,
        "memory": curve[:: max(1, len(curve) // POINTS)],
        "machine": about,
    }


def _overhead(model: str, rows: int, rounds: int, folder: Path) -> list[dict[str, Any]]:
    """A row for each engine."""
    block_rows = _write_files(folder, rows)
    runs: dict[str, list[dict[str, float]]] = {engine: [] for engine in ENGINES}
    for number in range(rounds):
        for engine in ENGINES:
            output = folder / f"{engine}-{number}"
            _score(folder, output, model, engine, block_rows)
            start = (folder / "started").stat().st_mtime
            runs[engine].append(timeline(_end_times(output), start, block_rows))
    medians: dict[str, dict[str, float]] = {}
    for engine, figures in runs.items():
        medians[engine] = {}
        for key in figures[0]:
            medians[engine][key] = round(statistics.median(run[key] for run in figures), 2)
    local = medians["local"]["rows_per_second"]
    table = []
    for engine, median in medians.items():
        row = {
            "model": Path(model).name,
            "rows": rows,
            "rounds": rounds,
            "engine": engine,
            **median,
            "times_local": round(local / median["rows_per_second"], 3),
        }
        table.append(row)
    return table


def _write_files(folder: Path, rows: int) -> int:
    """Writes the input files. Returns the number of rows of a block; a file has five blocks."""
    (folder / "in").mkdir(parents=True)
    for number in range(FILES):
        write_pairs(folder / "in" / f"{number}.csv", rows // FILES, number * rows // FILES)
    return rows // FILES // 5


def _score(
    folder: Path, output: Path, model: str, engine: str, block_rows: int
) -> list[dict[str, int]]:
    """Runs the command. Returns the memory over time of its process, of Ray's workers and of Ray's other processes."""
    workers: list[str] = []
    if engine == "ray":
        workers = ["--concurrency", str(len(os.sched_getaffinity(0)))]
    command = [
        "score",
        str(folder / "in"),
        str(output),
        "--model",
        model,
        "--block-rows",
        str(block_rows),
        "--json",
    ]
    # The time of this file is compared with the times of the parts.
    (folder / "started").touch()
    began = time.monotonic()
    curve = []
    scoring = subprocess.Popen(
        [sys.executable, "-m", "sbert_app", *command, "--engine", engine, *workers],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    while scoring.poll() is None:
        parts = len(list(output.glob("part-*"))) if output.exists() else 0
        memory = _memory(psutil.Process(scoring.pid))
        curve.append({"seconds": round(time.monotonic() - began), "parts": parts, **memory})
        time.sleep(POLL_SECONDS)
    _, errors = scoring.communicate()
    if scoring.returncode:
        raise RuntimeError(
            f"score --engine {engine} ended with {scoring.returncode}: {errors.decode()[-300:]}"
        )
    # The points at which all workers were scoring: the first part is there, and the last one is not.
    num_parts = len(_end_times(output))
    return [point for point in curve if 0 < point["parts"] < num_parts]


def _memory(driver: psutil.Process) -> dict[str, int]:
    megabytes = {"driver_mb": 0, "workers_mb": 0, "ray_mb": 0}
    for process in [driver, *driver.children(recursive=True)]:
        try:
            info = process.memory_info()
            name = " ".join(process.cmdline()[:1])
        except psutil.Error:
            # The process has just ended.
            continue
        # Shared pages are not counted, because all processes share the pages of Ray's object store.
        size = (info.rss - getattr(info, "shared", 0)) >> 20
        if process == driver:
            megabytes["driver_mb"] += size
        elif name.startswith(WORKER):
            megabytes["workers_mb"] += size
        else:
            megabytes["ray_mb"] += size
    return megabytes


def timeline(end_times: Sequence[float], start: float, block_rows: int) -> dict[str, float]:
    """Seconds to the first part, seconds in all and rows per second, from the times at which the parts ended.

    The rate is the rate after the first fifth of the parts.
    """
    times = sorted(end_times)
    num_skipped = len(times) // 5
    rows = (len(times) - 1 - num_skipped) * block_rows
    return {
        "first_part_seconds": times[0] - start,
        "seconds": times[-1] - start,
        "rows_per_second": rows / (times[-1] - times[num_skipped]),
    }


def growth(curve: Sequence[dict[str, int]]) -> dict[str, float]:
    """The memory of driver and workers after a fifth of the parts and at the end; medians of five points."""
    num_parts = curve[-1]["parts"]
    settled = [point for point in curve if point["parts"] >= num_parts / 5][:5]
    figures: dict[str, float] = {}
    for process in ("driver", "workers"):
        first = statistics.median(point[f"{process}_mb"] for point in settled)
        last = statistics.median(point[f"{process}_mb"] for point in curve[-5:])
        figures[f"{process}_settled_mb"] = first
        figures[f"{process}_end_mb"] = last
        figures[f"{process}_growth_percent"] = round(100 * (last / first - 1), 1)
    return figures


def _end_times(output: Path) -> list[float]:
    return [part.stat().st_mtime for part in output.glob("part-*")]


class SleepingEncoder(StubEncoder):
    """Takes the same time for each sentence, and no processor."""

    def encode(self, sentences: Sequence[str], *_: Any, **__: Any) -> np.ndarray:
        """Unit vectors: float32 (N, 384)."""
        seconds_per_sentence = BLOCK_SLEEPS / SLEEPING_ROWS / 2
        time.sleep(len(sentences) * seconds_per_sentence)
        return super().encode(sentences)


class SleepingWorker(Worker):
    """Computes blocks with the encoder that sleeps."""

    def load(self, _: ShardJob) -> tuple[Any, None]:
        """The encoder, and no cross-encoder."""
        return SleepingEncoder(), None


class SleepingCompute(shards.Compute):
    """An actor whose worker sleeps."""

    def __init__(self) -> None:
        self.worker = SleepingWorker()


def _sleeping(nodes: int, blocks: int, folder: Path) -> dict[str, Any]:
    """The seconds that the nodes take for ``blocks`` blocks each, from the start of the first block."""
    import ray

    (folder / "in").mkdir(parents=True)
    rows = blocks * SLEEPING_ROWS
    for number in range(nodes):
        write_pairs(folder / "in" / f"{number}.csv", rows, number * rows)
    job = ShardJob("score", str(folder / "out"), "sleeping", block_rows=SLEEPING_ROWS)
    with _cluster(nodes) as address, patch.object(shards, "Compute", SleepingCompute):
        # The nodes start at the same time.
        ray.data.DataContext.get_current().wait_for_min_actors_s = PATIENCE
        run_job(job, str(folder / "in"), shards.RayEngine(address, concurrency=nodes))
    end_times = _end_times(folder / "out")
    # The first block began a block's time before it ended.
    seconds = max(end_times) - min(end_times) + BLOCK_SLEEPS
    return {
        "nodes": nodes,
        "blocks": nodes * blocks,
        "seconds": round(seconds, 2),
        "ideal_seconds": blocks * BLOCK_SLEEPS,
    }


@contextmanager
def _cluster(nodes: int) -> Iterator[str]:
    """Yields the address of a cluster of nodes of one core."""
    import ray
    import ray.data
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        for _ in range(nodes - 1):
            cluster.add_node(num_cpus=1)
        yield cluster.address
    finally:
        ray.shutdown()
        cluster.shutdown()


# Variables by which the actors learn their arguments.
FOLDER = "BENCHMARK_FOLDER"
SECONDS = "BENCHMARK_SECONDS"
NODES = "BENCHMARK_NODES"
WARM_UP = "warm-up"


class SleepingRun(runs_on_ray.RemoteRun):
    """An actor whose training sleeps."""

    def _execute(self) -> RunResult:
        ready = Path(os.environ[FOLDER])
        seconds = float(os.environ[SECONDS])
        with self.store.lease(self.folder.name) as lease:
            if lease.run.name == WARM_UP:
                # Waits until there is a warm-up run on each node.
                (ready / self.folder.name).touch()
                while len(list(ready.iterdir())) < int(os.environ[NODES]):
                    time.sleep(0.01)
            else:
                time.sleep(seconds)
            lease.state = State.FINISHED
        return RunResult(self.folder.name, "finished", 1, seconds)


def run_runs(nodes: int = 4, runs: int = 8, seconds: float = 2.0) -> dict[str, Any]:
    """The seconds from the start of the first run to the end of the last one, and the seconds if no time were lost.

    Args:
        nodes: simulated, of one core each.
        runs: to execute.
        seconds: that each of them sleeps.

    Raises:
        InputError: Ray is not installed.
    """
    if find_spec("ray") is None:
        raise InputError(MISSING)
    from ray.cluster_utils import Cluster

    about = machine.describe()
    with tempfile.TemporaryDirectory(prefix="sbert-lab-") as name:
        ready = Path(name) / "ready"
        home = Path(name) / "home"
        ready.mkdir()
        environment = {FOLDER: str(ready), SECONDS: str(seconds), NODES: str(nodes)}
        with (
            patch.dict(os.environ, environment),
            patch.object(runs_on_ray, "RemoteRun", SleepingRun),
        ):
            simulated = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
            try:
                for _ in range(nodes):
                    simulated.add_node(num_cpus=1)
                cluster = RayCluster(simulated.address)
                jobs = RunQueue(RunStore(home), ray=cluster.address)
                jobs.starts_workers = False
                for _ in range(nodes):
                    jobs.start(RunConfig("regression", name=WARM_UP))
                for number in range(runs):
                    jobs.start(RunConfig("regression", name=f"run {number}"))
                QueueWorker(home, 0, idle_seconds=0.5, cluster=cluster).work()
            finally:
                disconnect()
                simulated.shutdown()
        records = [run.record for run in jobs.store.list()]
        if any(record.state != State.FINISHED for record in records):
            raise RuntimeError(f"a run has not finished: {[record.reason for record in records]}")
        # The runs begin when the last warm-up run has begun, as the others have waited for it.
        start = max(file.stat().st_mtime for file in ready.iterdir())
        duration = max(record.ended or 0 for record in records) - start
    ideal = runs * seconds / nodes
    return {
        "benchmark": "runs",
        "nodes": nodes,
        "runs": runs,
        "seconds_each": seconds,
        "seconds": round(duration, 2),
        "ideal_seconds": ideal,
        "efficiency": round(ideal / duration, 3),
        "machine": about,
    }
