"""The targets of the objective: labels and gold scores of the data, or the output of a teacher.

A teacher is a bi-encoder or a cross-encoder. All targets are computed once, before the first step.
Vectors with more dimensions than the student's are projected by PCA, fitted to the teacher's
vectors of the training data, as in the model distillation of sentence-transformers.
"""

import logging
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training.data.dataset import Dataset, folded
from training.data.gold import TOP_SCORE
from training.errors import InputError
from training.evaluation.scoring import row_scores
from training.models.encoder import Encoder
from training.models.model import PairModel, VectorModel, open_model
from training.models.texts import numbered
from training.objectives.base import TEACHER_MARGINS, TEXTS, names
from training.progress import ShouldStop
from training.trainer.config import RunConfig

log = logging.getLogger("sbert_lab.train")


@dataclass(frozen=True)
class Targets:
    """The targets of N rows."""

    # (N,) labels or scores; (N, C) numbers of texts; or (S, D) vectors of S sentences
    values: Tensor
    # (N, C) int64: the row of ``values`` for each sentence; None: a value for each row
    sentences: Tensor | None = None

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """Returns the targets of these rows: (B,), or vectors (B, C, D)."""
        if self.sentences is None:
            return self.values[rows]
        return self.values[self.sentences[rows]]


@dataclass(frozen=True)
class Examples:
    """Rows in the form that the objective needs, with their targets."""

    data: Dataset
    targets: Targets | None = None
    # The number of the part of the run that the rows belong to.
    part: int = 0


def own_targets(data: Dataset, target: str | None = None) -> Examples:
    """Adds the targets of the data itself: labels int64, or gold scores float32 from 0 to 1.

    If the target is `TEXTS`, adds a number for each text. Texts that differ only in case or white
    space have the same number.
    """
    if target == TEXTS:
        _, inverse = numbered(map(folded, chain.from_iterable(data.columns)))
        return Examples(data, Targets(_by_row(inverse, data)))
    if data.labels is not None:
        return Examples(data, Targets(torch.tensor(data.labels)))
    if data.scores is not None:
        scores = torch.tensor(data.scores, dtype=torch.float32)
        return Examples(data, Targets(scores / TOP_SCORE))
    return Examples(data)


class Teacher:
    """The teacher of a run. Its vectors, scores or margins are the targets of the encoder ``student``.

    ``target`` is `TEACHER_OUTPUT` or `TEACHER_MARGINS`. InputError if the model cannot be opened.
    """

    def __init__(
        self,
        config: RunConfig,
        student: Encoder,
        target: str | None,
        home: str | Path | None,
        should_stop: ShouldStop,
    ) -> None:
        self.name = str(config.teacher)
        self.similarity = config.margin_similarity
        self.target = target
        self.should_stop = should_stop
        self.normalizes = student.normalizes
        # The dimension of the student's vectors, D.
        self.dimension = student.dimension
        # Loading the teacher must not change the random numbers of the run.
        with torch.random.fork_rng(devices=[]):
            self.model = open_model(
                self.name, dtype=config.dtype, device=str(student.device), home=home
            )
        if not isinstance(self.model, VectorModel | PairModel):
            raise InputError(
                f"{self.name} cannot be a teacher; name a cross-encoder such as minilm-stsb, or a bi-encoder"
            )
        # (teacher's dimension, D), the PCA; None before the first call of `label`, and if the vectors
        # of the teacher are as short as the student's.
        self._projection: np.ndarray | None = None

    def label(self, data: Dataset) -> Examples:
        """Adds the teacher's targets to rows, with a note. InputError if it cannot compute them for rows of this form.

        The first call must be for the training data, which PCA is fitted to.
        """
        log.info("the teacher %s computes the targets of %d rows", self.name, len(data))
        is_margin = self.target == TEACHER_MARGINS
        if isinstance(self.model, VectorModel) and not is_margin:
            return self._with_vectors(self.model, data)
        if len(data.columns) != 2 and not is_margin:
            learn_margins = names(lambda objective: objective.target == TEACHER_MARGINS)
            raise InputError(
                f"{self.name} is a cross-encoder, which scores pairs, but {data.name} holds {data.kind}; "
                f"take a bi-encoder as the teacher, or {' or '.join(learn_margins)} for triplets"
            )
        # The columns that are compared. A margin is the difference of two similarities.
        pairs = ((0, 1), (0, 2)) if is_margin else ((0, 1),)
        similarities = row_scores(self.model, data.columns, pairs, should_stop=self.should_stop)
        # A bi-encoder has several similarities. The student learns margins of the one that the config
        # names, by which its own margins are computed.
        similarity = self.similarity
        if isinstance(self.model, PairModel):
            # A `PairModel` has one similarity, the only key.
            [similarity] = similarities[0]
        scores = [np.ascontiguousarray(part[similarity], np.float32) for part in similarities]
        kind = "scores"
        values = scores[0]
        if is_margin:
            kind = "margins"
            values = scores[0] - scores[1]
        note = f"targets are the {kind} of {self.name}"
        return Examples(data.with_note(note), Targets(torch.from_numpy(values)))

    def _with_vectors(self, model: VectorModel, data: Dataset) -> Examples:
        """Adds the teacher's vectors as targets, projected if they have more dimensions than the student's."""
        distinct, inverse = numbered(chain.from_iterable(data.columns))
        # (S, teacher's dimension). With None the teacher's folder decides whether they have length
        # 1.
        vectors = model.encode(distinct, normalize=None, should_stop=self.should_stop)
        note = f"targets are the vectors of {self.name}"
        width = vectors.shape[1]
        if width < self.dimension:
            raise InputError(
                f"the vectors of the teacher {self.name} have {width} dimensions, fewer than the {self.dimension} of "
                "the base; choose a larger teacher or a smaller base"
            )
        if width > self.dimension:
            if self._projection is None:
                # The directions of largest variance, as columns (teacher's dimension, D). eigh
                # sorts ascending.
                _, directions = np.linalg.eigh(np.cov(vectors.astype(np.float64), rowvar=False))
                self._projection = directions[:, ::-1][:, : self.dimension].astype(np.float32)
            projected = vectors @ self._projection
            share = projected.var(axis=0).sum() / vectors.var(axis=0).sum()
            vectors = projected
            note += f", projected from {width} to {self.dimension} dimensions by PCA ({share:.1%} of their variance)"
        values = torch.from_numpy(np.ascontiguousarray(vectors))
        # The vectors of a student that normalises have length 1, so the targets get this length too.
        if self.normalizes:
            values = torch.nn.functional.normalize(values, dim=1)
        return Examples(data.with_note(note), Targets(values, _by_row(inverse, data)))


def _by_row(inverse: list[int], data: Dataset) -> Tensor:
    """Arranges the numbers of all texts, column after column, as (N, C) int64."""
    return torch.tensor(inverse).reshape(len(data.columns), len(data)).T.contiguous()
