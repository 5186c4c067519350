"""Sharded jobs on a Ray cluster: blocks go to actors, each of which loads the models once.

    engine = RayEngine(address="auto", concurrency=8, gpus_per_worker=1)
    run_job(job, "s3://bucket/pairs/*.parquet", engine)

The data never passes through Ray: an actor reads its block and writes its part itself, so the driver and the object
store hold nothing but names. Ray gives the blocks of an actor or node that dies to another one.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sbert_app.process import configure_process
from sbert_app.services.background.tasks import Task
from sbert_app.services.background.watch import Watch
from sbert_app.services.ray_cluster import Cluster, disconnect
from sbert_app.services.shards.blocks import Block
from sbert_app.services.shards.job import BlockWorker, OutputFolder, ShardJob
from sbert_app.services.shards.run import Outcome, RowCount
from training.errors import InputError, first_line

INIT_DEATHS = 3  # workers in a row that may die while they start, as with their node
END_SECONDS = 10.0  # in which workers end that have lost their node


class ComputeBlock:
    """What an actor does with a row that describes a block."""

    def __init__(self) -> None:
        configure_process()  # the actor has a process of its own
        self._worker: BlockWorker | None = None

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """The number of rows, or the sentence of an error that lies in the file."""
        if self._worker is None:
            settings = json.loads(row["job"])
            self._worker = BlockWorker(ShardJob(**{**settings, "columns": tuple(settings["columns"])}))
        block = Block(**json.loads(row["block"]))
        try:
            return {"block": row["block"], "rows": self._worker.compute(block), "error": ""}
        except InputError as error:
            return {"block": row["block"], "rows": 0, "error": str(error)}


@dataclass(frozen=True)
class RayEngine:
    """Where Ray runs and what each actor gets."""

    address: str = "local"  # of a cluster: auto, ray://host:10001; local starts one on this machine
    concurrency: int | None = None  # actors; None takes as many as fit, with all cores of a node for each on CPUs
    gpus_per_worker: float = 0  # of an actor, 0 on CPUs
    cpus_per_worker: float = 1

    def __call__(self, job: ShardJob, blocks: list[Block], count: RowCount, watch: Watch) -> Iterable[Outcome]:
        """Compute the blocks. InputError if Ray is missing, or there is no cluster at the address."""
        if not blocks:
            return
        cluster = Cluster(self.address)
        cluster.connect()
        data = _ray_data()
        from ray.exceptions import RayError, RayTaskError

        # The job travels in the rows: the arguments of an actor's constructor are lost with the node that holds them.
        settings = json.dumps(asdict(_from_anywhere(job)))
        rows = [{"job": settings, "block": json.dumps(asdict(block))} for block in blocks]
        pool = {"size": self.concurrency} if self.concurrency else {"min_size": 1, "max_size": len(blocks)}
        results = data.from_items(rows, override_num_blocks=len(rows)).map(
            ComputeBlock,
            num_cpus=self.cpus_per_worker,
            num_gpus=self.gpus_per_worker or None,
            compute=data.ActorPoolStrategy(**pool),
        )
        try:
            rows = iter(results.iter_rows())
            while row := _next(rows, cluster, watch):
                yield Outcome(Block(**json.loads(row["block"])), int(row["rows"]), row["error"] or None)
                watch.check()
        except (RayError, ConnectionError) as error:
            if isinstance(error, RayTaskError):  # it was raised by what a worker does
                raise
            disconnect()
            ended_by = time.monotonic() + END_SECONDS
            while OutputFolder(job.output).sweep(seconds=0) and time.monotonic() < ended_by:
                time.sleep(0.2)  # until the workers that have begun these parts notice that Ray is gone
            raise InputError(
                f"Ray at {self.address} cannot go on: {first_line(error).rstrip('.')}. The parts that are finished "
                f"stay in {job.output}; the same command goes on."
            ) from error


def _next(rows: Iterator[Any], cluster: Cluster, watch: Watch) -> Any:
    """The next row of results; None after the last. ConnectionError if Ray is gone, see `Cluster.check`."""
    waiting, since = Task("Waiting for Ray", lambda _: next(rows, None)).start(), time.monotonic()
    for _ in waiting.follow():
        watch.check()
        cluster.check(since)
    return waiting.result().value


def _from_anywhere(job: ShardJob) -> ShardJob:
    """The job with absolute paths, as the blocks have: a worker of a cluster has another working directory."""
    return replace(
        job,
        output=_absolute(job.output),
        model=_absolute(job.model),
        cross_encoder=job.cross_encoder and _absolute(job.cross_encoder),
        home=job.home and _absolute(job.home),
    )


def _absolute(name: str) -> str:
    """A path that exists here, absolute; a URL and the name of a model as they are."""
    path = name.partition("?")[0]  # settings of a model may follow
    return str(Path(name).absolute()) if "://" not in name and Path(path).exists() else name


def _ray_data() -> Any:
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # errors are raised, too
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.max_consecutive_actor_init_deaths = INIT_DEATHS
    return ray.data
