"""The share of the evaluation data that is in the training data: on these rows a model's results are too good.

Equal rows and shared sentences are counted by their text. The search for nearly equal rows has two
steps, so that it takes seconds and not minutes: rows that have half of their rarer words in common,
and of these the rows whose sentences have cosines above 0.95 under the default model. Rows that
mean the same in other words are not among them.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, combinations, permutations
from typing import Any

import numpy as np

from training.catalogue import DEFAULT_MODEL
from training.data.dataset import Dataset, folded_rows

# The cosine above which two sentences are nearly equal.
NEAR = 0.95
# A word that is in more rows than this, and in a larger share of them, does not make two rows
# alike.
COMMON_ROWS = 50
COMMON_SHARE = 0.05
# Nearly equal rows are counted up to this many training rows, and pairs of rows to encode.
MOST_ROWS = 200_000
MOST_PAIRS = 20_000

Row = tuple[str, ...]
# A function from different sentences to their vectors (n, D), of length 1.
Encode = Callable[[list[str]], np.ndarray]


@dataclass(frozen=True)
class Overlap:
    """The numbers of rows of evaluation data that the training data has, case and white space aside.

    ``data`` and ``kind`` are the name and the form of the evaluation data. The sentences of
    ``equal`` rows stand together in a training row, in any order. ``shared`` rows have a sentence
    that is in the training data; the equal rows are among them. ``near`` counts other rows whose
    sentences are nearly equal to different sentences of one training row; None if they were not
    counted. ``read`` are the places of the equal and the nearly equal rows.
    """

    data: str
    kind: str
    rows: int
    equal: int
    shared: int
    near: int | None = None
    read: frozenset[int] = frozenset()

    @property
    def unread(self) -> list[int]:
        """The places of the other rows."""
        return [row for row in range(self.rows) if row not in self.read]

    def to_dict(self) -> dict[str, Any]:
        """The counts, as plain values."""
        return {name: value for name, value in asdict(self).items() if name != "read"}

    def __str__(self) -> str:
        of = f"{self.rows:,} {self.kind} of {self.data}"
        if not self.shared and not self.near:
            return f"none of the {of} share a sentence with the training data"
        near = (
            ""
            if self.near is None
            else f"{self.near:,} more nearly (cosines above {NEAR} by {DEFAULT_MODEL}), "
        )
        return f"{self.equal:,} of {of} are in the training data, {near}{self.shared:,} share a sentence with it"


def overlap(data: Dataset, training: Sequence[Dataset], encode: Encode | None = None) -> Overlap:
    """Compares the rows of ``data`` with those of all the ``training`` data.

    ``encode`` encodes with the default model; without it nearly equal rows are not counted.
    """
    rows = [row for part in training for row in folded_rows(part)]
    equal = {frozenset(part) for row in rows for part in combinations(row, len(data.columns))}
    sentences = set(chain.from_iterable(rows))
    evaluated = folded_rows(data)
    others = [place for place, row in enumerate(evaluated) if frozenset(row) not in equal]
    near = None
    if encode is not None:
        near = _near(list(dict.fromkeys(rows)), [evaluated[place] for place in others], encode)
    unread = [place for i, place in enumerate(others) if not near or i not in near]
    return Overlap(
        data.name,
        data.kind,
        rows=len(data),
        equal=len(evaluated) - len(others),
        shared=sum(not sentences.isdisjoint(row) for row in evaluated),
        near=None if near is None else len(near),
        read=frozenset(range(len(evaluated))).difference(unread),
    )


def _near(training: list[Row], evaluated: list[Row], encode: Encode) -> set[int] | None:
    """The places of ``evaluated`` rows that are nearly equal to a training row; None if that takes too long."""
    if len(training) > MOST_ROWS:
        return None
    pairs = [
        (i, j) for i, j in _alike(training, evaluated) if len(training[j]) >= len(evaluated[i])
    ]
    if len(pairs) > MOST_PAIRS:
        return None
    texts: dict[str, None] = {}
    for i, j in pairs:
        texts |= dict.fromkeys((*evaluated[i], *training[j]))
    if not texts:
        return set()
    vectors = dict(zip(texts, encode(list(texts)), strict=True))
    near = set()
    for i, j in pairs:
        u = np.stack([vectors[text] for text in evaluated[i]])
        v = np.stack([vectors[text] for text in training[j]])
        cosines = u @ v.T  # (sentences of one row, of the other)
        # Each sentence of the one row has another sentence of the other.
        orders = permutations(range(len(v)), len(u))
        if any(min(cosines[range(len(u)), order]) > NEAR for order in orders):
            near.add(i)
    return near


def _alike(training: list[Row], evaluated: list[Row]) -> list[tuple[int, int]]:
    """(evaluated, training) rows that have half of their rarer words in common."""
    from scipy.sparse import csr_array

    words = [set(re.findall(r"\w+", " ".join(row))) for row in (*training, *evaluated)]
    frequent = Counter(chain.from_iterable(words[: len(training)]))
    most = max(COMMON_ROWS, COMMON_SHARE * len(training))
    column: dict[str, int] = {}
    places: list[int] = []
    ends = [0]
    for row in words:
        for word in row:
            if frequent[word] <= most:
                places.append(column.setdefault(word, len(column)))
        ends.append(len(places))
    shape = (len(words), len(column))
    has = csr_array((np.ones(len(places), np.float32), places, ends), shape)  # (rows, words)
    shared = (has[len(training) :] @ has[: len(training)].T).tocoo()  # (evaluated, training)
    i, j = shared.coords
    sizes = np.diff(ends)
    union = sizes[len(training) + i] + sizes[j] - shared.data
    is_alike = 2 * shared.data >= union
    return list(zip(i[is_alike].tolist(), j[is_alike].tolist(), strict=True))
