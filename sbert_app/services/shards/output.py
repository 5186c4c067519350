"""The output of a sharded job: a folder, local or remote, of finished parts and a description of the job.

A part appears under its name when it is complete, so the names there are say what is done. `_job.json` describes the
job: a second start with the same description resumes, one with another is refused.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sbert_app.services.shards.blocks import filesystem, local_copy
from training.atomic import sweep, write_text
from training.errors import InputError, unwritable

DESCRIPTION = "_job.json"


class OutputFolder:
    """A folder for parts. InputError if it cannot be created."""

    def __init__(self, url: str) -> None:
        from fsspec.implementations.local import LocalFileSystem

        self.url = url.rstrip("/") or "/"
        self._files, self._name = filesystem(self.url)
        self._is_local = isinstance(self._files, LocalFileSystem)
        if self._is_local and Path(self._name).is_file():
            raise InputError(f"{url} is a file; name a folder for the parts")

    def start(self, description: dict[str, Any]) -> set[str]:
        """Create the folder, or check that it belongs to this very job -> the names of the parts that are finished.

        InputError if it holds other files, or the parts of another job; it names the first setting that differs.
        """
        try:
            self._files.makedirs(self._name, exist_ok=True)
            names = self._names()
            if DESCRIPTION in names:
                self._check(description)
            elif names:
                raise InputError(f"{self.url} holds other files; name a new folder for the parts")
            else:
                self._write_description(json.dumps(description, indent=1))
            if self._is_local:
                sweep(Path(self._name))  # of processes that died
        except OSError as error:
            raise unwritable(self.url, error) from error
        return {name for name in names if name.startswith("part-")}

    @contextmanager
    def part(self, name: str) -> Iterator[Path]:
        """A path to write a part to. The writer makes it appear whole; a remote one is uploaded when it is."""
        if self._is_local:
            yield Path(self._name) / name
            return
        with tempfile.TemporaryDirectory(prefix="sbert-lab-") as folder:
            path = Path(folder) / name
            yield path
            try:
                self._files.put_file(str(path), f"{self._name}/{name}")
            except OSError as error:
                raise unwritable(f"{self.url}/{name}", error) from error

    @contextmanager
    def read(self, name: str) -> Iterator[Path]:
        """A path to read a finished part from."""
        with local_copy(f"{self.url}/{name}") as path:
            yield path

    def _names(self) -> list[str]:
        listed = self._files.ls(self._name, detail=False, refresh=True)
        names = [each.rstrip("/").rsplit("/", 1)[-1] for each in listed]
        return [name for name in names if not name.startswith(".")]

    def _check(self, description: dict[str, Any]) -> None:
        try:
            found = json.loads(self._files.cat_file(f"{self._name}/{DESCRIPTION}"))
        except ValueError as error:
            raise InputError(f"{self.url}/{DESCRIPTION} is damaged; name a new folder for the parts") from error
        for key, value in json.loads(json.dumps(description)).items():
            if found.get(key) != value:
                shown = "other files" if key == "files" else f"{key} {json.dumps(found.get(key))[:80]}"
                raise InputError(f"{self.url} holds the parts of another job, with {shown}; name a new folder")

    def _write_description(self, text: str) -> None:
        if self._is_local:
            write_text(Path(self._name) / DESCRIPTION, text)
        else:
            self._files.pipe_file(f"{self._name}/{DESCRIPTION}", text.encode())
