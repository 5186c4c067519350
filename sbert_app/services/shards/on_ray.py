"""Sharded jobs on a Ray cluster, by Ray Data: tasks read the files, actors compute their blocks.

    engine = RayEngine(address="auto", concurrency=8, gpus_per_worker=1)
    run_job(job, "s3://bucket/pairs/*.parquet", engine)

Ray Data hands the blocks from the readers to the actors, no more than these can take, and again to others where an
actor or a node dies. An actor writes its part itself: Ray Data's own writer of Parquet would neither give it a name by
which a later start finds it, nor make it appear whole.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sbert_app.process import configure_process
from sbert_app.services.background.ray_cluster import RayCluster, disconnect
from sbert_app.services.background.tasks import Task
from sbert_app.services.background.watch import Watch
from sbert_app.services.shards.blocks import Block, ShardJob, parts_of, read_blocks
from sbert_app.services.shards.run import OutputFolder, Worker
from training.errors import InputError, first_line

# Workers in a row that may die while they start, as with their node.
INIT_DEATHS = 3
# Seconds in which workers end that have lost their node.
END_SECONDS = 10.0


def read(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A task: the blocks of one file."""
    for block in read_blocks(**row, collect=list):
        yield {"block": block}


class Compute:
    """An actor, which computes one block after the other."""

    def __init__(self) -> None:
        configure_process()
        self.worker = Worker()

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return {"block": self.worker.compute(row["block"])}


@dataclass(frozen=True)
class RayEngine:
    """Where Ray runs, and what each actor gets. ``concurrency``: how many actors; None takes as many as fit."""

    address: str = "local"
    concurrency: int | None = None
    gpus_per_worker: float = 0
    cpus_per_worker: float = 1

    def __call__(self, job: ShardJob, files: list[str], finished: Collection[str], watch: Watch) -> Iterator[Block]:
        """Compute the blocks. InputError if Ray is missing, there is no cluster at the address, or it ends."""
        cluster = RayCluster(self.address)
        cluster.connect()
        import ray.data
        from ray.exceptions import RayError, RayTaskError

        # Errors are raised, too.
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.max_consecutive_actor_init_deaths = INIT_DEATHS
        # Each block of ours is one of Ray Data's, and so is scheduled by itself.
        context.target_max_block_size = 1
        # The job travels in the rows: the arguments of an actor's constructor are lost with the node that holds them.
        job = replace(
            job,
            output=_absolute(job.output),
            model=_absolute(job.model),
            cross_encoder=job.cross_encoder and _absolute(job.cross_encoder),
            home=job.home and _absolute(job.home),
        )
        rows = [
            {"job": job, "number": number, "file": file, "finished": parts_of(number, finished)}
            for number, file in enumerate(files)
        ]
        pool = {"size": self.concurrency} if self.concurrency else {"min_size": 1, "max_size": None}
        resources = {"num_cpus": self.cpus_per_worker, "num_gpus": self.gpus_per_worker or None}
        # A reader for each node keeps its actors busy.
        blocks = ray.data.from_items(rows, override_num_blocks=len(rows)).flat_map(
            read, num_cpus=0, compute=ray.data.TaskPoolStrategy(min(len(cluster.nodes()), len(rows)))
        )
        computed = iter(blocks.map(Compute, compute=ray.data.ActorPoolStrategy(**pool), **resources).iter_rows())
        try:
            while row := _next(computed, cluster, watch):
                yield row["block"]
        except (RayError, ConnectionError) as error:
            # A fault in what a worker does.
            if isinstance(error, RayTaskError):
                raise
            disconnect()
            ended_by = time.monotonic() + END_SECONDS
            # Until the workers that have begun parts notice that Ray is gone.
            while OutputFolder(job.output).sweep(seconds=0) and time.monotonic() < ended_by:
                time.sleep(0.2)
            raise InputError(
                f"Ray at {self.address} cannot go on: {first_line(error).rstrip('.')}. The parts that are finished "
                f"stay in {job.output}; the same command goes on."
            ) from error


def _next(rows: Iterator[Any], cluster: RayCluster, watch: Watch) -> Any:
    """The next row; None after the last. Stopped after a stop; ConnectionError if Ray is gone."""
    waiting = Task("Waiting for Ray", lambda _: next(rows, None)).start()
    for _ in waiting.follow():
        watch.check()
        cluster.check()
    return waiting.result().value


def _absolute(name: str) -> str:
    """A path that exists here, absolute; a URL and the name of a model as they are. Settings of a model may follow."""
    return str(Path(name).absolute()) if "://" not in name and Path(name.partition("?")[0]).exists() else name
