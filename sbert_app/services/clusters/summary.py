"""The contents of each cluster: its sentences, its keywords, the sentences nearest to its centre."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sbert_app.services.clusters.clustering import NOISE
from sbert_app.services.clusters.keywords import keywords
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.corpus.export import Column, save_csv, with_file_columns
from sbert_app.services.corpus.similar import normalize_text

REPRESENTATIVES = 3


@dataclass(frozen=True, eq=False)
class Cluster:
    """A cluster, or the noise."""

    number: int  # from 1, the largest first; 0 = noise
    rows: np.ndarray  # positions of its sentences in the corpus, int64
    keywords: list[str]
    representatives: list[int]  # positions of the sentences nearest to its centre, of distinct texts
    cosine: float | None  # mean over all its pairs; None for a single sentence


def describe_clusters(embedded: EmbeddedCorpus, labels: np.ndarray) -> list[Cluster]:
    """The clusters by size, the largest first, and then the noise if there is any.

    Args:
        embedded: a corpus and its vectors.
        labels: int64 (N,) from `clustering.cluster`.
    """
    order = np.argsort(labels, kind="stable")
    distinct, starts = np.unique(labels[order], return_index=True)
    keywords_of = keywords(embedded.corpus.sentences, labels)
    clusters = [
        _describe(embedded, label, rows, keywords_of[label])
        for label, rows in zip(distinct.tolist(), np.split(order, starts[1:]), strict=True)
    ]
    return [cluster for cluster in clusters if cluster.number] + [cluster for cluster in clusters if not cluster.number]


def _describe(embedded: EmbeddedCorpus, label: int, rows: np.ndarray, cluster_keywords: list[str]) -> Cluster:
    if label == NOISE:
        return Cluster(0, rows, [], [], None)
    vectors = embedded.vectors[rows]
    total = vectors.sum(axis=0, dtype=np.float64)
    n = len(rows)
    # The squared norm of the sum is the sum of the cosines of all pairs, and of each sentence with itself.
    cosine = float(total @ total - n) / (n * (n - 1)) if n > 1 else None
    nearest = rows[np.argsort(-(vectors @ total), kind="stable")]
    representatives = _first_distinct(embedded.corpus.sentences, nearest.tolist())
    return Cluster(label + 1, rows, cluster_keywords, representatives, cosine)


def _first_distinct(sentences: list[str], rows: Iterable[int]) -> list[int]:
    """The first REPRESENTATIVES of ``rows`` with distinct texts."""
    row_of: dict[str, int] = {}
    for row in rows:
        row_of.setdefault(normalize_text(sentences[row]), row)
        if len(row_of) == REPRESENTATIVES:
            break
    return list(row_of.values())


def save_labels(corpus: Corpus, clusters: list[Cluster], folder: Path) -> Path:
    """A CSV file of all sentences with their cluster (0 = noise), its keywords, and their other columns.

    Raises:
        InputError: the file cannot be written.
    """
    numbers = np.zeros(len(corpus), dtype=np.int64)
    for cluster in clusters:
        numbers[cluster.rows] = cluster.number
    keywords_of = {cluster.number: " ".join(cluster.keywords) for cluster in clusters}
    columns: dict[str, Column] = {
        "cluster": numbers.tolist(),
        "keywords": [keywords_of[number] for number in numbers.tolist()],
        "sentence": corpus.sentences,
    }
    return save_csv(folder, "clusters.csv", with_file_columns(columns, corpus.columns))
