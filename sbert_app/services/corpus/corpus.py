"""A corpus: sentences, the other columns of their source, and the gold scores of its pairs.

    corpus = Corpus.from_file("reviews.csv")         or from_data("stsb:dev")

Each row of a user's file is a sentence, even a repeated one. A data set of pairs becomes the list
of its distinct sentences, with the gold scores of the pairs. A corpus holds at most a million
sentences. Users can bring their own vectors: a .npy file beside the sentences, or a column of their
Parquet file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sbert_app.services.store.cache import digest
from training.catalogue import asset
from training.data.dataset import Dataset
from training.data.load import check_data_name, load_data
from training.data.tables.cells import as_text, quoted
from training.data.tables.reading import requested_columns
from training.data.tables.rows import OpenedTable
from training.data.tables.table import open_table
from training.errors import InputError
from training.names import ModelName

# The most sentences of a corpus.
MAX_SENTENCES = 1_000_000


@dataclass(frozen=True)
class CorpusLimits:
    """The numbers of sentences above which a corpus is treated differently.

    Attributes:
        sentences: a corpus is cut to its first sentences.
        in_memory: the vectors are in a memory-mapped file.
        map_points: a map shows a random sample.
        clustered: HDBSCAN clusters a sample of ``map_points``, and the other sentences join its
            clusters.
    """

    sentences: int = MAX_SENTENCES
    in_memory: int = 100_000
    map_points: int = 50_000
    clustered: int = 100_000


EXAMPLE = asset("examples/corpus.csv")
# The roles of the sentences in a row of a data set, by their number.
ROLES = {2: ("first sentence", "second sentence"), 3: ("anchor", "positive", "negative")}
# Stands in place of a model for vectors of the user.
OWN = ModelName("own vectors")


@dataclass(frozen=True)
class GoldPairs:
    """Positions of pairs in the corpus, int32 (P, 2), and their gold scores from 0 to 5, float32 (P,)."""

    rows: np.ndarray
    gold: np.ndarray


@dataclass(frozen=True, eq=False)
class Corpus:
    """N sentences in order, other columns of N values each, and the user's vectors, unit float32 (N, D), if any.

    ``table`` is the file of the sentences, if any, and ``text_columns`` are its columns that hold
    them: one, or those of its pairs. ``empty`` is the number of its rows without text, which are
    left out.
    """

    name: str
    sentences: list[str]
    columns: dict[str, list[Any]] = field(default_factory=dict)
    gold: GoldPairs | None = None
    notes: tuple[str, ...] = ()
    vectors: np.ndarray | None = None
    table: OpenedTable | None = None
    text_columns: tuple[str, ...] = ()
    empty: int = 0

    def __post_init__(self) -> None:
        if not self.sentences:
            raise InputError(f"{self.name} contains no sentence; give at least one, a line each.")

    def __len__(self) -> int:
        return len(self.sentences)

    @cached_property
    def digest(self) -> str:
        """The key of the sentences and their order."""
        return digest(f"{len(sentence)}:{sentence}" for sentence in self.sentences)

    @cached_property
    def own_key(self) -> str:
        """The key of the sentences and the user's vectors."""
        vectors = b"" if self.vectors is None else self.vectors.data
        return digest([self.digest, hashlib.sha256(vectors).hexdigest()])

    def select(self, rows: Sequence[int]) -> Corpus:
        """The corpus of some rows, with all columns. It has no gold scores, own vectors or file."""
        columns = {}
        for name, values in self.columns.items():
            columns[name] = [values[row] for row in rows]
        return Corpus(self.name, [self.sentences[row] for row in rows], columns)

    def require_distinct(self, minimum: int, purpose: str) -> None:
        """Raises InputError if there are fewer than ``minimum`` distinct sentences.

        ``purpose``, such as "a map needs", begins the message.
        """
        distinct = len(set(self.sentences))
        if distinct < minimum:
            actual = f"there are {distinct}"
            if distinct == 1:
                actual = "there is one" if len(self) == 1 else "all are the same"
            raise InputError(f"{purpose} at least {minimum} different sentences; {actual} here.")

    @classmethod
    def from_file(
        cls,
        path: Path | str,
        column: str | None = None,
        encoding: str | None = None,
        most: int = MAX_SENTENCES,
        sheet: str | None = None,
        vectors: np.ndarray | str | None = None,
    ) -> Corpus:
        """The sentences of a file that `training.data.tables.table` reads, with its other columns.

        Args:
            column: the column of sentences, or the two columns of pairs, "a,b". By default it is
                inferred from header and cells, and a file of pairs gives the distinct sentences of
                its pairs. A .txt file has one sentence per line.
            encoding: the encoding of a text file; None detects it.
            most: the number of sentences at which the corpus is cut.
            sheet: the sheet of a workbook; None is the one whose rows have the most sentences.
            vectors: the user's vectors of the rows, or the name of the column that holds them; None
                if there are none.

        Raises:
            InputError: the file cannot be read, has no such column or no text, or lacks a vector
                for a row.
        """
        # The lines of a .txt file are a column named "sentence". If another column is requested, the
        # file is read as a table.
        table = open_table(path, encoding, sheet, lines=column in (None, "sentence"))
        reading = table.reading.with_columns(requested_columns(column, table.reading))
        # A file of pairs gives its distinct sentences, or, if there is a vector for each row, the
        # first sentence of each row.
        if vectors is None and len(reading.sentences) > 1:
            corpus = cls.from_dataset(Dataset.from_table(table, column), most)
            return replace(corpus, table=table, text_columns=reading.sentences)
        return _from_rows(table, reading.sentence(), most, vectors)

    @classmethod
    def from_data(
        cls, name: str, home: Path | str | None = None, most: int = MAX_SENTENCES
    ) -> Corpus:
        """The distinct sentences of a data set such as stsb:dev. InputError for a path, or if it cannot be loaded."""
        return cls.from_dataset(load_data(check_data_name(name), home), most)

    @classmethod
    def from_dataset(cls, data: Dataset, most: int = MAX_SENTENCES) -> Corpus:
        """The distinct sentences of all columns, row by row, each with the role of its first occurrence."""
        if len(data.columns) == 1:
            sentences = data.columns[0]
            notes = (*data.notes, *_cut_notes(len(sentences), most))
            return cls(data.name, sentences[:most], notes=notes)
        roles = ROLES[len(data.columns)]
        positions: dict[str, int] = {}
        first_role = []
        for row in zip(*data.columns, strict=True):
            for role, sentence in zip(roles, row, strict=True):
                if sentence not in positions:
                    positions[sentence] = len(positions)
                    first_role.append(role)
        # Only pairs have scores.
        gold = None
        if data.scores is not None:
            columns = []
            for column in data.columns:
                columns.append([positions[sentence] for sentence in column])
            rows = np.array(columns, dtype=np.int32).T  # (pairs, 2)
            # Pairs with a sentence beyond the last one that the corpus holds are left out.
            is_inside = (rows < most).all(axis=1)
            scores = np.asarray(data.scores, dtype=np.float32)
            gold = GoldPairs(rows[is_inside], scores[is_inside])
        notes = (*data.notes, *_cut_notes(len(positions), most))
        return cls(data.name, list(positions)[:most], {"role": first_role[:most]}, gold, notes)


