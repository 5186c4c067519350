"""The share of the evaluation data that is in the training data: a figure on what a model has read says too much.

Equal rows and shared sentences are counted by their text. Nearly equal rows are found in two steps, so that it takes
seconds and not minutes: rows that have half of their rarer words in common, and of these the ones whose sentences have
cosines above 0.95 under the default model. Rows that mean the same in other words are not among them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, permutations

import numpy as np

from training.catalogue import DEFAULT_MODEL
from training.data.dataset import Dataset, folded

NEAR = 0.95  # the cosine above which two sentences are nearly equal
COMMON_ROWS, COMMON_SHARE = 50, 0.05  # a word of more rows than both does not make two of them alike
MOST_ROWS, MOST_PAIRS = 200_000, 20_000  # training rows, and pairs of rows to encode; beyond nothing is counted

Row = tuple[str, ...]
Encode = Callable[[list[str]], np.ndarray]  # different sentences -> their vectors (n, D), of length 1


@dataclass(frozen=True)
class Overlap:
    """Rows of evaluation data that the training data has, in part or whole, case and white space aside."""

    data: str  # the name of the evaluation data
    kind: str  # of its rows: scored pairs …
    rows: int
    equal: int  # whose sentences stand together in a row of the training data, in any order
    shared: int  # with a sentence that is in the training data; the equal rows are among them
    near: int | None = None  # others, each of whose sentences is nearly equal to one of the same row; None: not counted

    def __str__(self) -> str:
        of = f"{self.rows:,} {self.kind} of {self.data}"
        if not self.shared and not self.near:
            return f"none of the {of} share a sentence with the training data"
        near = "" if self.near is None else f"{self.near:,} more nearly (cosines above {NEAR} by {DEFAULT_MODEL}), "
        return f"{self.equal:,} of {of} are in the training data, {near}{self.shared:,} share a sentence with it"


def overlap(data: Dataset, training: Sequence[Dataset], encode: Encode | None = None) -> Overlap:
    """Compare the rows of ``data`` with those of all the ``training`` data.

    ``encode`` is that of the default model; without it nearly equal rows are not counted.
    """
    rows = [row for part in training for row in _rows(part)]
    equal = {frozenset(part) for row in rows for part in combinations(row, len(data.columns))}
    sentences, evaluated = set(chain.from_iterable(rows)), _rows(data)
    others = [row for row in evaluated if frozenset(row) not in equal]
    shared = sum(not sentences.isdisjoint(row) for row in evaluated)
    near = None if encode is None else _count_near(list(dict.fromkeys(rows)), others, encode)
    return Overlap(data.name, data.kind, len(data), len(evaluated) - len(others), shared, near)


def _rows(data: Dataset) -> list[Row]:
    return [tuple(map(folded, row)) for row in zip(*data.columns, strict=True)]


def _count_near(training: list[Row], evaluated: list[Row], encode: Encode) -> int | None:
    """The number of ``evaluated`` rows that are nearly equal to a training row; None if counting takes too long."""
    if len(training) > MOST_ROWS:
        return None
    pairs = [(i, j) for i, j in _alike(training, evaluated) if len(training[j]) >= len(evaluated[i])]
    if len(pairs) > MOST_PAIRS:
        return None
    texts = list(dict.fromkeys(text for i, j in pairs for text in (*evaluated[i], *training[j])))
    if not texts:
        return 0
    vectors, place = encode(texts), {text: i for i, text in enumerate(texts)}

    def is_near(row: Row, other: Row) -> bool:
        u, v = (vectors[[place[text] for text in texts]] for texts in (row, other))
        cosines = u @ v.T  # (sentences of one row, of the other)
        return any(min(cosines[range(len(row)), order]) > NEAR for order in permutations(range(len(other)), len(row)))

    return len({i for i, j in pairs if is_near(evaluated[i], training[j])})


def _alike(training: list[Row], evaluated: list[Row]) -> list[tuple[int, int]]:
    """(evaluated, training) rows that have half of their rarer words in common."""
    from scipy.sparse import csr_array

    words = [set(re.findall(r"\w+", " ".join(row))) for row in (*training, *evaluated)]
    frequent = Counter(chain.from_iterable(words[: len(training)]))
    most = max(COMMON_ROWS, COMMON_SHARE * len(training))
    column: dict[str, int] = {}
    rare = [[column.setdefault(word, len(column)) for word in row if frequent[word] <= most] for row in words]
    ends = np.cumsum([0, *map(len, rare)])
    has = csr_array((np.ones(ends[-1], np.float32), list(chain.from_iterable(rare)), ends), (len(rare), len(column)))
    shared, sizes = (has[len(training) :] @ has[: len(training)].T).tocoo(), np.diff(ends)
    i, j = shared.coords
    union = sizes[len(training) + i] + sizes[j] - shared.data
    is_alike = 2 * shared.data >= union
    return list(zip(i[is_alike].tolist(), j[is_alike].tolist(), strict=True))
