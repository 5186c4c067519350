"""Users' files as tables: CSV, TSV, JSON Lines, Parquet and workbooks in any encoding, opened once and read in batches.

>>> table = open_table(Path("pairs.csv"))
>>> table.description, table.columns, table.row_estimate
>>> for batch in table.batches(): batch.first_row, batch.rows["sentence1"], batch.notes

`open_table` determines format, encoding, delimiter and columns before the first row is used, and
raises one clear sentence if a file cannot be used. Later it neither guesses nor drops anything:
malformed rows come with a note. The first bytes decide the format, and the file name only where
they do not: a workbook named .csv is still a workbook. Each format has a module of its own beside
this one, and its line in `FORMATS`; names of columns are in `columns`, text and numbers in `cells`.
"""

import gzip
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from training.data.tables.columns import listed
from training.data.tables.csv import open_delimited, open_lines
from training.data.tables.json import open_json
from training.data.tables.lists import with_two_sentences
from training.data.tables.rows import OpenedTable, file_version
from training.data.tables.text import ForeignFileError
from training.data.tables.workbook import UnknownSheetError, open_workbook
from training.errors import InputError

# A function of a file, its encoding and its sheet. A format without encodings or sheets ignores
# them: `open_table` raises the error for the sheet of a file that is not a workbook.
Opener = Callable[[Path, str | None, str | None], OpenedTable]


class Format(NamedTuple):
    """A format of tables."""

    name: str
    suffixes: tuple[str, ...]
    open: Opener
    # The first bytes that tell its files, whatever their names. White space before them is ignored.
    beginnings: tuple[bytes, ...] = ()
    # Whether all of its files have one of these beginnings.
    is_binary: bool = False


def _open_parquet(path: Path, encoding: str | None, sheet: str | None) -> OpenedTable:
    # This module imports pyarrow, which takes time and is not needed for other formats.
    from training.data.tables.parquet import open_parquet

    return open_parquet(path, encoding, sheet)


WORKBOOKS = (".xlsx", ".xlsm", ".xls", ".xlsb", ".ods")
# The first is the format of files that no other claims.
FORMATS = (
    Format("CSV", (".csv",), open_delimited),
    Format("TSV", (".tsv", ".tab"), open_delimited),
    Format("JSON Lines", (".jsonl", ".ndjson", ".json"), open_json, (b"{", b"[{", b"[\n")),
    Format("Parquet", (".parquet",), _open_parquet, (b"PAR1",), is_binary=True),
    Format(
        "Excel",
        WORKBOOKS,
        open_workbook,
        (b"PK\x03\x04", b"PK\x05\x06", b"\xd0\xcf\x11\xe0"),
        is_binary=True,
    ),
)
SUFFIXES = tuple(suffix for file_format in FORMATS for suffix in file_format.suffixes)

# The most bytes that a .gz file may unpack to.
MOST_UNPACKED = 1 << 30
# Files that are not tables, by their first bytes: what such a file is, and what to do.
FOREIGN = {
    b"version https://git-lfs.github.com/spec/": "a Git LFS pointer and not the data: run git lfs pull",
    b"\x1f\x8b": "a gzip archive: unpack it first",
    b"BZh": "a bzip2 archive: unpack it first",
    b"\xfd7zXZ": "an xz archive: unpack it first",
    b"7z\xbc\xaf": "a 7z archive: unpack it first",
    b"\x28\xb5\x2f\xfd": "a zstd archive: unpack it first",
    b"Rar!": "a RAR archive: unpack it first",
    b"%PDF": "a PDF",
    **dict.fromkeys((b"\x89PNG", b"\xff\xd8\xff", b"GIF8"), "an image"),
    b"SQLite format 3": "an SQLite database: export the table as CSV",
    **dict.fromkeys((b"ARROW1", b"FEA1", b"\xff\xff\xff\xff"), "an Arrow file: save it as Parquet"),
    **dict.fromkeys(
        (b"<!DOCTYPE", b"<!doctype", b"<html", b"<HTML", b"<table"),
        "a web page: fetch the file itself, or save its table as CSV",
    ),
    b"<?xml": "an XML file: save it as CSV",
    b"{\\rtf": "an RTF document: save it as text",
    b"\x93NUMPY": "a NumPy array",
    b"\x7fELF": "a program",
    b"ID3": "an MP3 file",
    **{bytes([0x80, protocol]): "a pickle" for protocol in range(2, 6)},
}


