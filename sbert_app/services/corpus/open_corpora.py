"""Open corpora with their vectors under any model, and the files of corpora and sentences that visitors opened.

    key = embeddings.add(Corpus.from_file("reviews.csv"))           equal corpora have equal keys
    embedded = embeddings.embed(key, "all-MiniLM-L6-v2", "mean")    encoded once; then from memory or disk

Vectors are cached on disk by sentences, weights and pooling, and in memory up to one gigabyte. The
vectors of a corpus of more than 100,000 sentences are a memory-mapped file. The open corpora have
at most two million sentences together; a corpus that was evicted has to be opened again.

    key, corpus = corpora.keep(Path("/tmp/x/reviews.csv"), KeptCorpus("reviews.csv", time()))
    corpora.read(key)                          works after a page reload, a server restart, or from a shared link
    token = shared.put(["A man sleeps.", "A dog barks."])      /?tab=many&sentences=TOKEN, /train?sentences=TOKEN

A visitor's corpus is stored for a day under an id that cannot be guessed. Sentences that one page
sends to another are stored in a file too, as servers and browsers refuse addresses of more than a
few thousand characters.
"""

import json
import re
import shutil
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.corpus.corpus import EXAMPLE, OWN, Corpus, CorpusLimits, read_vectors
from sbert_app.services.corpus.embedded import EmbeddedCorpus, embedding_key, encode
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.store.cache import DiskCache, LRUCache, digest
from sbert_app.services.store.documents import DocumentStore, Timestamp
from sbert_app.services.store.temp_folder import TempFolder, keep_copy
from training.atomic import open_atomic
from training.catalogue import asset
from training.errors import InputError, unwritable
from training.models.model import VectorModel
from training.names import ModelName

SHIPPED = asset("maps")
MAX_SENTENCES = 2_000_000
# The most bytes of vectors in memory: 100,000 sentences of all-mpnet-base-v2 are 307 MB.
MAX_BYTES = 1 << 30


class EmbeddingCache:
    """The open corpora, with at most ``max_sentences`` together, and their vectors. Thread-safe."""

    def __init__(
        self,
        models: ModelCache,
        home: Path,
        max_sentences: int = MAX_SENTENCES,
        limits: CorpusLimits = CorpusLimits(),  # noqa: B008 - immutable
    ) -> None:
        self.models = models
        self.home = home
        self.limits = limits
        self.cache = DiskCache(home / "cache", shipped=SHIPPED)
        self._corpora: LRUCache[str, Corpus] = LRUCache(max_sentences, len)
        # A memory map counts as 0, as the operating system reclaims its pages.
        self._embedded: LRUCache[str, EmbeddedCorpus] = LRUCache(
            MAX_BYTES,
            lambda embedded: (
                0 if isinstance(embedded.vectors, np.memmap) else embedded.vectors.nbytes
            ),
        )
        # A lock for each key of vectors, so that only one thread at a time encodes them.
        self._locks: dict[str, threading.Lock] = {}
        # The keys of opened data sets and of the example, by name. They can be stored, as the content
        # stays the same. These corpora may have been evicted.
        self._named: dict[str, str] = {}

    def add(self, corpus: Corpus) -> str:
        """Opens a corpus and returns its key. Corpora of equal name and content have equal keys."""
        parts = [corpus.name, corpus.digest]
        parts += [f"{name}={values}" for name, values in corpus.columns.items()]
        if corpus.vectors is not None:
            parts.append(corpus.own_key)
        key = digest(parts)
        self._corpora.put(key, corpus)
        return key

    def example(self) -> str:
        """The key of the corpus that ships with the app."""
        # Not opened yet (None is never a key), or evicted.
        if self._named.get(EXAMPLE.name) not in self._corpora:
            self._named[EXAMPLE.name] = self.add(Corpus.from_file(EXAMPLE))
        return self._named[EXAMPLE.name]

    def open_data(self, data: str) -> str:
        """Opens the corpus of a data set if it is not open, and returns its key.

        InputError if ``data`` is a path, or cannot be loaded.
        """
        # Not opened yet, or evicted.
        if self._named.get(data) not in self._corpora:
            self._named[data] = self.add(Corpus.from_data(data, self.home))
        return self._named[data]

    def corpus(self, key: str) -> Corpus:
        """The open corpus with that key. Raises InputError if it has been evicted."""
        corpus = self._corpora.get(key)
        if corpus is None:
            raise InputError(
                "this corpus is not open any more: others were opened since. Open it again."
            )
        return corpus

    def embed(
        self,
        corpus_key: str,
        model: ModelName | str,
        pooling: str | None = None,
        watch: Watch = UNWATCHED,
    ) -> EmbeddedCorpus:
        """A corpus under a model and a pooling, or with its `OWN` vectors. It is encoded unless it was before.

        Concurrent requests for the same vectors encode once; if one is stopped, the others
        continue. InputError if the corpus has been evicted, or the model cannot be loaded.
        """
        corpus = self.corpus(corpus_key)
        if model == OWN:
            if corpus.vectors is None:
                raise InputError(f"{corpus.name} has no vectors of its own.")
            key = corpus.own_key
            embedded = self._embedded.get(key)
            if embedded is None:
                embedded = EmbeddedCorpus(
                    corpus, corpus.vectors, OWN.name, pooling="", key=key, seconds=0.0
                )
                self._embedded.put(key, embedded)
        else:
            # If the model has prompts, its prompt for documents is used.
            encoder = self.models.get(model, VectorModel, pooling, "document")
            key = embedding_key(corpus, encoder)
            with watch.holding(self._locks.setdefault(key, threading.Lock())):
                embedded = self._embedded.get(key)
                if embedded is None:
                    # With a folder, the vectors are a memory-mapped file in it.
                    folder = self.home / "vectors" if len(corpus) > self.limits.in_memory else None
                    embedded = encode(corpus, encoder, self.cache, watch, folder)
                    self._embedded.put(key, embedded)
        # The vectors may have been computed for another corpus with equal sentences. `replace` does
        # not copy the cached search index, so it is used only if necessary.
        return embedded if embedded.corpus is corpus else replace(embedded, corpus=corpus)


