"""An Excel workbook as a table: the rows of one visible sheet, the first that holds pairs of sentences unless named.

Cells have types and columns have none, so all values become text, as in a CSV file: 4.2 is "4.2", TRUE is "TRUE", and
a date is as Excel shows it. A formula gives the value that Excel stored with it, and a note if there is none.

openpyxl does not open some workbooks that Excel does: those of the strict variant of the format, and those with an
empty fill style. It also takes the text _x005F_x000D_, which stands for _x000D_, for a control character. `_workbook`
gives it a copy without these.
"""

import re
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice, zip_longest
from pathlib import Path
from typing import IO, Any
from xml.etree.ElementTree import ParseError
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

from training.data.tables.cells import quoted
from training.data.tables.columns import canonical_names, header_of, listed
from training.data.tables.csv import HEADER_ROWS
from training.data.tables.guess import sentence_columns
from training.data.tables.rows import HEAD_ROWS, OpenedTable, Record, RowBatch, from_first, gather
from training.data.tables.text import ForeignFileError
from training.errors import InputError

# No sheet of Excel has more.
MOST_ROWS = 1_048_576
# Files of other programs, by a part of theirs.
OTHER_KINDS = {
    "content.xml": "an OpenDocument file: save it as .xlsx or CSV",
    "xl/workbook.bin": "a binary workbook: save it as .xlsx or CSV",
    "word/document.xml": "a Word document: save its table as CSV",
    "Index/Document.iwa": "a file of Apple Numbers: export it as CSV",
}
MOST_UNPACKED_BYTES = 1 << 30
# openpyxl holds the shared strings in memory.
MOST_SHARED_BYTES = 256 << 20
# Bytes of XML; Excel itself allows 32,767 characters.
LONGEST_CELL = 1 << 20
PIECE = 1 << 20
# The exceptions of openpyxl for damaged workbooks.
BROKEN = (
    *(AttributeError, BadZipFile, EOFError, LookupError, OSError, ParseError, RuntimeError, TypeError, ValueError),
    zlib.error,
)

# Formulas, hidden rows, and what openpyxl does not open or read as Excel does, by their marks in the XML.
FORMULA, HIDDEN, ODD = "formula", "hidden", "odd"
ODDITIES = {
    FORMULA: re.compile(rb"<(?:\w+:)?f[ />]"),
    HIDDEN: re.compile(rb"<(?:\w+:)?row [^>]*hidden=\"(?:1|true)\"[^/>]*>\s*<[^/]"),
    ODD: re.compile(rb"http://purl\.oclc\.org/ooxml|<(?:\w+:)?fill\s*(?:/>|>\s*</)|(?i:_x005F_)"),
}
MAIN = b"http://schemas.openxmlformats.org/spreadsheetml/2006/main"
# Stands for _x005F_, an underscore that is none of an escape such as _x000D_.
UNDERSCORE = "\ue05f"
NO_VALUE = "a formula without a stored value: open the file in Excel and save it"
ISO_FORMAT = "yyyy-mm-dd h:mm:ss"
# Formats in which each computer shows the date of its country.
LOCALE_FORMATS = ("mm-dd-yy", "m/d/yy h:mm", "General")
# n is a minute.
_DATES = "yyyy=%Y yy=%y mmmm=%B mmm=%b mm=%m m=%m dddd=%A ddd=%a dd=%d d=%d hh=%H h=%H n=%M ss=%S s=%S"
DATE_PARTS = dict(pair.split("=") for pair in _DATES.split())


class UnknownSheetError(InputError):
    """A workbook has no sheet of the name that the user picked."""


@dataclass(frozen=True)
class XlsxTable(OpenedTable):
    """A workbook, and the sheet that is read."""

    header: int
    oddities: frozenset[str]
    # The first rows, without the header.
    head: list[Record] = field(repr=False)

    @property
    def description(self) -> str:
        return f"Excel workbook, sheet {self.sheet}"

    def _first_rows(self) -> Iterator[RowBatch]:
        return gather(iter(self.head), self.columns, HEAD_ROWS)

    def _read(self, size: int) -> Iterator[RowBatch]:
        """All rows in order. InputError if the workbook is damaged further down."""
        with (
            _workbook(self.path, self.oddities) as workbook,
            _formulas(self.path, self.sheet, self.oddities) as formulas,
        ):
            records = islice(from_first(_rows(workbook[self.sheet], formulas)), self.header, None)
            yield from gather(records, self.columns, size)


