"""Clusters of a corpus by three methods: HDBSCAN, mini-batch k-means and hierarchical clustering.

HDBSCAN (Campello et al. 2013) finds groups that are denser than their surroundings, and calls the
other sentences noise. In hundreds of dimensions hardly anything is dense: of 10,000 STSb sentences
82% were noise after a principal component analysis to 50 dimensions, and 29% after UMAP to 5. It
therefore runs on a 5-D map (`maps.projection`). If a corpus is too large for a map, HDBSCAN groups
a random sample, and every other sentence joins the cluster of most of its nearest neighbours in the
sample.

Hierarchical clustering repeatedly joins the two groups with the highest mean cosine of their pairs
(average linkage). It compares every pair of sentences, which for 10,000 sentences would take BERT
65 hours (section 1 and conclusion of the paper). The tree is cached, so that another cut takes no
time. All distances are in memory, which limits the size of the corpus.

Mini-batch k-means (Sculley 2010) divides any corpus into a given number of clusters, without noise,
and reads a memory map batch by batch.
"""

import math
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy  # loads its submodules on first use

from sbert_app.formats import format_count
from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.corpus.corpus import CorpusLimits
from sbert_app.services.corpus.embedded import EmbeddedCorpus, sample_of
from sbert_app.services.corpus.neighbours import searched
from sbert_app.services.maps.projection import CLUSTER_DIMENSIONS, MapSettings, map_key, project
from sbert_app.services.store.cache import DiskCache, digest
from training.errors import InputError

NOISE = -1
HDBSCAN = "hdbscan"
K_MEANS = "k-means"
HIERARCHICAL = "hierarchical"
MIN_SENTENCES = {HDBSCAN: 5, K_MEANS: 2, HIERARCHICAL: 2}
# The most sentences of a tree. Their 112 million distances take 1.9 GB.
MAX_TREE_SENTENCES = 15_000
# The number of clusters of k-means, unless it is set.
CENTRES = 20
# Unless it is set, the smallest cluster of HDBSCAN has one sentence for each SENTENCES_OF_SIZE of
# the corpus, but not less than FEWEST_IN_CLUSTER. The size is raised until there are at most
# MOST_CLUSTERS clusters.
FEWEST_IN_CLUSTER = 5
SENTENCES_OF_SIZE = 200
MOST_CLUSTERS = 40
# The number of neighbours that make a sentence a core point of HDBSCAN.
MIN_SAMPLES = 5
# The number of rows of the distance matrix that are computed at a time.
BLOCK = 1_024

# Held while a tree is computed.
_linkage_lock = threading.Lock()


@dataclass(frozen=True)
class ClusterSettings:
    """The method and its parameters.

    Attributes:
        min_cluster_size: the smallest cluster of HDBSCAN; 0 derives it from the size of the corpus,
            for at most 40 clusters.
        min_cosine: hierarchical clustering does not join groups with a lower mean cosine, unless
            ``num_clusters`` is set.
        num_clusters: None means 20 for k-means.
    """

    method: str = HDBSCAN
    min_cluster_size: int = 0
    min_cosine: float = 0.3
    num_clusters: int | None = None

    def check(self, embedded: EmbeddedCorpus) -> None:
        """Raises InputError if a setting is invalid, or the corpus has too few distinct sentences."""
        if self.method not in MIN_SENTENCES:
            raise InputError(
                f"there is no clustering method {self.method!r}; choose {' or '.join(MIN_SENTENCES)}."
            )
        # 0 derives the smallest cluster from the size of the corpus.
        if self.min_cluster_size != 0 and self.min_cluster_size < 2:
            raise InputError(
                f"the smallest cluster has {self.min_cluster_size} sentences; it must be at least 2."
            )
        if not -1 <= self.min_cosine <= 1:
            raise InputError(f"the cosine is {self.min_cosine}; it must be from −1 to 1.")
        if self.num_clusters is not None and not 1 <= self.num_clusters <= len(embedded):
            size = format_count(len(embedded), "sentence")
            raise InputError(
                f"{self.num_clusters:,} clusters were requested; {size} can make 1 to {len(embedded):,}."
            )
        embedded.corpus.require_distinct(MIN_SENTENCES[self.method], "clusters need")


