"""Sharded jobs on this machine: blocks one after the other, each by all cores or the GPU.

    result = run_job(ShardJob("score", output="scored/", model="all-MiniLM-L6-v2"), "pairs/*.parquet")

Killed at any point and started again with the same job, it computes the blocks that are missing.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from sbert_app.formats import format_count, format_duration
from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.files.report import Report, ReportBuilder
from sbert_app.services.shards.blocks import ID, Block, find_files, input_version, local_copy, plan_blocks
from sbert_app.services.shards.job import BlockWorker, OutputFolder, ShardJob
from training.data.gold import NUMBER, GoldColumn
from training.data.tables.columns import as_text, pick_columns
from training.data.tables.parquet import open_parquet
from training.data.tables.rows import OpenedTable, RowBatch, changed_while_read
from training.errors import InputError


@dataclass(frozen=True)
class Outcome:
    """What became of a block: its rows, or why it could not be computed."""

    block: Block
    rows: int = 0
    error: str | None = None


Engine = Callable[[ShardJob, list[Block], "RowCount", Watch], Iterable[Outcome]]


@dataclass
class JobResult:
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
        done = "scored" if self.kind == "score" else "encoded"
        parts = [f"{format_count(self.rows, 'row')} of {format_count(self.files, 'file')} {done} in {self.output}"]
        if self.computed:
            parts.append(f" in {format_duration(self.seconds)} ({self.rows_per_second:,.0f} rows/s)")
        if self.resumed:
            parts.append(f"; {self.resumed:,} of {format_count(self.blocks, 'part')} had been finished before")
        return "".join(parts) + "."


class RowCount:
    """Progress over blocks: the rows of finished ones, and those of the block at hand."""

    def __init__(self, total: int, watch: Watch) -> None:
        self.total, self._watch, self._finished = total, watch, 0

    def current(self, rows: float) -> None:
        """Rows done of the block that is being computed."""
        done = self._finished + rows
        self._watch.report(done, None, max(done, self.total))

    def finish(self, rows: int) -> None:
        self._finished += rows
        self.current(0)


def compute_here(job: ShardJob, blocks: list[Block], count: RowCount, watch: Watch) -> Iterable[Outcome]:
    """The engine of one machine. Of a file that cannot be read the remaining blocks are left out."""
    worker, failed = BlockWorker(job), dict[str, str]()
    of_block = Watch.of(lambda rows, _: count.current(rows), watch.should_stop)
    try:
        for block in blocks:
            if block.file in failed:
                yield Outcome(block, error=failed[block.file])
                continue
            try:
                yield Outcome(block, worker.compute(block, of_block))
            except InputError as error:
                failed[block.file] = str(error)
                yield Outcome(block, error=str(error))
    finally:
        worker.close()


def run_job(job: ShardJob, source: str, engine: Engine = compute_here, watch: Watch = UNWATCHED) -> JobResult:
    """Compute all blocks that are not there yet of a file, a folder, a glob or a URL of these.

    ``engine`` computes blocks and yields what became of each, in any order. After a stop what is finished stays, and
    the block at hand is lost. InputError if there is no file, the output belongs to another job, or a model cannot be
    loaded; also, at the end, if files could not be read or changed meanwhile: all others are finished then.
    """
    started = time.perf_counter()
    files = find_files(source)
    versions = {file: input_version(file) for file in files}
    if "://" not in source and Path(job.output).resolve().is_relative_to(Path(source).resolve()):
        raise InputError(
            f"{job.output} lies inside {source}, and its parts would be read as input: name another folder"
        )
    blocks, failed = plan_blocks(files, job.block_rows, job.encoding)
    output = OutputFolder(job.output)
    finished = output.start(job.description(files))
    waiting = [block for block in blocks if block.part not in finished]
    count = RowCount(sum(block.rows or job.block_rows for block in waiting), watch)
    computed = 0
    for outcome in engine(job, waiting, count, watch):
        if outcome.error:
            failed[outcome.block.file] = outcome.error
        else:
            computed += outcome.rows
            count.finish(outcome.rows)
    for file, version in versions.items():
        if input_version(file) != version:  # its parts may be of different versions
            failed[file] = changed_while_read(Path(file).name)
            output.remove(block.part for block in blocks if block.file == file)
    if failed and len(failed) == len(files):
        raise InputError(_failures(failed, len(files), job.output))
    seconds = time.perf_counter() - started
    rows, scored, report = summarise(output, [block.part for block in blocks if block.file not in failed], job)
    result = JobResult(
        output=job.output,
        kind=job.kind,
        files=len(files),
        blocks=len(blocks),
        resumed=len(blocks) - len(waiting),
        rows=rows,
        computed=computed,
        seconds=round(seconds, 3),
        rows_per_second=round(computed / max(seconds, 1e-9), 1),
        scored=scored,
        report=report,
        failed=failed,
    )
    if failed:
        raise InputError(_failures(failed, len(files), job.output))
    return result


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


# ------------------------------------------------------------ statistics over all parts


def summarise(output: OutputFolder, parts: Sequence[str], job: ShardJob) -> tuple[int, int | None, Report | None]:
    """Stream through the parts -> their rows; of scoring also the rows with a score, and the report.

    Memory is bounded whatever their number.
    """
    rows = scored = 0
    gold: GoldColumn | None = None
    with tempfile.TemporaryDirectory(prefix="sbert-lab-") as folder, ReportBuilder(Path(folder)) as builder:
        for part in parts:
            with local_copy(f"{output.url}/{part}") as path:
                count = int(pq.ParquetFile(path).metadata.num_rows)
                if count and job.kind == "score":
                    added, gold = _add_scores(path, rows, job, builder, gold)
                    scored += added
                rows += count
        if job.kind != "score":
            return rows, None, None
        return rows, scored, builder.finish(gold.kind if gold else NUMBER)


def _add_scores(
    path: Path, rows_before: int, job: ShardJob, builder: ReportBuilder, gold_column: GoldColumn | None
) -> tuple[int, GoldColumn | None]:
    """Give the scores of a part to the report -> the number of rows that have one, and how the gold column is read.

    ``gold_column`` is that of the first part; None for the first.
    """
    table = open_parquet(path)
    # Scoring appends cosine, cross_encoder if there is one, and note, and ids before them.
    count = 3 if job.cross_encoder else 2
    given, (cosine_name, *cross_names) = table.columns[:-count], table.columns[-count:-1]
    columns = pick_columns(_Given(path, tuple(name for name in given if name != ID), table), job.columns or None)
    scored = 0
    for batch in table.batches():
        gold_column = gold_column or GoldColumn.of(batch, columns)
        texts = [[as_text(cell) for cell in batch.rows[name]] for name in (columns.sentence1, columns.sentence2)]
        cosine = np.array(batch.rows[cosine_name], dtype=np.float64)  # None becomes NaN
        gold = None if gold_column is None else gold_column.read(batch.rows[gold_column.name])[0]
        cross = np.array(batch.rows[cross_names[0]], dtype=np.float64) if cross_names else None
        builder.add(rows_before + batch.first_row, (texts[0], texts[1]), cosine, gold, cross)
        scored += int((~np.isnan(cosine)).sum())
    return scored, gold_column


@dataclass(frozen=True)
class _Given:
    """The columns that a part had before it was scored."""

    path: Path
    columns: tuple[str, ...]
    part: OpenedTable

    def preview(self, rows: int = 10) -> RowBatch:
        return self.part.preview(rows)
