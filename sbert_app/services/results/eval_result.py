"""Cell: one model on one data set. Every pair's scores, and what they say about the model."""

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
    """How a figure is made: which similarity of the vectors, which correlation with gold."""

    similarity: str = "cosine"
    statistic: str = "spearman"


class Estimate(NamedTuple):
    """A correlation ×100 and its 95% interval; NaN where there is none."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class EvalResult:
    """Scores of N pairs by each similarity, larger meaning more similar; a cross-encoder's only one is ``score``."""

    scores: dict[str, np.ndarray]  # (N,) float32 each
    gold: np.ndarray  # (N,) float64
    sentences: int  # different ones, that the model read
    seconds: float  # that it took
    from_cache: bool = False  # from an earlier time
    _replicates: dict[Metric, np.ndarray] = field(default_factory=dict, repr=False)

    def by(self, similarity: str) -> np.ndarray:
        """The scores under a similarity; those of a cross-encoder under any."""
        return self.scores[similarity] if similarity in self.scores else self.scores[SCORE]

    def value(self, metric: Metric) -> float:
        """The correlation, -1..1; NaN where a side never varies."""
        from training.evaluation.metrics import pearson, spearman

        correlate = spearman if metric.statistic == "spearman" else pearson
        return correlate(self.by(metric.similarity), self.gold)

    def replicates(self, metric: Metric) -> np.ndarray:
        """The correlation in each of the bootstrap's draws, the same draws for every model."""
        if SCORE in self.scores:
            metric = metric._replace(similarity=SCORE)
        if metric not in self._replicates:
            self._replicates[metric] = bootstrap_replicates(self.by(metric.similarity), self.gold, metric.statistic)
        return self._replicates[metric]

    def estimate(self, metric: Metric) -> Estimate:
        """×100, with the percentiles of the bootstrap."""
        return interval(self.value(metric), self.replicates(metric))


def interval(value: float, draws: np.ndarray) -> Estimate:
    """A correlation and its draws -> the figure ×100."""
    if np.isnan(value) or np.isnan(draws).all():
        return Estimate(100 * value, float("nan"), float("nan"))
    low, high = np.nanpercentile(draws, [2.5, 97.5])
    return Estimate(100 * value, 100 * float(low), 100 * float(high))
