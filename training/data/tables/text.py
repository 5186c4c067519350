"""The characters of a text file, whose encoding one fast pass over all of its bytes decides.

A guess from the first kilobytes would fail at row 900,000. So `scan` reads all bytes once, a megabyte at a time, and
counts the lines, which gives every progress bar its total. A byte order mark decides; without one, the file is UTF-8 if
all of its bytes are. Otherwise its lines are judged one by one:

- If some are UTF-8 and others are not, the others are read in the encoding that they seem to be in, and marked. Broken
  characters within lines of UTF-8 become �, and those lines are marked.
- If hardly any line is UTF-8, the whole file is in another encoding, which is guessed, with a stated certainty. If none
  fits, the file is refused until the user names one. An encoding that the user names is taken as it is.
"""

import codecs
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from io import TextIOWrapper
from itertools import chain
from pathlib import Path

from training.data.tables.rows import OpenedTable
from training.errors import InputError

CHUNK = 1 << 20
# The first bytes, which tell text from other files.
HEAD = 1 << 16
# No table of sentences has a longer row, in bytes, and reading it would fill the memory.
LONGEST_LINE = 16 << 20
# UTF-32 comes first, because its mark begins with that of UTF-16.
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# The encodings of files without a byte order mark.
WITHOUT_MARK = {"utf-16": "utf-16-le", "utf-32": "utf-32-le"}
# A code that no text has. The character after it was not UTF-8.
OTHER = "\ufdd0"
CONTROL = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f\x7f]")
# The share of control bytes in a text. Random bytes hold 0.11, and text in an encoding of other days none: UTF-8, which
# random bytes are not, may hold more, since some programs leave zero bytes in it.
MOST_CONTROL, MOST_CONTROL_BESIDES_UTF8 = 0.1, 0.02


class UnknownEncodingError(InputError):
    """A text file is not UTF-8, and no encoding fits it with any certainty, so that the user has to name it."""


class ForeignFileError(InputError):
    """A file is no table, but something else; `open_table` adds the formats that can be read."""


