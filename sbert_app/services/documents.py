"""Small documents that people make and keep: a JSON file for each key, validated by pydantic.

groups = DocumentStore(home / "explore" / "groups", Groups)
groups.get(key)                                  an empty document if there is none
groups.change(key, lambda groups: ...)           read, changed and written by one process at a time
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from training.atomic import write_text
from training.errors import InputError, unwritable

Document = TypeVar("Document", bound=BaseModel)


class DocumentStore(Generic[Document]):
    """Documents of one kind in a folder, which is created with the first. Safe for several threads and processes.

    Args:
        folder: of the files KEY.json.
        kind: a model whose fields all have a default.
    """

    def __init__(self, folder: Path, kind: type[Document]) -> None:
        self.folder = folder
        self.kind = kind

    def get(self, key: str) -> Document:
        """The document stored under ``key``; an empty one if there is none.

        Raises:
            InputError: the file is damaged.
        """
        path = self._path(key)
        try:
            return self.kind.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return self.kind()
        except (OSError, ValidationError) as error:
            raise InputError(f"{path} cannot be read; repair it, or remove it to begin anew") from error

    def change(self, key: str, edit: Callable[[Document], Document]) -> Document:
        """Replace a document by ``edit(document)`` and return it.

        Raises:
            InputError: the file is damaged, or cannot be written.
        """
        from filelock import FileLock

        path = self._path(key)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(path.with_name(f".{path.name}.lock")):
                changed = edit(self.get(key))
                write_text(path, changed.model_dump_json(indent=1))
        except OSError as error:
            raise unwritable(path, error) from error
        return changed

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"
