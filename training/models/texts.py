"""Texts and pairs on their way through a model: checked, in chunks, each distinct one once; and counts of them."""

from __future__ import annotations

import logging
import math
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
# Sentences or pairs as a model reads them: themselves, or their token ids; of a table of vectors `TokenRows`.
Rows = Sequence[Any]
Forward = Callable[[int], None]  # a function that gets the number of rows of a chunk that are done
Compute = Callable[[Rows, Forward], np.ndarray]  # a function that gives the results of the rows of a chunk

CHUNK = 8_192  # sentences that are read and sorted by length together
# On a GPU, whose batches are 64 times as large as a CPU's; the next chunk is tokenised meanwhile.
GPU_CHUNK = 2 * CHUNK
# Tokenizers replace a letter by a few others at most.
MOST_GROWTH = 100

log = logging.getLogger("sbert_lab.encoder")


@contextmanager
def tokenizing() -> Iterator[None]:
    """Makes an InputError of a panic of the tokenizers library, which is no `Exception` and cannot be imported."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise InputError(
            f"the model's tokenizer gives up on a text ({error}); mend its tokenizer.json, or choose another model"
        ) from None


def check_growth(tokenizer: Tokenizer) -> None:
    """InputError if a tokenizer makes texts more than `MOST_GROWTH` times as long before it splits them."""
    normalizer = tokenizer.normalizer
    parts: Any = normalizer if isinstance(normalizer, normalizers.Sequence) else [normalizer]
    written = [getattr(part, "content", "") or getattr(part, "prepend", "") for part in parts]
    if (growth := math.prod(map(len, filter(None, written)))) > MOST_GROWTH:
        raise InputError(f"the model's tokenizer makes texts {growth:,} times as long; choose another model")


@dataclass
class ReadReport:
    """Counts of calls of ``encode`` or ``predict``; pass an empty one to have it filled."""

    inputs: int = 0  # sentences, or pairs of them
    unique: int = 0  # that were computed: each once within a chunk
    tokens: int = 0  # of the unique ones, special tokens included, padding not
    truncated: int = 0  # unique ones cut at max_length
    not_finite: int = 0  # inputs whose vector or score is NaN or infinite
    seconds: float = 0.0
    cut: set[Any] | None = None  # pass an empty set to have those that are cut collected in it
    refused: dict[str, str] | None = None  # likewise texts without a vector, which is NaN, and why the server has none

    def add(self, other: ReadReport) -> None:
        """Add the counts of a part that was computed elsewhere; ``seconds`` stay those of the caller."""
        self.inputs += other.inputs
        self.unique += other.unique
        self.tokens += other.tokens
        self.not_finite += other.not_finite
        self.add_cut(other.cut or (), other.truncated)

    def add_cut(self, inputs: Iterable[Hashable], count: int) -> None:
        """Count those that were cut, and collect them where that is asked for."""
        self.truncated += count
        if self.cut is not None:
            self.cut.update(inputs)


class Chunk(NamedTuple):
    """Sentences or pairs, each distinct one once."""

    rows: Rows
    inverse: list[int]  # the position of each input in ``rows``
    cut: Sequence[Hashable] = ()  # the inputs that were cut
    tokens: int = 0


def compute_chunks(
    parts: Iterable[Chunk], compute: Compute, report: ReadReport, on_progress: Progress | None, total: int | None = None
) -> Iterator[np.ndarray]:
    """The results of the inputs of each chunk, in their order.

    ``on_progress`` is called with the number of inputs that are done, and ``total``.
    """
    started = time.perf_counter()
    seconds = report.seconds
    done = 0
    for part in parts:
        count = len(part.inverse)
        distinct = len(part.rows)
        report.add_cut(part.cut, len(part.cut))

        def forward(rows: int, before: int = done, share: float = count / distinct) -> None:
            if on_progress is not None:
                on_progress(before + round(rows * share), total)

        results = compute(part.rows, forward)
        report.unique += distinct
        report.tokens += part.tokens
        results = results[part.inverse] if distinct < count else results
        if wrong := count - int(is_finite(results).sum()):
            report.not_finite += wrong
            log.warning("%d of %d texts got NaN or infinite numbers from the model", wrong, count)
        yield results
        done += count
        report.inputs += count
        report.seconds = seconds + time.perf_counter() - started


def numbered(inputs: Iterable[T]) -> tuple[list[T], list[int]]:
    """The distinct texts or pairs, and the position of each one among them."""
    positions: dict[T, int] = {}
    inverse = [positions.setdefault(text, len(positions)) for text in inputs]
    return list(positions), inverse


def first_positions(sentences: Sequence[str]) -> np.ndarray:
    """The position of the first sentence that equals each one: int64 (N,)."""
    positions: dict[str, int] = {}
    return np.fromiter(map(positions.setdefault, sentences, count()), dtype=np.int64, count=len(sentences))


def texts(sentences: Iterable[str], offset: int = 0) -> list[str]:
    """The sentences as a list. InputError if one is not text, with its number; ``offset`` came before them."""
    checked = list(_listed(sentences))
    if set(map(type, checked)) <= {str}:
        return checked
    for number, text in enumerate(checked, offset + 1):
        if not isinstance(text, str):
            kind = type(text).__name__
            advice = "; join its texts, or score pairs with a CrossEncoder" if isinstance(text, tuple | list) else ""
            raise InputError(f"sentence {number} is {kind}, not text{advice}")
    return checked


def _listed(sentences: Iterable[str]) -> Iterable[str]:
    """The sentences. InputError for what would be read by its letters, its keys or the names of its columns."""
    if isinstance(sentences, str | Mapping) or getattr(sentences, "ndim", 1) != 1:
        kind = type(sentences).__name__
        raise InputError(f"a list of sentences is needed, not a {kind}; give one column, or put one string into a list")
    return sentences


def chunks(sentences: Iterable[str], size: int) -> Iterator[list[str]]:
    """Lists of ``size`` sentences; InputError as `texts`."""
    done = 0
    remaining = iter(_listed(sentences))
    while part := texts(islice(remaining, size), done):
        yield part
        done += len(part)


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates (halves of characters, from broken UTF-16), which cannot be encoded, by "?"."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