@dataclass(frozen=True)
class TextFile:
    """A text file whose encoding holds from its first byte to its last.

    Attributes:
        lines: the number of rows and header, but for line ends inside quotes.
        certainty: that of a guessed encoding, 0 to 1.
        is_named: whether the user has named the encoding.
        damaged: whether some bytes do not fit the encoding; each reads as �.
        other: the encoding of the ``other_lines`` that are not UTF-8, in a file whose remaining lines are.
        doubled_ends: whether lines end with CR CR LF, from text mode on Windows, and a blank seems to follow each.
    """

    path: Path
    encoding: str
    lines: int
    certainty: float | None = None
    is_named: bool = False
    damaged: bool = False
    other: str = ""
    other_lines: int = 0
    has_nul: bool = False
    doubled_ends: bool = False

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks on the characters for the user, a sentence each."""
        remarks = []
        if self.certainty is not None:
            read_as = f"{spoken(self.encoding)}, with a certainty of {self.certainty:.0%}."
            remarks.append(f"The text is not UTF-8; it is read as {read_as}")
            if self.certainty < LOW:
                remarks.append("Do words look wrong? Then name its encoding.")
        if self.other:
            lines = f"{self.other_lines:,} line{'s are' if self.other_lines > 1 else ' is'}"
            remarks.append(f"{lines} not UTF-8 as the others, and read as {spoken(self.other)}; their rows are marked.")
        elif self.damaged:
            remarks.append(f"Bytes that are not {spoken(self.encoding)} are read as �; their rows are marked.")
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
        if self.other:
            notes[OTHER] = "is not UTF-8 as other rows are"
        return notes

    @property
    def _errors(self) -> str:
        return "replace" if self.damaged or self.certainty is not None else "strict"

    def open(self) -> TextIOWrapper:
        """The file as text, line ends untouched. `OTHER` precedes characters of the other encoding of a mixed file."""
        errors = _read_as(self.other) if self.other else self._errors
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
        return text.certainty is None and not (text.other or text.damaged or text.is_named)


def scan(path: Path, encoding: str | None = None) -> TextFile:
    """Reads the file once and determines its encoding, unless ``encoding`` names it.

    InputError if the file is empty, is not text, or is not in the encoding that it announces; its subclass
    UnknownEncodingError if no encoding is named and none fits.
    """
    with path.open("rb") as file:
        head = file.read(HEAD)
    if not head.strip(b"\0 \t\r\n\xef\xbb\xbf\xff\xfe"):
        needed = "one line" if path.suffix.lower() == ".txt" else "a header and one row"
        raise InputError(f"{path.name} is empty: it needs at least {needed}.")
    # ISO-2022-JP is ASCII to every other test, and European text in UTF-16 has a zero in every second byte.
    even, odd = head[0::2].count(0), head[1::2].count(0)
    is_utf16 = max(even, odd) > 0.2 * len(head) and min(even, odd) < 0.1 * max(even, odd)
    utf16 = ("utf-16-le" if odd > even else "utf-16-be") if is_utf16 else None
    unmarked = "iso2022_jp" if b"\x1b$B" in head else utf16
    announced = next((name for mark, name in BYTE_ORDER_MARKS.items() if head.startswith(mark)), unmarked)
    if encoding:
        named = named_encoding(encoding)
        announced = announced if announced and named.startswith(announced) else named
    control = 0.0 if announced else len(CONTROL.findall(head)) / len(head)
    if control > MOST_CONTROL:
        raise ForeignFileError(f"{path.name} is not a text file.")
    text, broken_at = _read_through(path, announced or "utf-8")
    text = replace(text, doubled_ends=b"\r\r\n" in head)
    if encoding:
        return replace(text, is_named=True, damaged=broken_at is not None)
    if broken_at is None:
        return text
    if announced not in (None, "utf-8-sig"):
        raise InputError(
            f"{path.name} begins as {spoken(text.encoding)}, but breaks it near byte {broken_at:,}: save it as UTF-8."
        )
    if control > MOST_CONTROL_BESIDES_UTF8:
        raise ForeignFileError(f"{path.name} is not a text file.")
    return _by_lines(text)


def suspicion(lines: Iterable[str], notes: dict[str, str]) -> str | None:
    """The notes on a row whose characters are in its ``lines``; None if there are none."""
    return "; ".join([note for character, note in notes.items() if any(character in line for line in lines)]) or None


def _read_through(path: Path, encoding: str) -> tuple[TextFile, int | None]:
    """The file by all its bytes, and near which byte it breaks the encoding, or None. InputError for a huge line."""
    decoder = codecs.getincrementaldecoder(encoding)()
    newlines = returns = nul = since_line_end = position = 0
    broken_at = None
    with path.open("rb") as file:
        # An empty piece at the end tells the decoder that no byte is missing.
        for chunk in chain(iter(partial(file.read, CHUNK), b""), [b""]):
            newlines += chunk.count(b"\n")
            returns += chunk.count(b"\r")
            nul += chunk.count(b"\0")
            last = max(chunk.rfind(b"\n"), chunk.rfind(b"\r"))
            since_line_end = len(chunk) - last - 1 if last >= 0 else since_line_end + len(chunk)
            if since_line_end > LONGEST_LINE:
                raise InputError(
                    f"{path.name}, line {max(newlines, returns) + 1:,}, is longer than {LONGEST_LINE >> 20} MB: "
                    "this is no table of sentences, or its line ends are missing."
                )
            if broken_at is None:
                try:
                    decoder.decode(chunk, final=not chunk)
                except UnicodeError as error:
                    broken_at = position + getattr(error, "start", 0)
            position += len(chunk)
    has_nul = nul > 0 and not encoding.startswith(("utf-16", "utf-32"))
    return TextFile(path, encoding, (newlines or returns) + (since_line_end > 0), has_nul=has_nul), broken_at


def _by_lines(text: TextFile) -> TextFile:
    """A file that is not UTF-8 throughout, judged line by line: damaged, mixed, or in another encoding."""
    good, broken, other, sample = 0, 0, 0, bytearray()
    with text.path.open("rb") as file:
        for line in file:
            if line.isascii():
                continue
            lenient = line.decode("utf-8", "replace")
            if bad := lenient.count("\ufffd") - line.count(b"\xef\xbf\xbd"):
                # A line that is mostly good is UTF-8 that was damaged.
                is_damaged = sum(not character.isascii() for character in lenient) > 2 * bad
                broken, other = broken + is_damaged, other + (not is_damaged)
                sample += line[:SAMPLE] if len(sample) < SAMPLE else b""
            else:
                good += 1
    encoding, certainty = guess_encoding(bytes(sample))
    if text.encoding == "utf-8-sig" or broken + good > 0.1 * other:
        if other <= broken or (good and certainty < LOW):
            return replace(text, damaged=True)
        if good:
            return replace(text, other=encoding, other_lines=other + broken)
    if not certainty:
        raise UnknownEncodingError(
            f"{text.path.name} is not UTF-8, and no other encoding fits it with certainty. Name its encoding "
            "(--encoding), such as windows-1252, windows-1251, shift_jis, gb18030, big5 or euc_kr; or save it as UTF-8."
        )
    return replace(text, encoding=encoding, certainty=certainty)


def _read_as(encoding: str) -> str:
    """The name of an error handler that decodes bytes that are not UTF-8 in another encoding, after `OTHER`."""

    def handle(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeDecodeError):
            raise error
        return OTHER + error.object[error.start : error.end].decode(encoding, "replace"), error.end

    codecs.register_error(name := f"sbert_lab_{encoding}", handle)
    return name


# ---------------------------------------------------------------- which encoding

# charset-normalizer tells scripts apart: Cyrillic, Greek, Arabic, Chinese, Japanese, Korean, each in several encodings.
# Two corrections. Encodings of Latin letters differ in a few accents only, which it confuses in short texts; among
# them the one wins in which most accents are letters that its languages use. And it confuses small letters and
# capitals of Cyrillic. A guess comes with a certainty, and the user can name the encoding.

# The most bytes of lines that are not ASCII.
SAMPLE = 1 << 17
# With a lower certainty the user is asked to look.
LOW = 0.5
# The least share of accents that are letters of the languages.
LEAST_SCORE = 0.6
# Characters beyond ASCII that make a guess as certain as it gets, and that tell nothing of a script.
MANY, FEW = 40, 3

SPOKEN = {
    "utf-8": "UTF-8",
    "utf-8-sig": "UTF-8 (with a byte order mark)",
    **dict.fromkeys(("utf-16", "utf-16-le", "utf-16-be"), "UTF-16"),
    "utf-32": "UTF-32",
    "latin-1": "Latin-1",
    "cp1250": "Windows-1250 (Central European)",
    "cp1251": "Windows-1251 (Cyrillic)",
    "cp1252": "Windows-1252",
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
GUESSED = [name for name in SPOKEN if not name.startswith(("utf", "latin", "iso2022"))]
# The letters beyond ASCII of the languages that each encoding of Latin letters is for; frequent ones before the bar.
_CENTRAL = "áéíóúýąćęłńśżčďěňřšťžůäöüőűăâîşţ|źľĺŕôßđÁÉÍÓÚÝĄĆĘŁŃŚŻŹČĎĚŇŘŠŤŽŮÄÖÜŐŰĂÂÎŞŢ„”“’–—…»«"
LATIN = {
    "cp1252": "éèàçêôûîâëïùüöäßáíóúñãõåæøœ£§µ’“”–—…|ÉÈÀÇÊÔÜÖÄÁÍÓÚÑÅÆØŒ«»‘„€©®°½\xa0¡¿ºªìòÿ·´",
    "cp1250": _CENTRAL,
    "iso8859_2": _CENTRAL,
    "cp1254": "ışğçöü|âîûİŞĞÇÖÜÂ’“”–—…",
    "mac_roman": "éèàçêôûîâëïùüöäßáíóúñãõåæøœ|ÉÈÀÇÊÔÜÖÄÁÍÓÚÑÅÆØŒ«»’‘“”–—…„€°¡¿ºªìòÿ·´",
    "cp1257": "āčēģīķļņšūžąęėįųõäöü|ĀČĒĢĪĶĻŅŠŪŽĄĘĖĮŲÕÄÖÜ„“”–—",
}
_CAPITALISED, _INVERTED = re.compile(r"\b[А-ЯЁ][а-яё]{2,}\b"), re.compile(r"\b[а-яё][А-ЯЁ]{2,}\b")
_BEYOND, _HALF_WIDTH = re.compile(r"[^\x00-\x7f]"), re.compile("[\uff61-\uff9f]")
# Runs of characters beyond ASCII, and those beside an ASCII letter, as accents in a word are.
_RUN, _BESIDE = re.compile(r"[^\x00-\x7f]+"), re.compile(r"(?<=[A-Za-z])[^\x00-\x7f]+|[^\x00-\x7f]+(?=[A-Za-z])")


def guess_encoding(sample: bytes) -> tuple[str, float]:
    """The encoding of lines that are not valid UTF-8, and how certain it is: 0, which means that none fits, to 1."""
    from charset_normalizer import from_bytes

    matches = from_bytes(sample, cp_isolation=GUESSED, preemptive_behaviour=False, threshold=0.6, enable_fallback=False)
    for match in matches:
        text = str(match)
        beyond = len(_BEYOND.findall(text))
        # In half-width katakana alone nobody writes sentences, but £5 and a short line of Big5 read so in Shift-JIS.
        if 2 * len(_HALF_WIDTH.findall(text)) > beyond:
            continue
        is_latin = match.encoding in LATIN or 2 * len(_BESIDE.findall(text)) >= len(_RUN.findall(text))
        # £5 and 3 µm are no Korean.
        if is_latin or (beyond < FEW and _guess_latin(sample)[1]):
            break
        # charset-normalizer tells these two apart only in longer texts, and is certain of лПФ, which is Кот: one has
        # small letters where the other has capitals.
        is_inverted = len(_INVERTED.findall(text)) > len(_CAPITALISED.findall(text))
        other_case = {"cp1251": "koi8_r", "koi8_r": "cp1251"} if is_inverted else {}
        certainty = round((1 - match.chaos) * min(1.0, beyond / MANY), 2)
        return other_case.get(match.encoding, match.encoding), certainty
    return _guess_latin(sample)


def _guess_latin(sample: bytes) -> tuple[str, float]:
    """The encoding in which most characters beyond ASCII are letters of its languages; a certainty of 0 if in none."""
    scores = {name: _letter_score(sample, name) for name in LATIN}
    # The first of equals is Windows-1252.
    best = max(scores, key=scores.__getitem__)
    beyond = sum(byte > 127 for byte in sample)
    certainty = scores[best] * min(1.0, 0.5 + beyond / MANY / 2) if scores[best] >= LEAST_SCORE else 0.0
    return best, round(certainty, 2)


def _letter_score(sample: bytes, encoding: str) -> float:
    """The share of its languages' letters (rare ones count less) beyond ASCII, minus others; -1 if bytes do not fit."""
    try:
        text = sample.decode(encoding)
    except ValueError:
        return -1.0
    frequent, _, rare = LATIN[encoding].partition("|")
    worth = dict.fromkeys(rare, 0.8) | dict.fromkeys(frequent, 1.0)
    points = []
    for before, character in zip(" " + text, text, strict=False):
        if not character.isascii():
            # A rare capital letter inside a word is hardly a letter.
            is_inside = worth.get(character) == 0.8 and character.isupper() and before.islower()
            points.append(0.3 if is_inside else worth.get(character, -0.5))
    return sum(points) / max(len(points), 1)


def named_encoding(name: str) -> str:
    """The codec of a name such as "windows-1251" or "Shift_JIS". InputError if there is none for text files."""
    try:
        codec = codecs.lookup(name.strip()).name
        "".encode(codec)
    except (LookupError, ValueError, TypeError):
        codec = ""
    if not codec or codec in ("idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined"):
        some = ", ".join(sorted({"utf-8", *GUESSED, "utf-16"}))
        raise InputError(f"there is no text encoding {name[:60]!r}; some are {some}")
    return WITHOUT_MARK.get(codec, codec)


def spoken(encoding: str) -> str:
    """The encoding in words, such as "Windows-1251 (Cyrillic)"; its name where there are none."""
    return SPOKEN.get(encoding) or SPOKEN.get(encoding.replace("-", "_")) or encoding
