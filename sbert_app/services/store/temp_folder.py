"""The folder of uploads and results: how much it may hold, and that what nobody has used for a day leaves it.

It holds *things*: an upload, a scored file with its record and its results, a file that was made for a download. A
thing is removed as a whole, a day after the last of its files was written, so that what is still in use loses no part.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from sbert_app.formats import format_bytes
from training.atomic import sweep
from training.errors import InputError

log = logging.getLogger("sbert_lab.services")

RESULTS = ("scored", "explore", "corpora", "handover", "label", "exports")  # each the folder of one kind of things
KEPT_SECONDS = 24 * 3600.0
UNTOUCHED_SECONDS = 300.0  # a half-written file of a process that has ended; one that is written is younger


class TempFolder:
    """``path`` and the bytes it may hold. Results are refused when it is full, as uploads are."""

    def __init__(self, path: Path, most: float = math.inf) -> None:
        self.path, self.most = path, most

    def check_room(self, more: int = 0) -> None:
        """InputError if so many more bytes do not fit."""
        if more + folder_size(self.path) > self.most:
            raise InputError(is_full(self.most))

    def results(self, kind: str) -> Path:
        """The folder of one kind of results, of `RESULTS`. InputError if there is no room for more of them."""
        if kind not in RESULTS:
            raise ValueError(kind)
        self.check_room()
        return self.path / kind

    def new_folder(self, kind: str) -> Path:
        """A folder for one result, which nobody guesses. InputError as `results`."""
        folder = self.results(kind) / token_hex(8)
        folder.mkdir(parents=True)
        return folder

    def clean(self) -> None:
        """Remove uploads and results that are older than a day, and what ended processes have left half-written."""
        for folder in (*(self.path / kind for kind in RESULTS), self.path):
            if folder.is_dir():
                for thing in folder.iterdir():
                    if folder != self.path or thing.name not in RESULTS:
                        _remove_unused(thing)
                sweep(folder, UNTOUCHED_SECONDS)


def _remove_unused(thing: Path) -> None:
    """Remove a thing after a day. What cannot be removed, as on a disk that may only be read, is logged and stays."""
    try:
        is_folder = thing.is_dir() and not thing.is_symlink()
        parts = [thing, *(thing.rglob("*") if is_folder else [])]
        if max(part.lstat().st_mtime for part in parts) >= time.time() - KEPT_SECONDS:
            for folder in (part for part in parts if part.is_dir() and not part.is_symlink()):
                sweep(folder, UNTOUCHED_SECONDS)
        elif is_folder:
            shutil.rmtree(thing)
        else:
            thing.unlink()
    except FileNotFoundError:  # somebody else has removed it, or a part of it is being written
        return
    except OSError as error:
        log.warning("%s is old and cannot be removed: %s", thing, error.strerror or error)


def keep_copy(source: Path, target: Path) -> Path:
    """Link a visitor's file, which takes no room, or copy it where that is impossible. InputError if it cannot be."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)
    except OSError as error:
        raise InputError(f"{source.name} cannot be kept: {error.strerror or error}") from error
    return target


def is_full(most: float) -> str:
    size = format_bytes(int(most))
    return f"the folder for uploads and results is full ({size}); files in it are removed after a day"


def folder_size(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        with suppress(OSError):  # removed meanwhile
            total += 0 if file.is_symlink() or not file.is_file() else file.stat().st_size
    return total