FOLDER = "corpora"


@dataclass(frozen=True)
class KeptCorpus:
    """``corpus.json``: the name of a file, how it is read, and the number of its sentences.

    If it has vectors, ``vectors`` is the column that holds them, or ``array`` the name of a .npy
    file.
    """

    name: str
    created: Timestamp
    column: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    vectors: str | None = None
    array: str | None = None
    sentences: int = 0


class KeptCorpora:
    """The corpora in the folder of temporary files. Each is read up to ``most`` sentences."""

    def __init__(self, temp: TempFolder, most: int) -> None:
        self.temp = temp
        self.most = most
        self.records = DocumentStore(temp.path / FOLDER, KeptCorpus, "/corpus.json", "corpus")

    def keep(
        self, source: Path, record: KeptCorpus, vectors: Path | None = None
    ) -> tuple[str, Corpus]:
        """Stores a copy of a file, and of the .npy file ``vectors`` beside it. Returns the id and the corpus.

        InputError if the file cannot be read or stored; nothing is left behind then.
        """
        folder = self.temp.new_folder(FOLDER)
        try:
            keep_copy(source, folder / "input" / record.name)
            if vectors is not None:
                copy = keep_copy(vectors, folder / "input" / vectors.name)
                record = replace(record, array=copy.name)
            corpus = self._read(folder.name, record)
            self.records.put(folder.name, replace(record, sentences=len(corpus)))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return folder.name, corpus

    def read(self, key: str) -> Corpus:
        """The corpus with this id. InputError if it is deleted or cannot be read."""
        # `list` leaves out a record that was deleted, and one that cannot be read.
        record = self.list([key]).get(key)
        if record is None:
            raise InputError(
                "this corpus is no longer kept: corpora are deleted after a day. Open its file again."
            )
        return self._read(key, record)

    def list(self, keys: Iterable[str]) -> dict[str, KeptCorpus]:
        """The records of the ids. Deleted and damaged ones are left out."""
        records = {}
        for key in keys:
            with suppress(InputError):
                records[key] = self.records.get(key)
        return records

    def _read(self, key: str, record: KeptCorpus) -> Corpus:
        folder = self.records.folder / key / "input"
        # Vectors of a .npy file, or else the name of the column that holds them, if there is one.
        vectors = read_vectors(folder / record.array) if record.array else record.vectors
        return Corpus.from_file(
            folder / record.name, record.column, record.encoding, self.most, record.sheet, vectors
        )


# The most sentences from which all pairs are made: 124,750 pairs.
MAX_PAIRED = 500
# The most characters of all pairs together, as sentences may be long.
MOST_CHARACTERS = 100_000_000
TOKEN = re.compile(r"[0-9a-f]{32}")
SENTENCES = "selected-sentences.jsonl"
PAIRS = "selected-pairs.jsonl"


class SharedSentences:
    """Files of sentences in ``folder``. They are removed like other temporary files of the home folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, sentences: Sequence[str]) -> str:
        """Writes sentences to a file. Returns its token, the digest of the sentences. InputError on failure."""
        token = digest(sentences)
        _write(self.folder / token / SENTENCES, [{"sentence": sentence} for sentence in sentences])
        return token

    def path(self, token: str) -> Path:
        """The file of the sentences, with the column ``sentence``. InputError if it does not exist."""
        path = self.folder / token / SENTENCES
        if not TOKEN.fullmatch(token) or not path.exists():
            raise InputError(
                "the sentences of this link are not kept any more: select them again in Explore."
            )
        return path

    def sentences(self, token: str) -> list[str]:
        """The sentences in their order. InputError if their file does not exist."""
        with self.path(token).open(encoding="utf-8") as file:
            return [json.loads(line)["sentence"] for line in file]

    def pairs(self, token: str) -> Path:
        """A file of all pairs, with the columns ``sentence1`` and ``sentence2``.

        InputError if the file of the sentences does not exist, there are not 2 to 500 sentences, or
        they are too long.
        """
        sentences = self.sentences(token)
        if not 2 <= len(sentences) <= MAX_PAIRED:
            raise InputError(
                f"{len(sentences):,} sentences were sent; pairs are made of 2 to {MAX_PAIRED}."
            )
        # Each sentence is in a pair with every other.
        characters = (len(sentences) - 1) * sum(map(len, sentences))
        if characters > MOST_CHARACTERS:
            raise InputError(
                f"the pairs of these sentences have {characters:,} characters, and at most {MOST_CHARACTERS:,} are "
                "made; select fewer or shorter ones."
            )
        path = self.folder / token / PAIRS
        if not path.exists():
            columns = ("sentence1", "sentence2")
            pairs = combinations(sentences, 2)
            _write(path, (dict(zip(columns, pair, strict=True)) for pair in pairs))
        return path


def _write(path: Path, rows: Iterable[dict[str, str]]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic(path) as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    except OSError as error:
        raise unwritable(path, error) from error
