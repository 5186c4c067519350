"""Data without gold scores: triplets (the paper's section 4.4), and pairs with labels.

Triplets are scored by accuracy: how often the anchor is nearer to the positive than to the negative. NLI labels are
taken as ordered (entailment 1, neutral 0, contradiction −1), and ρ measures whether the cosine preserves that order.
The mean cosine of each label says more: cosine separates related from unrelated sentences, but hardly a statement
from its contradiction. From which similarity on pairs match is another question (`decisions`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sbert_app.services.background.watch import UNWATCHED, Watch
from training.catalogue import LABELLED, NLI_LABELS, TRIPLETS
from training.data.dataset import Dataset
from training.data.transforms import positive_and_negative
from training.errors import InputError
from training.evaluation.bootstrap import Interval, bootstrap_interval, wilson_interval
from training.evaluation.metrics import spearman
from training.evaluation.scoring import row_scores

if TYPE_CHECKING:
    from training.models.model import Model

LABEL_VALUES = dict(zip(NLI_LABELS, (1.0, 0.0, -1.0), strict=True))


@dataclass(frozen=True)
class TripletScore:
    """Accuracy in 0–1 under each similarity, and the Wilson interval of the first."""

    n: int
    accuracy: dict[str, float]
    interval: Interval
    ties: int  # triplets with two equal similarities; they count as wrong


@dataclass(frozen=True)
class LabelScore:
    """Spearman's ρ in −1..1 with the labels as ordered values, and the scores of each label."""

    n: int
    rho: float
    interval: Interval
    by_label: dict[str, np.ndarray]  # label -> scores of its pairs under the model's first similarity


def score_labels(scorer: Model, data: Dataset, watch: Watch = UNWATCHED) -> TripletScore | LabelScore:
    """Score triplets, or pairs with labels that say what belongs together.

    Raises InputError if the data is of neither kind.
    """
    if data.kind == TRIPLETS:
        positive, negative = row_scores(scorer, data.columns, ((0, 1), (0, 2)), watch.on_progress, watch.should_stop)
        accuracy = {name: float((positive[name] > negative[name]).mean()) for name in positive}
        near, far = next(iter(positive.values())), next(iter(negative.values()))
        interval = wilson_interval(int((near > far).sum()), len(near))
        return TripletScore(len(near), accuracy, interval, int((near == far).sum()))
    if data.kind != LABELLED:
        raise InputError(f"{data.name} holds {data.kind}; this needs triplets, or pairs with labels of inference")
    order = LABEL_VALUES
    if not set(data.label_names) <= set(LABEL_VALUES):
        # A positive label and a negative one.
        together, apart = positive_and_negative(data)
        if len(data.label_names) > 2:
            raise InputError(
                f"the labels of {data.name} are {', '.join(data.label_names[:5])}; this needs "
                f"{', '.join(LABEL_VALUES)}, or two labels such as 1 and 0"
            )
        order = {data.label_names[together]: 1.0, data.label_names[apart]: -1.0}
    (by_similarity,) = row_scores(scorer, data.columns, ((0, 1),), watch.on_progress, watch.should_stop)
    scores = next(iter(by_similarity.values()))
    values = np.array([order[data.label_names[label]] for label in data.labels or ()])
    by_label = {label: scores[values == value] for label, value in order.items() if (values == value).any()}
    return LabelScore(len(values), spearman(scores, values), bootstrap_interval(scores, values), by_label)
