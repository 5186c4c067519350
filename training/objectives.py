"""What a run minimises: classification, regression, triplet, mnrl. Embeddings in, one scalar out.

Each objective is a small module that knows nothing of tokenisers or data sets: it takes the sentence vectors of
a batch, one tensor (B, D) float32 per column, and the targets of its rows, and returns the mean loss of the
batch. The values and the gradients are those of sentence-transformers' losses (tests/test_objectives.py).

    objective        columns                        target            after
    classification   sentence1, sentence2           label 0..k-1      section 3
    regression       sentence1, sentence2           gold score / 5    section 3
    triplet          anchor, positive, negative     none              section 3
    mnrl             anchor, positive[, negative]   none              Henderson et al. 2017, section 4.4

``OBJECTIVES`` is the table of all four, ``CONCATENATIONS`` that of the paper's Table 6, ``METRICS`` that of the
distances of the triplet objective.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.trainer.config import CHOICES

if TYPE_CHECKING:
    from training.trainer.config import RunConfig

Vectors = Sequence[Tensor]  # one (B, D) per column

PARTS: dict[str, Callable[[Tensor, Tensor], list[Tensor]]] = {
    "uv": lambda u, v: [u, v],
    "diff": lambda u, v: [(u - v).abs()],
    "mul": lambda u, v: [u * v],
}
CONCATENATIONS = CHOICES["concatenation"]  # the seven of Table 6; the paper's default is (u, v, |u-v|)

METRICS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "euclidean": lambda x, y: F.pairwise_distance(x, y, p=2),
    "cosine": lambda x, y: 1 - F.cosine_similarity(x, y),
    "manhattan": lambda x, y: F.pairwise_distance(x, y, p=1),
}


def concatenate(u: Tensor, v: Tensor, concatenation: str) -> Tensor:
    """u and v (B, D) -> (B, width(concatenation) * D), the parts in the order of their names."""
    return torch.cat([part for name in concatenation.split("+") for part in PARTS[name](u, v)], dim=1)


def width(concatenation: str) -> int:
    """How many vectors of dimension D a concatenation holds: "uv+diff" holds 3."""
    return concatenation.count("+") + 1 + ("uv" in concatenation)


class Classification(nn.Module):
    """-log softmax(W (u, v, |u-v|) + b)[label], averaged over the batch.

    Columns: sentence1, sentence2. Target: the label of each row, int64 (B,).
    Source: the paper, section 3, "Classification Objective Function" and Table 6; `SoftmaxLoss` of
    sentence-transformers, whose classifier has the bias b that the paper's equation leaves out. The classifier
    is trained with the encoder and thrown away after it.
    """

    def __init__(self, dimension: int, labels: int, concatenation: str = "uv+diff") -> None:
        super().__init__()
        self.concatenation = concatenation
        self.classifier = nn.Linear(width(concatenation) * dimension, labels)

    def forward(self, vectors: Vectors, target: Tensor | None) -> Tensor:
        u, v = vectors
        return F.cross_entropy(self.classifier(concatenate(u, v, self.concatenation)), _given(target))


class Regression(nn.Module):
    """(cos(u, v) - gold)², averaged over the batch.

    Columns: sentence1, sentence2. Target: the gold score divided by 5, float (B,) in 0–1.
    Source: the paper, section 3, "Regression Objective Function"; `CosineSimilarityLoss`.
    """

    def forward(self, vectors: Vectors, target: Tensor | None) -> Tensor:
        u, v = vectors
        return F.mse_loss(F.cosine_similarity(u, v), _given(target).to(u.dtype))


class Triplet(nn.Module):
    """max(|a - p| - |a - n| + margin, 0), averaged over the batch.

    Columns: anchor, positive, negative. Target: none.
    Source: the paper, section 3, "Triplet Objective Function", with the Euclidean distance and a margin of 1;
    `TripletLoss`, whose margin is 5. With metric "cosine" the distance is 1 - cos.
    """

    def __init__(self, metric: str = "euclidean", margin: float = 1.0) -> None:
        super().__init__()
        self.distance, self.margin = METRICS[metric], margin

    def forward(self, vectors: Vectors, target: Tensor | None = None) -> Tensor:
        anchor, positive, negative = vectors
        apart = self.distance(anchor, positive) - self.distance(anchor, negative)
        return F.relu(apart + self.margin).mean()


class MultipleNegativesRanking(nn.Module):
    """-log softmax_j(scale · cos(a_i, p_j))[j = i], averaged over the batch: the others' positives are negatives.

    Columns: anchor, positive, and a hard negative if there is one, which joins the candidates of every anchor.
    Target: none. ``symmetric`` averages it with the same from positives to anchors, in which hard negatives
    have no part.
    Source: Henderson et al. 2017, "Efficient Natural Language Response Suggestion for Smart Reply", section
    4.4; `MultipleNegativesRankingLoss`, and its symmetric form, `MultipleNegativesSymmetricRankingLoss`.
    """

    def __init__(self, scale: float = 20.0, symmetric: bool = False) -> None:
        super().__init__()
        self.scale, self.symmetric = scale, symmetric

    def forward(self, vectors: Vectors, target: Tensor | None = None) -> Tensor:
        anchors, *candidates = (F.normalize(column, dim=1) for column in vectors)
        scores = self.scale * anchors @ torch.cat(candidates).T  # (B, B) or (B, 2B), the true one on the diagonal
        truth = torch.arange(len(anchors), device=scores.device)
        loss = F.cross_entropy(scores, truth)
        if self.symmetric:
            loss = (loss + F.cross_entropy(scores[:, : len(anchors)].T, truth)) / 2
        return loss


@dataclass(frozen=True)
class Entry:
    """A row of the table: how to build an objective, and what it eats."""

    build: Callable[[RunConfig, int, int], nn.Module]  # (config, dimension, number of labels)
    target: str | None  # "labels", "scores" or None
    formula: str
    summary: str


OBJECTIVES: dict[str, Entry] = {
    "classification": Entry(
        lambda config, dimension, labels: Classification(dimension, labels, config.concatenation),
        "labels",
        "softmax(W (u, v, |u − v|))",
        "pairs with a label, as in natural language inference",
    ),
    "regression": Entry(
        lambda config, dimension, labels: Regression(),
        "scores",
        "(cos(u, v) − gold)²",
        "pairs with a gold score, as in the STS benchmark",
    ),
    "triplet": Entry(
        lambda config, dimension, labels: Triplet(config.triplet_metric, config.triplet_margin),
        None,
        "max(|a − p| − |a − n| + ε, 0)",
        "anchor, positive and negative, as in the sections of Wikipedia",
    ),
    "mnrl": Entry(
        lambda config, dimension, labels: MultipleNegativesRanking(config.mnrl_scale, config.mnrl_symmetric),
        None,
        "−log softmax(20 · cos(a, p))",
        "pairs that belong together; the other pairs of a batch are the negatives",
    ),
}


def _given(target: Tensor | None) -> Tensor:
    if target is None:
        raise TypeError("this objective needs a target")
    return target
