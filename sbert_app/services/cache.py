"""Arrays on disk by key: vectors and maps that would take seconds to compute again.

One .npy file a key, written whole or not at all, never unpickled. The folder is bounded: the least recently used
files go first. A cache may fail (a full disk, a folder that may not be written to): then it has nothing, and says
so in the log. ``shipped`` is a second folder, only read, with what comes with the app.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from training.atomic import open_atomic, sweep

log = logging.getLogger("sbert_lab.cache")

MOST_BYTES = 4 << 30


class DiskCache:
    """Safe for several threads and processes: each file appears by one rename."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES, shipped: Path | None = None) -> None:
        self.folder = folder
        self.most_bytes = most_bytes
        self.shipped = shipped

    def get(self, key: str) -> np.ndarray | None:
        """The array, or None where there is none that is whole."""
        for file in self._places(key):
            try:
                array = np.load(file, allow_pickle=False)
                if file.parent == self.folder:
                    os.utime(file)  # used now
            except FileNotFoundError:
                continue
            except (OSError, ValueError, EOFError) as error:
                log.warning("%s is not usable: %s", file, error)
                continue
            return array
        return None

    def put(self, key: str, array: np.ndarray) -> None:
        """Keep an array, and let the oldest go where there is no room. One that alone is too big is not kept."""
        if array.nbytes > self.most_bytes:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._write(self.folder / f"{key}.npy", array)
            self._make_room()
        except OSError as error:
            log.warning("%s could not be kept: %s", key, error)

    def _places(self, key: str) -> list[Path]:
        return [folder / f"{key}.npy" for folder in (self.folder, self.shipped) if folder is not None]

    def _write(self, file: Path, array: np.ndarray) -> None:
        with open_atomic(file, "wb") as fresh:
            np.save(fresh, array, allow_pickle=False)

    def _make_room(self) -> None:
        sweep(self.folder)
        ages = []
        for file in self.folder.glob("*.npy"):
            try:
                facts = file.stat()
            except FileNotFoundError:  # another process was faster
                continue
            ages.append((facts.st_mtime_ns, facts.st_size, file))
        spare = sum(size for _, size, _ in ages) - self.most_bytes
        for _, size, file in sorted(ages):
            if spare <= 0:
                break
            file.unlink(missing_ok=True)
            spare -= size


def digest(parts: Iterable[str]) -> str:
    """Sixteen bytes, as hex, that stand for these texts in this order."""
    state = hashlib.sha256()
    for part in parts:
        state.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return state.hexdigest()[:32]
