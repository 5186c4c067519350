"""A workbook of Excel or LibreOffice as a table: the rows of one visible sheet.

Unless the user names a sheet, the sheet whose rows have the most sentences is read; if there are
several, the longest.

Cells have types and columns do not, so all values become text, as in a CSV file: 4.2 is "4.2", TRUE
is "TRUE", and dates are in ISO 8601. A formula has the value that was stored with it. Formulas
without a stored value and errors are empty cells.

calamine reads the file, in a process of its own (`training.data.tables.sheets`).
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from training.data.tables.cells import quoted
from training.data.tables.columns import header_of, listed
from training.data.tables.csv import HEADER_ROWS
from training.data.tables.reading import TableReading
from training.data.tables.rows import HEAD_ROWS, OpenedTable, Record, RowBatch, from_first, gather
from training.data.tables.text import ForeignFileError
from training.errors import InputError

# Other formats that are zip archives, by a member that they always contain.
OTHER_KINDS = {
    "word/document.xml": "a Word document: save its table as CSV",
    "Index/Document.iwa": "a file of Apple Numbers: export it as CSV",
}
WORKBOOK_PARTS = ("xl/workbook.xml", "xl/workbook.bin", "content.xml")
MOST_UNPACKED_BYTES = 1 << 30
SHEETS = Path(__file__).with_name("sheets.py")


class UnknownSheetError(InputError):
    """A file has no sheet of the name that the user picked."""


@dataclass(frozen=True)
class WorkbookTable(OpenedTable):
    """A workbook, and the sheet that is read."""

    # The number of rows up to the header, from the first row that is not empty.
    header: int
    # The first rows, without the header.
    head: list[Record] = field(repr=False)

    @property
    def description(self) -> str:
        return f"Workbook, sheet {self.sheet}"

    def _first_rows(self) -> Iterator[RowBatch]:
        # ``head`` has the first rows already. The method of the base class would read the workbook
        # again.
        return gather(iter(self.head), self.columns, HEAD_ROWS)

    def _read(self, size: int) -> Iterator[RowBatch]:
        """All rows in order. InputError if the workbook is damaged further down."""
        records = from_first(map(_record, _lines(self.path, self.sheet)))
        yield from gather(islice(records, self.header, None), self.columns, size)


def open_workbook(
    path: Path, encoding: str | None = None, sheet: str | None = None
) -> WorkbookTable:
    """Opens a workbook. ``sheet`` names a sheet; None for the one whose rows have the most sentences.

    ``encoding`` is ignored, as a workbook states its own. InputError if the file is not a workbook
    or is damaged, its sheets are empty, or it lacks the named sheet.
    """
    _check_archive(path)
    heads = {}
    heights = {}
    for title, height, rows in _lines(path):
        heights[title] = height
        if head := list(from_first(map(_record, rows))):
            heads[title] = head
    if not heads:
        raise InputError(f"{path.name} has no sheet with anything in it.")
    if sheet is not None and sheet not in heads:
        raise UnknownSheetError(
            f"{path.name} has no sheet {quoted(sheet)}; it has {listed(tuple(heads), 'sheet')}."
        )
    default = max(heads, key=lambda title: _merit(path, heads[title], heights[title]))
    sheet = sheet or default
    columns, header, remarks = _header(path, heads[sheet])
    if len(heights) > 1:
        remarks.append(f"The workbook has {len(heights)} sheets; {sheet} is read.")
    return WorkbookTable(
        path,
        columns,
        row_estimate=max(heights[sheet] - header, 1),
        remarks=tuple(remarks),
        header=header,
        head=heads[sheet][header:],
        sheet=sheet,
        sheets=tuple(heads),
        is_default_sheet=sheet == default,
    )


def _header(path: Path, head: list[Record]) -> tuple[tuple[str, ...], int, list[str]]:
    """The columns, the number of rows up to the header, and remarks, as `header_of`."""
    rows = []
    for cells, _, _ in head[:HEADER_ROWS]:
        rows.append([cell or "" for cell in cells])
    return header_of(path, rows)


def _merit(path: Path, head: list[Record], height: int) -> tuple[int, int]:
    """The number of sentences in a row of a sheet, where three count as two, and the number of rows."""
    try:
        columns, header, _ = _header(path, head)
    except InputError:
        # The sheet has far too many columns.
        return 0, 0
    no_rows = RowBatch(1, {name: [] for name in columns})
    batch = next(gather(iter(head[header:]), columns, HEAD_ROWS), no_rows)
    sentences = TableReading.of(path.name, batch.rows).sentences
    return min(2, len(sentences)), height


def _record(cells: list[str | None]) -> Record:
    return cells, None, sum(len(cell) for cell in cells if cell)


def _lines(path: Path, *sheet: str) -> Iterator[Any]:
    """Yields the lines that `sheets` prints of a workbook. InputError if it cannot be read.

    With the name of a ``sheet`` they are its rows; without one they are the name, the height and
    the first rows of each sheet.
    """
    command = [sys.executable, "-I", str(SHEETS), str(path.resolve()), *sheet]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    ) as process:
        try:
            for line in process.stdout or ():
                value = json.loads(line)
                # An object is an error.
                if isinstance(value, dict):
                    raise InputError(f"{path.name} {value['error']}.")
                yield value
            is_complete = process.wait() == 0
        finally:
            # A reader that needs only the first rows stops early.
            process.kill()
    if not is_complete:
        raise InputError(f"{path.name} is damaged, or too large to read: save the sheet as CSV.")


def _check_archive(path: Path) -> None:
    """Raises InputError if the file is another kind of archive, or would take too much memory unpacked."""
    with path.open("rb") as file:
        # A file of Excel before 2007 is not a zip archive.
        if file.read(2) != b"PK":
            return
    try:
        with ZipFile(path) as archive:
            sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
    except (BadZipFile, OSError) as error:
        raise InputError(
            f"{path.name} is a damaged workbook: open it in Excel and save it again, or as CSV."
        ) from error
    if sizes.keys().isdisjoint(WORKBOOK_PARTS):
        kinds = [kind for part, kind in OTHER_KINDS.items() if part in sizes]
        kind = kinds[0] if kinds else "a zip archive: unpack it first"
        raise ForeignFileError(f"{path.name} is {kind}.")
    size = sum(sizes.values())
    if size > MOST_UNPACKED_BYTES:
        raise InputError(f"{path.name} unpacks to {size / 1e9:,.1f} GB: save the sheet as CSV.")
