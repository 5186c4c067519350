"""A paired bootstrap test: is one model better than another on the same pairs, or the same queries?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

ALPHA = 0.05


class Difference(NamedTuple):
    """The difference of two correlations, in points (×100)."""

    points: float  # positive: the first model is better
    ci_half_width: float  # half the width of the 95% interval
    p_value: float  # two-sided
    resamples: int

    @classmethod
    def of(
        cls, value_a: float, value_b: float, replicates_a: np.ndarray, replicates_b: np.ndarray
    ) -> Difference | None:
        """From two correlations and their replicates (R,) on the same resamples. None where one is undefined."""
        differences = replicates_a - replicates_b
        differences = differences[~np.isnan(differences)]
        if np.isnan(value_a - value_b) or not len(differences):
            return None
        low, high = np.percentile(differences, [2.5, 97.5])
        smaller_tail = min((differences <= 0).sum(), (differences >= 0).sum())
        p_value = min(1.0, 2 * (1 + int(smaller_tail)) / (1 + len(differences)))
        return cls(100 * (value_a - value_b), 50 * float(high - low), p_value, len(differences))

    def describe(self, a: str, b: str, data: str) -> str:
        """A sentence in plain text about models ``a`` and ``b`` on ``data`` ("on STSb")."""
        smallest = round(2 / (1 + self.resamples), 3)  # the smallest p-value that so many resamples can show
        p_value = f"p {'≤' if round(self.p_value, 3) <= smallest else '='} {self.p_value:.3f}"
        test = f"paired bootstrap, {self.resamples:,} resamples, {p_value}"
        margin = f"± {self.ci_half_width:.1f} points"
        if self.p_value >= ALPHA:
            return f"{a} and {b} do not differ significantly {data}: {self.points:+.1f} {margin} ({test})"
        better, worse = (a, b) if self.points > 0 else (b, a)
        return f"{better} is {abs(self.points):.1f} {margin} better than {worse} {data} ({test})"
