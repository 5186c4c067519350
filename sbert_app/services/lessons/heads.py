"""Lesson 3: seven softmax heads on frozen vectors. What can each learn from what it is shown of u and v?

The labels are the thirds of STSb's gold scores. Only the head is trained (L-BFGS, a little weight decay, from zero, so
that there is no seed), on pairs of STSb train; it is asked about pairs of STSb dev. A head over (u, v) is a sum of a
score for u and a score for v, so it cannot ask whether they agree, and can only learn sentences by heart: what it saw
and what it did not are measured apart. Paper: section 3 and Table 6, where the encoder is trained through the head.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from training.registry import DEFAULT_MODEL

if TYPE_CHECKING:
    from torch import Tensor

    from sbert_app.services.models.cache import ModelCache

TEST_PAIRS = 200
WEIGHT_DECAY = 0.03
STEPS = 12  # of L-BFGS


@dataclass(frozen=True)
class Head:
    """One concatenation. Shares of right labels, 0..1."""

    concatenation: str
    seen: float  # on the pairs that it was trained on
    unseen: float


@dataclass(frozen=True)
class Heads:
    """All seven, and what answering with the most frequent label would give."""

    rows: list[Head]
    chance: float
    train_pairs: int
    encode_seconds: float
    train_seconds: float


@dataclass(frozen=True)
class LabelledVectors:
    """u and v (N, D) with coordinates of variance one, and the label of each pair (N,) int64."""

    u: Tensor
    v: Tensor
    labels: Tensor
    seconds: float


def measure(shelf: ModelCache, home: Path, train_pairs: int) -> Heads:
    """Train and test the seven heads. InputError if the benchmark or the model cannot be had."""
    from training.objectives import CONCATENATIONS

    train = _vectors(shelf, home, "stsb:train", train_pairs)
    test = _vectors(shelf, home, "stsb:dev", TEST_PAIRS)
    started = time.perf_counter()
    rows = [_head(name, train, test) for name in CONCATENATIONS]
    chance = float(test.labels.bincount().max() / len(test.labels))
    return Heads(rows, chance, len(train.labels), train.seconds + test.seconds, time.perf_counter() - started)


def _head(concatenation: str, train: LabelledVectors, test: LabelledVectors) -> Head:
    import torch
    import torch.nn.functional as F

    from training.objectives import concatenate

    x, y = (concatenate(of.u, of.v, concatenation) for of in (train, test))
    middle = x.mean(dim=0)
    x, y = x - middle, y - middle
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
        right = [
            float(((features @ weight + bias).argmax(dim=1) == of.labels).float().mean())
            for features, of in ((x, train), (y, test))
        ]
    return Head(concatenation, *right)


@lru_cache(maxsize=8)
def _vectors(shelf: ModelCache, home: Path, data: str, pairs: int) -> LabelledVectors:
    import torch

    from training.data.transforms import training_data

    found = training_data(data, "classification", home=home)
    rows = np.linspace(0, len(found) - 1, min(pairs, len(found))).astype(int)
    first, second = ([column[row] for row in rows] for column in found.columns)
    encoder = shelf.encoder(DEFAULT_MODEL)
    started = time.perf_counter()
    vectors = torch.from_numpy(encoder.encode([*first, *second]) * encoder.dimension**0.5)
    seconds = time.perf_counter() - started
    labels = torch.tensor([(found.labels or ())[row] for row in rows])
    return LabelledVectors(vectors[: len(rows)], vectors[len(rows) :], labels, seconds)
