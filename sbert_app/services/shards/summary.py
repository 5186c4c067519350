"""Statistics over all parts of a job, read back from the parts themselves, so that resumed jobs have them too."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from sbert_app.services.files.gold import NUMBER, GoldColumn
from sbert_app.services.files.report import Report, ReportBuilder
from sbert_app.services.shards.blocks import ID
from sbert_app.services.shards.job import ShardJob
from sbert_app.services.shards.output import OutputFolder
from training.data.tables.columns import as_text, pick_columns
from training.data.tables.parquet import ParquetReader, open_parquet
from training.data.tables.rows import BATCH_ROWS, RowBatch
from training.data.tables.table import Table


@dataclass(frozen=True)
class Total:
    """Counts over all parts; ``scored`` and ``report`` of scoring alone."""

    rows: int
    scored: int | None = None
    report: Report | None = None


def summarise(output: OutputFolder, parts: Sequence[str], job: ShardJob) -> Total:
    """Stream through the parts. Memory is bounded whatever their number."""
    rows = scored = 0
    gold: GoldColumn | None = None
    with tempfile.TemporaryDirectory(prefix="sbert-lab-") as folder, ReportBuilder(Path(folder)) as builder:
        for part in parts:
            with output.read(part) as path:
                count = int(pq.ParquetFile(path).metadata.num_rows)
                if count and job.kind == "score":
                    added, gold = _add_scores(path, rows, job, builder, gold)
                    scored += added
                rows += count
        kind = gold.kind if gold else NUMBER
        return Total(rows, scored, builder.finish(kind)) if job.kind == "score" else Total(rows)


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
    names = tuple(name for name in given if name != ID)
    selection = Table(path, _Selection(table, names))
    columns = pick_columns(selection, job.columns or None)
    scored = 0
    for batch in table.batches():
        gold_column = gold_column or GoldColumn.of(batch, columns)
        texts = [[as_text(cell) for cell in batch.rows[name]] for name in (columns.sentence1, columns.sentence2)]
        cosine = _numbers(batch.rows[cosine_name])
        gold = None if gold_column is None else gold_column.read(batch.rows[gold_column.name])[0]
        cross = _numbers(batch.rows[cross_names[0]]) if cross_names else None
        builder.add(rows_before + batch.first_row, (texts[0], texts[1]), cosine, gold, cross)
        scored += int((~np.isnan(cosine)).sum())
    return scored, gold_column


def _numbers(cells: Sequence[float | None]) -> np.ndarray:
    return np.array([np.nan if cell is None else cell for cell in cells], dtype=np.float64)


@dataclass(frozen=True)
class _Selection:
    """Some columns of a Parquet file."""

    file: ParquetReader
    columns: tuple[str, ...]
    description = "Parquet"
    remarks = ()

    @property
    def row_estimate(self) -> int:
        """Exact."""
        return self.file.row_estimate

    def fields(self) -> list[Any]:
        """The Arrow fields of the columns."""
        return [field for field in self.file.fields() if field.name in self.columns]

    def batches(self, size: int = BATCH_ROWS) -> Iterator[RowBatch]:
        """All rows."""
        for batch in self.file.batches(size):
            rows = {name: batch.rows[name] for name in self.columns}
            yield RowBatch(batch.first_row, rows, batch.notes)
