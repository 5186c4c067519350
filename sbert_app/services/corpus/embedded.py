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
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from filelock import FileLock, Timeout

from sbert_app.formats import format_bytes
from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.models.unknown import unknown_warning
from sbert_app.services.store.cache import DiskCache, digest, remove_least_used
from training.errors import InputError, unwritable
from training.models.model import VectorModel
from training.models.texts import first_positions
from training.pooling import is_finite

if TYPE_CHECKING:
    from training.search import QuantizedIndex, SearchIndex

log = logging.getLogger("sbert_lab.corpus")

# Up to this number of vectors, an exact search in float32 takes a few milliseconds.
MAX_EXACT = 200_000
# From this dimension on, a search with one bit per dimension finds 99% of the ten nearest among a
# million vectors.
MIN_DIMENSION_OF_BITS = 256
MAX_AVERAGED = 20_000
# The number of values of each parameter that the fingerprint of an encoder is made of.
SAMPLED_WEIGHTS = 256
SEED = 0


@dataclass(frozen=True, eq=False)
class EmbeddedCorpus:
    """A corpus and its vectors.

    Attributes:
        vectors: unit float32 (N, D); a memory map for a large corpus.
        key: identifies the sentences, the weights and the pooling.
        seconds: the time of encoding; 0 if the vectors came from the cache.
        unknown: the positions of sentences without known tokens or with vectors that are not
            finite: int64, ascending. Their vectors are 0.
    """

    corpus: Corpus
    vectors: np.ndarray
    model: str
    pooling: str
    key: str
    seconds: float
    unknown: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.corpus)

    @property
    def warnings(self) -> list[str]:
        """A warning about unknown sentences, if there are any."""
        if not len(self.unknown):
            return []
        return [unknown_warning(self.model, self.unknown.tolist())]

    @property
    def comparable(self) -> np.ndarray:
        """The positions of all sentences but the unknown ones: int64, ascending."""
        return np.delete(np.arange(len(self), dtype=np.int64), self.unknown)

    @cached_property
    def random_cosine(self) -> float:
        """The mean cosine of two different sentences of the corpus; 0 for a single sentence."""
        sample = self.vectors[fixed_sample(len(self), MAX_AVERAGED)]
        # None, for a single sentence, becomes 0.
        return mean_pair_cosine(np.asarray(sample)) or 0.0

    @cached_property
    def index(self) -> SearchIndex | QuantizedIndex:
        """The search index, built on first use. The index of a large corpus leaves the vectors in their file."""
        # The import of torch takes seconds.
        from training.search import QuantizedIndex, SearchIndex, checked_index

        if len(self) <= MAX_EXACT:
            return SearchIndex(self.vectors)
        if self.vectors.shape[1] >= MIN_DIMENSION_OF_BITS:
            # One bit for each dimension, or a byte if bits find too few neighbours.
            return checked_index(self.vectors)
        # The few bits of a short vector would not tell enough vectors apart.
        return QuantizedIndex(self.vectors, bits=8)


def encode(
    corpus: Corpus,
    encoder: VectorModel,
    cache: DiskCache | None = None,
    watch: Watch = UNWATCHED,
    folder: Path | None = None,
) -> EmbeddedCorpus:
    """Encodes a corpus, or reads its vectors from the cache.

    With ``folder`` the vectors are a file in it (`encode_to_file`). Otherwise they are in memory,
    and are stored in the cache. Raises InputError if the file cannot be written.
    """
    key = embedding_key(corpus, encoder)
    started = time.perf_counter()
    if folder is not None:
        path = folder / f"{key}{SUFFIX}"
        # An incomplete file has another name.
        is_cached = path.exists()
        vectors = encode_to_file(path, corpus.sentences, encoder, watch)
    else:
        cached = None if cache is None else cache.get(key)
        is_cached = cached is not None
        if cached is not None:
            vectors = cached
        else:
            vectors = _encode_finite(encoder, corpus.sentences, watch)
            if cache is not None:
                cache.put(key, vectors)
    seconds = 0.0 if is_cached else time.perf_counter() - started

    def find_unknown() -> np.ndarray:
        """The positions of the sentences that count as unknown (`EmbeddedCorpus.unknown`)."""
        is_unknown = np.empty(len(corpus), dtype=bool)
        for start in range(0, len(corpus), CHUNK):
            watch.check()
            part = slice(start, start + CHUNK)
            is_unknown[part] = encoder.is_unknown(corpus.sentences[part])
            # `_encode_finite` has set vectors that are not finite to 0. Their sentences count as
            # unknown, too.
            is_unknown[part] |= ~np.asarray(vectors[part]).any(axis=1)
        return np.flatnonzero(is_unknown)

    if cache is None:
        unknown = find_unknown()
    else:
        unknown = cache.get_or_compute(digest(["unknown", key]), find_unknown)
    return EmbeddedCorpus(corpus, vectors, encoder.name, encoder.pooling, key, seconds, unknown)


