"""Files of sentences in, files of vectors out, streamed: as many rows as the disk holds, in flat memory.

    table, column = open_sentences(Path("corpus.csv"))
    encode_file(table, column, Path("corpus.npy"), encoder) -> EncodeSummary

Row i of the output belongs to row i of the input. A row without text is kept: its vector is NaN in a .npy file and
null in a .parquet file. The .npy file is one float32 array (N, D); the .parquet file has the sentences and a column
``embedding`` of D numbers each. The output appears under its name when it is complete, never before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.files.writers import (
    PARQUET,
    Column,
    ParquetWriter,
    WriterClass,
    discarded_on_error,
    open_writers,
)
from training.atomic import AtomicFile
from training.data.tables.columns import free_name
from training.data.tables.table import RowBatch, Table, as_text, open_lines, open_table, pick_sentence

if TYPE_CHECKING:
    from training.models.encoder import Encoder


@dataclass(frozen=True)
class EncodeSummary:
    """What became of a file."""

    input: str
    output: str
    column: str
    model: str
    pooling: str
    dimension: int
    rows: int
    missing_text: int  # rows without text
    truncated: int  # sentences that were cut at the model's maximum
    seconds: float
    sentences_per_second: float

    @property
    def sentence(self) -> str:
        """What happened, in one sentence."""
        said = f"{self.rows:,} rows of {self.column} -> {self.output} ({self.rows:,} x {self.dimension}, float32)"
        counts = {"without text": self.missing_text, "cut because they are long": self.truncated}
        remarks = "".join(f"; {count:,} {what}" for what, count in counts.items() if count)
        return f"{said} in {self.seconds:,.1f} s, {self.sentences_per_second:,.0f} sentences/s{remarks}."


def encode_file(
    table: Table,
    column: str,
    output: Path,
    encoder: Encoder,
    normalize: bool | None = True,
    watch: Watch = UNWATCHED,
) -> EncodeSummary:
    """Encode one column of a table into ``output``, a .npy or .parquet file.

    Raises:
        InputError: the table breaks off, or the output cannot be written. Nothing is left behind then.
        Stopped: ``watch`` says so. Nothing is left behind.
    """
    from training.models.encoder import EncodeReport

    report, missing = EncodeReport(), 0
    waiting: deque[str | None] = deque()  # read, and not encoded yet

    def texts() -> Iterator[str]:
        for batch in table.batches():
            for cell in batch.rows[column]:
                waiting.append(as_text(cell))
                yield waiting[-1] or ""

    def on_progress(done: int, _: int | None) -> None:
        watch.report(done, None, max(done, table.row_estimate))

    name = free_name("embedding", [column])
    writers = open_writers([output], table.path, [], {column: "string", name: encoder.dimension}, FORMATS)
    with discarded_on_error(writers):
        for vectors in encoder.encode_stream(
            texts(), normalize=normalize, on_progress=on_progress, should_stop=watch.should_stop, report=report
        ):
            sentences = [waiting.popleft() for _ in range(len(vectors))]
            missing += _without_absent(vectors, sentences)
            readable = [None if text is None else text.encode("utf-8", "replace").decode() for text in sentences]
            writers[0].write(RowBatch(1, {}), {column: readable, name: vectors})
        writers[0].finish()
    return EncodeSummary(
        input=str(table.path),
        output=str(output),
        column=column,
        model=encoder.name,
        pooling=encoder.pooling,
        dimension=encoder.dimension,
        rows=report.sentences,
        missing_text=missing,
        truncated=report.truncated,
        seconds=round(report.seconds, 3),
        sentences_per_second=round(report.sentences / max(report.seconds, 1e-9), 1),
    )


def encode_columns(
    table: Table,
    column: str,
    output: Path,
    encoder: Encoder,
    normalize: bool | None = True,
    watch: Watch = UNWATCHED,
) -> int:
    """Write a Parquet file with all columns of a table and ``embedding``, D float32 a row -> the number of rows.

    The vector of a row without text is null.

    Raises:
        InputError: the table breaks off, or the output cannot be written. Nothing is left behind then.
        Stopped: ``watch`` says so. Nothing is left behind.
    """
    name = free_name("embedding", table.columns)
    writers = open_writers([output], table.path, table.fields(), {name: encoder.dimension}, PARQUET)
    rows = 0
    with discarded_on_error(writers):
        for batch in table.batches():
            texts = [as_text(cell) for cell in batch.rows[column]]
            vectors = encoder.encode([text or "" for text in texts], normalize, should_stop=watch.should_stop)
            _without_absent(vectors, texts)
            writers[0].write(batch, {name: vectors})
            rows += len(batch)
            watch.report(rows, None, max(rows, table.row_estimate))
        writers[0].finish()
    return rows


def open_sentences(source: Path, column: str | None = None, encoding: str | None = None) -> tuple[Table, str]:
    """A file of sentences, and the name of its column: as asked for, else by name. A .txt file has one a line.

    ``encoding`` is that of a text file; None to find out.

    Raises:
        InputError: the file cannot be used, or has no such column.
    """
    if source.suffix.lower() == ".txt" and column is None:
        return Table(source, open_lines(source, encoding)), "sentence"
    table = open_table(source, encoding)
    return table, pick_sentence(table, column)


def _without_absent(vectors: np.ndarray, texts: Sequence[str | None]) -> int:
    """Make the vectors of rows without text NaN -> how many there are."""
    absent = [row for row, text in enumerate(texts) if text is None]
    vectors[absent] = np.nan
    return len(absent)


class NpyWriter:
    """One float32 array (N, D), version 1.0 of the format: open it with ``np.load(path, mmap_mode="r")``.

    N is known at the end. NumPy pads the header so that the number of rows has room to grow, and so the header is
    written twice, at the same length. Of the columns the last is written, the vectors.
    """

    guarded = 0

    def __init__(self, path: Path, fields: Sequence[Any], added: dict[str, Any]) -> None:
        self.path = path
        self.rows, self._dimension = 0, list(added.values())[-1]
        self._output = AtomicFile(path)
        try:
            self._file = self._output.temporary.open("xb")
            self._header()
        except BaseException:
            self._output.discard()
            raise

    def write(self, batch: RowBatch, added: dict[str, Column]) -> None:
        """Append rows."""
        vectors = list(added.values())[-1]
        self._file.write(np.ascontiguousarray(vectors, dtype="<f4").data)
        self.rows += len(vectors)

    def finish(self) -> None:
        """Write the number of rows, and put the file in its place."""
        self._file.seek(0)
        self._header()
        self._file.close()
        self._output.commit()

    def discard(self) -> None:
        """Leave nothing behind."""
        try:
            self._file.close()
        finally:
            self._output.discard()

    def _header(self) -> None:
        shape = {"descr": "<f4", "fortran_order": False, "shape": (self.rows, self._dimension)}
        np.lib.format.write_array_header_1_0(self._file, shape)


FORMATS: dict[str, WriterClass] = {".npy": NpyWriter, ".parquet": ParquetWriter}
