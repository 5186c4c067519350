"""What earlier starts of the app have left in the home folder's ``tmp``: removed when it starts again.

Gradio deletes the uploads of its own process after a day, and knows nothing of those before it.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

from training.atomic import sweep

log = logging.getLogger("sbert_lab.services")

KEPT_SECONDS = 24 * 3600.0
UNTOUCHED_SECONDS = 300.0  # a half-written file of a process that has ended; one that is written is younger


def remove_leftovers(folder: Path) -> None:
    """Remove files older than a day, half-written ones of ended processes, and folders that become empty.

    What cannot be removed, as on a disk that may only be read, is logged and stays.
    """
    if not folder.is_dir():
        return
    oldest = time.time() - KEPT_SECONDS
    try:
        for below in sorted(folder.rglob("*"), reverse=True):  # files before the folders that hold them
            if below.is_dir() and not below.is_symlink():
                sweep(below, UNTOUCHED_SECONDS)
                if below.stat().st_mtime < oldest and not any(below.iterdir()):
                    below.rmdir()
            elif below.lstat().st_mtime < oldest:
                below.unlink()
        sweep(folder, UNTOUCHED_SECONDS)
    except OSError as error:
        log.warning("old files in %s cannot be removed: %s", folder, error.strerror or error)
