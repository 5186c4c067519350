"""Files of sentences in, files of vectors out, streamed: as many rows as the disk holds, in flat memory.

    table, column = open_sentences(Path("corpus.csv"))
    encode_file(table, column, Path("corpus.npy"), encoder) -> EncodeSummary

Row i of the output belongs to row i of the input. A row without text is kept: its vector is NaN in a .npy file and
null in a .parquet file. The .npy file is one float32 array (N, D); the .parquet file has the sentences and a column
``embedding`` of D numbers each. The output appears under its name when it is complete, never before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sbert_app.services.files.writers import discarded_on_error, open_writers
from training.atomic import replace_file
from training.data.tables.columns import free_name
from training.data.tables.lines import open_lines
from training.data.tables.table import Table, as_text, open_table, pick_sentence
from training.errors import InputError, unwritable

if TYPE_CHECKING:
    from training.models.encoder import Encoder, Progress

Sentences = list[str | None]


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
    on_progress: Progress | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> EncodeSummary:
    """Encode one column of a table into ``output``, a .npy or .parquet file.

    Raises:
        InputError: the table breaks off, or the output cannot be written. Nothing is left behind then.
    """
    from training.models.encoder import EncodeReport

    report, missing = EncodeReport(), 0
    waiting: deque[str | None] = deque()  # read, and not encoded yet

    def texts() -> Iterator[str]:
        for batch in table.batches():
            for cell in batch.rows[column]:
                waiting.append(as_text(cell))
                yield waiting[-1] or ""

    def progress(done: int, _: int | None) -> None:
        if on_progress is not None:
            on_progress(done, max(done, table.row_estimate))

    with _replace_output(output) as part:
        file = FORMATS[output.suffix.lower()](part, encoder.dimension, column)
        try:
            for vectors in encoder.encode_stream(
                texts(), normalize=normalize, on_progress=progress, should_stop=should_stop, report=report
            ):
                sentences = [waiting.popleft() for _ in range(len(vectors))]
                missing += sentences.count(None)
                file.write(sentences, vectors)
        finally:
            file.close()
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
    on_rows: Callable[[int], object] = lambda rows: None,
    should_stop: Callable[[], bool] | None = None,
) -> int:
    """Write a Parquet file with all columns of a table and ``embedding``, D float32 a row -> the number of rows.

    The vector of a row without text is null.

    Raises:
        InputError: the table breaks off, or the output cannot be written. Nothing is left behind then.
        Stopped: ``should_stop`` became true. Nothing is left behind.
    """
    import pyarrow as pa

    kind = pa.list_(pa.float32(), encoder.dimension)
    name = free_name("embedding", table.columns)
    writers = open_writers([output], table.path, table.fields(), {name: kind})
    rows = 0
    with discarded_on_error(writers):
        for batch in table.batches():
            texts = [as_text(cell) for cell in batch.rows[column]]
            vectors = encoder.encode([text or "" for text in texts], normalize=normalize, should_stop=should_stop)
            missing = pa.array([text is None for text in texts])
            embeddings = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=kind, mask=missing)
            writers[0].write(batch, {name: embeddings})
            rows += len(batch)
            on_rows(rows)
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


def check_export(output: Path, source: Path) -> None:
    """InputError unless ``output`` can be a Parquet file."""
    check_output(output, source, (".parquet",))


def check_output(output: Path, source: Path, suffixes: Sequence[str] = (".npy", ".parquet")) -> None:
    """InputError unless ``output`` can be a file of vectors."""
    if output.suffix.lower() not in suffixes:
        raise InputError(f"{output} has to end with {' or '.join(suffixes)}")
    if output.is_dir():
        raise InputError(f"{output} is a folder; name a file in it")
    if not output.parent.is_dir():
        raise InputError(f"there is no folder {output.parent} to write {output.name} to")
    if output.exists() and source.exists() and output.samefile(source):
        raise InputError(f"{output} is the input itself; write the vectors to another file")


class VectorFile(Protocol):
    """A file of vectors being written."""

    def write(self, sentences: Sentences, vectors: np.ndarray) -> None: ...
    def close(self) -> None: ...


class NpyFile:
    """One float32 array (N, D), version 1.0 of the format: open it with ``np.load(path, mmap_mode="r")``.

    N is known at the end. NumPy pads the header so that the number of rows has room to grow, and so the header is
    written twice, at the same length.
    """

    def __init__(self, path: Path, dimension: int, column: str) -> None:
        self._file = path.open("xb")
        self._dimension = dimension
        self._rows = 0
        self._header()

    def write(self, sentences: Sentences, vectors: np.ndarray) -> None:
        """Append rows."""
        vectors[[i for i, sentence in enumerate(sentences) if sentence is None]] = np.nan
        self._file.write(np.ascontiguousarray(vectors, dtype="<f4").data)
        self._rows += len(vectors)

    def close(self) -> None:
        """Write the number of rows."""
        with self._file:
            self._file.seek(0)
            self._header()

    def _header(self) -> None:
        shape = {"descr": "<f4", "fortran_order": False, "shape": (self._rows, self._dimension)}
        np.lib.format.write_array_header_1_0(self._file, shape)


class ParquetFile:
    """Two columns: the sentences under their own name, and ``embedding``, a list of D float32."""

    def __init__(self, path: Path, dimension: int, column: str) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._vector = pa.list_(pa.float32(), dimension)
        name = "embedding" if column != "embedding" else "embedding_2"
        self._schema = pa.schema([(column, pa.string()), (name, self._vector)])
        self._writer = pq.ParquetWriter(path, self._schema)

    def write(self, sentences: Sentences, vectors: np.ndarray) -> None:
        """Append a row group."""
        import pyarrow as pa

        missing = pa.array([sentence is None for sentence in sentences])
        embeddings: Any = pa.FixedSizeListArray.from_arrays(
            pa.array(vectors.reshape(-1)), type=self._vector, mask=missing
        )
        texts = [None if text is None else text.encode("utf-8", "replace").decode() for text in sentences]
        self._writer.write_table(pa.table([pa.array(texts, pa.string()), embeddings], schema=self._schema))

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()


FORMATS: dict[str, Callable[[Path, int, str], VectorFile]] = {".npy": NpyFile, ".parquet": ParquetFile}


@contextmanager
def _replace_output(output: Path) -> Iterator[Path]:
    """`replace_file`, with an `InputError` for a disk that is full or not writable."""
    try:
        with replace_file(output) as temporary:
            yield temporary
    except OSError as error:
        raise unwritable(output, error) from error
