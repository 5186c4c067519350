"""Lesson 3: seven softmax heads on frozen vectors. What can each learn from its concatenation of u and v?

The labels are the terciles of STSb's gold scores. Only the head is trained (L-BFGS with weight decay, initialised with
zeros, so without a seed), on pairs of STSb train, and tested on pairs of the lessons' data. A head over (u, v) is the
sum of a function of u and a function of v: it cannot represent their agreement and can only memorise sentences, which
the two accuracies show. Paper: section 3 and Table 6, where the encoder is trained through the head.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from sbert_app.services.lessons.sample import sample_rows
from sbert_app.services.lessons.setup import STANDARD, Setup

if TYPE_CHECKING:
    from torch import Tensor

    from sbert_app.services.models.cache import ModelCache

TEST_PAIRS = 200
WEIGHT_DECAY = 0.03
STEPS = 12  # of L-BFGS


@dataclass(frozen=True)
class Head:
    """One concatenation. Accuracies in 0..1."""

    concatenation: str
    seen: float  # on its training pairs
    unseen: float  # on the test pairs


@dataclass(frozen=True)
class Heads:
    """All seven, and the accuracy of always predicting the most frequent label."""

    rows: list[Head]
    chance: float
    train_pairs: int
    encode_seconds: float
    train_seconds: float


@dataclass(frozen=True)
class LabelledVectors:
    """u and v (N, D) with components of variance one, and the label of each pair (N,) int64."""

    u: Tensor
    v: Tensor
    labels: Tensor
    seconds: float


def measure(models: ModelCache, home: Path, train_pairs: int, setup: Setup = STANDARD) -> Heads:
    """Train and test the seven heads. InputError if the benchmark or the model cannot be loaded."""
    from training.objectives import CONCATENATIONS

    train = _vectors(models, home, "stsb:train", train_pairs, setup)
    test = _vectors(models, home, setup.data, TEST_PAIRS, setup)
    started = time.perf_counter()
    rows = [_head(name, train, test) for name in CONCATENATIONS]
    chance = float(test.labels.bincount().max() / len(test.labels))
    return Heads(rows, chance, len(train.labels), train.seconds + test.seconds, time.perf_counter() - started)


def _head(concatenation: str, train: LabelledVectors, test: LabelledVectors) -> Head:
    import torch
    import torch.nn.functional as F

    from training.objectives import concatenate

    x, y = (concatenate(of.u, of.v, concatenation) for of in (train, test))
    mean = x.mean(dim=0)
    x, y = x - mean, y - mean
    weight = torch.zeros(x.shape[1], 3, requires_grad=True)
    bias = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = F.cross_entropy(x @ weight + bias, train.labels) + WEIGHT_DECAY * weight.square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    with torch.no_grad():
        accuracies = [
            float(((features @ weight + bias).argmax(dim=1) == of.labels).float().mean())
            for features, of in ((x, train), (y, test))
        ]
    return Head(concatenation, *accuracies)


@lru_cache(maxsize=8)
def _vectors(models: ModelCache, home: Path, data: str, pairs: int, setup: Setup) -> LabelledVectors:
    import torch

    from training.data.transforms import training_data

    dataset = training_data(data, "classification", home=home)
    rows = sample_rows(len(dataset), pairs, setup.seed)
    first, second = ([column[row] for row in rows] for column in dataset.columns)
    encoder = models.encoder(setup.model)
    started = time.perf_counter()
    vectors = torch.from_numpy(encoder.encode([*first, *second]) * encoder.dimension**0.5)
    seconds = time.perf_counter() - started
    labels = torch.tensor([(dataset.labels or ())[row] for row in rows])
    return LabelledVectors(vectors[: len(rows)], vectors[len(rows) :], labels, seconds)
