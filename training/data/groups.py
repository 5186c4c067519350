"""Which rows must stay together when data are split, so that no sentence is on both sides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


def sentence_groups(columns: Sequence[Sequence[str]], related: Iterable[tuple[int, int]] = ()) -> np.ndarray:
    """The group of each row, int (N,): rows that share a sentence, or are ``related``, are in the same group.

    Args:
        columns: K lists of N sentences.
        related: further pairs of rows that belong together.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = len(columns[0])
    first: dict[str, int] = {}
    same = [(row, first.setdefault(text, row)) for column in columns for row, text in enumerate(column)]
    links = np.array([*same, *related], dtype=np.int64).reshape(-1, 2)
    graph = coo_array((np.ones(len(links)), (links[:, 0], links[:, 1])), shape=(n, n))
    return connected_components(graph, directed=False)[1]