def _encode_finite(encoder: VectorModel, sentences: list[str], watch: Watch) -> np.ndarray:
    """The vectors of sentences. Vectors that are not finite become 0, as search and clusters need numbers."""
    vectors = encoder.encode(
        sentences, on_progress=watch.on_progress, should_stop=watch.should_stop
    )
    vectors[~is_finite(vectors)] = 0
    return vectors


def embedding_key(corpus: Corpus, encoder: VectorModel) -> str:
    """The key of the vectors of a corpus."""
    return digest([corpus.digest, fingerprint(encoder)])


def fingerprint(encoder: VectorModel) -> str:
    """The key of an encoder's weights (a sample of each parameter) and its settings.

    The name is not enough: a run that continues training, or a folder that is replaced, keeps its
    name.
    """
    parts = [encoder.name, encoder.pooling, str(encoder.max_length or "")]
    # Such as fewer dimensions or a prompt; "" by default.
    if encoder.settings:
        parts.append(encoder.settings)
    return digest([*parts, *_weights(encoder)])


# The keys by weights, as computing one takes time.
_keys: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def weights_key(encoder: VectorModel) -> str:
    """The key of a model's weights, independent of its name and settings."""
    # Encoders of one model that differ in the pooling have equal weights, and the same object
    # ``backbone``, the transformer. So the key is stored by this object.
    shared = getattr(encoder, "backbone", encoder)
    if shared not in _keys:
        _keys[shared] = digest(_weights(encoder))
    return _keys[shared]


def _weights(encoder: VectorModel) -> list[str]:
    """A sample of each parameter."""
    samples = []
    for name, sample in encoder.weights_sample(SAMPLED_WEIGHTS):
        samples.append(f"{name} {sample.tobytes().hex()}")
    return samples


def mean_pair_cosine(vectors: np.ndarray) -> float | None:
    """The mean cosine over all pairs of unit vectors (n, D); None for fewer than two.

    The squared norm of the sum of n unit vectors is the sum of n² cosines: n times 1, as each
    vector is compared with itself, and twice the cosine of each pair.
    """
    n = len(vectors)
    if n < 2:
        return None
    total = vectors.sum(axis=0, dtype=np.float64)
    return float(total @ total - n) / (n * (n - 1))


class Sample(NamedTuple):
    """A sample of a corpus, and the ascending positions of its sentences there, int64 (n,)."""

    embedded: EmbeddedCorpus
    rows: np.ndarray


def fixed_sample(count: int, size: int) -> np.ndarray:
    """At most ``size`` of ``count`` rows, always the same for equal arguments: int64, ascending."""
    if count <= size:
        return np.arange(count, dtype=np.int64)
    rows = np.random.default_rng(SEED).choice(count, size, replace=False)
    return np.sort(rows).astype(np.int64)


def sample_of(embedded: EmbeddedCorpus, size: int) -> Sample:
    """At most ``size`` sentences of a corpus with their vectors, in memory."""
    rows = fixed_sample(len(embedded), size)
    if len(rows) == len(embedded):
        return Sample(embedded, rows)
    corpus = embedded.corpus.select(rows.tolist())
    # A copy, as the vectors may be a memory map.
    vectors = np.array(embedded.vectors[rows])
    # Positions in the sample.
    unknown = np.flatnonzero(np.isin(rows, embedded.unknown))
    key = digest([embedded.key, f"sample {size} {SEED}"])
    sample = replace(
        embedded, corpus=corpus, vectors=vectors, key=key, seconds=0.0, unknown=unknown
    )
    return Sample(sample, rows)


