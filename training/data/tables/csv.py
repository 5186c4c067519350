"""CSV, TSV and other delimited text; and plain text, a sentence a line.

The first records show the delimiter, unless a first line ``sep=;``, as Excel writes it, names it. Quoting follows
RFC 4180 strictly: a quoted field may hold delimiters and line ends. Where that fails, because a sentence merely
begins with a quotation mark, that one line is read again as plain text and marked, and reading continues with the
next line: an unclosed quote costs a note, not the rest of the file. Tab-separated files that were never quoted
(the STS benchmark is one) are recognised by their unbalanced quotes and read without quoting.
"""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import StringIO
from itertools import islice
from pathlib import Path

from training.data.tables.columns import SENTENCES, header_of, is_usual_name, normalize_name
from training.data.tables.rows import Record, RowBatch, from_first, gather
from training.data.tables.text import OTHER, TextFile, TextTable, scan, spoken, suspicion
from training.errors import InputError

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
# Delimiters of tables of one column, with quoted fields or with a sentence a line: characters that no sentence has.
NO_DELIMITER, LINES = "\x1f", "\x1e"
# A longer field, in characters, is a quote that was never closed.
LONGEST_FIELD = 2_000_000
SNIFFED_RECORDS = 50
ODD_QUOTE = re.compile(r'(?:^|\t)"[^"\t]*"[^"\t\r\n]')
ALL_QUOTED = re.compile(r'"[^"\t]*"(?:\t"[^"\t]*")*[\r\n]*')


@dataclass(frozen=True)
class DelimitedTable(TextTable):
    """A delimited text file whose encoding, delimiter, quoting and columns are known."""

    delimiter: str
    is_quoted: bool
    # 1 where the first line is ``sep=;``.
    skipped_lines: int
    has_header: bool

    @property
    def description(self) -> str:
        layouts = {NO_DELIMITER: ", one column", LINES: ", a sentence a line"}
        layout = layouts.get(self.delimiter) or f" separated by {DELIMITERS.get(self.delimiter, self.delimiter)}"
        return f"{spoken(self.text.encoding)} text{layout}"

    def _read(self, size: int) -> Iterator[RowBatch]:
        # Lines before a header are no rows.
        records = islice(from_first(self.records()), 1, None) if self.has_header else self.records()
        return gather(records, self.columns, size, blanks=not self.text.doubled_ends)

    def records(self) -> Iterator[Record]:
        """Every record, the header and blank lines too."""
        csv.field_size_limit(LONGEST_FIELD)
        record_lines: list[str] = []
        unread_lines: deque[str] = deque()
        suspicious = self.text.notes
        with self.text.open() as file:
            lines = islice(file, self.skipped_lines, None)

            def feed() -> Iterator[str]:
                while (line := unread_lines.popleft() if unread_lines else next(lines, None)) is not None:
                    record_lines.append(line)
                    yield line

            reader = self._csv_reader(feed())
            while True:
                record_lines.clear()
                note = None
                try:
                    record = next(reader)
                except StopIteration:
                    return
                except csv.Error:
                    unread_lines.extendleft(reversed(record_lines[1:]))
                    record = self._plain(record_lines[0])
                    if self.is_quoted:
                        note = "a quotation mark is opened and not closed properly; read as plain text"
                    del record_lines[1:]
                    reader = self._csv_reader(feed())
                if suspicious and (remark := suspicion(record_lines, suspicious)):
                    note = f"{note}; {remark}" if note else remark
                    record = [cell.replace(OTHER, "") for cell in record]
                if self.delimiter == LINES and not "".join(record).strip():
                    record = []
                yield record, note, sum(map(len, record_lines))

    def _csv_reader(self, lines: Iterator[str], strict: bool = True) -> Iterator[list[str]]:
        if not self.is_quoted:
            return csv.reader(lines, delimiter=self.delimiter, quoting=csv.QUOTE_NONE)
        return csv.reader(lines, delimiter=self.delimiter, strict=strict)

    def _plain(self, line: str) -> list[str]:
        """The fields of a line with invalid quotes: split as plain text if that gives the right number of fields."""
        plain = line.rstrip("\r\n").split(self.delimiter)
        if len(plain) == len(self.columns):
            return plain
        try:
            lenient = next(self._csv_reader(iter([line]), strict=False))
        except csv.Error:
            return plain
        return lenient if len(lenient) == len(self.columns) else plain


