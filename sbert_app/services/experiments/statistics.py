"""Statistics of a sweep: mean, standard deviation and interval of each variant, and a paired test against the default.

A value is the Spearman ρ ×100 of one run after its last step. Runs of the same seed see the same data in the same
order in every variant, so the test pairs them by seed: Student's t-test of the mean difference within a seed. It is
about these data and this base only.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isnan
from typing import Any

from sbert_app.services.experiments.ablations import Ablation
from sbert_app.services.results.ranking import Comparison, Ranking, rank

LEVEL = 0.95
SIGNIFICANCE = 1 - LEVEL  # a difference is significant if p is below this

Values = Mapping[tuple[str, int], float]  # (variant, seed) -> Spearman ρ ×100


@dataclass(frozen=True)
class Summary:
    """Mean, standard deviation and interval of values; the latter two are None for a single value."""

    n: int
    mean: float
    deviation: float | None  # standard deviation, with n - 1
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
        from scipy import stats  # takes a second

        ci_half_width = float(stats.t.ppf((1 + LEVEL) / 2, n - 1) * stats.sem(values))
        return cls(n, mean, statistics.stdev(values), mean - ci_half_width, mean + ci_half_width)


@dataclass(frozen=True)
class Paired:
    """A variant compared with the default, over the seeds that both have."""

    difference: Summary  # variant minus default
    better: int  # seeds in which the variant is better
    p: float | None  # two-sided; None for one seed, or if all differences are equal

    @classmethod
    def of(cls, variant: Mapping[int, float], default: Mapping[int, float]) -> Paired | None:
        """From values by seed. None if no seed has both."""
        seeds = sorted(variant.keys() & default.keys())
        differences = [variant[seed] - default[seed] for seed in seeds]
        summary = Summary.of(differences)
        if summary is None:
            return None
        p = None
        if summary.deviation:
            from scipy import stats

            p = float(stats.ttest_rel([variant[seed] for seed in seeds], [default[seed] for seed in seeds]).pvalue)
        return cls(summary, sum(value > 0 for value in differences), p)

    @property
    def words(self) -> str:
        """The result of the test in words."""
        gap, n = self.difference.mean, self.difference.n
        side = "above" if gap > 0 else "below"
        if n == 1:
            return f"{abs(gap):.1f} {side} in the one seed: nothing to test"
        if self.p is None:
            return "the same in every seed" if gap == 0 else f"{abs(gap):.1f} {side} in every seed, without variation"
        if self.p >= SIGNIFICANCE:
            return f"not significantly different from the default with {n} seeds"
        ahead = self.better if gap > 0 else n - self.better
        seeds = f"all {n} seeds" if ahead == n else f"{ahead} of {n} seeds"
        low, high = sorted((abs(self.difference.low or 0), abs(self.difference.high or 0)))
        return f"{'better' if gap > 0 else 'worse'} by {low:.1f} to {high:.1f} points, in {seeds}"


@dataclass(frozen=True)
class VariantRow:
    """One variant of a table. ``against`` is None for the default, and if no seed can be compared."""

    variant: str
    label: str
    is_default: bool
    values: Mapping[int, float]  # by seed
    before: float | None  # of the base, under this variant
    summary: Summary | None
    against: Paired | None
    paper: float | None

    def to_json(self) -> dict[str, Any]:
        """JSON values, with the result of the test in words."""
        against = None if self.against is None else {**asdict(self.against), "words": self.against.words}
        return {**asdict(self), "against": against}


def rows(ablation: Ablation, values: Values, before: Values | None = None) -> list[VariantRow]:
    """A row for each variant, in the ablation's order; the summary of a variant without runs is None."""
    by_variant = {name: {seed: value for (v, seed), value in values.items() if v == name} for name in ablation.variants}
    default = by_variant[ablation.default]
    return [
        VariantRow(
            name,
            variant.label,
            name == ablation.default,
            by_variant[name],
            statistics.fmean(bases) if (bases := [x for (v, _), x in (before or {}).items() if v == name]) else None,
            Summary.of(list(by_variant[name].values())),
            None if name == ablation.default else Paired.of(by_variant[name], default),
            variant.paper,
        )
        for name, variant in ablation.variants.items()
    ]


def rank_variants(rows: Sequence[VariantRow]) -> Ranking:
    """Which variants cannot be told apart from the best, by the paired test of each two over their common seeds."""
    means = {row.variant: row.summary.mean for row in rows if row.summary and not isnan(row.summary.mean)}
    values = {row.variant: row.values for row in rows}

    def compare(a: str, b: str) -> Comparison | None:
        paired = Paired.of(values[a], values[b])
        if paired is None or paired.p is None:
            return None
        return Comparison(1 - paired.p / 2 if paired.difference.mean > 0 else paired.p / 2, paired.p)

    return rank(sorted(means, key=lambda name: -means[name]), compare)
