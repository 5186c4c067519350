"""Caches: arrays on disk by key (`DiskCache`), objects in memory by key (`LRUCache`), and content keys (`digest`).

Both are bounded and evict the least recently used entries first.
"""

import hashlib
import logging
import math
import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from training.atomic import open_atomic, sweep

log = logging.getLogger("sbert_lab.cache")

MAX_BYTES = 4 << 30
# The name in the file of an array that `put` stores alone.
SINGLE = "array"

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class DiskCache:
    """Arrays in a folder, one file for each key. Safe for several threads and processes.

    Arrays are stored by name in KEY.npz, with checksums. Files are written atomically and never
    unpickled. A file that cannot be read or written (damaged, disk full, no permission) is logged
    and counts as absent, and will be replaced.

    Args:
        folder: the folder of the files, which the first entry creates.
        max_bytes: the most bytes of all files together. A larger entry is not stored.
        shipped: a second folder, which is only read.
    """

    def __init__(
        self, folder: Path, max_bytes: int = MAX_BYTES, shipped: Path | None = None
    ) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self.shipped = shipped

    def get(self, key: str) -> np.ndarray | None:
        """The array that `put` stored; None if it is absent."""
        arrays = self.get_arrays(key) or {}
        return arrays.get(SINGLE)

    def put(self, key: str, array: np.ndarray) -> None:
        self.put_arrays(key, {SINGLE: array})

    def get_or_compute(self, key: str, compute: Callable[[], np.ndarray]) -> np.ndarray:
        """The array of a key. It is computed and stored if it is absent."""
        array = self.get(key)
        if array is None:
            array = compute()
            self.put(key, array)
        return array

    def get_arrays(self, key: str) -> dict[str, np.ndarray] | None:
        """The arrays of a key, by name; None if they are absent."""
        # A file of the user's folder comes before the shipped one.
        for folder in filter(None, (self.folder, self.shipped)):
            file = folder / f"{key}.npz"
            try:
                with np.load(file, allow_pickle=False) as loaded:
                    arrays = dict(loaded)
                if folder == self.folder:
                    # The modification time is the time of last use.
                    os.utime(file)
            except FileNotFoundError:
                continue
            except Exception as error:  # noqa: BLE001 - numpy and zipfile raise many errors for damaged files
                log.warning("%s cannot be read and is computed anew: %s", file, error)
                if isinstance(error, IsADirectoryError) and folder == self.folder:
                    # A folder, unlike a file, could not be overwritten.
                    shutil.rmtree(file, ignore_errors=True)
                continue
            return arrays
        return None

    def put_arrays(self, key: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Stores the arrays of a key, and removes the least recently used files if there are too many bytes."""
        if sum(array.nbytes for array in arrays.values()) > self.max_bytes:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with open_atomic(self.folder / f"{key}.npz", "wb") as file:
                np.savez(file, allow_pickle=False, **arrays)
            # Unfinished files of killed processes do not count for the limit below.
            sweep(self.folder)
            remove_least_used(self.folder.glob("*.npz"), self.max_bytes)
        except OSError as error:
            log.warning("%s.npz cannot be stored in the cache: %s", key, error)


def remove_least_used(files: Iterable[Path], max_bytes: int, spared: Path | None = None) -> None:
    """Removes the least recently used files, but not ``spared``, until at most ``max_bytes`` remain.

    The modification time of a file is the time of its last use.
    """
    entries = []
    for file in files:
        # Another process may have removed the file.
        with suppress(FileNotFoundError):
            stat = file.stat()
            entries.append((stat.st_mtime_ns, stat.st_size, file))
    excess = sum(size for _, size, _ in entries) - max_bytes
    for _, size, file in sorted(entries):
        if excess > 0 and file != spared:
            file.unlink(missing_ok=True)
            excess -= size


class LRUCache(Generic[K, V]):
    """Objects in memory, limited in total size and number. Thread-safe.

    The newest object stays even if it is larger than ``max_size``. By default each object has the
    size 1.
    """

    def __init__(
        self,
        max_size: float,
        size_of: Callable[[V], float] = lambda _: 1,
        max_count: float = math.inf,
    ) -> None:
        self.max_size = max_size
        self.max_count = max_count
        self._size_of = size_of
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """The object of a key, which becomes the most recently used; None if it is absent."""
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key]

    def put(self, key: K, value: V) -> bool:
        """Stores an object, and evicts others until both limits hold or it is alone.

        Returns whether any was evicted.
        """
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            before = len(self._entries)
            while len(self._entries) > 1 and self._is_too_large():
                self._entries.popitem(last=False)
            return len(self._entries) < before

    def _is_too_large(self) -> bool:
        size = sum(map(self._size_of, self._entries.values()))
        return len(self._entries) > self.max_count or size > self.max_size

    def __iter__(self) -> Iterator[K]:
        """Yields the current keys, the least recently used first."""
        with self._lock:
            return iter(list(self._entries))

    def remove(self, condition: Callable[[K], bool]) -> None:
        """Removes the objects whose keys fulfil a condition."""
        with self._lock:
            for key in list(filter(condition, self._entries)):
                del self._entries[key]

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)


def digest(parts: Iterable[str]) -> str:
    """A content key: 32 hex digits (128 bits of SHA-256) that identify these texts in this order."""
    state = hashlib.sha256()
    for part in parts:
        # The zero byte shows where a text ends.
        state.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return state.hexdigest()[:32]
