"""CSV, TSV and other delimited text.

The delimiter is found from the first records; a first line ``sep=;``, as Excel writes it, decides. Quoting follows
RFC 4180 strictly: a quoted field may hold delimiters and line ends. Where that fails, because a sentence merely
begins with a quotation mark, that one line is read again as plain text and marked, and reading continues with the
next line: an unclosed quote costs a note, not the rest of the file. Tab-separated files that were never quoted
(the STS benchmark is one) are recognised by their unbalanced quotes and read without quoting.
"""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from itertools import islice
from pathlib import Path

from training.data.tables.columns import header_of, is_known
from training.data.tables.rows import BATCH_ROWS, Reader, Record, RowBatch, from_first, gather
from training.data.tables.text import OTHER, TextFile, scan
from training.errors import InputError

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
NO_DELIMITER = "\x1f"  # a character that sentences do not hold: one column, commas and all
LONGEST_FIELD = 2_000_000  # characters; a longer field is a quote that was never closed
SNIFFED_RECORDS = 50
ODD_QUOTE = re.compile(r'(?:^|\t)"[^"\t]*"[^"\t\r\n]')
ALL_QUOTED = re.compile(r'"[^"\t]*"(?:\t"[^"\t]*")*[\r\n]*')


@dataclass(frozen=True)
class DelimitedReader(Reader):
    """A delimited text file whose encoding, delimiter, quoting and columns are known."""

    text: TextFile
    delimiter: str
    quoted: bool
    skipped_lines: int  # the line ``sep=;``
    columns: tuple[str, ...]
    has_header: bool
    remarks: tuple[str, ...]
    row_estimate: int = 0  # by the number of lines; more than there are where quotes hold line ends

    @property
    def description(self) -> str:
        separated = DELIMITERS.get(self.delimiter)
        return f"{self.text.spoken_encoding} text" + (f" separated by {separated}" if separated else ", one column")

    def batches(self, size: int = BATCH_ROWS) -> Iterator[RowBatch]:
        records = islice(from_first(self.records()), int(self.has_header), None)
        return gather(records, self.columns, size, blanks=not self.text.doubled_ends)

    def records(self) -> Iterator[Record]:
        """Every record, the header and blank lines too."""
        csv.field_size_limit(LONGEST_FIELD)
        taken: list[str] = []  # the lines of the record being read
        returned: deque[str] = deque()  # lines to be read again
        suspicious = self.text.suspicious
        with self.text.open() as file:
            lines = islice(file, self.skipped_lines, None)

            def feed() -> Iterator[str]:
                while True:
                    line = returned.popleft() if returned else next(lines, None)
                    if line is None:
                        return
                    taken.append(line)
                    yield line

            reader = self._csv_reader(feed())
            while True:
                taken.clear()
                note = None
                try:
                    record = next(reader)
                except StopIteration:
                    return
                except csv.Error:
                    returned.extendleft(reversed(taken[1:]))
                    record = self._plain(taken[0])
                    note = "a quotation mark is opened and not closed properly; read as plain text"
                    del taken[1:]
                    reader = self._csv_reader(feed())
                if suspicious:
                    note = "; ".join(filter(None, (note, _suspicion(taken, suspicious)))) or None
                    if OTHER in suspicious:
                        record = [cell.replace(OTHER, "") for cell in record]
                yield record, note, sum(map(len, taken))

    def _csv_reader(self, lines: Iterator[str], strict: bool = True) -> Iterator[list[str]]:
        if not self.quoted:
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


def open_delimited(path: Path, encoding: str | None = None) -> DelimitedReader:
    """Determine encoding (unless it is given), delimiter, quoting and header of a text file.

    InputError if the file is empty, is not text, or has more columns than a table of sentences can have.
    """
    text = scan(path, encoding)
    head = text.head()
    hint = re.match(r"\s*sep=(.)\r?\n", head)
    skipped = 1 if hint else 0
    if hint:
        head = head[hint.end() :]
    delimiter = hint[1] if hint else _delimiter(head, path.suffix.lower())
    quoted = delimiter != "\t" or not _never_quoted(text)
    draft = DelimitedReader(text, delimiter, quoted, skipped, (), has_header=True, remarks=())
    first = next((record for record, _, _ in draft.records() if record), None)
    if first is None:
        raise InputError(f"{path.name} is empty: it needs at least a header and one row.")
    columns, has_header, remarks = header_of(path, first)
    remarks += text.remarks
    if not quoted:
        remarks.append("Quotation marks are part of the text: this file was never quoted.")
    rows = text.lines - skipped - has_header
    return replace(draft, columns=columns, has_header=has_header, remarks=tuple(remarks), row_estimate=rows)


def _delimiter(head: str, suffix: str) -> str:
    """The delimiter that splits the first records best: known column names count most, then equal numbers of fields."""
    if suffix in (".tsv", ".tab") and "\t" in head.partition("\n")[0]:
        return "\t"
    lines = list(StringIO(head, newline=""))  # csv.reader ends lines at \n and \r alone
    if len(lines) > 1 and not head.endswith(("\n", "\r")):
        lines.pop()  # cut short by the size of the sample

    def merit(delimiter: str) -> tuple[int, float, int]:
        try:
            records = [record for record in islice(csv.reader(lines, delimiter=delimiter), SNIFFED_RECORDS) if record]
        except csv.Error:
            return (0, 0.0, 0)
        if not records or len(records[0]) < 2:
            return (0, 0.0, 0)
        width = len(records[0])
        regular = sum(len(record) == width for record in records) / len(records)
        return (sum(map(is_known, records[0])), round(regular, 1), width)

    best = max(DELIMITERS, key=merit)
    known, regular, width = merit(best)
    return best if width >= 2 and (known or regular >= 0.5) else NO_DELIMITER


def _never_quoted(text: TextFile) -> bool:
    """Whether quotes in a tab-separated file are plain characters: every line with an odd one has all its fields.

    A first line with all fields in quotes means that the file was quoted.
    """
    evidence = False
    with text.open() as file:
        first = next(iter(file), "")
        if ALL_QUOTED.fullmatch(first):
            return False
        tabs = first.count("\t")
        for line in file:
            if '"' in line and (line.count('"') % 2 or ODD_QUOTE.search(line)):
                if line.count("\t") < tabs:
                    return False
                evidence = True
    return evidence


def _suspicion(lines: Sequence[str], characters: str) -> str | None:
    found = {character for character in characters for line in lines if character in line}
    says = {
        OTHER: "is not UTF-8 as other rows are",
        "\ufffd": "holds bytes that are not UTF-8, shown as �",
        "\0": "holds a zero byte",
    }
    return "; ".join(says[character] for character in sorted(found)) or None
