"""The result of one model on one data set: the scores of every pair, and correlations with their intervals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from training.evaluation.bootstrap import bootstrap_replicates
from training.evaluation.scoring import SCORE

SIMILARITIES = {
    "cosine": "cosine",
    "dot": "dot product",
    "euclidean": "negative Euclidean",
    "manhattan": "negative Manhattan",
}
STATISTICS = {"spearman": "Spearman ρ", "pearson": "Pearson r"}


class Metric(NamedTuple):
    """A similarity of the vectors and a correlation with the gold scores."""

    similarity: str = "cosine"  # a key of SIMILARITIES
    statistic: str = "spearman"  # a key of STATISTICS


class Estimate(NamedTuple):
    """A correlation ×100 and its 95% interval; NaN where undefined."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class EvalResult:
    """Scores of N pairs under each similarity, larger = more similar. A cross-encoder has one, named ``score``."""

    scores: dict[str, np.ndarray]  # (N,) float32 each
    gold: np.ndarray  # (N,) float64
    num_sentences: int  # distinct sentences that the model read
    seconds: float  # time that reading them took
    from_cache: bool = False
    _replicates: dict[Metric, np.ndarray] = field(default_factory=dict, repr=False)

    def scores_by(self, similarity: str) -> np.ndarray:
        """The scores under a similarity; a cross-encoder's only scores under any. (N,) float32."""
        return self.scores[similarity] if similarity in self.scores else self.scores[SCORE]

    def value(self, metric: Metric) -> float:
        """The correlation in -1..1; NaN where the scores or the gold scores are constant."""
        from training.evaluation.metrics import pearson, spearman

        correlate = spearman if metric.statistic == "spearman" else pearson
        return correlate(self.scores_by(metric.similarity), self.gold)

    def replicates(self, metric: Metric) -> np.ndarray:
        """The correlation in each bootstrap resample, (R,) float64. Resample r is the same for every model."""
        if SCORE in self.scores:
            metric = metric._replace(similarity=SCORE)
        if metric not in self._replicates:
            scores = self.scores_by(metric.similarity)
            self._replicates[metric] = bootstrap_replicates(scores, self.gold, metric.statistic)
        return self._replicates[metric]

    def estimate(self, metric: Metric) -> Estimate:
        """The correlation with its percentile bootstrap interval, ×100."""
        return percentile_interval(self.value(metric), self.replicates(metric))


def percentile_interval(value: float, replicates: np.ndarray) -> Estimate:
    """A correlation in -1..1 and its bootstrap replicates (R,) -> the estimate ×100."""
    if np.isnan(value) or np.isnan(replicates).all():
        return Estimate(100 * value, float("nan"), float("nan"))
    low, high = np.nanpercentile(replicates, [2.5, 97.5])
    return Estimate(100 * value, 100 * float(low), 100 * float(high))
