"""Objectives of pairs with a target: a label, a gold score, or whether they belong together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Self

import numpy as np

from training.data.gold import TOP_SCORE
from training.data.transforms import (
    CLASS_ROWS,
    JUDGED_ROWS,
    RANKED_ROWS,
    SCORED_ROWS,
    TOGETHER_ROWS,
)
from training.objectives.base import LABELS, SCORES, Objective, Vectors, required
from training.similarities import SIMILARITIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

COSINE = SIMILARITIES["cosine"].tensor_rows
PARTS = {
    "uv": lambda u, v: [u, v],
    "diff": lambda u, v: [(u - v).abs()],
    "mul": lambda u, v: [u * v],
}
# The seven concatenations of Table 6. The paper's default is uv+diff: (u, v, |u-v|).
CONCATENATIONS = ("uv", "diff", "mul", "diff+mul", "uv+mul", "uv+diff", "uv+diff+mul")


def concatenate(u: Tensor, v: Tensor, concatenation: str) -> Tensor:
    """Concatenates parts of u and v (B, D) in the order of their names: (B, width(concatenation) * D)."""
    # torch takes seconds to import, and the facts of an objective are needed without it.
    import torch

    parts = [PARTS[name](u, v) for name in concatenation.split("+")]
    return torch.cat(list(chain.from_iterable(parts)), dim=1)


def width(concatenation: str) -> int:
    """Returns the number of vectors of dimension D in a concatenation: 3 for "uv+diff"."""
    # "uv" is one name for two vectors.
    return concatenation.count("+") + 1 + ("uv" in concatenation)


class Classification(Objective):
    """Softmax classification of pairs: mean over the batch of -log softmax(W (u, v, |u-v|) + b)[label].

    Inputs: sentence1, sentence2, (B, D) each. Labels: int64 (B,), 0..k-1. Source: Reimers &
    Gurevych 2019, section 3, "Classification Objective Function", and Table 6 for the
    `CONCATENATIONS`; `SoftmaxLoss` in sentence-transformers, which has a bias b that the paper's
    equation omits. The classifier is trained with the encoder and discarded afterwards. Vectors
    truncated to d < D dimensions (`training.trainer.training_model.Loss`) are classified by the
    first d columns of each part of W, as in Kusupati et al. 2022, "Matryoshka Representation
    Learning", section 3 (MRL-E).
    """

    name = "classification"
    equation = "softmax(W (u, v, |u − v|))"
    help = "softmax over the concatenation; labelled pairs"
    rows = CLASS_ROWS
    target = LABELS
    fields = ("concatenation",)

    def __init__(self, dimension: int, labels: int, concatenation: str = "uv+diff") -> None:
        from torch import nn

        self.concatenation = concatenation
        self.classifier = nn.Linear(width(concatenation) * dimension, labels)

    @classmethod
    def build(cls, config: object, dimension: int, labels: int) -> Self:
        return cls(dimension, labels, *(getattr(config, field) for field in cls.fields))

    def guess(self, rows: int, columns: int, scores: Sequence[float] | None) -> float:
        return math.log(self.classifier.out_features)

    def __call__(self, vectors: Vectors, target: Tensor | None = None) -> Tensor:
        import torch.nn.functional as F

        u, v = vectors
        classifier = self.classifier
        parts = width(self.concatenation)
        # u and v may be truncated to the first d dimensions, to train Matryoshka dimensions. The
        # columns for these dimensions of each part, (k, parts * d):
        weight = classifier.weight.unflatten(1, (parts, -1))[..., : u.shape[1]].flatten(1)
        logits = F.linear(concatenate(u, v, self.concatenation), weight, classifier.bias)
        return F.cross_entropy(logits, required(target))


class Regression(Objective):
    """Regression of the cosine: mean over the batch of (cos(u, v) - gold)².

    Inputs: sentence1, sentence2, (B, D) each. Labels: gold scores divided by 5, float (B,), 0 to 1.
    Source: Reimers & Gurevych 2019, section 3, "Regression Objective Function";
    `CosineSimilarityLoss` in sentence-transformers.
    """

    name = "regression"
    equation = "(cos(u, v) − gold)²"
    help = "(cos(u, v) − gold)²; scored pairs"
    rows = SCORED_ROWS
    target = SCORES

    def guess(self, rows: int, columns: int, scores: Sequence[float] | None) -> float | None:
        # The best guess is the mean of the gold scores. Its squared error is their variance.
        return None if scores is None else float(np.var(scores)) / TOP_SCORE**2

    def __call__(self, vectors: Vectors, target: Tensor | None = None) -> Tensor:
        u, v = vectors
        return (COSINE(u, v) - required(target).to(u.dtype)).square().mean()


@dataclass(eq=False)
class CoSENT(Objective):
    """Ranking of pairs by score: log(1 + Σ exp(scale · (cos(u_j, v_j) - cos(u_i, v_i)))) over all gold_i > gold_j.

    It is one loss for the whole batch, not a mean: of two rows, the one with the higher gold score
    has to have the higher cosine. Only the order of the gold scores counts, as in Spearman's
    correlation.

    Inputs: sentence1, sentence2, (B, D) each. Labels: gold scores, float (B,), on any scale.
    Source: Huang et al. 2024, "CoSENT: Consistent Sentence Embedding via Similarity Ranking";
    `CoSENTLoss` in sentence-transformers. ``scale`` is the factor on the similarity, an inverse
    temperature.
    """

    name = "cosent"
    equation = "log(1 + Σ exp(20 · (cos(uⱼ, vⱼ) − cos(uᵢ, vᵢ)))) over goldᵢ > goldⱼ"
    help = "pairs ranked by their gold score; its order is what Spearman’s ρ measures"
    rows = RANKED_ROWS
    target = SCORES
    fields = ("cosent_scale",)
    scale: float = 20.0

    def __call__(self, vectors: Vectors, target: Tensor | None = None) -> Tensor:
        import torch

        F = torch.nn.functional
        u, v = vectors
        similarities = self.scale * self.similarity(u, v)
        gold, order = required(target).sort()
        # By ascending gold score.
        similarities = similarities[order]
        # log Σ exp(-similarity) over each row and the rows after it, and in the end over no row:
        # (B + 1,).
        sums = torch.logcumsumexp(-similarities.flip(0), 0).flip(0)
        sums = F.pad(sums, (0, 1), value=-torch.inf)
        # For each row, the first one with a higher gold score.
        higher = torch.searchsorted(gold, gold, right=True)
        # For each row j, log Σ exp(similarity_j - similarity_i) over the rows i with a higher score.
        terms = similarities + sums[higher]
        # The added 0 is the 1 in the equation.
        return torch.logsumexp(F.pad(terms, (1, 0)), dim=0)

    def similarity(self, u: Tensor, v: Tensor) -> Tensor:
        """Computes the similarities of the rows, (B, D), (B, D) -> (B,)."""
        return COSINE(u, v)


class AnglE(CoSENT):
    """`CoSENT` of |cos(u, v) + sin(u, v)| in place of the cosine; where the cosine is flat, near 1, the sine is not.

    The first half of a vector is taken as the real and the second as the imaginary part of complex
    numbers; the sine is the imaginary part of their inner product, of unit vectors. A vector of odd
    dimension is padded with a zero.

    Inputs, labels and arguments: as `CoSENT`. Source: Li & Li 2024, "AoE: Angle-optimized
    Embeddings for Semantic Textual Similarity"; `AnglELoss` in sentence-transformers.
    """

    name = "angle"
    equation = "cosent of |cos(u, v) + sin(u, v)|"
    help = "as cosent, by angles in complex space, where the cosine is flat"

    def similarity(self, u: Tensor, v: Tensor) -> Tensor:
        """Computes the similarities of the rows, (B, D), (B, D) -> (B,)."""
        import torch.nn.functional as F

        # An odd dimension gets a zero.
        padding = (0, u.shape[1] % 2)
        u, v = (F.pad(F.normalize(column, dim=1), padding) for column in (u, v))
        real_u, imaginary_u = u.chunk(2, dim=1)
        real_v, imaginary_v = v.chunk(2, dim=1)
        cosine = (u * v).sum(dim=1)
        sine = (imaginary_u * real_v - real_u * imaginary_v).sum(dim=1)
        return (cosine + sine).abs()


@dataclass(eq=False)
class Contrastive(Objective):
    """Pairs that belong together, and pairs that do not: mean of ½ · (y · d² + (1 - y) · max(margin - d, 0)²).

    d = 1 - cos(u, v). Pairs that do not belong together are pushed apart up to the margin, not
    further.

    Inputs: sentence1, sentence2, (B, D) each. Labels: y, int64 or float (B,), 1 together or 0
    apart. Source: Hadsell, Chopra & LeCun 2006, "Dimensionality Reduction by Learning an Invariant
    Mapping"; `ContrastiveLoss` in sentence-transformers, with its default distance and margin.
    ``margin`` is the distance from which pairs count as apart, in units of 1 - cosine.
    """

    name = "contrastive"
    equation = "½ (y d² + (1 − y) max(ε − d, 0)²), d = 1 − cos(u, v)"
    help = "together pulled to cosine 1, apart pushed beyond a margin; labels or scores"
    rows = TOGETHER_ROWS
    target = LABELS
    fields = ("contrastive_margin",)
    margin: float = 0.5

    def __call__(self, vectors: Vectors, target: Tensor | None = None) -> Tensor:
        u, v = vectors
        distance = 1 - COSINE(u, v)
        together = required(target).to(u.dtype)
        apart = (1 - together) * (self.margin - distance).relu() ** 2
        return 0.5 * (together * distance**2 + apart).mean()


class BinaryCrossEntropy(Objective):
    """Cross-entropy of the score: mean over the batch of -gold · log σ(s) - (1 - gold) · log(1 - σ(s)).

    Inputs: one column, the logits s of the pairs, (B, 1). Labels: gold scores divided by 5
    (graded), or 1 for pairs that belong together and 0 for those that do not (binary), (B,).
    Source: `BinaryCrossEntropyLoss` in sentence-transformers' cross-encoders; the cross-encoder is
    the one of section 1 of Reimers & Gurevych 2019, after Devlin et al. 2019.
    """

    name = "cross-encoder"
    equation = "−gold · log σ(s) − (1 − gold) · log(1 − σ(s)), s = w · BERT(u and v together)"
    help = "a cross-encoder: both sentences are read together and get one score; scored or labelled pairs"
    rows = JUDGED_ROWS
    target = SCORES
    scores_pairs = True

    def __call__(self, vectors: Vectors, target: Tensor | None = None) -> Tensor:
        import torch.nn.functional as F

        [logits] = vectors
        return F.binary_cross_entropy_with_logits(logits[:, 0], required(target).to(logits.dtype))
