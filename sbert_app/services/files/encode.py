"""Files of sentences in, files of vectors out, as a stream in constant memory.

Row i of the output belongs to row i of the input. A row without text has the vector NaN in a .npy
file and null in a .parquet file. The .npy file is one float32 array (N, D); the .parquet file has
the sentences and a column ``embedding`` of D numbers each. The output appears under its name when
it is complete, never before.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.files.writers import NO_INPUT, PARQUET, VECTORS, open_writers
from training.data.tables.cells import as_text
from training.data.tables.columns import free_name
from training.data.tables.rows import OpenedTable, RowBatch
from training.data.tables.table import open_table
from training.models.model import VectorModel
from training.models.texts import ReadReport
from training.pooling import is_finite


@dataclass(frozen=True)
class EncodeSummary:
    """An encoded file.

    Attributes:
        missing_text: the number of rows without text.
        truncated: the number of rows whose end the model has not read.
        unknown: the number of rows without a token that the model knows.
        not_finite: the number of rows with NaN or infinite numbers in their vectors.
    """

    input: str
    output: str
    column: str
    model: str
    pooling: str
    dimension: int
    rows: int
    missing_text: int
    truncated: int
    seconds: float
    sentences_per_second: float
    unknown: int = 0
    not_finite: int = 0

    @property
    def sentence(self) -> str:
        sentence = f"{self.rows:,} rows of {self.column} -> {self.output} ({self.rows:,} x {self.dimension}, float32)"
        counts = {
            "without text": self.missing_text,
            "cut because they are long": self.truncated,
            f"of which {self.model} knows no token": self.unknown,
            "without a vector, as the model gives NaN or infinite numbers": self.not_finite,
        }
        remarks = "".join(f"; {count:,} {what}" for what, count in counts.items() if count)
        return f"{sentence} in {self.seconds:,.1f} s, {self.sentences_per_second:,.0f} sentences/s{remarks}."


def encode_file(
    table: OpenedTable,
    column: str,
    output: Path,
    encoder: VectorModel,
    normalize: bool | None = True,
    watch: Watch = UNWATCHED,
    all_columns: bool = False,
) -> EncodeSummary:
    """Encodes one column of a table into ``output``, a .npy or .parquet file.

    ``normalize`` scales the vectors to length 1; None follows the model's folder. With
    ``all_columns``, which only a .parquet file can hold, the other columns are written too.
    InputError, which leaves no output behind, if the table breaks off or the output cannot be
    written.
    """
    report = ReadReport()
    missing = 0
    unknown = 0
    # The batches whose texts the encoder has taken, and whose vectors are not computed yet.
    waiting: deque[RowBatch] = deque()

    def texts() -> Iterator[str]:
        for batch in table.batches():
            cells = batch.rows[column]
            waiting.append(batch if all_columns else RowBatch(batch.first_row, {column: cells}))
            for cell in cells:
                yield as_text(cell) or ""

    def on_progress(done: int, _: int | None) -> None:
        # The estimate may be too low. None leaves the description as it is.
        watch.report(done, None, max(done, table.row_estimate))

    vector_column = free_name("embedding", table.columns if all_columns else [column])
    # The columns that are copied from the table, and the types of the others (`Added`).
    fields: list[Any] = []
    added: dict[str, str | int] = {}
    formats = VECTORS
    if all_columns:
        fields = table.fields()
        formats = PARQUET
    else:
        added[column] = "string"
    added[vector_column] = encoder.dimension
    with open_writers([output], table.path, fields, added, formats) as [writer]:
        for vectors in encoder.encode_stream(
            texts(),
            normalize=normalize,
            on_progress=on_progress,
            should_stop=watch.should_stop,
            report=report,
        ):
            start = 0
            for batch in _take(waiting, len(vectors)):
                # The vectors of the batch, (rows, D).
                embeddings = vectors[start : start + len(batch)]
                sentences = list(map(as_text, batch.rows[column]))
                absent = [row for row, text in enumerate(sentences) if text is None]
                # An empty text is not unknown, so that a row without text counts only as missing.
                unknown += sum(encoder.is_unknown([text or "" for text in sentences]))
                # All numbers of a missing vector are NaN, also if only one of them is not finite:
                # the writers recognise it by its first number.
                embeddings[absent] = np.nan
                embeddings[~is_finite(embeddings)] = np.nan
                if all_columns:
                    writer.write(batch, {vector_column: embeddings})
                else:
                    writer.write(NO_INPUT, {column: sentences, vector_column: embeddings})
                start += len(batch)
                missing += len(absent)
    return EncodeSummary(
        input=str(table.path),
        output=str(output),
        column=column,
        model=encoder.name,
        pooling=encoder.pooling,
        dimension=encoder.dimension,
        rows=report.inputs,
        missing_text=missing,
        truncated=report.truncated,
        seconds=round(report.seconds, 3),
        sentences_per_second=round(report.inputs / max(report.seconds, 1e-9), 1),
        unknown=unknown,
        not_finite=report.not_finite,
    )


def _take(waiting: deque[RowBatch], rows: int) -> Iterator[RowBatch]:
    """Takes the first ``rows`` rows out of the queue, and yields them in batches."""
    remaining = rows
    while remaining:
        batch = waiting.popleft()
        if len(batch) > remaining:
            waiting.appendleft(batch.part(remaining, len(batch)))
            batch = batch.part(0, remaining)
        remaining -= len(batch)
        yield batch


def open_sentences(
    source: Path, column: str | None = None, encoding: str | None = None, sheet: str | None = None
) -> tuple[OpenedTable, str]:
    """Opens a file of sentences. Returns its table and its column of sentences, which by default is inferred.

    InputError if the file cannot be used, or has no such column.
    """
    # A .txt file has a sentence on each line, unless a column is named.
    table = open_table(source, encoding, sheet, lines=column is None)
    reading = table.reading.with_columns([column] if column else [])
    return table, reading.sentence()
