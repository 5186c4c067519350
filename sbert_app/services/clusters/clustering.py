"""Clusters of a corpus, in two ways: dense groups (HDBSCAN), and a tree of all sentences (hierarchical).

HDBSCAN (Campello et al. 2013) finds groups that are denser than what surrounds them, and leaves what is in none.
In hundreds of dimensions hardly anything is dense: of 10,000 STSb sentences it left 82% in no group after a principal
component analysis to 50 dimensions, and 29% after UMAP to 5, which is why it is given a 5-D map (maps.py).

Hierarchical clustering joins the two most similar groups, again and again; the similarity of two groups is the mean
cosine of their pairs (average linkage). It needs every pair of sentences: for 10,000 of them, 65 hours of BERT in the
paper (section 1 and its conclusion). The tree is computed once and kept; cutting it elsewhere takes no time. All
distances lie in memory while it grows, so there is a limit.

Labels are int64 (N,): 0 is the largest group, and −1 means in no group.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sbert_app.services.cache import DiskCache, digest
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.maps.projection import CLUSTER_DIMENSIONS, MapSettings, map_key, project
from sbert_app.services.maps.umap_engine import is_warm
from training.errors import InputError, Stopped

HDBSCAN, HIERARCHICAL = "hdbscan", "hierarchical"
MAX_TREE_SENTENCES = 15_000  # 112 million distances, 1.9 GB at the peak
NO_GROUP = -1
NEIGHBOURS_OF_A_CORE = 5  # min_samples: how many neighbours make a sentence part of a dense place
BLOCK = 1_024  # rows of distances between two looks at the Stop button
LOOK_SECONDS = 0.2

Tell = Callable[..., None]  # tell(share) or tell(share, "now this")
ShouldStop = Callable[[], bool]

_growing = threading.Lock()  # one tree at a time: its distances fill the memory


@dataclass(frozen=True)
class ClusterSettings:
    """How to cluster. ``groups`` = None cuts the tree by ``cosine``, a number by how many groups are wanted."""

    method: str = HDBSCAN
    smallest: int = 5  # HDBSCAN: sentences that make a group
    cosine: float = 0.3  # hierarchical: groups with a mean cosine below stay apart
    groups: int | None = None

    def check(self, space: EmbeddedCorpus) -> None:
        """InputError where these settings, or any clusters, make no sense for this corpus."""
        if self.method not in METHODS:
            raise InputError(f"there is no clustering {self.method!r}; choose {' or '.join(METHODS)}.")
        if self.smallest < 2:
            raise InputError(f"the smallest cluster has {self.smallest} sentences; it must be at least 2.")
        if not -1 <= self.cosine <= 1:
            raise InputError(f"the cosine is {self.cosine}; it must be from −1 to 1.")
        if self.groups is not None and not 1 <= self.groups <= len(space):
            raise InputError(
                f"{self.groups:,} clusters were asked for; {_count(len(space))} can make 1 to {len(space):,}."
            )
        fewest = FEWEST[self.method]
        different = len(set(space.corpus.sentences))
        if different < fewest:
            these = "all are the same" if different == 1 and len(space) > 1 else f"there are {different}"
            these = "there is one" if len(space) == 1 else these
            raise InputError(f"clusters need at least {fewest} different sentences; {these} here.")


def cluster(
    space: EmbeddedCorpus,
    settings: ClusterSettings,
    cache: DiskCache,
    home: Path,
    tell: Tell = lambda *_: None,
    should_stop: ShouldStop = lambda: False,
) -> np.ndarray:
    """The group of each sentence: int64 (N,), 0 the largest, −1 in none; from the cache where it is known.

    Args:
        space: a corpus and its vectors.
        settings: the method and its bounds.
        cache: keeps the 5-D map, the groups found in it, and the tree.
        home: the home folder, for UMAP's compiled functions.
        tell: called with the share that is done and with what is being done.
        should_stop: asked a few times a second where the libraries allow it.

    Raises:
        InputError: the settings or the corpus make no sense, or the corpus is too large for a tree.
        Stopped: ``should_stop`` said yes.
    """
    settings.check(space)
    return by_size(METHODS[settings.method](space, settings, cache, home, tell, should_stop))


def by_size(labels: np.ndarray) -> np.ndarray:
    """The same groups numbered by size, the largest 0; equal ones by their first sentence. −1 stays."""
    names, first, counts = np.unique(labels[labels >= 0], return_index=True, return_counts=True)
    numbers = np.full(int(names.max(initial=NO_GROUP)) + 2, NO_GROUP)  # the last place is that of −1
    numbers[names[np.lexsort((first, -counts))]] = np.arange(len(names))
    return numbers[labels].astype(np.int64)


def _dense(
    space: EmbeddedCorpus, settings: ClusterSettings, cache: DiskCache, home: Path, tell: Tell, should_stop: ShouldStop
) -> np.ndarray:
    """HDBSCAN of the 5-D map."""
    if settings.smallest > len(space):
        wanted = f"clusters of {settings.smallest:,} sentences or more were asked for"
        raise InputError(f"{wanted}, but there are only {_count(len(space))}.")
    drawn = MapSettings(dimensions=CLUSTER_DIMENSIONS, min_dist=0.0)
    key = digest(["hdbscan", map_key(drawn, space), str(settings.smallest)])
    labels = cache.get(key)
    if labels is None:
        words = (
            f"Drawing {len(space):,} sentences in 5 dimensions" if is_warm() else "Compiling UMAP, once on this machine"
        )
        tell(0, words)
        points = project(space, drawn, cache, home, tell, should_stop)
        tell(0, "Looking for dense groups")
        if should_stop():
            raise Stopped
        labels = _hdbscan(points, settings.smallest)
        cache.put(key, labels)
    return labels


def _hdbscan(points: np.ndarray, smallest: int) -> np.ndarray:
    from sklearn import cluster as clustering

    cores = min(NEIGHBOURS_OF_A_CORE, smallest, len(points))
    found = clustering.HDBSCAN(min_cluster_size=smallest, min_samples=cores, copy=True).fit_predict(points)
    return found.astype(np.int64)


def _cut_tree(
    space: EmbeddedCorpus, settings: ClusterSettings, cache: DiskCache, home: Path, tell: Tell, should_stop: ShouldStop
) -> np.ndarray:
    """The groups of the tree, cut by cosine or by number."""
    from scipy.cluster.hierarchy import fcluster

    joined = tree(space, cache, tell, should_stop)
    if settings.groups is None:
        return fcluster(joined, 1 - settings.cosine, "distance").astype(np.int64) - 1
    return fcluster(joined, settings.groups, "maxclust").astype(np.int64) - 1


METHODS: dict[str, Callable[..., np.ndarray]] = {HDBSCAN: _dense, HIERARCHICAL: _cut_tree}
FEWEST = {HDBSCAN: 5, HIERARCHICAL: 2}  # different sentences


def tree(
    space: EmbeddedCorpus, cache: DiskCache, tell: Tell = lambda *_: None, should_stop: ShouldStop = lambda: False
) -> np.ndarray:
    """Average linkage under cosine distance, as SciPy's linkage gives it: float64 (N−1, 4).

    Raises:
        InputError: there are more than ``MAX_TREE_SENTENCES`` sentences.
        Stopped: ``should_stop`` said yes.
    """
    from scipy.cluster.hierarchy import linkage

    if len(space) > MAX_TREE_SENTENCES:
        raise InputError(
            f"hierarchical clustering keeps the distance of every pair in memory, so {MAX_TREE_SENTENCES:,} sentences "
            f"are the most; this corpus has {len(space):,}. Choose HDBSCAN, or open fewer sentences."
        )
    key = digest(["average linkage", space.key])
    joined = cache.get(key)
    if joined is None:
        with _alone(should_stop):
            tell(0, f"Comparing {len(space):,} sentences, each with each")
            distances = condensed_distances(space.vectors, tell, should_stop)
            tell(0, f"Joining {len(space):,} sentences")
            joined = linkage(distances, "average")
        cache.put(key, joined)
    return joined


def condensed_distances(vectors: np.ndarray, tell: Tell, should_stop: ShouldStop) -> np.ndarray:
    """1 − cosine of every pair, row by row of the upper triangle: float64 (N(N−1)/2,)."""
    n = len(vectors)
    distances = np.empty(n * (n - 1) // 2)
    at = 0
    for top in range(0, n, BLOCK):
        if should_stop():
            raise Stopped
        block = np.clip(1 - vectors[top : top + BLOCK] @ vectors[top:].T, 0, 2)
        for row in range(len(block)):
            end = at + n - top - row - 1
            distances[at:end] = block[row, row + 1 :]
            at = end
        tell(at / max(len(distances), 1))
    return distances


@contextmanager
def _alone(should_stop: ShouldStop) -> Iterator[Any]:
    """One at a time; who waits can be stopped."""
    while not _growing.acquire(timeout=LOOK_SECONDS):
        if should_stop():
            raise Stopped
    try:
        yield
    finally:
        _growing.release()


def _count(n: int) -> str:
    return "1 sentence" if n == 1 else f"{n:,} sentences"
