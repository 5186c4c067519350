"""What is measured while a run goes on: the eval data, and random pairs that show a collapse.

    spearman      rank correlation of cosine and gold score, -1..1, if the eval data has scores
    accuracy      share of triplets whose anchor is nearer to the positive by cosine, if it has triplets
    loss          the objective's own loss on the eval data, if that data has the form the objective needs
    alignment …   see `training.evaluation.diagnostics`; ``collapsed`` is null or the reason in words

One `encode` covers all sentences of an evaluation, in the precision that the finished model will be used in.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from training.data.load import SCORED, TRIPLETS, Dataset
from training.data.transforms import POSITIVE_FROM, transform_for
from training.errors import InputError
from training.evaluation.diagnostics import alignment, collapsed, diagnose, plain_sentences
from training.evaluation.metrics import cosine, spearman
from training.models.encoder import Encoder
from training.objectives import OBJECTIVES
from training.trainer.config import RunConfig

RANDOM_SENTENCES = 256  # drawn from the training data: 32,640 pairs

Figures = dict[str, Any]
HIGHER_IS_BETTER = {"spearman": True, "accuracy": True, "loss": False}  # the first that is there selects the best


class Evaluator:
    """Measures an encoder, always on the same sentences.

    Args:
        config: of the run.
        training: the data that the run learns from, as the objective sees it.
        data: the eval data as it is, or None.
    """

    def __init__(self, config: RunConfig, training: Dataset, data: Dataset | None) -> None:
        self.batch_size = config.batch_size
        self.data = data
        self.for_loss = _for_loss(config, training, data)
        sentences = list(dict.fromkeys(text for column in training.columns for text in column))
        draw = random.Random(config.seed)
        self.random = draw.sample(sentences, min(RANDOM_SENTENCES, len(sentences)))
        self.plain = plain_sentences()
        parts = [*self._columns(data), *self._columns(self.for_loss), self.random, self.plain]
        self.sentences = list(dict.fromkeys(text for part in parts for text in part))
        self._row = {text: row for row, text in enumerate(self.sentences)}

    def measure(self, encoder: Encoder, objective: nn.Module, should_stop: Callable[[], bool] | None = None) -> Figures:
        """The figures of an evaluation. `Stopped` if ``should_stop`` says so."""
        vectors = encoder.encode(self.sentences, normalize=False, should_stop=should_stop)
        figures: Figures = {}
        if self.data is not None:
            figures |= _compare(self.data, [self._at(vectors, column) for column in self.data.columns])
        if self.for_loss is not None:
            figures["loss"] = self._loss(vectors, self.for_loss, objective)
        figures |= diagnose(self._at(vectors, self.random), self._at(vectors, self.plain))
        figures["collapsed"] = collapsed(figures)
        return figures

    def _at(self, vectors: np.ndarray, column: Sequence[str]) -> np.ndarray:
        return vectors[[self._row[text] for text in column]]

    @torch.no_grad()
    def _loss(self, vectors: np.ndarray, data: Dataset, objective: nn.Module) -> float:
        """The mean over the rows of the objective's loss, in batches as large as in training."""
        place = next(objective.parameters(), torch.empty(0)).device
        columns = [torch.from_numpy(self._at(vectors, column)).to(place) for column in data.columns]
        truth = targets(data)
        total = 0.0
        for start in range(0, len(data), self.batch_size):
            rows = slice(start, start + self.batch_size)
            target = None if truth is None else truth[rows].to(place)
            total += float(objective([column[rows] for column in columns], target)) * len(columns[0][rows])
        return total / len(data)

    @staticmethod
    def _columns(data: Dataset | None) -> tuple[list[str], ...]:
        return () if data is None else data.columns


def selection_metric(figures: Figures) -> tuple[str, float] | None:
    """The figure by which checkpoints are compared and its value turned so that more is better; None without."""
    for name, higher in HIGHER_IS_BETTER.items():
        if figures.get(name) is not None:
            return name, figures[name] if higher else -figures[name]
    return None


def targets(data: Dataset) -> torch.Tensor | None:
    """What the objective compares with: labels as int64, gold scores as float32 in 0–1, or nothing."""
    if data.labels is not None:
        return torch.tensor(data.labels)
    return None if data.scores is None else torch.tensor(data.scores, dtype=torch.float32) / 5


def _for_loss(config: RunConfig, training: Dataset, data: Dataset | None) -> Dataset | None:
    """The eval data as the objective sees it, or None where its loss there would mean something else."""
    if data is None:
        return None
    try:
        seen = transform_for(data, config.objective, config.seed)
    except InputError:
        return None
    if OBJECTIVES[config.objective].target == "labels" and seen.label_names != training.label_names:
        return None
    return seen if len(seen.columns) == len(training.columns) else None


def _compare(data: Dataset, columns: list[np.ndarray]) -> Figures:
    if data.kind == SCORED:
        gold = np.asarray(data.scores)
        near = gold >= POSITIVE_FROM
        found: Figures = {"spearman": spearman(cosine(columns[0], columns[1]), gold)}
        return found | ({"alignment": alignment(columns[0][near], columns[1][near])} if near.any() else {})
    if data.kind == TRIPLETS:
        nearer = cosine(columns[0], columns[1]) > cosine(columns[0], columns[2])
        return {"accuracy": float(nearer.mean()), "alignment": alignment(columns[0], columns[1])}
    return {}
