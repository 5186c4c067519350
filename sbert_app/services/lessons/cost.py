"""Lesson 5: what comparing everything with everything costs, for two ways to compare.

The rates are measured here (`sbert_app.services.compare.throughput`, 48 sentences and 48 pairs of STSb, medians of
three); the hours for N
sentences are those rates extrapolated, never run. Paper: section 1 (10,000 sentences: 49,995,000 pairs, about 65 hours
with BERT, about 5 seconds with SBERT, on a V100) and Table 7.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from sbert_app.services.compare import throughput
from sbert_app.services.compare.throughput import PAPER_SENTENCES, Throughput
from sbert_app.services.lessons.sample import now
from training.registry import DEFAULT_CROSS_ENCODER, DEFAULT_MODEL

if TYPE_CHECKING:
    from sbert_app.services.models.cache import ModelCache

SAMPLE = 48  # sentences, and pairs: answers within two seconds on two cores
PAPER_CROSS_SECONDS = 65 * 3600.0
PAPER_ENCODE_SECONDS = 5.0
UNITS = ((365.25 * 86_400, "years"), (86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))


@dataclass(frozen=True)
class Rates:
    """Rates of this machine, and how they were found."""

    throughput: Throughput
    seconds: float  # that the measurement took
    measured_at: str


@lru_cache(maxsize=2)
def rates(shelf: ModelCache, home: Path, moment: float) -> Rates:
    """Measure; once for each ``moment`` somebody asked to. InputError if models or data cannot be had."""
    encoder, crosser = shelf.encoder(DEFAULT_MODEL), shelf.cross_encoder(DEFAULT_CROSS_ENCODER)
    started = time.perf_counter()
    found = throughput.measure(encoder, crosser, home, SAMPLE)
    return Rates(found, time.perf_counter() - started, now())


def pairs_of(sentences: int) -> int:
    """N(N-1)/2."""
    return sentences * (sentences - 1) // 2


def both_seconds(found: Throughput, sentences: int) -> tuple[float, float]:
    """Extrapolated: (bi-encoder: N encodings and the product of all with all, cross-encoder: N(N-1)/2 passes)."""
    product = found.product_seconds * (sentences / PAPER_SENTENCES) ** 2
    return found.encode_seconds(sentences) + product, found.cross_seconds(sentences) or 0.0


def spoken(seconds: float) -> str:
    """A time for people: "3.4 hours", "12 ms"."""
    for size, unit in UNITS:
        if seconds >= size:
            value = seconds / size
            return f"{value:,.1f} {unit}" if value < 100 else f"{value:,.0f} {unit}"
    return f"{seconds * 1000:.1f} ms"
