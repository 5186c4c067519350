"""Clusters of corpora that are too large for a map of all sentences.

Mini-batch k-means (Sculley 2010) of unit vectors reads a memory map batch by batch. HDBSCAN groups a random sample;
every other sentence joins the cluster that most of its nearest neighbours in the sample belong to, or none with them.
"""

from __future__ import annotations

import numpy as np

from sbert_app.services.corpus.neighbours import neighbour_index
from sbert_app.services.tasks import ReportProgress, ShouldStop
from training.errors import Stopped

NOISE = -1
VOTERS = 5  # nearest neighbours in the sample
ROWS = 8_192  # at a time
EPOCHS = 2  # over the corpus, or MIN_BATCHES if it is small
MIN_BATCHES = 50
SEED = 0


def k_means(
    vectors: np.ndarray, k: int, report_progress: ReportProgress, should_stop: ShouldStop, rows: int = ROWS
) -> np.ndarray:
    """Mini-batch k-means of float32 (N, D): the cluster of each vector, int64 (N,). Some clusters may be empty.

    Raises:
        Stopped: ``should_stop`` returned True.
    """
    from sklearn.cluster import MiniBatchKMeans

    n = len(vectors)
    random = np.random.default_rng(SEED)
    model = MiniBatchKMeans(k, random_state=SEED, n_init=1, batch_size=rows)
    batches = max(MIN_BATCHES, EPOCHS * -(-n // rows))
    for batch in range(batches):
        if should_stop():
            raise Stopped
        chosen = np.sort(random.choice(n, min(n, max(rows, k)), replace=False))
        model.partial_fit(np.asarray(vectors[chosen]))
        report_progress(batch / batches, f"Fitting {k:,} centres")
    labels = np.empty(n, dtype=np.int64)
    for start in range(0, n, rows):
        if should_stop():
            raise Stopped
        labels[start : start + rows] = model.predict(np.ascontiguousarray(vectors[start : start + rows]))
        report_progress(start / n, "Assigning the sentences")
    return labels


def join_nearest(
    vectors: np.ndarray,
    sample: np.ndarray,
    sample_labels: np.ndarray,
    report_progress: ReportProgress,
    should_stop: ShouldStop,
) -> np.ndarray:
    """The label of every vector (N, D), by a vote of its nearest neighbours among those at ``sample``: int64 (N,).

    The sample itself keeps its labels. Of equally frequent labels the lowest wins, noise last.

    Raises:
        Stopped: ``should_stop`` returned True.
    """
    n, k = len(vectors), min(VOTERS, len(sample))
    index = neighbour_index(np.ascontiguousarray(vectors[sample], dtype=np.float32))
    labels = np.empty(n, dtype=np.int64)
    for start in range(0, n, ROWS):
        if should_stop():
            raise Stopped
        _, nearest = index.search(np.ascontiguousarray(vectors[start : start + ROWS], dtype=np.float32), k)
        labels[start : start + ROWS] = _vote(np.where(nearest >= 0, sample_labels[nearest], NOISE))
        report_progress(start / n, "Assigning the other sentences to the clusters")
    labels[sample] = sample_labels
    return labels


def _vote(labels: np.ndarray) -> np.ndarray:
    """The most frequent label of each row of int64 (Q, k): int64 (Q,)."""
    counts = (labels[:, :, None] == labels[:, None, :]).sum(axis=2)
    order = np.where(labels == NOISE, np.iinfo(np.int64).max, labels)
    best = np.lexsort((order, -counts))[:, 0]  # the keys' last axis is sorted: the neighbours of one row
    return np.take_along_axis(labels, best[:, None], axis=1)[:, 0]