def open_xlsx(path: Path, encoding: str | None = None, sheet: str | None = None) -> XlsxTable:
    """Opens a workbook. ``sheet`` names a sheet; None for the first that holds the most sentences a row.

    InputError if the file is no workbook or a damaged one, its sheets are empty, or it has no such sheet.
    """
    counts = _check_archive(path)
    oddities = frozenset(+counts)
    heads: dict[str, list[Record]] = {}
    with _workbook(path, oddities) as workbook:
        visible = [worksheet for worksheet in workbook.worksheets if worksheet.sheet_state == "visible"]
        estimates = {worksheet.title: worksheet.max_row or 0 for worksheet in visible}
        for worksheet in visible:
            with _formulas(path, worksheet.title, oddities) as formulas:
                heads[worksheet.title] = list(islice(from_first(_rows(worksheet, formulas)), HEAD_ROWS))
    heads = {title: head for title, head in heads.items() if head}
    if not heads:
        raise InputError(f"{path.name} has no sheet with anything in it.")
    if sheet is not None and sheet not in heads:
        raise UnknownSheetError(f"{path.name} has no sheet {quoted(sheet)}; it has {listed(tuple(heads), 'sheet')}.")
    default = next(iter(heads)) if len(heads) == 1 else max(heads, key=lambda title: _sentences(path, heads[title]))
    sheet = sheet or default
    columns, header, remarks = _header(path, heads[sheet])
    if len(visible) > 1:
        remarks.append(f"The workbook has {len(visible)} sheets; {sheet} is read.")
    if hidden := counts[HIDDEN]:
        remarks.append(f"The workbook hides {hidden:,} row{'s' * (hidden > 1)}; hidden rows are read too.")
    if any(note == NO_VALUE for _, note, _ in heads[sheet]):
        remarks.append("Some cells are formulas without a stored value: open the file in Excel and save it.")
    rows = max(estimates[sheet] - header, 1)
    sheets: dict[str, Any] = {"sheet": sheet, "sheets": tuple(heads), "is_default_sheet": sheet == default}
    return XlsxTable(path, columns, rows, tuple(remarks), header, oddities, heads[sheet][header:], **sheets)


def _header(path: Path, head: list[Record]) -> tuple[tuple[str, ...], int, list[str]]:
    return header_of(path, [[cell or "" for cell in record] for record, _, _ in head[:HEADER_ROWS]])


def _sentences(path: Path, head: list[Record]) -> int:
    """The number of sentences in a row of a sheet, up to two, by the names of its columns or their content."""
    try:
        columns, header, _ = _header(path, head)
    except InputError:
        # It has far too many columns.
        return 0
    rows = next(gather(iter(head[header:]), columns, HEAD_ROWS), RowBatch(1, {name: [] for name in columns})).rows
    names = canonical_names(columns, rows).values()
    named = {"sentence", "sentence1", "sentence2", "anchor", "positive"}.intersection(names)
    return min(2, max(len(named), len(sentence_columns(rows))))


def _rows(sheet: Any, formulas: Iterator[Sequence[Any]]) -> Iterator[Record]:
    """Every row of the sheet as text, without the empty cells at its end; empty for an empty row.

    ``formulas`` are the same rows with formulas in place of their values; nothing where the sheet has none.
    """
    # The size that the file states is often wrong.
    sheet.reset_dimensions()
    for cells, by_formula in zip_longest(sheet.iter_rows(max_row=MOST_ROWS), formulas, fillvalue=()):
        values = [_text(cell) for cell in cells]
        has_no_value = [at for at, formula in enumerate(by_formula[: len(values)]) if formula and values[at] is None]
        while values and values[-1] is None and len(values) - 1 not in has_no_value:
            values.pop()
        yield values, NO_VALUE if has_no_value else None, sum(len(value) for value in values if value)


def _text(cell: Any) -> str | None:
    """The text of a cell; a date is written as its format says."""
    value = cell.value
    if isinstance(value, str) and ("_x" in value or UNDERSCORE in value):
        # Excel writes a control character as _x000D_.
        from openpyxl.utils.escape import unescape

        return unescape(value).replace(UNDERSCORE, "_")
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return _date(value, cell.number_format)
    return str(value).upper() if isinstance(value, bool) else str(value)


def _date(value: datetime, number_format: str) -> str:
    """A date as a format of Excel such as "d mmm yyyy" shows it; as in ISO 8601 if the format is that of a country."""
    if number_format == ISO_FORMAT:
        return value.isoformat(" ")
    text = re.sub(r"\[[^]]*\]|;.*|[\\\"]", "", number_format).lower()
    if number_format in LOCALE_FORMATS or not re.search("[dy]", text):
        return value.isoformat(" ").removesuffix(" 00:00:00")
    # m is the minute after an hour and before a second.
    text = re.sub(r"(h+\W?)m+|m+(?=\W?s)", lambda match: f"{match[1] or ''}n", text)
    parts = []
    for part in re.findall(r"y+|m+|d+|h+|s+|.", text.replace("am/pm", "").strip()):
        text = value.strftime(DATE_PARTS[part]) if part in DATE_PARTS else part
        parts.append(text.lstrip("0") or "0" if part in "dmh" else text)
    return "".join(parts)


