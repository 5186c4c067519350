"""A corpus with its vectors under one model and pooling.

embedded = encode(corpus, encoder, cache)        computed once for each model and pooling
embedded.vectors                                 float32 (N, D), unit length
search(embedded, "a query", encoder)             see search.py
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sbert_app.formats import format_bytes
from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.store.cache import DiskCache, digest, remove_least_used
from training.errors import InputError, unwritable
from training.models.model import VectorModel
from training.models.texts import first_positions

if TYPE_CHECKING:
    from training.search import QuantizedIndex, SearchIndex

log = logging.getLogger("sbert_lab.corpus")

MAX_EXACT = 200_000  # vectors up to which a search compares all in float32: a few milliseconds
MIN_DIMENSION_OF_BITS = 256  # from which one bit a dimension finds 99% of the nearest ten among a million
MAX_AVERAGED = 20_000  # sentences over whose pairs a mean is taken
SAMPLED_WEIGHTS = 256  # of each parameter, for the fingerprint of an encoder


@dataclass(frozen=True, eq=False)
class EmbeddedCorpus:
    corpus: Corpus
    vectors: np.ndarray  # (N, D) float32, unit length; of a large corpus a memory map
    model: str
    pooling: str
    key: str  # equal for the same sentences under the same weights and pooling
    seconds: float  # that encoding took; 0 if the vectors came from the cache

    def __len__(self) -> int:
        return len(self.corpus)

    @cached_property
    def random_cosine(self) -> float:
        """The mean cosine of two different sentences of the corpus; 0 if there is but one."""
        return mean_pair_cosine(np.asarray(self.vectors[fixed_sample(len(self), MAX_AVERAGED)])) or 0.0

    @cached_property
    def index(self) -> SearchIndex | QuantizedIndex:
        """The search index, built on first use; of many vectors one that leaves them where they are."""
        from training.search import QuantizedIndex, SearchIndex, checked_index  # torch takes seconds to import

        if len(self) <= MAX_EXACT:
            return SearchIndex(self.vectors)
        has_bits = self.vectors.shape[1] >= MIN_DIMENSION_OF_BITS
        return checked_index(self.vectors) if has_bits else QuantizedIndex(self.vectors, bits=8)


def encode(
    corpus: Corpus,
    encoder: VectorModel,
    cache: DiskCache | None = None,
    watch: Watch = UNWATCHED,
    folder: Path | None = None,
) -> EmbeddedCorpus:
    """Encode a corpus, or read its vectors from the cache.

    With ``folder`` the vectors are a file in it that is mapped into memory, and goes on where it was stopped
    (`encode_to_file`); otherwise they are in memory, and kept in ``cache``. Raises InputError if the file cannot be
    written.
    """
    key, started = embedding_key(corpus, encoder), time.perf_counter()
    path = None if folder is None else folder / f"{key}{SUFFIX}"
    vectors = cache.get(key) if cache is not None and path is None else None
    is_done = vectors is not None if path is None else path.exists()
    if path is not None:
        vectors = encode_to_file(path, corpus.sentences, encoder, watch)
    elif vectors is None:
        vectors = encoder.encode(corpus.sentences, True, watch.on_progress, watch.should_stop)
        if cache is not None:
            cache.put(key, vectors)
    seconds = 0.0 if is_done else time.perf_counter() - started
    return EmbeddedCorpus(corpus, vectors, encoder.name, encoder.pooling, key, seconds)


def embedding_key(corpus: Corpus, encoder: VectorModel) -> str:
    """Identifies the vectors of a corpus."""
    return digest([corpus.digest, fingerprint(encoder)])


def fingerprint(encoder: VectorModel) -> str:
    """Identifies what an encoder's vectors depend on: its weights (a sample of each parameter) and its settings.

    The name is not enough: a run that continues training, or a folder that is replaced, keeps its name.
    """
    parts = [encoder.name, encoder.pooling, str(encoder.max_length or ""), *filter(None, [encoder.settings])]
    return digest([*parts, *_weights(encoder)])


def weights_key(encoder: VectorModel) -> str:
    """Identifies a model's weights, whatever its name and its settings are."""
    return digest(_weights(encoder))


def _weights(encoder: VectorModel) -> list[str]:
    """A sample of each parameter."""
    return [f"{name} {sample.tobytes().hex()}" for name, sample in encoder.weights_sample(SAMPLED_WEIGHTS)]


def mean_pair_cosine(vectors: np.ndarray) -> float | None:
    """The mean cosine over all pairs of unit vectors (n, D); None if there is no pair.

    The squared norm of the sum is the sum of the cosines of all pairs, twice, and of each vector with itself.
    """
    n = len(vectors)
    if n < 2:
        return None
    total = vectors.sum(axis=0, dtype=np.float64)
    return float(total @ total - n) / (n * (n - 1))


SEED = 0


