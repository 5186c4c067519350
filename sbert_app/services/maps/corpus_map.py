"""Atlas: what it takes to draw an open corpus: its vectors (one model, or two to compare), then its map or maps.

    drawn = draw_atlas(spaces, Wanted(corpus_key, Under("all-MiniLM-L6-v2", "mean")), tell, should_stop)
    drawn.maps[0]                                       float32 (N, 2)

Used by the Explore page and by the HTTP endpoint ``project``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from sbert_app.services.corpus.corpus import GoldPairs
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.corpus.embedding_cache import EmbeddingCache
from sbert_app.services.maps.projection import MapSettings, map_key, project, project_aligned
from sbert_app.services.maps.umap_engine import is_warm

COMPILING = "Compiling UMAP, once on this machine"
SIMILAR = 4.0  # gold score from which a pair means nearly the same
SEED = 0
RANDOM_PAIRS = 5_000

Tell = Callable[..., None]  # tell(share) or tell(share, "now this")


@dataclass(frozen=True)
class EmbeddingSpec:
    """A model and its pooling; None = the model's own."""

    model: str
    pooling: str | None = None


@dataclass(frozen=True)
class MapRequest:
    """A map to draw, or two aligned ones: under ``before`` and under ``after``."""

    corpus: str  # its key
    before: EmbeddingSpec
    after: EmbeddingSpec | None = None
    settings: MapSettings = field(default_factory=MapSettings)


@dataclass(frozen=True, eq=False)
class MapResult:
    """The maps, one for each space."""

    embedded: list[EmbeddedCorpus]
    maps: list[np.ndarray]  # (N, dimensions) float32 each
    key: str  # of the map in the cache
    from_cache: bool  # it was in the cache
    seconds: float  # of drawing, or of reading it from the cache


def compute_map(
    spaces: EmbeddingCache, wanted: MapRequest, tell: Tell, should_stop: Callable[[], bool] | None = None
) -> MapResult:
    """Encode what is not encoded, draw what is not drawn.

    Raises:
        InputError: a model cannot be had, the settings make no sense, or there is nothing to map.
        Stopped: ``should_stop`` said yes.
    """
    wanted.settings.check()
    found = [
        spaces.embed(wanted.corpus, one.model, one.pooling, _encoding(tell, one), should_stop)
        for one in (wanted.before, wanted.after)
        if one is not None
    ]
    key = map_key(wanted.settings, *found)
    known = spaces.cache.get(key) is not None
    words = f"{'Opening' if known else 'Drawing'} the map of {len(found[0]):,} sentences"

    def drawing(share: float) -> None:
        tell(*((share, words) if known or is_warm() else (0, COMPILING)))  # no telling how long the compiler takes

    drawing(0)
    started = time.perf_counter()
    how = (wanted.settings, spaces.cache, spaces.home, drawing, should_stop)
    maps = [project(found[0], *how)] if len(found) == 1 else list(project_aligned(found[0], found[1], *how))
    return MapResult(found, maps, key, known, time.perf_counter() - started)


@dataclass(frozen=True)
class PairDistances:
    """How near the pairs that people find similar are, under each model."""

    count: int  # of pairs with gold ≥ 4
    cosines: list[float]  # their mean cosine, a number for each space
    random_cosines: list[float]  # the mean cosine of random pairs: what a collapse raises
    on_map: list[float]  # their mean distance on each map, in mean distances of random pairs


def pair_distances(drawn: MapResult, gold: GoldPairs) -> PairDistances | None:
    """None if no pair has a gold score of 4 or more."""
    rows = gold.rows[gold.gold >= SIMILAR]
    if not len(rows):
        return None
    random = np.random.default_rng(SEED).integers(0, len(drawn.maps[0]), (RANDOM_PAIRS, 2))
    cosines, random_cosines = ([_mean_cosine(space.vectors, p) for space in drawn.embedded] for p in (rows, random))
    on_map = [_mean_distance(points, rows) / max(_mean_distance(points, random), 1e-9) for points in drawn.maps]
    return PairDistances(len(rows), cosines, random_cosines, on_map)


def _mean_cosine(vectors: np.ndarray, rows: np.ndarray) -> float:
    return float(np.einsum("pd,pd->p", vectors[rows[:, 0]], vectors[rows[:, 1]]).mean())


def _mean_distance(points: np.ndarray, rows: np.ndarray) -> float:
    return float(np.linalg.norm(points[rows[:, 0]] - points[rows[:, 1]], axis=1).mean())


def _encoding(tell: Tell, under: EmbeddingSpec) -> Callable[[int, int | None], None]:
    return lambda done, count: tell(done / max(count or done, 1), f"Encoding with {under.model}")