def open_table(
    path: Path | str, encoding: str | None = None, sheet: str | None = None, lines: bool = False
) -> OpenedTable:
    """Opens a user's file. InputError if there is none, it is damaged, of another format, or has no such sheet or rows.

    ``encoding`` is the encoding of a text file, such as windows-1251; None to find out. ``sheet``
    names a sheet of a workbook; None for the one whose rows have the most sentences. With ``lines``
    each line of a .txt file is one sentence, even if it has commas.
    """
    path = Path(path)
    # Taken before the file is read, so that every later change is noticed.
    version = file_version(path)
    try:
        if not path.exists():
            raise InputError(f"There is no file {path}.")
        if not path.is_file():
            raise InputError(f"{path} is not a file.")
        if lines and path.suffix.lower() == ".txt":
            open_file: Opener = open_lines
        else:
            open_file = _format(path).open
        table = replace(with_two_sentences(open_file(path, encoding, sheet)), version=version)
        if sheet and not table.sheets:
            raise UnknownSheetError(
                f"{path.name} is no workbook and has no sheet {sheet}; leave it out."
            )
        has_rows = len(table.preview(1)) > 0
    except ForeignFileError as error:
        formats = any_of([file_format.name for file_format in FORMATS])
        raise InputError(f"{error} Give a {formats} file.") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    if not has_rows:
        raise InputError(f"{path.name} has a header with {listed(table.columns)}, but no rows.")
    return table


def any_of(names: Sequence[str]) -> str:
    """The names in words: "CSV, TSV or XLSX"."""
    return f"{', '.join(names[:-1])} or {names[-1]}"


@contextmanager
def opened_file(
    path: Path, encoding: str | None = None, sheet: str | None = None
) -> Iterator[OpenedTable]:
    """The table of a file, or of a .gz file; errors as `open_table`, and for a .gz file that unpacks to too much."""
    if path.suffix.lower() != ".gz":
        yield open_table(path, encoding, sheet)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield open_table(_unpack(path, Path(folder)), encoding, sheet)


def _format(path: Path) -> Format:
    """The format of a file by its first bytes, or else by its name. ForeignFileError if it is none of `FORMATS`."""
    with path.open("rb") as file:
        head = file.read(4096)
    for beginning, words in FOREIGN.items():
        if head.startswith(beginning):
            raise ForeignFileError(f"{path.name} is {words}.")
    if head[257:262] == b"ustar":
        raise ForeignFileError(f"{path.name} is a tar archive: unpack it first.")
    start = head.lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n\0")
    for file_format in FORMATS:
        if start.startswith(file_format.beginnings):
            return file_format
    suffix = path.suffix.lower()
    for file_format in FORMATS:
        if suffix in file_format.suffixes:
            if not file_format.is_binary:
                return file_format
            # An empty file is opened as CSV, which raises the error for empty files.
            if head:
                raise ForeignFileError(f"{path.name} is named {suffix}, but it is not one.")
    # Any other file is opened as CSV.
    return FORMATS[0]


def _unpack(path: Path, folder: Path) -> Path:
    """Unpacks a gzip file into a folder, and returns its path there.

    InputError if it is damaged, or unpacks to more than `MOST_UNPACKED` bytes.
    """
    size = 0
    unpacked = folder / path.stem
    try:
        with gzip.open(path) as packed, unpacked.open("wb") as file:
            while piece := packed.read(1 << 20):
                size += len(piece)
                if size > MOST_UNPACKED:
                    limit = f"{MOST_UNPACKED >> 30} GB"
                    raise InputError(f"{path.name} unpacks to more than {limit}: give a part of it")
                file.write(piece)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path.name} is no complete gzip file: fetch or pack it again") from error
    except OSError as error:
        raise InputError(f"{path.name} cannot be unpacked: {error.strerror or error}") from error
    return unpacked
