"""The targets of the objective: labels and gold scores of the data, or the output of a teacher.

A teacher is a bi-encoder or a cross-encoder. It computes once, before the first step, and its targets are looked up
afterwards: the vectors of a bi-encoder by sentence. Where they have more dimensions than the student's, they are
projected to as many by PCA of the teacher's vectors of the training data, as in the model distillation of
sentence-transformers.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training.data.dataset import Dataset, folded
from training.errors import InputError
from training.evaluation.scoring import row_scores
from training.models.encoder import Encoder
from training.models.model import PairModel, VectorModel, open_model
from training.objectives.base import TEACHER_MARGINS, TEXTS, names
from training.progress import ShouldStop
from training.trainer.config import RunConfig

log = logging.getLogger("sbert_lab.train")


@dataclass(frozen=True)
class Targets:
    """The targets of N rows."""

    values: Tensor  # (N,) labels or scores; (N, C) numbers of texts; or (S, D) vectors of S sentences
    sentences: Tensor | None = None  # (N, C) int64: the row of ``values`` of each sentence; None: a value for each row

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """The targets of these rows: (B,), or vectors (B, C, D)."""
        return self.values[rows] if self.sentences is None else self.values[self.sentences[rows]]


@dataclass(frozen=True)
class Examples:
    """Rows in the form that the objective needs, with their targets."""

    data: Dataset
    targets: Targets | None = None
    # The number of the part of the run that the rows belong to.
    part: int = 0


def own_targets(data: Dataset, target: str | None = None) -> Examples:
    """The rows with labels as int64, gold scores as float32 in 0 to 1, if there are any, or numbers of `TEXTS`."""
    if target == TEXTS:
        number: dict[str, int] = {}
        texts = [[number.setdefault(folded(text), len(number)) for text in column] for column in data.columns]
        return Examples(data, Targets(torch.tensor(texts).T.contiguous()))
    if data.labels is not None:
        return Examples(data, Targets(torch.tensor(data.labels)))
    scores = None if data.scores is None else Targets(torch.tensor(data.scores, dtype=torch.float32) / 5)
    return Examples(data, scores)


class Teacher:
    """The teacher of a config, whose vectors, scores or margins are the targets of the encoder ``student``.

    ``target`` is `TEACHER_OUTPUT` or `TEACHER_MARGINS`. InputError if the model cannot be opened.
    """

    def __init__(
        self, config: RunConfig, student: Encoder, target: str | None, home: str | Path | None, should_stop: ShouldStop
    ) -> None:
        self.name = name = str(config.teacher)
        self.similarity = config.margin_similarity
        self.target = target
        self.should_stop = should_stop
        self.normalizes = student.normalizes
        self.dimension = student.dimension
        # Loading the teacher must not change the random numbers of the run.
        with torch.random.fork_rng(devices=[]):
            self.model = open_model(name, None, config.dtype, str(student.device), home)
        if not isinstance(self.model, VectorModel | PairModel):
            raise InputError(f"{name} cannot be a teacher; name a cross-encoder such as minilm-stsb, or a bi-encoder")
        self._projection: np.ndarray | None = None  # (teacher's dimension, D)

    def label(self, data: Dataset) -> Examples:
        """Rows with the teacher's targets, and a note on these. InputError if it cannot give this kind for these rows.

        The first call has to be with the training data: PCA is fitted to it.
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
        pairs = ((0, 1), (0, 2)) if is_margin else ((0, 1),)
        similarities = row_scores(self.model, data.columns, pairs, should_stop=self.should_stop)
        # The scores of a bi-encoder are those that the student is compared by.
        name = self.similarity if isinstance(self.model, VectorModel) else next(iter(similarities[0]))
        scores = [torch.from_numpy(np.ascontiguousarray(part[name], dtype=np.float32)) for part in similarities]
        values, kind = (scores[0] - scores[1], "margins") if is_margin else (scores[0], "scores")
        return Examples(data.with_note(f"targets are the {kind} of {self.name}"), Targets(values))

    def _with_vectors(self, model: VectorModel, data: Dataset) -> Examples:
        row_of: dict[str, int] = {}
        rows = [[row_of.setdefault(text, len(row_of)) for text in column] for column in data.columns]
        vectors = model.encode(list(row_of), None, should_stop=self.should_stop)
        note = f"targets are the vectors of {self.name}"
        wide = vectors.shape[1]
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
            share = projected.var(axis=0).sum() / vectors.var(axis=0).sum()
            vectors = projected
            note += f", projected from {wide} to {self.dimension} dimensions by PCA ({share:.1%} of their variance)"
        values = torch.from_numpy(np.ascontiguousarray(vectors))
        if self.normalizes:
            values = torch.nn.functional.normalize(values, dim=1)
        return Examples(data.with_note(note), Targets(values, torch.tensor(rows).T.contiguous()))
