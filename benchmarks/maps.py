"""Maps: the time to compile umap-learn, to draw the first map, a map and two aligned maps, and of umap-learn alone.

The corpus is a sample of the STS benchmark's sentences under the default model, encoded beforehand.
The first map is of 2,000 random vectors, imports included, after compiling into an empty home
folder. ``umap_learn`` is ``umap.UMAP`` in this process, with the same settings and given
neighbours.
"""

import os
import random
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.encode import stsb_sentences
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import encode
from sbert_app.services.corpus.neighbours import neighbours
from sbert_app.services.maps.projection import (
    MANY_SENTENCES,
    MapSettings,
    compile_umap,
    compiled_code,
    draw,
    import_umap,
    project,
)
from sbert_app.services.store.cache import DiskCache
from training.models.encoder import Encoder
from training.pooling import normalize_rows
from training.sources.home import home_folder

SIZES = (1_000, 10_000)
FIRST = 2_000
SEED = 0
COLUMNS = ("seconds", "fastest", "slowest")


def run(rounds: int = 3, model: str = "all-MiniLM-L6-v2") -> dict[str, Any]:
    """Medians in seconds; ``rows`` is the table.

    Args:
        rounds: how often each map is drawn.
        model: any encoder; its mean pooling is one map, its CLS pooling the second of two.
    """
    home = home_folder()
    about = machine.describe()
    compile_seconds, first_map_seconds = _first_map()
    compile_umap(home)
    encoder = Encoder.load(model)
    return {
        "benchmark": "maps",
        "model": model,
        "rounds": rounds,
        "compile_seconds": round(compile_seconds, 2),
        "first_map_seconds": round(first_map_seconds, 2),
        "rows": [_row(encoder, home, size, rounds) for size in SIZES],
        "machine": about,
    }


def _first_map() -> tuple[float, float]:
    """Seconds to compile umap-learn into an empty home folder, and of the first map after it, by another process."""
    vectors = normalize_rows(
        np.random.default_rng(SEED).standard_normal((FIRST, 384), dtype=np.float32)
    )
    with tempfile.TemporaryDirectory() as empty:
        compiling = machine.time_call(partial(compile_umap, Path(empty)))
        first = machine.time_call(partial(draw, [vectors], MapSettings(), Path(empty)))
    return compiling.wall, first.wall


def _row(encoder: Encoder, home: Path, size: int, rounds: int) -> dict[str, Any]:
    texts = stsb_sentences("train", "dev", "test")
    corpus = Corpus("stsb", random.Random(SEED).sample(texts, size))
    embedded = encode(corpus, encoder.with_pooling("mean"))
    other = encode(corpus, encoder.with_pooling("cls"))
    with tempfile.TemporaryDirectory() as folder:
        cache = DiskCache(Path(folder))
        # This fills the cache.
        project([embedded], MapSettings(), cache, home)
        work: dict[str, Callable[[], Any]] = {
            "map": partial(draw, [embedded.vectors], MapSettings(), home),
            "umap_learn": _umap_learn(embedded.vectors, home),
            "map_3d": partial(draw, [embedded.vectors], MapSettings(dimensions=3), home),
            "two_aligned": partial(draw, [embedded.vectors, other.vectors], MapSettings(), home),
            "from_cache": partial(project, [embedded], MapSettings(), cache, home),
        }
        times = machine.alternate(work, rounds)
    row: dict[str, Any] = {"sentences": size}
    for column in COLUMNS:
        for name, timings in times.items():
            row[f"{name}_{column}"] = machine.summary(timings)[column]
    return row


def _umap_learn(vectors: np.ndarray, home: Path) -> Callable[[], Any]:
    """A function that draws these vectors by umap-learn alone, which is compiled and gets their neighbours."""
    # The code that the app has compiled.
    os.environ["NUMBA_CACHE_DIR"] = str(compiled_code(home))
    os.environ["NUMBA_CPU_NAME"] = "generic"
    settings = MapSettings()
    nearest = neighbours(vectors, settings.neighbours)
    mapper = import_umap().UMAP(
        n_neighbors=settings.neighbours,
        metric="cosine",
        precomputed_knn=(*nearest, None),
        min_dist=settings.min_dist,
        random_state=settings.seed,
        n_jobs=1,
        n_epochs=500 if len(vectors) < MANY_SENTENCES else 200,
    )
    # The first call warms up.
    mapper.fit(vectors)
    return partial(mapper.fit, vectors)
