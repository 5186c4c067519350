"""OBJECTIVES: how each objective is built, what it needs, and how it is described."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import nn

from training.errors import InputError
from training.objectives.distillation import MarginMSE, MeanSquaredError
from training.objectives.modifiers import Matryoshka, Normalized
from training.objectives.pairs import AnglE, Classification, Contrastive, CoSENT, Regression
from training.objectives.ranking import MultipleNegativesRanking, Triplet


class ObjectiveSettings(Protocol):
    """The fields of a `RunConfig` that objectives use."""

    @property
    def objective(self) -> str: ...
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
    @property
    def cosent_scale(self) -> float: ...
    @property
    def contrastive_margin(self) -> float: ...
    @property
    def margin_similarity(self) -> str: ...
    @property
    def matryoshka_dims(self) -> tuple[int, ...]: ...


@dataclass(frozen=True)
class Entry:
    """How to build an objective, what it needs, and how it is described."""

    build: Callable[[ObjectiveSettings, int, int], nn.Module]  # (settings, dimension D, number of labels)
    target: str | None  # "labels", "scores", "teacher" or None
    formula: str
    summary: str
    takes_output: bool = False  # compares the model's own output, of length 1 if its folder says so
    needs_dropout: bool = False  # the two vectors of a sentence differ by dropout alone


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
    "cosent": Entry(
        lambda settings, dimension, labels: CoSENT(settings.cosent_scale),
        "scores",
        "log(1 + Σ exp(20 · (cos(uⱼ, vⱼ) − cos(uᵢ, vᵢ)))) over goldᵢ > goldⱼ",
        "pairs with a gold score: their order, which is what Spearman’s ρ measures",
    ),
    "angle": Entry(
        lambda settings, dimension, labels: AnglE(settings.cosent_scale),
        "scores",
        "cosent of |cos(u, v) + sin(u, v)|",
        "pairs with a gold score: their order, by angles in complex space",
    ),
    "contrastive": Entry(
        lambda settings, dimension, labels: Contrastive(settings.contrastive_margin),
        "labels",
        "½ (y d² + (1 − y) max(ε − d, 0)²), d = 1 − cos(u, v)",
        "pairs that belong together, and pairs that do not",
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
    "simcse": Entry(
        lambda settings, dimension, labels: MultipleNegativesRanking(settings.mnrl_scale),
        None,
        "−log softmax(20 · cos(s, s′)), s′ the same sentence under other dropout",
        "plain sentences, without labels: each against the other sentences of its batch",
        needs_dropout=True,
    ),
    "mse": Entry(
        lambda settings, dimension, labels: MeanSquaredError(),
        "teacher",
        "(u − teacher’s u)², or (cos(u, v) − teacher’s score)²",
        "any sentences: a bi-encoder’s vectors; or pairs: a cross-encoder’s scores",
        takes_output=True,
    ),
    "margin-mse": Entry(
        lambda settings, dimension, labels: MarginMSE(settings.margin_similarity),
        "teacher",
        "(s(a, p) − s(a, n) − teacher’s margin)²",
        "triplets: how much better the positive fits, as a teacher scores it",
        takes_output=True,
    ),
}


def build_objective(settings: ObjectiveSettings, dimension: int, labels: int, normalizes: bool = False) -> nn.Module:
    """The objective of a run.

    Args:
        settings: the run's config.
        dimension: D of the vectors.
        labels: how many labels the training data has.
        normalizes: whether the model's own output is scaled to length 1.

    Raises:
        InputError: one of ``matryoshka_dims`` is larger than D.
    """
    entry = OBJECTIVES[settings.objective]
    objective = entry.build(settings, dimension, labels)
    if entry.takes_output and normalizes:
        objective = Normalized(objective)
    if not settings.matryoshka_dims:
        return objective
    return Matryoshka(objective, all_dims(settings.matryoshka_dims, dimension))


def all_dims(dims: tuple[int, ...], dimension: int) -> list[int]:
    """``matryoshka_dims`` and D itself, which is always trained too, largest first. InputError if one is above D."""
    if max(dims) > dimension:
        raise InputError(f"matryoshka_dims has {max(dims)}, but the base's vectors have {dimension} dimensions")
    return sorted({dimension, *dims}, reverse=True)
