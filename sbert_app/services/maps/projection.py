"""Maps of a corpus: UMAP to two or three dimensions, and aligned maps of two models.

UMAP (McInnes et al. 2018) preserves neighbourhoods. It does not preserve distances between far groups, their sizes, or
the direction of the axes. The neighbours come from `corpus.neighbours`, and the layout (`layout`) is computed by one
thread from a seed, so the same seed gives the same map.

Two maps are aligned as by umap-learn's AlignedUMAP: each starts from its own spectral layout, the second rotated onto
the first, and during the optimisation each sentence is attracted to its position on the other map, the more strongly
the more neighbours the two models agree on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.corpus.neighbours import neighbours
from sbert_app.services.maps import layout
from sbert_app.services.store.cache import DiskCache, digest
from training.errors import InputError

VERSION = "4"  # increase it when the same settings would give another map
DIMENSIONS = (2, 3)
CLUSTER_DIMENSIONS = 5
MIN_SENTENCES = 5  # distinct ones
SEARCH_FRACTION = 0.3  # of the work, for progress: finding neighbours; the rest is the layout
COLLAPSED_RANGE = 1e-5  # vectors whose components all differ by less are considered equal
MAX_SPECTRAL = 20_000  # sentences; above, eigenvectors take longer than the layout: start from the PCA
MANY_SENTENCES = 4_000  # from here on 200 epochs suffice


@dataclass(frozen=True)
class MapSettings:
    dimensions: int = 2
    neighbours: int = 15  # few show detail, many show the overall structure
    min_dist: float = 0.1  # smallest distance of points, 0–0.99
    seed: int = 0
    epochs: int | None = None  # None = 500 for small corpora, 200 for large ones

    def check(self) -> None:
        """Raises InputError if a value is out of range."""
        if self.dimensions not in (*DIMENSIONS, CLUSTER_DIMENSIONS):
            raise InputError(f"a map has 2 or 3 dimensions, not {self.dimensions}.")
        if not 2 <= self.neighbours <= 200:
            raise InputError(f"the number of neighbours is {self.neighbours}; it must be from 2 to 200.")
        if not 0 <= self.min_dist <= 0.99:
            raise InputError(f"the minimum distance is {self.min_dist}; it must be from 0 to 0.99.")
        if not 0 <= self.seed < 2**31:
            raise InputError(f"the seed is {self.seed}; it must be from 0 to {2**31 - 1:,}.")


def project(
    embedded: Sequence[EmbeddedCorpus], settings: MapSettings, cache: DiskCache, home: Path, watch: Watch = UNWATCHED
) -> list[np.ndarray]:
    """The map of a corpus under one model, or its aligned maps under two, drawn or from the cache.

    Returns float32 (N, dimensions) for each. Raises InputError if a setting is out of range, the corpus has too few
    distinct sentences, a model gives all of them the same vector, or two are not of the same sentences.
    """
    settings.check()
    if len({each.corpus.digest for each in embedded}) > 1:
        raise InputError("two maps can only be aligned if they are of the same sentences.")
    for each in embedded:
        each.corpus.require_distinct(MIN_SENTENCES, "a map needs")
        if float(np.ptp(each.vectors, axis=0).max()) < COLLAPSED_RANGE:
            raise InputError(
                f"{each.model} with {each.pooling} pooling gives all {len(each):,} sentences the same vector: it has "
                "collapsed, and there is nothing to map."
            )

    def compute() -> np.ndarray:
        maps = _draw([each.vectors for each in embedded], settings, home, watch)
        return maps[0] if len(maps) == 1 else np.stack(maps)

    found = cache.get_or_compute(map_key(settings, *embedded), compute)
    return [found] if len(embedded) == 1 else list(found)


def map_key(settings: MapSettings, *embedded: EmbeddedCorpus) -> str:
    return digest([VERSION, *(each.key for each in embedded), *(f"{k}={v}" for k, v in asdict(settings).items())])


def draw(vectors: np.ndarray, settings: MapSettings, home: Path, watch: Watch = UNWATCHED) -> np.ndarray:
    """UMAP of float32 (N, D) unit vectors -> float32 (N, dimensions), without the cache."""
    return _draw([vectors], settings, home, watch)[0]


def draw_aligned(
    before: np.ndarray, after: np.ndarray, settings: MapSettings, home: Path, watch: Watch = UNWATCHED
) -> list[np.ndarray]:
    """Aligned UMAP of (N, D) and (N, E) -> two float32 (N, dimensions), without the cache."""
    return _draw([before, after], settings, home, watch)


def _draw(models: Sequence[np.ndarray], settings: MapSettings, home: Path, watch: Watch) -> list[np.ndarray]:
    """``models``: the vectors under one model or two."""
    n = len(models[0])
    k = min(settings.neighbours, n - 1)
    step = SEARCH_FRACTION / len(models)
    nearest = [neighbours(vectors, k, watch.part(i * step, (i + 1) * step)) for i, vectors in enumerate(models)]
    layout_watch = watch.part(SEARCH_FRACTION, 1)

    def on_epoch(fraction: float) -> None:
        watch.check()
        layout_watch.report(fraction)

    on_epoch(0.0)
    random = np.random.RandomState(settings.seed)
    graphs = [layout.neighbour_graph(rows, distances) for rows, distances in nearest]
    spectral = n <= MAX_SPECTRAL
    starts = [
        layout.initial_points(vectors, graph, settings.dimensions, random, spectral)
        for vectors, graph in zip(models, graphs, strict=True)
    ]
    epochs = settings.epochs or (500 if n < MANY_SENTENCES else 200)
    maps = layout.optimise(starts, graphs, settings.min_dist, epochs, random, home, on_epoch)
    if not all(np.isfinite(points).all() for points in maps):
        raise InputError("UMAP found no map of these sentences; try more neighbours or another seed.")
    return [np.ascontiguousarray(points, dtype=np.float32) for points in maps]
