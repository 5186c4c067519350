"""Difference: is one model better than another, or was it luck with the pairs? A paired bootstrap, and its words."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

CHANCE = 0.05


class Difference(NamedTuple):
    """In points (×100): how much the first is better, half the 95% interval, and how often luck does as much."""

    points: float
    ci_half_width: float
    p_value: float
    resamples: int

    @classmethod
    def of(cls, value_a: float, value_b: float, draws_a: np.ndarray, draws_b: np.ndarray) -> Difference | None:
        """From two correlations and their draws, which are the same pairs in both. None where there is none."""
        apart = draws_a - draws_b
        apart = apart[~np.isnan(apart)]
        if np.isnan(value_a - value_b) or not len(apart):
            return None
        low, high = np.percentile(apart, [2.5, 97.5])
        beyond = min((apart <= 0).sum(), (apart >= 0).sum())
        p = min(1.0, 2 * (1 + int(beyond)) / (1 + len(apart)))
        return cls(100 * (value_a - value_b), 50 * float(high - low), p, len(apart))

    def describe(self, a: str, b: str, data: str) -> str:
        """A sentence. Names as they are: whoever makes HTML of it escapes it."""
        least = round(2 / (1 + self.resamples), 3)  # that so many draws can show
        chance = f"p {'≤' if round(self.p_value, 3) <= least else '='} {self.p_value:.3f}"
        how = f"paired bootstrap, {self.resamples:,} draws, {chance}"
        if self.p_value >= CHANCE:
            return (
                f"{a} and {b} cannot be told apart {data}: {self.points:+.1f} ± {self.ci_half_width:.1f} points ({how})"
            )
        first, second = (a, b) if self.points > 0 else (b, a)
        return (
            f"{first} is {abs(self.points):.1f} ± {self.ci_half_width:.1f} points better than {second} {data} ({how})"
        )
