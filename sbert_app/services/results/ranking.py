"""Which systems cannot be told apart, and between which ranks each lies.

    ranking = rank(["a", "b", "c"], compare)      best first; compare("a", "b") -> a `Comparison`, or None
    ranking.standings[0].tied                     whether it cannot be told apart from the best
    ranking.above[0][1]                           P(a > b)

All pairs of systems are tested, by Holm's procedure (1979) at 5% together: the probability that any claim is false
stays below that. A system lies below all that are significantly better, and above all that are significantly worse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from statistics import NormalDist
from typing import Any, NamedTuple

from sbert_app.services.results.results import Difference, Metric, Results
from training.evaluation.bootstrap import ALPHA

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
