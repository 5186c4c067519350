"""The contents of each cluster: its sentences, its keywords, the sentences nearest to its centre."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sbert_app.services.clusters.clustering import NOISE
from sbert_app.services.clusters.keywords import keywords_of
from sbert_app.services.clusters.subset import mean_pair_cosine
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.corpus.export import Column, save_csv, with_file_columns
from sbert_app.services.corpus.similar import normalize_text

REPRESENTATIVES = 3
TITLE_KEYWORDS = 2


@dataclass(frozen=True, eq=False)
class Cluster:
    """A cluster, or the noise."""

    number: int  # from 1, the largest first; 0 = noise
    rows: np.ndarray  # positions of its sentences in the corpus, int64
    keywords: list[str]
    representatives: list[int]  # positions of the sentences nearest to its centre, of distinct texts
    cosine: float | None  # mean over all its pairs; None for a single sentence
    name: str = ""  # that a person has given it

    @property
    def title(self) -> str:
        """Its name, else its first keywords."""
        return self.name or ", ".join(self.keywords[:TITLE_KEYWORDS])


def describe_clusters(
    embedded: EmbeddedCorpus, labels: np.ndarray, names: Mapping[int, str] | None = None
) -> list[Cluster]:
    """The clusters by size, the largest first, and then the noise if there is any.

    Args:
        embedded: a corpus and its vectors.
        labels: int64 (N,) from `clustering.cluster` or `edits.edited`.
        names: of labels that have one.
    """
    order = np.argsort(labels, kind="stable")
    distinct, starts = np.unique(labels[order], return_index=True)
    words = keywords_of(embedded.corpus.sentences, labels)
    clusters = [
        _describe(embedded, label, rows, words[label], (names or {}).get(label, ""))
        for label, rows in zip(distinct.tolist(), np.split(order, starts[1:]), strict=True)
    ]
    return [cluster for cluster in clusters if cluster.number] + [cluster for cluster in clusters if not cluster.number]


def _describe(
    embedded: EmbeddedCorpus, label: int, rows: np.ndarray, cluster_keywords: list[str], name: str
) -> Cluster:
    if label == NOISE:
        return Cluster(0, rows, [], [], None)
    vectors = np.asarray(embedded.vectors[rows])
    nearest = rows[np.argsort(-(vectors @ vectors.sum(axis=0, dtype=np.float64)), kind="stable")]
    representatives = _first_distinct(embedded.corpus.sentences, nearest.tolist())
    return Cluster(label + 1, rows, cluster_keywords, representatives, mean_pair_cosine(vectors), name)


def _first_distinct(sentences: list[str], rows: Iterable[int]) -> list[int]:
    """The first REPRESENTATIVES of ``rows`` with distinct texts."""
    row_of: dict[str, int] = {}
    for row in rows:
        row_of.setdefault(normalize_text(sentences[row]), row)
        if len(row_of) == REPRESENTATIVES:
            break
    return list(row_of.values())


def save_labels(corpus: Corpus, clusters: list[Cluster], folder: Path) -> Path:
    """A CSV file of all sentences with their cluster (0 = noise), its name, its keywords, and their other columns.

    Raises:
        InputError: the file cannot be written.
    """
    numbers = np.zeros(len(corpus), dtype=np.int64)
    for cluster in clusters:
        numbers[cluster.rows] = cluster.number
    keywords_of = {cluster.number: " ".join(cluster.keywords) for cluster in clusters}
    columns: dict[str, Column] = {"cluster": numbers.tolist()}
    if any(cluster.name for cluster in clusters):
        name_of = {cluster.number: cluster.name for cluster in clusters}
        columns["name"] = [name_of[number] for number in numbers.tolist()]
    columns |= {
        "keywords": [keywords_of[number] for number in numbers.tolist()],
        "sentence": corpus.sentences,
    }
    return save_csv(folder, "clusters.csv", with_file_columns(columns, corpus.columns))
