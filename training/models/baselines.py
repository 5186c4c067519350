"""Encoders without a transformer: TF-IDF, and averages of word vectors such as GloVe's.

The baselines of the paper's Table 1, with the interface of `Encoder`: a name, a pooling, ``encode(sentences)`` ->
float32 (N, D). All but the last ignore word order.

    tfidf                 term frequency × inverse document frequency, fitted on the sentences that are encoded
    glove                 the average of GloVe 6B, 50 dimensions (Pennington et al. 2014)
    path/to/vectors.txt   other word vectors: a word and its numbers per line; the first line may hold their count
    path/to/vectors.npy   the same as an array (V, D), with the words beside it in vectors.words.txt, one per line
    use:path/to/folder    a SavedModel of TensorFlow (below), which is a network and heeds order
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from training.catalogue import BASELINES, GLOVE, MODEL_LABELS, TFIDF
from training.errors import InputError, first_line
from training.pooling import normalize_rows
from training.progress import Progress, ShouldStop, steps
from training.sources.resolve import glove_folder

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from training.models.tokenization import EncodeReport

ENDINGS = (".txt", ".npy")
MAX_DENSE_BYTES = 1 << 30  # of a dense TF-IDF matrix
PROGRESS_EVERY = 4_096  # sentences between two calls of on_progress

WORD_PATTERN = r"\w+"


def is_baseline(name: str) -> bool:
    """Whether this is the name of a baseline, a file of word vectors, or a SavedModel."""
    return (
        name in BASELINES
        or name.startswith(SAVED_MODEL)
        or (name.endswith(ENDINGS) and Path(name).expanduser().is_file())
    )


def load_baseline(
    name: str, pooling: str | None = None, home: str | Path | None = None
) -> TfIdf | WordVectors | SavedModelEncoder:
    """Load a baseline by name.

    Raises:
        InputError: the vectors cannot be found or read, or the baseline does not have this pooling.
    """
    encoder: TfIdf | WordVectors | SavedModelEncoder
    if name.startswith(SAVED_MODEL):
        encoder = open_saved_model(name)
    elif name == TFIDF:
        encoder = TfIdf()
    else:
        encoder = WordVectors(name, *(read_glove(home) if name == GLOVE else _read_vectors(Path(name).expanduser())))
    if pooling not in (None, encoder.pooling):
        has_tokens = isinstance(encoder, WordVectors)
        reason = "always takes the mean of its word vectors" if has_tokens else "has no tokens to pool"
        raise InputError(f"{name} {reason}; leave the pooling out")
    return encoder


class Baseline:
    """An encoder without a transformer, with the interface of `Encoder`."""

    name: str
    pooling: ClassVar[str]
    dimension: int  # D, the length of a sentence vector
    batch_size: ClassVar[int]  # sentences
    is_unit: ClassVar[bool] = False  # whether all vectors are of length 1 in any case

    def encode(
        self,
        sentences: Sequence[str],
        normalize: bool | None = True,
        on_progress: Progress | None = None,
        should_stop: ShouldStop | None = None,
        report: EncodeReport | None = None,
    ) -> np.ndarray:
        """Sentences -> float32 (N, D); ``normalize=True`` scales to length 1, None and False leave them."""
        vectors = self.embed_all(sentences, on_progress, should_stop)
        return normalize_rows(vectors) if normalize and not self.is_unit else vectors

    def embed_all(
        self, sentences: Sequence[str], on_progress: Progress | None, should_stop: ShouldStop | None
    ) -> np.ndarray:
        """All sentences -> (N, D), by batches of similar length."""
        vectors = np.zeros((len(sentences), self.dimension), dtype=np.float32)
        by_length = np.argsort([len(text) for text in sentences], kind="stable")  # networks pad to the longest
        for start in steps(range(0, len(sentences), self.batch_size), on_progress, should_stop):
            rows = by_length[start : start + self.batch_size]
            vectors[rows] = self.embed([sentences[row] for row in rows])
        return vectors

    def embed(self, sentences: list[str]) -> np.ndarray:
        """A batch of n sentences -> (n, D)."""
        raise NotImplementedError


class SparseVectors(Baseline):
    """An encoder with a number for each word or token, most of them 0."""

    encode_sparse: Callable[..., csr_matrix]  # (sentences, on_progress, should_stop) -> float32 (N, V)

    def embed_all(
        self, sentences: Sequence[str], on_progress: Progress | None, should_stop: ShouldStop | None
    ) -> np.ndarray:
        """Sentences -> dense (N, V). InputError if that takes more than a gigabyte."""
        matrix = self.encode_sparse(sentences, on_progress, should_stop)
        if 4 * matrix.shape[0] * matrix.shape[1] > MAX_DENSE_BYTES:
            raise InputError(
                f"{MODEL_LABELS.get(self.name, self.name)} vectors of {matrix.shape[0]:,} sentences with "
                f"{matrix.shape[1]:,} different words do not fit in memory; give fewer sentences"
            )
        return matrix.toarray()


class TfIdf(SparseVectors):
    """Term frequency × inverse document frequency, each sentence scaled to length 1: scikit-learn's TfidfVectorizer.

    The weight of a word that occurs in d of n sentences is ln((1 + n) / (1 + d)) + 1. It is fitted on the sentences
    that are encoded: vectors of two calls cannot be compared.
    """

    name, pooling, is_unit = TFIDF, "none", True

    def encode_sparse(
        self, sentences: Sequence[str], on_progress: Progress | None = None, should_stop: ShouldStop | None = None
    ) -> csr_matrix:
        """Sentences -> float32 (N, V) with a column for each different word; a row without words is zero."""
        from scipy.sparse import csr_matrix  # scipy and scikit-learn take a second to import
        from sklearn.feature_extraction.text import TfidfVectorizer

        if not any(re.search(WORD_PATTERN, sentence) for sentence in sentences):  # scikit-learn raises an error
            return csr_matrix(np.zeros((len(sentences), 0), dtype=np.float32))
        parts = steps(range(0, len(sentences), PROGRESS_EVERY), on_progress, should_stop)
        read = chain.from_iterable(sentences[start : start + PROGRESS_EVERY] for start in parts)
        matrix = TfidfVectorizer(token_pattern=WORD_PATTERN).fit_transform(read)
        return csr_matrix(matrix, dtype=np.float32)


class WordVectors(Baseline):
    """The mean of the vectors of a sentence's words, lower-cased; unknown words are left out.

    A sentence of unknown words is the zero vector, whose cosine with any other is 0.
    """

    pooling, batch_size = "mean", PROGRESS_EVERY

    def __init__(self, name: str, words: Sequence[str], vectors: np.ndarray) -> None:
        """``words``: V different words; ``vectors``: float32 (V, D)."""
        self.name, self.dimension = name, int(vectors.shape[1])
        self.rows = {word: row for row, word in enumerate(words)}
        self.vectors = vectors

    def embed(self, sentences: list[str]) -> np.ndarray:
        means = np.zeros((len(sentences), self.dimension), dtype=np.float32)
        for row, sentence in enumerate(sentences):
            known = [self.rows[word] for word in TREEBANK.findall(sentence.lower()) if word in self.rows]
            if known:
                means[row] = self.vectors[known].mean(axis=0)
        return means


# ---------------------------------------------------------------- word vectors from files


def _read_vectors(path: Path) -> tuple[list[str], np.ndarray]:
    """The words of a file, and their vectors, float32 (V, D)."""
    if path.suffix == ".npy":
        words_file = path.with_suffix(".words.txt")
        if not words_file.is_file():
            raise InputError(f"{path.name} holds numbers only: put their words, one a line, into {words_file}")
        words = words_file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        vectors = read_array(path)
        if len(words) != len(vectors):
            raise InputError(f"{words_file.name} has {len(words):,} words, but {path.name} {len(vectors):,} vectors")
        return words, vectors
    words = []  # the text form of GloVe and word2vec
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


# ---------------------------------------------------------------- word vectors


# Splits contractions as the Penn Treebank and GloVe's vocabulary do: don't -> do n't, man's -> man 's.
TREEBANK = re.compile(r"\w+(?=n't\b)|n't\b|'(?:s|re|ve|ll|d|m)\b|\w+")


def read_glove(home: str | Path | None = None) -> tuple[list[str], np.ndarray]:
    """Its words, lower-cased, the most frequent first, and their vectors, float32 (400,000, 50), memory-mapped.

    NotFoundError if it is not available.
    """
    import pyarrow.parquet as pq  # takes half a second

    folder = glove_folder(home).path
    index = pq.read_table(folder / "glove_6B_index.parquet")
    return index["index"].to_pylist(), read_array(folder / "glove_6B_50d_emb.npy")


def read_array(path: Path) -> np.ndarray:
    """Numbers (V, D), memory-mapped: only the rows of words that occur are read. Never a pickle."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path} is not an array of numbers: {first_line(error)}") from error
    if array.ndim != 2 or array.dtype.kind != "f" or not array.size:
        raise InputError(f"{path.name} must hold decimal numbers in rows, one a word; it has the shape {array.shape}")
    return array


