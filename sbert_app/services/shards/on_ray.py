"""Sharded jobs on a Ray cluster: blocks go to actors, each of which loads the models once.

    engine = RayEngine(address="auto", concurrency=8, gpus_per_worker=1)
    run_job(job, "s3://bucket/pairs/*.parquet", engine)

The data never passes through Ray: an actor reads its block and writes its part itself, so the driver and the object
store hold nothing but names. Ray gives the blocks of an actor or node that dies to another one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from sbert_app.services.shards.blocks import Block
from sbert_app.services.shards.job import BlockWorker, ShardJob
from sbert_app.services.shards.run import Outcome, RowCount, ShouldStop
from training.errors import InputError, Stopped

MISSING = "--engine ray needs Ray: pip install 'sbert-lab[ray]'"


class ComputeBlock:
    """What an actor does with a row that describes a block."""

    def __init__(self) -> None:
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
    """Where Ray runs and what each actor gets.

    Args:
        address: of a cluster: auto, ray://host:10001; local starts one on this machine.
        concurrency: actors; None takes as many as fit, with all cores of a node for each on CPUs.
        gpus_per_worker: GPUs of an actor, 0 on CPUs.
        cpus_per_worker: CPUs of an actor.
    """

    address: str = "local"
    concurrency: int | None = None
    gpus_per_worker: float = 0
    cpus_per_worker: float = 1

    def __call__(
        self, job: ShardJob, blocks: list[Block], count: RowCount, should_stop: ShouldStop
    ) -> Iterable[Outcome]:
        """Compute the blocks. InputError if Ray is missing, or there is no cluster at the address."""
        if not blocks:
            return
        data = self._connect()
        # The job travels in the rows: the arguments of an actor's constructor are lost with the node that holds them.
        settings = json.dumps(asdict(job))
        rows = [{"job": settings, "block": json.dumps(asdict(block))} for block in blocks]
        pool = {"size": self.concurrency} if self.concurrency else {"min_size": 1, "max_size": len(blocks)}
        results = data.from_items(rows, override_num_blocks=len(rows)).map(
            ComputeBlock,
            num_cpus=self.cpus_per_worker,
            num_gpus=self.gpus_per_worker or None,
            compute=data.ActorPoolStrategy(**pool),
        )
        for row in results.iter_rows():
            yield Outcome(Block(**json.loads(row["block"])), int(row["rows"]), row["error"] or None)
            if should_stop():
                raise Stopped

    def _connect(self) -> Any:
        try:
            import ray
            import ray.data
        except ImportError as error:
            raise InputError(MISSING) from error
        if not ray.is_initialized():
            try:
                ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, ValueError, RuntimeError) as error:
                reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
                raise InputError(f"there is no Ray cluster at {self.address}: {reason}") from error
        logging.getLogger("ray.data").setLevel(logging.WARNING)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        return ray.data
