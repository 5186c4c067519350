"""CSV, TSV and other delimited text; and plain text, a sentence a line.

The first records show the delimiter, unless a first line ``sep=;``, as Excel writes it, names it.
Quoting follows RFC 4180 strictly: a quoted field may hold delimiters and line ends. If that fails,
because a sentence begins with a quotation mark that is not closed, this line is read again as plain
text and marked, and reading continues with the next line. Tab-separated files that were never
quoted, such as the STS benchmark, are recognised by their unbalanced quotes and read without
quoting.
"""

import csv
import re
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from io import StringIO
from itertools import islice
from pathlib import Path

from training.data.tables.cells import as_text
from training.data.tables.columns import header_of, header_row, is_usual_name
from training.data.tables.rows import Record, RowBatch, from_first, gather
from training.data.tables.text import TextFile, TextTable, scan, spoken, suspicion
from training.errors import InputError

DELIMITERS = {
    ",": "commas",
    ";": "semicolons",
    "\t": "tabs",
    "|": "vertical bars",
    "^": "carets",
    "~": "tildes",
}
# The delimiter of a table of one column, a character that no sentence has.
NO_DELIMITER = "\x1f"
# The delimiter of a file with one sentence per line.
LINES = "\x1e"
# Delimiters of several characters. `NO_DELIMITER` replaces them, as the csv module takes only one.
LONG_DELIMITERS = ("|||", "||", "::")
# A longer field, in characters, is a quote that was never closed.
LONGEST_FIELD = 2_000_000
SNIFFED_RECORDS = 50
# The first records among which a header may be.
HEADER_ROWS = 10
# A field that goes on after its closing quote; and a line whose fields are all in quotes.
ODD_QUOTE = re.compile(r'(?:^|\t)"[^"\t]*"[^"\t\r\n]')
ALL_QUOTED = re.compile(r'"[^"\t]*"(?:\t"[^"\t]*")*[\r\n]*')


