"""The folder of uploads and results, whose size and the age of its parts are limited.

A part is an upload, a scored file with its record and its results, or a file for a download. It is
removed as a whole, a day after the last of its files was written, so that nothing in use loses a
file.
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

# The folders of results. Uploads are beside them.
RESULTS = ("scored", "explore", "corpora", "handover", "label", "exports", "taken")
KEPT_SECONDS = 24 * 3600.0
# An incomplete file that was not written for this long belongs to a process that has ended.
UNTOUCHED_SECONDS = 300.0


class TempFolder:
    """A folder with at most ``most`` bytes. Uploads and results are refused when it is full."""

    def __init__(self, path: Path, most: float = math.inf) -> None:
        self.path = path
        self.most = most

    def check_room(self, more: int = 0) -> None:
        """Raises InputError if ``more`` bytes do not fit."""
        if more + folder_size(self.path) > self.most:
            raise InputError(full_message(self.most))

    def results(self, kind: str) -> Path:
        """The folder of one kind of `RESULTS`. Raises InputError if the folder is full."""
        if kind not in RESULTS:
            raise ValueError(kind)
        self.check_room()
        return self.path / kind

    def new_folder(self, kind: str) -> Path:
        """Creates a folder for one result of a kind of `RESULTS`, with a name that cannot be guessed.

        Raises InputError if the folder of uploads and results is full.
        """
        folder = self.results(kind) / token_hex(8)
        folder.mkdir(parents=True)
        return folder

    def clean(self) -> None:
        """Removes uploads and results that are older than a day, and incomplete files of processes that have ended."""
        result_folders = [self.path / kind for kind in RESULTS]
        # The parts are in the folders of results, and, for uploads, beside them.
        for folder in (*result_folders, self.path):
            if not folder.is_dir():
                continue
            for part in folder.iterdir():
                if part not in result_folders:
                    _remove_unused(part)
            sweep(folder, UNTOUCHED_SECONDS)


def _remove_unused(part: Path) -> None:
    """Removes a part a day after its last change. If it cannot be removed, as on a read-only disk, this is logged."""
    try:
        is_folder = _is_folder(part)
        files = [part, *part.rglob("*")] if is_folder else [part]
        last_change = max(file.lstat().st_mtime for file in files)
        # The part stays; only files in it that killed processes left incomplete are removed.
        if last_change >= time.time() - KEPT_SECONDS:
            for folder in filter(_is_folder, files):
                sweep(folder, UNTOUCHED_SECONDS)
        elif is_folder:
            shutil.rmtree(part)
        else:
            part.unlink()
    except FileNotFoundError:
        # Another process has removed the part, or a temporary file in it has got its final name.
        return
    except OSError as error:
        log.warning("%s is old and cannot be removed: %s", part, error.strerror or error)


def _is_folder(path: Path) -> bool:
    # Only the link itself is removed, not its target.
    return path.is_dir() and not path.is_symlink()


def keep_copy(source: Path, target: Path) -> Path:
    """Links a visitor's file, which takes no space, or else copies it. Raises InputError if neither is possible."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:
            # The target may be on another disk, or on one without links.
            shutil.copyfile(source, target)
    except OSError as error:
        raise InputError(f"{source.name} cannot be kept: {error.strerror or error}") from error
    return target


def full_message(most: float) -> str:
    """The error message for a folder that may have ``most`` bytes."""
    return f"the folder for uploads and results is full ({format_bytes(most)}); files in it are removed after a day"
