"""Writers of scored rows and vectors: CSV, TSV, JSON Lines, Parquet, XLSX and NumPy files, whole or not at all.

A writer copies the columns of the input, and moves its file to the destination when it is finished.
In CSV and TSV an apostrophe is put before a cell that a spreadsheet would run as a formula (not
before a number such as -1.5), and the writer counts these cells. Parquet preserves the types of the
input.
"""

import json
import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sbert_app.formats import json_values
from sbert_app.services.files.layout import USUAL, Layout
from training.atomic import AtomicFile
from training.data.tables.cells import NUMBER, UNSEEN
from training.data.tables.rows import RowBatch
from training.errors import InputError, unwritable

# Spreadsheets treat small and full-width forms as the same signs, and ignore invisible characters
# before them.
_FORMULA = re.compile(rf"[\t\r\n]|[{UNSEEN}]*[=+\-@＝＋－＠﹦﹢﹣﹫]")
ADVICE = "write to another folder"
# A row group of a Parquet file is complete with this many rows or bytes.
GROUP_ROWS = 65_536
GROUP_BYTES = 64 << 20
# The most rows of a sheet of Excel, with its header, and the most characters of a cell.
MOST_EXCEL_ROWS = 1_048_576
LONGEST_EXCEL_CELL = 32_767
# The metadata of a Parquet column of scores, which a CSV file states with six digits.
DIGITS = {b"digits": b"6"}

Column = list[Any] | np.ndarray
# Columns of equal length by their names.
Columns = Mapping[str, Column]
# For rows that have only new columns and copy none of an input.
NO_INPUT = RowBatch(1, {})
# The alias of the Arrow type of each new column, or the dimension of its vectors.
Added = Mapping[str, str | int]


def without_formula(text: str) -> str:
    """Returns ``text`` with an apostrophe in front if a spreadsheet would run it as a formula."""
    if _FORMULA.match(text) and not NUMBER.fullmatch(text.strip(" ")):
        return f"'{text}"
    return text


class Writer(ABC):
    """A file that appears under its name when it is finished.

    ``fields`` are the Arrow fields of the input's columns. ``guarded`` is the number of cells that
    got an apostrophe.
    """

    guarded = 0
    _file: Any = None
    _rows = 0

    def __init__(
        self, path: Path, fields: Sequence[Any], added: Added, layout: Layout = USUAL
    ) -> None:
        self.path = path
        self._fields = fields
        self._added = added
        self._layout = layout
        self._names = [*(field.name for field in fields), *added]
        self._output = AtomicFile(path)
        try:
            self._open(self._output.temporary)
        except BaseException:
            # The disk may be full after the file has been created.
            self.discard()
            raise

    @abstractmethod
    def _open(self, temporary: Path) -> None:
        """Sets ``_file``, and writes what comes before the rows."""

    @abstractmethod
    def write(self, batch: RowBatch, added: Columns) -> None:
        """Appends the rows of ``batch`` with the added columns."""

    def _complete(self) -> None:  # noqa: B027 - most formats need nothing here
        """Writes what comes after the rows."""

    def finish(self) -> None:
        """Completes the file and moves it to its place."""
        self._complete()
        self._file.close()
        self._output.commit()

    def discard(self) -> None:
        """Removes the incomplete file. It has no effect after `finish`."""
        try:
            if self._file is not None:
                self._file.close()
        finally:
            self._output.discard()