@dataclass(frozen=True)
class DelimitedTable(TextTable):
    """A delimited text file whose encoding, delimiter, quoting and columns are known."""

    # A character, or one of `LONG_DELIMITERS`. `NO_DELIMITER` and `LINES` are for a single column.
    delimiter: str
    # Whether quotation marks enclose fields. Otherwise they are a part of the text.
    is_quoted: bool
    # 1 where the first line is ``sep=;``.
    skipped_lines: int = 0
    # The number of records before the rows: the header, and titles above it.
    header: int = 0
    # Whether a space may stand between a delimiter and a quote.
    is_spaced: bool = False
    # Whether a backslash stands before a quote inside of quotes, as MySQL and Spark write them.
    is_escaped: bool = False

    @property
    def description(self) -> str:
        delimiter = DELIMITERS.get(self.delimiter, self.delimiter)
        layouts = {NO_DELIMITER: ", one column", LINES: ", a sentence a line"}
        layout = layouts.get(self.delimiter, f" separated by {delimiter}")
        return f"{spoken(self.text.encoding)} text{layout}"

    def _read(self, size: int) -> Iterator[RowBatch]:
        records = self.records()
        # ``header`` is the number of records before the rows. `from_first` skips empty lines at the
        # beginning, which are not counted. Without a header such a line is a row.
        if self.header:
            records = islice(from_first(records), self.header, None)
        # With doubled line ends, every line seems to be followed by an empty one, which is not a
        # row (``blanks``).
        return gather(records, self.columns, size, blanks=not self.text.doubled_ends)

    def records(self) -> Iterator[Record]:
        """Yields every record, the header and blank lines too: its fields, a note or None, and its length."""
        csv.field_size_limit(LONGEST_FIELD)
        # The lines of the record that is being read, and the lines to read again.
        record_lines: list[str] = []
        unread_lines: deque[str] = deque()
        # Notes on rows, by the characters that cause them, such as � for invalid bytes.
        character_notes = self.text.notes
        with self.text.open() as file:
            lines = islice(file, self.skipped_lines, None)

            def feed() -> Iterator[str]:
                """Yields the lines, and collects the lines of the record that is being read."""
                while True:
                    line = unread_lines.popleft() if unread_lines else next(lines, None)
                    if line is None:
                        return
                    record_lines.append(line)
                    # Every part of a concatenated file may begin with a byte order mark.
                    line = line.removeprefix("\ufeff")
                    if len(self.delimiter) > 1:
                        line = line.replace(self.delimiter, NO_DELIMITER)
                    yield line

            reader = self._csv_reader(feed())
            while True:
                record_lines.clear()
                notes = []
                try:
                    record = next(reader)
                except StopIteration:
                    return
                except csv.Error:
                    # Only the first line is part of this record; the others are read again.
                    first, *others = record_lines
                    unread_lines.extendleft(reversed(others))
                    del record_lines[1:]
                    # A space between a quote and a delimiter is an error for the csv module, but
                    # leaves no doubt about the fields.
                    if fields := self._without_spaces(first):
                        record = fields
                    else:
                        record = self._plain(first)
                        # Without quoting, the error has another cause, such as a field above
                        # `LONGEST_FIELD`.
                        if self.is_quoted:
                            notes.append(
                                "a quotation mark is opened and not closed properly; read as plain text"
                            )
                    # The old reader may have reached the end of the file, and would not go on.
                    reader = self._csv_reader(feed())
                if character_notes and (remark := suspicion(record_lines, character_notes)):
                    notes.append(remark)
                # Where each line is a sentence, a line of invisible characters is an empty row.
                if self.delimiter == LINES and as_text("".join(record)) is None:
                    record = []
                yield record, "; ".join(notes) or None, sum(map(len, record_lines))

    def first_records(self) -> list[Sequence[str]]:
        """The first records, without empty ones at the beginning."""
        return [record for record, _, _ in islice(from_first(self.records()), HEADER_ROWS)]

    def _csv_reader(self, lines: Iterator[str], strict: bool = True) -> Iterator[list[str]]:
        """Reads records by the layout of the file. With ``strict`` invalid quotes are errors, else text."""
        if not self.is_quoted:
            # In the lines, `NO_DELIMITER` has replaced a delimiter of several characters.
            delimiter = NO_DELIMITER if len(self.delimiter) > 1 else self.delimiter
            return csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            strict=strict,
            skipinitialspace=self.is_spaced,
            escapechar="\\" if self.is_escaped else None,
        )

    def _without_spaces(self, line: str) -> list[str] | None:
        """The fields of a line in which a space stands between a quote and a delimiter; None for any other line."""
        tight = re.sub(rf'" +(?={re.escape(self.delimiter)}|[\r\n]*$)', '"', line)
        if tight != line:
            with suppress(csv.Error):
                return next(self._csv_reader(iter([tight])))
        return None

    def _plain(self, line: str) -> list[str]:
        """The fields of a line with invalid quotes.

        The line is split as plain text. If that does not yield a field for each column, but the csv
        module does where it is not strict, its fields are taken.
        """
        plain = line.rstrip("\r\n").split(self.delimiter)
        if len(plain) != len(self.columns):
            with suppress(csv.Error):
                lenient = next(self._csv_reader(iter([line]), strict=False))
                if len(lenient) == len(self.columns):
                    return lenient
        return plain


def open_delimited(
    path: Path, encoding: str | None = None, sheet: str | None = None
) -> DelimitedTable:
    """Opens a text file by its encoding (unless ``encoding`` names it), delimiter, quoting and header.

    ``sheet`` is ignored, as the file has none; see `training.data.tables.table.Opener`. InputError
    if the file is empty, is not text, or has more columns than a table of sentences can have.
    """
    text = scan(path, encoding)
    head = text.head()
    hint = re.match(r"\s*sep=(.)\r?\n", head)
    delimiter = hint[1] if hint else _delimiter(head, path.suffix.lower())
    is_never_quoted = delimiter == "\t" and _is_never_quoted(text)
    # Quotes are not read beside a delimiter of several characters.
    is_quoted = len(delimiter) == 1 and not is_never_quoted
    # An escaped quote ends no field: no delimiter follows it.
    escaped_quote = rf'"[^"\n]*\\"[^{re.escape(delimiter)}"\r\n]'
    is_escaped = is_quoted and re.search(escaped_quote, head) is not None
    # The first records, which show the columns, are read by a table without columns.
    draft = DelimitedTable(
        path,
        columns=(),
        row_estimate=0,
        remarks=(),
        text=text,
        delimiter=delimiter,
        is_quoted=is_quoted,
        skipped_lines=1 if hint else 0,
        is_escaped=is_escaped,
    )
    first = draft.first_records()
    # In `"a", "b"` the second field begins with a space, so its quotes are not read yet.
    if is_quoted and any(_is_spaced(cell) for record in first for cell in record):
        draft = replace(draft, is_spaced=True)
        first = draft.first_records()
    if not first:
        raise InputError(f"{path.name} is empty: it needs at least a header and one row.")
    columns, header, remarks = header_of(path, first)
    # Commas in a .txt file are a part of its sentences, unless they separate the names of columns.
    # A usual name in the first column alone does not show that they do.
    may_be_lines = path.suffix.lower() == ".txt" and delimiter not in ("\t", *LONG_DELIMITERS)
    if may_be_lines and not any(map(is_usual_name, columns[1:])):
        return open_lines(path, encoding)
    remarks += text.remarks
    if is_never_quoted:
        remarks.append("Quotation marks are part of the text: this file was never quoted.")
    if is_escaped:
        remarks.append('A backslash is read as an escape: \\" is a quotation mark.')
    # The estimate counts lines, so it is too high if there are line ends within quotes.
    rows = text.lines - draft.skipped_lines - header
    return replace(draft, columns=columns, header=header, remarks=tuple(remarks), row_estimate=rows)


