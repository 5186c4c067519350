"""An opened table and its rows: batches by column, with row numbers and notes on malformed rows.

`OpenedTable` is the base class of every format. Readers yield single records; `gather` makes
batches of them with limited numbers of rows and characters, so that long cells do not need more
memory. Row i of a result belongs to row i of the input, as no row is dropped: a row with too few
fields is filled with None, a row with too many has the surplus in its note, and an empty line
between rows is a row. Only empty lines at the end are left out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, dropwhile, repeat
from pathlib import Path
from typing import Any

from training.data.tables.reading import TableReading
from training.errors import InputError

BATCH_ROWS = 8192
BATCH_CHARACTERS = 16 << 20
# The first rows, which show what the columns are.
HEAD_ROWS = 500
EMPTY_LINE = "an empty line"

# The values of a row in the order of the columns (none for a blank line), a note on a fault or
# None, and the number of characters.
Record = tuple[Sequence[Any], str | None, int]


@dataclass(frozen=True)
class RowBatch:
    """Consecutive rows of a table, by column.

    Attributes:
        first_row: the number of the first row, which counts from 1 without the header.
        rows: the values of each column, all equally many.
        notes: the faults of rows, by their positions in the batch.
        arrow: the rows of a Parquet file with their types; None for other formats.
    """

    first_row: int
    rows: dict[str, list[Any]]
    notes: dict[int, str] = field(default_factory=dict)
    arrow: Any = None

    def __len__(self) -> int:
        return len(next(iter(self.rows.values()), ()))

    def part(self, start: int, stop: int) -> RowBatch:
        """The rows from ``start`` up to ``stop`` (positions in this batch)."""
        return RowBatch(
            first_row=self.first_row + start,
            rows={name: values[start:stop] for name, values in self.rows.items()},
            notes={at - start: note for at, note in self.notes.items() if start <= at < stop},
            arrow=None if self.arrow is None else self.arrow.slice(start, stop - start),
        )

    def at(self, positions: Sequence[int]) -> RowBatch:
        """The rows at these positions in the batch, without their notes; ``first_row`` stays the batch's."""
        return RowBatch(
            self.first_row,
            rows={name: [values[at] for at in positions] for name, values in self.rows.items()},
            arrow=None if self.arrow is None else self.arrow.take(positions),
        )


@dataclass(frozen=True)
class OpenedTable(ABC):
    """A user's file whose format, encoding and columns are known, and whose rows can be read any number of times.

    It is made once, by `training.data.tables.table.open_table`, and passed on. A format is a
    subclass with a ``description``, ``_read`` and, where its columns have types, ``fields``.
    """

    path: Path
    # The names of the columns: different, and never empty.
    columns: tuple[str, ...]
    # The number of rows: exact for JSON and Parquet, counted by lines for text, as stated in the
    # file for XLSX. Where lists become rows (`lists`), it is the number before.
    row_estimate: int
    # Sentences that tell the user how the file was read.
    remarks: tuple[str, ...]
    # The sheet of a workbook, the sheets that can be read, and whether the sheet is the default.
    sheet: str = field(default="", kw_only=True)
    sheets: tuple[str, ...] = field(default=(), kw_only=True)
    is_default_sheet: bool = field(default=True, kw_only=True)
    # The `file_version` from before the file was opened; None if changes are not detected.
    version: tuple[int, int] | None = field(default=None, kw_only=True)

    @property
    @abstractmethod
    def description(self) -> str:
        """Format and encoding in words: "UTF-8 text separated by commas"."""

    @property
    def is_plain(self) -> bool:
        """Whether the encoding is certain: neither guessed nor named by the user, and valid throughout."""
        return True

    def fields(self) -> list[Any]:
        """The columns as ``pyarrow.Field``: text for CSV and XLSX, typed for JSON and Parquet."""
        # pyarrow takes time to import, and only writers need the fields.
        import pyarrow as pa

        return [pa.field(name, pa.string()) for name in self.columns]

    def batches(self, size: int = BATCH_ROWS) -> Iterator[RowBatch]:
        """All rows in order, at most ``size`` at a time (fewer where the cells are very long).

        InputError if the file is damaged (it names the row), the disk fails, or the file has changed
        since it was opened.
        """
        try:
            yield from self._read(size)
        except Exception as error:
            # A file that changes while it is read may break any reader.
            self._check_version(error)
            if isinstance(error, OSError):
                raise InputError(
                    f"{self.path.name} cannot be read on: {error.strerror or error}."
                ) from error
            raise
        self._check_version()

    def preview(self, rows: int = 10) -> RowBatch:
        """The first rows, at most `HEAD_ROWS`, which are read once."""
        return self._head.part(0, rows)

    @property
    def sample(self) -> dict[str, list[Any]]:
        """The cells of the first rows, by column."""
        return self._head.rows

    @cached_property
    def reading(self) -> TableReading:
        """The reading of the columns by their names and first cells."""
        return TableReading.of(self.path.name, self.sample, layout=self.description)

    def in_memory(
        self, names: Sequence[str], faults: dict[int, str] | None = None
    ) -> dict[str, list[Any]]:
        """The values of all rows of these columns. Errors as `batches`.

        The notes of malformed rows are added to ``faults``, by the number of the row. An empty line
        is not malformed.
        """
        columns: dict[str, list[Any]] = {name: [] for name in names}
        # Equal texts, such as the premise of several hypotheses, are held once.
        distinct: dict[str, str] = {}
        for batch in self.batches():
            for at, note in batch.notes.items():
                if faults is not None and note != EMPTY_LINE:
                    faults[batch.first_row + at] = note
            for name, column in columns.items():
                for cell in batch.rows[name]:
                    if type(cell) is str:
                        cell = distinct.setdefault(cell, cell)
                    column.append(cell)
        return columns

    @abstractmethod
    def _read(self, size: int) -> Iterator[RowBatch]:
        """Yields the rows in batches of ``size``."""

    def _first_rows(self) -> Iterator[RowBatch]:
        """Yields the rows for `preview` and `sample`; only the first batch is used."""
        return self.batches(HEAD_ROWS)

    def _check_version(self, cause: Exception | None = None) -> None:
        if self.version is not None and file_version(self.path) != self.version:
            raise InputError(changed_while_read(self.path.name)) from cause

    @cached_property
    def _head(self) -> RowBatch:
        return next(self._first_rows(), RowBatch(1, {name: [] for name in self.columns}))


