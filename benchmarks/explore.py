"""Explore with many sentences (``explore``), and the time and the indexes of a search (``search``).

``explore``: encode to a file, search, estimate all pairs, cluster and draw the map. The corpus is
synthetic: short sentences put together from the words of the STS benchmark by a seeded generator.
The encoder is a static one (a table of token vectors made from the default model), so that what is
measured is Explore.

``search``, ``rows``: a corpus of up to 100,000 sentences, with and without encoding the query. Its
vectors are random, as the time of an exact search does not depend on them. The queries are
sentences of the STS benchmark, encoded one at a time.

``search``, ``indexes``: a million vectors, each between two sentences of the STS benchmark and
nearer to the first, with a little noise; the queries are 200 of its sentences that were left out.
For each index: the time to build it, the memory that it takes beside the vectors, recall (the share
of the ten nearest that are among its ten) and the time of a query.
"""

import gc
import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks import machine
from benchmarks.encode import stsb_sentences
from benchmarks.static import static_model
from sbert_app.services.clusters.clustering import HDBSCAN, K_MEANS, ClusterSettings, cluster
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus, encode, sample_of
from sbert_app.services.corpus.search import find_near_duplicates, search
from sbert_app.services.maps.corpus_map import place_between
from sbert_app.services.maps.projection import MapSettings, project
from sbert_app.services.store.cache import DiskCache
from training.data.load import load_data
from training.models.encoder import Encoder
from training.search import QuantizedIndex, SearchIndex, estimate_seconds
from training.sources.home import home_folder

SENTENCES = 1_000_000
SAMPLE = 50_000
QUERIES = 20
# The cosine of near duplicates.
NEAR = 0.95
SEED = 0


def run_explore(rounds: int = SENTENCES) -> dict[str, Any]:
    """Seconds of each step, and the memory at the peak.

    Args:
        rounds: sentences in the corpus.
    """
    about = machine.describe()
    home = home_folder()
    encoder = static_model(home / "models/static")
    seconds: dict[str, float] = {}

    def timed(step: str, work: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        result = work()
        seconds[step] = round(time.perf_counter() - started, 2)
        return result

    corpus = Corpus("synthetic", sentences(rounds))
    with tempfile.TemporaryDirectory(prefix="sbert-lab-") as scratch:
        folder = Path(scratch)
        cache = DiskCache(folder / "cache")
        embedded: EmbeddedCorpus = timed("encode", lambda: encode(corpus, encoder, folder=folder))
        timed("open again", lambda: encode(corpus, encoder, folder=folder))
        timed("index", lambda: embedded.index)
        answers = [search(embedded, query, encoder) for query in corpus.sentences[:QUERIES]]
        timed("near duplicates", lambda: find_near_duplicates(embedded, NEAR))
        timed(
            "k-means, 50 clusters",
            lambda: cluster(embedded, ClusterSettings(K_MEANS, num_clusters=50), cache, home),
        )
        timed(
            "HDBSCAN of a sample",
            lambda: cluster(embedded, ClusterSettings(HDBSCAN, 50), cache, home),
        )
        sample = sample_of(embedded, SAMPLE)

        def place() -> np.ndarray:
            [points] = project([sample.embedded], MapSettings(), cache, home)
            return place_between(embedded.vectors, sample, points)

        points = timed("map, all placed", place)
        pairs_seconds = estimate_seconds(embedded.vectors)
    map_size = map_bytes(points[sample.rows], sample.embedded.corpus.sentences)
    num_found = sum(answer.by_cosine[0].cosine > 0.999 for answer in answers)
    # In bytes on macOS, and in KB elsewhere.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "benchmark": "explore",
        "sentences": len(corpus),
        "dimension": embedded.vectors.shape[1],
        "search_ms": round(statistics.median(answer.search_ms for answer in answers), 1),
        "first_hit_is_the_query": num_found / len(answers),
        "all_pairs_estimate_s": round(pairs_seconds),
        "map_bytes": map_size,
        "peak_mb": peak >> (20 if sys.platform == "darwin" else 10),
        "rows": [{"step": step, "seconds": value} for step, value in seconds.items()],
        "machine": about,
    }


def sentences(count: int) -> list[str]:
    """Short sentences, each of the first, middle and last words of three sentences of the STS benchmark."""
    originals = [sentence.split() for sentence in load_data("stsb:train").columns[0]]
    originals = [words for words in originals if len(words) >= 6]
    random = np.random.default_rng(SEED)
    texts = []
    for a, b, c in random.integers(0, len(originals), (count, 3)).tolist():
        words = [*originals[a][:3], *originals[b][2:5], *originals[c][-2:]]
        texts.append(" ".join(words))
    return texts


def map_bytes(points: np.ndarray, texts: list[str]) -> int:
    """The size of the map's figure as JSON, which is what the browser loads."""
    from sbert_app.figures.map import MapData, map_figure

    figure = map_figure(MapData([points], ["map"], texts))
    return len(json.dumps(json.loads(figure.to_json())))


