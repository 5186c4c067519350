"""The map of an open corpus: encode it under one model or two, then draw the map or the aligned maps.

    result = compute_map(embeddings, corpus_key, [ModelName.parse("all-MiniLM-L6-v2:mean")], MapSettings(), watch)
    result.maps[0]                                      float32 (N, 2)

Used by the Explore page and the HTTP endpoint ``project``.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sbert_app.services.background.watch import UNWATCHED, Watch
from sbert_app.services.corpus.corpus import GoldPairs
from sbert_app.services.corpus.embedded import EmbeddedCorpus, Sample, fixed_sample, sample_of
from sbert_app.services.corpus.neighbours import searched
from sbert_app.services.corpus.open_corpora import EmbeddingCache
from sbert_app.services.maps.projection import MapSettings, map_key, project
from sbert_app.services.store.cache import digest
from training.names import ModelName
from training.similarities import dot

# Pairs with this gold score or more mean nearly the same.
SIMILAR = 4.0
# The most points that a browser draws. A larger corpus is shown by a random sample.
MOST_DRAWN = 200_000
# A sentence that UMAP does not draw is placed between this number of its nearest neighbours in the
# sample.
PLACED_BETWEEN = 5
SEED = 0
RANDOM_PAIRS = 5_000


@dataclass(frozen=True, eq=False)
class MapResult:
    """The maps of a corpus under one model or two.

    Attributes:
        embedded: the sentences on the map with their vectors, for each model.
        maps: float32 (N, dimensions), for each model.
        key: the key of the maps in the cache.
        seconds: the time to draw the maps, or to read them from the cache.
        rows: positions in the corpus of the sentences on the map, int64 (N,); None if the map shows
            all sentences.
        total: the number of sentences of the corpus.
        by_umap: the number of sentences that UMAP placed; the others lie between their neighbours.
    """

    embedded: list[EmbeddedCorpus]
    maps: list[np.ndarray]
    key: str
    from_cache: bool
    seconds: float
    rows: np.ndarray | None = None
    total: int = 0
    by_umap: int = 0


def compute_map(
    embeddings: EmbeddingCache,
    corpus: str,
    models: Sequence[ModelName],
    settings: MapSettings,
    watch: Watch = UNWATCHED,
) -> MapResult:
    """Encodes an open corpus, by its key, and draws its map under one model, or aligned maps under two.

    Vectors and maps are read from the caches if possible. A large corpus is drawn by a sample.
    Raises InputError if a model cannot be loaded, a setting is invalid, or the corpus cannot be
    mapped.
    """
    settings.check()
    # A space for each model: the corpus with its vectors under the model.
    embedded = []
    for model in models:
        encoding = watch.stage(f"Encoding with {model.name}")
        embedded.append(embeddings.embed(corpus, model, watch=encoding))
    total = len(embedded[0])
    rows = None
    # A browser draws at most ``MOST_DRAWN`` points, so the rest of this function sees a sample.
    if total > MOST_DRAWN:
        watch.report(0, f"Taking a random sample of {MOST_DRAWN:,} sentences")
        parts = [sample_of(space, MOST_DRAWN) for space in embedded]
        embedded = [part.embedded for part in parts]
        rows = parts[0].rows
    # UMAP places at most ``map_points`` of these sentences; the others are placed between them.
    samples = [sample_of(space, embeddings.limits.map_points) for space in embedded]
    by_umap = len(samples[0].rows)
    spaces = [sample.embedded for sample in samples]
    # Under this key, `project` stores the maps of the sentences that UMAP places.
    key = map_key(settings, *spaces)
    has_others = by_umap < len(embedded[0])
    if has_others:
        # The whole maps also depend on the vectors of the other sentences.
        key = digest([key, *(space.key for space in embedded)])
    # `get` reads the whole array; here it only tells whether the map is stored.
    from_cache = embeddings.cache.get(key) is not None
    started = time.perf_counter()
    verb = "Opening" if from_cache else "Drawing"
    drawing = watch.stage(f"{verb} the map of {len(embedded[0]):,} sentences")

    def draw() -> list[np.ndarray]:
        return project(spaces, settings, embeddings.cache, embeddings.home, drawing)

    def place() -> np.ndarray:
        maps = []
        for space, sample, points in zip(embedded, samples, draw(), strict=True):
            maps.append(place_between(space.vectors, sample, points, watch))
        return np.stack(maps)

    if has_others:
        maps = list(embeddings.cache.get_or_compute(key, place))
    else:
        maps = draw()
    seconds = time.perf_counter() - started
    return MapResult(embedded, maps, key, from_cache, seconds, rows, total, by_umap)


def place_between(
    vectors: np.ndarray, sample: Sample, sample_points: np.ndarray, watch: Watch = UNWATCHED
) -> np.ndarray:
    """A point for each vector of float32 (N, D): float32 (N, dimensions).

    The points of the sample stay. Every other sentence lies between its nearest neighbours in the
    sample, closer to the more similar ones.
    """
    if len(sample.rows) == len(vectors):
        return sample_points
    # The import of torch takes seconds.
    from training.search import neighbour_index

    # The number of queries decides whether the index is exact.
    index = neighbour_index(sample.embedded.vectors, len(vectors))
    points = np.empty((len(vectors), sample_points.shape[1]), dtype=np.float32)
    placing = watch.stage("Placing the other sentences on the map")
    count = min(PLACED_BETWEEN, len(sample_points))
    for rows, cosines, nearest in searched(index, vectors, count, placing):
        # The fourth power favours the most similar neighbours. A cosine that is not positive has a
        # small weight, and a neighbour that was not found (−1) has none.
        weights = np.where(nearest >= 0, np.maximum(cosines, 1e-3) ** 4, 0)  # (Q, k)
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1e-12)
        points[rows] = np.einsum("qk,qkd->qd", weights, sample_points[nearest])
    points[sample.rows] = sample_points
    return points


@dataclass(frozen=True)
class PairDistances:
    """The closeness of similar pairs, one value for each model.

    Attributes:
        count: the number of pairs with a gold score of 4 or more.
        cosines: the mean cosine of these pairs.
        random_cosines: the mean cosine of random pairs, which a collapse raises.
        on_map: the mean distance of the similar pairs on the map, divided by the mean distance of
            random pairs.
    """

    count: int
    cosines: list[float]
    random_cosines: list[float]
    on_map: list[float]


def pair_distances(result: MapResult, gold: GoldPairs) -> PairDistances | None:
    """The distances of similar pairs under each model; None if no pair has a gold score of 4 or more.

    ``gold`` has the pairs of the corpus on the map, ``result.embedded[0].corpus``, by their positions
    there. If the map shows a sample, this corpus is the sample, which has no gold pairs.
    """
    similar = gold.rows[gold.gold >= SIMILAR]  # (P, 2)
    if not len(similar):
        return None
    random = np.random.default_rng(SEED).integers(0, len(result.maps[0]), (RANDOM_PAIRS, 2))
    cosines = []
    random_cosines = []
    on_map = []
    for space, points in zip(result.embedded, result.maps, strict=True):
        cosines.append(_mean_cosine(space.vectors, similar))
        random_cosines.append(_mean_cosine(space.vectors, random))
        random_distance = _mean_distance(points, random)
        on_map.append(_mean_distance(points, similar) / max(random_distance, 1e-9))
    return PairDistances(len(similar), cosines, random_cosines, on_map)


# Two models are compared by the nearest neighbours of a sample of the sentences.
COMPARED_NEIGHBOURS = 10
COMPARED_SENTENCES = 2_000
MOST_MOVED = 3


def moved_neighbours(result: MapResult) -> tuple[float, list[str]] | None:
    """The mean share of the ten nearest sentences that two models have in common, and sentences with the least shares.

    None for one model. A large corpus is compared by a sample of its sentences.
    """
    if len(result.embedded) < 2:
        return None
    sentences = result.embedded[0].corpus.sentences
    count = min(COMPARED_NEIGHBOURS, len(sentences) - 1)
    rows = fixed_sample(len(sentences), COMPARED_SENTENCES)
    neighbours = []
    for space in result.embedded:
        # One more, as a sentence is its own neighbour.
        _, nearest = space.index.nearest(np.asarray(space.vectors[rows]), count + 1)
        neighbours.append(nearest.tolist())
    # The number of common neighbours of each sentence in the sample.
    common = []
    for row, first, second in zip(rows.tolist(), *neighbours, strict=True):
        # Among many duplicates a sentence may not find itself. Then the last neighbour is left out.
        first_others = [other for other in first if other != row][:count]
        second_others = [other for other in second if other != row][:count]
        common.append(len(set(first_others).intersection(second_others)))
    moved = []
    for position in np.argsort(common, kind="stable")[:MOST_MOVED]:
        # Without a change in its neighbours, a sentence has not moved.
        if common[position] < count:
            moved.append(sentences[rows[position]])
    return float(np.mean(common)) / count, moved


def _mean_cosine(vectors: np.ndarray, pairs: np.ndarray) -> float:
    """The mean cosine of pairs of rows, int (P, 2), of unit vectors."""
    return float(dot(vectors[pairs[:, 0]], vectors[pairs[:, 1]]).mean())


def _mean_distance(points: np.ndarray, pairs: np.ndarray) -> float:
    """The mean distance of pairs of rows, int (P, 2), of points."""
    return float(np.linalg.norm(points[pairs[:, 0]] - points[pairs[:, 1]], axis=1).mean())
