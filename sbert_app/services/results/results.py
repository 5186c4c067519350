"""Results of models × data sets for tables, figures and texts, measured now or precomputed, and their rankings.

`EvalResult` is one model on one data set: the scores of every pair, and correlations with their
intervals. `AVERAGE` is an additional column, the mean over the data sets without the development
sets (STSb train and dev).

A ranking tests all pairs of systems at a family-wise error rate of 5%, by Holm's procedure (1979):
the probability that any of its claims is false is at most 5%. A system ranks below all systems that
are significantly better, and above all that are significantly worse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from training.data.dataset import Dataset
from training.evaluation.bootstrap import (
    ALPHA,
    Estimate,
    Statistic,
    bootstrap_interval,
    correlation,
)
from training.evaluation.scoring import SCORE
from training.names import DataName

STATISTICS = {"spearman": "Spearman ρ", "pearson": "Pearson r"}


class Metric(NamedTuple):
    """A key of `SIMILARITIES`, and a key of `STATISTICS`, the correlation with the gold scores."""

    similarity: str = "cosine"
    statistic: str = "spearman"


@dataclass(frozen=True, eq=False)
class EvalResult:
    """The result of a model on N pairs.

    Attributes:
        scores: the scores under each similarity, float32 (N,); a cross-encoder has only `SCORE`.
        gold: the gold scores, float64 (N,).
        num_sentences: the number of distinct sentences, which the model read in ``seconds``.
        keys: the `sentence_keys` of the pairs, by which intervals take into account that pairs
            share sentences.
    """

    scores: dict[str, np.ndarray]
    gold: np.ndarray
    num_sentences: int
    seconds: float
    from_cache: bool = False
    keys: np.ndarray | None = None
    # The resamples of a statistic take time, so it is computed once.
    _statistics: dict[Metric, Statistic] = field(default_factory=dict, repr=False)

    @cached_property
    def left_out(self) -> list[int]:
        """The pairs whose score is NaN: the model knows no token of a text, or gives no finite score.

        `evaluate_one` gives such a pair NaN under all similarities, so that the first one shows it.
        """
        return np.flatnonzero(np.isnan(next(iter(self.scores.values())))).tolist()

    def without_unscored(self, data: Dataset) -> tuple[EvalResult, Dataset]:
        """The result and the data without pairs that have no score."""
        if not self.left_out:
            return self, data
        return self._scored, data.select(self._scored_rows)

    @cached_property
    def _scored_rows(self) -> list[int]:
        return np.delete(np.arange(len(self.gold)), self.left_out).tolist()

    @cached_property
    def _scored(self) -> EvalResult:
        """The result without the pairs that have no score."""
        return self.select(self._scored_rows)

    def select(self, rows: Sequence[int]) -> EvalResult:
        """The result of some of the pairs."""
        scores = {similarity: values[rows] for similarity, values in self.scores.items()}
        keys = None if self.keys is None else self.keys[rows]
        return replace(self, scores=scores, gold=self.gold[rows], keys=keys, _statistics={})

    def scores_by(self, similarity: str) -> np.ndarray:
        """The scores under a similarity, float32 (N,); the only scores of a cross-encoder under any similarity."""
        return self.scores[similarity if similarity in self.scores else SCORE]

    def statistic(self, metric: Metric) -> Statistic:
        """The correlation from -1 to 1; NaN if the scores or the gold scores are constant.

        Its interval is a bootstrap, whose resamples draw the same pairs for every model, so that
        models can be compared. Pairs without a score are left out.
        """
        if self.left_out:
            return self._scored.statistic(metric)
        # A cross-encoder has this one score, which stands for every similarity.
        if SCORE in self.scores:
            metric = metric._replace(similarity=SCORE)
        if metric not in self._statistics:
            scores = self.scores_by(metric.similarity)
            self._statistics[metric] = correlation(
                scores, self.gold, metric.statistic, keys=self.keys
            )
        return self._statistics[metric]

    def estimate(self, metric: Metric) -> Estimate:
        """The correlation with its bootstrap interval (`bootstrap_interval`), ×100."""
        if self.left_out:
            return self._scored.estimate(metric)
        statistic = self.statistic(metric)
        if metric.statistic == "spearman":
            return statistic.estimate(100)
        # The interval of Pearson's correlation is studentised, so the replicates are not enough.
        scores = self.scores_by(metric.similarity)
        interval = bootstrap_interval(scores, self.gold, metric.statistic, keys=self.keys)
        return Estimate(100 * statistic.value, 100 * interval.low, 100 * interval.high)


AVERAGE = "average"
DEVELOPMENT_SETS = ("stsb:train", "stsb:dev")


def averaged(data: Sequence[str]) -> list[str]:
    """The data sets that enter the average; none if there are fewer than two."""
    test_sets = [name for name in data if name not in DEVELOPMENT_SETS]
    return test_sets if len(test_sets) > 1 else []


def data_label(name: str) -> str:
    """The name in tables, where a path is shown without its folders."""
    return DataName.parse(name).label


class Standing(NamedTuple):
    """The lowest and highest rank that a system may have, from 1.

    A ``tied`` system does not differ significantly from the first.
    """

    name: str
    tied: bool
    highest: int
    lowest: int


class Ranking(NamedTuple):
    """The order of systems, and the significance of their differences.

    Attributes:
        standings: the systems, best first.
        above: the confidence that the system of the row is better than the system of the column, in
            the order of ``standings``: 1 − p / 2 of a two-sided test, not the probability that a
            single run is better. None if the two cannot be compared.
        p_values: by the better and the worse system, corrected by Holm's procedure over all pairs.
    """

    standings: list[Standing]
    above: list[list[float | None]]
    p_values: Mapping[tuple[str, str], float]

    @property
    def is_known(self) -> bool:
        """Whether any two systems can be compared."""
        return any(value is not None for row in self.above for value in row)

    def to_json(self) -> list[dict[str, Any]]:
        """Each standing as JSON values, with the confidence that it is better than each other system."""
        names = [standing.name for standing in self.standings]
        values = []
        for standing, row in zip(self.standings, self.above, strict=True):
            values.append({**standing._asdict(), "above": dict(zip(names, row, strict=True))})
        return values


def rank(
    names: Sequence[str], compare: Callable[[str, str], tuple[float, float] | None]
) -> Ranking:
    """The ranking of ``names``, which are sorted by quality, best first.

    ``compare`` returns the lead of the first system over the second, and the two-sided p-value; None
    if the two cannot be compared.
    """
    leads = {}
    raw_p_values = {}
    confidences = {}
    for a, b in combinations(names, 2):
        comparison = compare(a, b)
        if comparison is None:
            continue
        lead, p_value = comparison
        leads[a, b] = lead
        raw_p_values[a, b] = p_value
        # The confidence that ``a`` is better than ``b``, by the one-sided test.
        confidence = p_value / 2
        if lead > 0:
            confidence = 1 - confidence
        confidences[a, b] = confidence
        confidences[b, a] = 1 - confidence
    p_values = holm(raw_p_values)
    # The pairs (better, worse) that differ significantly.
    better = set()
    for (a, b), p_value in p_values.items():
        if p_value > ALPHA:
            continue
        if leads[a, b] > 0:
            better.add((a, b))
        else:
            better.add((b, a))
    standings = []
    for name in names:
        # A rank is below all systems that are better, and above all that are worse.
        standing = Standing(
            name,
            tied=(names[0], name) not in better,
            highest=1 + sum((other, name) in better for other in names),
            lowest=len(names) - sum((name, other) in better for other in names),
        )
        standings.append(standing)
    above = []
    for row in names:
        above.append([confidences.get((row, column)) for column in names])
    return Ranking(standings, above, p_values)


def holm(p_values: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """The p-values, corrected by Holm's procedure.

    The least of n p-values is multiplied by n, the next one by n − 1, and so on. The order stays:
    where a product is below the one before it, the one before it is taken.
    """
    corrected = dict[tuple[str, str], float]()
    least = 0.0
    for pair in sorted(p_values, key=lambda pair: p_values[pair]):
        factor = len(p_values) - len(corrected)
        least = max(least, min(1.0, factor * p_values[pair]))
        corrected[pair] = least
    return corrected