def cluster(
    embedded: EmbeddedCorpus,
    settings: ClusterSettings,
    cache: DiskCache,
    home: Path,
    watch: Watch = UNWATCHED,
    limits: CorpusLimits = CorpusLimits(),  # noqa: B008 - immutable
    keep_unknown: bool = False,
) -> np.ndarray:
    """The cluster of each sentence: int64 (N,), 0 the largest, −1 noise. The cache stores maps, labels and trees.

    Sentences without known tokens are noise, unless ``keep_unknown``. Raises InputError if a
    setting is invalid, or the corpus is too small, or too large for a tree.
    """
    settings.check(embedded)
    count = settings.num_clusters
    size = settings.min_cluster_size
    if settings.method == K_MEANS:
        k = min(count or CENTRES, len(embedded))
        key = digest(["mini-batch k-means", embedded.key, str(k)])
        labels = cache.get_or_compute(key, lambda: k_means(embedded.vectors, k, watch))
    elif settings.method == HIERARCHICAL:
        tree = linkage_tree(embedded, cache, watch)
        if count is None:
            labels = scipy.cluster.hierarchy.fcluster(tree, 1 - settings.min_cosine, "distance")
        else:
            labels = scipy.cluster.hierarchy.fcluster(tree, count, "maxclust")
        # SciPy numbers clusters from 1.
        labels = labels.astype(np.int64) - 1
    elif settings.method == HDBSCAN and len(embedded) <= limits.clustered:
        labels = _hdbscan(embedded, size, cache, home, watch)
    else:
        # The corpus is too large for HDBSCAN.
        sample = sample_of(embedded, limits.map_points)

        def compute() -> np.ndarray:
            labels = _hdbscan(sample.embedded, size, cache, home, watch)
            return join_nearest(embedded.vectors, sample.rows, labels, watch)

        key = digest(["hdbscan of a sample", sample.embedded.key, str(size)])
        labels = cache.get_or_compute(key, compute)
    # The array belongs to this call: what the cache has stored does not change.
    if not keep_unknown:
        labels[embedded.unknown] = NOISE
    return by_size(labels)


def by_size(labels: np.ndarray) -> np.ndarray:
    """Renumbers clusters by size, the largest 0; equally large ones by their first sentence. −1 stays."""
    distinct, first, counts = np.unique(labels[labels >= 0], return_index=True, return_counts=True)
    # lexsort sorts by its last key first.
    ranked = distinct[np.lexsort((first, -counts))]
    # ``numbers[label]`` is the new number of a label. The last one, which −1 selects, stays NOISE.
    numbers = np.full(int(distinct.max(initial=NOISE)) + 2, NOISE)
    numbers[ranked] = np.arange(len(ranked))
    return numbers[labels].astype(np.int64)