def file_version(path: Path) -> tuple[int, int] | None:
    """The size of a file and the time of its last change, which tell whether it changed; None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def changed_while_read(name: str) -> str:
    """The error message for a file that was changed while it was read, so that rows may be wrong or missing."""
    return f"{name} changed while it was read: wait until it is complete, and start again."


def from_first(records: Iterator[Record]) -> Iterator[Record]:
    """The records from the first one that is not empty."""
    return dropwhile(lambda record: not record[0], records)


def gather(
    records: Iterator[Record], columns: Sequence[str], size: int, blanks: bool = True
) -> Iterator[RowBatch]:
    """Makes batches of at most ``size`` rows, and of about `BATCH_CHARACTERS` characters.

    Empty records between others are rows if ``blanks``, and are left out if not. At the end they
    are always left out.
    """
    width = len(columns)
    first_row = 1
    empty_row: Record = ((None,) * width, EMPTY_LINE, 0)
    values: list[Sequence[Any]] = []
    notes: dict[int, str] = {}
    weight = 0
    empty_rows = 0

    def batch() -> RowBatch:
        by_column = map(list, zip(*values, strict=True))
        return RowBatch(first_row, dict(zip(columns, by_column, strict=True)), notes)

    for fields, fault, length in records:
        if not fields:
            if blanks:
                empty_rows += 1
            continue
        if len(fields) != width:
            fields, fault = _fit(fields, fault, width)
        # The empty records before this one are not at the end, so they are rows.
        for row, note, characters in chain(
            repeat(empty_row, empty_rows), [(fields, fault, length)]
        ):
            if note:
                notes[len(values)] = note
            values.append(row)
            weight += characters
            if len(values) >= size or weight >= BATCH_CHARACTERS:
                yield batch()
                first_row += len(values)
                values = []
                notes = {}
                weight = 0
        empty_rows = 0
    if values:
        yield batch()


def _fit(record: Sequence[Any], note: str | None, width: int) -> tuple[Sequence[Any], str | None]:
    """Fills or cuts a row to ``width`` fields.

    The note tells how many there were, and quotes surplus fields. Only empty surplus fields are cut
    without a note.
    """
    surplus = record[width:]
    if surplus and not any(surplus):
        return record[:width], note
    problem = f"{len(record)} field{'s' * (len(record) > 1)} where the header has {width}"
    if surplus:
        problem += f"; beyond the header: {' | '.join(map(str, surplus))}"
    if note:
        problem = f"{note}; {problem}"
    missing = [None] * (width - len(record))
    return [*record[:width], *missing], problem
