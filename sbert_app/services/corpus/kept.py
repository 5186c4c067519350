"""The corpora that visitors have opened from files and texts: kept for a day, each under an id that nobody guesses.

key, corpus = kept.keep(Path("/tmp/x/reviews.csv"), KeptCorpus("reviews.csv", time()))     a copy of the file
kept.read(key)                                  the corpus again: after a reload, after a restart, for a colleague
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sbert_app.services.corpus.corpus import Corpus, read_vectors
from sbert_app.services.store.documents import DocumentStore, Timestamp
from sbert_app.services.store.temp_folder import TempFolder, keep_copy
from training.errors import InputError

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
