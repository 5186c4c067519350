"""What the lessons measure on: pairs of STSb dev with their gold scores, and the sentences of the example corpus.

A sample is spread evenly over the file, so that it holds captions, news and forums in their shares, and is the same
for everybody. Vectors are made once per model and sample, in one pass for all three poolings, and kept; each says
when it was made and how long it took.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from training.assets import asset
from training.registry import DEFAULT_MODEL

if TYPE_CHECKING:
    from sbert_app.services.models.cache import ModelCache
    from training.models.encoder import Encoder

CORPUS = asset("examples/corpus.csv")


class GoldSample(NamedTuple):
    """Pairs that people scored."""

    first: list[str]
    second: list[str]
    gold: np.ndarray  # (N,) float64, 0–5


@dataclass(frozen=True)
class Encoded:
    """Both sentences of each pair of a sample under three poolings, not normalised."""

    model: str
    gold: np.ndarray  # (N,), 0–5
    by_pooling: dict[str, tuple[np.ndarray, np.ndarray]]  # (N, D) float32 each
    seconds: float
    measured_at: str  # the time of day

    def rho(self, pooling: str) -> float:
        """Spearman's ρ ×100 of cosine and gold score."""
        from training.evaluation.metrics import cosine, spearman

        return 100 * spearman(cosine(*self.by_pooling[pooling]), self.gold)


@lru_cache(maxsize=8)
def gold_sample(home: Path, pairs: int) -> GoldSample:
    """So many pairs of STSb dev. InputError if the benchmark cannot be had."""
    from training.data.load import load_data

    data = load_data("stsb:dev", home)
    rows = np.linspace(0, len(data) - 1, min(pairs, len(data))).astype(int)
    first, second = ([column[row] for row in rows] for column in data.columns)
    return GoldSample(first, second, np.asarray(data.scores, dtype=np.float64)[rows])


@lru_cache(maxsize=12)
def encoded(shelf: ModelCache, home: Path, model: str, pairs: int) -> Encoded:
    """The sample as ``model`` sees it. InputError if the model cannot be had."""
    first, second, gold = gold_sample(home, pairs)
    encoder = shelf.encoder(model)
    started = time.perf_counter()
    vectors = all_poolings(encoder, [*first, *second])
    seconds = time.perf_counter() - started
    halves = {name: (whole[: len(first)], whole[len(first) :]) for name, whole in vectors.items()}
    return Encoded(encoder.name, gold, halves, seconds, now())


def all_poolings(encoder: Encoder, sentences: list[str]) -> dict[str, np.ndarray]:
    """Mean, max and CLS vectors, (N, D) float32, not normalised, from one pass."""
    import torch

    from training.models.pooling import POOLINGS

    hidden = [torch.from_numpy(tokens.hidden)[None] for tokens in encoder.token_vectors(sentences)]  # (1, T, D)
    return {name: torch.cat([pool(states, None) for states in hidden]).numpy() for name, pool in POOLINGS.items()}


@dataclass(frozen=True)
class EncodedCorpus:
    """Sentences to search in, as the default model sees them, not normalised."""

    sentences: list[str]
    vectors: np.ndarray  # (N, D) float32
    seconds: float
    measured_at: str


@lru_cache(maxsize=4)
def encoded_corpus(shelf: ModelCache, home: Path, source: str) -> EncodedCorpus:
    """``source``: a key of `SENTENCES`. InputError if model or data cannot be had."""
    sentences = SENTENCES[source](home)
    encoder = shelf.encoder(DEFAULT_MODEL)
    started = time.perf_counter()
    vectors = encoder.encode(sentences, normalize=False)
    return EncodedCorpus(sentences, vectors, time.perf_counter() - started, now())


def _example_sentences(home: Path) -> list[str]:
    with CORPUS.open(encoding="utf-8", newline="") as file:
        return [row["sentence"] for row in csv.DictReader(file)]


def _stsb_sentences(home: Path) -> list[str]:
    first, second, _ = gold_sample(home, 500)
    return list(dict.fromkeys(sentence for pair in zip(first, second, strict=True) for sentence in pair))


SENTENCES: dict[str, Callable[[Path], list[str]]] = {"examples": _example_sentences, "stsb": _stsb_sentences}


def now() -> str:
    """The time of day, to say when something was measured."""
    return time.strftime("%H:%M:%S")
