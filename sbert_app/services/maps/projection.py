"""Maps of a corpus: UMAP to two or three dimensions, and two models' maps of one corpus side by side.

UMAP (McInnes et al. 2018) keeps neighbours together. What it does not keep: distances between far groups, their
sizes, the direction of the axes. The neighbours are exact (neighbours.py) and the layout (layout.py) is drawn by one
thread from a seed, so the same seed gives the same map.

Two maps are aligned as umap-learn's AlignedUMAP does it: each starts from its own spectral layout, the second turned
onto the first, and while both are drawn each sentence is held near its other self, the more so the more of its
neighbourhood the two models share.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sbert_app.services.cache import DiskCache, digest
from sbert_app.services.corpus.neighbours import neighbours
from sbert_app.services.maps import layout
from sbert_app.services.maps.umap_engine import engine
from training.errors import InputError, Stopped

if TYPE_CHECKING:
    from sbert_app.services.corpus.embedded import EmbeddedCorpus

VERSION = "2"  # of the maps in the cache
DIMENSIONS = (2, 3)
CLUSTER_DIMENSIONS = 5
FEWEST = 5  # different sentences that make a map
SEARCH_SHARE = 0.3  # of the work, for progress: the search for neighbours, then the drawing
SAME = 1e-5  # vectors that differ by less in every number are one
SPECTRAL_LIMIT = 20_000  # above, eigenvectors take longer than the drawing: start from the principal components
MANY = 4_000  # sentences from which on 200 epochs are enough

OnShare = Callable[[float], None]
ShouldStop = Callable[[], bool]


@dataclass(frozen=True)
class MapSettings:
    """How a map is drawn."""

    dimensions: int = 2
    neighbours: int = 15  # that hold each sentence: few show detail, many show the whole
    min_dist: float = 0.1  # how close points may lie, 0–0.99
    seed: int = 0
    epochs: int | None = None  # of drawing; None = 500 for small corpora, 200 for large ones

    def check(self) -> None:
        """InputError if a value makes no sense."""
        if self.dimensions not in (*DIMENSIONS, CLUSTER_DIMENSIONS):
            raise InputError(f"a map has 2 or 3 dimensions, not {self.dimensions}.")
        if not 2 <= self.neighbours <= 200:
            raise InputError(f"neighbours is {self.neighbours}; it must be from 2 to 200.")
        if not 0 <= self.min_dist <= 0.99:
            raise InputError(f"the least distance is {self.min_dist}; it must be from 0 to 0.99.")
        if not 0 <= self.seed < 2**31:
            raise InputError(f"the seed is {self.seed}; it must be from 0 to {2**31 - 1:,}.")


def project(
    space: EmbeddedCorpus,
    settings: MapSettings,
    cache: DiskCache,
    home: Path,
    on_progress: OnShare | None = None,
    should_stop: ShouldStop | None = None,
) -> np.ndarray:
    """The map of a corpus: float32 (N, dimensions), from the cache where it is known.

    Raises:
        InputError: the settings make no sense, or the corpus has too few different sentences.
        Stopped: ``should_stop`` said yes.
    """
    settings.check()
    _check_mappable(space)
    key = map_key(settings, space)
    points = cache.get(key)
    if points is None:
        points = draw(space.vectors, settings, home, on_progress, should_stop)
        cache.put(key, points)
    return points


def project_aligned(
    before: EmbeddedCorpus,
    after: EmbeddedCorpus,
    settings: MapSettings,
    cache: DiskCache,
    home: Path,
    on_progress: OnShare | None = None,
    should_stop: ShouldStop | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Two aligned maps of one corpus: float32 (N, dimensions) each.

    Raises:
        InputError: as ``project``; or the two spaces hold different corpora.
        Stopped: ``should_stop`` said yes.
    """
    settings.check()
    if before.corpus.digest != after.corpus.digest:
        raise InputError("two maps can only be aligned if they are of the same sentences.")
    _check_mappable(before)
    _check_mappable(after)
    key = map_key(settings, before, after)
    maps = cache.get(key)
    if maps is None:
        maps = np.stack(draw_aligned(before.vectors, after.vectors, settings, home, on_progress, should_stop))
        cache.put(key, maps)
    return maps[0], maps[1]


