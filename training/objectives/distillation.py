"""Objectives that learn from a teacher: a bi-encoder's vectors, or the scores of a bi-encoder or cross-encoder."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.objectives.base import Vectors, required

SIMILARITIES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "dot": lambda u, v: (u * v).sum(dim=1),
    "cosine": lambda u, v: F.cosine_similarity(u, v),
}


class MeanSquaredError(nn.Module):
    """The vectors or the cosines of a teacher: mean over the batch and the columns of (u - teacher's u)².

    Inputs: any number of columns, (B, D) each. Labels: the teacher's vectors, float (B, columns, D); or, for two
    columns, a teacher's scores of the pairs, float (B,), which the cosine has to equal: (cos(u, v) - score)².
    Source: Reimers & Gurevych 2020, "Making Monolingual Sentence Embeddings Multilingual using Knowledge
    Distillation", equation 1; `MSELoss` in sentence-transformers. Of scores: Thakur et al. 2021, "Augmented SBERT",
    where a cross-encoder labels pairs; `CosineSimilarityLoss` in sentence-transformers.
    """

    def forward(self, vectors: Vectors, target: Tensor | None) -> Tensor:
        target = required(target).to(vectors[0].dtype)
        if target.ndim == 1:
            u, v = vectors
            return F.mse_loss(F.cosine_similarity(u, v), target)
        return F.mse_loss(torch.stack(list(vectors), dim=1), target)


class MarginMSE(nn.Module):
    """A teacher's margin between positive and negative: mean over the batch of (s(a, p) - s(a, n) - margin)².

    Inputs: anchor, positive, negative, (B, D) each. Labels: the teacher's score of (a, p) minus that of (a, n),
    float (B,).
    Source: Hofstätter et al. 2020, "Improving Efficient Neural Ranking Models with Cross-Architecture Knowledge
    Distillation", section 3.2; `MarginMSELoss` in sentence-transformers.

    Args:
        similarity: s, "dot" as in the paper, or "cosine". They are the same for vectors of length 1.
    """

    def __init__(self, similarity: str = "dot") -> None:
        super().__init__()
        self.similarity = SIMILARITIES[similarity]

    def forward(self, vectors: Vectors, target: Tensor | None) -> Tensor:
        anchor, positive, negative = vectors
        margin = self.similarity(anchor, positive) - self.similarity(anchor, negative)
        return F.mse_loss(margin, required(target).to(margin.dtype))
