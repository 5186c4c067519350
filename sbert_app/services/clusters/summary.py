"""What is in each cluster: its size, the words that set it apart, the sentences that stand for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sbert_app.services.clusters.clustering import NO_GROUP
from sbert_app.services.clusters.keywords import keywords
from sbert_app.services.corpus.export import Column, save_csv, with_others
from sbert_app.services.corpus.similar import same_words

if TYPE_CHECKING:
    from sbert_app.services.corpus.corpus import Corpus
    from sbert_app.services.corpus.embedded import EmbeddedCorpus

REPRESENTATIVES = 3


@dataclass(frozen=True, eq=False)
class Cluster:
    """A cluster, or what is in none."""

    number: int  # from 1, the largest first; 0 = in no cluster
    rows: np.ndarray  # positions of its sentences in the corpus, int64
    keywords: list[str]
    representatives: list[int]  # positions of the sentences nearest to its centre, no text twice
    cosine: float | None  # the mean over all its pairs; None for one sentence alone


def describe_clusters(space: EmbeddedCorpus, labels: np.ndarray) -> list[Cluster]:
    """The clusters by size, largest first, and last what is in none, if anything is.

    Args:
        space: a corpus and its vectors.
        labels: int64 (N,) as ``clusters.cluster`` gives them.
    """
    order = np.argsort(labels, kind="stable")
    names, starts = np.unique(labels[order], return_index=True)
    heavy = keywords(space.corpus.sentences, labels)
    found = [
        _group(space, name, rows, heavy[name])
        for name, rows in zip(names.tolist(), np.split(order, starts[1:]), strict=True)
    ]
    return [group for group in found if group.number] + [group for group in found if not group.number]


def _group(space: EmbeddedCorpus, label: int, rows: np.ndarray, heavy: list[str]) -> Cluster:
    if label == NO_GROUP:
        return Cluster(0, rows, [], [], None)
    vectors = space.vectors[rows]
    total = vectors.sum(axis=0, dtype=np.float64)
    n = len(rows)
    # The squared length of the sum is the sum of the cosines of all pairs, and of each sentence with itself.
    cosine = float(total @ total - n) / (n * (n - 1)) if n > 1 else None
    nearest = rows[np.argsort(-(vectors @ total), kind="stable")]
    return Cluster(label + 1, rows, heavy, _different(space.corpus.sentences, nearest.tolist()), cosine)


def _different(sentences: list[str], rows: Iterable[int]) -> list[int]:
    """The first few of ``rows`` whose words differ."""
    seen: dict[str, int] = {}
    for row in rows:
        seen.setdefault(same_words(sentences[row]), row)
        if len(seen) == REPRESENTATIVES:
            break
    return list(seen.values())


def save_labels(corpus: Corpus, found: list[Cluster], folder: Path) -> Path:
    """A CSV file of all sentences with their cluster (0 = in none), its keywords, and their other columns.

    Raises:
        InputError: the file cannot be written.
    """
    numbers = np.zeros(len(corpus), dtype=np.int64)
    for group in found:
        numbers[group.rows] = group.number
    heavy = {group.number: " ".join(group.keywords) for group in found}
    own: dict[str, Column] = {
        "cluster": numbers.tolist(),
        "keywords": [heavy[number] for number in numbers.tolist()],
        "sentence": corpus.sentences,
    }
    return save_csv(folder, "clusters.csv", with_others(own, corpus.columns))