def map_key(settings: MapSettings, *spaces: EmbeddedCorpus) -> str:
    """What a map is kept under."""
    return digest([VERSION, *(space.key for space in spaces), *(f"{k}={v}" for k, v in asdict(settings).items())])


def draw(
    vectors: np.ndarray,
    settings: MapSettings,
    home: Path,
    on_progress: OnShare | None = None,
    should_stop: ShouldStop | None = None,
) -> np.ndarray:
    """UMAP of vectors (N, D) float32 of length 1 -> float32 (N, dimensions), without the cache."""
    return _draw([vectors], settings, home, on_progress, should_stop)[0]


def draw_aligned(
    before: np.ndarray,
    after: np.ndarray,
    settings: MapSettings,
    home: Path,
    on_progress: OnShare | None = None,
    should_stop: ShouldStop | None = None,
) -> list[np.ndarray]:
    """Aligned UMAP of two sets of vectors (N, D) and (N, E) -> two float32 (N, dimensions), without the cache."""
    return _draw([before, after], settings, home, on_progress, should_stop)


def _draw(
    spaces: Sequence[np.ndarray],
    settings: MapSettings,
    home: Path,
    on_progress: OnShare | None,
    should_stop: ShouldStop | None,
) -> list[np.ndarray]:
    n = len(spaces[0])
    k = min(settings.neighbours, n - 1)
    each = SEARCH_SHARE / len(spaces)
    near = [
        neighbours(vectors, k, _part(on_progress, at * each, (at + 1) * each), should_stop)
        for at, vectors in enumerate(spaces)
    ]
    on_drawn = _part(on_progress, SEARCH_SHARE, 1)

    def on_share(share: float) -> None:
        if should_stop is not None and should_stop():
            raise Stopped
        if on_drawn is not None:
            on_drawn(share)

    with engine(home), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on a start at random where a corpus is too small for eigenvectors
        on_share(0.0)
        random = np.random.RandomState(settings.seed)
        graphs = [layout.graph(*found, random) for found in near]
        spectral = n <= SPECTRAL_LIMIT
        starts = [
            layout.start(vectors, graph, settings.dimensions, random, spectral)
            for vectors, graph in zip(spaces, graphs, strict=True)
        ]
        maps = layout.optimise(starts, graphs, settings.min_dist, _epochs(settings, n), random, on_share)
    return [_checked(points) for points in maps]


def _part(on_progress: OnShare | None, start: float, stop: float) -> OnShare | None:
    """Progress of a part of the work as progress of the whole."""
    return None if on_progress is None else lambda share: on_progress(start + (stop - start) * share)


def _epochs(settings: MapSettings, n: int) -> int:
    return settings.epochs or (500 if n < MANY else 200)


def _check_mappable(space: EmbeddedCorpus) -> None:
    """InputError where a map would show nothing."""
    different = len(set(space.corpus.sentences))
    if different < FEWEST:
        these = "all are the same" if different == 1 and len(space) > 1 else f"there are {different}"
        these = "there is one" if len(space) == 1 else these
        raise InputError(f"a map needs at least {FEWEST} different sentences; {these} here.")
    if float(np.ptp(space.vectors, axis=0).max()) < SAME:
        raise InputError(
            f"{space.model} with {space.pooling} pooling gives all {len(space):,} sentences the same vector: "
            "it has collapsed, and there is nothing to map."
        )


def _checked(points: np.ndarray) -> np.ndarray:
    if not np.isfinite(points).all():
        raise InputError("UMAP found no map of these sentences; try more neighbours or another seed.")
    return np.ascontiguousarray(points, dtype=np.float32)
