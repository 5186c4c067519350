"""Checks texts and pairs, cuts them into chunks in which each distinct one is computed once, and counts them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, NamedTuple, TypeVar

import numpy as np
from tokenizers import Tokenizer, normalizers

from training.errors import InputError
from training.pooling import is_finite
from training.progress import Progress

T = TypeVar("T", bound=Hashable)
# Sentences or pairs as a model reads them: texts or token ids.
Rows = Sequence[Any]
OnRows = Callable[[int], None]  # is called with the number of rows of a chunk that are done
Compute = Callable[[Rows, OnRows], np.ndarray]  # computes the results of the rows of a chunk

CHUNK = 8_192  # sentences that are read and sorted by length together
# A GPU's batches are 64 times as large as a CPU's.
GPU_CHUNK = 2 * CHUNK
# Normal tokenizers replace a letter by a few others at most.
MOST_GROWTH = 100

log = logging.getLogger("sbert_lab.encoder")


@contextmanager
def tokenizing() -> Iterator[None]:
    """Converts a panic of the tokenizers library, which is not an `Exception` and cannot be imported, to InputError."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise InputError(
            f"the model's tokenizer gives up on a text ({error}); mend its tokenizer.json, or choose another model"
        ) from None


def check_growth(tokenizer: Tokenizer) -> None:
    """Raises InputError if a tokenizer makes texts more than `MOST_GROWTH` times as long before it splits them."""
    normalizer = tokenizer.normalizer
    parts: Any = normalizer if isinstance(normalizer, normalizers.Sequence) else [normalizer]
    growth = 1
    for part in parts:
        # At worst, ``content`` replaces each letter, and ``prepend`` comes before a text of one
        # letter.
        text = getattr(part, "content", "") or getattr(part, "prepend", "")
        growth *= max(1, len(text))
    if growth > MOST_GROWTH:
        raise InputError(
            f"the model's tokenizer makes texts {growth:,} times as long; choose another model"
        )


@dataclass
class ReadReport:
    """Counts of calls of ``encode`` or ``predict``, which fill an empty report that is passed to them."""

    inputs: int = 0  # sentences, or pairs of sentences
    unique: int = 0  # distinct inputs that were computed, within each chunk
    tokens: int = 0  # tokens of the unique inputs, with special tokens and without padding
    truncated: int = 0  # unique inputs that were cut at max_length
    not_finite: int = 0  # inputs whose vector or score is NaN or infinite
    seconds: float = 0.0
    # Pass an empty set to collect the inputs that were cut.
    cut: set[Any] | None = None
    # Pass an empty dict to collect texts that a server refuses, with its reasons.
    refused: dict[str, str] | None = None

    def add(self, other: ReadReport) -> None:
        """Adds the counts of a part that was computed elsewhere, but not its seconds."""
        self.inputs += other.inputs
        self.unique += other.unique
        self.tokens += other.tokens
        self.not_finite += other.not_finite
        self.add_cut(other.cut or (), other.truncated)

    def add_cut(self, inputs: Iterable[Hashable], count: int) -> None:
        """Counts inputs that were cut, and collects them in ``cut``, if it is a set."""
        self.truncated += count
        if self.cut is not None:
            self.cut.update(inputs)


class Chunk(NamedTuple):
    """The distinct sentences or pairs of a chunk, as a model reads them."""

    rows: Rows
    inverse: list[int]  # for each input of the chunk, its position in ``rows``
    cut: Sequence[Hashable] = ()  # inputs that were cut
    tokens: int = 0


def compute_chunks(
    parts: Iterable[Chunk],
    compute: Compute,
    report: ReadReport,
    on_progress: Progress | None,
    total: int | None = None,
) -> Iterator[np.ndarray]:
    """Yields the results of the inputs of each chunk, in their order.

    ``on_progress`` is called with the number of inputs that are done, and ``total``.
    """
    started = time.perf_counter()
    seconds_before = report.seconds
    done = 0
    for part in parts:
        # A chunk has at least one input, so neither number is 0.
        count = len(part.inverse)
        distinct = len(part.rows)
        report.add_cut(part.cut, len(part.cut))

        # The defaults keep the values of this chunk.
        def on_rows(rows: int, before: int = done, share: float = count / distinct) -> None:
            if on_progress is not None:
                on_progress(before + round(rows * share), total)

        results = compute(part.rows, on_rows)
        report.unique += distinct
        report.tokens += part.tokens
        if distinct < count:
            results = results[part.inverse]
        not_finite = count - int(is_finite(results).sum())
        if not_finite:
            report.not_finite += not_finite
            log.warning(
                "%d of %d texts got NaN or infinite numbers from the model", not_finite, count
            )
        yield results
        done += count
        report.inputs += count
        report.seconds = seconds_before + time.perf_counter() - started


def numbered(inputs: Iterable[T]) -> tuple[list[T], list[int]]:
    """Returns the distinct texts or pairs, and the position of each input among them."""
    positions: dict[T, int] = {}
    # An equal text that came before keeps its position.
    inverse = [positions.setdefault(text, len(positions)) for text in inputs]
    return list(positions), inverse


def first_positions(sentences: Sequence[str]) -> np.ndarray:
    """Returns for each sentence the position of the first equal one: int64 (N,)."""
    positions: dict[str, int] = {}
    # setdefault returns the position of an equal sentence that came before.
    first = map(positions.setdefault, sentences, count())
    return np.fromiter(first, dtype=np.int64, count=len(sentences))


def texts(sentences: Iterable[str], offset: int = 0) -> list[str]:
    """Returns the sentences as a list. InputError with the number of one that is not text.

    The first sentence has the number ``offset`` + 1.
    """
    _check_is_list(sentences)
    listed = list(sentences)
    # This is faster than the loop, and nearly always enough.
    if set(map(type, listed)) <= {str}:
        return listed
    for number, text in enumerate(listed, offset + 1):
        if not isinstance(text, str):
            problem = f"sentence {number} is {type(text).__name__}, not text"
            if isinstance(text, tuple | list):
                problem += "; join its texts, or score pairs with a CrossEncoder"
            raise InputError(problem)
    return listed


def _check_is_list(sentences: Iterable[str]) -> None:
    """Raises InputError for a text, a mapping or a table, whose items are letters, keys or columns."""
    if isinstance(sentences, str | Mapping) or getattr(sentences, "ndim", 1) != 1:
        kind = type(sentences).__name__
        raise InputError(
            f"a list of sentences is needed, not a {kind}; give one column, or put one string into a list"
        )


def chunks(sentences: Iterable[str], size: int) -> Iterator[list[str]]:
    """Yields lists of ``size`` sentences. InputError with the number of one that is not text."""
    _check_is_list(sentences)
    done = 0
    remaining = iter(sentences)
    while part := texts(islice(remaining, size), done):
        yield part
        done += len(part)


def replace_surrogates(text: str) -> str:
    """Replaces lone surrogates (halves of characters, from broken UTF-16), which cannot be encoded, by "?"."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
