"""Plain text, a sentence a line: what a .txt file of sentences is. Commas, quotes and tabs are part of the sentence.

`training.data.tables.table.open_table` would look for columns in it, and could take the first line for their names.
An empty line is a row without text, so that row i stays line i; empty lines at the end are left out. A first line that
is the name of a column of sentences ("sentence", "text") is a header.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from training.data.tables.columns import SENTENCES, normalize_name
from training.data.tables.rows import BATCH_ROWS, Record, RowBatch, gather
from training.data.tables.text import OTHER, TextFile, scan
from training.errors import InputError


@dataclass(frozen=True)
class LinesReader:
    """A text file as a table of one column."""

    text: TextFile
    has_header: bool
    columns: tuple[str, ...] = ("sentence",)
    remarks: tuple[str, ...] = ()

    def fields(self) -> list[Any]:
        """The Arrow field of the column."""
        import pyarrow as pa

        return [pa.field(self.columns[0], pa.string())]

    @property
    def description(self) -> str:
        """The format in words: "UTF-8 text, a sentence a line"."""
        return f"{self.text.spoken_encoding} text, a sentence a line"

    @property
    def row_estimate(self) -> int:
        """The number of lines, empty ones at the end included."""
        return self.text.lines - self.has_header

    def batches(self, size: int = BATCH_ROWS) -> Iterator[RowBatch]:
        """All lines in order."""
        return gather(islice(self._records(), int(self.has_header), None), self.columns, size)

    def _records(self) -> Iterator[Record]:
        with self.text.open() as file:
            file.reconfigure(newline=None)  # whatever the line ends are, they become \\n
            for line in file:
                note = "is not UTF-8 as other lines are" if self.text.other and OTHER in line else None
                sentence = line.rstrip("\n").replace("\0", "\ufffd").replace(OTHER, "")
                yield ([sentence] if sentence.strip() else []), note, len(sentence)


def open_lines(path: Path, encoding: str | None = None) -> LinesReader:
    """Open a text file. InputError if there is none, or it is empty or no text."""
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    text = scan(path, encoding)
    with text.open() as file:
        first = file.readline()
    has_header = normalize_name(first.strip()) in SENTENCES and text.lines > 1
    return LinesReader(text, has_header, remarks=text.remarks)
