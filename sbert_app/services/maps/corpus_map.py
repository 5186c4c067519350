"""The map of an open corpus: encode it under one model or two, then draw the map or the aligned maps.

    result = compute_map(embeddings, MapRequest(corpus_key, ModelName.parse("all-MiniLM-L6-v2:mean")), watch)
    result.maps[0]                                      float32 (N, 2)

Used by the Explore page and the HTTP endpoint ``project``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.corpus.corpus import GoldPairs
from sbert_app.services.corpus.embedded import EmbeddedCorpus, Sample, sample_of
from sbert_app.services.corpus.embedding_cache import EmbeddingCache
from sbert_app.services.corpus.neighbours import neighbour_index, searched
from sbert_app.services.maps.projection import MapSettings, map_key, project
from sbert_app.services.store.cache import DiskCache, digest
from training.names import ModelName
from training.similarities import dot

SIMILAR = 4.0  # gold score of pairs that mean nearly the same, or more
MOST_DRAWN = 200_000  # points that a browser draws; of more, a random sample
PLACED_BETWEEN = 5  # neighbours in the sample, between which a sentence is placed
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
    by_umap: int = 0  # of them, those that UMAP has drawn; the others lie between their neighbours


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
    total = len(embedded[0])
    rows = None
    if total > MOST_DRAWN:
        watch.report(0, f"Taking a random sample of {MOST_DRAWN:,} sentences")
        taken = [sample_of(each, MOST_DRAWN) for each in embedded]
        embedded, rows = [each.embedded for each in taken], taken[0].rows
    samples = [sample_of(each, embeddings.limits.map_points) for each in embedded]
    key = map_key(request.settings, *(each.embedded for each in samples))
    is_placed = len(samples[0].rows) < len(embedded[0])
    if is_placed:
        key = digest([key, *(each.key for each in embedded)])
    from_cache = embeddings.cache.get(key) is not None
    message = f"{'Opening' if from_cache else 'Drawing'} the map of {len(embedded[0]):,} sentences"

    def report(done: float, _: str | None = None, total: float = 1.0, /) -> None:
        watch.report(done, message, total)

    report(0)
    started = time.perf_counter()
    drawing = Watch(report, watch.should_stop)

    def draw() -> list[np.ndarray]:
        sampled = [each.embedded for each in samples]
        return project(sampled, request.settings, embeddings.cache, embeddings.home, drawing)

    def place() -> np.ndarray:
        parts = zip(embedded, samples, draw(), strict=True)
        return np.stack([place_between(each.vectors, sample, drawn, watch) for each, sample, drawn in parts])

    maps = list(embeddings.cache.get_or_compute(key, place)) if is_placed else draw()
    seconds = time.perf_counter() - started
    return MapResult(embedded, maps, key, from_cache, seconds, rows, total, len(samples[0].rows))


def place_all(
    vectors: np.ndarray, sample: Sample, settings: MapSettings, cache: DiskCache, home: Path, watch: Watch = UNWATCHED
) -> np.ndarray:
    """A point for each vector of float32 (N, D): float32 (N, dimensions); see `place_between`.

    Raises InputError if a setting is out of range, or the sample has too few distinct sentences.
    """
    drawing = watch.stage(f"Drawing the map of {len(sample.rows):,} sentences")
    (drawn,) = project([sample.embedded], settings, cache, home, drawing)
    return place_between(vectors, sample, drawn, watch)


def place_between(vectors: np.ndarray, sample: Sample, drawn: np.ndarray, watch: Watch = UNWATCHED) -> np.ndarray:
    """A point for each vector of float32 (N, D): float32 (N, dimensions).

    UMAP has ``drawn`` the sample; every other sentence lies between its nearest neighbours in the sample, nearer to the
    more similar ones.
    """
    if len(sample.rows) == len(vectors):
        return drawn
    index = neighbour_index(sample.embedded.vectors)
    points = np.empty((len(vectors), drawn.shape[1]), dtype=np.float32)
    placing = watch.stage("Placing the other sentences on the map")
    for rows, cosines, nearest in searched(index, vectors, min(PLACED_BETWEEN, len(drawn)), placing):
        weights = np.where(nearest >= 0, np.maximum(cosines, 1e-3) ** 4, 0)  # the most similar ones count most
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1e-12)
        points[rows] = np.einsum("qk,qkd->qd", weights, drawn[nearest])
    points[sample.rows] = drawn
    return points


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
