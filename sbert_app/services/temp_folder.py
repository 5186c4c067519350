"""The folder of uploads and results: how much it may hold, and that what is older than a day leaves it."""

from __future__ import annotations

import logging
import math
import threading
import time
from pathlib import Path

from sbert_app.formats import format_bytes
from sbert_app.services.leftovers import remove_leftovers
from training.errors import InputError

log = logging.getLogger("sbert_lab.services")

RESULTS = ("scored", "explore", "handover", "label", "exports")  # Gradio removes the uploads itself
CLEANED_SECONDS = 3600.0  # between two looks at what is older than a day


class TempFolder:
    """``path`` and the bytes it may hold. Results are refused when it is full, as uploads are."""

    def __init__(self, path: Path, most: float = math.inf) -> None:
        self.path, self.most = path, most

    def check_room(self, more: int = 0) -> None:
        """InputError if so many more bytes do not fit."""
        if more + folder_size(self.path) > self.most:
            raise InputError(is_full(self.most))

    def results(self, name: str) -> Path:
        """The folder of one kind of results, a name in `RESULTS`. InputError if there is no room for more of them."""
        if name not in RESULTS:
            raise ValueError(name)
        self.check_room()
        return self.path / name

    def clean_regularly(self) -> None:
        """From now on, in a thread that ends with the process."""

        def clean() -> None:
            while True:
                time.sleep(CLEANED_SECONDS)
                self.clean()

        threading.Thread(target=clean, name="old results", daemon=True).start()

    def clean(self) -> None:
        """Remove results that are older than a day."""
        for name in RESULTS:
            remove_leftovers(self.path / name)


def is_full(most: float) -> str:
    """The sentence that refuses an upload or a result."""
    size = format_bytes(int(most))
    return f"the folder for uploads and results is full ({size}); files in it are removed after a day"


def folder_size(folder: Path) -> int:
    """Bytes of all files below a folder."""
    total = 0
    for file in folder.rglob("*"):
        try:
            total += 0 if file.is_symlink() or not file.is_file() else file.stat().st_size
        except OSError:  # removed meanwhile
            continue
    return total
