"""SpaceShelf: corpora by key, and their vectors under any model. What the Explore page and its tabs share.

    key = spaces.add(Corpus.from_text("…"))             the same corpus has the same key
    space = spaces.embed(key, "all-MiniLM-L6-v2", "mean")   encoded once; from memory or disk after that

Vectors are kept on disk by what they depend on (the sentences, the weights, the pooling) and in memory up to a
gigabyte, the least recently used out first. Corpora stay in memory up to a million sentences; who asks for one that
is gone is told to open it again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sbert_app.services.cache import DiskCache, digest
from sbert_app.services.corpus.corpus import EXAMPLE, Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus, embedding_key, encode
from training.assets import asset
from training.errors import InputError, Stopped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sbert_app.services.models.cache import ModelCache

SHIPPED = asset("maps")  # the example's map, so that a first visit waits for nothing
MOST_HELD = 1_000_000  # sentences of all corpora in memory
MOST_BYTES = 1 << 30  # of vectors in memory: 100,000 sentences of all-mpnet-base-v2 are 307 MB
LOOK_SECONDS = 0.2  # between two looks at the Stop button while somebody else encodes the same

OnProgress = Callable[[int, int | None], None]
ShouldStop = Callable[[], bool]


class EmbeddingCache:
    """Thread-safe."""

    def __init__(self, models: ModelCache, home: Path) -> None:
        self.models = models
        self.home = home
        self.cache = DiskCache(home / "cache", shipped=SHIPPED)  # of vectors and of maps
        self._corpora: OrderedDict[str, Corpus] = OrderedDict()
        self._spaces: OrderedDict[str, EmbeddedCorpus] = OrderedDict()
        self._encoding: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._example: str | None = None

    def add(self, corpus: Corpus) -> str:
        """Hold a corpus; its key, the same for the same name, sentences and columns."""
        columns = (f"{name}={values}" for name, values in corpus.columns.items())
        key = digest([corpus.name, corpus.digest, *columns])
        with self._lock:
            self._corpora[key] = corpus
            self._corpora.move_to_end(key)
            while len(self._corpora) > 1 and sum(map(len, self._corpora.values())) > MOST_HELD:
                self._corpora.popitem(last=False)
        return key

    def example(self) -> str:
        """The key of the corpus that ships with the app."""
        with self._lock:
            if self._example in self._corpora:
                return self._example or ""
        self._example = self.add(Corpus.from_file(EXAMPLE))
        return self._example

    def corpus(self, key: str) -> Corpus:
        """The corpus of that key.

        Raises:
            InputError: it is not here any more.
        """
        with self._lock:
            if key not in self._corpora:
                raise InputError("this corpus is not open any more: others were opened since. Open it again.")
            self._corpora.move_to_end(key)
            return self._corpora[key]

    def embed(
        self,
        corpus_key: str,
        model: str,
        pooling: str | None = None,
        on_progress: OnProgress | None = None,
        should_stop: ShouldStop | None = None,
    ) -> EmbeddedCorpus:
        """A corpus under a model and a pooling (None = the model's own): encoded if nobody has done so yet.

        Two who ask for the same at once encode it once. ``on_progress`` gets (sentences done, all).

        Raises:
            InputError: the corpus is not here any more, or the model cannot be had.
            Stopped: ``should_stop`` said yes; what others wait for goes on.
        """
        corpus = self.corpus(corpus_key)
        encoder = self.models.encoder(model, pooling)
        key = embedding_key(corpus, encoder)
        with self._alone(key, should_stop):
            space = self._kept(key)
            if space is None:
                space = encode(corpus, encoder, self.cache, on_progress, should_stop)
                self._keep(key, space)
        return space if space.corpus is corpus else replace(space, corpus=corpus)

    @contextmanager
    def _alone(self, key: str, should_stop: ShouldStop | None) -> Iterator[None]:
        """One at a time for a key; who waits can be stopped."""
        with self._lock:
            lock = self._encoding.setdefault(key, threading.Lock())
        while not lock.acquire(timeout=LOOK_SECONDS):
            if should_stop is not None and should_stop():
                raise Stopped
        try:
            yield
        finally:
            lock.release()

    def _kept(self, key: str) -> EmbeddedCorpus | None:
        with self._lock:
            if key in self._spaces:
                self._spaces.move_to_end(key)
            return self._spaces.get(key)

    def _keep(self, key: str, space: EmbeddedCorpus) -> None:
        with self._lock:
            self._spaces[key] = space
            while len(self._spaces) > 1 and sum(kept.vectors.nbytes for kept in self._spaces.values()) > MOST_BYTES:
                self._spaces.popitem(last=False)