def _from_rows(
    table: OpenedTable, column: str, most: int, vectors: np.ndarray | str | None
) -> Corpus:
    """The rows of a table with text in ``column``, at most ``most``.

    ``vectors`` are the user's vectors of all rows, or the name of the column that holds them; None
    without vectors. InputError if there is no such column, or not a vector for each row.
    """
    names_of_vectors = vector_columns(table)
    if isinstance(vectors, str) and vectors not in names_of_vectors:
        raise InputError(
            f"{table.path.name} has no column {quoted(vectors)} with a vector for each row."
        )
    left_out = (column, *names_of_vectors)
    columns: dict[str, list[Any]] = {name: [] for name in table.columns if name not in left_out}
    sentences = []
    # The positions in the file of the rows with text, which select their vectors below.
    rows = []
    arrow_vectors = []
    num_rows = 0
    for batch in table.batches():
        # The positions in the batch of the rows with text.
        text_rows = []
        for row, cell in enumerate(batch.rows[column]):
            text = sentence_of(cell)
            if text:
                text_rows.append(row)
                rows.append(num_rows + row)
                sentences.append(text)
        num_rows += len(batch)
        for name, cells in columns.items():
            values = batch.rows[name]
            cells.extend(values[row] for row in text_rows)
        if isinstance(vectors, str):
            arrow_vectors.append(batch.arrow.column(vectors))
        if len(sentences) >= most:
            break
    notes = table.remarks
    empty = num_rows - len(sentences)
    if len(sentences) >= most:
        # The rest of the file may be unread. The estimated number of rows stands for the number of
        # sentences, but may be below the number that was read. `_cut_notes` returns no note if there
        # are just ``most`` sentences.
        notes += _cut_notes(max(table.row_estimate, len(sentences)), most)
    columns = {name: cells[:most] for name, cells in columns.items()}
    if isinstance(vectors, str):
        vectors = unit_vectors(_stacked(arrow_vectors), table.path.name)
    if vectors is not None:
        # If the corpus is cut, only the first rows have been read, and there may be more vectors.
        is_whole = len(sentences) < most
        if len(vectors) < num_rows or (is_whole and len(vectors) > num_rows):
            raise InputError(
                f"there are {len(vectors):,} vectors, and {table.path.name} has {num_rows:,} rows; one for each."
            )
        vectors = vectors[rows[:most]]
    return Corpus(
        table.path.name,
        sentences[:most],
        columns,
        notes=notes,
        vectors=vectors,
        table=table,
        text_columns=(column,),
        empty=empty,
    )


