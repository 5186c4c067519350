"""The targets of the objective: labels and gold scores of the data, or what a teacher says about its sentences.

A teacher is a bi-encoder or a cross-encoder. It computes once, before the first step; its targets are looked up
afterwards. A bi-encoder's vectors are kept for each different sentence. Where they have more dimensions than the
student's, they are projected to as many by PCA of the teacher's vectors of the training data, as in the model
distillation of sentence-transformers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor

from training.data.dataset import Dataset, folded
from training.errors import InputError
from training.evaluation.scoring import row_scores
from training.models.scorer import ENCODER, kind_of, load_scorer
from training.objectives.base import TEACHER_MARGINS, TEXTS, Objective, names

if TYPE_CHECKING:
    from training.models.encoder import Encoder
    from training.trainer.config import RunConfig

log = logging.getLogger("sbert_lab.train")

ShouldStop = Callable[[], bool]


@dataclass(frozen=True)
class Targets:
    """The targets of N rows."""

    values: Tensor  # (N,) labels or scores; (N, C) numbers of texts; or (S, D) vectors of S sentences
    sentences: Tensor | None = None  # (N, C) int64: the row of ``values`` of each sentence; None: a value for each row

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """Of these rows: (B,), or vectors (B, C, D)."""
        return self.values[rows] if self.sentences is None else self.values[self.sentences[rows]]


def data_targets(data: Dataset, objective: type[Objective]) -> Targets | None:
    """Labels as int64, gold scores as float32 in 0 to 1, numbers of the texts if the objective takes them, or None."""
    if objective.target == TEXTS:
        number: dict[str, int] = {}
        texts = [[number.setdefault(folded(text), len(number)) for text in column] for column in data.columns]
        return Targets(torch.tensor(texts).T.contiguous())
    if data.labels is not None:
        return Targets(torch.tensor(data.labels))
    return None if data.scores is None else Targets(torch.tensor(data.scores, dtype=torch.float32) / 5)


class Teacher:
    """A model whose vectors, scores or margins are the targets. InputError if it cannot be opened."""

    def __init__(
        self, config: RunConfig, student: Encoder, home: str | Path | None, should_stop: ShouldStop | None = None
    ) -> None:
        self.name, dtype, self.similarity = str(config.teacher), config.dtype, config.margin_similarity
        self.target, self.should_stop = config.objective_class.target, should_stop
        self.normalizes = student.normalizes
        self.dimension = student.dimension
        with torch.random.fork_rng(devices=[]):  # what it takes to load it does not change the run
            self.model = load_scorer(self.name, None, dtype, str(student.device), home)
        if kind_of(self.name) != ENCODER and hasattr(self.model, "encode"):
            raise InputError(
                f"{self.name} cannot be a teacher; name a cross-encoder such as minilm-stsb, or a bi-encoder"
            )
        self._projection: np.ndarray | None = None  # (teacher's dimension, D)

    def targets(self, data: Dataset) -> tuple[Targets, str]:
        """The targets of the rows, and a note on them.

        The first call has to be with the training data: PCA is fitted to it.

        Raises:
            InputError: the teacher cannot give this kind of target for these rows.
            Stopped: ``should_stop`` returned true.
        """
        log.info("the teacher %s computes the targets of %d rows", self.name, len(data))
        is_margin = self.target == TEACHER_MARGINS
        if hasattr(self.model, "encode") and not is_margin:
            return self._vectors(data)
        if len(data.columns) != 2 and not is_margin:
            learn_margins = names(lambda objective: objective.target == TEACHER_MARGINS)
            raise InputError(
                f"{self.name} is a cross-encoder, which scores pairs, but {data.name} holds {data.kind}; "
                f"take a bi-encoder as the teacher, or {' or '.join(learn_margins)} for triplets"
            )
        pairs = ((0, 1), (0, 2)) if is_margin else ((0, 1),)
        found = row_scores(self.model, data.columns, pairs, should_stop=self.should_stop)
        # Of a bi-encoder the scores that the student is compared by.
        name = self.similarity if hasattr(self.model, "encode") else next(iter(found[0]))
        scores = [torch.from_numpy(np.ascontiguousarray(each[name], dtype=np.float32)) for each in found]
        values, what = (scores[0] - scores[1], "margins") if is_margin else (scores[0], "scores")
        return Targets(values), f"targets are the {what} of {self.name}"

    def _vectors(self, data: Dataset) -> tuple[Targets, str]:
        row_of: dict[str, int] = {}
        rows = [[row_of.setdefault(text, len(row_of)) for text in column] for column in data.columns]
        encoder = cast("Encoder", self.model)
        vectors = encoder.encode(list(row_of), normalize=None, should_stop=self.should_stop)
        note, wide = f"targets are the vectors of {self.name}", vectors.shape[1]
        if wide < self.dimension:
            raise InputError(
                f"the vectors of the teacher {self.name} have {wide} dimensions, fewer than the {self.dimension} of "
                "the base; choose a larger teacher or a smaller base"
            )
        if wide > self.dimension:
            if self._projection is None:
                # The directions of largest variance, as columns (teacher's dimension, D).
                _, directions = np.linalg.eigh(np.cov(vectors.astype(np.float64), rowvar=False))
                self._projection = directions[:, ::-1][:, : self.dimension].astype(np.float32)
            projected = vectors @ self._projection
            kept = projected.var(axis=0).sum() / vectors.var(axis=0).sum()
            vectors = projected
            note += f", projected from {wide} to {self.dimension} dimensions by PCA ({kept:.1%} of their variance)"
        values = torch.from_numpy(np.ascontiguousarray(vectors))
        if self.normalizes:
            values = torch.nn.functional.normalize(values, dim=1)
        return Targets(values, torch.tensor(rows).T.contiguous()), note
