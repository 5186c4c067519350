"""The data of the lessons: pairs of STSb dev with gold scores, and the sentences of the example corpus.

A sample is taken at equal distances from the file, so it has the file's proportions of captions, news and forums and
is always the same. Vectors are computed once for each model and sample, for all three poolings in one pass, and kept
with the time of day and the duration.
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
    """Sentence pairs with gold scores."""

    first: list[str]
    second: list[str]
    gold: np.ndarray  # (N,) float64, 0–5


@dataclass(frozen=True)
class EncodedSample:
    """The vectors of a sample's sentences under three poolings, not normalised."""

    model: str
    gold: np.ndarray  # (N,), 0–5
    by_pooling: dict[str, tuple[np.ndarray, np.ndarray]]  # (N, D) float32 each
    seconds: float
    measured_at: str  # time of day

    def rho(self, pooling: str) -> float:
        """Spearman's ρ ×100 between cosine and gold score."""
        from training.evaluation.metrics import cosine, spearman

        return 100 * spearman(cosine(*self.by_pooling[pooling]), self.gold)


@lru_cache(maxsize=8)
def gold_sample(home: Path, pairs: int) -> GoldSample:
    """A number of pairs of STSb dev. InputError if the benchmark cannot be loaded."""
    from training.data.load import load_data

    data = load_data("stsb:dev", home)
    rows = np.linspace(0, len(data) - 1, min(pairs, len(data))).astype(int)
    first, second = ([column[row] for row in rows] for column in data.columns)
    return GoldSample(first, second, np.asarray(data.scores, dtype=np.float64)[rows])


@lru_cache(maxsize=12)
def encode_sample(models: ModelCache, home: Path, model: str, pairs: int) -> EncodedSample:
    """The vectors of a sample. InputError if the model or the data cannot be loaded."""
    first, second, gold = gold_sample(home, pairs)
    encoder = models.encoder(model)
    started = time.perf_counter()
    vectors = all_poolings(encoder, [*first, *second])
    seconds = time.perf_counter() - started
    by_pooling = {name: (both[: len(first)], both[len(first) :]) for name, both in vectors.items()}
    return EncodedSample(encoder.name, gold, by_pooling, seconds, time_of_day())


def all_poolings(encoder: Encoder, sentences: list[str]) -> dict[str, np.ndarray]:
    """Mean, max and CLS vectors from one pass: (N, D) float32 each, not normalised."""
    import torch

    from training.models.pooling import PAPER_POOLINGS, POOLINGS

    hidden = [torch.from_numpy(tokens.hidden)[None] for tokens in encoder.token_vectors(sentences)]  # (1, T, D)
    return {name: torch.cat([POOLINGS[name](states, None) for states in hidden]).numpy() for name in PAPER_POOLINGS}


@dataclass(frozen=True)
class EncodedCorpus:
    """Sentences to search in and their vectors under the default model, not normalised."""

    sentences: list[str]
    vectors: np.ndarray  # (N, D) float32
    seconds: float
    measured_at: str


@lru_cache(maxsize=4)
def encode_corpus(models: ModelCache, home: Path, source: str) -> EncodedCorpus:
    """``source``: a key of `SENTENCES`. InputError if the model or the data cannot be loaded."""
    sentences = SENTENCES[source](home)
    encoder = models.encoder(DEFAULT_MODEL)
    started = time.perf_counter()
    vectors = encoder.encode(sentences, normalize=False)
    return EncodedCorpus(sentences, vectors, time.perf_counter() - started, time_of_day())


def _example_sentences(home: Path) -> list[str]:
    with CORPUS.open(encoding="utf-8", newline="") as file:
        return [row["sentence"] for row in csv.DictReader(file)]


def _stsb_sentences(home: Path) -> list[str]:
    first, second, _ = gold_sample(home, 500)
    return list(dict.fromkeys(sentence for pair in zip(first, second, strict=True) for sentence in pair))


SENTENCES: dict[str, Callable[[Path], list[str]]] = {"examples": _example_sentences, "stsb": _stsb_sentences}


def time_of_day() -> str:
    """The local time, to show when something was measured."""
    return time.strftime("%H:%M:%S")
