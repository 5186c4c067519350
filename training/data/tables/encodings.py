"""Which encoding a text is in that is not UTF-8: the choice of charset-normalizer, with two corrections.

charset-normalizer tells scripts apart: Cyrillic, Greek, Arabic, Chinese, Japanese, Korean, each in several encodings.
Encodings of Latin letters differ in a few accents only, which it confuses in short texts; among those the one wins in
which most accents are letters that its languages use. And it confuses small letters and capitals of Cyrillic. Nothing
is certain: the guess comes with a certainty, and the user can name the encoding.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from training.errors import InputError

SAMPLE = 1 << 17  # bytes of lines that are not ASCII
LOW = 0.5  # a certainty below asks the user to look
LEAST_SCORE = 0.6  # of accents that are letters of the languages
MANY = 40  # characters beyond ASCII that make a guess as certain as it gets
FEW = 3  # characters that tell nothing of a script

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
OTHERS = (
    "cp1251", "koi8_r", "iso8859_5", "cp1253", "cp1255", "cp1256", "cp932", "euc_jp", "gb18030", "big5", "cp949",
)  # fmt: skip
OTHER_CASE = {"cp1251": "koi8_r", "koi8_r": "cp1251"}  # one has small letters where the other has capitals
SPOKEN = {
    "utf-8": "UTF-8",
    "utf-8-sig": "UTF-8 with a byte order mark",
    "utf-16": "UTF-16",
    "utf-16-le": "UTF-16",
    "utf-16-be": "UTF-16",
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
    "iso8859_2": "ISO-8859-2 (Central European)",
    "iso8859_5": "ISO-8859-5 (Cyrillic)",
    "koi8_r": "KOI8-R (Cyrillic)",
    "mac_roman": "Mac Roman",
    "cp932": "Shift-JIS (Japanese)",
    "euc_jp": "EUC-JP (Japanese)",
    "gb18030": "GB18030 (Chinese)",
    "big5": "Big5 (Chinese)",
    "cp949": "EUC-KR (Korean)",
}
NOT_OF_FILES = ("idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined")
WITHOUT_MARK = {"utf-16": "utf-16-le", "utf-32": "utf-32-le"}  # a mark at the start of a file decides by itself
_CAPITALISED, _INVERTED = re.compile(r"\b[А-ЯЁ][а-яё]{2,}\b"), re.compile(r"\b[а-яё][А-ЯЁ]{2,}\b")
_BEYOND, _HALF_WIDTH = re.compile(r"[^\x00-\x7f]"), re.compile("[\uff61-\uff9f]")


@dataclass(frozen=True)
class Guess:
    """An encoding, and how certain it is: 0 to 1."""

    encoding: str
    certainty: float

    @property
    def remark(self) -> str:
        """The guess as a sentence, with a question where it is not certain."""
        remark = (
            f"The text is not UTF-8; it is read as {spoken(self.encoding)}, with a certainty of {self.certainty:.0%}."
        )
        return remark if self.certainty >= LOW else f"{remark} Do words look wrong? Then name its encoding."


def guess_encoding(sample: bytes) -> Guess:
    """The encoding of lines that are not valid UTF-8. A certainty of 0 says that none fits."""
    from charset_normalizer import from_bytes

    matches = from_bytes(
        sample, cp_isolation=[*LATIN, *OTHERS], preemptive_behaviour=False, threshold=0.6, enable_fallback=False
    )
    for match in matches:
        text = str(match)
        beyond = len(_BEYOND.findall(text))
        # In half-width katakana alone nobody writes sentences, but £5 and a short line of Big5 read so in Shift-JIS.
        if 2 * len(_HALF_WIDTH.findall(text)) > beyond:
            continue
        # £5 and 3 µm are no Korean.
        if match.encoding in LATIN or _is_latin(text) or (beyond < FEW and _guess_latin(sample).certainty):
            break
        # charset-normalizer tells these two apart only in longer texts, and is certain of лПФ, which is Кот.
        is_inverted = len(_INVERTED.findall(text)) > len(_CAPITALISED.findall(text))
        encoding = OTHER_CASE.get(match.encoding, match.encoding) if is_inverted else match.encoding
        return Guess(encoding, round((1 - match.chaos) * min(1.0, beyond / MANY), 2))
    return _guess_latin(sample)


def named_encoding(name: str) -> str:
    """The codec of that name, such as "windows-1251" or "Shift_JIS".

    InputError if there is none of that name for text.
    """
    try:
        codec = codecs.lookup(name.strip()).name
        "".encode(codec)
    except (LookupError, ValueError, TypeError):
        codec = ""
    if not codec or codec.replace("-", "_") in NOT_OF_FILES:
        some = ", ".join(sorted({"utf-8", *LATIN, *OTHERS, "utf-16"}))
        raise InputError(f"there is no text encoding {name[:60]!r}; some are {some}")
    return WITHOUT_MARK.get(codec, codec)


def spoken(encoding: str) -> str:
    """The encoding in words, such as "Windows-1251 (Cyrillic)"; its name where there are none."""
    return SPOKEN.get(encoding) or SPOKEN.get(encoding.replace("-", "_")) or encoding


def _is_latin(text: str) -> bool:
    """Whether most characters beyond ASCII stand beside an ASCII letter, as accents in a word do."""
    runs = [match.span() for match in re.finditer(r"[^\x00-\x7f]+", text)]
    beside = [text[max(0, start - 1) : start] + text[end : end + 1] for start, end in runs]
    return 2 * sum(bool(re.search("[A-Za-z]", pair)) for pair in beside) >= len(runs)


def _guess_latin(sample: bytes) -> Guess:
    """The encoding in which most characters beyond ASCII are letters of its languages; Windows-1252 if several are.

    A certainty of 0 says that in none of them they are.
    """
    scores = {name: _letter_score(sample, name) for name in LATIN}
    # The first of equals: Windows-1252.
    best = max(LATIN, key=lambda name: scores[name])
    if scores[best] < LEAST_SCORE:
        return Guess("cp1252" if scores["cp1252"] > -1 else "latin-1", 0.0)
    beyond = sum(byte > 127 for byte in sample)
    return Guess(best, round(scores[best] * min(1.0, 0.5 + beyond / MANY / 2), 2))


def _letter_score(sample: bytes, encoding: str) -> float:
    """The share of characters beyond ASCII that are letters of its languages; rare ones count less, others against.

    -1 where the bytes are none of this encoding.
    """
    try:
        text = sample.decode(encoding)
    except ValueError:
        return -1.0
    frequent, _, rare = LATIN[encoding].partition("|")
    points = []
    for before, character in zip(" " + text, text, strict=False):
        if character.isascii():
            continue
        # A capital letter inside a word is no letter at all.
        is_inside = character.isupper() and before.islower()
        points.append(1.0 if character in frequent else -0.5 if character not in rare else 0.3 if is_inside else 0.8)
    return sum(points) / max(len(points), 1)