def open_delimited(path: Path, encoding: str | None = None, sheet: str | None = None) -> DelimitedTable:
    """Opens a text file by its encoding (unless ``encoding`` names it), delimiter, quoting and header.

    InputError if the file is empty, is not text, or has more columns than a table of sentences can have.
    """
    text = scan(path, encoding)
    head = text.head()
    hint = re.match(r"\s*sep=(.)\r?\n", head)
    delimiter = hint[1] if hint else _delimiter(head, path.suffix.lower())
    is_quoted = delimiter != "\t" or not _is_never_quoted(text)
    draft = DelimitedTable(path, (), 0, (), text, delimiter, is_quoted, skipped_lines=int(bool(hint)), has_header=True)
    first = next((record for record, _, _ in draft.records() if record), None)
    if first is None:
        raise InputError(f"{path.name} is empty: it needs at least a header and one row.")
    columns, has_header, remarks = header_of(path, first)
    remarks += text.remarks
    if not is_quoted:
        remarks.append("Quotation marks are part of the text: this file was never quoted.")
    # Lines are counted, so that the estimate is too high where quotes hold line ends.
    rows = text.lines - draft.skipped_lines - has_header
    return replace(draft, columns=columns, has_header=has_header, remarks=tuple(remarks), row_estimate=rows)


def open_lines(path: Path, encoding: str | None = None, sheet: str | None = None) -> DelimitedTable:
    """Opens a text file of a sentence a line, whose commas, quotes and tabs are part of the sentences.

    An empty line is a row without text, so that row i stays line i. A first line that is the name of a column of
    sentences ("sentence", "text") is a header. InputError if the file is empty or no text.
    """
    text = scan(path, encoding)
    with text.open() as file:
        first = file.readline()
    has_header = normalize_name(first.strip()) in SENTENCES and text.lines > 1
    rows = text.lines - has_header
    return DelimitedTable(path, ("sentence",), rows, text.remarks, text, LINES, False, 0, has_header)


def _delimiter(head: str, suffix: str) -> str:
    """The delimiter that splits the first records best, by usual column names, then by equal numbers of fields."""
    if suffix in (".tsv", ".tab") and "\t" in head.partition("\n")[0]:
        return "\t"
    # csv.reader ends lines at \n and \r alone.
    lines = list(StringIO(head, newline=""))
    if len(lines) > 1 and not head.endswith(("\n", "\r")):
        # The last line is cut short by the size of the sample.
        lines.pop()

    def merit(delimiter: str) -> tuple[int, float, int]:
        try:
            records = [record for record in islice(csv.reader(lines, delimiter=delimiter), SNIFFED_RECORDS) if record]
        except csv.Error:
            return (0, 0.0, 0)
        if not records or len(records[0]) < 2:
            return (0, 0.0, 0)
        width = len(records[0])
        regular = sum(len(record) == width for record in records) / len(records)
        return (sum(map(is_usual_name, records[0])), round(regular, 1), width)

    best = max(DELIMITERS, key=merit)
    names, regular, width = merit(best)
    return best if width >= 2 and (names or regular >= 0.5) else NO_DELIMITER


def _is_never_quoted(text: TextFile) -> bool:
    """Whether quotes in a tab-separated file are plain characters, because every line with an odd one has all fields.

    A first line with all fields in quotes means that the file was quoted.
    """
    has_odd_quotes = False
    with text.open() as file:
        first = next(iter(file), "")
        if ALL_QUOTED.fullmatch(first):
            return False
        tabs = first.count("\t")
        for line in file:
            if '"' in line and (line.count('"') % 2 or ODD_QUOTE.search(line)):
                if line.count("\t") < tabs:
                    return False
                has_odd_quotes = True
    return has_odd_quotes