def sentence_of(cell: Any) -> str:
    """The sentence in a cell of a file, with single spaces; "" if it holds no text."""
    return " ".join((as_text(cell) or "").split())


def _cut_notes(count: int, most: int) -> tuple[str, ...]:
    """A note if there are more sentences than a corpus holds."""
    if count <= most:
        return ()
    return (f"Only the first {most:,} of {count:,} sentences are used.",)


def vector_columns(table: OpenedTable) -> list[str]:
    """The columns of a Parquet file with a list of floats in each row; none for other formats."""
    # pyarrow takes time to import.
    from pyarrow import types

    columns = []
    for field_ in table.fields():
        type_ = field_.type
        is_list = (
            types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_)
        )
        if is_list and types.is_floating(type_.value_type):
            columns.append(field_.name)
    return columns


def read_vectors(path: Path) -> np.ndarray:
    """The `unit_vectors` of a .npy file. InputError if the file does not hold vectors."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"the vectors in {path.name} cannot be read; save an array with np.save."
        ) from error
    return unit_vectors(array, path.name)


def unit_vectors(array: Any, name: str) -> np.ndarray:
    """The vectors of an array (rows, D) as float32 of length 1, so that products are cosines.

    InputError, which names the file ``name``, if the array has another shape or a vector without
    direction.
    """
    # The file may hold something other than an array.
    is_array = isinstance(array, np.ndarray) and array.ndim == 2 and array.size > 0
    # Floats, signed and unsigned integers.
    if not is_array or array.dtype.kind not in "fiu":
        raise InputError(
            f"{name} must hold numbers of the shape (rows, dimensions): a vector for each row."
        )
    vectors = array.astype(np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    wrong = np.flatnonzero(~np.isfinite(lengths[:, 0]) | (lengths[:, 0] == 0))
    if len(wrong):
        raise InputError(f"{name}: the vector of row {wrong[0] + 1:,} is zero, or not a number.")
    vectors /= lengths
    return vectors


def _stacked(lists: list[Any]) -> np.ndarray:
    """Arrow lists of numbers as an array (rows, D).

    If the vectors differ in length, or one is missing, the array is flat, and `unit_vectors` rejects
    it.
    """
    import pyarrow as pa

    rows = pa.chunked_array(lists).combine_chunks()
    # All numbers in one dimension, without the missing vectors.
    values = np.asarray(rows.flatten().to_numpy(zero_copy_only=False))
    lengths = set(rows.value_lengths().to_pylist())
    if rows.null_count or len(lengths) != 1:
        return values
    return values.reshape(len(rows), -1)