class DelimitedWriter(Writer):
    """CSV or TSV in UTF-8, in the layout of the input, with quotes where necessary, and line feeds as line ends."""

    def _open(self, temporary: Path) -> None:
        layout = self._layout
        if self.path.suffix.lower() == ".tsv":
            layout = replace(layout, delimiter="\t")
        elif layout.delimiter == "\t":
            # A TSV becomes a CSV. Its decimal sign may be a comma, which is the delimiter now.
            layout = replace(layout, delimiter=",", decimal=".")
        self._delimiter = layout.delimiter
        self._decimal = layout.decimal
        self._special = re.compile(f'["\r\n{re.escape(layout.delimiter)}]')
        # The columns that `ParquetWriter` has marked as scores, if it has written the input.
        self._rounded: set[str] = set()
        for field in self._fields:
            if DIGITS.items() <= (field.metadata or {}).items():
                self._rounded.add(field.name)
        self._file = temporary.open("x", encoding=layout.encoding, newline="")
        self._file.write(self._delimiter.join(self._texts(self._names)) + "\n")

    def write(self, batch: RowBatch, added: Columns) -> None:
        cells: dict[str, Column] = {**batch.rows, **added}
        columns = []
        for name, values in cells.items():
            # `numbers` writes the scores of an array with six digits.
            if name in self._rounded:
                values = np.array(values, dtype=np.float32)
            if isinstance(values, np.ndarray):
                columns.append([text.replace(".", self._decimal) for text in numbers(values)])
            else:
                columns.append(self._texts(values))
        lines = map(self._delimiter.join, zip(*columns, strict=True))
        self._file.write("\n".join(lines) + "\n")

    def _texts(self, values: Sequence[Any]) -> list[str]:
        """The cells as text, without formulas, and in quotes if they have a delimiter, a quote or a line end."""
        texts = []
        for value in values:
            text = value if type(value) is str else cell_text(value)
            safe = without_formula(text)
            if safe is not text:
                self.guarded += 1
            # csv.writer would not quote a carriage return, which a reader takes for the end of the
            # row.
            if self._special.search(safe):
                safe = '"' + safe.replace('"', '""') + '"'
            texts.append(safe)
        return texts


class JsonLinesWriter(Writer):
    """JSON Lines in UTF-8 with the types of the input. Scores have six digits, vectors seven."""

    def _open(self, temporary: Path) -> None:
        self._file = temporary.open("x", encoding="utf-8", newline="\n")

    def write(self, batch: RowBatch, added: Columns) -> None:
        for row in _plain_rows(batch, added):
            values = json_values(dict(zip(self._names, row, strict=True)))
            self._file.write(json.dumps(values, ensure_ascii=False, default=cell_text) + "\n")


class ParquetWriter(Writer):
    """Parquet with the types of the input; a new column with a dimension holds float32 vectors."""

    def _open(self, temporary: Path) -> None:
        # pyarrow and openpyxl take time to import, and only some formats need them.
        import pyarrow as pa
        import pyarrow.parquet as pq

        new = []
        for name, kind in self._added.items():
            # An integer is the number of dimensions of vectors.
            if isinstance(kind, int):
                arrow_type = pa.list_(pa.float32(), kind)
            else:
                arrow_type = pa.type_for_alias(kind)
            new.append(pa.field(name, arrow_type, metadata=DIGITS if kind == "float" else None))
        self._schema = pa.schema([*self._fields, *new])
        self._waiting: list[Any] = []
        self._file = pq.ParquetWriter(temporary, self._schema)

    def write(self, batch: RowBatch, added: Columns) -> None:
        import pyarrow as pa

        columns = batch.rows.values() if batch.arrow is None else batch.arrow.columns
        arrays = []
        for values, field in zip([*columns, *added.values()], self._schema, strict=True):
            is_arrow = isinstance(values, pa.Array)
            arrays.append(values if is_arrow else _array(values, field.type))
        self._waiting.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        is_long = sum(map(len, self._waiting)) >= GROUP_ROWS
        if is_long or sum(waiting.nbytes for waiting in self._waiting) >= GROUP_BYTES:
            # Writes a row group.
            self._complete()

    def _complete(self) -> None:
        import pyarrow as pa

        if self._waiting:
            table = pa.Table.from_batches(self._waiting, schema=self._schema)
            self._file.write_table(table, GROUP_ROWS)
            self._waiting = []