# ---------------------------------------------------------------- SavedModel of TensorFlow

# SavedModel: a sentence encoder of TensorFlow, as TF Hub distributes the Universal Sentence Encoder.
#
#     load_scorer("use:/models/universal-sentence-encoder_4")     the folder with saved_model.pb, as unpacked
#
# It takes a batch of strings and returns a matrix: by being called, as TF 2's are, or by its signature ``default`` or
# ``serving_default``. TensorFlow is an optional dependency (the extra ``use``); it is imported here alone.
#
# A SavedModel is a program. Those that read or write files, or call Python, are refused before they are loaded;
# TensorFlow's own ``saved_model_cli scan`` looks for such operations too.


SAVED_MODEL = "use:"
SIGNATURES = ("default", "serving_default")
FORBIDDEN = frozenset({"ReadFile", "WriteFile", "PyFunc", "PyFuncStateless", "EagerPyFunc"})


class SavedModelEncoder(Baseline):
    """Sentence vectors by a function of TensorFlow."""

    pooling, batch_size = "none", 64

    def __init__(self, name: str, call: Callable[[Any], Any]) -> None:
        self.name, self._call = name, call
        self.dimension = int(self.embed([""]).shape[1])

    def embed(self, sentences: list[str]) -> np.ndarray:
        found = self._call(import_module("tensorflow").constant(sentences))
        if isinstance(found, dict):
            (found,) = [found[key] for key in ("default", "outputs") if key in found][:1] or found.values()
        vectors = np.asarray(found)
        if vectors.ndim != 2 or len(vectors) != len(sentences):
            raise InputError(f"the model maps {len(sentences)} sentences to an array of the shape {vectors.shape}")
        return vectors


