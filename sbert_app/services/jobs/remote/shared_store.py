"""SharedStore: a folder that several machines reach, by any file system of fsspec. $SBERT_STORE names it.

runs/<run>/<attempt>/job.json        what is to be done (`sbert_app.services.jobs.remote.offer.Job`)
                     from/…          the checkpoint, model and events that it goes on from
                     claim.json      the worker that does it
                     stop            written when a user stops the run
                     status.json     how far it is (`sbert_app.services.jobs.remote.push.Status`)
                     events.jsonl, log.txt, negatives.jsonl
                     checkpoint-<n>/, model-<n>/     the n-th version; status.json names the complete one
inputs/<hash>/…                      files and models of the home folder that configs name

An attempt is one worker's work on a run. A worker that everybody takes for dead and that is not finds its attempt
gone, and ends.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from sbert_app.services.shards.blocks import filesystem
from training.atomic import write_bytes
from training.errors import InputError


class StoreUnreachable(InputError):  # noqa: N818 - reads as a state
    """The store does not answer, or cannot be written."""


class SharedStore:
    """Files by name, "runs/x/001/job.json". Every method raises `StoreUnreachable` if the store does not answer.

    Args:
        url: a folder, or a URL such as s3://bucket/folder.

    Raises:
        InputError: no installed package opens such a URL.
    """

    def __init__(self, url: str) -> None:
        from fsspec.implementations.local import LocalFileSystem

        self.url = url.rstrip("/")
        self._files, self._root = filesystem(self.url)
        self._is_local = isinstance(self._files, LocalFileSystem)
        self._made: set[str] = set()  # folders that need not be created again

    def check(self) -> None:
        """Whether it answers."""
        with self._reached(""):
            self._files.makedirs(self._root, exist_ok=True)

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is none."""
        with self._reached(name):
            try:
                return bytes(self._files.cat_file(self._path(name)))
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes) -> None:
        """Write a file. It appears whole: object stores do so by themselves."""
        with self._reached(name):
            self._make_parent(name)
            if self._is_local:
                write_bytes(Path(self._path(name)), data)
            else:
                self._files.pipe_file(self._path(name), data)

    def create(self, name: str, data: bytes) -> bool:
        """Write a file unless there is one -> whether this call wrote it. At most one of several callers does."""
        with self._reached(name):
            self._make_parent(name)
            try:
                self._files.pipe_file(self._path(name), data, mode="create")
            except FileExistsError:
                return False
            return True

    def read_json(self, name: str) -> dict[str, Any] | None:
        """The object in a file; None if there is no such file, or it is damaged."""
        data = self.read(name)
        try:
            found = None if data is None else json.loads(data)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def write_json(self, name: str, value: dict[str, Any]) -> None:
        """Write an object."""
        self.write(name, json.dumps(value, ensure_ascii=False).encode())

    def exists(self, name: str) -> bool:
        """Whether there is such a file or folder."""
        with self._reached(name):
            self._files.invalidate_cache()
            return bool(self._files.exists(self._path(name)))

    def names(self, name: str) -> list[str]:
        """The names in a folder, sorted; none if there is no such folder."""
        with self._reached(name):
            self._files.invalidate_cache()
            try:
                found = self._files.ls(self._path(name), detail=False)
            except FileNotFoundError:
                return []
            return sorted(each.rstrip("/").rsplit("/", 1)[-1] for each in found)

    def put_file(self, file: Path, name: str) -> None:
        """Copy a file of any size."""
        with self._reached(name):
            self._make_parent(name)
            self._files.put_file(str(file), self._path(name))

    def put_folder(self, folder: Path, name: str) -> list[str]:
        """Copy all files of a folder -> their names in it."""
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        names = [file.relative_to(folder).as_posix() for file in files]
        for file, below in zip(files, names, strict=True):
            self.put_file(file, f"{name}/{below}")
        return names

    def get_folder(self, name: str, files: list[str], folder: Path) -> None:
        """Copy files of a folder in the store to one on the disk."""
        for file in files:
            target = folder / file
            if not target.resolve().is_relative_to(folder.resolve()):
                raise InputError(f"{self.url}/{name} names a file outside of its folder: {file}")
            target.parent.mkdir(parents=True, exist_ok=True)
            with self._reached(f"{name}/{file}"):
                self._files.get_file(self._path(f"{name}/{file}"), str(target))

    def remove(self, name: str) -> None:
        """Remove a file or folder, if there is one."""
        with self._reached(name):
            self._files.invalidate_cache()
            self._made.clear()
            if self._files.exists(self._path(name)):
                self._files.rm(self._path(name), recursive=True)

    def _make_parent(self, name: str) -> None:
        parent = str(PurePosixPath(self._path(name)).parent)
        if parent not in self._made:
            self._files.makedirs(parent, exist_ok=True)
            self._made.add(parent)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextmanager
    def _reached(self, name: str) -> Iterator[None]:
        try:
            yield
        except UnicodeError:
            raise
        except Exception as error:  # each file system has its own errors
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            raise StoreUnreachable(f"the store {self.url} cannot be used ({name or 'its folder'}: {reason})") from error


def open_store() -> SharedStore | None:
    """The store in $SBERT_STORE; None if there is none. InputError if it cannot be opened."""
    url = os.environ.get("SBERT_STORE", "")
    return SharedStore(url) if url else None
