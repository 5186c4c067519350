"""Where scored rows go: CSV, TSV and Parquet files that appear whole or not at all.

Each sink writes beside its destination and is moved there when it is finished. The input's columns go through
untouched, with one exception, in CSV and TSV alone: a cell that a spreadsheet would run as a formula gets an
apostrophe in front (plain numbers such as -1.5 do not), and the sink counts them. Parquet keeps the types that
the input had.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from training.atomic import AtomicFile
from training.data.tables.columns import NUMBER
from training.data.tables.table import RowBatch
from training.errors import InputError, unwritable

# Spreadsheets take the full-width forms for the same signs, and skip the white space before them.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
ADVICE = "free some space or write to another folder"
GROUP_ROWS = 65_536  # rows in a row group of a Parquet file
GROUP_BYTES = 64 << 20  # … or so many bytes, if they are vectors

Column = list[Any] | np.ndarray


def without_formula(text: str) -> str:
    """``text`` with an apostrophe in front if a spreadsheet would run it as a formula. Plain numbers stay."""
    return f"'{text}" if text.startswith(FORMULA_STARTS) and not NUMBER.fullmatch(text) else text


class Writer(Protocol):
    """A file being written."""

    path: Path
    guarded: int  # cells that got an apostrophe

    def write(self, batch: RowBatch, added: dict[str, Column]) -> None: ...
    def finish(self) -> None: ...
    def discard(self) -> None: ...


class DelimitedWriter:
    """CSV or TSV in UTF-8, quoted where it must be, lines ending with a line feed.

    (csv.writer would leave a carriage return unquoted, and a reader would take it for the end of the row.)
    """

    def __init__(self, path: Path, fields: Sequence[Any], added: dict[str, str], delimiter: str) -> None:
        self.path = path
        self.guarded = 0
        self._delimiter = delimiter
        self._special = re.compile(f'["\r\n{delimiter}]')
        self._output = AtomicFile(path)
        self._file: IO[str] = self._output.temporary.open("x", encoding="utf-8", newline="")
        header = self._texts([*(field.name for field in fields), *added])
        try:
            self._file.write(delimiter.join(header) + "\n")
        except BaseException:
            self.discard()
            raise

    def write(self, batch: RowBatch, added: dict[str, Column]) -> None:
        """Append the rows of ``batch`` with the added columns beside them."""
        columns = [self._texts(values) for values in batch.rows.values()]
        columns += [
            numbers(values) if isinstance(values, np.ndarray) else self._texts(values) for values in added.values()
        ]
        lines = map(self._delimiter.join, zip(*columns, strict=True))
        self._file.write("\n".join(lines) + "\n")

    def finish(self) -> None:
        """Close the file and put it in its place."""
        self._file.close()
        self._output.commit()

    def discard(self) -> None:
        """Leave nothing behind."""
        try:
            self._file.close()
        finally:
            self._output.discard()

    def _texts(self, values: Sequence[Any]) -> list[str]:
        """Cells: as text, formulas disarmed, quoted where delimiters, quotes or line ends ask for it."""
        texts = [value if type(value) is str else cell_text(value) for value in values]
        for at, text in enumerate(texts):
            if (safe := without_formula(text)) is not text:
                texts[at] = text = safe
                self.guarded += 1
            if self._special.search(text):
                texts[at] = '"' + text.replace('"', '""') + '"'
        return texts


class ParquetWriter:
    """Parquet with the input's types, the added columns as float32 and text."""

    guarded = 0

    def __init__(self, path: Path, fields: Sequence[Any], added: dict[str, Any]) -> None:
        """``added`` maps the names of new columns to Arrow types, their aliases, or the dimension of vectors."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.path = path
        self._schema = pa.schema([*fields, *(pa.field(name, _arrow_type(kind)) for name, kind in added.items())])
        self._output = AtomicFile(path)
        try:
            self._writer = pq.ParquetWriter(self._output.temporary, self._schema)
        except BaseException:  # the file has been created, and the disk is full
            self._output.discard()
            raise
        self._waiting: list[Any] = []

    def write(self, batch: RowBatch, added: dict[str, Column]) -> None:
        """Append the rows of ``batch`` with the added columns beside them."""
        import pyarrow as pa

        at_hand = batch.arrow.columns if batch.arrow is not None else list(batch.rows.values())
        arrays = [
            values if isinstance(values, pa.Array) else _array(values, field.type)
            for values, field in zip([*at_hand, *added.values()], self._schema, strict=True)
        ]
        self._waiting.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        is_long = sum(map(len, self._waiting)) >= GROUP_ROWS
        if is_long or sum(waiting.nbytes for waiting in self._waiting) >= GROUP_BYTES:
            self._flush()

    def finish(self) -> None:
        """Write the footer and put the file in its place."""
        self._flush()
        self._writer.close()
        self._output.commit()

    def discard(self) -> None:
        """Leave nothing behind."""
        try:
            self._writer.close()
        finally:
            self._output.discard()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, schema=self._schema), GROUP_ROWS)
            self._waiting = []


WriterClass = Callable[[Path, Sequence[Any], dict[str, Any]], Writer]
PARQUET: dict[str, WriterClass] = {".parquet": ParquetWriter}
WRITERS: dict[str, WriterClass] = {
    ".csv": lambda path, fields, added: DelimitedWriter(path, fields, added, ","),
    ".tsv": lambda path, fields, added: DelimitedWriter(path, fields, added, "\t"),
    **PARQUET,
}


def check_output(path: Path, suffixes: Collection[str], source: Path | None = None) -> None:
    """InputError unless a file of one of these formats, which is not the input, can be written to ``path``."""
    if path.suffix.lower() not in suffixes:
        some = " or ".join(suffixes) if len(suffixes) < 3 else f"one of {', '.join(suffixes)}"
        raise InputError(f"{path.name} has to end with {some}")
    if path.is_dir():
        raise InputError(f"{path} is a folder: name a file in it.")
    if not path.parent.is_dir():
        raise InputError(f"There is no folder {path.parent} to write {path.name} to.")
    if source is not None and path.exists() and source.exists() and path.samefile(source):
        raise InputError(f"{path} is the input itself: write to another file.")


def open_writers(
    paths: Sequence[Path],
    source: Path,
    fields: Sequence[Any],
    added: dict[str, Any],
    formats: Mapping[str, WriterClass] = WRITERS,
) -> list[Writer]:
    """A sink for each path, by its ending. ``added``: new columns, and the Arrow type or dimension of each.

    Raises:
        InputError: as `check_output`, or two paths are the same.
    """
    for path in paths:
        check_output(path, formats, source)
    if len({path.resolve() for path in paths}) < len(paths):
        raise InputError("Two outputs have the same name.")
    sinks: list[Writer] = []
    try:
        for path in paths:
            sinks.append(formats[path.suffix.lower()](path, fields, added))
    except OSError as error:
        for sink in sinks:
            sink.discard()
        raise unwritable(path, error, ADVICE) from error
    return sinks


@contextmanager
def discarded_on_error(sinks: Sequence[Writer]) -> Iterator[None]:
    """Whatever goes wrong inside, no half-written file stays; a failing disk becomes an ``InputError``.

    A sink that is already finished has moved its file into place, and discarding it does nothing.
    """
    try:
        yield
    except BaseException as error:
        for sink in sinks:
            with suppress(OSError):  # closing writes what is buffered, and a full disk fails again
                sink.discard()
        if isinstance(error, OSError):
            raise unwritable(sinks[0].path, error, ADVICE) from error
        raise


def save_csv(folder: Path, name: str, columns: Mapping[str, Column]) -> Path:
    """Write columns of equal length to a CSV file of this name; floating-point arrays with six digits.

    Raises:
        InputError: the disk is full or not writable.
    """
    writer = DelimitedWriter(folder / name, [], dict.fromkeys(columns, "string"), ",")
    with discarded_on_error([writer]):
        if any(map(len, columns.values())):
            writer.write(RowBatch(1, {}), dict(columns))
        writer.finish()
    return writer.path


def with_file_columns(columns: Mapping[str, Column], from_file: Mapping[str, Column]) -> dict[str, Column]:
    """Add the columns of the user's file; one whose name is taken is renamed to "NAME (file)"."""
    renamed = {f"{name} (file)" if name in columns else name: values for name, values in from_file.items()}
    return {**columns, **renamed}


