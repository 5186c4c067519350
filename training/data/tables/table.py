"""Users' files, read in batches of rows: CSV, TSV, JSON Lines, Parquet and XLSX in any encoding.

>>> table = open_table(Path("pairs.csv"))
>>> table.description, table.columns, table.row_estimate
>>> for batch in table.batches(): batch.first_row, batch.rows["sentence1"], batch.notes

``open_table`` determines format, encoding, delimiter and columns before the first row is used, and raises one clear
sentence if a file cannot be used. After that nothing is guessed and nothing is dropped: malformed rows come with a
note. The first bytes decide the format, and the file name only where they do not: a workbook named .csv is still a
workbook. Each format has a module of its own beside this one; names of columns and numbers are in `columns`.
"""

from __future__ import annotations

import gzip
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from training.data.tables.columns import (
    SENTENCES,
    canonical_names,
    listed,
    normalize_name,
    requested_names,
    split_names,
)
from training.data.tables.columns import pick_columns as pick_columns  # what scripts need beside `open_table`
from training.data.tables.csv import open_delimited
from training.data.tables.guess import SAMPLE
from training.data.tables.json import open_json
from training.data.tables.parquet import open_parquet
from training.data.tables.rows import BATCH_ROWS, Reader, Record, RowBatch, gather
from training.data.tables.text import OTHER, WANTED, TextFile, scan
from training.data.tables.xlsx import open_xlsx
from training.errors import InputError

MOST_UNPACKED = 1 << 30  # bytes of a .gz file
FOREIGN = {
    b"\x1f\x8b": "a gzip archive: unpack it first",
    b"BZh": "a bzip2 archive: unpack it first",
    b"\xfd7zXZ": "an xz archive: unpack it first",
    b"7z\xbc\xaf": "a 7z archive: unpack it first",
    b"\x28\xb5\x2f\xfd": "a zstd archive: unpack it first",
    b"Rar!": "a RAR archive: unpack it first",
    b"\xd0\xcf\x11\xe0": "an old or password-protected Excel file: save it as .xlsx or CSV",
    b"%PDF": "a PDF",
    b"\x89PNG": "an image",
    b"\xff\xd8\xff": "an image",
    b"GIF8": "an image",
    b"SQLite format 3": "an SQLite database: export the table as CSV",
    b"ARROW1": "an Arrow file: save it as Parquet",
    b"\x93NUMPY": "a NumPy array",
    b"\x7fELF": "a program",
    b"ID3": "an MP3 file",
    **{bytes([0x80, protocol]): "a pickle" for protocol in range(2, 6)},
}


@dataclass(frozen=True)
class Table:
    """A user's file that can be read. ``version``: its `file_version` from before it was opened; None to trust it."""

    path: Path
    reader: Reader
    version: tuple[int, int] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns: different, and never empty."""
        return self.reader.columns

    @property
    def description(self) -> str:
        """Format and encoding in words: "UTF-8 text separated by commas"."""
        return self.reader.description

    @property
    def row_estimate(self) -> int:
        """The number of rows: exact for JSON and Parquet, counted by lines for text, as stated in the file for XLSX."""
        return self.reader.row_estimate

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the user should know about how the file was understood, a sentence each."""
        return self.reader.remarks

    @property
    def is_plain(self) -> bool:
        """Whether there is no doubt about the characters: not a text file, or UTF-8 or marked UTF-16 throughout."""
        text = getattr(self.reader, "text", None)
        return text is None or not (text.guess or text.other or text.damaged)

    def fields(self) -> list[Any]:
        """The columns as ``pyarrow.Field``: text for CSV and XLSX, typed for JSON and Parquet."""
        return self.reader.fields()

    def batches(self, size: int = BATCH_ROWS) -> Iterator[RowBatch]:
        """All rows in order, at most ``size`` at a time (fewer where the cells are very long).

        InputError if the file is damaged further down, or the disk fails; the message names the row. Also, at the end,
        if the file was changed meanwhile.
        """
        try:
            yield from self.reader.batches(size)
        except Exception as error:
            self._check_version(error)  # any reader may stumble over a file that is changed under its hands
            if isinstance(error, OSError):
                raise InputError(f"{self.path.name} cannot be read on: {error.strerror or error}.") from error
            raise
        self._check_version()

    def _check_version(self, cause: Exception | None = None) -> None:
        if self.version is not None and file_version(self.path) != self.version:
            raise InputError(changed_while_read(self.path.name)) from cause

    def preview(self, rows: int = 10) -> RowBatch:
        return self._head.part(0, rows)

    @cached_property
    def _head(self) -> RowBatch:
        return next(self.batches(SAMPLE))


def open_table(path: Path | str, encoding: str | None = None, sheet: str | None = None) -> Table:
    """Open a user's file.

    Args:
        encoding: of a text file, such as windows-1251; None to find out.
        sheet: of a workbook; None for the first that holds pairs of sentences.

    Raises:
        InputError: there is no such file or sheet, the format is not one of ours, it is damaged, or it has no rows.
    """
    path = Path(path)
    version = file_version(path)
    try:
        table = Table(path, _open_reader(path, encoding, sheet), version)
        first = next(table.batches(1), None)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    if first is None:
        raise InputError(f"{path.name} has a header with {listed(table.columns)}, but no rows.")
    return table


