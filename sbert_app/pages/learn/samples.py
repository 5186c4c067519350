"""The data of the lessons: pairs with gold scores, from STSb dev unless a class has other data, and the example corpus.

A sample is taken at equal distances from the file, so it has the proportions of captions, news and
forums of the file and is always the same; a class may have a seed, which draws a sample instead.
Vectors are computed once for each model and sample, for all three poolings in one pass, and stored
with the time of day and the duration.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sbert_app.formats import format_count, format_duration
from sbert_app.pages.learn.lesson import DEFAULT_DATA, Context
from sbert_app.services.background.watch import Watch
from sbert_app.services.results.results import data_label
from training.catalogue import SCORED, asset
from training.data.load import load_data
from training.errors import InputError
from training.evaluation.metrics import spearman
from training.pooling import PAPER_POOLINGS, POOLINGS
from training.similarities import cosine

if TYPE_CHECKING:
    from training.models.tokenization import TokenVectors

# Pairs from this gold score on are similar.
SIMILAR_FROM = 4.0
# The sources of sentences to search in.
EXAMPLES = "examples"
DATA = "data"
# The number of pairs whose sentences are searched in the data.
CORPUS_PAIRS = 500
# The number of sentences between two progress reports.
CHUNK = 64
# An untrained transformer.
RANDOM_WEIGHTS = "scratch:6x384"


@dataclass
class Timed:
    """The duration of a block and its time of day: ``with Timed() as timed: …``, then f"encoded in {timed}"."""

    seconds: float = 0.0
    at: str = ""

    def __enter__(self) -> Timed:
        self.started = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self.started
        self.at = time.strftime("%H:%M:%S")

    def __str__(self) -> str:
        return f"{format_duration(self.seconds)} at {self.at}"


class GoldSample(NamedTuple):
    """Pairs of sentences with their gold scores, and the name of their data set."""

    first: list[str]
    second: list[str]
    gold: np.ndarray  # (N,) float64, 0–5
    data: str = DEFAULT_DATA

    @property
    def label(self) -> str:
        return f"{format_count(len(self.gold), 'pair')} of {data_label(self.data)}"


class EncodedSample(NamedTuple):
    """The vectors of a sample's sentences under three poolings, not normalised."""

    model: str
    pairs: GoldSample
    by_pooling: dict[str, tuple[np.ndarray, np.ndarray]]  # (N, D) float32 each
    timed: Timed

    def rho(self, pooling: str) -> float:
        """Spearman's ρ ×100 between cosine and gold score."""
        return rho(self.by_pooling[pooling], self.pairs.gold)


@lru_cache(maxsize=8)
def gold_sample(context: Context, pairs: int) -> GoldSample:
    """A sample of ``pairs`` pairs of the setup's data. InputError if it cannot be loaded or has no gold scores."""
    setup = context.setup
    # The split of a set is "dev" if its name does not state one.
    data = load_data(setup.data, context.runs.home, split="dev")
    if data.kind != SCORED:
        raise InputError(f"{setup.data} holds {data.kind}; the lessons need pairs with gold scores")
    rows = sample_rows(len(data), pairs, setup.seed)
    first, second = ([column[row] for row in rows] for column in data.columns)
    gold = np.asarray(data.scores, dtype=np.float64)[rows]
    return GoldSample(first, second, gold, setup.data)


def sample_rows(rows: int, count: int, seed: int) -> np.ndarray:
    """The numbers of at most ``count`` rows, ascending, int (count,): at equal distances with seed 0, else random."""
    count = min(count, rows)
    if seed == 0:
        return np.linspace(0, rows - 1, count).astype(int)
    return np.sort(np.random.default_rng(seed).choice(rows, count, replace=False))


@lru_cache(maxsize=12)
def encode_sample(context: Context, model: str, pairs: int) -> EncodedSample:
    """The vectors of a sample. InputError if the model or the data cannot be loaded."""
    # The import of torch takes seconds.
    import torch

    sample = gold_sample(context, pairs)
    encoder = context.encoder_of(model)
    sentences = [*sample.first, *sample.second]
    watch = encoding_stage(context, sentences, model)
    by_pooling = {}
    # One pass serves all poolings. Each sentence is pooled alone: its states are (1, T, D), and without
    # padding it needs no mask.
    with Timed() as timed:
        tokens: list[TokenVectors] = []
        for start in range(0, len(sentences), CHUNK):
            watch.check()
            tokens += encoder.token_vectors(sentences[start : start + CHUNK])
            watch.on_progress(len(tokens), len(sentences))
        hidden = [torch.from_numpy(vectors_of.hidden)[None] for vectors_of in tokens]
        for name in PAPER_POOLINGS:
            vectors = torch.cat([POOLINGS[name](states, None) for states in hidden]).numpy()
            by_pooling[name] = (vectors[: len(sample.first)], vectors[len(sample.first) :])
    return EncodedSample(encoder.name, sample, by_pooling, timed)


class EncodedCorpus(NamedTuple):
    """Sentences to search in, and their vectors, not normalised. ``data`` is the name of the setup's data set."""

    sentences: list[str]
    vectors: np.ndarray  # (N, D) float32
    timed: Timed
    data: str = DEFAULT_DATA


@lru_cache(maxsize=4)
def encode_corpus(context: Context, source: str) -> EncodedCorpus:
    """Sentences of the example corpus, or of the data. InputError if the model or the data cannot be loaded."""
    if source == EXAMPLES:
        with asset("examples/corpus.csv").open(encoding="utf-8", newline="") as file:
            sentences = [row["sentence"] for row in csv.DictReader(file)]
    else:
        sample = gold_sample(context, CORPUS_PAIRS)
        pairs = zip(sample.first, sample.second, strict=True)
        sentences = list(dict.fromkeys(chain.from_iterable(pairs)))
    encoder = context.encoder
    watch = encoding_stage(context, sentences, context.setup.model)
    with Timed() as timed:
        vectors = encoder.encode(
            sentences,
            normalize=False,
            on_progress=watch.on_progress,
            should_stop=watch.should_stop,
        )
    return EncodedCorpus(sentences, vectors, timed, context.setup.data)


def encoding_stage(context: Context, sentences: Sequence[str], model: str) -> Watch:
    """The watch of the stage in which a model encodes these sentences."""
    return context.watch.stage(f"Encoding {len(sentences)} sentences with {model}")


def rho(sides: Sequence[np.ndarray], gold: np.ndarray) -> float:
    """Spearman's ρ ×100 between the cosines of two sides, (N, D) each, and gold scores (N,)."""
    u, v = sides
    return 100 * spearman(cosine(u, v), gold)
