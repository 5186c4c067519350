"""Lesson 9: why the cosines of some models crowd near 1. The temperature of a contrastive objective.

InfoNCE (mnrl here, scale 1/τ) compares cosines only after a division by the temperature τ: a gap of a few τ satisfies
it, however close to 1 both cosines are. Models that start crowded, as a transformer does before it is trained, and are
trained with τ = 0.01, such as E5 (Wang et al. 2022), therefore stay crowded.

Here one linear layer is trained on frozen vectors, once for each temperature: from the identity, with Adam, on pairs of
STSb train whose gold score is 4 or more. What it starts from is crowded (a transformer with random weights) or spread
(the lessons' model).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sbert_app.services.lessons.collapse import SIMILAR_FROM
from sbert_app.services.lessons.sample import encode_sample, gold_sample, sample_rows, time_of_day
from sbert_app.services.lessons.setup import STANDARD, Setup
from sbert_app.services.lessons.without_tuning import RANDOM_WEIGHTS

if TYPE_CHECKING:
    from torch import Tensor

    from sbert_app.services.models.cache import ModelCache

TEMPERATURES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
STARTS = ("random", "trained")  # random weights; the setup's model
TRAIN_PAIRS = 512
TEST_PAIRS = 200
BATCH = 64
STEPS = 60
LEARNING_RATE = 2e-3
HIGH = 0.7  # from where the cosines of E5 are said to begin


@dataclass(frozen=True)
class Trained:
    """The cosines of the test pairs after training with one temperature; None: before training."""

    temperature: float | None
    rho: float  # Spearman ×100 between cosine and gold score
    random: np.ndarray  # cosines of sentences of different pairs
    similar: np.ndarray  # cosines of pairs with a gold score of 4 or more

    @property
    def share_high(self) -> float:
        """The share of random pairs whose cosine is above `HIGH`."""
        return float((self.random > HIGH).mean())


@dataclass(frozen=True)
class Crowding:
    """Before training, and after training with each of `TEMPERATURES`."""

    before: Trained
    after: list[Trained]
    train_pairs: int
    test_pairs: int
    data: str
    seconds: float  # of all trainings
    measured_at: str


@lru_cache(maxsize=4)
def measure(models: ModelCache, home: Path, start: str, setup: Setup = STANDARD) -> Crowding:
    """Train once for each temperature. ``start``: one of `STARTS`. InputError if model or data cannot be loaded."""
    import torch

    model = RANDOM_WEIGHTS if start == "random" else setup.model
    anchors, positives = _training_vectors(models, home, model, setup)
    sample = encode_sample(models, home, model, TEST_PAIRS, setup)
    tests = sample.by_pooling["mean"]
    started = time.perf_counter()
    after = []
    for temperature in TEMPERATURES:
        weight = _train(torch.from_numpy(anchors), torch.from_numpy(positives), temperature, setup.seed)
        first, second = (vectors @ weight.numpy().T for vectors in tests)
        after.append(_cosines(temperature, first, second, sample.gold))
    seconds = time.perf_counter() - started
    before = _cosines(None, *tests, sample.gold)
    return Crowding(before, after, len(anchors), len(sample.gold), sample.data, seconds, time_of_day())


def _train(anchors: Tensor, positives: Tensor, temperature: float, seed: int) -> Tensor:
    """A weight (D, D) from the identity: InfoNCE over batches of pairs, (N, D) each."""
    import torch
    import torch.nn.functional as F

    from training.objectives import MultipleNegativesRanking

    objective = MultipleNegativesRanking(scale=1 / temperature)
    weight = torch.eye(anchors.shape[1], requires_grad=True)
    optimizer = torch.optim.Adam([weight], lr=LEARNING_RATE)
    random = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        rows = torch.randperm(len(anchors), generator=random)[:BATCH]
        optimizer.zero_grad()
        objective([F.linear(anchors[rows], weight), F.linear(positives[rows], weight)]).backward()
        optimizer.step()
    return weight.detach()


def _cosines(temperature: float | None, first: np.ndarray, second: np.ndarray, gold: np.ndarray) -> Trained:
    from training.evaluation.diagnostics import unit
    from training.evaluation.metrics import cosine, spearman

    directions = unit(first)
    pairs = cosine(first, second)
    random = (directions @ directions.T)[np.triu_indices(len(first), k=1)]
    return Trained(temperature, 100 * spearman(pairs, gold), random, pairs[gold >= SIMILAR_FROM])


@lru_cache(maxsize=4)
def _training_vectors(models: ModelCache, home: Path, model: str, setup: Setup) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of pairs of STSb train that mean about the same, (N, D) float32 each, not normalised."""
    everything = gold_sample(home, 1_000_000, Setup(model, "stsb:train"))
    similar = np.flatnonzero(everything.gold >= SIMILAR_FROM)
    rows = similar[sample_rows(len(similar), TRAIN_PAIRS, setup.seed)]
    sentences = [column[row] for column in (everything.first, everything.second) for row in rows]
    first, second = np.split(models.encoder(model).encode(sentences, normalize=False), 2)
    return first, second
