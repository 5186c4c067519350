"""Objectives without a target: what belongs together has to be nearer than what does not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from training.data.transforms import POSITIVE_ROWS, SAME_SENTENCE_ROWS, TRIPLET_ROWS
from training.objectives.base import TEXTS, Objective, Vectors
from training.similarities import SIMILARITIES

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(eq=False)
class Triplet(Objective):
    """Triplet loss: mean over the batch of max(d(a, p) - d(a, n) + margin, 0).

    Inputs: anchor, positive, negative, (B, D) each. Labels: none.
    Source: Reimers & Gurevych 2019, section 3, "Triplet Objective Function", with the Euclidean distance and a margin
    of 1; `TripletLoss` in sentence-transformers, whose margin is 5.

    Args:
        metric: the distance d, one of `training.similarities.DISTANCES`.
        margin: by how much the negative has to be further away, in units of d.
    """

    name = "triplet"
    equation = "max(|a − p| − |a − n| + ε, 0)"
    help = "the anchor closer to its positive than to its negative, by a margin"
    rows = TRIPLET_ROWS
    fields = ("triplet_metric", "triplet_margin")
    can_mine_negatives = True
    metric: str = "euclidean"
    margin: float = 1.0

    def __call__(self, vectors: Vectors, target: Tensor | None = None) -> Tensor:
        anchor, positive, negative = vectors
        distance = SIMILARITIES[self.metric].distance
        return (distance(anchor, positive) - distance(anchor, negative) + self.margin).relu().mean()


@dataclass(eq=False)
class MultipleNegativesRanking(Objective):
    """In-batch negatives: mean over the batch of -log softmax_j(scale · cos(a_i, p_j))[j = i].

    Inputs: anchor, positive and optionally a hard negative, (B, D) each; hard negatives are candidates of every
    anchor. Labels: numbers of the texts, int64 (B, columns), by which equal texts are no negatives (`false_negatives`);
    None takes all of the batch as negatives, as sentence-transformers does.
    Source: Henderson et al. 2017, "Efficient Natural Language Response Suggestion for Smart Reply", section 4.4;
    `MultipleNegativesRankingLoss` in sentence-transformers, and `MultipleNegativesSymmetricRankingLoss`.

    Args:
        scale: the factor on the cosine, an inverse temperature.
        symmetric: average with the loss from positives to anchors, which ignores hard negatives.
    """

    name = "mnrl"
    equation = "−log softmax(20 · cos(a, p))"
    help = "each pair against all other pairs of the batch"
    rows = POSITIVE_ROWS
    target = TEXTS
    fields: ClassVar[tuple[str, ...]] = ("mnrl_scale", "mnrl_symmetric")
    uses_batch = True
    can_mine_negatives = True
    scale: float = 20.0
    symmetric: bool = False

    def guess(self, rows: int) -> float:
        return math.log(rows)

    def __call__(self, vectors: Vectors, target: Tensor | None = None) -> Tensor:
        import torch
        import torch.nn.functional as F

        anchors, *candidates = (F.normalize(column, dim=1) for column in vectors)
        scores = self.scale * anchors @ torch.cat(candidates).T  # (B, B) or (B, 2B); positives on the diagonal
        if target is not None:
            scores = scores.masked_fill(false_negatives(target), -torch.inf)
        positive = torch.arange(len(anchors), device=scores.device)
        loss = F.cross_entropy(scores, positive)
        if self.symmetric:
            loss = (loss + F.cross_entropy(scores[:, : len(anchors)].T, positive)) / 2
        return loss


def false_negatives(texts: Tensor) -> Tensor:
    """Numbers of the texts of a batch (B, columns) -> bool, (B, B) or (B, 2B): which candidates are no negatives.

    Those that have the text of the anchor itself or of its positive, and the positives of other rows with this anchor.
    """
    anchors, positives = texts[:, :1], texts[:, 1:2]
    candidates = texts[:, 1:].T.flatten()
    is_false = (candidates == anchors) | (candidates == positives)
    is_false[:, : len(texts)] |= anchors == anchors.T
    # The positive of a row is no negative to be left out.
    return is_false.fill_diagonal_(False)


class SimCSE(MultipleNegativesRanking):
    """`MultipleNegativesRanking` of a sentence and itself: the two vectors differ by dropout alone.

    Inputs: the same sentences twice, (B, D) each. Labels: none.
    Source: Gao, Yao & Chen 2021, "SimCSE: Simple Contrastive Learning of Sentence Embeddings", section 3, the
    unsupervised objective; ``scale`` is the inverse of their temperature of 0.05.
    """

    name = "simcse"
    equation = "−log softmax(20 · cos(s, s′)), s′ the same sentence under other dropout"
    help = "no labels: the same sentence twice through dropout, against the rest of the batch"
    rows = SAME_SENTENCE_ROWS
    fields = ("mnrl_scale",)
    can_mine_negatives = False
    needs_dropout = True
