"""How the bytes of a text file become characters: one fast pass over the whole file decides.

A guess from the first kilobytes fails at row 900,000. So `scan` reads all bytes once, a megabyte at a time: a byte
order mark settles it; without one, the file is UTF-8 if every byte of it is. Where it is not, its lines are looked at
one by one. If some are UTF-8 and others are not, the others are read in the encoding that they seem to be in, and
marked; broken characters within lines of UTF-8 become �, and those lines are marked. If hardly any line is UTF-8, the
whole file is in another encoding, which `training.data.tables.encodings` guesses, with a certainty that is stated;
where none fits, the file is refused and the user names it. An encoding that the user names is taken as it is. UTF-16
without a mark shows by its zero bytes. The same pass counts the lines, which gives every progress bar its total, and
looks for zero bytes and for lines so long that the file cannot be a table.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from io import TextIOWrapper
from pathlib import Path

from training.data.tables.encodings import LOW, SAMPLE, Guess, guess_encoding, named_encoding, spoken
from training.data.tables.rows import OpenedTable
from training.errors import InputError

CHUNK = 1 << 20
HEAD = 1 << 16  # bytes that tell text from other files
LONGEST_LINE = 16 << 20  # bytes: no table of sentences has a longer row; reading it would fill the memory
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16: its mark begins with the same two bytes
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
OTHER = "\ufdd0"  # a code that no text has: what follows it was not UTF-8
CONTROL = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f\x7f]")
# The share of control bytes in a text. Random bytes hold 0.11, and text in an encoding of other days none: UTF-8, which
# random bytes are not, may hold more, since some programs leave zero bytes in it.
MOST_CONTROL, MOST_CONTROL_BESIDES_UTF8 = 0.1, 0.02


class UnknownEncodingError(InputError):
    """A text file is not UTF-8, and no encoding fits it with any certainty: the user has to name it."""


class ForeignFileError(InputError):
    """A file is no table, but something else; what can be read is said to its reader as well."""


@dataclass(frozen=True)
class TextFile:
    """A text file whose encoding is known to hold from its first byte to its last."""

    path: Path
    encoding: str
    lines: int  # the number of rows and header, but for line ends inside quotes
    damaged: bool = False  # some bytes are not what the encoding allows; each reads as �
    other: str = ""  # the encoding of the lines that are not UTF-8, in a file whose other lines are
    other_lines: int = 0  # how many they are
    guess: Guess | None = None  # how the encoding was found out, if it is not UTF-8 and was not named
    is_named: bool = False  # whether the user has named the encoding
    has_nul: bool = False
    doubled_ends: bool = False  # lines end \r\r\n: written in text mode on Windows, each seems followed by a blank

    @property
    def spoken_encoding(self) -> str:
        """The encoding in words: "UTF-8 with a byte order mark"."""
        return spoken(self.encoding)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the user should know about the characters, a sentence each."""
        remarks = [self.guess.remark] if self.guess else []
        if self.other:
            lines = f"{self.other_lines:,} line{'s are' if self.other_lines > 1 else ' is'}"
            remarks.append(f"{lines} not UTF-8 as the others, and read as {spoken(self.other)}; their rows are marked.")
        elif self.damaged:
            remarks.append(f"Bytes that are not {self.spoken_encoding} are read as �; their rows are marked.")
        if self.has_nul:
            remarks.append("Some text holds zero bytes; the rows are marked.")
        return tuple(remarks)

    @property
    def notes(self) -> dict[str, str]:
        """Characters whose presence marks a row, and the notes on it."""
        notes = {"\0": "holds a zero byte"} if self.has_nul else {}
        if self.damaged or self.guess:
            notes["\ufffd"] = f"holds bytes that are not {self.spoken_encoding}, shown as �"
        if self.other:
            notes[OTHER] = "is not UTF-8 as other rows are"
        return notes

    def open(self) -> TextIOWrapper:
        """The file as text, line ends untouched. What is read in the other encoding of a mixed file follows `OTHER`."""
        errors = _read_as(self.other) if self.other else "replace" if self.damaged or self.guess else "strict"
        return self.path.open("r", encoding=self.encoding, errors=errors, newline="")

    def head(self, characters: int = 1 << 18) -> str:
        """The first characters."""
        with self.open() as file:
            return file.read(characters)


@dataclass(frozen=True)
class TextTable(OpenedTable):
    """A table in a text file."""

    text: TextFile

    @property
    def is_plain(self) -> bool:
        text = self.text
        return not (text.guess or text.other or text.damaged or text.is_named)


