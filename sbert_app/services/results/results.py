"""Results of models × data sets: what tables, figures and texts read, measured now or precomputed.

`EvalResult` is one model on one data set: the scores of every pair, and correlations with their intervals.

Names are those that the user gave, see `training.names`. AVERAGE is an additional column: the mean over the data sets,
without the development sets (STSb train and dev).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import NormalDist
from typing import Any, NamedTuple, Protocol

import numpy as np

from training.data.overlap import Overlap
from training.evaluation.bootstrap import (
    ALPHA,
    Difference,
    Estimate,
    bootstrap_interval,
    bootstrap_replicates,
    percentile_interval,
)
from training.evaluation.scoring import SCORE
from training.names import DataName

STATISTICS = {"spearman": "Spearman ρ", "pearson": "Pearson r"}


class Metric(NamedTuple):
    """A similarity of the vectors and a correlation with the gold scores."""

    similarity: str = "cosine"  # a key of SIMILARITIES
    statistic: str = "spearman"  # a key of STATISTICS


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
        """The correlation with its bootstrap interval (`bootstrap_interval`), ×100."""
        if metric.statistic == "spearman":
            return estimate_x100(self.value(metric), self.replicates(metric))
        interval = bootstrap_interval(self.scores_by(metric.similarity), self.gold, metric.statistic)
        return Estimate(*(100 * figure for figure in (self.value(metric), interval.low, interval.high)))


def estimate_x100(value: float, replicates: np.ndarray) -> Estimate:
    """A correlation in -1..1 and its bootstrap replicates (R,) -> the estimate ×100."""
    return Estimate(*(100 * figure for figure in percentile_interval(value, replicates)))


AVERAGE = "average"
DEVELOPMENT_SETS = ("stsb:train", "stsb:dev")


class Results(Protocol):
    """Implemented by `ResultGrid` and `PrecomputedResults`."""

    @property
    def models(self) -> Sequence[str]:
        """In the order of the rows."""

    @property
    def data(self) -> Sequence[str]:
        """In the order of the columns, without AVERAGE."""

    @property
    def overlaps(self) -> Mapping[tuple[str, str], Overlap]:
        """How much of the data a model was trained on, by (model, data), where that is known."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """The pairs of each data set that could be read."""

    @property
    def failures(self) -> Mapping[tuple[str, str], str]:
        """Why there is no estimate, by (model, data)."""

    def estimate(self, model: str, data: str, metric: Metric) -> Estimate | None:
        """None if it is not measured yet, or cannot be (see `failures`)."""

    def speed(self, model: str) -> float | None:
        """Distinct sentences per second, over all data sets of the model."""

    def difference(self, a: str, b: str, data: str, metric: Metric) -> Difference | None:
        """By how much ``a`` is better than ``b``; None if that is not known."""


def averaged(data: Sequence[str]) -> list[str]:
    """The data sets that enter the average; none if fewer than two would."""
    test_sets = [name for name in data if name not in DEVELOPMENT_SETS]
    return test_sets if len(test_sets) > 1 else []


def averaged_of(results: Results) -> list[str]:
    """The data sets of ``results`` that enter the average: those that could be read."""
    return averaged([name for name in results.data if name in results.sizes])


def data_label(name: str) -> str:
    """The name in tables; a path without its folders."""
    return DataName.parse(name).label


NORMAL = NormalDist()


class Comparison(NamedTuple):
    above: float  # the probability that the first is better
    p_value: float  # two-sided


class Standing(NamedTuple):
    name: str
    tied: bool  # it cannot be told apart from the first
    highest: int  # rank, from 1
    lowest: int


class Ranking(NamedTuple):
    standings: list[Standing]
    above: list[list[float | None]]  # P(row > column); None on the diagonal and where two cannot be compared

    @property
    def is_known(self) -> bool:
        """Whether any two can be compared."""
        return any(value is not None for row in self.above for value in row)

    def to_json(self) -> list[dict[str, Any]]:
        """Each standing, with the probability that it is above each other system."""
        names = [each.name for each in self.standings]
        pairs = zip(self.standings, self.above, strict=True)
        return [{**each._asdict(), "above": dict(zip(names, row, strict=True))} for each, row in pairs]


def rank(names: Sequence[str], compare: Callable[[str, str], Comparison | None]) -> Ranking:
    """The standing of each of ``names``, which are best first."""
    found = {pair: each for pair in combinations(names, 2) if (each := compare(*pair))}
    apart = holm({pair: each.p_value for pair, each in found.items()})
    better = {pair if found[pair].above > 0.5 else pair[::-1] for pair in apart}
    standings = [
        Standing(
            name,
            (names[0], name) not in better,
            1 + sum((other, name) in better for other in names),
            len(names) - sum((name, other) in better for other in names),
        )
        for name in names
    ]
    both = {pair: each.above for pair, each in found.items()}
    both |= {pair[::-1]: 1 - above for pair, above in both.items()}
    return Ranking(standings, [[both.get((row, column)) for column in names] for row in names])


def holm(p_values: dict[tuple[str, str], float]) -> set[tuple[str, str]]:
    """The hypotheses that Holm's procedure rejects: from the least p-value on, while p · (those left) ≤ `ALPHA`."""
    rejected: set[tuple[str, str]] = set()
    for pair in sorted(p_values, key=lambda pair: p_values[pair]):
        if p_values[pair] * (len(p_values) - len(rejected)) > ALPHA:
            break
        rejected.add(pair)
    return rejected


def rank_models(results: Results, data: str, metric: Metric, models: Sequence[str] | None = None) -> Ranking:
    """Those of ``models`` (all) that have a figure on a data set, or on average, by the paired bootstrap.

    The p-values are normal, with the standard error of the bootstrap: 1,000 resamples show none below 0.002, and Holm's
    procedure asks for less from eight models on.
    """
    values = {
        model: each.value for model in models or results.models if (each := results.estimate(model, data, metric))
    }

    known = [name for name, value in values.items() if value == value]  # no NaN
    by_value = sorted(known, key=lambda name: -values[name])
    return rank(by_value, lambda a, b: comparison_of(results.difference(a, b, data, metric)))


def comparison_of(difference: Difference | None) -> Comparison | None:
    """A paired bootstrap test as a comparison, by the normal distribution (`rank_models`)."""
    if difference is None:
        return None
    error = difference.ci_half_width / NORMAL.inv_cdf(0.975)
    above = NORMAL.cdf(difference.points / error) if error else 0.5
    return Comparison(above, 2 * min(above, 1 - above))
