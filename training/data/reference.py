"""A file's name with the encoding of its text, as one line of text, wherever data is named.

reviews.csv                              the encoding is found out
reviews.csv?encoding=windows-1251        it is named: what is found out for short texts can be wrong
a.csv?encoding=koi8-r+b.csv              two files, joined

A run's config, a link, an HTTP request and a list of data sets all hold such names.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

ENCODING = "?encoding="


class FileReference(NamedTuple):
    """The path of a file, and the encoding of its text; None = found out."""

    path: str
    encoding: str | None = None

    def __str__(self) -> str:
        return f"{self.path}{ENCODING}{self.encoding}" if self.encoding else self.path


def parse_file(text: str) -> FileReference:
    """Read the name of a file, with or without an encoding. A path that exists may itself contain ``?encoding=``."""
    path, mark, encoding = text.rpartition(ENCODING)
    if not mark or os.path.lexists(text):  # False also for a name that no file system takes
        return FileReference(text)
    return FileReference(path, encoding.strip() or None)


def split_names(name: str) -> list[str]:
    """Split "snli+mnli" into ["snli", "mnli"]. A path that exists may itself contain a plus."""
    if os.path.lexists(parse_file(name).path):
        return [name]
    return [part.strip() for part in name.split("+") if part.strip()] or [name]


def absolute_names(name: str, encoding: str | None = None) -> str:
    """The name for use in another folder: files by their whole paths, read in ``encoding`` unless they name theirs."""
    return "+".join(_absolute(part, encoding) for part in split_names(name))


def names_file(name: str) -> bool:
    """Whether a part of the name is a file or a folder that exists."""
    return any(os.path.lexists(Path(parse_file(part).path).expanduser()) for part in split_names(name))


def _absolute(part: str, encoding: str | None) -> str:
    file = parse_file(part)
    path = Path(file.path).expanduser()
    if not path.exists():
        return part
    return str(FileReference(str(path.absolute()), file.encoding or encoding))