def scan(path: Path, encoding: str | None = None) -> TextFile:
    """Read the file once and find its encoding, unless ``encoding`` names it.

    InputError if the file is empty, is not text, or is not in the encoding that it announces or that was named; its
    subclass UnknownEncodingError if the encoding was not named and cannot be found out.
    """
    with path.open("rb") as file:
        head = file.read(HEAD)
    if not head.strip(b"\0 \t\r\n\xef\xbb\xbf\xff\xfe"):
        needed = "one line" if path.suffix.lower() == ".txt" else "a header and one row"
        raise InputError(f"{path.name} is empty: it needs at least {needed}.")
    announced = next((name for mark, name in MARKS.items() if head.startswith(mark)), None)
    announced = announced or _utf16_by_its_zeros(head)
    if encoding:
        named = named_encoding(encoding)
        announced = announced if announced and named.startswith(announced) else named
    control = 0 if announced else len(CONTROL.findall(head))
    if control > MOST_CONTROL * len(head):
        raise ForeignFileError(f"{path.name} is not a text file.")
    text, broken_at = _read_through(path, announced or "utf-8", doubled_ends=b"\r\r\n" in head)
    if encoding:
        return replace(text, is_named=True, damaged=broken_at is not None)
    if broken_at is None:
        return text
    if announced not in (None, "utf-8-sig"):
        raise InputError(
            f"{path.name} begins as {text.spoken_encoding}, but breaks it near byte {broken_at:,}: save it as UTF-8."
        )
    if control > MOST_CONTROL_BESIDES_UTF8 * len(head):
        raise ForeignFileError(f"{path.name} is not a text file.")
    return _by_lines(text)


def suspicion(lines: Iterable[str], notes: dict[str, str]) -> str | None:
    """The notes on a row: those whose characters are in its ``lines``."""
    return "; ".join([note for character, note in notes.items() if any(character in line for line in lines)]) or None


def _read_through(path: Path, encoding: str, doubled_ends: bool) -> tuple[TextFile, int | None]:
    """The file by all of its bytes, and near which one it is not of this encoding; None if it is throughout.

    InputError if a line is far too long.
    """
    decoder = codecs.getincrementaldecoder(encoding)()
    newlines = returns = nul = since_line_end = position = 0
    broken_at = None
    for chunk in _chunks(path):
        newlines, returns, nul = newlines + chunk.count(b"\n"), returns + chunk.count(b"\r"), nul + chunk.count(b"\0")
        last = max(chunk.rfind(b"\n"), chunk.rfind(b"\r"))
        since_line_end = len(chunk) - last - 1 if last >= 0 else since_line_end + len(chunk)
        if since_line_end > LONGEST_LINE:
            raise InputError(
                f"{path.name}, line {max(newlines, returns) + 1:,}, is longer than {LONGEST_LINE >> 20} MB: this is no "
                "table of sentences, or its line ends are missing."
            )
        if broken_at is None:
            try:
                decoder.decode(chunk, final=not chunk)
            except UnicodeError as error:
                broken_at = position + getattr(error, "start", 0)
        position += len(chunk)
    has_nul = nul > 0 and not encoding.startswith(("utf-16", "utf-32"))
    lines = (newlines or returns) + (since_line_end > 0)
    return TextFile(path, encoding, lines, has_nul=has_nul, doubled_ends=doubled_ends), broken_at


def _by_lines(text: TextFile) -> TextFile:
    """A file that is not UTF-8 throughout: damaged, mixed, or in another encoding."""
    good, broken, other, sample = 0, 0, 0, bytearray()
    with text.path.open("rb") as file:
        for line in file:
            if line.isascii():
                continue
            try:
                line.decode("utf-8")
                good += 1
            except UnicodeDecodeError:
                lenient = line.decode("utf-8", "replace")
                # A line that is mostly good is UTF-8 that was damaged.
                if sum(not character.isascii() for character in lenient) > 2 * lenient.count("\ufffd"):
                    broken += 1
                else:
                    other += 1
                if len(sample) < SAMPLE:
                    sample += line[:SAMPLE]
    guess = guess_encoding(bytes(sample))
    if text.encoding == "utf-8-sig" or broken + good > 0.1 * other:
        if other <= broken or (good and guess.certainty < LOW):
            return replace(text, damaged=True)
        if good:
            return replace(text, other=guess.encoding, other_lines=other + broken)
    if not guess.certainty:
        raise UnknownEncodingError(
            f"{text.path.name} is not UTF-8, and no other encoding fits it with certainty. Name its encoding "
            "(--encoding), such as windows-1252, windows-1251, shift_jis, gb18030, big5 or euc_kr; or save it as UTF-8."
        )
    return replace(text, encoding=guess.encoding, guess=guess)


def _read_as(encoding: str) -> str:
    """The name of an error handler that reads bytes that are not UTF-8 in another encoding, and puts `OTHER` before."""
    name = f"sbert_lab_{encoding}"

    def handle(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeDecodeError):
            raise error
        return OTHER + error.object[error.start : error.end].decode(encoding, "replace"), error.end

    codecs.register_error(name, handle)
    return name


def _chunks(path: Path) -> Iterator[bytes]:
    """The bytes of the file in order, an empty piece last."""
    with path.open("rb") as file:
        yield from iter(lambda: file.read(CHUNK), b"")
    yield b""


def _utf16_by_its_zeros(head: bytes) -> str | None:
    """UTF-16 of any European text has a zero in every second byte; text in other encodings has none."""
    even, odd = head[0::2].count(0), head[1::2].count(0)
    if odd > 0.4 * len(head) / 2 and even < 0.1 * odd:
        return "utf-16-le"
    if even > 0.4 * len(head) / 2 and odd < 0.1 * even:
        return "utf-16-be"
    return None
