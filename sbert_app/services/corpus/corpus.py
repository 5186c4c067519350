"""A corpus: sentences, what is known about each of them, and where wanted their vectors.

    corpus = Corpus.from_file("reviews.csv")         or from_text(...), from_data("stsb:dev")
    space = encode(corpus, encoder, cache)           vectors (N, D), computed once per model and pooling
    most_similar_pairs(space.vectors, k=10)          [(i, j, cosine), …], best first; see pairs.py
    space.index.search(...)                          see search.py

Rows of a user's file stay rows, also where a sentence repeats. Sets of pairs become the list of their different
sentences, and the gold scores of the pairs are kept beside it. A corpus holds at most 100,000 sentences: what two
cores encode in a minute, and map in another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sbert_app.services.cache import digest
from training.assets import asset
from training.data.tables.columns import as_text
from training.data.tables.lines import open_lines
from training.data.tables.table import Table, open_table, pick_columns, pick_sentence
from training.errors import InputError

if TYPE_CHECKING:
    from training.data.dataset import Dataset

MOST_SENTENCES = 100_000
EXAMPLE = asset("examples/corpus.csv")
ROLES = {2: ("first sentence", "second sentence"), 3: ("anchor", "positive", "negative")}


@dataclass(frozen=True)
class GoldPairs:
    """Pairs of a corpus that people have scored."""

    rows: np.ndarray  # (P, 2) int32, positions in the corpus
    gold: np.ndarray  # (P,) float32, 0–5


@dataclass(frozen=True, eq=False)
class Corpus:
    """Sentences in order. ``columns`` holds what else is known of each: name -> N values."""

    name: str
    sentences: list[str]
    columns: dict[str, list[Any]] = field(default_factory=dict)
    gold: GoldPairs | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.sentences:
            raise InputError(f"{self.name} holds no sentence: give at least one, a line each.")

    def __len__(self) -> int:
        return len(self.sentences)

    @cached_property
    def digest(self) -> str:
        """The same for the same sentences in the same order."""
        return digest(f"{len(sentence)}:{sentence}" for sentence in self.sentences)

    @classmethod
    def from_text(cls, text: str, name: str = "the text") -> Corpus:
        """A sentence a line; empty lines are left out.

        Raises:
            InputError: there is none.
        """
        sentences = [line.strip() for line in text.splitlines() if line.strip()]
        return cls(name, sentences[:MOST_SENTENCES], notes=_cut(len(sentences)))

    @classmethod
    def from_file(cls, path: Path | str, column: str | None = None) -> Corpus:
        """The sentences of a file that ``training.data.tables.table`` reads, with its other columns beside them.

        ``column`` names the one with the sentences. None finds it by name; a file of pairs, found by the names of
        its columns, gives the different sentences of its pairs. A .txt file has a sentence a line.

        Raises:
            InputError: the file cannot be read, there is no such column, or it holds no text.
        """
        if column is None and Path(path).suffix.lower() == ".txt":
            return _from_rows(Table(Path(path), open_lines(Path(path))), "sentence")
        table = open_table(path)
        if column is None and has_pairs(table):
            from training.data.load import load_data

            return cls.from_dataset(load_data(str(path)))
        return _from_rows(table, pick_sentence(table, column))

    @classmethod
    def from_data(cls, name: str, home: Path | str | None = None) -> Corpus:
        """The different sentences of a named data set: stsb:dev, snli:test, …

        Raises:
            InputError: there is no such set, or it cannot be had. A path is not taken for a name.
        """
        from training.data.load import check_data_name, load_data

        return cls.from_dataset(load_data(check_data_name(name), home))

    @classmethod
    def from_dataset(cls, data: Dataset) -> Corpus:
        """The different sentences of all columns, row by row, with the role in which each comes first."""
        if len(data.columns) == 1:
            sentences = data.columns[0]
            return cls(data.name, sentences[:MOST_SENTENCES], notes=(*data.notes, *_cut(len(sentences))))
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
            inside = (rows < MOST_SENTENCES).all(axis=1)
            gold = GoldPairs(rows[inside], np.asarray(data.scores, dtype=np.float32)[inside])
        sentences = list(positions)
        return cls(
            data.name,
            sentences[:MOST_SENTENCES],
            {"role": first_role[:MOST_SENTENCES]},
            gold,
            (*data.notes, *_cut(len(sentences))),
        )


def has_pairs(table: Table) -> bool:
    """Whether the names of the columns say that each row is a pair of sentences."""
    try:
        pick_columns(table)
    except InputError:
        return False
    return True


def _from_rows(table: Table, column: str) -> Corpus:
    """Every row with text in ``column``, up to the limit."""
    columns: dict[str, list[Any]] = {name: [] for name in table.columns}
    sentences: list[str] = []
    blank = 0
    for batch in table.batches():
        texts = [as_text(cell) for cell in batch.rows[column]]
        filled = [at for at, text in enumerate(texts) if text is not None]
        blank += len(texts) - len(filled)
        sentences += [" ".join((texts[at] or "").split()) for at in filled]
        for name, cells in batch.rows.items():
            columns[name] += [cells[at] for at in filled]
        if len(sentences) >= MOST_SENTENCES:
            break
    del columns[column]
    notes = table.remarks + ((f"{blank:,} rows without text in {column} are left out.",) if blank else ())
    if len(sentences) >= MOST_SENTENCES:
        notes += _cut(max(table.row_estimate, len(sentences)))
    others = {name: cells[:MOST_SENTENCES] for name, cells in columns.items()}
    return Corpus(table.path.name, sentences[:MOST_SENTENCES], others, notes=notes)


def _cut(count: int) -> tuple[str, ...]:
    """The note on sentences that do not fit."""
    if count <= MOST_SENTENCES:
        return ()
    return (f"Only the first {MOST_SENTENCES:,} of {count:,} sentences are taken.",)
