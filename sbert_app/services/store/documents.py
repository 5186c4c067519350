"""Records on disk: JSON files of one dataclass or pydantic model in a folder.

    projects = DocumentStore(home / "annotations", ProjectInfo, "/project.json", what="project")
    projects.get(key)                                one sentence as error if it is missing or damaged
    projects.change(key, lambda project: ...)        read, changed and written by one process at a time
    projects.create("20261121-news", project)        under an id that no other process gets
    projects.list()                                  all records that can be read, and an error for each of the others

Files are written atomically: a killed process leaves the old record or the new one. A damaged file
leads to an `InputError` that names it and says what to do. It is never overwritten, and other
records can still be read. Unknown fields are ignored, and missing fields have their defaults.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

from filelock import FileLock
from pydantic import Field, TypeAdapter, ValidationError

from training.atomic import write_bytes
from training.errors import InputError, unwritable
from training.names import is_id

Document = TypeVar("Document")
HALF_A_CHARACTER = "{} has half a character (a lone surrogate), and cannot be saved; replace it"
# Seconds since 1970, up to the year 9999.
Timestamp = Annotated[float, Field(ge=0, le=253_402_300_799)]

# An adapter takes time to build, so it is built once for each type.
_adapter: Callable[[Any], TypeAdapter[Any]] = lru_cache(maxsize=64)(TypeAdapter)


def read_document(path: Path, kind: type[Document]) -> Document:
    """The record in a file. Raises FileNotFoundError if it does not exist, InputError if it cannot be read."""
    try:
        # It may be a folder, or a named pipe, and reading a pipe would wait for a writer.
        if not path.is_file() and path.exists():
            raise unreadable(path, "it is not a file")
        return _adapter(kind).validate_json(path.read_bytes())
    except FileNotFoundError as error:
        if not path.is_symlink():
            raise
        raise unreadable(path, "the link leads nowhere") from error
    except OSError as error:
        raise unreadable(path, error) from error
    except ValidationError as error:
        # The message is about the first of the errors.
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        why = first["msg"]
        place = ".".join(map(str, first["loc"]))
        if place:
            why = f"{place}: {why}"
        raise unreadable(path, why) from error


def write_document(path: Path, document: object) -> None:
    """Writes a record atomically. It replaces an older one. Raises InputError if it cannot be written."""
    try:
        write_bytes(path, _adapter(type(document)).dump_json(document, indent=1) + b"\n")
    except OSError as error:
        raise unwritable(path, error) from error
    except ValueError as error:
        # pydantic cannot serialise a lone surrogate.
        raise InputError(HALF_A_CHARACTER.format("the text")) from error


def check_text(text: str, what: str) -> str:
    """Returns a text that will be saved as ``what``.

    Raises InputError for a lone surrogate, which cannot be encoded.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(HALF_A_CHARACTER.format(what)) from error
    return text


