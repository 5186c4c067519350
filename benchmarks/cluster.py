"""Files of pairs (``cluster``) and runs (``runs``) on Ray: their cost, how they grow with the nodes, their memory.

``cluster``:

- ``overhead``: `score` of the same files by both engines, in turn, each a process of its own; with
  a static model, which takes little more than reading and writing, and with the default one. Rates
  are those after a fifth of the parts, when every worker has loaded its model; the time until the
  first part stands apart.
- ``weak_scaling``: simulated nodes of one core on this machine (`ray.cluster_utils`), as many
  blocks for each, and an encoder that sleeps for each sentence, as on nodes that do not share their
  processor.
- ``memory``: of the driver and its workers while the static model scores a million rows; it does
  not depend on the load of the machine.

``runs``: how much of the nodes' time is used by many short runs. The queue, the worker, Ray and the
runs' folders are real; the nodes are simulated, and the training is a stand-in that sleeps. What an
actor needs once, for its process and imports, is done before: the first run of each node waits for
those of the others.
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
from typing import TYPE_CHECKING, Any
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

if TYPE_CHECKING:
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
# A block of the weak scaling takes so many seconds and has so many rows, of two sentences each.
BLOCK_SLEEPS = 1.0
SLEEPING_ROWS = 500
# Seconds until all workers have started.
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
        default = (
            _overhead(DEFAULT_MODEL, rows, model_rounds, folder / "default-rows")
            if model_rounds
            else []
        )
        curve = _memory_of_many(str(folder / "static"), memory_rows, folder / "many-rows")
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
            runs[engine].append(
                timeline(_finished(output), (folder / "started").stat().st_mtime, block_rows)
            )
    medians = {
        engine: {
            key: round(statistics.median(run[key] for run in figures), 2) for key in figures[0]
        }
        for engine, figures in runs.items()
    }
    local = medians["local"]["rows_per_second"]
    return [
        {
            "model": Path(model).name,
            "rows": rows,
            "rounds": rounds,
            "engine": engine,
            **figures,
            "times_local": round(local / figures["rows_per_second"], 3),
        }
        for engine, figures in medians.items()
    ]


def _memory_of_many(model: str, rows: int, folder: Path) -> list[dict[str, int]]:
    """Megabytes over time while many rows are scored on Ray."""
    return _score(folder, folder / "out", model, "ray", _write_files(folder, rows))


def _write_files(folder: Path, rows: int) -> int:
    """Write the input -> the rows of a block, five of which are a file."""
    (folder / "in").mkdir(parents=True)
    for number in range(FILES):
        write_pairs(folder / "in" / f"{number}.csv", rows // FILES, number * rows // FILES)
    return rows // FILES // 5


def _score(
    folder: Path, output: Path, model: str, engine: str, block_rows: int
) -> list[dict[str, int]]:
    """Run the command -> megabytes over time of its process, and of Ray's workers and other processes below it."""
    workers = ["--concurrency", str(len(os.sched_getaffinity(0)))] if engine == "ray" else []
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
    (folder / "started").touch()
    begun, curve = time.monotonic(), []
    scoring = subprocess.Popen(
        [sys.executable, "-m", "sbert_app", *command, "--engine", engine, *workers],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    while scoring.poll() is None:
        parts = len(list(output.glob("part-*"))) if output.exists() else 0
        memory = _memory(psutil.Process(scoring.pid))
        curve.append({"seconds": round(time.monotonic() - begun), "parts": parts, **memory})
        time.sleep(POLL_SECONDS)
    _, errors = scoring.communicate()
    if scoring.returncode:
        raise RuntimeError(
            f"score --engine {engine} ended with {scoring.returncode}: {errors.decode()[-300:]}"
        )
    # Only while the workers score.
    return [point for point in curve if 0 < point["parts"] < len(_finished(output))]


def _memory(driver: psutil.Process) -> dict[str, int]:
    megabytes = {"driver_mb": 0, "workers_mb": 0, "ray_mb": 0}
    for process in [driver, *driver.children(recursive=True)]:
        try:
            # The pages of Ray's object store are shared by all processes.
            info, name = process.memory_info(), " ".join(process.cmdline()[:1])
            size = (info.rss - getattr(info, "shared", 0)) >> 20
        except psutil.Error:
            # The process has just ended.
            continue
        kind = "driver" if process == driver else "workers" if name.startswith(WORKER) else "ray"
        megabytes[f"{kind}_mb"] += size
    return megabytes


def timeline(finished: Sequence[float], started: float, block_rows: int) -> dict[str, float]:
    """Seconds to the first part, seconds in all and rows per second, from the times at which parts were finished.

    The rate is that after the first fifth of the parts.
    """
    times = sorted(finished)
    skipped = len(times) // 5
    rows = (len(times) - 1 - skipped) * block_rows
    return {
        "first_part_seconds": times[0] - started,
        "seconds": times[-1] - started,
        "rows_per_second": rows / (times[-1] - times[skipped]),
    }


def growth(curve: Sequence[dict[str, int]]) -> dict[str, float]:
    """The memory of driver and workers after a fifth of the parts and at the end; medians of five points."""
    most = curve[-1]["parts"]
    settled = [point for point in curve if point["parts"] >= most / 5][:5]
    figures = dict[str, float]()
    for who in ("driver", "workers"):
        first, last = (
            statistics.median(point[f"{who}_mb"] for point in part)
            for part in (settled, curve[-5:])
        )
        figures |= {f"{who}_settled_mb": first, f"{who}_end_mb": last}
        figures[f"{who}_growth_percent"] = round(100 * (last / first - 1), 1)
    return figures


def _finished(output: Path) -> list[float]:
    return [part.stat().st_mtime for part in output.glob("part-*")]


class SleepingEncoder(StubEncoder):
    """Takes the same time for each sentence, and no processor."""

    def encode(self, sentences: Sequence[str], *_: Any, **__: Any) -> np.ndarray:
        """Unit vectors: float32 (N, 384)."""
        time.sleep(len(sentences) * BLOCK_SLEEPS / SLEEPING_ROWS / 2)
        return super().encode(sentences)


class SleepingWorker(Worker):
    """Computes blocks with the encoder that sleeps."""

    def load(self, _: ShardJob) -> tuple[Any, None]:
        """The encoder, and no cross-encoder."""
        return SleepingEncoder(), None


class SleepingCompute(shards.Compute):
    """An actor with such a worker."""

    def __init__(self) -> None:
        self.worker = SleepingWorker()


def _sleeping(nodes: int, blocks: int, folder: Path) -> dict[str, Any]:
    """Seconds that so many nodes take for so many blocks each, from the start of the first block."""
    import ray

    (folder / "in").mkdir(parents=True)
    for number in range(nodes):
        write_pairs(
            folder / "in" / f"{number}.csv", blocks * SLEEPING_ROWS, number * blocks * SLEEPING_ROWS
        )
    job = ShardJob("score", str(folder / "out"), "sleeping", block_rows=SLEEPING_ROWS)
    with _cluster(nodes) as address, patch.object(shards, "Compute", SleepingCompute):
        # The nodes start at the same time.
        ray.data.DataContext.get_current().wait_for_min_actors_s = PATIENCE
        run_job(job, str(folder / "in"), shards.RayEngine(address, concurrency=nodes))
    finished = _finished(folder / "out")
    seconds = max(finished) - min(finished) + BLOCK_SLEEPS
    return {
        "nodes": nodes,
        "blocks": nodes * blocks,
        "seconds": round(seconds, 2),
        "ideal_seconds": blocks * BLOCK_SLEEPS,
    }


@contextmanager
def _cluster(nodes: int) -> Iterator[str]:
    """Nodes of one core -> their address."""
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


FOLDER, SECONDS, NODES = "BENCHMARK_FOLDER", "BENCHMARK_SECONDS", "BENCHMARK_NODES"
WARM_UP = "warm-up"


class SleepingRun(runs_on_ray.RemoteRun):
    """An actor whose training sleeps."""

    def _execute(self) -> RunResult:
        from training.trainer.train import RunResult

        ready, seconds = Path(os.environ[FOLDER]), float(os.environ[SECONDS])
        with self.store.lease(self.folder.name) as lease:
            if lease.run.name == WARM_UP:
                (ready / self.folder.name).touch()
                while len(list(ready.iterdir())) < int(os.environ[NODES]):
                    time.sleep(0.01)
            else:
                time.sleep(seconds)
            lease.state = State.FINISHED
        return RunResult(self.folder.name, "finished", 1, seconds)


def run_runs(nodes: int = 4, runs: int = 8, seconds: float = 2.0) -> dict[str, Any]:
    """Seconds from the first of the runs to the end of the last one, beside those that they sleep.

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
        ready, home = Path(name) / "ready", Path(name) / "home"
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
                for number in range(nodes + runs):
                    jobs.start(
                        RunConfig("regression", name=WARM_UP if number < nodes else f"run {number}")
                    )
                QueueWorker(home, 0, idle_seconds=0.5, cluster=cluster).work()
            finally:
                disconnect()
                simulated.shutdown()
        records = [run.record for run in jobs.store.list()]
        if any(record.state != State.FINISHED for record in records):
            raise RuntimeError(f"a run has not finished: {[record.reason for record in records]}")
        begun = max(file.stat().st_mtime for file in ready.iterdir())
        taken = max(record.ended or 0 for record in records) - begun
    ideal = runs * seconds / nodes
    return {
        "benchmark": "runs",
        "nodes": nodes,
        "runs": runs,
        "seconds_each": seconds,
        "seconds": round(taken, 2),
        "ideal_seconds": ideal,
        "efficiency": round(ideal / taken, 3),
        "machine": about,
    }
