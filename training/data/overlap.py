"""The share of the evaluation data that is in the training data: on these rows a model's results are too good.

Equal rows and shared sentences are counted by their text. Nearly equal rows are found in two steps,
which takes seconds and not minutes: the first selects rows that have half of their rarer words in
common, the second keeps the rows whose sentences have cosines above 0.95 under the default model.
Paraphrases in other words are not found.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, combinations, permutations
from typing import Any

import numpy as np
import scipy  # loads its submodules on first use

from training.catalogue import DEFAULT_MODEL
from training.data.dataset import Dataset, folded_rows

# The cosine above which two sentences are nearly equal.
NEAR = 0.95
# A word is common if it is in more rows than this and in a larger share of the rows. Common words
# are not compared.
COMMON_ROWS = 50
COMMON_SHARE = 0.05
# With more training rows, or more pairs of rows to encode, nearly equal rows are not counted.
MOST_ROWS = 200_000
MOST_PAIRS = 20_000

Row = tuple[str, ...]
# A function from different sentences to their vectors (n, D), of length 1.
Encode = Callable[[list[str]], np.ndarray]


@dataclass(frozen=True)
class Overlap:
    """The numbers of rows of evaluation data that the training data has, case and white space aside.

    Attributes:
        data: the name of the evaluation data.
        kind: the form of the evaluation data.
        rows: the number of all rows.
        equal: the number of rows whose sentences are together in one training row, in any order.
        shared: the number of rows with a sentence that is in the training data, equal rows included.
        near: the number of other rows whose sentences are nearly equal to different sentences of
            one training row; None if they were not counted.
        read: the places of the rows that training has read: the equal and the nearly equal ones.
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
        """The places of the rows that training has not read."""
        return [row for row in range(self.rows) if row not in self.read]

    def to_dict(self) -> dict[str, Any]:
        """The counts, as plain values."""
        return {name: value for name, value in asdict(self).items() if name != "read"}

    def __str__(self) -> str:
        rows = f"{self.rows:,} {self.kind} of {self.data}"
        # Equal rows share sentences, so they are counted in ``shared`` too.
        if not self.shared and not self.near:
            return f"none of the {rows} share a sentence with the training data"
        near = ""
        if self.near is not None:
            near = f"{self.near:,} more nearly (cosines above {NEAR} by {DEFAULT_MODEL}), "
        return f"{self.equal:,} of {rows} are in the training data, {near}{self.shared:,} share a sentence with it"


def overlap(data: Dataset, training: Sequence[Dataset], encode: Encode | None = None) -> Overlap:
    """Compares the rows of ``data`` with all rows of the ``training`` data.

    ``encode`` encodes with the default model; without it nearly equal rows are not counted.
    """
    rows = list(chain.from_iterable(map(folded_rows, training)))
    sentences = set(chain.from_iterable(rows))
    # A row of ``data`` may be a part of a training row, as a pair is of a triplet. So ``parts`` has
    # every choice of as many sentences from a training row as a row of ``data`` has.
    parts: set[frozenset[str]] = set()
    for row in rows:
        parts.update(map(frozenset, combinations(row, len(data.columns))))

    evaluated = folded_rows(data)
    # The places of the rows that are not equal to a training row, or to a part of one.
    others = [place for place, row in enumerate(evaluated) if frozenset(row) not in parts]
    near = None
    if encode is not None:
        near = _near(list(dict.fromkeys(rows)), [evaluated[place] for place in others], encode)
    # ``near`` holds positions in ``others``. Training has read the equal and the nearly equal rows.
    unread = set(others)
    unread.difference_update(others[i] for i in near or ())
    return Overlap(
        data.name,
        data.kind,
        rows=len(data),
        equal=len(evaluated) - len(others),
        shared=sum(not sentences.isdisjoint(row) for row in evaluated),
        near=None if near is None else len(near),
        read=frozenset(range(len(evaluated))) - unread,
    )


def _near(training: list[Row], evaluated: list[Row], encode: Encode) -> set[int] | None:
    """The places of ``evaluated`` rows that are nearly equal to a training row; None if that takes too long."""
    if len(training) > MOST_ROWS:
        return None
    # Each pair is the place of an evaluated row and the place of a training row.
    pairs = []
    for i, j in _alike_pairs(training, evaluated):
        # A shorter training row does not have a different sentence for each one of the evaluated
        # row.
        if len(training[j]) >= len(evaluated[i]):
            pairs.append((i, j))
    if len(pairs) > MOST_PAIRS:
        return None
    if not pairs:
        return set()
    place_of: dict[str, int] = {}
    for i, j in pairs:
        for text in (*evaluated[i], *training[j]):
            place_of.setdefault(text, len(place_of))
    vectors = encode(list(place_of))  # (texts, D)
    near = set()
    for i, j in pairs:
        u = vectors[[place_of[text] for text in evaluated[i]]]
        v = vectors[[place_of[text] for text in training[j]]]
        cosines = u @ v.T  # (sentences of the evaluated row, of the training row)
        # Each sentence of the evaluated row is compared with a different one of the training row.
        for order in permutations(range(len(v)), len(u)):
            if min(cosines[range(len(u)), order]) > NEAR:
                near.add(i)
    return near


def _alike_pairs(training: list[Row], evaluated: list[Row]) -> list[tuple[int, int]]:
    """The pairs (evaluated, training) of rows that have half of their rarer words in common."""
    words = [set(re.findall(r"\w+", " ".join(row))) for row in (*training, *evaluated)]
    frequent = Counter(chain.from_iterable(words[: len(training)]))
    # A word in more training rows than this is common, and not counted.
    most_rows = max(COMMON_ROWS, COMMON_SHARE * len(training))
    column: dict[str, int] = {}
    # The columns of the words of row i are places[ends[i] : ends[i + 1]], as scipy takes them.
    places = []
    ends = [0]
    for row in words:
        for word in row:
            if frequent[word] <= most_rows:
                places.append(column.setdefault(word, len(column)))
        ends.append(len(places))
    ones = np.ones(len(places), np.float32)
    # 1 where a row has a word: (rows, words). The training rows come first.
    has = scipy.sparse.csr_array((ones, places, ends), (len(words), len(column)))
    shared = (has[len(training) :] @ has[: len(training)].T).tocoo()  # (evaluated, training)
    i, j = shared.coords
    sizes = np.diff(ends)
    union = sizes[len(training) + i] + sizes[j] - shared.data
    is_alike = 2 * shared.data >= union
    return list(zip(i[is_alike].tolist(), j[is_alike].tolist(), strict=True))
