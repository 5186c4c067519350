"""WordVectors: encodes a sentence as the mean of its words' vectors, such as GloVe's (Pennington et al. 2014).

    glove                 GloVe 6B, 50 dimensions
    path/to/vectors.txt   other word vectors: a word and its numbers per line; the first line may be a header with sizes
    path/to/vectors.npy   an array (V, D), with the words in vectors.words.txt beside it, one per line

It is a baseline in the paper's Table 1. It ignores word order.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from training.catalogue import GLOVE
from training.errors import InputError, first_line
from training.models.model import VectorModel
from training.names import ModelName
from training.sources.resolve import glove_folder

# Splits contractions as the Penn Treebank and GloVe's vocabulary do: don't -> do n't, man's -> man
# 's.
TREEBANK = re.compile(r"\w+(?=n't\b)|n't\b|'(?:s|re|ve|ll|d|m)\b|\w+", re.IGNORECASE)


class WordVectors(VectorModel):
    """Encodes a sentence as the mean of its words' vectors; as the zero vector if none of the words is known.

    A word that is not known as it is written is looked up in lower case.
    """

    kind = "mean of word vectors"
    pooling = "mean"
    batch_size = 4_096

    def __init__(self, name: str, words: Sequence[str], vectors: np.ndarray) -> None:
        """Takes V different ``words`` and their ``vectors`` (V, D), of floating-point numbers."""
        self.name = name
        self.dimension = int(vectors.shape[1])
        self.rows = {word: row for row, word in enumerate(words)}
        self.vectors = vectors

    @classmethod
    def load(cls, name: ModelName | str, *, home: str | Path | None = None, **_: Any) -> Self:
        """Opens GloVe or a file. InputError if it cannot be found or read, or the name states a setting."""
        parsed = ModelName.parse(name)
        cls.check_settings(parsed)
        if parsed.name == GLOVE:
            words, vectors = read_glove(home)
        else:
            words, vectors = _read_vectors(Path(parsed.name).expanduser())
        return cls(parsed.name, words, vectors)

    def encode_batch(self, sentences: Sequence[str]) -> np.ndarray:
        """Computes the mean of the words of each sentence, (n, D)."""
        means = np.zeros((len(sentences), self.dimension), dtype=np.float32)
        for row, sentence in enumerate(sentences):
            word_rows = self._rows_of(sentence)
            if word_rows:
                means[row] = self.vectors[word_rows].mean(axis=0)
        return means

    def is_unknown(self, sentences: Sequence[str]) -> list[bool]:
        return [bool(TREEBANK.search(text)) and not self._rows_of(text) for text in sentences]

    def _rows_of(self, text: str) -> list[int]:
        rows = []
        for word in TREEBANK.findall(text):
            row = self.rows.get(word, self.rows.get(word.lower()))
            if row is not None:
                rows.append(row)
        return rows

    def weights_sample(self, most: int) -> Iterator[tuple[str, np.ndarray]]:
        """Yields some numbers of the table."""
        step = max(1, self.vectors.size // most)
        yield f"vectors {self.vectors.shape}", self.vectors.reshape(-1)[::step]


def read_glove(home: str | Path | None = None) -> tuple[list[str], np.ndarray]:
    """Reads GloVe's words, lower-cased, most frequent first, and their vectors, float32 (400,000, 50), memory-mapped.

    NotFoundError if GloVe is not available.
    """
    # pyarrow takes half a second to import.
    import pyarrow.parquet as pq

    folder = glove_folder(home).path
    index = pq.read_table(folder / "glove_6B_index.parquet")
    return index["index"].to_pylist(), read_array(folder / "glove_6B_50d_emb.npy")


def read_array(path: Path) -> np.ndarray:
    """Opens an array (V, D), memory-mapped: only the rows of words that occur are read. Pickles are never read."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path} is not an array of numbers: {first_line(error)}") from error
    has_rows = array.ndim == 2 and array.size > 0
    if not has_rows or array.dtype.kind != "f":
        raise InputError(
            f"{path.name} must hold decimal numbers in rows, one a word; it has the shape {array.shape}"
        )
    return array


def _read_vectors(path: Path) -> tuple[list[str], np.ndarray]:
    """Reads the words of a file and their vectors (V, D): float32, or the type of the array in a .npy file.

    InputError if the file is damaged, or does not have a vector for each word.
    """
    if path.suffix == ".npy":
        words_file = path.with_suffix(".words.txt")
        if not words_file.is_file():
            raise InputError(
                f"{path.name} holds numbers only: put their words, one a line, into {words_file}"
            )
        words = words_file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        vectors = read_array(path)
        if len(words) != len(vectors):
            raise InputError(
                f"{words_file.name} has {len(words):,} words, but {path.name} {len(vectors):,} vectors"
            )
        return words, vectors
    # The text format of GloVe and word2vec.
    words = []
    rows = list[np.ndarray]()
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        for number, line in enumerate(file, 1):
            word, *cells = line.rstrip().replace("\t", " ").split(" ")
            is_header = len(cells) == 1 and word.isdigit() and cells[0].isdigit()
            if number == 1 and is_header:
                # A file of word2vec begins with the numbers of words and dimensions.
                continue
            dimension = len(rows[0]) if rows else len(cells)
            rows.append(_numbers(path, number, cells, dimension))
            words.append(word)
    if not rows:
        raise InputError(f"{path.name} holds no word vectors")
    return words, np.stack(rows)


def _numbers(path: Path, line: int, cells: list[str], expected: int) -> np.ndarray:
    """Reads the ``cells`` after the word of a line as float32 (D,). InputError unless they are D finite numbers.

    ``expected`` is D, the number of cells in the first line; 0 if that line has none.
    """
    try:
        numbers = np.array(cells, dtype=np.float32)
    except ValueError as error:
        raise InputError(
            f"{path.name}, line {line:,}: not all of it after the word is numbers"
        ) from error
    has_size = len(numbers) == expected and expected > 0
    if not has_size or not np.isfinite(numbers).all():
        raise InputError(
            f"{path.name}, line {line:,}: {max(expected, 1)} finite numbers are needed after the word"
        )
    return numbers