def read_lines(path: Path, kind: type[Document]) -> Iterator[tuple[int, Document | None]]:
    r"""Yields each line of a JSON Lines file: its number from 1, and its record, None if it is damaged.

    Only "\n" ends a line, as other line ends may be in texts. Empty lines are left out.

    Raises InputError if the file does not exist or cannot be read.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise unreadable(path, error) from error
    for number, line in enumerate(lines, start=1):
        if line:
            try:
                yield number, _adapter(kind).validate_json(line)
            except ValidationError:
                yield number, None


class Listing(NamedTuple, Generic[Document]):
    """The records of a store in the order of their ids, and the errors of damaged records."""

    documents: dict[str, Document]
    damaged: tuple[InputError, ...]


class DocumentStore(Generic[Document]):
    """Records of one kind in a folder, which the first record creates. Safe for several threads and processes.

    Args:
        folder: the folder of the records.
        kind: a dataclass or a pydantic model.
        suffix: the path of a record after its id: ".json", or "/job.json" if each record has a
            folder.
        what: the word for a record in messages.
    """

    def __init__(
        self, folder: Path, kind: type[Document], suffix: str = ".json", what: str = "record"
    ) -> None:
        self.folder = folder
        self.kind = kind
        self.suffix = suffix
        self.what = what

    def path(self, key: str) -> Path:
        """The file of a record. Raises InputError if no record can have that id."""
        if not is_id(str(key)):
            raise InputError(f"there is no {self.what} {key!r:.82}")
        return self.folder / f"{key}{self.suffix}"

    def get(self, key: str) -> Document:
        """The record of that id. Raises InputError if it does not exist, or is damaged."""
        try:
            return read_document(self.path(key), self.kind)
        except FileNotFoundError:
            raise InputError(f"there is no {self.what} {key!r:.82}") from None

    def list(self) -> Listing[Document]:
        """All records. A record that is deleted while they are read is left out."""
        documents = {}
        damaged = []
        for key in self.ids():
            try:
                documents[key] = read_document(self.path(key), self.kind)
            except FileNotFoundError:
                continue
            except InputError as error:
                damaged.append(error)
        return Listing(documents, tuple(damaged))

    def create(self, stem: str, document: Document) -> str:
        """Stores a new record under the id ``stem``, or ``stem``-2, …, if that is taken, and returns the id.

        Raises InputError if the disk is full or not writable.
        """
        with self.locked():
            key = stem
            number = 1
            # A folder without its record, or a broken link, occupies the id, too.
            while os.path.lexists(self._entry_of(self.path(key))):
                number += 1
                key = f"{stem}-{number}"
            self.put(key, document)
        return key

    def put(self, key: str, document: Document) -> None:
        """Stores a record under an id. It replaces an older one.

        Raises InputError if the disk is full or not writable.
        """
        path = self.path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(path, error) from error
        write_document(path, document)

    def change(self, key: str, edit: Callable[[Document], Document]) -> Document:
        """Replaces a record by ``edit(record)`` and returns it.

        Raises InputError if the record does not exist, is damaged, or cannot be written.
        """
        with self.locked():
            changed = edit(self.get(key))
            self.put(key, changed)
        return changed

    def delete(self, key: str) -> None:
        """Removes a record, and its folder if it has one."""
        path = self.path(key)
        # The file first, as a folder without it is not a record.
        path.unlink(missing_ok=True)
        if self._entry_of(path) != path:
            shutil.rmtree(self._entry_of(path), ignore_errors=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Prevents other threads and processes from creating or changing records. Not reentrant."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / ".lock"):
                yield
        except OSError as error:
            raise unwritable(self.folder, error) from error

    def _entry_of(self, path: Path) -> Path:
        """The entry of ``self.folder`` with the record ``path``: this file itself, or the folder that holds it."""
        return self.folder / path.relative_to(self.folder).parts[0]

    def ids(self) -> Iterator[str]:
        """Yields the ids of all records in order, including damaged ones.

        Raises InputError if the folder cannot be read.
        """
        # With the suffix ".json" an entry of the folder is a record, and there is no name inside.
        # With "/job.json" an entry is a folder that has the id as its name, without a suffix.
        entry_suffix, _, name_inside = self.suffix.partition("/")
        try:
            names = sorted(path.name for path in self.folder.iterdir())
        except FileNotFoundError:
            return
        except OSError as error:
            raise unreadable(self.folder, error) from error
        for name in names:
            key = name.removesuffix(entry_suffix)
            has_id = name.endswith(entry_suffix) and is_id(key)
            if has_id and os.path.lexists(self.folder / name / name_inside):
                yield key


def unreadable(path: Path, why: str | OSError) -> InputError:
    """The error for a file of the home folder that cannot be read. Visitors do not see the path of the home folder."""
    if isinstance(why, OSError):
        why = why.strerror or str(why)
    sentence = f"cannot be read ({why}); repair it, or remove it"
    return InputError(f"{path} {sentence}", public=f"{Path(*path.parts[-2:])} {sentence}")
