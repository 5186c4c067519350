"""Objectives that learn from a teacher: a bi-encoder's vectors, or the scores of a bi-encoder or cross-encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from training.data.transforms import ANY_ROWS, TRIPLET_ROWS
from training.objectives.base import TEACHER_MARGINS, TEACHER_OUTPUT, Objective, Vectors, required
from training.similarities import SIMILARITIES

if TYPE_CHECKING:
    from torch import Tensor


class MeanSquaredError(Objective):
    """The vectors or the cosines of a teacher: mean over the batch and the columns of (u - teacher's u)².

    Inputs: any number of columns, (B, D) each. Labels: the teacher's vectors, float (B, columns, D); or, for two
    columns, a teacher's scores of the pairs, float (B,), which the cosine has to equal: (cos(u, v) - score)².
    Source: Reimers & Gurevych 2020, "Making Monolingual Sentence Embeddings Multilingual using Knowledge
    Distillation", equation 1; `MSELoss` in sentence-transformers. Of scores: Thakur et al. 2021, "Augmented SBERT",
    where a cross-encoder labels pairs; `CosineSimilarityLoss` in sentence-transformers.
    """

    name = "mse"
    equation = "(u − teacher’s u)², or (cos(u, v) − teacher’s score)²"
    help = "a teacher’s vectors (bi-encoder) or its scores of pairs (cross-encoder)"
    rows = ANY_ROWS
    target = TEACHER_OUTPUT
    takes_output = True

    def __call__(self, vectors: Vectors, target: Tensor | None = None) -> Tensor:
        import torch
        import torch.nn.functional as F

        target = required(target).to(vectors[0].dtype)
        if target.ndim == 1:
            u, v = vectors
            return F.mse_loss(F.cosine_similarity(u, v), target)
        return F.mse_loss(torch.stack(list(vectors), dim=1), target)


@dataclass(eq=False)
class MarginMSE(Objective):
    """A teacher's margin between positive and negative: mean over the batch of (s(a, p) - s(a, n) - margin)².

    Inputs: anchor, positive, negative, (B, D) each. Labels: the teacher's score of (a, p) minus that of (a, n),
    float (B,).
    Source: Hofstätter et al. 2020, "Improving Efficient Neural Ranking Models with Cross-Architecture Knowledge
    Distillation", section 3.2; `MarginMSELoss` in sentence-transformers.

    Args:
        similarity: s, one of `training.similarities.SIMILARITIES`, "dot" as in the paper.
    """

    name = "margin-mse"
    equation = "(s(a, p) − s(a, n) − teacher’s margin)²"
    help = "a teacher’s margin between positive and negative"
    rows = TRIPLET_ROWS
    target = TEACHER_MARGINS
    fields = ("margin_similarity",)
    can_mine_negatives = True
    takes_output = True
    similarity: str = "dot"

    def __call__(self, vectors: Vectors, target: Tensor | None = None) -> Tensor:
        import torch.nn.functional as F

        anchor, positive, negative = vectors
        similarity = SIMILARITIES[self.similarity].tensor_rows
        margin = similarity(anchor, positive) - similarity(anchor, negative)
        return F.mse_loss(margin, required(target).to(margin.dtype))
