"""The throughput of bi-encoder, cross-encoder and matrix product on this machine, measured on sentences of STSb.

The example of the paper's introduction is the most similar pair among 10,000 sentences: 49,995,000 passes of a
cross-encoder (about 65 hours on a V100) or 10,000 encodings (about 5 seconds) and a matrix product (0.01 s).
``Throughput`` extrapolates the rates of this machine to that case.
"""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from training.data.load import load_data
from training.models.model import PairModel, VectorModel

ROUNDS = 3
PAPER_SENTENCES = 10_000

T = TypeVar("T")


@dataclass(frozen=True)
class Throughput:
    """The rates of this machine, each the median of three measurements.

    ``product_seconds`` is the time of the matrix product of 10,000 sentences.
    """

    sentences_per_second: float
    pairs_per_second: float | None
    product_seconds: float

    def encode_seconds(self, sentences: int) -> float:
        return sentences / self.sentences_per_second

    def cross_seconds(self, sentences: int) -> float | None:
        """The time to score all pairs of so many sentences with the cross-encoder."""
        pairs = sentences * (sentences - 1) / 2
        return None if self.pairs_per_second is None else pairs / self.pairs_per_second


def measure(
    encoder: VectorModel, cross_encoder: PairModel | None, home: Path, sample: int, pairs_sample: int
) -> Throughput:
    """Time ``sample`` sentences and ``pairs_sample`` pairs of STSb dev and a matrix product, three times each.

    The rate of a single batch is far below that of many: too small a sample makes the extrapolated times too long.
    """
    first, second = load_data("stsb:dev", home).columns
    sentences = _evenly([*dict.fromkeys([*first, *second])], sample)
    pairs = _evenly(list(zip(first, second, strict=True)), pairs_sample)
    vectors = encoder.encode(sentences)
    block = np.resize(vectors, (2_000, vectors.shape[1]))
    product = _median_seconds(lambda: block @ block.T) * (PAPER_SENTENCES / len(block)) ** 2
    encoding = _median_seconds(lambda: encoder.encode(sentences))
    crossing = None if cross_encoder is None else _median_seconds(lambda: cross_encoder.predict(pairs))
    return Throughput(len(sentences) / encoding, None if crossing is None else len(pairs) / crossing, product)


def _median_seconds(work: Callable[[], object]) -> float:
    return statistics.median(timeit.repeat(work, number=1, repeat=ROUNDS))


def _evenly(items: list[T], count: int) -> list[T]:
    """``count`` items at equal distances."""
    step = len(items) // count
    return items[: count * step : step]
