"""Scores of pairs that match or do not: the thresholds that fulfil a criterion, and average precision.

    pairs = MatchScores(scores, matches)                  scores (N,), matches (N,) bool
    pairs.choose(Criterion.parse("precision=0.95"))       Estimate(value=0.74, low=nan, high=nan)
    pairs.more_pairs(0.95)                                about 120, where there is none

`training.evaluation.thresholds` chooses on one half of the pairs, and measures on the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from training.errors import InputError
from training.evaluation.bootstrap import (
    NO_ESTIMATE,
    NORMAL,
    SHARE,
    Estimate,
    Keys,
    Statistic,
    affordable_resamples,
    dependence,
    ratio,
    resample_weights,
    wilson_interval,
)
from training.evaluation.metrics import PrecisionRecall, precision_recall

BEST_F1, PRECISION, FIXED = "best-f1", "precision", "fixed"
# The confidence that the precision of a threshold is reached.
CONFIDENCE = 0.9
# The factor between the numbers of pairs above two thresholds that are tested in turn.
NEXT_TESTED = 1.05
# The factor between the numbers of pairs above two thresholds at which the tests start afresh.
NEXT_START = 4
# The fewest pairs above a threshold whose precision is estimated, unless fewer match.
LEAST_ABOVE = 20
# The resamples of the pairs by which the number of missing pairs is estimated, and the share that it suffices for.
FORECASTS, NINE_OF_TEN = 200, 0.9
# The share of these resamples that reach a precision with more pairs, where it counts as within reach: one that these
# pairs reach needs fewer.
REACHING, REACHING_HERE = 0.7, 0.5
# The best threshold of a sample looks better than it is. By simulation so many times the pairs of a forecast suffice.
MARGIN = 2.5
# The multiple of the pairs from which on a precision counts as out of reach.
OUT_OF_REACH = 100
# The number of pairs from which on the interval of the best F1's threshold has its coverage.
INTERVAL_FROM = 150
# The number of pairs from which on the bootstrap interval of average precision covers more than Wilson's.
AVERAGE_FROM = 300


class Criterion(NamedTuple):
    """A condition on a threshold: ``value`` is the least precision, or the threshold itself if it is fixed."""

    kind: str
    value: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Criterion:
        """Reads ``best-f1``, ``precision=0.95`` or a number. Raises InputError for anything else."""
        name, _, number = text.strip().lower().partition("=")
        if name == BEST_F1 and not number:
            return cls(BEST_F1)
        try:
            value = float(number if name == PRECISION else text)
        except ValueError:
            value = float("nan")
        if name == PRECISION and 0 < value < 1:
            return cls(PRECISION, value)
        if name != PRECISION and np.isfinite(value):
            return cls(FIXED, value)
        raise InputError(f"threshold {text[:80]!r} must be {BEST_F1}, {PRECISION}=0.95 (above 0, below 1) or a number")

    def __str__(self) -> str:
        return {BEST_F1: BEST_F1, PRECISION: f"{PRECISION}={self.value:g}"}.get(self.kind, f"{self.value:g}")


class MatchScores:
    """Scores (N,), whether each pair matches, (N,), and their `sentence_keys`."""

    def __init__(self, scores: np.ndarray, matches: np.ndarray, keys: Keys = None) -> None:
        self.scores, self.matches = np.asarray(scores, dtype=np.float64), np.asarray(matches).astype(bool)
        self.keys = keys

    def select(self, rows: np.ndarray) -> MatchScores:
        return MatchScores(self.scores[rows], self.matches[rows], None if self.keys is None else self.keys[rows])

    @cached_property
    def curve(self) -> PrecisionRecall:
        return precision_recall(self.scores, self.matches)

    @cached_property
    def effect(self) -> float:
        """The number of pairs that count as one independent pair, as they share sentences: at least 1."""
        return dependence(self.matches - isotonic(self.scores, self.matches), self.keys) ** 2

    @property
    def least_above(self) -> int:
        return min(LEAST_ABOVE, int(self.matches.sum()))

    def average_precision(self) -> Statistic:
        """Average precision; resamples in which no match is drawn have none.

        The number of pairs alone decides which are drawn, so that models can be compared replicate by replicate.
        """
        curve, replicates = self.curve, []
        for hits, predicted in self._resampled_counts(seed=0):
            gained = np.diff(hits, axis=1, prepend=0)
            with np.errstate(invalid="ignore"):
                replicates.append((gained * hits / np.maximum(predicted, 1)).sum(axis=1) / hits[:, -1])
        # A pair counts for its own precision if it matches, and moves the precision of all matches with a score as low.
        place = np.searchsorted(-curve.threshold, -self.scores)
        share = np.diff(curve.hits, prepend=0) / curve.predicted
        moves, lost = (np.cumsum(values[::-1])[::-1][place] for values in (share, share * curve.precision))
        own = self.matches * (curve.precision[place] + moves - curve.average_precision) - lost
        return Statistic(curve.average_precision, np.concatenate(replicates), own / curve.hits[-1], self.keys, SHARE)

    def estimate_average_precision(self) -> Estimate:
        """Average precision, with its bootstrap interval; with Wilson's below `AVERAGE_FROM` pairs."""
        estimate = self.average_precision().estimate()
        if len(self.scores) >= AVERAGE_FROM:
            return estimate
        # Wilson's interval of a share of the matches (Boyd, Eng & Page 2013: a binomial one). The percentile interval
        # holds the true figure in 56 to 84% of samples of 20 pairs, and Wilson's in 92 to 93% of 1,000 and more.
        effective = int(self.matches.sum()) / self.effect
        low, high, _ = wilson_interval(estimate.value * effective, effective)
        return Estimate(estimate.value, low, high)

    def choose(self, criterion: Criterion, seed: int = 0) -> Estimate:
        """The threshold of a criterion on these pairs; `NO_ESTIMATE` where none fulfils it.

        The threshold of the best F1 has an interval from `INTERVAL_FROM` pairs on.
        """
        if criterion.kind == FIXED:
            return Estimate(*(criterion.value,) * 3)
        if criterion.kind == PRECISION:
            place = _most_recall(self.curve, criterion.value, self.effect)
            return NO_ESTIMATE if place < 0 else NO_ESTIMATE._replace(value=float(self.curve.threshold[place]))
        threshold = float(self.curve.threshold[int(self.curve.f1.argmax())])
        if len(self.scores) < INTERVAL_FROM:
            return NO_ESTIMATE._replace(value=threshold)
        counts = self._resampled_counts(seed)
        f1 = np.concatenate([2 * hits / np.maximum(predicted + hits[:, -1:], 1) for hits, predicted in counts])
        above = self.scores >= threshold
        _, influence = ratio(2.0 * (above & self.matches), above.astype(float) + self.matches)
        return Statistic(threshold, self.curve.threshold[f1.argmax(axis=1)], influence, self.keys).estimate()

    def _resampled_counts(self, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For blocks of resamples: matches, and pairs, from each threshold of the curve on; (R, T) each."""
        order, last = np.argsort(-self.scores, kind="stable"), self.curve.predicted - 1
        for draws in resample_weights(len(order), affordable_resamples(len(order)), seed):
            # Weights belong to pairs and not to ranks, so that all models have the same resamples.
            weights = draws[:, order]
            yield np.cumsum(weights * self.matches[order], axis=1)[:, last], np.cumsum(weights, axis=1)[:, last]

    def reached(self, precision: float) -> Estimate:
        """The lowest threshold, of at least 20 pairs, with this precision on these pairs; `NO_ESTIMATE` for none."""
        places = np.flatnonzero((self.curve.precision >= precision) & (self.curve.predicted >= self.least_above))
        return NO_ESTIMATE._replace(value=float(self.curve.threshold[places[-1]])) if len(places) else NO_ESTIMATE

    def more_pairs(self, precision: float, seed: int = 0) -> int:
        """About the number of pairs that are missing beside these for a threshold that is sure to have a precision.

        Each resample of these pairs gives a curve of precisions that never fall as the threshold rises, and so the
        number of pairs from which on the test of its best threshold succeeds in nine of ten samples. Of the resamples
        for which that is at most 100 times as many pairs as these, the result suffices for nine of ten, with a margin;
        it is 0 where they are fewer than 70% of all, or than half of all if these pairs reach it.
        """
        n, order = len(self.scores), np.argsort(self.scores, kind="stable")
        z, power, needed = NORMAL.inv_cdf(1 - (1 - CONFIDENCE) / 3), NORMAL.inv_cdf(NINE_OF_TEN), []
        random = np.random.default_rng(seed)
        above = np.arange(n, 0, -1)
        for _ in range(FORECASTS):
            rows = order[np.sort(random.integers(n, size=n))]
            shares = isotonic(self.scores[rows], self.matches[rows])[::-1].cumsum()[::-1] / above
            better = shares - precision
            error = z * np.sqrt(precision * (1 - precision)) + power * np.sqrt(shares * (1 - shares))
            is_better = (better > 0) & (above >= self.least_above)
            enough = np.where(is_better, (error / np.maximum(better, 1e-9)) ** 2, np.inf)
            needed.append(float((np.maximum(enough, _fewest(precision, (1 - CONFIDENCE) / 3)) * n / above).min()))
        reaching = np.sort([number for number in needed if number <= OUT_OF_REACH * n])
        is_here = not np.isnan(self.reached(precision).value)
        if len(reaching) < (REACHING_HERE if is_here else REACHING) * FORECASTS:
            return 0
        missing = max(MARGIN * self.effect * reaching[int(NINE_OF_TEN * (len(reaching) - 1))] - n, n / 10, 1)
        # More than two digits would not be true of it.
        return int(float(f"{missing:.1e}"))

    def measure(self, threshold: Estimate, seed: int) -> tuple[Estimate, Estimate, Estimate]:
        """Precision, recall and F1 of a threshold on these pairs, with their intervals."""
        if np.isnan(threshold.value):
            return NO_ESTIMATE, NO_ESTIMATE, NO_ESTIMATE
        above = self.scores >= threshold.value
        rows = np.stack([above & self.matches, above, self.matches]).astype(np.float64)
        draws = resample_weights(len(above), affordable_resamples(len(above)), seed + 1)
        counts, estimates = np.concatenate([weights @ rows.T for weights in draws]), []  # (R, 3)
        # The parts of hits, pairs above and matches in the numerator and in the denominator.
        for top, bottom in (((1, 0, 0), (0, 1, 0)), ((1, 0, 0), (0, 0, 1)), ((2, 0, 0), (0, 1, 1))):
            value, influence = ratio(top @ rows, bottom @ rows)
            # Nothing above the threshold: precision is not defined.
            with np.errstate(invalid="ignore", divide="ignore"):
                statistic = Statistic(value, (counts @ top) / (counts @ bottom), influence, self.keys, SHARE)
            estimates.append(statistic.estimate())
            # Where a share is 0 or 1 resamples cannot differ.
            if value in (0, 1) and top[0] == 1:
                n = (bottom @ rows).sum() / self.effect
                estimates[-1] = Estimate(value, *wilson_interval(value * n, n)[:2])
        precision, recall, f1 = estimates
        return precision, recall, f1


def isotonic(scores: np.ndarray, matches: np.ndarray) -> np.ndarray:
    """The share of matches at each score, (N,), that never falls as scores rise (isotonic regression)."""
    from scipy.optimize import isotonic_regression

    # Equal scores have an equal share.
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    shares = np.bincount(place, matches) / counts
    return isotonic_regression(shares, weights=counts).x[place]


def _most_recall(curve: PrecisionRecall, precision: float, effect: float = 1.0) -> int:
    """The place in the curve of the lowest threshold that is shown to have this precision; −1 where none is.

    Exact binomial tests (Clopper-Pearson's bound; Wilson's is too lenient near 1) of hypotheses in a fixed order, from
    the highest threshold on which a test can succeed downwards, each with 5% more pairs above it than the one before.
    A test is made with the error of those before it, as long as they succeed (the fallback procedure, Wiens 2003), so
    that the search costs nothing: the probability that any threshold is accepted wrongly stays below 1 - `CONFIDENCE`.
    The error is divided equally among the starts, each with 4 times the pairs, so that one bad pair at the top does not
    end the search. Given the scores, matches among the pairs above a threshold are independent, so the test is exact;
    where they share sentences, ``effect`` pairs count as one.
    """
    # betainc(k, n - k + 1, p) is P(X >= k) of a binomial distribution, also for parts of pairs.
    from scipy.special import betainc

    predicted, hits = curve.predicted / effect, curve.hits / effect
    n, error, starts = int(predicted[-1]), 1 - CONFIDENCE, 1
    while _fewest(precision, error / (starts + 1)) * NEXT_START**starts <= n:
        starts += 1
    first = _fewest(precision, error / starts)
    start_at = {first * NEXT_START**start for start in range(starts)}
    steps = (first * NEXT_TESTED ** np.arange(np.log(max(n / first, 1)) / np.log(NEXT_TESTED) + 1)).astype(int)
    best, level = -1, 0.0
    for pairs in sorted(start_at.union(steps.tolist())):
        if pairs > n:
            break
        place = int(np.searchsorted(predicted, pairs))
        level += error / starts if pairs in start_at else 0
        if level and hits[place] and betainc(hits[place], predicted[place] - hits[place] + 1, precision) <= level:
            best = place
        else:
            level = 0.0
    return best


def _fewest(precision: float, error: float) -> int:
    """The least number of pairs, all of them matches, that shows a precision."""
    return int(np.ceil(np.log(error) / np.log(precision)))