class XlsxWriter(Writer):
    """A workbook of one sheet. Cells are text or numbers, and never formulas."""

    def _open(self, temporary: Path) -> None:
        from openpyxl import Workbook

        self._file = Workbook(write_only=True)
        self._temporary = temporary
        self._sheet = self._file.create_sheet("scored")
        self._sheet.append(list(map(self._cell, self._names)))

    def write(self, batch: RowBatch, added: Columns) -> None:
        for row in _plain_rows(batch, added):
            self._rows += 1
            # The header is a row of the sheet, too.
            if self._rows >= MOST_EXCEL_ROWS:
                raise InputError(
                    f"{self.path.name}: a sheet of Excel holds {MOST_EXCEL_ROWS:,} rows; write CSV"
                )
            self._sheet.append(list(map(self._cell, row)))

    def _cell(self, value: Any) -> Any:
        """A value as openpyxl writes it: a number, None for NaN, or a cell of text."""
        import openpyxl.cell.cell

        if isinstance(value, float) and math.isnan(value):
            return None
        if value is None or isinstance(value, int | float):
            return value
        text = openpyxl.cell.cell.ILLEGAL_CHARACTERS_RE.sub("", cell_text(value))
        if len(text) > LONGEST_EXCEL_CELL:
            raise InputError(
                f"{self.path.name}: a cell of Excel holds {LONGEST_EXCEL_CELL:,} characters; write CSV"
            )
        cell = openpyxl.cell.cell.WriteOnlyCell(self._sheet, text)
        # A string, as openpyxl takes text that begins with = for a formula.
        cell.data_type = "s"
        return cell

    def _complete(self) -> None:
        self._file.save(self._temporary)


class NpyWriter(Writer):
    """One float32 array (N, D), version 1.0 of the format: open it with ``np.load(path, mmap_mode="r")``.

    Only the last column, the vectors, is written. The header is written again at the end, when N is
    known; NumPy pads it to the same length.
    """

    def _open(self, temporary: Path) -> None:
        self._file = temporary.open("xb")
        # Writes a header of no rows, which takes as many bytes as the header at the end.
        self._complete()

    def write(self, batch: RowBatch, added: Columns) -> None:
        vectors = list(added.values())[-1]
        self._file.write(np.ascontiguousarray(vectors, dtype="<f4").data)
        self._rows += len(vectors)

    def _complete(self) -> None:
        self._file.seek(0)
        dimension = list(self._added.values())[-1]
        header = {"descr": "<f4", "fortran_order": False, "shape": (self._rows, dimension)}
        np.lib.format.write_array_header_1_0(self._file, header)


Formats = Mapping[str, type[Writer]]
PARQUET: Formats = {".parquet": ParquetWriter}
TEXTS: Formats = {".csv": DelimitedWriter, ".tsv": DelimitedWriter, ".jsonl": JsonLinesWriter}
WRITERS: Formats = {**TEXTS, **PARQUET, ".xlsx": XlsxWriter}
VECTORS: Formats = {".npy": NpyWriter, ".jsonl": JsonLinesWriter, **PARQUET}


def check_output(path: Path, suffixes: Collection[str], source: Path | None = None) -> None:
    """Raises InputError unless ``path`` has one of these endings, can be written, and is not the input."""
    if path.suffix.lower() not in suffixes:
        some = " or ".join(suffixes)
        if len(suffixes) > 2:
            some = f"one of {', '.join(suffixes)}"
        raise InputError(f"{path.name} has to end with {some}")
    try:
        is_folder = path.is_dir()
    except OSError as error:
        # Its name is too long.
        raise unwritable(path, error) from error
    if is_folder:
        raise InputError(f"{path} is a folder: name a file in it.")
    if not path.parent.is_dir():
        raise InputError(f"There is no folder {path.parent} to write {path.name} to.")
    if source is not None and path.exists() and source.exists() and path.samefile(source):
        raise InputError(f"{path} is the input itself: write to another file.")


