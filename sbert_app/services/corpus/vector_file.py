"""The vectors of a large corpus in a file: written as they are computed, mapped into memory when they are complete.

    vectors = encode_to_file(folder / f"{key}.f32", sentences, encoder)     float32 (N, D), a memory map

What is there is never computed again: an encoding that was stopped, or whose process was killed, goes on from the
last complete row. The file is N · D float32, row by row, without a header; while it is incomplete its name ends with
``.incomplete``, and how much of it there is says how far it is.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sbert_app.formats import format_bytes
from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.store.cache import remove_least_used
from training.errors import InputError, unwritable

if TYPE_CHECKING:
    from training.models.encoder import Encoder


log = logging.getLogger("sbert_lab.corpus")

SUFFIX, INCOMPLETE = ".f32", ".incomplete"
CHUNK = 16_384  # sentences that are encoded, and then written, at a time
BYTES = 4  # of a float32
POLL_SECONDS = 0.2  # between two looks at a file that another process writes
MAX_BYTES = 64 << 30  # of all files; the least recently used are removed


def encode_to_file(
    path: Path, sentences: Sequence[str], encoder: Encoder, watch: Watch = UNWATCHED, chunk: int = CHUNK
) -> np.ndarray:
    """The vectors of all sentences, float32 (N, D), mapped read-only; computed as far as the file lacks them.

    Its folder is created. ``watch`` is asked within and between chunks, each of which is written when it is done.
    Raises InputError if the disk is full or not writable. What is done stays, also after a stop.
    """
    from filelock import FileLock, Timeout

    shape = (len(sentences), encoder.dimension)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    while True:
        if (vectors := open_vectors(path, shape)) is not None:
            return vectors
        watch.check()
        try:
            with lock.acquire(timeout=POLL_SECONDS):
                _complete(path, sentences, encoder, watch, chunk)
        except Timeout:  # another process is at it
            continue


def open_vectors(path: Path, shape: tuple[int, int]) -> np.ndarray | None:
    """A complete file, mapped read-only; None if there is none of this shape."""
    try:
        if path.stat().st_size != shape[0] * shape[1] * BYTES:
            return None
        os.utime(path)  # the modification time is the time of last use
        return np.memmap(path, dtype=np.float32, mode="r", shape=shape)
    except FileNotFoundError:
        return None


def rows_done(path: Path, dimension: int) -> int:
    """How many complete rows an incomplete file has."""
    part = path.with_name(path.name + INCOMPLETE)
    return part.stat().st_size // (dimension * BYTES) if part.exists() else 0


def _complete(path: Path, sentences: Sequence[str], encoder: Encoder, watch: Watch, chunk: int) -> None:
    """Compute and append the rows that the file lacks, and give it its name."""
    part, total = path.with_name(path.name + INCOMPLETE), len(sentences)
    for folder in filter(Path.is_dir, (part, path)):  # in the place of a file
        shutil.rmtree(folder, ignore_errors=True)
    row_bytes = encoder.dimension * BYTES
    done = min(rows_done(path, encoder.dimension), total)
    size = (total - done) * row_bytes
    try:
        if size > (free := shutil.disk_usage(path.parent).free):
            raise InputError(
                f"the vectors of this corpus take {format_bytes(size)}, and {path.parent} has {format_bytes(free)} "
                "free. Open fewer sentences, or a model with fewer dimensions."
            )
        if done:
            log.info("going on with %s from sentence %d of %d", path.name, done + 1, total)
        with part.open("ab") as file:
            file.truncate(done * row_bytes)  # a row of which only a part was written
            watch.report(done, None, total)
            for start in range(done, total, chunk):
                watch.check()
                vectors = encoder.encode(sentences[start : start + chunk], should_stop=watch.should_stop)
                file.write(np.ascontiguousarray(vectors, dtype=np.float32).data)
                file.flush()
                watch.report(min(start + chunk, total), None, total)
        part.replace(path)
    except OSError as error:
        raise unwritable(part, error, "free some space and open the corpus again: what is done is kept") from error
    remove_least_used(path.parent.glob(f"*{SUFFIX}"), MAX_BYTES, kept=path)