class Sample(NamedTuple):
    embedded: EmbeddedCorpus
    rows: np.ndarray  # int64 (n,), ascending: their positions in the corpus


def fixed_sample(count: int, size: int) -> np.ndarray:
    """``size`` of ``count`` rows, always the same ones: int64, ascending."""
    if count <= size:
        return np.arange(count, dtype=np.int64)
    return np.sort(np.random.default_rng(SEED).choice(count, size, replace=False)).astype(np.int64)


def sample_of(embedded: EmbeddedCorpus, size: int) -> Sample:
    """At most ``size`` sentences of a corpus with their vectors, in memory; a smaller corpus as it is."""
    rows = fixed_sample(len(embedded), size)
    if len(rows) == len(embedded):
        return Sample(embedded, rows)
    corpus, vectors = embedded.corpus.select(rows.tolist()), np.array(embedded.vectors[rows])
    key = digest([embedded.key, f"sample {size} {SEED}"])
    return Sample(EmbeddedCorpus(corpus, vectors, embedded.model, embedded.pooling, key, 0.0), rows)


# ---------------------------------------------------------------- the vectors of a large corpus in a file

# They are written as they are computed, and mapped into memory when they are complete. What is there is never computed
# again: an encoding that was stopped, or whose process was killed, goes on from the last complete row. The file is
# N · D float32, row by row, without a header; while it is incomplete its name ends with ``.incomplete``, and how much
# of it there is says how far it is.

SUFFIX, INCOMPLETE = ".f32", ".incomplete"
CHUNK = 16_384  # sentences that are encoded, and then written, at a time
BYTES = 4  # of a float32
POLL_SECONDS = 0.2  # between two looks at a file that another process writes
MAX_BYTES = 64 << 30  # of all files; the least recently used are removed


def encode_to_file(
    path: Path,
    sentences: list[str] | Iterator[str],
    encoder: VectorModel,
    watch: Watch = UNWATCHED,
    chunk: int = CHUNK,
    count: int = 0,
) -> np.ndarray:
    """The vectors of all sentences, float32 (N, D), mapped read-only; computed as far as the file lacks them.

    Its folder is created. ``watch`` is asked within and between chunks, each of which is written when it is done.
    An iterator is read once, and has ``count`` sentences; equal ones among them are not looked for.
    Raises InputError if the disk is full or not writable. What is done stays, also after a stop.
    """
    from filelock import FileLock, Timeout

    shape = (len(sentences) if isinstance(sentences, list) else count, encoder.dimension)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    while True:
        if (vectors := open_vectors(path, shape)) is not None:
            return vectors
        watch.check()
        try:
            with lock.acquire(timeout=POLL_SECONDS):
                _complete(path, sentences, shape[0], encoder, watch, chunk)
        except Timeout:  # another process is at it
            continue


def open_vectors(path: Path, shape: tuple[int, int]) -> np.ndarray | None:
    """A complete file, mapped read-only; None if there is none of this shape."""
    try:
        if path.stat().st_size != shape[0] * shape[1] * BYTES:
            return None
        os.utime(path)  # the modification time is the time of last use
        return np.memmap(path, dtype=np.float32, mode="r", shape=shape)
    except OSError:  # there is none, or a link that leads nowhere
        return None


def rows_done(path: Path, dimension: int) -> int:
    """How many complete rows an incomplete file has."""
    part = path.with_name(path.name + INCOMPLETE)
    return part.stat().st_size // (dimension * BYTES) if part.exists() else 0


def _complete(
    path: Path, sentences: list[str] | Iterator[str], total: int, encoder: VectorModel, watch: Watch, chunk: int
) -> None:
    """Compute and append the rows that the file lacks, each distinct sentence once, and give it its name."""
    part = path.with_name(path.name + INCOMPLETE)
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
            first = first_positions(sentences) if isinstance(sentences, list) else np.arange(total)
            texts = islice(sentences, done, None)
            for start in range(done, total, chunk):
                watch.check()
                rows = first[start : start + chunk]
                is_new = rows >= start  # the others equal a sentence whose vector is in the file
                vectors = np.empty((len(rows), encoder.dimension), dtype=np.float32)
                new = [text for text, wanted in zip(islice(texts, len(rows)), is_new, strict=True) if wanted]
                vectors[is_new] = encoder.encode(new, should_stop=watch.should_stop)
                if start:
                    written = np.memmap(part, dtype=np.float32, mode="r", shape=(start, encoder.dimension))
                    vectors[~is_new] = written[rows[~is_new]]
                file.write(vectors.data)
                file.flush()
                watch.report(min(start + chunk, total), None, total)
        part.replace(path)
    except OSError as error:
        raise unwritable(part, error, "free some space and open the corpus again: what is done is kept") from error
    remove_least_used(path.parent.glob(f"*{SUFFIX}"), MAX_BYTES, kept=path)
