"""Search: the time of a query in a corpus of up to 100,000 sentences, with and without encoding the query.

The corpus is random unit vectors, as the time of an exact search does not depend on them. The queries are sentences
of the STS benchmark, encoded one at a time as in the app.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from benchmarks import machine
from sbert_app.services.corpus.corpus import Corpus
from sbert_app.services.corpus.embedded import EmbeddedCorpus
from sbert_app.services.corpus.search import search
from training.data.load import load_data
from training.models.encoder import Encoder

SIZES = (1_000, 10_000, 100_000)
K = 10
SEED = 0


def run(rounds: int = 100, model: str = "all-MiniLM-L6-v2") -> dict[str, Any]:
    """Medians and 95th percentiles in milliseconds; ``rows`` is the table.

    Args:
        rounds: queries in each corpus.
        model: any encoder.
    """
    encoder, about = Encoder.load(model), machine.describe()
    queries = load_data("stsb:test").columns[0][:rounds]
    return {
        "benchmark": "search",
        "model": model,
        "k": K,
        "queries": len(queries),
        "rows": [_row(encoder, queries, size) for size in SIZES],
        "machine": about,
    }


def _row(encoder: Encoder, queries: list[str], size: int) -> dict[str, Any]:
    vectors = np.random.default_rng(SEED).standard_normal((size, encoder.dimension), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    corpus = Corpus("random", [str(row) for row in range(size)])
    embedded = EmbeddedCorpus(corpus, vectors, encoder.name, encoder.pooling, "", 0)
    started = time.perf_counter()
    index = embedded.index
    build = time.perf_counter() - started
    search(embedded, queries[0], encoder, K)
    answers = [search(embedded, query, encoder, K) for query in queries]
    return {
        "sentences": size,
        "exact": index.exact,
        **_quantiles("search_ms", [answer.search_ms for answer in answers]),
        **_quantiles("with_encoding_ms", [answer.search_ms + answer.encode_ms for answer in answers]),
        "build_ms": round(1e3 * build, 1),
    }


def _quantiles(name: str, times: list[float]) -> dict[str, float]:
    return {
        name: round(statistics.median(times), 2),
        f"{name}_p95": round(statistics.quantiles(times, n=20)[-1], 2),
    }