def numbers(values: np.ndarray) -> list[str]:
    """Scores as text with six digits, empty where there is none."""
    return [f"{value:.6f}" if value == value else "" for value in values.tolist()]


def cell_text(value: Any) -> str:
    """A value of any type as a CSV cell: empty for None, true and false, JSON for what is nested."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _arrow_type(kind: Any) -> Any:
    """An Arrow type as it is, by its alias, or as the dimension of float32 vectors."""
    import pyarrow as pa

    if isinstance(kind, int):
        return pa.list_(pa.float32(), kind)
    return pa.type_for_alias(kind) if isinstance(kind, str) else kind


def _array(values: Column, kind: Any) -> Any:
    """An Arrow array of this type; NaN scores and vectors become null, and what is no text becomes text where asked."""
    import pyarrow as pa

    if isinstance(values, np.ndarray) and values.ndim == 2:
        flat = np.ascontiguousarray(values, dtype=np.float32).reshape(-1)
        return pa.FixedSizeListArray.from_arrays(pa.array(flat), type=kind, mask=pa.array(np.isnan(values[:, 0])))
    if isinstance(values, np.ndarray):
        return pa.array(values, type=kind, from_pandas=True)
    if pa.types.is_string(kind):
        values = [value if value is None or type(value) is str else cell_text(value) for value in values]
    return pa.array(values, type=kind)
