"""Maps of a corpus: UMAP to two or three dimensions, and two models' maps of one corpus side by side.

UMAP (McInnes et al. 2018) keeps neighbours together. What it does not keep: distances between far groups, their
sizes, the direction of the axes. The neighbours are exact (neighbours.py) and the layout is drawn by one thread
from a seed, so the same seed gives the same map.

Two maps are aligned as umap-learn's AlignedUMAP does it: each starts from its own spectral layout, the second turned
onto the first, and while both are drawn each sentence is held near its other self, the more so the more of its
neighbourhood the two models share. AlignedUMAP itself would search for the neighbours again, draw each map twice
and compile at each call, so its functions are called here.
"""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sbert_app.corpus.cache import ArrayCache
from sbert_app.corpus.neighbours import neighbours
from sbert_app.projection.engine import engine
from training.errors import InputError, Stopped

if TYPE_CHECKING:
    from sbert_app.corpus.corpus import Space

VERSION = "1"  # of the maps in the cache
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
    space: Space,
    settings: MapSettings,
    cache: ArrayCache,
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
    before: Space,
    after: Space,
    settings: MapSettings,
    cache: ArrayCache,
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


def map_key(settings: MapSettings, *spaces: Space) -> str:
    """What a map is kept under."""
    from sbert_app.corpus.corpus import digest

    return digest([VERSION, *(space.key for space in spaces), *(f"{k}={v}" for k, v in asdict(settings).items())])


def draw(
    vectors: np.ndarray,
    settings: MapSettings,
    home: Path,
    on_progress: OnShare | None = None,
    should_stop: ShouldStop | None = None,
) -> np.ndarray:
    """UMAP of vectors (N, D) float32 of length 1 -> float32 (N, dimensions), without the cache."""
    k = min(settings.neighbours, len(vectors) - 1)
    rows, distances = neighbours(vectors, k, _part(on_progress, 0, SEARCH_SHARE), should_stop)
    gauge = _Gauge(_part(on_progress, SEARCH_SHARE, 1), should_stop)
    with engine(home) as umap, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on a start at random where a corpus is too small for eigenvectors
        mapper = umap.UMAP(
            n_neighbors=k,
            n_components=settings.dimensions,
            min_dist=settings.min_dist,
            n_epochs=_epochs(settings, len(vectors)),
            metric="cosine",
            init="spectral" if len(vectors) <= SPECTRAL_LIMIT else "pca",
            random_state=settings.seed,
            n_jobs=1,
            precomputed_knn=(rows, distances, None),
            tqdm_kwds=gauge.as_tqdm(),
        )
        points = mapper.fit_transform(vectors)
    return _checked(points)


def draw_aligned(
    before: np.ndarray,
    after: np.ndarray,
    settings: MapSettings,
    home: Path,
    on_progress: OnShare | None = None,
    should_stop: ShouldStop | None = None,
) -> list[np.ndarray]:
    """Aligned UMAP of two sets of vectors (N, D) and (N, E) -> two float32 (N, dimensions), without the cache."""
    from sbert_app.projection import aligned as aligned_layout

    k = min(settings.neighbours, len(before) - 1)
    half = SEARCH_SHARE / 2
    near = [
        neighbours(before, k, _part(on_progress, 0, half), should_stop),
        neighbours(after, k, _part(on_progress, half, SEARCH_SHARE), should_stop),
    ]
    gauge = _Gauge(_part(on_progress, SEARCH_SHARE, 1), should_stop)
    with engine(home), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        random = np.random.RandomState(settings.seed)
        graphs = [aligned_layout.graph(*found, random) for found in near]
        starts = [
            aligned_layout.start(vectors, graph, settings.dimensions, random, len(vectors) <= SPECTRAL_LIMIT)
            for vectors, graph in zip((before, after), graphs, strict=True)
        ]
        maps = aligned_layout.optimise(
            starts, graphs, settings.min_dist, _epochs(settings, len(before)), random, gauge.at
        )
    return [_checked(points) for points in maps]


class _Gauge:
    """Between umap-learn, which tells its epochs to a progress bar, and whoever waits or presses Stop."""

    def __init__(self, on_progress: OnShare | None, should_stop: ShouldStop | None) -> None:
        self.on_progress = on_progress
        self.should_stop = should_stop
        self.thread = threading.get_ident()

    def as_tqdm(self) -> dict[str, Any]:
        """For ``tqdm(**kwds)``: this object is the terminal that the bar is written to."""
        return {"file": self, "disable": False, "mininterval": 0.1, "desc": "", "bar_format": "{n_fmt}/{total_fmt}"}

    def write(self, bar: str) -> None:
        """What tqdm writes: 120/500, between control characters."""
        numbers = re.search(r"(\d+)/(\d+)", bar)
        if numbers and threading.get_ident() == self.thread:  # and not tqdm's own thread
            self.at(int(numbers[1]) / max(int(numbers[2]), 1))

    def flush(self) -> None:
        """Nothing is held back."""

    def at(self, share: float) -> None:
        """This share is done. Raises ``Stopped`` if it is to be the last."""
        if self.should_stop is not None and self.should_stop():
            raise Stopped
        if self.on_progress is not None:
            self.on_progress(share)


def _part(on_progress: OnShare | None, start: float, stop: float) -> OnShare | None:
    """Progress of a part of the work as progress of the whole."""
    return None if on_progress is None else lambda share: on_progress(start + (stop - start) * share)


def _epochs(settings: MapSettings, n: int) -> int:
    return settings.epochs or (500 if n < MANY else 200)


def _check_mappable(space: Space) -> None:
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
