"""Runs on Ray: how much of the nodes' time is used by many short runs.

The queue, the worker, Ray and the runs' folders are real; the nodes are simulated on this machine
(`ray.cluster_utils`), and the training is a stand-in that sleeps, as on nodes that do not share their processor. What
an actor needs once, for its process and imports, is done before: the first run of each node waits for those of the
others.
"""

from __future__ import annotations

import os
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from benchmarks import machine
from sbert_app.services.background import ray_cluster
from sbert_app.services.background.watch import State
from sbert_app.services.jobs.queue import RunQueue
from sbert_app.services.jobs.worker import Worker
from sbert_app.services.runs import on_ray
from sbert_app.services.runs.store import RunStore
from training.errors import InputError
from training.trainer.config import RunConfig

if TYPE_CHECKING:
    from training.trainer.train import RunResult

FOLDER, SECONDS, NODES = "BENCHMARK_FOLDER", "BENCHMARK_SECONDS", "BENCHMARK_NODES"
WARM_UP = "warm-up"


class SleepingRun(on_ray.RemoteRun):
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


def run(nodes: int = 4, runs: int = 8, seconds: float = 2.0) -> dict[str, Any]:
    """Seconds from the first of the runs to the end of the last one, beside those that they sleep.

    Args:
        nodes: simulated, of one core each.
        runs: to execute.
        seconds: that each of them sleeps.

    Raises:
        InputError: Ray is not installed.
    """
    if find_spec("ray") is None:
        raise InputError(ray_cluster.MISSING)
    from ray.cluster_utils import Cluster

    about = machine.describe()
    with tempfile.TemporaryDirectory(prefix="sbert-lab-") as name:
        ready, home = Path(name) / "ready", Path(name) / "home"
        ready.mkdir()
        given = {FOLDER: str(ready), SECONDS: str(seconds), NODES: str(nodes)}
        with patch.dict(os.environ, given), patch.object(on_ray, "RemoteRun", SleepingRun):
            simulated = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
            try:
                for _ in range(nodes):
                    simulated.add_node(num_cpus=1)
                cluster = ray_cluster.RayCluster(simulated.address)
                jobs = RunQueue(RunStore(home), ray=cluster.address)
                jobs.starts_workers = False
                for number in range(nodes + runs):
                    jobs.start(RunConfig("regression", name=WARM_UP if number < nodes else f"run {number}"))
                Worker(home, 0, idle_seconds=0.5, cluster=cluster).work()
            finally:
                ray_cluster.disconnect()
                simulated.shutdown()
        found = [each.record for each in jobs.store.list()]
        if any(record.state != State.FINISHED for record in found):
            raise RuntimeError(f"a run has not finished: {[record.reason for record in found]}")
        begun = max(file.stat().st_mtime for file in ready.iterdir())
        taken = max(record.ended or 0 for record in found) - begun
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
