"""Lesson 5: the cost of comparing N sentences with each other, for bi-encoder and cross-encoder.

The rates are measured (`sbert_app.services.compare.throughput`, 512 sentences and 64 pairs of STSb, medians of three);
the times for N sentences are extrapolated from them. Paper: section 1 (10,000 sentences: 49,995,000 pairs, about 65
hours with BERT, about 5 seconds with SBERT, on a V100) and Table 7.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from sbert_app.services.compare.throughput import PAPER_SENTENCES, Throughput, measure
from sbert_app.services.lessons.sample import time_of_day
from sbert_app.services.lessons.setup import STANDARD, Setup
from training.registry import DEFAULT_CROSS_ENCODER

if TYPE_CHECKING:
    from sbert_app.services.models.cache import ModelCache

SENTENCES, PAIRS = 512, 64  # of a measurement
PAPER_CROSS_SECONDS = 65 * 3600.0
PAPER_ENCODE_SECONDS = 5.0


@dataclass(frozen=True)
class Rates:
    """Rates of this machine, and when they were measured."""

    throughput: Throughput
    seconds: float  # duration of the measurement
    measured_at: str


@lru_cache(maxsize=2)
def rates(models: ModelCache, home: Path, moment: float, setup: Setup = STANDARD) -> Rates:
    """Measure the setup's model, once for each ``moment`` at which that was requested.

    InputError if the models or the data cannot be loaded.
    """
    encoder, cross_encoder = models.encoder(setup.model), models.cross_encoder(DEFAULT_CROSS_ENCODER)
    started = time.perf_counter()
    measured = measure(encoder, cross_encoder, home, SENTENCES, PAIRS)
    return Rates(measured, time.perf_counter() - started, time_of_day())


def pairs_of(sentences: int) -> int:
    """N(N-1)/2."""
    return sentences * (sentences - 1) // 2


def both_seconds(throughput: Throughput, sentences: int) -> tuple[float, float]:
    """Extrapolated seconds of bi-encoder (N encodings, N × N product) and cross-encoder (N(N-1)/2 passes)."""
    product = throughput.product_seconds * (sentences / PAPER_SENTENCES) ** 2
    return throughput.encode_seconds(sentences) + product, throughput.cross_seconds(sentences) or 0.0
