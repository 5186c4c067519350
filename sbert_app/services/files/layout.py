"""The layout of text files for spreadsheets, which an output takes from its input.

German Excel expects semicolons in a CSV file, reads it as UTF-8 only after a byte order mark, and
takes 0,5 for a number and 0.5 for a date.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from training.data.tables.cells import DECIMAL_COMMA
from training.data.tables.csv import DELIMITERS, DelimitedTable
from training.data.tables.json import JsonTable
from training.data.tables.lists import ListsTable
from training.data.tables.rows import OpenedTable
from training.data.tables.text import TextTable
from training.data.tables.workbook import WorkbookTable

# The encodings of files whose programs read UTF-8 without a byte order mark. A program that writes
# another encoding is likely to need the mark.
WITHOUT_MARK = ("ascii", "utf-8")


@dataclass(frozen=True)
class Layout:
    """The delimiter of CSV, the encoding of text, and the decimal sign of scores."""

    delimiter: str = ","
    encoding: str = "utf-8"
    decimal: str = "."

    @classmethod
    def of(cls, table: OpenedTable) -> Layout:
        """The layout of a text file, or the default for other formats."""
        needs_mark = isinstance(table, TextTable) and table.text.encoding not in WITHOUT_MARK
        encoding = "utf-8-sig" if needs_mark else "utf-8"
        # A table of one column, or with a delimiter of several characters, becomes an ordinary CSV.
        if not isinstance(table, DelimitedTable) or table.delimiter not in DELIMITERS:
            return cls(encoding=encoding)
        decimal = "."
        cells = chain.from_iterable(table.sample.values())
        if table.delimiter != "," and any(DECIMAL_COMMA.fullmatch(str(cell)) for cell in cells):
            decimal = ","
        return cls(table.delimiter, encoding, decimal)


USUAL = Layout()


def suffix_like(table: OpenedTable) -> str:
    """The ending of a file in the format of a table; .csv for Parquet, which people cannot read."""
    # The rows of a `ListsTable` were lists in another table, which has the format of the file.
    if isinstance(table, ListsTable):
        return suffix_like(table.inner)
    if isinstance(table, DelimitedTable) and table.delimiter == "\t":
        return ".tsv"
    if isinstance(table, WorkbookTable):
        return ".xlsx"
    return ".jsonl" if isinstance(table, JsonTable) else ".csv"
