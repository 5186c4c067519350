"""Objectives without a target: what belongs together has to be nearer than what does not."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.objectives.base import Vectors

METRICS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "euclidean": lambda x, y: F.pairwise_distance(x, y, p=2),
    "cosine": lambda x, y: 1 - F.cosine_similarity(x, y),
    "manhattan": lambda x, y: F.pairwise_distance(x, y, p=1),
}


class Triplet(nn.Module):
    """Triplet loss: mean over the batch of max(d(a, p) - d(a, n) + margin, 0).

    Inputs: anchor, positive, negative, (B, D) each. Labels: none.
    Source: Reimers & Gurevych 2019, section 3, "Triplet Objective Function", with the Euclidean distance and a margin
    of 1; `TripletLoss` in sentence-transformers, whose margin is 5.

    Args:
        metric: the distance d, one of `METRICS`.
        margin: by how much the negative has to be further away, in units of d.
    """

    def __init__(self, metric: str = "euclidean", margin: float = 1.0) -> None:
        super().__init__()
        self.distance, self.margin = METRICS[metric], margin

    def forward(self, vectors: Vectors, target: Tensor | None = None) -> Tensor:
        anchor, positive, negative = vectors
        difference = self.distance(anchor, positive) - self.distance(anchor, negative)
        return F.relu(difference + self.margin).mean()


class MultipleNegativesRanking(nn.Module):
    """In-batch negatives: mean over the batch of -log softmax_j(scale · cos(a_i, p_j))[j = i].

    Inputs: anchor, positive and optionally a hard negative, (B, D) each; hard negatives are candidates of every
    anchor. Labels: none.
    Source: Henderson et al. 2017, "Efficient Natural Language Response Suggestion for Smart Reply", section 4.4;
    `MultipleNegativesRankingLoss` in sentence-transformers, and `MultipleNegativesSymmetricRankingLoss`.

    With a sentence and the same sentence as anchor and positive it is the unsupervised objective of Gao, Yao & Chen
    2021, "SimCSE: Simple Contrastive Learning of Sentence Embeddings", section 3: the two vectors differ by dropout
    alone, and ``scale`` is the inverse of their temperature of 0.05.

    Args:
        scale: the factor on the cosine, an inverse temperature.
        symmetric: average with the loss from positives to anchors, which ignores hard negatives.
    """

    def __init__(self, scale: float = 20.0, symmetric: bool = False) -> None:
        super().__init__()
        self.scale, self.symmetric = scale, symmetric

    def forward(self, vectors: Vectors, target: Tensor | None = None) -> Tensor:
        anchors, *candidates = (F.normalize(column, dim=1) for column in vectors)
        scores = self.scale * anchors @ torch.cat(candidates).T  # (B, B) or (B, 2B); positives on the diagonal
        positive = torch.arange(len(anchors), device=scores.device)
        loss = F.cross_entropy(scores, positive)
        if self.symmetric:
            loss = (loss + F.cross_entropy(scores[:, : len(anchors)].T, positive)) / 2
        return loss
