"""The characters of a text file, whose encoding one fast pass over all of its bytes decides.

A guess from the first kilobytes could fail at row 900,000. So `scan` reads all bytes once, a
megabyte at a time, and also counts the lines, which progress bars need. A byte order mark decides.
Without one, the file is UTF-8 if all of its bytes are valid. Otherwise:

- If most lines that are not ASCII are UTF-8, the file is. Invalid bytes become �, and their lines
  are marked.
- Otherwise charset-normalizer guesses the encoding, and a remark says so and quotes some lines. If
  no encoding fits, the file is refused until the user names one.

An encoding that the user names is used even if some bytes do not fit it.
"""

import codecs
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from io import TextIOWrapper
from itertools import chain
from pathlib import Path

from training.data.tables.cells import quoted
from training.data.tables.rows import OpenedTable
from training.errors import InputError

CHUNK = 1 << 20
# The number of first bytes that tell text from other files.
HEAD = 1 << 16
# In bytes. No table of sentences has a longer line, and reading one would fill the memory.
LONGEST_LINE = 16 << 20
# UTF-32 comes first, because its mark begins with the mark of UTF-16.
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# The encodings of files without a byte order mark.
WITHOUT_MARK = {"utf-16": "utf-16-le", "utf-32": "utf-32-le"}
CONTROL = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f\x7f]")
# The largest share of control bytes in a text, as some programs leave zero bytes. Random bytes have
# a share of 0.11.
MOST_CONTROL = 0.1
# The number of bytes, of lines that are not ASCII, from which an encoding is guessed.
SAMPLE = 1 << 17
# The number of lines that a remark on a guess quotes.
QUOTED_LINES = 3


class UnknownEncodingError(InputError):
    """A text file is not UTF-8 and no other encoding fits, so the user has to name the encoding."""


class ForeignFileError(InputError):
    """A file is not a table. `open_table` adds the formats that can be read to the message."""