@contextmanager
def open_writers(
    paths: Sequence[Path],
    source: Path | None,
    fields: Sequence[Any],
    added: Added,
    formats: Formats = WRITERS,
    layout: Layout = USUAL,
) -> Iterator[list[Writer]]:
    """A writer for each path, by its ending. The files are complete after the block, or discarded after an error.

    ``source`` is the file of the input, which must not be overwritten; None if there is none.
    InputError if a path has another ending, is in a missing folder, or is the input itself; if two
    paths are the same; or if the disk is full or not writable.
    """
    for path in paths:
        check_output(path, formats, source)
    if len(set(map(os.path.realpath, paths))) < len(paths):
        raise InputError("Two outputs have the same name.")
    writers = []
    try:
        for path in paths:
            writers.append(formats[path.suffix.lower()](path, fields, added, layout))
        yield writers
        for writer in writers:
            writer.finish()
    except BaseException as error:
        for writer in writers:
            # Closing flushes the buffer, which fails again if the disk is full.
            with suppress(OSError):
                writer.discard()
        if isinstance(error, OSError) and paths:
            # If all files could be opened, it is not known which of them the error is about.
            are_open = len(writers) == len(paths)
            path = paths[0] if are_open else paths[len(writers)]
            raise unwritable(path, error, ADVICE) from error
        raise


def save_table(path: Path, columns: Columns) -> Path:
    """Writes columns of equal length to a file, by its ending; floating-point numbers have six digits as text.

    InputError if the disk is full or not writable.
    """
    types = dict.fromkeys(columns, "string")
    for name, values in columns.items():
        if isinstance(values, np.ndarray):
            types[name] = "float"
        elif values and all(type(value) is int for value in values):
            types[name] = "int64"
    # Without an input there is neither a file nor a column to copy.
    with open_writers([path], None, [], types) as [writer]:
        # CSV would have a blank line for no rows.
        if any(map(len, columns.values())):
            writer.write(NO_INPUT, columns)
    return path


def with_file_columns(columns: Columns, from_file: Columns) -> dict[str, Column]:
    """Adds the columns of the user's file to ours. A column whose name we have becomes "NAME (file)"."""
    together = dict(columns)
    for name, values in from_file.items():
        together[f"{name} (file)" if name in columns else name] = values
    return together


def numbers(values: np.ndarray) -> list[str]:
    """Scores as text with six digits, "" for NaN."""
    # Only NaN does not equal itself.
    return [f"{value:.6f}" if value == value else "" for value in values.tolist()]


def _plain_rows(batch: RowBatch, added: Columns) -> Iterator[tuple[Any, ...]]:
    """The rows, with scores and vectors as Python numbers. A vector whose numbers are NaN becomes None."""
    columns: list[Any] = []
    for values in (*batch.rows.values(), *added.values()):
        if isinstance(values, np.ndarray) and values.ndim == 1:
            # In float64, as a rounded float32 would have all its digits again as a Python number.
            values = values.astype(float).round(6).tolist()
        elif isinstance(values, np.ndarray):
            vectors = values.astype(float).round(7).tolist()
            values = [None if math.isnan(vector[0]) else vector for vector in vectors]
        columns.append(values)
    return zip(*columns, strict=True)


def cell_text(value: Any) -> str:
    """A value of any type as a CSV cell: "" for None, true or false for bool, JSON for nested values."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _array(values: Column, kind: Any) -> Any:
    """An Arrow array of the type ``kind``, with null for NaN. In a column of text all values become text."""
    import pyarrow as pa

    if isinstance(values, np.ndarray) and values.ndim == 2:
        flat = pa.array(np.ascontiguousarray(values, dtype=np.float32).reshape(-1))
        # All numbers of a missing vector are NaN.
        mask = pa.array(np.isnan(values[:, 0]))
        return pa.FixedSizeListArray.from_arrays(flat, type=kind, mask=mask)
    if isinstance(values, np.ndarray):
        return pa.array(values, type=kind, from_pandas=True)
    if not pa.types.is_string(kind):
        return pa.array(values, type=kind)
    texts = []
    for value in values:
        is_text = value is None or type(value) is str
        texts.append(value if is_text else cell_text(value))
    return pa.array(texts, type=kind)
