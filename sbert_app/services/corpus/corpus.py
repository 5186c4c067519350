"""A corpus: sentences, the other columns of their source, and the gold scores of its pairs.

    corpus = Corpus.from_file("reviews.csv")         or from_text(...), from_data("stsb:dev")

Each row of a user's file is a sentence, also if it repeats. A data set of pairs becomes the list of its distinct
sentences, with the gold scores of the pairs. A corpus holds at most a million sentences.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sbert_app.services.corpus.own_vectors import vector_columns
from sbert_app.services.store.cache import digest
from training.assets import asset
from training.data.tables.columns import as_text, pick_columns, pick_sentence
from training.data.tables.table import Table, open_lines, open_table
from training.errors import InputError
from training.names import DataName

if TYPE_CHECKING:
    from training.data.dataset import Dataset


@dataclass(frozen=True)
class CorpusLimits:
    sentences: int = 1_000_000  # of a corpus; the first ones are used
    in_memory: int = 100_000  # up to which vectors are in memory; above, in a file that is mapped
    map_points: int = 50_000  # on a map; of more, a random sample is drawn
    clustered: int = 100_000  # that HDBSCAN groups; of more, a sample of ``map_points``, the others by their neighbours


MAX_SENTENCES = 1_000_000  # unless a reader is given another limit
EXAMPLE = asset("examples/corpus.csv")
ROLES = {2: ("first sentence", "second sentence"), 3: ("anchor", "positive", "negative")}


@dataclass(frozen=True)
class GoldPairs:
    rows: np.ndarray  # (P, 2) int32, positions in the corpus
    gold: np.ndarray  # (P,) float32, 0–5


@dataclass(frozen=True, eq=False)
class Corpus:
    """N sentences in order, and other columns: name -> N values."""

    name: str
    sentences: list[str]
    columns: dict[str, list[Any]] = field(default_factory=dict)
    gold: GoldPairs | None = None
    notes: tuple[str, ...] = ()
    vectors: np.ndarray | None = None  # float32 (N, D) of unit length, where the user has brought them

    def __post_init__(self) -> None:
        if not self.sentences:
            raise InputError(f"{self.name} contains no sentence; give at least one, a line each.")

    def __len__(self) -> int:
        return len(self.sentences)

    @cached_property
    def digest(self) -> str:
        """Identifies the sentences and their order."""
        return digest(f"{len(sentence)}:{sentence}" for sentence in self.sentences)

    @cached_property
    def own_key(self) -> str:
        """Identifies the sentences with the vectors that were brought with them."""
        return digest([self.digest, hashlib.sha256(b"" if self.vectors is None else self.vectors.data).hexdigest()])

    def select(self, rows: Sequence[int]) -> Corpus:
        """The corpus of some sentences, without gold scores."""
        columns = {name: [values[row] for row in rows] for name, values in self.columns.items()}
        return Corpus(self.name, [self.sentences[row] for row in rows], columns)

    def require_distinct(self, minimum: int, purpose: str) -> None:
        """Raises InputError if there are fewer distinct sentences. ``purpose`` begins the message: "a map needs"."""
        distinct = len(set(self.sentences))
        if distinct < minimum:
            one = "there is one" if len(self) == 1 else "all are the same"
            actual = one if distinct == 1 else f"there are {distinct}"
            raise InputError(f"{purpose} at least {minimum} different sentences; {actual} here.")

    @classmethod
    def from_text(cls, text: str, name: str = "the text", most: int = MAX_SENTENCES) -> Corpus:
        """One sentence per line; empty lines are skipped. Raises InputError if there is no sentence."""
        sentences = [line.strip() for line in text.split("\n") if line.strip()]
        return cls(name, sentences[:most], notes=_cut(len(sentences), most))

    @classmethod
    def from_file(
        cls,
        path: Path | str,
        column: str | None = None,
        encoding: str | None = None,
        most: int = MAX_SENTENCES,
        sheet: str | None = None,
        vectors: np.ndarray | None = None,
    ) -> Corpus:
        """The sentences of a file that `training.data.tables.table` reads, with its other columns.

        ``column`` is the column of sentences. If it is None, it is found by its name; a file with columns of pairs
        gives the distinct sentences of its pairs. A .txt file has one sentence per line. ``encoding`` is that of a text
        file, ``sheet`` that of a workbook; None to find out. ``vectors`` are those of its rows, if the user has brought
        them. InputError if the file cannot be read, there is no such column, it contains no text, or there is not one
        vector for each row.
        """
        if column in (None, "sentence") and Path(path).suffix.lower() == ".txt":
            return _from_rows(open_lines(Path(path), encoding), "sentence", most, vectors)
        table = open_table(path, encoding, sheet)
        if column is None and has_pairs(table) and vectors is None:
            from training.data.load import load_data

            return cls.from_dataset(load_data(str(DataName(str(path), encoding))), most)
        return _from_rows(table, pick_sentence(table, column), most, vectors)

    @classmethod
    def from_data(cls, name: str, home: Path | str | None = None, most: int = MAX_SENTENCES) -> Corpus:
        """The distinct sentences of a named data set: stsb:dev, snli:test, …

        Raises InputError if the name is unknown (a path is not accepted), or the data set cannot be loaded.
        """
        from training.data.load import check_data_name, load_data

        return cls.from_dataset(load_data(check_data_name(name), home), most)

    @classmethod
    def from_dataset(cls, data: Dataset, most: int = MAX_SENTENCES) -> Corpus:
        """The distinct sentences of all columns, row by row, with the role of each sentence's first occurrence."""
        if len(data.columns) == 1:
            sentences = data.columns[0]
            return cls(data.name, sentences[:most], notes=(*data.notes, *_cut(len(sentences), most)))
        roles = ROLES[len(data.columns)]
        positions: dict[str, int] = {}
        first_role: list[str] = []
        for row in zip(*data.columns, strict=True):
            for role, sentence in zip(roles, row, strict=True):
                if positions.setdefault(sentence, len(positions)) == len(first_role):
                    first_role.append(role)
        gold = None
        if data.scores is not None:
            rows = np.array([[positions[s] for s in pair] for pair in zip(*data.columns, strict=True)], dtype=np.int32)
            inside = (rows < most).all(axis=1)
            gold = GoldPairs(rows[inside], np.asarray(data.scores, dtype=np.float32)[inside])
        sentences = list(positions)
        return cls(
            data.name, sentences[:most], {"role": first_role[:most]}, gold, (*data.notes, *_cut(len(sentences), most))
        )