def open_lines(path: Path, encoding: str | None = None, sheet: str | None = None) -> DelimitedTable:
    """Opens a text file with one sentence per line. Commas, quotes and tabs are part of the sentences.

    An empty line is a row without text, so that row i is line i. The file has no header. A file
    whose lines have a delimiter of several characters is opened as columns. ``sheet`` is ignored.
    InputError if the file is empty or not text.
    """
    text = scan(path, encoding)
    if _long_delimiter(text.head()):
        return open_delimited(path, encoding)
    return DelimitedTable(
        path,
        columns=("sentence",),
        row_estimate=text.lines,
        remarks=text.remarks,
        text=text,
        delimiter=LINES,
        is_quoted=False,
    )


def _delimiter(head: str, suffix: str) -> str:
    """The delimiter of a file by its first characters; `NO_DELIMITER` for a table of one column.

    A tab in a file named .tsv or .tab, or else a delimiter of several characters, is taken at once.
    Of the others, the one is taken that yields the most usual names in the header, then the largest
    share of records of one width, then the largest width.
    """
    if suffix in (".tsv", ".tab") and "\t" in head:
        return "\t"
    if long := _long_delimiter(head):
        return long
    # `StringIO` ends lines only at \n and \r, as csv.reader does, and not at every line separator of
    # Unicode, as `str.splitlines` does.
    lines = list(StringIO(head, newline=""))
    if len(lines) > 1 and not head.endswith(("\n", "\r")):
        # The last line is cut short by the size of the sample.
        lines.pop()

    def merit(delimiter: str) -> tuple[int, float, int]:
        """The number of usual names in the header, the share of records of the usual width, and this width."""
        records: list[list[str]] = []
        with suppress(csv.Error):
            reader = csv.reader(lines, delimiter=delimiter)
            records = list(filter(None, islice(reader, SNIFFED_RECORDS)))
        if not records:
            return 0, 0.0, 0
        header = records[header_row(records[:HEADER_ROWS])]
        [(width, count)] = Counter(map(len, records)).most_common(1)
        # A header of several cells counts, even if most records have one cell.
        if max(width, len(header)) < 2:
            return 0, 0.0, 0
        regular = count / len(records) if width > 1 else 0.0
        # A few irregular records matter less than the width.
        return sum(map(is_usual_name, header)), round(regular, 1), width

    best = max(DELIMITERS, key=merit)
    names, regular, _ = merit(best)
    # Without usual names in the header, at least half of the records must have one width.
    return best if names or regular >= 0.5 else NO_DELIMITER


def _long_delimiter(head: str) -> str:
    """The delimiter of several characters that all of the first lines have equally often; "" without one."""
    lines = list(filter(str.strip, islice(StringIO(head, newline=""), SNIFFED_RECORDS)))
    if len(lines) > 1:
        # The last line may be cut short.
        lines.pop()
    for delimiter in LONG_DELIMITERS:
        counts = {line.count(delimiter) for line in lines}
        if len(counts) == 1 and min(counts):
            return delimiter
    return ""


def _is_spaced(cell: str) -> bool:
    """Whether a space stands between a delimiter and a quote."""
    return cell.startswith(" ") and cell.strip().startswith('"')


def _is_never_quoted(text: TextFile) -> bool:
    """Whether quotes in a tab-separated file are plain characters.

    They are if there are lines with unbalanced quotes, and none of these has fewer fields than the
    first line. If all fields of the first line are in quotes, the file was quoted.
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
                    # The line ends within a quoted field.
                    return False
                has_odd_quotes = True
    return has_odd_quotes