@contextmanager
def _workbook(path: Path, oddities: frozenset[str], with_formulas: bool = False) -> Iterator[Any]:
    """The opened workbook; any error of openpyxl inside the block means that the file is damaged."""
    from openpyxl import load_workbook
    from openpyxl.utils.exceptions import InvalidFileException

    try:
        # openpyxl would judge a path by its name.
        with path.open("rb") as file, tempfile.TemporaryFile() as copy:
            if ODD in oddities:
                _write_usual(file, copy)
            source: IO[bytes] = copy if ODD in oddities else file
            workbook = load_workbook(source, read_only=True, data_only=not with_formulas, keep_links=False)
            try:
                yield workbook
            finally:
                workbook.close()
    except (*BROKEN, InvalidFileException) as error:
        raise _damaged(path) from error


@contextmanager
def _formulas(path: Path, sheet: str, oddities: frozenset[str]) -> Iterator[Iterator[Sequence[Any]]]:
    """The rows of a sheet with formulas in place of their values; nothing where the workbook has none."""
    if FORMULA not in oddities:
        yield iter(())
        return
    with _workbook(path, oddities, with_formulas=True) as workbook:
        workbook[sheet].reset_dimensions()
        yield workbook[sheet].iter_rows(max_row=MOST_ROWS, values_only=True)


def _write_usual(file: IO[bytes], copy: IO[bytes]) -> None:
    """Writes a copy of a workbook in the usual namespaces, with a pattern in each fill and without _x005F_."""
    with ZipFile(file) as archive, ZipFile(copy, "w", ZIP_DEFLATED) as usual:
        for name in archive.namelist():
            rest = b""
            with archive.open(name) as part, usual.open(name, "w") as out:
                while piece := part.read(PIECE):
                    # No tag and no text is cut.
                    end = (rest := rest + piece).rfind(b"<")
                    out.write(_usual(rest[: max(end, 0)]))
                    rest = rest[max(end, 0) :]
                out.write(_usual(rest))
    copy.seek(0)


def _usual(xml: bytes) -> bytes:
    xml = xml.replace(b"http://purl.oclc.org/ooxml/spreadsheetml/main", MAIN)
    xml = re.sub(rb"http://purl\.oclc\.org/ooxml/(\w+)/", rb"http://schemas.openxmlformats.org/\1/2006/", xml)
    xml = re.sub(rb"<((?:\w+:)?)fill\s*(?:/>|>\s*</(?:\w+:)?fill>)", rb"<\1fill><\1patternFill/></\1fill>", xml)
    return re.sub(rb"(?i)_x005F_", UNDERSCORE.encode(), xml)


def _check_archive(path: Path) -> Counter[str]:
    """The number of each of the `ODDITIES`. InputError for another archive, and for one beyond what memory can hold."""
    oddities: Counter[str] = Counter()
    try:
        with ZipFile(path) as archive:
            sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
            shared = max((size for name, size in sizes.items() if name.endswith("sharedStrings.xml")), default=0)
            too_large = sum(sizes.values()) > MOST_UNPACKED_BYTES or shared > MOST_SHARED_BYTES
            is_read = "xl/workbook.xml" in sizes and not too_large
            parts = [name for name in sizes if is_read and name.endswith((".xml", ".rels"))]
            huge_cell = any(_has_huge_cell(archive, name, oddities) for name in parts)
    except BROKEN as error:
        raise _damaged(path) from error
    if "xl/workbook.xml" not in sizes:
        kind = next((kind for part, kind in OTHER_KINDS.items() if part in sizes), "a zip archive: unpack it first")
        raise ForeignFileError(f"{path.name} is {kind}.")
    if too_large:
        raise InputError(f"{path.name} unpacks to {sum(sizes.values()) / 1e9:,.1f} GB: save the sheet as CSV.")
    if huge_cell:
        raise InputError(f"{path.name} has a cell of more than {LONGEST_CELL >> 20} MB: this is no sentence.")
    return oddities


def _has_huge_cell(archive: ZipFile, name: str, oddities: Counter[str]) -> bool:
    """Whether there is a tag, or text between two tags, that is longer than any cell can be; adds to ``oddities``."""
    # Bytes since the last "<".
    since, end = 0, b""
    with archive.open(name) as file:
        while piece := file.read(PIECE):
            first, last = piece.find(b"<"), piece.rfind(b"<")
            since, longest = (len(piece) - last, since + first) if last >= 0 else (since + len(piece), since)
            if max(since, longest) > LONGEST_CELL + PIECE:
                return True
            for what, mark in ODDITIES.items():
                # What lies within the end of the piece before was counted with it.
                oddities[what] += len(mark.findall(end + piece)) - len(mark.findall(end))
            end = piece[-256:]
    return False


def _damaged(path: Path) -> InputError:
    return InputError(f"{path.name} is a damaged Excel workbook: open it in Excel and save it again, or as CSV.")