def has_pairs(table: Table) -> bool:
    """Whether the names of the columns show that each row is a pair of sentences."""
    try:
        pick_columns(table)
    except InputError:
        return False
    return True


def _from_rows(table: Table, column: str, most: int, vectors: np.ndarray | None = None) -> Corpus:
    """The rows with text in ``column``, up to ``most``."""
    others = set(table.columns) - {column, *vector_columns(table.path)}
    columns: dict[str, list[Any]] = {name: [] for name in table.columns if name in others}
    sentences: list[str] = []
    rows: list[int] = []
    blank = read = 0
    for batch in table.batches():
        texts = [as_text(cell) for cell in batch.rows[column]]
        filled = [i for i, text in enumerate(texts) if text is not None]
        blank += len(texts) - len(filled)
        sentences += [" ".join((texts[i] or "").split()) for i in filled]
        rows += [read + i for i in filled]
        read += len(batch)
        for name, cells in columns.items():
            cells.extend(batch.rows[name][i] for i in filled)
        if len(sentences) >= most:
            break
    notes = table.remarks + ((f"{blank:,} rows without text in {column} are left out.",) if blank else ())
    if len(sentences) >= most:
        notes += _cut(max(table.row_estimate, len(sentences)), most)
    columns = {name: cells[:most] for name, cells in columns.items()}
    if vectors is not None:
        if len(vectors) < read or (len(sentences) < most and len(vectors) > read):
            raise InputError(
                f"there are {len(vectors):,} vectors, and {table.path.name} has {read:,} rows; one for each."
            )
        vectors = vectors[rows[:most]]
    return Corpus(table.path.name, sentences[:most], columns, notes=notes, vectors=vectors)


def _cut(count: int, most: int) -> tuple[str, ...]:
    """A note if there are more sentences than a corpus holds."""
    if count <= most:
        return ()
    return (f"Only the first {most:,} of {count:,} sentences are used.",)
