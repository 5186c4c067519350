"""The map of an open corpus: encode it under one model or two, then draw the map or the aligned maps.

    result = compute_map(embeddings, MapRequest(corpus_key, ModelName.parse("all-MiniLM-L6-v2:mean")), watch)
    result.maps[0]                                      float32 (N, 2)

Used by the Explore page and the HTTP endpoint ``project``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.corpus.corpus import GoldPairs
from sbert_app.services.corpus.embedded import EmbeddedCorpus, sample_of
from sbert_app.services.corpus.embedding_cache import EmbeddingCache
from sbert_app.services.maps.projection import MapSettings, map_key, project
from sbert_app.services.maps.umap_engine import COMPILING, is_warm
from training.evaluation.metrics import dot
from training.names import ModelName

SIMILAR = 4.0  # gold score of pairs that mean nearly the same, or more
SEED = 0
RANDOM_PAIRS = 5_000


@dataclass(frozen=True)
class MapRequest:
    """A map under the model ``before``, or two aligned maps if ``after`` is given."""

    corpus: str  # its key in the EmbeddingCache
    before: ModelName
    after: ModelName | None = None
    settings: MapSettings = field(default_factory=MapSettings)


@dataclass(frozen=True, eq=False)
class MapResult:
    embedded: list[EmbeddedCorpus]
    maps: list[np.ndarray]  # (N, dimensions) float32 each
    key: str  # in the cache
    from_cache: bool
    seconds: float  # to draw the map, or to read it from the cache
    rows: np.ndarray | None = None  # int64 (N,): positions in the corpus of the sentences drawn; None: all of them
    total: int = 0  # sentences of the corpus; ``embedded`` has those that are drawn


def compute_map(embeddings: EmbeddingCache, request: MapRequest, watch: Watch = UNWATCHED) -> MapResult:
    """Encode the corpus and draw its map, both from the caches if possible; of a large corpus that of a sample.

    Raises InputError if a model cannot be loaded, a setting is invalid, or the corpus cannot be mapped.
    """
    request.settings.check()
    embedded = [
        embeddings.embed(request.corpus, model, watch=watch.stage(f"Encoding with {model.name}"))
        for model in (request.before, request.after)
        if model is not None
    ]
    total, most = len(embedded[0]), embeddings.limits.map_points
    rows = None
    if total > most:
        watch.report(0, f"Taking a random sample of {most:,} sentences")
        samples = [sample_of(each, most) for each in embedded]
        embedded, rows = [sample.embedded for sample in samples], samples[0].rows
    key = map_key(request.settings, *embedded)
    from_cache = embeddings.cache.get(key) is not None
    message = f"{'Opening' if from_cache else 'Drawing'} the map of {len(embedded[0]):,} sentences"

    def report(done: float, _: str | None = None, total: float = 1.0, /) -> None:
        if from_cache or is_warm():
            watch.report(done, message, total)
        else:
            watch.report(0, COMPILING)  # which reports no progress

    report(0)
    started = time.perf_counter()
    drawing = Watch(report, watch.should_stop)
    maps = project(embedded, request.settings, embeddings.cache, embeddings.home, drawing)
    return MapResult(embedded, maps, key, from_cache, time.perf_counter() - started, rows, total)


@dataclass(frozen=True)
class PairDistances:
    """How close similar pairs are, one value for each model."""

    count: int  # pairs with a gold score of 4 or more
    cosines: list[float]  # their mean cosine
    random_cosines: list[float]  # the mean cosine of random pairs, which a collapse raises
    on_map: list[float]  # their mean distance on the map, relative to that of random pairs


def pair_distances(result: MapResult, gold: GoldPairs) -> PairDistances | None:
    """None if no pair has a gold score of 4 or more."""
    rows = gold.rows[gold.gold >= SIMILAR]
    if not len(rows):
        return None
    random = np.random.default_rng(SEED).integers(0, len(result.maps[0]), (RANDOM_PAIRS, 2))
    cosines, random_cosines = (
        [float(dot(each.vectors[pairs[:, 0]], each.vectors[pairs[:, 1]]).mean()) for each in result.embedded]
        for pairs in (rows, random)
    )
    on_map = [_mean_distance(points, rows) / max(_mean_distance(points, random), 1e-9) for points in result.maps]
    return PairDistances(len(rows), cosines, random_cosines, on_map)


def _mean_distance(points: np.ndarray, rows: np.ndarray) -> float:
    return float(np.linalg.norm(points[rows[:, 0]] - points[rows[:, 1]], axis=1).mean())
