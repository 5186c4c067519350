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

BEST_F1 = "best-f1"
PRECISION = "precision"
FIXED = "fixed"
# The error of the test that a threshold has a precision: that a threshold at which it is just missed passes.
TEST_ERROR = 0.08
# The factor between the numbers of pairs above two thresholds that are tested in turn.
NEXT_TESTED = 1.05
# The fewest pairs above a threshold whose precision is estimated, unless fewer match.
LEAST_ABOVE = 20
# The quantiles of the test's error, and of its success in nine of ten samples.
ERROR_QUANTILE = NORMAL.inv_cdf(1 - TEST_ERROR)
POWER_QUANTILE = NORMAL.inv_cdf(0.9)
# The pairs that are added before a number of missing pairs is named, as a multiple of the fewest that show a precision.
CAUTION = 2
# The factor by which the number is larger, so that it suffices in nine of ten samples (`scripts.measure_thresholds`).
MARGIN = 2
# The multiple of the pairs from which on a precision is not well within reach, and the least share that is missing.
OUT_OF_REACH = 20
LEAST_MORE = 0.1
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
        self.scores = np.asarray(scores, dtype=np.float64)
        self.matches = np.asarray(matches).astype(bool)
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
        curve = self.curve
        replicates = []
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
            place = self._most_recall(criterion.value)
            return NO_ESTIMATE if place < 0 else NO_ESTIMATE._replace(value=float(self.curve.threshold[place]))
        threshold = float(self.curve.threshold[int(self.curve.f1.argmax())])
        if len(self.scores) < INTERVAL_FROM:
            return NO_ESTIMATE._replace(value=threshold)
        counts = self._resampled_counts(seed)
        f1 = np.concatenate([2 * hits / np.maximum(predicted + hits[:, -1:], 1) for hits, predicted in counts])
        above = self.scores >= threshold
        _, influence = ratio(2.0 * (above & self.matches), above.astype(float) + self.matches)
        return Statistic(threshold, self.curve.threshold[f1.argmax(axis=1)], influence, self.keys).estimate()

    def _most_recall(self, precision: float) -> int:
        """The place in the curve of the lowest threshold that is shown to have this precision; −1 where none is.

        Thresholds are tested from high to low, each with 5% more pairs above it than the one before, until one fails
        after one has passed. The test is an exact binomial one (Clopper-Pearson's bound; Wilson's is too lenient near
        1): given the scores, matches among the pairs above a threshold are independent.

        Tests in a fixed order need no correction if they end at the first failure (Angelopoulos et al. 2021, "Learn
        then Test"). The first success is looked for here instead, since no place to begin is right for all scores:
        the highest thresholds have too few pairs, and those further down are missed where few pairs match.
        `scripts.measure_thresholds` measures what that costs and gains.
        """
        # betainc(k, n - k + 1, p) is P(X >= k) of a binomial distribution, also for parts of pairs.
        from scipy.special import betainc

        predicted = self.curve.predicted
        best = -1
        above = float(_fewest(precision))
        while above <= len(self.scores):
            place = int(np.searchsorted(predicted, int(above)))
            effect = self._effect_above(int(predicted[place]))
            hits = self.curve.hits[place] / effect
            misses = predicted[place] / effect - hits
            if hits and betainc(hits, misses + 1, precision) <= TEST_ERROR:
                best = place
            elif best >= 0:
                break
            above = max(above * NEXT_TESTED, above + 1)
        return best

    def _effect_above(self, count: int) -> float:
        """`effect` for the ``count`` pairs with the highest scores, which share fewer sentences than all pairs do."""
        if self.keys is None or self.effect == 1:
            return 1.0
        partners = _partners(self.keys[self._order[:count]]) / _partners(self.keys)
        return 1 + (self.effect - 1) * partners

    @cached_property
    def _order(self) -> np.ndarray:
        return np.argsort(-self.scores, kind="stable")

    def _resampled_counts(self, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For blocks of resamples: matches, and pairs, from each threshold of the curve on; (R, T) each."""
        order = self._order
        last = self.curve.predicted - 1
        for draws in resample_weights(len(order), affordable_resamples(len(order)), seed):
            # Weights belong to pairs and not to ranks, so that all models have the same resamples.
            weights = draws[:, order]
            yield np.cumsum(weights * self.matches[order], axis=1)[:, last], np.cumsum(weights, axis=1)[:, last]

    def reached(self, precision: float) -> Estimate:
        """The lowest threshold, of at least 20 pairs, with this precision on these pairs; `NO_ESTIMATE` for none."""
        places = np.flatnonzero((self.curve.precision >= precision) & (self.curve.predicted >= self.least_above))
        return NO_ESTIMATE._replace(value=float(self.curve.threshold[places[-1]])) if len(places) else NO_ESTIMATE

    def more_pairs(self, precision: float) -> int:
        """About the number of pairs that are missing beside these for a threshold that is shown to have a precision.

        A threshold of a small sample looks better than it is. The precision of each counts therefore as that of more
        pairs, of which the additional ones just have the precision that is asked for. The result follows from the
        number with which the test of the best threshold succeeds in nine of ten samples; it is 0 where that is more
        than 20 times as many pairs as there are, so that the precision is not well within reach.
        """
        fewest = _fewest(precision)
        above = self.curve.predicted / self.effect
        hits = self.curve.hits / self.effect
        added = CAUTION * fewest
        shares = (hits + precision * added) / (above + added)
        is_better = (shares > precision) & (above >= fewest)
        if not is_better.any():
            return 0
        above = above[is_better]
        shares = shares[is_better]
        errors = ERROR_QUANTILE * np.sqrt(precision * (1 - precision)) + POWER_QUANTILE * np.sqrt(shares * (1 - shares))
        enough = np.maximum((errors / (shares - precision)) ** 2, fewest)
        factor = float((enough / above).min())
        if factor > OUT_OF_REACH:
            return 0
        # More than two digits would not be true of it.
        return int(float(f"{len(self.scores) * max(MARGIN * factor - 1, LEAST_MORE):.1e}")) or 1

    def measure(self, threshold: Estimate, seed: int) -> tuple[Estimate, Estimate, Estimate]:
        """Precision, recall and F1 of a threshold on these pairs, with their intervals."""
        if np.isnan(threshold.value):
            return NO_ESTIMATE, NO_ESTIMATE, NO_ESTIMATE
        above = self.scores >= threshold.value
        rows = np.stack([above & self.matches, above, self.matches]).astype(np.float64)
        draws = resample_weights(len(above), affordable_resamples(len(above)), seed + 1)
        counts = np.concatenate([weights @ rows.T for weights in draws])
        estimates = []  # (R, 3)
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


def _fewest(precision: float) -> int:
    """The least number of pairs, all of them matches, that shows a precision."""
    return int(np.ceil(np.log(TEST_ERROR) / np.log(precision)))


def _partners(keys: np.ndarray) -> float:
    """The mean number of other pairs with which a pair shares a sentence, by the `sentence_keys` (N, 3) of N pairs."""
    rows = np.bincount(keys[:, :2].ravel())
    equal = np.bincount(keys[:, 2])
    # Equal pairs share two sentences, and count once.
    shared = (rows * (rows - 1)).sum() - (equal * (equal - 1)).sum()
    return float(shared / len(keys))
