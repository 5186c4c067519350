"""Batches of rows by column, with row numbers and notes on malformed rows.

Readers yield single records; ``gather`` makes batches of them that are bounded in rows and in characters, so that
a file with a megabyte in each cell needs no more memory than one with a word. Nothing is dropped: a row with too few
fields is filled up with None, a row with too many keeps the surplus in its note, and an empty line between rows is a
row, so that row i of a result belongs to row i of the input. Only empty lines at the end are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile
from typing import Any

BATCH_ROWS = 8192
BATCH_CHARACTERS = 16 << 20
EMPTY_LINE = "an empty line"  # the note on one between rows
SHOWN = 60  # characters of a bad value that a note or an error quotes

Record = tuple[Sequence[Any], str | None, int]
"""A row's values in the order of the columns (empty for a blank line), what is wrong with it, its characters."""


@dataclass(frozen=True)
class RowBatch:
    """Consecutive rows of a table, by column.

    ``first_row`` counts from 1, without the header. ``rows`` maps every column to its values, all equally long.
    ``notes`` maps a position in the batch to what is wrong with that row. ``arrow`` is the batch as it stood in
    a Parquet file, with its types, and None for other formats.
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


class Reader:
    """The interface of every format: a file whose columns are known."""

    columns: tuple[str, ...]
    remarks: tuple[str, ...]
    row_estimate: int
    sheet: str = ""  # of a workbook
    sheets: tuple[str, ...] = ()  # those of a workbook that can be read

    @property
    def description(self) -> str:
        """The format and the encoding in words: "UTF-8 text separated by semicolons"."""
        raise NotImplementedError

    def fields(self) -> list[Any]:
        """The Arrow fields of the columns; all text if a reader does not say otherwise."""
        import pyarrow as pa

        return [pa.field(name, pa.string()) for name in self.columns]

    def batches(self, size: int = BATCH_ROWS) -> Iterator[RowBatch]:
        """All rows in order, at most ``size`` at a time."""
        raise NotImplementedError


def from_first(records: Iterator[Record]) -> Iterator[Record]:
    """From the first record that is not empty."""
    return dropwhile(lambda record: not record[0], records)


def gather(records: Iterator[Record], columns: Sequence[str], size: int, blanks: bool = True) -> Iterator[RowBatch]:
    """Batches of at most ``size`` rows. With ``blanks``, an empty record between two others is a row of its own."""
    width, first_row = len(columns), 1
    values: list[Sequence[Any]] = []
    notes: dict[int, str] = {}
    weight = pending = 0

    def batch() -> RowBatch:
        by_column = map(list, zip(*values, strict=True))
        return RowBatch(first_row, dict(zip(columns, by_column, strict=True)), notes)

    for record, note, characters in records:
        if not record:
            pending += blanks
            continue
        while pending:
            notes[len(values)] = EMPTY_LINE
            values.append((None,) * width)
            pending -= 1
            if len(values) == size:
                yield batch()
                first_row, values, notes, weight = first_row + size, [], {}, 0
        if len(record) != width:
            record, note = _fit(record, note, width)
        if note:
            notes[len(values)] = note
        values.append(record)
        weight += characters
        if len(values) >= size or weight >= BATCH_CHARACTERS:
            yield batch()
            first_row, values, notes, weight = first_row + len(values), [], {}, 0
    if values:
        yield batch()


def _fit(record: Sequence[Any], note: str | None, width: int) -> tuple[list[Any], str]:
    """A row with too few or too many fields, made ``width`` long, and a note that holds the surplus."""
    found = f"{len(record)} field{'s' * (len(record) > 1)} where the header has {width}"
    if len(record) > width:
        found += "; beyond the header: " + " | ".join(map(str, record[width:]))
    fitted = [*record[:width], *(None for _ in range(width - len(record)))]
    return fitted, "; ".join(filter(None, (note, found)))


def shown(value: Any) -> str:
    """A value as an error quotes it: in quotes, cut to a length that stays readable."""
    text = value if isinstance(value, str) else str(value)
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "…")
