"""The map of every sentence of a corpus: drawn if there are few, else a sample is drawn and the others placed in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sbert_app.services.cache import DiskCache
from sbert_app.services.corpus.neighbours import neighbour_index
from sbert_app.services.corpus.sample import Sample
from sbert_app.services.maps.projection import MapSettings, project
from sbert_app.services.tasks import ReportProgress, ShouldStop
from training.errors import Stopped

NEIGHBOURS = 5  # in the sample, between which a sentence is placed
ROWS = 8_192  # at a time


def place_all(
    vectors: np.ndarray,
    sample: Sample,
    settings: MapSettings,
    cache: DiskCache,
    home: Path,
    report_progress: ReportProgress = lambda *_: None,
    should_stop: ShouldStop = lambda: False,
) -> np.ndarray:
    """A point for each vector of float32 (N, D): float32 (N, dimensions).

    UMAP draws the sample; every other sentence lies between its nearest neighbours in the sample, nearer to the more
    similar ones.

    Raises:
        InputError: a setting is out of range, or the sample has too few distinct sentences.
        Stopped: ``should_stop`` returned True.
    """
    drawing = f"Drawing the map of {len(sample.rows):,} sentences"
    report_progress(0, drawing)
    drawn = project(
        sample.embedded, settings, cache, home, lambda fraction: report_progress(fraction, drawing), should_stop
    )
    if len(sample.rows) == len(vectors):
        return drawn
    index = neighbour_index(sample.embedded.vectors)
    points = np.empty((len(vectors), drawn.shape[1]), dtype=np.float32)
    for start in range(0, len(vectors), ROWS):
        if should_stop():
            raise Stopped
        rows = np.ascontiguousarray(vectors[start : start + ROWS], dtype=np.float32)
        cosines, nearest = index.search(rows, min(NEIGHBOURS, len(drawn)))
        weights = np.where(nearest >= 0, np.maximum(cosines, 1e-3) ** 4, 0)  # the most similar ones count most
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1e-12)
        points[start : start + ROWS] = np.einsum("qk,qkd->qd", weights, drawn[nearest])
        report_progress(start / len(vectors), "Placing the other sentences on the map")
    points[sample.rows] = drawn
    return points
