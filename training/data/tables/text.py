"""How the bytes of a text file become characters: one fast pass over the whole file decides, and nothing guesses.

A guess from the first kilobytes fails at row 900,000. So ``scan`` reads all bytes once, a megabyte at a time:
a byte order mark settles it; without one, the file is UTF-8 if every byte of it is. Where it is not, its lines are
looked at one by one. If some are UTF-8 and others are not, the others are read in the encoding that they seem to be in,
and marked; broken characters within lines of UTF-8 become �, and those lines are marked. If hardly any line is UTF-8,
the whole file is in another encoding, which `training.data.tables.encodings` guesses, with a certainty that is stated;
where none fits, the file is refused and the user names it. An encoding that the user names is taken as it is. UTF-16
without a mark shows by its zero bytes. The same pass counts the lines, which gives every progress bar its total, and
looks for zero bytes and for lines so long that the file cannot be a table.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import TextIOWrapper
from itertools import chain
from pathlib import Path

from training.data.tables.encodings import LOW, SAMPLE, Guess, ascii_encoding, guess_encoding, named_encoding, spoken
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
OTHER = "\ufdd0"  # a code that no text has: what follows it was not UTF-8
CONTROL = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f\x7f]")
# The share of control bytes in a text. Random bytes hold 0.11, and text in an encoding of other days none: UTF-8, which
# random bytes are not, may hold more, since some programs leave zero bytes in it.
MOST_CONTROL, MOST_CONTROL_BESIDES_UTF8 = 0.1, 0.02


class UnknownEncodingError(InputError):
    """A text file is not UTF-8, and no encoding fits it with any certainty: the user has to name it."""


@dataclass(frozen=True)
class TextFile:
    """A text file whose encoding is known to hold from its first byte to its last."""

    path: Path
    encoding: str
    lines: int  # the number of rows and header, but for line ends inside quotes
    damaged: int = 0  # bytes that are not what the encoding allows; each reads as �
    other: str = ""  # the encoding of the lines that are not UTF-8, in a file whose other lines are
    other_lines: int = 0  # how many they are
    guess: Guess | None = None  # how the encoding was found, if it is not UTF-8 and was not named
    has_nul: bool = False
    doubled_ends: bool = False  # lines end \r\r\n: written in text mode on Windows, each seems followed by a blank

    @property
    def spoken_encoding(self) -> str:
        """The encoding in words: "UTF-8 with a byte order mark"."""
        return spoken(self.encoding)

    @property
    def suspicious(self) -> str:
        """The characters whose presence marks a row: � in a damaged file, zero bytes, `OTHER` in a mixed file."""
        return ("\ufffd" if self.damaged else "") + ("\0" if self.has_nul else "") + (OTHER if self.other else "")

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the user should know about the characters, a sentence each."""
        remarks = [self.guess.remark] if self.guess else []
        if self.other:
            lines = f"{self.other_lines:,} line{'s are' if self.other_lines > 1 else ' is'}"
            remarks.append(f"{lines} not UTF-8 as the others, and read as {spoken(self.other)}; their rows are marked.")
        elif self.damaged:
            remarks.append(
                f"{self.damaged:,} broken {self.spoken_encoding} characters read as �; their rows are marked."
            )
        if self.has_nul:
            remarks.append("Some text holds zero bytes; the rows are marked.")
        return tuple(remarks)

    def open(self) -> TextIOWrapper:
        """The file as text, line ends untouched. What is read in the other encoding of a mixed file follows `OTHER`."""
        errors = _read_as(self.other) if self.other else "replace" if self.damaged else "strict"
        return self.path.open("r", encoding=self.encoding, errors=errors, newline="")

    def head(self, characters: int = 1 << 18) -> str:
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


def scan(path: Path, encoding: str | None = None) -> TextFile:
    """Read the file once and say how it is encoded. ``encoding`` is what the user says that it is; None to find out.

    InputError if the file is empty, is not text, or is not in the encoding that it announces or that was named; its
    subclass UnknownEncodingError if the encoding was not named and cannot be found out.
    """
    with path.open("rb") as file:
        head = file.read(1 << 16)
    if not head.strip(b"\0 \t\r\n\xef\xbb\xbf\xff\xfe"):
        needed = "one line" if path.suffix.lower() == ".txt" else "a header and one row"
        raise InputError(f"{path.name} is empty: it needs at least {needed}.")
    announced = next((name for mark, name in MARKS.items() if head.startswith(mark)), None)
    announced = announced or _utf16_by_its_zeros(head)
    if encoding:
        named = named_encoding(encoding)
        announced = announced if announced and named.startswith(announced) else named
    control = 0 if announced else len(CONTROL.findall(head))
    not_text = InputError(f"{path.name} is not a text file. {WANTED}")
    if control > MOST_CONTROL * len(head):
        raise not_text

    tally = _Tally()
    decoder = codecs.getincrementaldecoder(announced or "utf-8")()
    position, broken_at = 0, None
    for chunk in chain(_chunks(path), [b""]):
        tally.add(chunk, path)
        if broken_at is None:
            try:
                decoder.decode(chunk, final=not chunk)
            except UnicodeError as error:
                broken_at = position + getattr(error, "start", 0)
        position += len(chunk)
    text = TextFile(
        path=path,
        encoding=announced or "utf-8",
        lines=(tally.newlines or tally.returns) + (tally.since_line_end > 0),
        has_nul=tally.nul > 0 and not (announced or "").startswith(("utf-16", "utf-32")),
        doubled_ends=b"\r\r\n" in head,
    )
    if broken_at is None:
        if announced is None and (found := ascii_encoding(head)):
            return replace(text, encoding=found, guess=Guess(found, 1.0))
        return text
    if encoding:
        return replace(text, damaged=max(1, _count_damage(path, text.encoding)))
    if announced not in (None, "utf-8-sig"):
        raise InputError(
            f"{path.name} begins as {text.spoken_encoding}, but breaks it near byte {broken_at:,}: save it as UTF-8."
        )
    if control > MOST_CONTROL_BESIDES_UTF8 * len(head):
        raise not_text
    return _by_lines(text)


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
                read = line.decode("utf-8", "replace")
                bad = read.count("\ufffd")
                if sum(not character.isascii() for character in read) > 2 * bad:  # mostly good: UTF-8 that was damaged
                    broken += 1
                else:
                    other += 1
                if len(sample) < SAMPLE:
                    sample += line[:SAMPLE]
    if text.encoding == "utf-8-sig" or broken + good > 0.1 * other:
        mixed = guess_encoding(bytes(sample)) if good and other > broken else None
        if other <= broken or (mixed and mixed.certainty < LOW):
            return replace(text, damaged=_count_damage(text.path, text.encoding))
        if mixed:
            return replace(text, other=mixed.encoding, other_lines=other + broken)
    guess = guess_encoding(bytes(sample))
    if not guess.certainty:
        raise UnknownEncodingError(
            f"{text.path.name} is not UTF-8, and no other encoding fits it with certainty. Name its encoding "
            "(--encoding), such as windows-1252, windows-1251, shift_jis, gb18030, big5 or euc_kr; or save it as UTF-8."
        )
    damaged = 0 if guess.encoding == "latin-1" else _count_damage(text.path, guess.encoding)
    return replace(text, encoding=guess.encoding, damaged=damaged, guess=guess)


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


def _count_damage(path: Path, encoding: str) -> int:
    """The number of broken sequences when the file is read in this encoding."""
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    return sum(decoder.decode(chunk, final=not chunk).count("\ufffd") for chunk in chain(_chunks(path), [b""]))
