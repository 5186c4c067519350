"""How the bytes of a text file become characters: one fast pass over the whole file decides, and nothing guesses.

A guess from the first kilobytes fails at row 900,000. So ``scan`` reads all bytes once, a megabyte at a time:
a byte order mark settles it; without one, the file is UTF-8 if every byte of it is; a file with a few broken
bytes among good UTF-8 is read as UTF-8 with � in their place (and says so); anything else is Windows-1252,
or Latin-1 where it uses the five codes that Windows-1252 lacks. UTF-16 without a mark shows by its zero bytes.
The same pass counts the lines, which gives every progress bar its total, and looks for zero bytes and for
lines so long that the file cannot be a table.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import chain
from pathlib import Path

from training.errors import InputError

CHUNK = 1 << 20
LONGEST_LINE = 16 << 20  # bytes: no table of sentences has a longer row; reading it would fill the memory
WANTED = "Give a CSV, TSV, JSON Lines, Parquet or XLSX file."
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16: its mark begins with the same two bytes
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
SPOKEN = {
    "utf-8": "UTF-8",
    "utf-8-sig": "UTF-8 with a byte order mark",
    "utf-16": "UTF-16",
    "utf-16-le": "UTF-16",
    "utf-16-be": "UTF-16",
    "utf-32": "UTF-32",
    "cp1252": "Windows-1252",
    "latin-1": "Latin-1",
}
UNDEFINED_IN_CP1252 = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
CONTROL = re.compile(rb"[\x01-\x08\x0e-\x1a\x1c-\x1f\x7f]")


@dataclass(frozen=True)
class TextFile:
    """A text file whose encoding is known to hold from its first byte to its last."""

    path: Path
    encoding: str
    lines: int  # the number of rows and header, but for line ends inside quotes
    damaged: int = 0  # bytes that are not what the encoding allows; each reads as �
    has_nul: bool = False
    doubled_ends: bool = False  # lines end \r\r\n: written in text mode on Windows, each seems followed by a blank

    @property
    def spoken_encoding(self) -> str:
        """The encoding in words: "UTF-8 with a byte order mark"."""
        return SPOKEN[self.encoding]

    @property
    def suspicious(self) -> str:
        """The characters whose presence marks a row: � in a damaged file, the zero byte where there is one."""
        return ("\ufffd" if self.damaged else "") + ("\0" if self.has_nul else "")

    def open(self) -> TextIOWrapper:
        """The file as text, line ends untouched."""
        errors = "replace" if self.damaged else "strict"
        return self.path.open("r", encoding=self.encoding, errors=errors, newline="")

    def head(self, characters: int = 1 << 18) -> str:
        """The first ``characters`` of the file."""
        with self.open() as file:
            return file.read(characters)


@dataclass
class _Tally:
    """What one pass over the bytes counts."""

    newlines: int = 0
    returns: int = 0
    nul: int = 0
    since_line_end: int = 0

    def add(self, chunk: bytes, path: Path) -> None:
        self.newlines += chunk.count(b"\n")
        self.returns += chunk.count(b"\r")
        self.nul += chunk.count(b"\0")
        last = max(chunk.rfind(b"\n"), chunk.rfind(b"\r"))
        self.since_line_end = len(chunk) - last - 1 if last >= 0 else self.since_line_end + len(chunk)
        if self.since_line_end > LONGEST_LINE:
            line = max(self.newlines, self.returns) + 1
            raise InputError(
                f"{path.name}, line {line:,}, is longer than {LONGEST_LINE >> 20} MB: this is no table of sentences, "
                "or its line ends are missing."
            )


def scan(path: Path) -> TextFile:
    """Read the file once and say how it is encoded.

    Raises:
        InputError: the file is empty, is not text, or breaks the encoding that its first bytes announce.
    """
    with path.open("rb") as file:
        head = file.read(1 << 16)
    if not head.strip(b"\0 \t\r\n\xef\xbb\xbf\xff\xfe"):
        raise InputError(f"{path.name} is empty: it needs a header and at least one row.")
    announced = next((name for mark, name in MARKS.items() if head.startswith(mark)), None)
    announced = announced or _utf16_by_its_zeros(head)
    if announced is None and len(CONTROL.findall(head)) + head.count(b"\0") > 0.1 * len(head):
        raise InputError(f"{path.name} is not a text file. {WANTED}")

    tally = _Tally()
    decoder = codecs.getincrementaldecoder(announced or "utf-8")()
    position, broken_at, latin = 0, None, False
    for chunk in _chunks(path):
        tally.add(chunk, path)
        if broken_at is None:
            try:
                decoder.decode(chunk)
            except UnicodeDecodeError as error:
                broken_at = position + error.start
        latin = latin or UNDEFINED_IN_CP1252.search(chunk) is not None
        position += len(chunk)
    if broken_at is None:
        try:
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            broken_at = position

    encoding, damaged = announced or "utf-8", 0
    if broken_at is not None:
        if announced not in (None, "utf-8-sig"):
            raise InputError(
                f"{path.name} begins as {SPOKEN[encoding]}, but breaks it near byte {broken_at:,}: save it as UTF-8."
            )
        damaged, good = _count_damage(path, encoding)
        if announced is None and damaged > 0.1 * good:  # its accents are no UTF-8 at all
            encoding, damaged = ("latin-1" if latin else "cp1252"), 0
    return TextFile(
        path=path,
        encoding=encoding,
        lines=(tally.newlines or tally.returns) + (tally.since_line_end > 0),
        damaged=damaged,
        has_nul=tally.nul > 0 and not encoding.startswith(("utf-16", "utf-32")),
        doubled_ends=b"\r\r\n" in head,
    )


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def _utf16_by_its_zeros(head: bytes) -> str | None:
    """UTF-16 of any European text has a zero in every second byte; text in other encodings has none."""
    even, odd = head[0::2].count(0), head[1::2].count(0)
    if odd > 0.4 * len(head) / 2 and even < 0.1 * odd:
        return "utf-16-le"
    if even > 0.4 * len(head) / 2 and odd < 0.1 * even:
        return "utf-16-be"
    return None


def _count_damage(path: Path, encoding: str) -> tuple[int, int]:
    """(broken sequences, good characters beyond ASCII) when the file is read as UTF-8."""
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    broken = good = 0
    for chunk in chain(_chunks(path), [b""]):
        text = decoder.decode(chunk, final=not chunk)
        bad = text.count("\ufffd")
        broken += bad
        good += len(text) - bad - sum(map(len, re.findall(r"[\x00-\x7f]+", text)))
    return broken, good
