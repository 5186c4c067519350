"""Maps: the time to draw the first map, a map, two aligned maps, and to read a map from the cache.

The corpus is a sample of the STS benchmark's sentences under the default model, encoded beforehand.
``first_map_seconds`` is the time of the first map of an empty home folder: of 461 sentences, compiling included.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import encode
from sbert_app.services.maps.projection import MapSettings, draw, draw_aligned, project
from sbert_app.services.store.cache import DiskCache
from training.data.load import load_data
from training.models.encoder import Encoder
from training.pooling import normalize_rows
from training.sources.home import home_folder

SIZES = (1_000, 10_000)
FIRST = 461  # sentences of the example
SEED = 0


def run(rounds: int = 3, model: str = "all-MiniLM-L6-v2") -> dict[str, Any]:
    """Medians in seconds; ``rows`` is the table.

    Args:
        rounds: how often each map is drawn.
        model: any encoder; its mean pooling is one map, its CLS pooling the second of two.
    """
    home, about = home_folder(), machine.describe()
    first = _first_map()
    encoder = Encoder.load(model)
    return {
        "benchmark": "maps",
        "model": model,
        "rounds": rounds,
        "first_map_seconds": round(first, 2),
        "rows": [_row(encoder, home, size, rounds) for size in SIZES],
        "machine": about,
    }


def _first_map() -> float:
    """Seconds of the first map of a process in an empty home folder, imports and compiling included."""
    vectors = normalize_rows(np.random.default_rng(SEED).standard_normal((FIRST, 384), dtype=np.float32))
    with tempfile.TemporaryDirectory() as empty:
        started = time.perf_counter()
        draw(vectors, MapSettings(), Path(empty))
        return time.perf_counter() - started


def _row(encoder: Encoder, home: Path, size: int, rounds: int) -> dict[str, Any]:
    parts = [load_data(f"stsb:{split}") for split in ("train", "dev", "test")]
    texts = list(dict.fromkeys(text for part in parts for column in part.columns for text in column))
    corpus = Corpus("stsb", random.Random(SEED).sample(texts, size))
    embedded, other = (encode(corpus, encoder.with_pooling(pooling)) for pooling in ("mean", "cls"))
    with tempfile.TemporaryDirectory() as folder:
        cache = DiskCache(Path(folder))
        project([embedded], MapSettings(), cache, home)
        work: dict[str, Callable[[], Any]] = {
            "map": partial(draw, embedded.vectors, MapSettings(), home),
            "map_3d": partial(draw, embedded.vectors, MapSettings(dimensions=3), home),
            "two_aligned": partial(draw_aligned, embedded.vectors, other.vectors, MapSettings(), home),
            "from_cache": partial(project, [embedded], MapSettings(), cache, home),
        }
        times = machine.alternate(work, rounds)
    summaries = {name: machine.summary(timings) for name, timings in times.items()}
    return {
        "sentences": size,
        **{f"{name}_seconds": summary["seconds"] for name, summary in summaries.items()},
        **{f"{name}_processor_seconds": summary["processor_seconds"] for name, summary in summaries.items()},
    }
