"""An Excel workbook as a table: the rows of the first visible sheet that is not empty.

Cells have types and columns have none, so all values become text, as in a CSV file: 4.2 is "4.2", a date is
"2026-11-21 00:00:00", TRUE is "TRUE". A formula gives the value that Excel stored with it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError
from zipfile import BadZipFile, ZipFile

from training.data.tables.columns import header_of
from training.data.tables.rows import BATCH_ROWS, Reader, Record, RowBatch, from_first, gather
from training.data.tables.text import WANTED
from training.errors import InputError

MOST_ROWS = 1_048_576  # of any sheet in Excel
MOST_UNPACKED = 1 << 30  # bytes
MOST_SHARED_TEXT = 256 << 20  # bytes: openpyxl keeps the shared strings in memory
LONGEST_CELL = 1 << 20  # bytes of XML; Excel itself allows 32,767 characters
PIECE = 1 << 20
BROKEN = (
    AttributeError,
    BadZipFile,
    EOFError,
    LookupError,
    NotImplementedError,
    OSError,
    ParseError,
    RuntimeError,
    TypeError,
    ValueError,
    zlib.error,
)
"""What openpyxl raises for damaged workbooks."""


@dataclass(frozen=True)
class XlsxReader(Reader):
    """A workbook whose sheet and columns are known."""

    path: Path
    sheet: str
    columns: tuple[str, ...]
    has_header: bool
    row_estimate: int
    remarks: tuple[str, ...]

    @property
    def description(self) -> str:
        return f"Excel workbook, sheet {self.sheet}"

    def batches(self, size: int = BATCH_ROWS) -> Iterator[RowBatch]:
        """All rows in order. InputError if the workbook is damaged further down."""
        records = islice(from_first(_records(self.path, self.sheet)), int(self.has_header), None)
        return gather(records, self.columns, size)


def open_xlsx(path: Path) -> XlsxReader:
    """Find the sheet and its header. InputError if it is no workbook, a damaged one, or one whose sheets are empty."""
    _check_archive(path)
    with _workbook(path) as workbook:
        visible = [sheet for sheet in workbook.worksheets if sheet.sheet_state == "visible"]
        estimates = {sheet.title: sheet.max_row or 0 for sheet in visible}
    for title, estimate in estimates.items():
        first = next(from_first(_records(path, title)), None)
        if first is None:
            continue
        columns, has_header, remarks = header_of(path, [cell or "" for cell in first[0]])
        if len(visible) > 1:
            remarks.append(f"The workbook has {len(visible)} sheets; {title} is read.")
        return XlsxReader(path, title, columns, has_header, max(estimate - has_header, 1), tuple(remarks))
    raise InputError(f"{path.name} has no sheet with anything in it.")


def _records(path: Path, title: str) -> Iterator[Record]:
    """Every row of the sheet as text, without the empty cells at its end; empty for an empty row."""
    with _workbook(path) as workbook:
        sheet = workbook[title]
        sheet.reset_dimensions()  # what the file says about its size is often wrong
        for cells in sheet.iter_rows(max_row=MOST_ROWS, values_only=True):
            values = [_text(cell) for cell in cells]
            while values and values[-1] is None:
                values.pop()
            yield values, None, sum(len(value) for value in values if value)


def _text(cell: Any) -> str | None:
    if isinstance(cell, str) and "_x" in cell:  # Excel writes a control character as _x000D_
        from openpyxl.utils.escape import unescape

        return unescape(cell)
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return str(cell).upper()
    return str(cell)


@contextmanager
def _workbook(path: Path) -> Iterator[Any]:
    """The open workbook; any error of openpyxl inside the block means that the file is damaged."""
    from openpyxl import load_workbook
    from openpyxl.utils.exceptions import InvalidFileException

    try:
        with path.open("rb") as file:  # not the path: openpyxl would judge by the name
            workbook = load_workbook(file, read_only=True, data_only=True, keep_links=False)
            try:
                yield workbook
            finally:
                workbook.close()
    except (*BROKEN, InvalidFileException) as error:
        raise _damaged(path) from error


def _check_archive(path: Path) -> None:
    """InputError for another archive, and for a workbook that unpacks to more than fits into memory or into a cell."""
    try:
        with ZipFile(path) as archive:
            sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
            shared = max((size for name, size in sizes.items() if name.endswith("sharedStrings.xml")), default=0)
            too_large = sum(sizes.values()) > MOST_UNPACKED or shared > MOST_SHARED_TEXT
            is_read = "xl/workbook.xml" in sizes and not too_large
            parts = [name for name in sizes if is_read and name.endswith((".xml", ".rels"))]
            huge_cell = any(_has_huge_cell(archive, name) for name in parts)
    except BROKEN as error:
        raise _damaged(path) from error
    if "xl/workbook.xml" not in sizes:
        is_office = "content.xml" in sizes
        what = "an OpenDocument file: save it as .xlsx or CSV" if is_office else "a zip archive: unpack it first"
        raise InputError(f"{path.name} is {what}. {WANTED}")
    if too_large:
        raise InputError(f"{path.name} unpacks to {sum(sizes.values()) / 1e9:,.1f} GB: save the sheet as CSV.")
    if huge_cell:
        raise InputError(f"{path.name} has a cell of more than {LONGEST_CELL >> 20} MB: this is no sentence.")


def _has_huge_cell(archive: ZipFile, name: str) -> bool:
    """Whether there is a tag, or text between two tags, that is longer than any cell can be."""
    since = 0  # bytes since the last "<"
    with archive.open(name) as file:
        while piece := file.read(PIECE):
            first, last = piece.find(b"<"), piece.rfind(b"<")
            since, longest = (len(piece) - last, since + first) if last >= 0 else (since + len(piece), since)
            if max(since, longest) > LONGEST_CELL + PIECE:
                return True
    return False


def _damaged(path: Path) -> InputError:
    return InputError(f"{path.name} is a damaged Excel workbook: open it in Excel and save it again, or as CSV.")