# The vectors of a large corpus are a file of N · D float32 values, row by row, without a header.
# The file is written while they are computed, and mapped into memory when it is complete. Until
# then its name ends with ``.incomplete``, and an encoding that was stopped or killed continues from
# its last complete row.
SUFFIX = ".f32"
INCOMPLETE = ".incomplete"
CHUNK = 16_384
# The bytes of a float32.
BYTES = 4
POLL_SECONDS = 0.2
# The most bytes of all files together. The least recently used files are removed.
MAX_BYTES = 64 << 30


def encode_to_file(
    path: Path,
    sentences: list[str],
    encoder: VectorModel,
    watch: Watch = UNWATCHED,
    chunk: int = CHUNK,
) -> np.ndarray:
    """The vectors of all sentences, float32 (N, D), mapped read-only. Only vectors that the file lacks are computed.

    Each chunk is written when it is done, and stays after a stop. Raises InputError if the disk is
    full or not writable.
    """
    shape = (len(sentences), encoder.dimension)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    while True:
        vectors = open_vectors(path, shape)
        if vectors is not None:
            return vectors
        watch.check()
        try:
            # The next round opens the file that is completed here.
            with lock.acquire(timeout=POLL_SECONDS):
                # Another thread may have completed the file before this one got the lock.
                if open_vectors(path, shape) is None:
                    _complete(path, sentences, encoder, watch, chunk)
        except Timeout:
            # Another thread or process is writing the file.
            continue


def open_vectors(path: Path, shape: tuple[int, int]) -> np.ndarray | None:
    """A complete file of vectors of this shape, mapped read-only; None if it is missing or incomplete."""
    try:
        if path.stat().st_size != shape[0] * shape[1] * BYTES:
            return None
        # `remove_least_used` takes the modification time as the time of last use.
        os.utime(path)
        return np.memmap(path, dtype=np.float32, mode="r", shape=shape)
    except OSError:
        # The file does not exist, or is a broken link.
        return None


def _complete(
    path: Path, sentences: list[str], encoder: VectorModel, watch: Watch, chunk: int
) -> None:
    """Appends the rows that the file lacks, encodes each distinct sentence once, and gives the file its final name."""
    part = path.with_name(path.name + INCOMPLETE)
    # A folder of one of these names, which a file cannot replace, is removed.
    for place in (part, path):
        if place.is_dir():
            shutil.rmtree(place, ignore_errors=True)
    total = len(sentences)
    row_bytes = encoder.dimension * BYTES
    done = 0
    if part.exists():
        done = min(part.stat().st_size // row_bytes, total)
    size = (total - done) * row_bytes
    try:
        free = shutil.disk_usage(path.parent).free
        if size > free:
            raise InputError(
                f"the vectors of this corpus take {format_bytes(size)}, and {path.parent} has {format_bytes(free)} "
                "free. Open fewer sentences, or a model with fewer dimensions."
            )
        if done:
            log.info("going on with %s from sentence %d of %d", path.name, done + 1, total)
        with part.open("ab") as file:
            # The last row may be incomplete.
            file.truncate(done * row_bytes)
            # None keeps the description of the stage.
            watch.report(done, None, total)
            # The position of the first sentence that equals each sentence, int64 (N,).
            first = first_positions(sentences)
            for start in range(done, total, chunk):
                watch.check()
                rows = first[start : start + chunk]
                # The vectors of sentences that occurred before this chunk are in the file already.
                # In the first chunk all are new.
                is_new = rows >= start
                vectors = np.empty((len(rows), encoder.dimension), dtype=np.float32)
                # `encode` computes sentences that are equal within the chunk once.
                new = [sentences[row] for row in rows[is_new].tolist()]
                # Progress is reported below, in all sentences and not in this chunk.
                vectors[is_new] = _encode_finite(encoder, new, Watch(should_stop=watch.should_stop))
                if start:
                    shape = (start, encoder.dimension)
                    written = np.memmap(part, dtype=np.float32, mode="r", shape=shape)
                    vectors[~is_new] = written[rows[~is_new]]
                file.write(vectors.data)
                file.flush()
                watch.report(min(start + chunk, total), None, total)
        part.replace(path)
    except OSError as error:
        advice = "free some space and open the corpus again: what is done is kept"
        raise unwritable(part, error, advice) from error
    remove_least_used(path.parent.glob(f"*{SUFFIX}"), MAX_BYTES, spared=path)