def open_saved_model(name: str) -> SavedModelEncoder:
    """Open ``use:<folder>``. InputError if TensorFlow is missing, or the folder holds no SavedModel of sentences."""
    folder = Path(name.removeprefix(SAVED_MODEL)).expanduser()
    if not (folder / "saved_model.pb").is_file():
        raise InputError(
            f"{folder} holds no SavedModel (there is no saved_model.pb): unpack the model that TF Hub distributes, "
            f"and give its folder as {SAVED_MODEL}<folder>"
        )
    try:
        tf = import_module("tensorflow")
    except ImportError as error:
        raise InputError(
            f"{SAVED_MODEL} opens a SavedModel by TensorFlow, which is not installed: pip install 'sbert-lab[use]'"
        ) from error
    try:
        _check_operations(folder)
        loaded = tf.saved_model.load(str(folder))
        return SavedModelEncoder(name, _function_of(loaded))
    except InputError:
        raise
    except Exception as error:  # TensorFlow raises its own classes, protobuf others
        raise InputError(f"{folder} cannot be opened as an encoder of sentences: {first_line(error)}") from error


def _check_operations(folder: Path) -> None:
    """InputError if the model holds an operation of `FORBIDDEN`."""
    messages = import_module("tensorflow.core.protobuf.saved_model_pb2")
    saved = messages.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    graphs = [each.graph_def for each in saved.meta_graphs]
    nodes = [node for graph in graphs for node in graph.node]
    nodes += [node for graph in graphs for function in graph.library.function for node in function.node_def]
    if found := sorted({node.op for node in nodes} & FORBIDDEN):
        raise InputError(
            f"{folder} is refused: it holds {', '.join(found)}, operations that read or write files or call Python"
        )


def _function_of(loaded: Any) -> Callable[[Any], Any]:
    """A function of n strings to an array (n, D), or a dictionary of one. InputError if the model has none."""
    if callable(loaded):
        return loaded
    signatures = getattr(loaded, "signatures", {})
    signature = next((signatures[name] for name in SIGNATURES if name in signatures), None)
    if signature is None:
        raise InputError(
            f"the model is no function of sentences and has none of the signatures {', '.join(SIGNATURES)}"
        )
    (argument,) = signature.structured_input_signature[1]
    return lambda texts: signature(**{argument: texts})