def _hdbscan(
    embedded: EmbeddedCorpus, min_cluster_size: int, cache: DiskCache, home: Path, watch: Watch
) -> np.ndarray:
    """The labels by HDBSCAN on a 5-D map.

    If ``min_cluster_size`` is 0, the size of the smallest cluster is derived from the size of the
    corpus, and is raised until there are at most ``MOST_CLUSTERS`` clusters. InputError if the
    corpus has fewer sentences than the smallest cluster.
    """
    size = min_cluster_size
    is_derived = size == 0
    if is_derived:
        size = max(FEWEST_IN_CLUSTER, len(embedded) // SENTENCES_OF_SIZE)
    if size > len(embedded):
        available = format_count(len(embedded), "sentence")
        raise InputError(
            f"clusters of {size:,} sentences or more were requested, but there are only {available}."
        )
    map_settings = MapSettings(dimensions=CLUSTER_DIMENSIONS, min_dist=0.0)

    def compute() -> np.ndarray:
        """Draws the 5-D map and clusters its points. A derived size is raised if there are too many clusters."""
        # The import takes a second.
        from sklearn import cluster as sklearn_cluster

        mapping = watch.stage(f"Mapping {len(embedded):,} sentences to 5 dimensions")
        (points,) = project([embedded], map_settings, cache, home, mapping)
        watch.report(0, "Looking for dense groups")
        watch.check()
        smallest = size
        while True:
            min_samples = min(MIN_SAMPLES, smallest, len(points))
            # scikit-learn warns that the default of ``copy`` will become True.
            hdbscan = sklearn_cluster.HDBSCAN(
                min_cluster_size=smallest, min_samples=min_samples, copy=True
            )
            # Clusters are numbered from 0, and noise is −1, as NOISE.
            labels = hdbscan.fit_predict(points).astype(np.int64)
            if not is_derived or labels.max() < MOST_CLUSTERS:
                return labels
            smallest = math.ceil(1.5 * smallest)

    # The key has 0 for a derived size, which follows from the corpus.
    key = digest(["hdbscan", map_key(map_settings, embedded), str(min_cluster_size)])
    return cache.get_or_compute(key, compute)


def linkage_tree(
    embedded: EmbeddedCorpus, cache: DiskCache, watch: Watch = UNWATCHED
) -> np.ndarray:
    """Average linkage under cosine distance in SciPy's format: float64 (N−1, 4).

    Raises InputError if there are more than ``MAX_TREE_SENTENCES`` sentences.
    """
    n = len(embedded)
    if n > MAX_TREE_SENTENCES:
        raise InputError(
            f"hierarchical clustering keeps the distance of every pair in memory, so {MAX_TREE_SENTENCES:,} sentences "
            f"are the most; this corpus has {n:,}. Choose HDBSCAN, or open fewer sentences."
        )

    def compute() -> np.ndarray:
        # One tree at a time, because of the memory for its distances.
        with watch.holding(_linkage_lock):
            watch.report(0, f"Comparing {n:,} sentences, each with each")
            distances = condensed_distances(embedded.vectors, watch)
            watch.report(0, f"Joining {n:,} sentences")
            return scipy.cluster.hierarchy.linkage(distances, "average")

    return cache.get_or_compute(digest(["average linkage", embedded.key]), compute)


def condensed_distances(vectors: np.ndarray, watch: Watch) -> np.ndarray:
    """1 − cosine of every pair, the upper triangle row by row: float64 (N(N−1)/2,)."""
    n = len(vectors)
    distances = np.empty(n * (n - 1) // 2)
    start = 0
    for top in range(0, n, BLOCK):
        watch.check()
        # (rows, N − top): the first column belongs to the first row of the block.
        block = np.clip(1 - vectors[top : top + BLOCK] @ vectors[top:].T, 0, 2)
        for row in range(len(block)):
            after_diagonal = block[row, row + 1 :]
            end = start + len(after_diagonal)
            distances[start:end] = after_diagonal
            start = end
        watch.report(start / max(len(distances), 1))
    return distances


# The number of neighbours that vote on the label of a sentence.
VOTERS = 5
# The number of rows of a batch.
ROWS = 8_192
# The number of passes over the corpus, with at least MIN_BATCHES batches.
EPOCHS = 2
MIN_BATCHES = 50
SEED = 0


def k_means(vectors: np.ndarray, k: int, watch: Watch, rows: int = ROWS) -> np.ndarray:
    """Mini-batch k-means of float32 (N, D): the cluster of each vector, int64 (N,). Some clusters may be empty."""
    # The import takes a second.
    from sklearn.cluster import MiniBatchKMeans

    n = len(vectors)
    random = np.random.default_rng(SEED)
    model = MiniBatchKMeans(k, random_state=SEED, n_init=1, batch_size=rows)
    batches = max(MIN_BATCHES, EPOCHS * math.ceil(n / rows))
    for batch in range(batches):
        watch.check()
        # scikit-learn needs k rows in the first batch, to initialise the centres. All batches have
        # this size.
        size = min(n, max(rows, k))
        batch_rows = np.sort(random.choice(n, size, replace=False))
        model.partial_fit(np.asarray(vectors[batch_rows]))
        watch.report(batch / batches, f"Fitting {k:,} centres")
    labels = np.empty(n, dtype=np.int64)
    for start in range(0, n, rows):
        watch.check()
        part = slice(start, start + rows)
        labels[part] = model.predict(np.ascontiguousarray(vectors[part]))
        watch.report(start / n, "Assigning the sentences")
    return labels


def join_nearest(
    vectors: np.ndarray, sample: np.ndarray, sample_labels: np.ndarray, watch: Watch
) -> np.ndarray:
    """The label of every vector (N, D) by a vote of its nearest neighbours among the rows of ``sample``: int64 (N,).

    The sample keeps its labels. If labels have equally many votes, the lowest wins, and noise comes
    last.
    """
    # The import of torch takes seconds.
    from training.search import neighbour_index

    # The number of queries decides whether the index is exact.
    index = neighbour_index(np.ascontiguousarray(vectors[sample], dtype=np.float32), len(vectors))
    labels = np.empty(len(vectors), dtype=np.int64)
    joining = watch.stage("Assigning the other sentences to the clusters")
    for rows, _, nearest in searched(index, vectors, min(VOTERS, len(sample)), joining):
        # The index returns −1 where it found too few neighbours.
        votes = np.where(nearest >= 0, sample_labels[nearest], NOISE)  # (Q, VOTERS)
        # The number of votes for the same label as each vote: (Q, VOTERS).
        counts = (votes[:, :, None] == votes[:, None, :]).sum(axis=2)
        tie_breaker = np.where(votes == NOISE, np.iinfo(np.int64).max, votes)
        # lexsort sorts along the last axis, the neighbours of one row, and by its last key first.
        best = np.lexsort((tie_breaker, -counts))[:, :1]  # (Q, 1)
        labels[rows] = np.take_along_axis(votes, best, axis=1)[:, 0]
    labels[sample] = sample_labels
    return labels