def file_version(path: Path) -> tuple[int, int] | None:
    """Size and time of the last change, which differ after a file was changed; None if there is no such file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def changed_while_read(name: str) -> str:
    """The error for a file of which some rows may be of an older version than others, or missing."""
    return f"{name} changed while it was read: wait until it is complete, and start again."


def read_columns(path: Path | str, encoding: str | None = None) -> dict[str, list[Any]]:
    """A whole file in memory, for training: canonical column name -> values.

    text1 and text2 become sentence1 and sentence2, similarity becomes score, … See ``canonical_names``.
    ``encoding`` is that of a text file; None to find out.

    InputError as ``open_table`` and ``Table.batches``.
    """
    table = open_table(path, encoding)
    return columns_of(table, usual_names(table))


def usual_names(table: Table, columns: str | None = None) -> dict[str, str]:
    """The canonical names of the columns; with ``columns`` ("left,right,gold") of these alone, in that order."""
    requested = split_names(columns, table.columns)
    return requested_names(table, requested) if requested else canonical_names(table.columns)


@contextmanager
def opened_file(path: Path, encoding: str | None = None) -> Iterator[Table]:
    """As `open_table`, also of a .gz file. InputError also if it unpacks to too much."""
    with tempfile.TemporaryDirectory() if path.suffix == ".gz" else nullcontext() as folder:
        yield open_table(_unpacked(path, Path(folder)) if folder else path, encoding)


def _unpacked(path: Path, folder: Path) -> Path:
    """Unpack a gzip file into a folder, piece by piece. InputError if it is damaged or larger than `MOST_UNPACKED`."""
    size, unpacked = 0, folder / path.stem
    try:
        with gzip.open(path) as packed, unpacked.open("wb") as file:
            while piece := packed.read(1 << 20):
                size += len(piece)
                if size > MOST_UNPACKED:
                    raise InputError(f"{path.name} unpacks to more than {MOST_UNPACKED >> 30} GB: give a part of it")
                file.write(piece)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path.name} is no complete gzip file: fetch or pack it again") from error
    except OSError as error:
        raise InputError(f"{path.name} cannot be unpacked: {error.strerror or error}") from error
    return unpacked


def columns_of(table: Table, names: Mapping[str, str]) -> dict[str, list[Any]]:
    """All rows of the columns that have ``names``, in memory: name -> values. Raises as `Table.batches`."""
    columns: dict[str, list[Any]] = {name: [] for name in names.values()}
    known: dict[Any, Any] = {}  # cells that repeat, as premises do, are kept once
    for batch in table.batches():
        for column, name in names.items():
            cells = batch.rows[column]
            columns[name].extend(known.setdefault(cell, cell) if type(cell) is str else cell for cell in cells)
    return columns


def _open_reader(path: Path, encoding: str | None, sheet: str | None) -> Reader:
    """The reader of a file's format, which its first bytes decide, then its name."""
    if not path.exists():
        raise InputError(f"There is no file {path}.")
    if not path.is_file():
        raise InputError(f"{path} is not a file.")
    with path.open("rb") as file:
        head = file.read(4096)
    suffix = path.suffix.lower()
    foreign = next((what for signature, what in FOREIGN.items() if head.startswith(signature)), None)
    if foreign:
        raise InputError(f"{path.name} is {foreign}. {WANTED}")
    if head.startswith(b"PAR1"):
        return open_parquet(path)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return open_xlsx(path, sheet)
    if suffix in (".parquet", ".xlsx", ".xlsm") and head:
        raise InputError(f"{path.name} is named {suffix}, but it is not one. {WANTED}")
    start = head.lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n\0")
    if suffix in (".jsonl", ".json", ".ndjson") or start[:1] == b"{" or start.startswith((b"[{", b"[\n")):
        return open_json(path, encoding)
    return open_delimited(path, encoding)


# ---------------------------------------------------------------- plain text, a sentence a line

# What a .txt file of sentences is: commas, quotes and tabs are part of the sentence, and `open_table` would look for
# columns in it. An empty line is a row without text, so that row i stays line i; empty lines at the end are left out. A
# first line that is the name of a column of sentences ("sentence", "text") is a header.


@dataclass(frozen=True)
class LinesReader(Reader):
    """A text file as a table of one column."""

    text: TextFile
    has_header: bool
    row_estimate: int  # lines, empty ones at the end included
    remarks: tuple[str, ...]
    columns: tuple[str, ...] = ("sentence",)

    @property
    def description(self) -> str:
        return f"{self.text.spoken_encoding} text, a sentence a line"

    def batches(self, size: int = BATCH_ROWS) -> Iterator[RowBatch]:
        return gather(islice(self._records(), int(self.has_header), None), self.columns, size)

    def _records(self) -> Iterator[Record]:
        with self.text.open() as file:
            file.reconfigure(newline=None)  # whatever the line ends are, they become \\n
            for line in file:
                note = "is not UTF-8 as other lines are" if self.text.other and OTHER in line else None
                sentence = line.rstrip("\n").replace("\0", "\ufffd").replace(OTHER, "")
                yield ([sentence] if sentence.strip() else []), note, len(sentence)


def open_lines(path: Path, encoding: str | None = None) -> Table:
    """Open a text file. InputError if there is none, or it is empty or no text."""
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    version = file_version(path)
    text = scan(path, encoding)
    with text.open() as file:
        first = file.readline()
    has_header = normalize_name(first.strip()) in SENTENCES and text.lines > 1
    return Table(path, LinesReader(text, has_header, text.lines - has_header, text.remarks), version)
