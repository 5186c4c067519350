"""Results of models × data sets for tables, figures and texts, measured now or precomputed, and their rankings.

`EvalResult` is one model on one data set: the scores of every pair, and correlations with their intervals. `AVERAGE` is
an additional column, the mean over the data sets without the development sets (STSb train and dev).

A ranking tests all pairs of systems by Holm's procedure (1979) at 5% together: the probability that any claim is false
stays below that. A system lies below all that are significantly better, and above all that are significantly worse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from training.data.dataset import Dataset
from training.evaluation.bootstrap import ALPHA, Estimate, Statistic, bootstrap_interval, correlation
from training.evaluation.scoring import SCORE
from training.names import DataName

STATISTICS = {"spearman": "Spearman ρ", "pearson": "Pearson r"}


class Metric(NamedTuple):
    """A key of `SIMILARITIES`, and one of `STATISTICS`, the correlations with the gold scores."""

    similarity: str = "cosine"
    statistic: str = "spearman"


@dataclass(frozen=True, eq=False)
class EvalResult:
    """The scores of N pairs under each similarity, float32 (N,); a cross-encoder has `SCORE` alone.

    The model read ``num_sentences`` distinct sentences in so many ``seconds``. Intervals allow for sentences that pairs
    share by the ``keys`` of the pairs (`sentence_keys`).
    """

    scores: dict[str, np.ndarray]
    gold: np.ndarray
    num_sentences: int
    seconds: float
    from_cache: bool = False
    keys: np.ndarray | None = None
    _statistics: dict[Metric, Statistic] = field(default_factory=dict, repr=False)

    @cached_property
    def left_out(self) -> list[int]:
        """The pairs without a score, NaN: the model knows no token of a text, or gives no finite number."""
        return np.flatnonzero(np.isnan(next(iter(self.scores.values())))).tolist()

    def measured(self, data: Dataset) -> tuple[EvalResult, Dataset]:
        """The result and its pairs without those that have no score."""
        return (self._scored, data.select(self._rows)) if self.left_out else (self, data)

    @cached_property
    def _rows(self) -> list[int]:
        return np.delete(np.arange(len(self.gold)), self.left_out).tolist()

    @cached_property
    def _scored(self) -> EvalResult:
        return self.select(self._rows)

    def select(self, rows: Sequence[int]) -> EvalResult:
        """The result of some of the pairs."""
        scores = {similarity: values[rows] for similarity, values in self.scores.items()}
        keys = None if self.keys is None else self.keys[rows]
        return replace(self, scores=scores, gold=self.gold[rows], keys=keys, _statistics={})

    def scores_by(self, similarity: str) -> np.ndarray:
        """The scores under a similarity; a cross-encoder's only scores under any. (N,) float32."""
        return self.scores[similarity] if similarity in self.scores else self.scores[SCORE]

    def statistic(self, metric: Metric) -> Statistic:
        """The correlation in -1..1, NaN where the scores or the gold scores are constant.

        Resample r is the same for every model. Pairs without a score are left out.
        """
        if self.left_out:
            return self._scored.statistic(metric)
        if SCORE in self.scores:
            metric = metric._replace(similarity=SCORE)
        if metric not in self._statistics:
            scores = self.scores_by(metric.similarity)
            self._statistics[metric] = correlation(scores, self.gold, metric.statistic, keys=self.keys)
        return self._statistics[metric]

    def estimate(self, metric: Metric) -> Estimate:
        """The correlation with its bootstrap interval (`bootstrap_interval`), ×100."""
        if self.left_out:
            return self._scored.estimate(metric)
        statistic = self.statistic(metric)
        if metric.statistic == "spearman":
            return statistic.estimate(100)
        scores = self.scores_by(metric.similarity)
        interval = bootstrap_interval(scores, self.gold, metric.statistic, keys=self.keys)
        return Estimate(*(100 * figure for figure in (statistic.value, interval.low, interval.high)))


AVERAGE = "average"
DEVELOPMENT_SETS = ("stsb:train", "stsb:dev")


def averaged(data: Sequence[str]) -> list[str]:
    """The data sets that enter the average; none if fewer than two would."""
    test_sets = [name for name in data if name not in DEVELOPMENT_SETS]
    return test_sets if len(test_sets) > 1 else []


def data_label(name: str) -> str:
    """The name in tables; a path without its folders."""
    return DataName.parse(name).label


class Standing(NamedTuple):
    """The bounds of the rank of a system, from 1. A ``tied`` system cannot be told apart from the first."""

    name: str
    tied: bool
    highest: int
    lowest: int


class Ranking(NamedTuple):
    """Standings, best first, with the confidence that row > column, which is None where two cannot be compared.

    The confidence is 1 − p / 2 of a two-sided test, not the probability that one run is better than one of the other.
    ``p_values`` are corrected by Holm's procedure over all pairs of systems; the better system comes first.
    """

    standings: list[Standing]
    above: list[list[float | None]]
    p_values: Mapping[tuple[str, str], float]

    @property
    def is_known(self) -> bool:
        """Whether any two can be compared."""
        return any(value is not None for row in self.above for value in row)

    def to_json(self) -> list[dict[str, Any]]:
        """Each standing, with the confidence that it is above each other system."""
        names = [standing.name for standing in self.standings]
        rows = zip(self.standings, self.above, strict=True)
        return [{**standing._asdict(), "above": dict(zip(names, row, strict=True))} for standing, row in rows]


def rank(names: Sequence[str], compare: Callable[[str, str], tuple[float, float] | None]) -> Ranking:
    """The standing of each of ``names``, which are best first.

    ``compare`` gives the lead of the first of two over the second, and the two-sided p-value.
    """
    comparisons = {pair: result for pair in combinations(names, 2) if (result := compare(*pair))}
    p_values = holm({pair: p_value for pair, (_, p_value) in comparisons.items()})
    better = {
        pair if comparisons[pair][0] > 0 else pair[::-1] for pair, p_value in p_values.items() if p_value <= ALPHA
    }
    standings = [
        Standing(
            name,
            (names[0], name) not in better,
            1 + sum((other, name) in better for other in names),
            len(names) - sum((name, other) in better for other in names),
        )
        for name in names
    ]
    above = {pair: 1 - p_value / 2 if lead > 0 else p_value / 2 for pair, (lead, p_value) in comparisons.items()}
    above |= {pair[::-1]: 1 - confidence for pair, confidence in above.items()}
    return Ranking(standings, [[above.get((row, column)) for column in names] for row in names], p_values)


def holm(p_values: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """The p-values that Holm's procedure corrects, from the least on: p · (number left), and none below one before."""
    corrected = dict[tuple[str, str], float]()
    least = 0.0
    for pair in sorted(p_values, key=lambda pair: p_values[pair]):
        least = max(least, min(1.0, p_values[pair] * (len(p_values) - len(corrected))))
        corrected[pair] = least
    return corrected