@dataclass(frozen=True)
class TextFile:
    """A text file and its encoding.

    Attributes:
        lines: the number of lines. Rows may be fewer, as quoted cells may have line ends.
        guessed_lines: the first lines that are not ASCII, as the guessed encoding reads them; empty
            if the encoding is not a guess.
        is_named: whether the user has named the encoding.
        damaged: whether some bytes do not fit the encoding; each is read as �.
        has_nul: whether there are zero bytes.
        doubled_ends: whether lines end with CR CR LF, which text mode on Windows writes. Each line
            then seems to be followed by an empty one.
    """

    path: Path
    encoding: str
    lines: int
    guessed_lines: tuple[str, ...] = ()
    is_named: bool = False
    damaged: bool = False
    has_nul: bool = False
    doubled_ends: bool = False

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks on the characters for the user, a sentence each."""
        remarks = []
        if self.guessed_lines:
            lines = ", ".join(map(quoted, self.guessed_lines))
            remarks.append(
                f"The text is not UTF-8; it is read as {spoken(self.encoding)}, a guess: {lines}. "
                "If words look wrong, name its encoding (?encoding= after the name of the file)."
            )
        if self.damaged:
            remarks.append(
                f"Bytes that are not {spoken(self.encoding)} are read as �; their rows are marked."
            )
        if self.has_nul:
            remarks.append("Some text holds zero bytes; the rows are marked.")
        return tuple(remarks)

    @property
    def notes(self) -> dict[str, str]:
        """The notes on rows, by the characters that cause them."""
        notes = {}
        if self.has_nul:
            notes["\0"] = "holds a zero byte"
        if self._errors == "replace":
            notes["\ufffd"] = f"holds bytes that are not {spoken(self.encoding)}, shown as �"
        return notes

    @property
    def _errors(self) -> str:
        """The ``errors`` of `open`. A guess may not fit all bytes."""
        return "replace" if self.damaged or self.guessed_lines else "strict"

    def open(self) -> TextIOWrapper:
        """The file as text, line ends untouched."""
        return self.path.open("r", encoding=self.encoding, errors=self._errors, newline="")

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
        return not (text.guessed_lines or text.damaged or text.is_named)


def scan(path: Path, encoding: str | None = None) -> TextFile:
    """Reads the file once and determines its encoding, unless ``encoding`` names it.

    InputError if the file is empty, is not text, or is not in the encoding that it announces; its
    subclass UnknownEncodingError if no encoding is named and none fits.
    """
    with path.open("rb") as file:
        head = file.read(HEAD)
    # Zero bytes, white space and byte order marks are not text.
    if not head.strip(b"\0 \t\r\n\xef\xbb\xbf\xff\xfe"):
        needed = "one line" if path.suffix.lower() == ".txt" else "a header and one row"
        raise InputError(f"{path.name} is empty: it needs at least {needed}.")
    # In European text in UTF-16 every second byte is zero.
    even_zeros = head[0::2].count(0)
    odd_zeros = head[1::2].count(0)
    most_zeros = max(even_zeros, odd_zeros)
    is_utf16 = most_zeros > 0.2 * len(head) and min(even_zeros, odd_zeros) < 0.1 * most_zeros
    announced = None
    # All bytes of ISO-2022-JP are ASCII, so only its escape sequence tells it.
    if b"\x1b$B" in head:
        announced = "iso2022_jp"
    elif is_utf16:
        announced = "utf-16-le" if odd_zeros > even_zeros else "utf-16-be"
    for mark, name in BYTE_ORDER_MARKS.items():
        if head.startswith(mark):
            announced = name
            break
    if encoding:
        named = named_encoding(encoding)
        # A named utf-16-le that begins with the mark of utf-16 is read by its mark.
        if not announced or not named.startswith(announced):
            announced = named
    # Text in another encoding, such as UTF-16, may have any bytes.
    control = 0.0 if announced else len(CONTROL.findall(head)) / len(head)
    if control > MOST_CONTROL:
        raise ForeignFileError(f"{path.name} is not a text file.")
    text, broken_at = _read_through(path, announced or "utf-8")
    # Text mode on Windows writes CR CR LF for CR LF.
    text = replace(text, doubled_ends=b"\r\r\n" in head)
    if encoding:
        return replace(text, is_named=True, damaged=broken_at is not None)
    if broken_at is None:
        return text
    # Damaged UTF-8 is read, with or without a mark.
    if announced not in (None, "utf-8-sig"):
        raise InputError(
            f"{path.name} begins as {spoken(text.encoding)}, but breaks it near byte {broken_at:,}: save it as UTF-8."
        )
    return _guess(text)


def suspicion(lines: Iterable[str], notes: dict[str, str]) -> str | None:
    """The ``notes`` of the characters that are in the ``lines`` of a row, joined; None without any."""
    text = "".join(lines)
    return "; ".join(note for character, note in notes.items() if character in text) or None


def _read_through(path: Path, encoding: str) -> tuple[TextFile, int | None]:
    """Reads all bytes of a file.

    Returns the file, and roughly the position of the first byte that does not fit the encoding, None
    if all bytes fit. InputError for a line above `LONGEST_LINE`.
    """
    decoder = codecs.getincrementaldecoder(encoding)()
    newlines = 0
    returns = 0
    since_line_end = 0
    position = 0
    has_nul = False
    broken_at = None
    with path.open("rb") as file:
        # An empty piece at the end tells the decoder that no more bytes follow, so that a character
        # that was cut off is an error.
        for chunk in chain(iter(partial(file.read, CHUNK), b""), [b""]):
            newlines += chunk.count(b"\n")
            returns += chunk.count(b"\r")
            has_nul = has_nul or b"\0" in chunk
            last_end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r"))
            since_line_end += len(chunk)
            if last_end >= 0:
                since_line_end = len(chunk) - last_end - 1
            if since_line_end > LONGEST_LINE:
                line = f"{path.name}, line {max(newlines, returns) + 1:,}"
                raise InputError(
                    f"{line}, is longer than {LONGEST_LINE >> 20} MB: "
                    "this is no table of sentences, or its line ends are missing."
                )
            if broken_at is None:
                try:
                    decoder.decode(chunk, final=not chunk)
                except UnicodeError as error:
                    # The error for a missing byte order mark has no start.
                    broken_at = position + getattr(error, "start", 0)
            position += len(chunk)
    # Lines may end with CR alone.
    lines = newlines or returns
    if since_line_end:
        lines += 1
    # In UTF-16 and UTF-32 every ASCII character has zero bytes.
    has_nul = has_nul and not encoding.startswith(("utf-16", "utf-32"))
    return TextFile(path, encoding, lines, has_nul=has_nul), broken_at


def _guess(text: TextFile) -> TextFile:
    """Decides about a file that is not valid UTF-8: it is damaged UTF-8, or has another encoding, which is guessed."""
    good = 0
    bad = []
    size = 0
    with text.path.open("rb") as file:
        for line in file:
            if line.isascii():
                continue
            try:
                line.decode("utf-8")
                good += 1
            except UnicodeDecodeError:
                bad.append(line[:SAMPLE])
                size += len(line)
            if size > SAMPLE:
                break
    # A byte order mark, or a majority of valid lines, shows that the file is UTF-8.
    if text.encoding == "utf-8-sig" or good >= len(bad):
        return replace(text, damaged=True)
    encoding = guess_encoding(b"".join(bad))
    if encoding is None:
        raise UnknownEncodingError(
            f"{text.path.name} is not UTF-8, and no other encoding fits it. Name its encoding (--encoding), such as "
            "windows-1252, windows-1251, shift_jis, gb18030, big5 or euc_kr; or save it as UTF-8."
        )
    lines = tuple(line.decode(encoding, "replace").strip() for line in bad[:QUOTED_LINES])
    return replace(text, encoding=encoding, guessed_lines=lines)


def guess_encoding(sample: bytes) -> str | None:
    """The encoding of lines that are not valid UTF-8, as charset-normalizer guesses it; None if none fits."""
    # charset-normalizer takes time to import, and most files are UTF-8.
    from charset_normalizer import CharsetMatch, from_bytes

    matches = from_bytes(sample, cp_isolation=GUESSED, enable_fallback=False)

    def rank(match: CharsetMatch) -> tuple[float, float, int]:
        # The least disorder (chaos) comes first, then the best fit to a language (coherence). For
        # short texts several encodings of Latin letters are equally likely; `GUESSED` begins with
        # the most common ones.
        return match.chaos, -match.coherence, GUESSED.index(match.encoding)

    best = min(matches, key=rank, default=None)
    return best.encoding if best else None


# ---------------------------------------------------------------- names of encodings

SPOKEN = {
    "utf-8": "UTF-8",
    "utf-8-sig": "UTF-8 (with a byte order mark)",
    **dict.fromkeys(("utf-16", "utf-16-le", "utf-16-be"), "UTF-16"),
    "utf-32": "UTF-32",
    "latin-1": "Latin-1",
    "cp1252": "Windows-1252",
    "cp1250": "Windows-1250 (Central European)",
    "cp1251": "Windows-1251 (Cyrillic)",
    "cp1253": "Windows-1253 (Greek)",
    "cp1254": "Windows-1254 (Turkish)",
    "cp1255": "Windows-1255 (Hebrew)",
    "cp1256": "Windows-1256 (Arabic)",
    "cp1257": "Windows-1257 (Baltic)",
    "cp874": "Windows-874 (Thai)",
    "iso8859_2": "ISO-8859-2 (Central European)",
    "iso8859_5": "ISO-8859-5 (Cyrillic)",
    "koi8_r": "KOI8-R (Cyrillic)",
    "mac_roman": "Mac Roman",
    "cp932": "Shift-JIS (Japanese)",
    "euc_jp": "EUC-JP (Japanese)",
    "iso2022_jp": "ISO-2022-JP (Japanese)",
    "gb18030": "GB18030 (Chinese)",
    "big5": "Big5 (Chinese)",
    "cp949": "EUC-KR (Korean)",
}
# Python's codecs that are not encodings of text files. UTF-7, which no file has today, is the only
# other one that decodes to halves of characters, which cannot be encoded again.
NOT_OF_FILES = ("idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "utf-7")
GUESSED = [name for name in SPOKEN if not name.startswith(("utf", "latin", "iso2022"))]


def named_encoding(name: str) -> str:
    """The codec of a name such as "windows-1251" or "Shift_JIS". InputError if there is none for text files."""
    try:
        codec = codecs.lookup(name.strip()).name
        # A codec of bytes, such as base64, cannot encode text.
        "".encode(codec)
    except (LookupError, ValueError, TypeError):
        codec = ""
    if codec in ("", *NOT_OF_FILES):
        some = ", ".join(sorted({"utf-8", *GUESSED, "utf-16"}))
        raise InputError(f"there is no text encoding {name[:60]!r}; some are {some}")
    return WITHOUT_MARK.get(codec, codec)


def spoken(encoding: str) -> str:
    """The encoding in words, such as "Windows-1251 (Cyrillic)"; its name if it has none."""
    return SPOKEN.get(encoding) or SPOKEN.get(encoding.replace("-", "_")) or encoding
