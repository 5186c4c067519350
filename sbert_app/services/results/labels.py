"""Data without gold scores: triplets (the paper's section 4.4), and pairs with natural language inference labels.

Triplets are scored by accuracy: how often the anchor is nearer to the positive than to the negative. NLI labels are
taken as ordered (entailment 1, neutral 0, contradiction −1), and ρ measures whether the cosine preserves that order.
The mean cosine of each label says more: cosine separates related from unrelated sentences, but hardly a statement
from its contradiction.
"""

from __future__ import annotations

from dataclasses import dataclass
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


def score_labels(
    scorer: Scorer,
    data: Dataset,
    report_progress: ReportProgress = lambda *_: None,
    should_stop: ShouldStop = lambda: False,
) -> TripletScore | LabelScore:
    """Score triplets, or pairs with NLI labels.

    Raises:
        InputError: the data is of neither kind.
        Stopped: ``should_stop`` returned True.
    """
    if data.kind == LABELLED and not set(data.label_names) <= set(LABEL_VALUES):
        raise InputError(
            f"the labels of {data.name} are {', '.join(data.label_names[:5])}; ρ needs {', '.join(LABEL_VALUES)}"
        )
    if data.kind not in (LABELLED, TRIPLETS):
        raise InputError(f"{data.name} holds {data.kind}; this needs triplets, or pairs with labels of inference")

    def on_progress(done: int, total: int | None) -> None:
        report_progress(done / (total or 1))

    if data.kind == TRIPLETS:
        positive, negative = row_scores(scorer, data.columns, ((0, 1), (0, 2)), on_progress, should_stop)
        return _score_triplets(positive, negative)
    (scores,) = row_scores(scorer, data.columns, ((0, 1),), on_progress, should_stop)
    labels = [data.label_names[label] for label in data.labels or ()]
    return _score_labels(next(iter(scores.values())), labels)


def _score_triplets(positive: dict[str, np.ndarray], negative: dict[str, np.ndarray]) -> TripletScore:
    accuracy = {name: float((positive[name] > negative[name]).mean()) for name in positive}
    first = next(iter(positive))
    correct, n = int((positive[first] > negative[first]).sum()), len(positive[first])
    ties = int((positive[first] == negative[first]).sum())
    return TripletScore(n, accuracy, wilson_interval(correct, n), ties)


def _score_labels(scores: np.ndarray, labels: list[str]) -> LabelScore:
    from training.evaluation.bootstrap import bootstrap_interval
    from training.evaluation.metrics import spearman

    values = np.array([LABEL_VALUES[label] for label in labels])
    by_label = {label: scores[values == value] for label, value in LABEL_VALUES.items() if (values == value).any()}
    return LabelScore(len(labels), spearman(scores, values), bootstrap_interval(scores, values), by_label)


def wilson_interval(successes: int, n: int) -> Interval:
    """Wilson's 95% interval of a proportion."""
    from scipy.stats import binomtest

    from training.evaluation.bootstrap import Interval

    low, high = binomtest(successes, n).proportion_ci(method="wilson")
    return Interval(float(low), float(high), "Wilson")
