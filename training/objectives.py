"""The training objectives: sentence vectors in, a scalar loss out.

Each objective is a small module that knows nothing of tokenizers or data sets: it takes the sentence vectors of a
batch, one tensor (B, D) float32 per column, and the targets of its B rows, and returns the mean loss. Values and
gradients equal those of the losses of sentence-transformers (tests/training/test_objectives.py).

    objective        columns                        target            source
    classification   sentence1, sentence2           label 0..k-1      Reimers & Gurevych 2019, section 3
    regression       sentence1, sentence2           gold score / 5    Reimers & Gurevych 2019, section 3
    triplet          anchor, positive, negative     none              Reimers & Gurevych 2019, section 3
    mnrl             anchor, positive[, negative]   none              Henderson et al. 2017, section 4.4

``OBJECTIVES`` holds all four by name, ``CONCATENATIONS`` those of the paper's Table 6, ``METRICS`` the distances of
the triplet objective.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Vectors = Sequence[Tensor]  # one (B, D) per column

PARTS: dict[str, Callable[[Tensor, Tensor], list[Tensor]]] = {
    "uv": lambda u, v: [u, v],
    "diff": lambda u, v: [(u - v).abs()],
    "mul": lambda u, v: [u * v],
}
# The seven of Table 6; the paper's default is uv+diff, that is (u, v, |u-v|).
CONCATENATIONS = ("uv", "diff", "mul", "diff+mul", "uv+mul", "uv+diff", "uv+diff+mul")  # in the order of Table 6

METRICS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "euclidean": lambda x, y: F.pairwise_distance(x, y, p=2),
    "cosine": lambda x, y: 1 - F.cosine_similarity(x, y),
    "manhattan": lambda x, y: F.pairwise_distance(x, y, p=1),
}


def concatenate(u: Tensor, v: Tensor, concatenation: str) -> Tensor:
    """u and v (B, D) -> (B, width(concatenation) * D), the parts in the order of their names."""
    return torch.cat([part for name in concatenation.split("+") for part in PARTS[name](u, v)], dim=1)


def width(concatenation: str) -> int:
    """The number of vectors of dimension D in a concatenation: 3 for "uv+diff"."""
    return concatenation.count("+") + 1 + ("uv" in concatenation)


class Classification(nn.Module):
    """Softmax classification of pairs: mean over the batch of -log softmax(W (u, v, |u-v|) + b)[label].

    Inputs: sentence1, sentence2, (B, D) each. Labels: int64 (B,), 0..k-1.
    Source: Reimers & Gurevych 2019, section 3, "Classification Objective Function", and Table 6 for the
    concatenations; `SoftmaxLoss` in sentence-transformers, which has a bias b that the paper's equation omits.
    The classifier is trained with the encoder and discarded afterwards.

    Args:
        dimension: D.
        labels: k.
        concatenation: one of `CONCATENATIONS`.
    """

    def __init__(self, dimension: int, labels: int, concatenation: str = "uv+diff") -> None:
        super().__init__()
        self.concatenation = concatenation
        self.classifier = nn.Linear(width(concatenation) * dimension, labels)

    def forward(self, vectors: Vectors, target: Tensor | None) -> Tensor:
        u, v = vectors
        return F.cross_entropy(self.classifier(concatenate(u, v, self.concatenation)), _required(target))


class Regression(nn.Module):
    """Regression of the cosine: mean over the batch of (cos(u, v) - gold)².

    Inputs: sentence1, sentence2, (B, D) each. Labels: gold scores divided by 5, float (B,), 0 to 1.
    Source: Reimers & Gurevych 2019, section 3, "Regression Objective Function"; `CosineSimilarityLoss` in
    sentence-transformers.
    """

    def forward(self, vectors: Vectors, target: Tensor | None) -> Tensor:
        u, v = vectors
        return F.mse_loss(F.cosine_similarity(u, v), _required(target).to(u.dtype))


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


class ObjectiveSettings(Protocol):
    """The fields of a `RunConfig` that objectives use."""

    @property
    def concatenation(self) -> str: ...
    @property
    def triplet_metric(self) -> str: ...
    @property
    def triplet_margin(self) -> float: ...
    @property
    def mnrl_scale(self) -> float: ...
    @property
    def mnrl_symmetric(self) -> bool: ...


@dataclass(frozen=True)
class Entry:
    """How to build an objective, what it needs, and how it is described."""

    build: Callable[[ObjectiveSettings, int, int], nn.Module]  # (settings, dimension D, number of labels)
    target: str | None  # "labels", "scores" or None
    formula: str
    summary: str


OBJECTIVES: dict[str, Entry] = {
    "classification": Entry(
        lambda settings, dimension, labels: Classification(dimension, labels, settings.concatenation),
        "labels",
        "softmax(W (u, v, |u − v|))",
        "pairs with a label, as in natural language inference",
    ),
    "regression": Entry(
        lambda settings, dimension, labels: Regression(),
        "scores",
        "(cos(u, v) − gold)²",
        "pairs with a gold score, as in the STS benchmark",
    ),
    "triplet": Entry(
        lambda settings, dimension, labels: Triplet(settings.triplet_metric, settings.triplet_margin),
        None,
        "max(|a − p| − |a − n| + ε, 0)",
        "anchor, positive and negative, as in the sections of Wikipedia",
    ),
    "mnrl": Entry(
        lambda settings, dimension, labels: MultipleNegativesRanking(settings.mnrl_scale, settings.mnrl_symmetric),
        None,
        "−log softmax(20 · cos(a, p))",
        "pairs that belong together; the other pairs of a batch are the negatives",
    ),
}


def _required(target: Tensor | None) -> Tensor:
    if target is None:
        raise TypeError("this objective needs a target")
    return target
