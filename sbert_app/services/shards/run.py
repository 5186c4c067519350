"""Sharded jobs on this machine: blocks one after the other, each by all cores or the GPU.

    result = run_job(ShardJob("score", output="scored/", model="all-MiniLM-L6-v2"), "pairs/*.parquet")

Killed at any point and started again with the same job, it computes the blocks that are missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sbert_app.formats import format_count, format_duration
from sbert_app.services.files.report import Report
from sbert_app.services.shards.blocks import Block, find_files, plan_blocks
from sbert_app.services.shards.job import BlockWorker, ShardJob
from sbert_app.services.shards.output import OutputFolder
from sbert_app.services.shards.summary import summarise
from training.errors import InputError

OnProgress = Callable[[float, float], object]  # (rows done, rows in all as far as known)
ShouldStop = Callable[[], bool]


@dataclass(frozen=True)
class Outcome:
    """What became of a block: its rows, or why it could not be computed."""

    block: Block
    rows: int = 0
    error: str | None = None


Engine = Callable[[ShardJob, list[Block], "RowCount", ShouldStop], Iterable[Outcome]]


@dataclass
class JobResult:
    """What a job did."""

    output: str
    kind: str
    files: int
    blocks: int
    resumed: int  # blocks that an earlier start had finished
    rows: int  # of all blocks
    computed: int  # rows of this start
    seconds: float  # of this start
    rows_per_second: float
    scored: int | None = None
    report: Report | None = None
    failed: dict[str, str] = field(default_factory=dict)  # file -> why not all of it is there

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        done = "scored" if self.kind == "score" else "encoded"
        parts = [f"{format_count(self.rows, 'row')} of {format_count(self.files, 'file')} {done} in {self.output}"]
        if self.computed:
            parts.append(f" in {format_duration(self.seconds)} ({self.rows_per_second:,.0f} rows/s)")
        if self.resumed:
            parts.append(f"; {self.resumed:,} of {format_count(self.blocks, 'part')} had been finished before")
        return "".join(parts) + "."


class RowCount:
    """Progress over blocks: the rows of finished ones, and those of the block at hand."""

    def __init__(self, total: int, on_progress: OnProgress | None) -> None:
        self.total, self._on_progress = total, on_progress
        self._finished = self._current = 0

    def current(self, rows: int) -> None:
        """Rows done of the block that is being computed."""
        self._current = rows
        self._report()

    def finish(self, rows: int) -> None:
        """A block is finished."""
        self._finished, self._current = self._finished + rows, 0
        self._report()

    def _report(self) -> None:
        done = self._finished + self._current
        if self._on_progress is not None:
            self._on_progress(done, max(done, self.total))


def compute_here(job: ShardJob, blocks: list[Block], count: RowCount, should_stop: ShouldStop) -> Iterable[Outcome]:
    """The engine of one machine. Of a file that cannot be read the remaining blocks are left out."""
    worker, failed = BlockWorker(job), dict[str, str]()
    try:
        for block in blocks:
            if block.file in failed:
                yield Outcome(block, error=failed[block.file])
                continue
            try:
                yield Outcome(block, worker.compute(block, count.current, should_stop))
            except InputError as error:
                failed[block.file] = str(error)
                yield Outcome(block, error=str(error))
    finally:
        worker.close()


def run_job(
    job: ShardJob,
    source: str,
    engine: Engine = compute_here,
    on_progress: OnProgress | None = None,
    should_stop: ShouldStop = lambda: False,
) -> JobResult:
    """Compute all blocks that are not there yet.

    Args:
        job: what to do.
        source: a file, a folder, a glob or a URL of these.
        engine: computes blocks and yields what became of each, in any order.
        on_progress: called with rows.
        should_stop: what is finished stays; the block at hand is lost.

    Raises:
        InputError: no file, an output that belongs to another job, a model that cannot be loaded. Also, at the end,
            if files could not be read; all others are finished then.
        Stopped: ``should_stop`` became true.
    """
    started = time.perf_counter()
    files = find_files(source)
    if "://" not in source and Path(job.output).resolve().is_relative_to(Path(source).resolve()):
        raise InputError(
            f"{job.output} lies inside {source}, and its parts would be read as input: name another folder"
        )
    blocks, failed = plan_blocks(files, job.block_rows, job.encoding)
    output = OutputFolder(job.output)
    finished = output.start(job.description(files))
    waiting = [block for block in blocks if block.part not in finished]
    count = RowCount(sum(_rows(block, job.block_rows) for block in waiting), on_progress)
    computed = 0
    for outcome in engine(job, waiting, count, should_stop):
        if outcome.error:
            failed[outcome.block.file] = outcome.error
        else:
            computed += outcome.rows
            count.finish(outcome.rows)
    if failed and len(failed) == len(files):
        raise InputError(_failures(failed, len(files), job.output))
    seconds = time.perf_counter() - started
    total = summarise(output, [block.part for block in blocks if block.file not in failed], job)
    result = JobResult(
        output=job.output,
        kind=job.kind,
        files=len(files),
        blocks=len(blocks),
        resumed=len(blocks) - len(waiting),
        rows=total.rows,
        computed=computed,
        seconds=round(seconds, 3),
        rows_per_second=round(computed / max(seconds, 1e-9), 1),
        scored=total.scored,
        report=total.report,
        failed=failed,
    )
    if failed:
        raise InputError(_failures(failed, len(files), job.output))
    return result


def _rows(block: Block, block_rows: int) -> int:
    return block.rows or block_rows


def _failures(failed: dict[str, str], files: int, output: str) -> str:
    first = next(iter(failed.values()))
    others = (
        "" if len(failed) == files else f" The others are finished in {output}: repair or remove it and start again."
    )
    which = "" if len(failed) == 1 else f" ({len(failed):,} of {files:,} files could not be read; this is the first)"
    return f"{first}{which}{others}"


def to_json(result: JobResult) -> dict[str, Any]:
    """The result without the data of figures."""
    figures = asdict(result)
    if figures["report"] is not None:
        del figures["report"]["scatter"]
    return figures
