"""Objectives without labels: related texts are nearer than others, or vectors and scores come from a teacher."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from training.data.transforms import ANY_ROWS, POSITIVE_ROWS, SAME_SENTENCE_ROWS, TRIPLET_ROWS
from training.objectives.base import (
    TEACHER_MARGINS,
    TEACHER_OUTPUT,
    TEXTS,
    Objective,
    Vectors,
    required,
)
from training.similarities import SIMILARITIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


@dataclass(eq=False)
class Triplet(Objective):
    """Triplet loss: mean over the batch of max(d(a, p) - d(a, n) + margin, 0).

    Inputs: anchor, positive, negative, (B, D) each. Labels: none. Source: Reimers & Gurevych 2019,
    section 3, "Triplet Objective Function", with the Euclidean distance and a margin of 1;
    `TripletLoss` in sentence-transformers, whose margin is 5. ``metric`` is the distance d, one of
    `training.similarities.DISTANCES`. The negative must be further away by ``margin``, in units of
    d.
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

    Inputs: anchor, positive and optionally a hard negative, (B, D) each; hard negatives are
    candidates of every anchor. Labels: numbers of the texts, int64 (B, columns), which exclude
    equal texts from the negatives (`false_negatives`); None uses all texts of the batch as
    negatives, as sentence-transformers does. Source: Henderson et al. 2017, "Efficient Natural
    Language Response Suggestion for Smart Reply", section 4.4; `MultipleNegativesRankingLoss` in
    sentence-transformers, and `MultipleNegativesSymmetricRankingLoss`. ``scale`` is the factor on
    the cosine, an inverse temperature. ``symmetric`` averages with the loss from positives to
    anchors, which ignores hard negatives.
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

    def guess(self, rows: int, columns: int, scores: Sequence[float] | None) -> float:
        # The candidates of an anchor are the texts of all other columns.
        guess = math.log((columns - 1) * rows)
        if self.symmetric:
            # The candidates of a positive are the anchors of all rows.
            guess = (guess + math.log(rows)) / 2
        return guess

    def __call__(self, vectors: Vectors, target: Tensor | None = None) -> Tensor:
        import torch

        F = torch.nn.functional
        anchors, *candidates = (F.normalize(column, dim=1) for column in vectors)
        # (B, B) or (B, 2B); positives on the diagonal
        scores = self.scale * anchors @ torch.cat(candidates).T
        # The targets are the numbers of the texts (`TEXTS`).
        if target is not None:
            scores = scores.masked_fill(false_negatives(target), -torch.inf)
        positive = torch.arange(len(anchors), device=scores.device)
        loss = F.cross_entropy(scores, positive)
        if self.symmetric:
            loss = (loss + F.cross_entropy(scores[:, : len(anchors)].T, positive)) / 2
        return loss


def false_negatives(texts: Tensor) -> Tensor:
    """Finds candidates that are not negatives, from the numbers of the texts (B, columns): bool (B, B) or (B, 2B).

    They have the text of the anchor or of its positive, or are the positive of another row with the
    same anchor.
    """
    anchors = texts[:, :1]  # (B, 1)
    positives = texts[:, 1:2]  # (B, 1)
    # All positives, then all hard negatives, (B,) or (2B,).
    candidates = texts[:, 1:].T.flatten()
    is_false = (candidates == anchors) | (candidates == positives)
    is_false[:, : len(texts)] |= anchors == anchors.T
    # The positive of a row itself stays a candidate.
    return is_false.fill_diagonal_(False)


class SimCSE(MultipleNegativesRanking):
    """`MultipleNegativesRanking` of a sentence and itself. The two vectors differ only by dropout.

    Inputs: the same sentences twice, (B, D) each. Labels: the numbers of the texts or None, as in
    `MultipleNegativesRanking`. Source: Gao, Yao & Chen 2021, "SimCSE: Simple Contrastive Learning of Sentence
    Embeddings", section 3, the unsupervised objective; ``scale`` is the inverse of their
    temperature of 0.05.
    """

    name = "simcse"
    equation = "−log softmax(20 · cos(s, s′)), s′ the same sentence under other dropout"
    help = "no labels: the same sentence twice through dropout, against the rest of the batch"
    rows = SAME_SENTENCE_ROWS
    fields = ("mnrl_scale",)
    can_mine_negatives = False
    needs_dropout = True


class MeanSquaredError(Objective):
    """The vectors or the cosines of a teacher: mean over the batch and the columns of (u - teacher's u)².

    Inputs: any number of columns, (B, D) each. Labels: the teacher's vectors, float (B, columns,
    D); or, for two columns, a teacher's scores of the pairs, float (B,), which the cosine has to
    equal: (cos(u, v) - score)². Source: Reimers & Gurevych 2020, "Making Monolingual Sentence
    Embeddings Multilingual using Knowledge Distillation", equation 1; `MSELoss` in
    sentence-transformers. For scores: Thakur et al. 2021, "Augmented SBERT", where a cross-encoder
    labels pairs; `CosineSimilarityLoss` in sentence-transformers.
    """

    name = "mse"
    equation = "(u − teacher’s u)², or (cos(u, v) − teacher’s score)²"
    help = "a teacher’s vectors (bi-encoder) or its scores of pairs (cross-encoder)"
    rows = ANY_ROWS
    target = TEACHER_OUTPUT
    takes_output = True

    def __call__(self, vectors: Vectors, target: Tensor | None = None) -> Tensor:
        import torch

        F = torch.nn.functional
        target = required(target).to(vectors[0].dtype)
        # Scores (B,) of a cross-encoder, or vectors (B, C, D) of a bi-encoder.
        if target.ndim == 1:
            u, v = vectors
            return F.mse_loss(F.cosine_similarity(u, v), target)
        return F.mse_loss(torch.stack(list(vectors), dim=1), target)


@dataclass(eq=False)
class MarginMSE(Objective):
    """A teacher's margin between positive and negative: mean over the batch of (s(a, p) - s(a, n) - margin)².

    Inputs: anchor, positive, negative, (B, D) each. Labels: the teacher's score of (a, p) minus its
    score of (a, n), float (B,). Source: Hofstätter et al. 2020, "Improving Efficient Neural Ranking
    Models with Cross-Architecture Knowledge Distillation", section 3.2; `MarginMSELoss` in
    sentence-transformers. ``similarity`` is s, one of `training.similarities.SIMILARITIES`, "dot"
    as in the paper.
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
        anchor, positive, negative = vectors
        similarity = SIMILARITIES[self.similarity].tensor_rows
        margin = similarity(anchor, positive) - similarity(anchor, negative)
        return (margin - required(target).to(margin.dtype)).square().mean()
