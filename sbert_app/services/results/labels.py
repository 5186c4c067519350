"""Data without gold scores: triplets (the paper's section 4.4), and pairs with labels of natural language inference.

Triplets are scored by accuracy: how often the anchor is nearer to the positive than to the negative. Labels are read
as an order (entailment 1, neutral 0, contradiction −1), and ρ asks whether the cosine keeps it; the mean cosine of
each label says more: cosine knows related from unrelated, but hardly a statement from its contradiction.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from sbert_app.services.tasks import ReportProgress, ShouldStop
from training.data.dataset import LABELLED, TRIPLETS, Dataset
from training.data.parsing import NLI_LABELS
from training.errors import InputError
from training.evaluation.scoring import row_scores

if TYPE_CHECKING:
    from training.evaluation.bootstrap import Interval
    from training.models.scorer import Scorer

VALUES = dict(zip(NLI_LABELS, (1.0, 0.0, -1.0), strict=True))
NORMAL = 1.959964  # the standard deviations of a 95% interval


@dataclass(frozen=True)
class TripletScore:
    """Accuracy by similarity in 0–1, and the interval of the first (Wilson's)."""

    n: int
    accuracy: dict[str, float]
    interval: Interval
    ties: int  # triplets whose two distances are equal: they count as wrong


@dataclass(frozen=True)
class LabelScore:
    """ρ in −1..1 with labels as an order, and the scores of each label."""

    n: int
    rho: float
    interval: Interval
    by_label: dict[str, np.ndarray]  # label -> the model's first similarity of each pair


def score_labels(
    scorer: Scorer, data: Dataset, tell: ReportProgress = lambda *_: None, should_stop: ShouldStop = lambda: False
) -> TripletScore | LabelScore:
    """Score triplets, or pairs labelled as in NLI.

    Raises:
        InputError: the data is of neither kind.
        Stopped: ``should_stop`` said yes.
    """
    if data.kind == LABELLED and not set(data.label_names) <= set(VALUES):
        raise InputError(
            f"the labels of {data.name} are {', '.join(data.label_names[:5])}; ρ needs {', '.join(VALUES)}"
        )
    if data.kind not in (LABELLED, TRIPLETS):
        raise InputError(f"{data.name} holds {data.kind}; this needs triplets, or pairs with labels of inference")

    def on_progress(done: int, total: int | None) -> None:
        tell(done / (total or 1))

    if data.kind == TRIPLETS:
        near, far = row_scores(scorer, data.columns, ((0, 1), (0, 2)), on_progress, should_stop)
        return _triplets(near, far)
    (found,) = row_scores(scorer, data.columns, ((0, 1),), on_progress, should_stop)
    return _labels(next(iter(found.values())), [data.label_names[label] for label in data.labels or ()])


def _triplets(near: dict[str, np.ndarray], far: dict[str, np.ndarray]) -> TripletScore:
    accuracy = {name: float((near[name] > far[name]).mean()) for name in near}
    first = next(iter(near))
    n = len(near[first])
    return TripletScore(n, accuracy, wilson(accuracy[first], n), int((near[first] == far[first]).sum()))


def _labels(scores: np.ndarray, labels: list[str]) -> LabelScore:
    from training.evaluation.bootstrap import bootstrap_interval
    from training.evaluation.metrics import spearman

    truth = np.array([VALUES[label] for label in labels])
    by_label = {label: scores[truth == value] for label, value in VALUES.items() if (truth == value).any()}
    return LabelScore(len(labels), spearman(scores, truth), bootstrap_interval(scores, truth), by_label)


def wilson(share: float, n: int) -> Interval:
    """Wilson's 95% interval of a share of n."""
    from training.evaluation.bootstrap import Interval

    middle = (share + NORMAL**2 / (2 * n)) / (1 + NORMAL**2 / n)
    reach = NORMAL / (1 + NORMAL**2 / n) * sqrt(share * (1 - share) / n + NORMAL**2 / (4 * n**2))
    return Interval(max(0.0, middle - reach), min(1.0, middle + reach), "Wilson")
