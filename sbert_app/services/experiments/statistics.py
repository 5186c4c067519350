"""What the runs of a sweep add up to: mean and spread, intervals, and a paired test against the default.

A value is the Spearman ρ ×100 that one run ended with. Runs of one seed see the same data in the same order, whatever
the variant, so the test pairs them by seed: it asks whether the mean difference within a seed is zero (Student's t).
It says what so few runs can say, and no more: other data or another base are other questions.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sbert_app.services.experiments.ablations import Ablation

LEVEL = 0.95
DOUBT = 1 - LEVEL  # p below this is called a difference

Values = Mapping[tuple[str, int], float]  # (variant, seed) -> Spearman ρ ×100


@dataclass(frozen=True)
class Summary:
    """Of some values: the spread and the interval are None for a single one."""

    n: int
    mean: float
    deviation: float | None  # of the sample, n - 1
    low: float | None  # the 95% interval of the mean, Student's t
    high: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary | None:
        """None for no values."""
        if not values:
            return None
        mean, n = statistics.fmean(values), len(values)
        if n == 1:
            return cls(1, mean, None, None, None)
        deviation = statistics.stdev(values)
        reach = _quantile(n - 1) * deviation / math.sqrt(n)
        return cls(n, mean, deviation, mean - reach, mean + reach)


@dataclass(frozen=True)
class Paired:
    """A variant against the default, over the seeds that both have."""

    difference: Summary  # variant minus default
    better: int  # seeds in which the variant is ahead
    p: float | None  # two-sided; None where one seed, or differences without any spread, leave nothing to test

    @classmethod
    def of(cls, ours: Mapping[int, float], default: Mapping[int, float]) -> Paired | None:
        """By seed. None if no seed has both."""
        differences = [ours[seed] - default[seed] for seed in sorted(ours.keys() & default.keys())]
        summary = Summary.of(differences)
        if summary is None:
            return None
        return cls(summary, sum(value > 0 for value in differences), _p_value(summary))

    @property
    def words(self) -> str:
        """What the test means, in a sentence."""
        gap, n = self.difference.mean, self.difference.n
        side = "above" if gap > 0 else "below"
        if n == 1:
            return f"{abs(gap):.1f} {side} in the one seed: nothing to test"
        if self.p is None:
            return "the same in every seed" if gap == 0 else f"{abs(gap):.1f} {side} in every seed, without spread"
        if self.p >= DOUBT:
            return f"not told apart from the default by {n} seeds"
        ahead = self.better if gap > 0 else n - self.better
        seeds = f"all {n} seeds" if ahead == n else f"{ahead} of {n} seeds"
        low, high = sorted((abs(self.difference.low or 0), abs(self.difference.high or 0)))
        return f"{'better' if gap > 0 else 'worse'} by {low:.1f} to {high:.1f} points, in {seeds}"


@dataclass(frozen=True)
class VariantRow:
    """One variant of a table. ``against`` is None for the default, and where nothing can be compared."""

    variant: str
    label: str
    is_default: bool
    values: Mapping[int, float]  # by seed
    before: float | None  # of the base as it came, under this variant
    summary: Summary | None
    against: Paired | None
    paper: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain values only, with the test in words."""
        values = asdict(self)
        return (
            values if self.against is None else values | {"against": {**values["against"], "words": self.against.words}}
        )


def rows(ablation: Ablation, values: Values, before: Values | None = None) -> list[VariantRow]:
    """A row for each variant, in the ablation's order; variants without a run have no summary."""
    by_variant = {name: {seed: value for (v, seed), value in values.items() if v == name} for name in ablation.variants}
    default = by_variant[ablation.default]
    return [
        VariantRow(
            name,
            variant.label,
            name == ablation.default,
            by_variant[name],
            _mean([value for (v, _), value in (before or {}).items() if v == name]),
            Summary.of(list(by_variant[name].values())),
            None if name == ablation.default else Paired.of(by_variant[name], default),
            variant.paper,
        )
        for name, variant in ablation.variants.items()
    ]


def by_chance(tests: int) -> float:
    """How often at least one of so many tests falls below p = 0.05 though nothing differs, if independent."""
    return 1 - LEVEL**tests


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _quantile(freedom: int) -> float:
    """The factor of a two-sided interval at `LEVEL`."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + LEVEL) / 2))


def _p_value(difference: Summary) -> float | None:
    from scipy.special import stdtr

    if not difference.deviation:
        return None
    t = difference.mean / (difference.deviation / math.sqrt(difference.n))
    return float(2 * stdtr(difference.n - 1, -abs(t)))
