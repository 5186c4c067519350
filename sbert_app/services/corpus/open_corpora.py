"""Open corpora by key, and their vectors under any model. Shared by the tabs of the Explore page.

    key = embeddings.add(Corpus.from_text("…"))                     equal corpora have equal keys
    embedded = embeddings.embed(key, "all-MiniLM-L6-v2", "mean")    encoded once; then from memory or disk

Vectors are cached on disk by what they depend on (sentences, weights, pooling), and in memory up to one gigabyte; those
of a corpus of more than 100,000 sentences are a file that is mapped into memory. Corpora are held in memory up to two
million sentences; an evicted one has to be opened again.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.corpus.corpus import EXAMPLE, OWN, Corpus, CorpusLimits, read_vectors
from sbert_app.services.corpus.embedded import EmbeddedCorpus, embedding_key, encode
from sbert_app.services.store.cache import DiskCache, KeyedLocks, LRUCache, digest
from sbert_app.services.store.documents import DocumentStore, Timestamp
from sbert_app.services.store.temp_folder import TempFolder, keep_copy
from training.assets import asset
from training.atomic import open_atomic
from training.errors import InputError, unwritable
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


FOLDER = "corpora"


@dataclass(frozen=True)
class KeptCorpus:
    """``corpus.json``: a file and how it is read."""

    name: str  # of the file
    created: Timestamp
    column: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    vectors: str | None = None  # the column of its own vectors
    array: str | None = None  # or the name of a .npy file of them
    sentences: int = 0


class KeptCorpora:
    """The corpora in a folder of temporary files, each of ``most`` sentences at most."""

    def __init__(self, temp: TempFolder, most: int) -> None:
        self.temp, self.most = temp, most
        self.records = DocumentStore(temp.path / FOLDER, KeptCorpus, "/corpus.json", "corpus")

    def keep(self, source: Path, record: KeptCorpus, vectors: Path | None = None) -> tuple[str, Corpus]:
        """Copy a file and read it; ``vectors`` is a .npy file beside it. Returns the id and the corpus.

        InputError if it cannot be read or kept; then nothing is.
        """
        folder = self.temp.new_folder(FOLDER)
        try:
            keep_copy(source, folder / "input" / record.name)
            if vectors is not None:
                record = replace(record, array=keep_copy(vectors, folder / "input" / vectors.name).name)
            corpus = self._read(folder.name, record)
            self.records.put(folder.name, replace(record, sentences=len(corpus)))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return folder.name, corpus

    def read(self, key: str) -> Corpus:
        """The corpus of that id. InputError if there is none any more, or it cannot be read."""
        record = self.list([key]).get(key)
        if record is None:
            raise InputError("this corpus is no longer kept: corpora are deleted after a day. Open its file again.")
        return self._read(key, record)

    def list(self, keys: Iterable[str]) -> dict[str, KeptCorpus]:
        """The records under these ids, as far as they are still there."""
        records = {}
        for key in keys:
            with suppress(InputError):
                records[key] = self.records.get(key)
        return records

    def _read(self, key: str, record: KeptCorpus) -> Corpus:
        folder = self.records.folder / key / "input"
        own = read_vectors(folder / record.array) if record.array else record.vectors
        return Corpus.from_file(folder / record.name, record.column, record.encoding, self.most, record.sheet, own)


MAX_PAIRED = 500  # sentences whose pairs are written: 124,750 pairs
MOST_CHARACTERS = 100_000_000  # of all pairs together: sentences may be long
TOKEN = re.compile(r"[0-9a-f]{32}")
SENTENCES, PAIRS = "selected-sentences.jsonl", "selected-pairs.jsonl"


class SharedSentences:
    """Files of sentences in ``folder``, which is emptied like the other temporary files of the home folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, sentences: Sequence[str]) -> str:
        """Write the sentences to a file and return its token; equal sentences have equal tokens.

        Raises InputError if the file cannot be written.
        """
        token = digest(sentences)
        _write(self.folder / token / SENTENCES, ({"sentence": sentence} for sentence in sentences))
        return token

    def path(self, token: str) -> Path:
        """The file of the sentences, with the one column ``sentence``.

        Raises InputError if nothing is kept under this token.
        """
        path = self.folder / token / SENTENCES if TOKEN.fullmatch(token) else None
        if path is None or not path.exists():
            raise InputError("the sentences of this link are not kept any more: select them again in Explore.")
        return path

    def sentences(self, token: str) -> list[str]:
        """The sentences in their order. InputError as `path`."""
        with self.path(token).open(encoding="utf-8") as file:
            return [json.loads(line)["sentence"] for line in file]

    def pairs(self, token: str) -> Path:
        """A file of all pairs, with the columns ``sentence1`` and ``sentence2``.

        Raises InputError as `path`, or if there are more than 500 sentences, or fewer than two, or they are too long.
        """
        sentences = self.sentences(token)
        if not 2 <= len(sentences) <= MAX_PAIRED:
            raise InputError(f"{len(sentences):,} sentences were sent; pairs are made of 2 to {MAX_PAIRED}.")
        characters = (len(sentences) - 1) * sum(map(len, sentences))
        if characters > MOST_CHARACTERS:
            raise InputError(
                f"the pairs of these sentences have {characters:,} characters, and at most {MOST_CHARACTERS:,} are "
                "made; select fewer or shorter ones."
            )
        path = self.folder / token / PAIRS
        if not path.exists():
            _write(path, ({"sentence1": first, "sentence2": second} for first, second in combinations(sentences, 2)))
        return path


def _write(path: Path, rows: Iterable[dict[str, str]]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic(path) as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    except OSError as error:
        raise unwritable(path, error) from error
