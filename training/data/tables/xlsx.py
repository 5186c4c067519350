"""An Excel workbook as a table: the rows of one visible sheet, the first that holds pairs of sentences unless named.

Cells have types and columns have none, so all values become text, as in a CSV file: 4.2 is "4.2", a date is
"2026-11-21 00:00:00", TRUE is "TRUE". A formula gives the value that Excel stored with it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError
from zipfile import BadZipFile, ZipFile

from training.data.tables.columns import canonical_names, header_of, listed, sentence_columns
from training.data.tables.rows import HEAD_ROWS, OpenedTable, Record, RowBatch, from_first, gather, quoted
from training.data.tables.text import ForeignFileError
from training.errors import InputError

# No sheet of Excel has more.
MOST_ROWS = 1_048_576
MOST_UNPACKED_BYTES = 1 << 30
# openpyxl holds the shared strings in memory.
MOST_SHARED_BYTES = 256 << 20
# Bytes of XML; Excel itself allows 32,767 characters.
LONGEST_CELL = 1 << 20
PIECE = 1 << 20
# The exceptions of openpyxl for damaged workbooks.
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


class UnknownSheetError(InputError):
    """A workbook has no sheet of the name that the user picked."""


@dataclass(frozen=True)
class XlsxTable(OpenedTable):
    """A workbook, and the sheet that is read."""

    has_header: bool
    # The first rows, without the header.
    head: list[Record] = field(repr=False)

    @property
    def description(self) -> str:
        return f"Excel workbook, sheet {self.sheet}"

    def _first_rows(self) -> Iterator[RowBatch]:
        return gather(iter(self.head), self.columns, HEAD_ROWS)

    def _read(self, size: int) -> Iterator[RowBatch]:
        """All rows in order. InputError if the workbook is damaged further down."""
        with _workbook(self.path) as workbook:
            records = islice(from_first(_rows(workbook[self.sheet])), int(self.has_header), None)
            yield from gather(records, self.columns, size)


def open_xlsx(path: Path, encoding: str | None = None, sheet: str | None = None) -> XlsxTable:
    """Opens a workbook. ``sheet`` names a sheet; None for the first that holds the most sentences a row.

    InputError if the file is no workbook or a damaged one, its sheets are empty, or it has no such sheet.
    """
    _check_archive(path)
    with _workbook(path) as workbook:
        visible = [worksheet for worksheet in workbook.worksheets if worksheet.sheet_state == "visible"]
        estimates = {worksheet.title: worksheet.max_row or 0 for worksheet in visible}
        heads = {worksheet.title: list(islice(from_first(_rows(worksheet)), HEAD_ROWS)) for worksheet in visible}
    heads = {title: head for title, head in heads.items() if head}
    if not heads:
        raise InputError(f"{path.name} has no sheet with anything in it.")
    if sheet is not None and sheet not in heads:
        raise UnknownSheetError(f"{path.name} has no sheet {quoted(sheet)}; it has {listed(tuple(heads), 'sheet')}.")
    default = next(iter(heads)) if len(heads) == 1 else max(heads, key=lambda title: _sentences(path, heads[title]))
    sheet = sheet or default
    columns, has_header, remarks = _header(path, heads[sheet])
    if len(visible) > 1:
        remarks.append(f"The workbook has {len(visible)} sheets; {sheet} is read.")
    rows = max(estimates[sheet] - has_header, 1)
    sheets = {"sheet": sheet, "sheets": tuple(heads), "is_default_sheet": sheet == default}
    return XlsxTable(path, columns, rows, tuple(remarks), has_header, heads[sheet][has_header:], **sheets)


def _header(path: Path, head: list[Record]) -> tuple[tuple[str, ...], bool, list[str]]:
    return header_of(path, [cell or "" for cell in head[0][0]])


def _sentences(path: Path, head: list[Record]) -> int:
    """The number of sentences in a row of a sheet, up to two, by the names of its columns or their content."""
    try:
        columns, has_header, _ = _header(path, head)
    except InputError:
        # It has far too many columns.
        return 0
    named = {"sentence", "sentence1", "sentence2", "anchor", "positive"}.intersection(canonical_names(columns).values())
    batch = next(gather(iter(head[has_header:]), columns, HEAD_ROWS), None)
    return min(2, max(len(named), len(sentence_columns(batch.rows)) if batch else 0))


def _rows(sheet: Any) -> Iterator[Record]:
    """Every row of the sheet as text, without the empty cells at its end; empty for an empty row."""
    # The size that the file states is often wrong.
    sheet.reset_dimensions()
    for cells in sheet.iter_rows(max_row=MOST_ROWS, values_only=True):
        values = [_text(cell) for cell in cells]
        while values and values[-1] is None:
            values.pop()
        yield values, None, sum(len(value) for value in values if value)


def _text(cell: Any) -> str | None:
    if isinstance(cell, str) and "_x" in cell:
        # Excel writes a control character as _x000D_.
        from openpyxl.utils.escape import unescape

        return unescape(cell)
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return str(cell).upper()
    return str(cell)


@contextmanager
def _workbook(path: Path) -> Iterator[Any]:
    """The opened workbook; any error of openpyxl inside the block means that the file is damaged."""
    from openpyxl import load_workbook
    from openpyxl.utils.exceptions import InvalidFileException

    try:
        # openpyxl would judge a path by its name.
        with path.open("rb") as file:
            workbook = load_workbook(file, read_only=True, data_only=True, keep_links=False)
            try:
                yield workbook
            finally:
                workbook.close()
    except (*BROKEN, InvalidFileException) as error:
        raise _damaged(path) from error


def _check_archive(path: Path) -> None:
    """Raises InputError for another archive, and for a workbook that unpacks to more than memory or a cell can hold."""
    try:
        with ZipFile(path) as archive:
            sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
            shared = max((size for name, size in sizes.items() if name.endswith("sharedStrings.xml")), default=0)
            too_large = sum(sizes.values()) > MOST_UNPACKED_BYTES or shared > MOST_SHARED_BYTES
            is_read = "xl/workbook.xml" in sizes and not too_large
            parts = [name for name in sizes if is_read and name.endswith((".xml", ".rels"))]
            huge_cell = any(_has_huge_cell(archive, name) for name in parts)
    except BROKEN as error:
        raise _damaged(path) from error
    if "xl/workbook.xml" not in sizes:
        is_office = "content.xml" in sizes
        kind = "an OpenDocument file: save it as .xlsx or CSV" if is_office else "a zip archive: unpack it first"
        raise ForeignFileError(f"{path.name} is {kind}.")
    if too_large:
        raise InputError(f"{path.name} unpacks to {sum(sizes.values()) / 1e9:,.1f} GB: save the sheet as CSV.")
    if huge_cell:
        raise InputError(f"{path.name} has a cell of more than {LONGEST_CELL >> 20} MB: this is no sentence.")


def _has_huge_cell(archive: ZipFile, name: str) -> bool:
    """Whether there is a tag, or text between two tags, that is longer than any cell can be."""
    # Bytes since the last "<".
    since = 0
    with archive.open(name) as file:
        while piece := file.read(PIECE):
            first, last = piece.find(b"<"), piece.rfind(b"<")
            since, longest = (len(piece) - last, since + first) if last >= 0 else (since + len(piece), since)
            if max(since, longest) > LONGEST_CELL + PIECE:
                return True
    return False


def _damaged(path: Path) -> InputError:
    return InputError(f"{path.name} is a damaged Excel workbook: open it in Excel and save it again, or as CSV.")
