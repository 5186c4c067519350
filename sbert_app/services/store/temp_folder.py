"""The folder of uploads and results, with a limit of its size and of the age of its parts.

A part is an upload, a scored file with its record and its results, or a file for a download. It is removed as a whole,
a day after the last of its files was written, so that nothing in use loses a file.
"""

import logging
import math
import os
import shutil
import time
from pathlib import Path
from secrets import token_hex

from sbert_app.formats import format_bytes
from training.atomic import folder_size, sweep
from training.errors import InputError

log = logging.getLogger("sbert_lab.services")

RESULTS = ("scored", "explore", "corpora", "handover", "label", "exports", "taken")
KEPT_SECONDS = 24 * 3600.0
# An older half-written file belongs to a process that has ended.
UNTOUCHED_SECONDS = 300.0


class TempFolder:
    """A folder and the bytes that it may hold. Uploads and results are refused when it is full."""

    def __init__(self, path: Path, most: float = math.inf) -> None:
        self.path = path
        self.most = most

    def check_room(self, more: int = 0) -> None:
        """Raises InputError if so many more bytes do not fit."""
        if more + folder_size(self.path) > self.most:
            raise InputError(is_full(self.most))

    def results(self, kind: str) -> Path:
        """The folder of one kind of `RESULTS`. InputError if there is no room for more of them."""
        if kind not in RESULTS:
            raise ValueError(kind)
        self.check_room()
        return self.path / kind

    def new_folder(self, kind: str) -> Path:
        """Create a folder for one result, whose name nobody guesses. InputError as `results`."""
        folder = self.results(kind) / token_hex(8)
        folder.mkdir(parents=True)
        return folder

    def clean(self) -> None:
        """Remove uploads and results that are older than a day, and half-written files of ended processes."""
        for folder in (*(self.path / kind for kind in RESULTS), self.path):
            if folder.is_dir():
                for thing in folder.iterdir():
                    if folder != self.path or thing.name not in RESULTS:
                        _remove_unused(thing)
                sweep(folder, UNTOUCHED_SECONDS)


def _remove_unused(thing: Path) -> None:
    """Remove a part after a day. One that cannot be removed, as on a read-only disk, is logged and stays."""
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
    except FileNotFoundError:
        # Somebody else has removed it, or one of its files is being written.
        return
    except OSError as error:
        log.warning("%s is old and cannot be removed: %s", thing, error.strerror or error)


def keep_copy(source: Path, target: Path) -> Path:
    """Link a visitor's file, which takes no room, or else copy it. InputError if neither is possible."""
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
    return f"the folder for uploads and results is full ({format_bytes(most)}); files in it are removed after a day"
