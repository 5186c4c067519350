"""Dataset: rows of one, two or three sentences, with gold scores or labels, as parallel lists.

Every source and every transform produces this type, in the same units: gold scores run from 0 to 5, labels are
numbered from 0 and have names. Each decision on the way (a row left out, scores rescaled) is a sentence in
``notes``, which the pages show.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

from training.catalogue import LABELLED, PAIRS, SCORED, SENTENCES, TRIPLETS
from training.errors import InputError

if TYPE_CHECKING:
    import numpy as np

TOP_SCORE = 5.0  # gold scores run from 0 (nothing in common) to 5 (the same meaning)


@dataclass(frozen=True)
class Dataset:
    """Rows of one, two or three sentences each; every list has the same length.

    ``columns`` holds one list per sentence of a row: (sentence,), (first, second) or (anchor, positive,
    negative). ``scores`` are gold scores in 0–5, ``labels`` indices into ``label_names``. ``rows`` are the
    1-based row numbers in the source, so that a message can name a row that the user can find.
    """

    name: str
    columns: tuple[list[str], ...]
    scores: list[float] | None = None
    labels: list[int] | None = None
    label_names: tuple[str, ...] = ()
    source: str = ""
    notes: tuple[str, ...] = ()
    rows: Sequence[int] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not self.rows:
            object.__setattr__(self, "rows", range(1, len(self) + 1))

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def kind(self) -> str:
        """The form in words: sentences, pairs, scored pairs, labelled pairs or triplets."""
        if len(self.columns) != 2:
            return SENTENCES if len(self.columns) == 1 else TRIPLETS
        if self.scores is not None:
            return SCORED
        return LABELLED if self.labels is not None else PAIRS

    def select(self, keep: Iterable[int], *notes: str) -> Dataset:
        """The rows at these positions, in this order, with ``notes`` added."""
        keep = list(keep)
        return replace(
            self,
            columns=tuple([column[i] for i in keep] for column in self.columns),
            scores=None if self.scores is None else [self.scores[i] for i in keep],
            labels=None if self.labels is None else [self.labels[i] for i in keep],
            rows=[self.rows[i] for i in keep],
            notes=(*self.notes, *notes),
        )

    def with_note(self, note: str) -> Dataset:
        """The data with one more note."""
        return replace(self, notes=(*self.notes, note))


def join(parts: Sequence[Dataset]) -> Dataset:
    """Data sets of one form, concatenated. InputError if their forms or their labels differ."""
    first, *rest = parts
    if not rest:
        return first
    for other in rest:
        if other.kind != first.kind:
            raise InputError(
                f"{first.name} holds {first.kind} and {other.name} {other.kind}; join sets of the same form"
            )
        if other.label_names != first.label_names:
            one, two = ", ".join(first.label_names), ", ".join(other.label_names)
            raise InputError(f"the labels of {first.name} are {one}, those of {other.name} {two}")
    return Dataset(
        name="+".join(part.name for part in parts),
        columns=tuple([s for part in parts for s in part.columns[i]] for i in range(len(first.columns))),
        scores=list(chain.from_iterable(part.scores or () for part in parts)) if first.scores is not None else None,
        labels=list(chain.from_iterable(part.labels or () for part in parts)) if first.labels is not None else None,
        label_names=first.label_names,
        source="; ".join(dict.fromkeys(part.source for part in parts)),
        notes=tuple(f"{part.name}: {note}" for part in parts for note in (*part.notes, f"{len(part):,} rows")),
        rows=[row for part in parts for row in part.rows],
    )


def folded(text: str) -> str:
    """The text without differences of case and white space: what counts as equal texts."""
    return " ".join(text.casefold().split())


def sentence_groups(columns: Sequence[Sequence[str]], related: Iterable[tuple[int, int]] = ()) -> np.ndarray:
    """The group of each row, int (N,): rows that share a sentence, or are ``related``, are in the same group.

    Args:
        columns: K lists of N sentences.
        related: further pairs of rows that belong together.
    """
    import numpy as np
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = len(columns[0])
    first: dict[str, int] = {}
    same = [(row, first.setdefault(text, row)) for column in columns for row, text in enumerate(column)]
    links = np.array([*same, *related], dtype=np.int64).reshape(-1, 2)
    graph = coo_array((np.ones(len(links)), (links[:, 0], links[:, 1])), shape=(n, n))
    return connected_components(graph, directed=False)[1]