SIZES = (1_000, 10_000, 100_000)
MILLION = 1_000_000
# The number of vectors that are made at a time.
CHUNK = 100_000
# The standard deviation of the noise in each dimension. For vectors of sentences it is about 0.05.
NOISE = 0.02
K = 10


def run_search(
    rounds: int = 100, model: str = "all-MiniLM-L6-v2", small: bool = False
) -> dict[str, Any]:
    """Medians and 95th percentiles in milliseconds; ``rows`` and ``indexes`` are the tables.

    Args:
        rounds: queries in each corpus.
        model: any encoder.
        small: 1,000 vectors.
    """
    encoder = Encoder.load(model)
    about = machine.describe()
    queries = load_data("stsb:test").columns[0][:rounds]
    sizes: tuple[int, ...] = SIZES
    num_vectors = MILLION
    if small:
        sizes = SIZES[:1]
        num_vectors = SIZES[0]
    return {
        "benchmark": "search",
        "model": model,
        "k": K,
        "queries": len(queries),
        "rows": [_row(encoder, queries, size) for size in sizes],
        "vectors": num_vectors,
        "indexes": compare_indexes(*mixtures(encoder, num_vectors, rounds)),
        "machine": about,
    }


def mixtures(encoder: Encoder, count: int, queries: int) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors float32 (count, D) between vectors of sentences, and vectors of other sentences as queries."""
    # Few vectors are mixed from few sentences.
    embeddings = encoder.encode(stsb_sentences("dev", "test")[: 3 * count])
    query_vectors = embeddings[:queries]
    embeddings = embeddings[queries:]
    draw = np.random.default_rng(SEED)
    vectors = np.empty((count, embeddings.shape[1]), dtype=np.float32)
    for start in range(0, count, CHUNK):
        part = vectors[start : start + CHUNK]
        first, second = draw.integers(0, len(embeddings), (2, len(part)))
        share = draw.uniform(0.5, 1, (len(part), 1)).astype(np.float32)
        noise = NOISE * draw.standard_normal(part.shape, dtype=np.float32)
        part[:] = share * embeddings[first] + (1 - share) * embeddings[second] + noise
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return vectors, query_vectors


def compare_indexes(vectors: np.ndarray, queries: np.ndarray) -> list[dict[str, Any]]:
    """A row for each index."""
    exact: list[np.ndarray] = []
    rows = []
    for name, build in INDEXES.items():
        gc.collect()
        memory_before = resident_mb()
        started = time.perf_counter()
        index = build(vectors)
        build_seconds = time.perf_counter() - started
        gc.collect()
        memory = resident_mb() - memory_before
        # The first query warms up.
        index.nearest(queries[:1], K)
        nearest = []
        times = []
        for query in queries:
            started = time.perf_counter()
            _, rows_of_query = index.nearest(query[None], K)
            nearest.append(rows_of_query[0])
            times.append(1e3 * (time.perf_counter() - started))
        # The first index is exact.
        exact = exact or nearest
        recalls = []
        for approximate_rows, exact_rows in zip(nearest, exact, strict=True):
            recalls.append(len(set(approximate_rows) & set(exact_rows)) / K)
        rows.append(
            {
                "index": name,
                "build_seconds": round(build_seconds, 2),
                "memory_mb": round(memory),
                "recall_at_10": round(statistics.mean(recalls), 4),
                **_quantiles("ms", times),
            }
        )
        # Its memory is free before the next index is built.
        del index
    return rows


def resident_mb() -> float:
    """Memory of this process in MB."""
    return psutil.Process().memory_info().rss / 1e6


INDEXES: dict[str, Callable[[np.ndarray], Any]] = {
    "flat (exact)": SearchIndex,
    "one byte a dimension, rescored": partial(QuantizedIndex, bits=8),
    "one bit a dimension, rescored": partial(QuantizedIndex, bits=1),
}


def _row(encoder: Encoder, queries: list[str], size: int) -> dict[str, Any]:
    vectors = np.random.default_rng(SEED).standard_normal(
        (size, encoder.dimension), dtype=np.float32
    )
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    corpus = Corpus("random", [str(row) for row in range(size)])
    embedded = EmbeddedCorpus(corpus, vectors, encoder.name, encoder.pooling, "", 0)
    started = time.perf_counter()
    index = embedded.index
    build_seconds = time.perf_counter() - started
    # The first query warms up.
    search(embedded, queries[0], encoder, K)
    answers = [search(embedded, query, encoder, K) for query in queries]
    search_times = [answer.search_ms for answer in answers]
    total_times = [answer.search_ms + answer.encode_ms for answer in answers]
    return {
        "sentences": size,
        "exact": index.exact,
        **_quantiles("search_ms", search_times),
        **_quantiles("with_encoding_ms", total_times),
        "build_ms": round(1e3 * build_seconds, 1),
    }


def _quantiles(name: str, times: list[float]) -> dict[str, float]:
    """The median and the 95th percentile."""
    twentieths = statistics.quantiles(times, n=20, method="inclusive")
    return {name: round(statistics.median(times), 2), f"{name}_p95": round(twentieths[-1], 2)}
