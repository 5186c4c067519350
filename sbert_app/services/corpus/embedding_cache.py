"""Open corpora by key, and their vectors under any model. Shared by the tabs of the Explore page.

    key = embeddings.add(Corpus.from_text("…"))                     equal corpora have equal keys
    embedded = embeddings.embed(key, "all-MiniLM-L6-v2", "mean")    encoded once; then from memory or disk

Vectors are cached on disk by what they depend on (sentences, weights, pooling), and in memory up to one gigabyte; those
of a corpus of more than 100,000 sentences are a file that is mapped into memory. Corpora are held in memory up to two
million sentences; an evicted one has to be opened again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.corpus.corpus import EXAMPLE, OWN, Corpus, CorpusLimits
from sbert_app.services.corpus.embedded import EmbeddedCorpus, embedding_key, encode
from sbert_app.services.store.cache import DiskCache, KeyedLocks, LRUCache, digest
from training.catalogue import asset
from training.errors import InputError
from training.models.model import VectorModel
from training.names import ModelName

if TYPE_CHECKING:
    from sbert_app.services.models.cache import ModelCache

SHIPPED = asset("maps")  # the map of the example corpus, so that a first visit does not wait for it
MAX_SENTENCES = 2_000_000  # of all open corpora
MAX_BYTES = 1 << 30  # of vectors in memory: 100,000 sentences of all-mpnet-base-v2 are 307 MB


class EmbeddingCache:
    """Thread-safe. ``max_sentences`` and ``max_bytes`` bound the corpora and the vectors in memory."""

    def __init__(
        self,
        models: ModelCache,
        home: Path,
        max_sentences: int = MAX_SENTENCES,
        max_bytes: int = MAX_BYTES,
        limits: CorpusLimits = CorpusLimits(),  # noqa: B008 - immutable
    ) -> None:
        self.limits = limits
        self.models = models
        self.home = home
        self.cache = DiskCache(home / "cache", shipped=SHIPPED)  # of vectors, maps and clusters
        self._corpora: LRUCache[str, Corpus] = LRUCache(max_sentences, len)
        self._embedded: LRUCache[str, EmbeddedCorpus] = LRUCache(max_bytes, _bytes_in_memory)
        self._locks: KeyedLocks[str] = KeyedLocks()
        self._example: str | None = None
        self._named: dict[str, str] = {}  # data set -> key; what it holds stays the same

    def add(self, corpus: Corpus) -> str:
        """Hold a corpus and return its key, which is equal for equal names, sentences and columns."""
        columns = (f"{name}={values}" for name, values in corpus.columns.items())
        own = [] if corpus.vectors is None else [corpus.own_key]
        key = digest([corpus.name, corpus.digest, *columns, *own])
        self._corpora.put(key, corpus)
        return key

    def example(self) -> str:
        """The key of the corpus that ships with the app."""
        if self._example is None or self._example not in self._corpora:
            self._example = self.add(Corpus.from_file(EXAMPLE))
        return self._example

    def named(self, data: str) -> str:
        """The key of the corpus of a data set, which is read if it is not open. InputError as `Corpus.from_data`."""
        if self._named.get(data) not in self._corpora:
            self._named[data] = self.add(Corpus.from_data(data, self.home))
        return self._named[data]

    def corpus(self, key: str) -> Corpus:
        """The open corpus with that key. Raises InputError if it has been evicted."""
        corpus = self._corpora.get(key)
        if corpus is None:
            raise InputError("this corpus is not open any more: others were opened since. Open it again.")
        return corpus

    def embed(
        self, corpus_key: str, model: ModelName | str, pooling: str | None = None, watch: Watch = UNWATCHED
    ) -> EmbeddedCorpus:
        """A corpus under a model and a pooling (None = the model's own), encoded if it is in no cache; or as `OWN`.

        Concurrent requests for the same vectors encode once. ``watch`` gets (sentences done, total). Raises InputError
        if the corpus has been evicted, or the model cannot be loaded. When one is stopped, others continue.
        """
        corpus = self.corpus(corpus_key)
        if model == OWN:
            if corpus.vectors is None:
                raise InputError(f"{corpus.name} has no vectors of its own.")
            key = corpus.own_key
            own = self._embedded.get(key) or EmbeddedCorpus(corpus, corpus.vectors, OWN.name, "", key, 0.0)
            self._embedded.put(key, own)
            return own if own.corpus is corpus else replace(own, corpus=corpus)
        encoder = self.models.get(model, VectorModel, pooling, "document")
        key = embedding_key(corpus, encoder)
        with watch.holding(self._locks[key]):
            embedded = self._embedded.get(key)
            if embedded is None:
                folder = self.home / "vectors" if len(corpus) > self.limits.in_memory else None
                embedded = encode(corpus, encoder, self.cache, watch, folder)
                self._embedded.put(key, embedded)
        return embedded if embedded.corpus is corpus else replace(embedded, corpus=corpus)


def _bytes_in_memory(embedded: EmbeddedCorpus) -> int:
    """Of the vectors; the pages of a memory map are the operating system's to take back."""
    return 0 if isinstance(embedded.vectors, np.memmap) else embedded.vectors.nbytes
