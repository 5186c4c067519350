"""Explore with many sentences: encode to a file, search, estimate all pairs, cluster, draw and export the map.

The corpus is synthetic: short sentences put together from the words of the STS benchmark by a seeded generator. The
encoder is a static one (a table of token vectors made from the default model), so that what is measured is Explore.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from sbert_app.services.clusters.clustering import HDBSCAN, K_MEANS, ClusterSettings, cluster
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus, encode, sample_of
from sbert_app.services.corpus.search import find_near_duplicates, search
from sbert_app.services.maps.corpus_map import place_all
from sbert_app.services.maps.projection import MapSettings
from sbert_app.services.store.cache import DiskCache
from training.data.load import load_data
from training.models.distill import distill
from training.models.encoder import Encoder
from training.search import estimate_seconds
from training.sources.home import home_folder

SENTENCES = 1_000_000
SAMPLE = 50_000
QUERIES = 20
NEAR = 0.95  # the cosine of near duplicates
SEED = 0


def run(rounds: int = SENTENCES) -> dict[str, Any]:
    """Seconds of each step, and the memory at the peak.

    Args:
        rounds: sentences in the corpus.
    """
    about = machine.describe()
    encoder = distill(Encoder.load("all-MiniLM-L6-v2"))
    home = home_folder()
    seconds: dict[str, float] = {}

    def timed(step: str, work: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        result = work()
        seconds[step] = round(time.perf_counter() - started, 2)
        return result

    corpus = Corpus("synthetic", sentences(rounds))
    with tempfile.TemporaryDirectory(prefix="sbert-lab-") as scratch:
        folder, cache = Path(scratch), DiskCache(Path(scratch) / "cache")
        embedded: EmbeddedCorpus = timed("encode", lambda: encode(corpus, encoder, folder=folder))
        timed("open again", lambda: encode(corpus, encoder, folder=folder))
        timed("index", lambda: embedded.index)
        answers = [search(embedded, query, encoder) for query in corpus.sentences[:QUERIES]]
        timed("near duplicates", lambda: find_near_duplicates(embedded, NEAR))
        timed("k-means, 50 clusters", lambda: cluster(embedded, ClusterSettings(K_MEANS, num_clusters=50), cache, home))
        timed("HDBSCAN of a sample", lambda: cluster(embedded, ClusterSettings(HDBSCAN, 50), cache, home))
        sample = sample_of(embedded, SAMPLE)
        points = timed("map, all placed", lambda: place_all(embedded.vectors, sample, MapSettings(), cache, home))
        pairs = estimate_seconds(embedded.vectors)
    return {
        "benchmark": "explore",
        "sentences": len(corpus),
        "dimension": embedded.vectors.shape[1],
        "search_ms": round(statistics.median(answer.search_ms for answer in answers), 1),
        "first_hit_is_the_query": sum(answer.by_cosine[0].cosine > 0.999 for answer in answers) / len(answers),
        "all_pairs_estimate_s": round(pairs),
        "map_bytes": map_bytes(points[sample.rows], sample.embedded.corpus.sentences),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        // (1 << 20 if sys.platform == "darwin" else 1 << 10),
        "rows": [{"step": step, "seconds": value} for step, value in seconds.items()],
        "machine": about,
    }


def sentences(count: int) -> list[str]:
    """Short sentences: a subject, a verb phrase and an ending of sentences of the STS benchmark."""
    words = [sentence.split() for sentence in load_data("stsb:train").columns[0] if len(sentence.split()) >= 6]
    random = np.random.default_rng(SEED)
    parts = random.integers(0, len(words), (count, 3)).tolist()
    return [" ".join((*words[a][:3], *words[b][2:5], *words[c][-2:])) for a, b, c in parts]


def map_bytes(points: np.ndarray, texts: list[str]) -> int:
    """The size of the map's figure as JSON, which is what the browser loads."""
    from sbert_app.figures.map import MapData, single_map

    figure = single_map(MapData([points], ["map"], texts))
    return len(json.dumps(json.loads(figure.to_json())))
