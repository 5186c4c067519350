"""Encoders without a transformer: TF-IDF, and averages of word vectors such as GloVe's.

The baselines of the paper's Table 1, with the interface of `Encoder`: a name, a pooling, ``encode(sentences)`` ->
float32 (N, D). All but the last ignore word order.

    tfidf                 term frequency × inverse document frequency, fitted on the sentences that are encoded
    glove                 the average of GloVe 6B, 50 dimensions (Pennington et al. 2014)
    path/to/vectors.txt   other word vectors: a word and its numbers per line; the first line may hold their count
    path/to/vectors.npy   the same as an array (V, D), with the words beside it in vectors.words.txt, one per line
    use:path/to/folder    a SavedModel of TensorFlow (`training.models.saved_model`), which is a network and heeds order
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from training.errors import InputError, Stopped
from training.models.glove import TREEBANK, read_array, read_glove
from training.models.saved_model import PREFIX, SavedModelEncoder, open_saved_model
from training.models.vectors import normalize_rows
from training.registry import BASELINES, GLOVE, TFIDF

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from training.models.encoder import EncodeReport

Progress = Callable[[int, int | None], None]

ENDINGS = (".txt", ".npy")
MAX_DENSE_BYTES = 1 << 30  # of a dense TF-IDF matrix
PROGRESS_EVERY = 4_096  # sentences between two calls of on_progress

_WORD_PATTERN = r"\w+"


def is_baseline(name: str) -> bool:
    """Whether this is the name of a baseline, a file of word vectors, or a SavedModel."""
    return (
        name in BASELINES or name.startswith(PREFIX) or (name.endswith(ENDINGS) and Path(name).expanduser().is_file())
    )


def load_baseline(
    name: str, pooling: str | None = None, home: str | Path | None = None
) -> TfIdf | WordVectors | SavedModelEncoder:
    """Load a baseline by name.

    Raises:
        InputError: the vectors cannot be found or read, or the baseline does not have this pooling.
    """
    encoder = _open(name, home)
    if pooling not in (None, encoder.pooling):
        has_tokens = isinstance(encoder, WordVectors)
        reason = "always takes the mean of its word vectors" if has_tokens else "has no tokens to pool"
        raise InputError(f"{name} {reason}; leave the pooling out")
    return encoder


def _open(name: str, home: str | Path | None) -> TfIdf | WordVectors | SavedModelEncoder:
    if name.startswith(PREFIX):
        return open_saved_model(name)
    return (
        TfIdf()
        if name == TFIDF
        else WordVectors(GLOVE, *read_glove(home))
        if name == GLOVE
        else _open_vectors(Path(name).expanduser())
    )


class TfIdf:
    """Term frequency × inverse document frequency, each sentence scaled to length 1: scikit-learn's TfidfVectorizer.

    The weight of a word that occurs in d of n sentences is ln((1 + n) / (1 + d)) + 1. It is fitted on the sentences
    that are encoded: vectors of two calls cannot be compared.
    """

    name, pooling = TFIDF, "none"

    def encode_sparse(
        self,
        sentences: Sequence[str],
        on_progress: Progress | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> csr_matrix:
        """Sentences -> float32 (N, V) with a column for each different word; a row without words is zero."""
        from scipy.sparse import csr_matrix  # scipy and scikit-learn take a second to import
        from sklearn.feature_extraction.text import TfidfVectorizer

        if not any(re.search(_WORD_PATTERN, sentence) for sentence in sentences):  # scikit-learn raises an error
            return csr_matrix(np.zeros((len(sentences), 0), dtype=np.float32))
        vectorizer = TfidfVectorizer(token_pattern=_WORD_PATTERN)
        matrix = vectorizer.fit_transform(_with_progress(sentences, on_progress, should_stop))
        return csr_matrix(matrix, dtype=np.float32)

    def encode(
        self,
        sentences: Sequence[str],
        normalize: bool | None = True,
        on_progress: Progress | None = None,
        should_stop: Callable[[], bool] | None = None,
        report: EncodeReport | None = None,
    ) -> np.ndarray:
        """Sentences -> dense float32 (N, V), always of length 1. InputError if that takes more than a gigabyte."""
        matrix = self.encode_sparse(sentences, on_progress, should_stop)
        if 4 * matrix.shape[0] * matrix.shape[1] > MAX_DENSE_BYTES:
            raise InputError(
                f"TF-IDF vectors of {matrix.shape[0]:,} sentences with {matrix.shape[1]:,} different words do not fit "
                "in memory; give fewer sentences"
            )
        return matrix.toarray()


class WordVectors:
    """The mean of the vectors of a sentence's words, lower-cased; unknown words are left out.

    A sentence of unknown words is the zero vector, whose cosine with any other is 0.
    """

    pooling = "mean"

    def __init__(self, name: str, words: Sequence[str], vectors: np.ndarray) -> None:
        """``words``: V different words; ``vectors``: float32 (V, D)."""
        self.name = name
        self.rows = {word: row for row, word in enumerate(words)}
        self.vectors = vectors

    @property
    def dimension(self) -> int:
        """D, the length of a sentence vector."""
        return int(self.vectors.shape[1])

    def encode(
        self,
        sentences: Sequence[str],
        normalize: bool | None = True,
        on_progress: Progress | None = None,
        should_stop: Callable[[], bool] | None = None,
        report: EncodeReport | None = None,
    ) -> np.ndarray:
        """Sentences -> float32 (N, D); ``normalize=True`` scales to length 1, None and False leave the mean."""
        means = np.zeros((len(sentences), self.dimension), dtype=np.float32)
        for row, sentence in enumerate(_with_progress(sentences, on_progress, should_stop)):
            known = [self.rows[word] for word in TREEBANK.findall(sentence.lower()) if word in self.rows]
            if known:
                means[row] = self.vectors[known].mean(axis=0)
        return normalize_rows(means) if normalize else means


def _with_progress(
    sentences: Sequence[str], on_progress: Progress | None, should_stop: Callable[[], bool] | None
) -> Iterator[str]:
    """The sentences; every few thousand, ``should_stop`` is asked and ``on_progress`` called."""
    for done, sentence in enumerate(sentences):
        if done % PROGRESS_EVERY == 0:
            if should_stop is not None and should_stop():
                raise Stopped
            if on_progress is not None:
                on_progress(done, len(sentences))
        yield sentence


# ---------------------------------------------------------------- word vectors from files


def _open_vectors(path: Path) -> WordVectors:
    if path.suffix == ".npy":
        words_file = path.with_suffix(".words.txt")
        if not words_file.is_file():
            raise InputError(f"{path.name} holds numbers only: put their words, one a line, into {words_file}")
        words = words_file.read_text(encoding="utf-8").splitlines()
        vectors = read_array(path)
        if len(words) != len(vectors):
            raise InputError(f"{words_file.name} has {len(words):,} words, but {path.name} {len(vectors):,} vectors")
        return WordVectors(str(path), words, vectors)
    return WordVectors(str(path), *_read_text(path))


def _read_text(path: Path) -> tuple[list[str], np.ndarray]:
    """The text form of GloVe and word2vec -> words, float32 (V, D)."""
    words: list[str] = []
    rows: list[np.ndarray] = []
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            word, *cells = line.rstrip().split(" ")
            if number == 1 and len(cells) == 1 and word.isdigit() and cells[0].isdigit():
                continue  # the header of word2vec: how many words, of how many dimensions
            rows.append(_numbers(path, number, cells, len(rows[0]) if rows else len(cells)))
            words.append(word)
    if not rows:
        raise InputError(f"{path.name} holds no word vectors")
    return words, np.stack(rows)


def _numbers(path: Path, line: int, cells: list[str], expected: int) -> np.ndarray:
    try:
        numbers = np.array(cells, dtype=np.float32)
    except ValueError as error:
        raise InputError(f"{path.name}, line {line:,}: not all of it after the word is numbers") from error
    if len(numbers) != expected or not expected or not np.isfinite(numbers).all():
        raise InputError(f"{path.name}, line {line:,}: {max(expected, 1)} finite numbers are needed after the word")
    return numbers
