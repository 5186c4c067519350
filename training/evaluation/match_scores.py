"""Scores of matching and other pairs: the thresholds that fulfil a criterion, and average precision.

    pairs = MatchScores(scores, matches)                  scores (N,), matches (N,) bool
    pairs.choose(Criterion.parse("precision=0.95"))       Estimate(value=0.74, low=nan, high=nan)
    pairs.more_pairs(0.95)                                about 120, if no threshold fulfils it

`training.evaluation.thresholds` chooses the threshold of the best F1 on one half of the pairs, and
measures it on the other. A precision is tested on all pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy

from training.errors import InputError
from training.evaluation.bootstrap import (
    NO_ESTIMATE,
    NORMAL,
    SHARE,
    Estimate,
    Keys,
    Statistic,
    dependence,
    ratio,
    resample_weights,
    resamples_for,
    wilson_interval,
)
from training.evaluation.metrics import PrecisionRecall, precision_recall

BEST_F1 = "best-f1"
PRECISION = "precision"
FIXED = "fixed"
# The probability that a threshold passes the test if its precision is just below the required one.
TEST_ERROR = 0.08
# Each tested threshold has this many times the pairs of the one before.
NEXT_TESTED = 1.05
# A precision is only estimated for thresholds with this many pairs, or as many as there are
# matches.
LEAST_ABOVE = 20
# The quantiles of the test's error, and of its success in nine of ten samples.
ERROR_QUANTILE = NORMAL.inv_cdf(1 - TEST_ERROR)
POWER_QUANTILE = NORMAL.inv_cdf(0.9)
# `more_pairs` adds this many times the fewest pairs that can show a precision, as small samples
# look better than they are, and doubles its result, so that it suffices in nine of ten samples
# (`scripts.measure_thresholds`).
CAUTION = 2
MARGIN = 2
# If more than this multiple of the pairs would be needed, a precision counts as out of reach.
OUT_OF_REACH = 20
# The least share of the pairs that `more_pairs` asks for.
LEAST_MORE = 0.1
# With fewer pairs the interval of the best F1's threshold covers too little.
INTERVAL_FROM = 150
# With fewer pairs the bootstrap interval of average precision covers less than Wilson's.
AVERAGE_FROM = 300


class Criterion(NamedTuple):
    """A condition on a threshold. ``value`` is the least precision, or the threshold itself if it is fixed."""

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
        raise InputError(
            f"threshold {text[:80]!r} must be {BEST_F1}, {PRECISION}=0.95 (above 0, below 1) or a number"
        )

    def __str__(self) -> str:
        if self.kind == BEST_F1:
            return BEST_F1
        if self.kind == PRECISION:
            return f"{PRECISION}={self.value:g}"
        return f"{self.value:g}"


class MatchScores:
    """Scores (N,) of pairs, whether each pair matches, (N,), and their `sentence_keys`."""

    def __init__(self, scores: np.ndarray, matches: np.ndarray, keys: Keys = None) -> None:
        self.scores = np.asarray(scores, dtype=np.float64)
        self.matches = np.asarray(matches).astype(bool)
        self.keys = keys

    def select(self, rows: np.ndarray) -> MatchScores:
        keys = None if self.keys is None else self.keys[rows]
        return MatchScores(self.scores[rows], self.matches[rows], keys)

    @cached_property
    def curve(self) -> PrecisionRecall:
        return precision_recall(self.scores, self.matches)

    @cached_property
    def effect(self) -> float:
        """The number of pairs that count as one independent pair because pairs share sentences; at least 1."""
        # The difference between whether a pair matches and the share of matches at its score.
        residuals = self.matches - isotonic(self.scores, self.matches)
        return dependence(residuals, self.keys) ** 2

    def average_precision(self) -> Statistic:
        """Computes average precision. It is undefined for resamples without a match.

        Which pairs are drawn depends only on their number, so models can be compared replicate by
        replicate.
        """
        curve = self.curve
        replicates = []
        for hits, predicted in self._resampled_counts():
            gained = np.diff(hits, axis=1, prepend=0)
            with np.errstate(invalid="ignore"):
                sums = (gained * hits / np.maximum(predicted, 1)).sum(axis=1)
                replicates.append(sums / hits[:, -1])
        # A matching pair adds the precision at its score. Every pair lowers the precision of all
        # matches with equal or lower scores, and a matching pair also raises it. A matching pair
        # also adds 1 to the number that the sum is divided by, so the average is subtracted.
        place = np.searchsorted(-curve.threshold, -self.scores)  # (N,), in the curve
        share = np.diff(curve.hits, prepend=0) / curve.predicted  # (T,)
        raised = _sums_from(share)[place]
        lowered = _sums_from(share * curve.precision)[place]
        gain = curve.precision[place] + raised - curve.average_precision
        influence = self.matches * gain - lowered
        return Statistic(
            curve.average_precision,
            np.concatenate(replicates),
            influence / curve.hits[-1],
            self.keys,
            SHARE,
        )

    def estimate_average_precision(self) -> Estimate:
        """Returns average precision with its bootstrap interval, or Wilson's below `AVERAGE_FROM` pairs."""
        estimate = self.average_precision().estimate()
        if len(self.scores) >= AVERAGE_FROM:
            return estimate
        # Average precision is treated as a share of the matches, as Boyd, Eng & Page (2013) do with
        # a binomial interval. With few pairs the bootstrap's percentile interval covers too little:
        # in samples of 20 pairs it contains the true figure in only 56 to 84% of the cases. From
        # 1,000 pairs on Wilson's interval contains it in 92 to 93%, and the bootstrap's is better.

        # Matches that share sentences count for less.
        effective = int(self.matches.sum()) / self.effect
        low, high, _ = wilson_interval(estimate.value * effective, effective)
        return Estimate(estimate.value, low, high)

    def choose(self, criterion: Criterion) -> Estimate:
        """Chooses the threshold of a criterion on these pairs; `NO_ESTIMATE` if none fulfils it.

        The threshold of the best F1 has an interval from `INTERVAL_FROM` pairs on.
        """
        curve = self.curve
        if criterion.kind == FIXED:
            return Estimate(criterion.value, criterion.value, criterion.value)
        if criterion.kind == PRECISION:
            place = self._most_recall(criterion.value)
            if place is None:
                return NO_ESTIMATE
            return NO_ESTIMATE._replace(value=float(curve.threshold[place]))
        threshold = float(curve.threshold[int(curve.f1.argmax())])
        if len(self.scores) < INTERVAL_FROM:
            return NO_ESTIMATE._replace(value=threshold)
        replicates = []
        for hits, predicted in self._resampled_counts():
            # Every pair reaches the last threshold, so its hits are all matches.
            matches = hits[:, -1:]
            f1 = 2 * hits / np.maximum(predicted + matches, 1)
            replicates.append(curve.threshold[f1.argmax(axis=1)])
        # Shared sentences widen the interval of the threshold as much as the one of its F1.
        above = self.scores >= threshold
        _, influence = ratio(2.0 * (above & self.matches), above.astype(float) + self.matches)
        return Statistic(threshold, np.concatenate(replicates), influence, self.keys).estimate()

    def _most_recall(self, precision: float) -> int | None:
        """Finds the place in the curve of the lowest threshold that passes the test of a precision; None if none does.

        Thresholds are tested from high to low, each with 5% more pairs above it than the one
        before, until one fails after one has passed. The test is an exact binomial test
        (Clopper-Pearson's bound; Wilson's is too lenient near 1). Given the scores, matches among
        the pairs above a threshold are independent.

        Tests in a fixed order need no correction if they end at the first failure (Angelopoulos et
        al. 2021, "Learn then Test"). Here the search starts at the first success, because no fixed
        start suits all scores: the highest thresholds have too few pairs, and a lower start misses
        thresholds if few pairs match. `scripts.measure_thresholds` measures what that costs and
        gains.
        """
        predicted = self.curve.predicted
        best = None
        # The number of pairs above a threshold. It is a float, as it grows by 5%.
        above = float(_fewest_to_pass(precision))
        while above <= len(self.scores):
            # The highest threshold with at least this many pairs.
            place = int(np.searchsorted(predicted, int(above)))
            # The numbers of independent pairs: pairs that share sentences count for less.
            effect = self._effect_above(int(predicted[place]))
            hits = self.curve.hits[place] / effect
            misses = predicted[place] / effect - hits
            # betainc(k, n - k + 1, p) is P(X >= k) of a binomial distribution, also for fractions
            # of pairs.
            if hits and scipy.special.betainc(hits, misses + 1, precision) <= TEST_ERROR:
                best = place
            elif best is not None:
                break
            above = max(above * NEXT_TESTED, above + 1)
        return best

    def _effect_above(self, count: int) -> float:
        """Computes `effect` for the ``count`` pairs with the highest scores, which share fewer sentences."""
        if self.keys is None or self.effect == 1:
            return 1.0
        # The part of `effect` above 1 is taken to be in proportion to the number of pairs that share
        # a sentence with a pair.
        of_highest = _mean_partners(self.keys[self._order[:count]])
        share = of_highest / _mean_partners(self.keys)
        return 1 + (self.effect - 1) * share

    @cached_property
    def _order(self) -> np.ndarray:
        return np.argsort(-self.scores, kind="stable")

    def _resampled_counts(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields, for blocks of resamples, the matches and the pairs above each threshold of the curve, (R, T) each."""
        order = self._order
        last = self.curve.predicted - 1
        for draws in resample_weights(len(order), resamples_for(len(order))):
            # Weights belong to pairs and not to ranks, so that all models have the same resamples.
            weights = draws[:, order]
            hits = np.cumsum(weights * self.matches[order], axis=1)
            predicted = np.cumsum(weights, axis=1)
            yield hits[:, last], predicted[:, last]

    def choose_untested(self, precision: float) -> Estimate:
        """Chooses the lowest threshold with this precision on these pairs; `NO_ESTIMATE` if there is none.

        At least 20 pairs, or as many as there are matches, are above the threshold.
        """
        is_precise = self.curve.precision >= precision
        has_enough = self.curve.predicted >= min(LEAST_ABOVE, int(self.matches.sum()))
        places = np.flatnonzero(is_precise & has_enough)
        if not len(places):
            return NO_ESTIMATE
        return NO_ESTIMATE._replace(value=float(self.curve.threshold[places[-1]]))

    def more_pairs(self, precision: float) -> int:
        """Estimates how many more pairs are needed for a threshold that passes the test of a precision.

        A threshold of a small sample looks better than it is. Therefore more pairs with just the
        required precision are added to each threshold. The result is the number that makes the test
        of the best threshold succeed in nine of ten samples. It is 0 if that is more than 20 times
        as many pairs as there are, as the precision is out of reach.
        """
        fewest = _fewest_to_pass(precision)
        # The numbers of independent pairs: pairs that share sentences count for less.
        above = self.curve.predicted / self.effect
        hits = self.curve.hits / self.effect
        # Pairs with just the required precision.
        added = CAUTION * fewest
        shares = (hits + precision * added) / (above + added)
        is_better = (shares > precision) & (above >= fewest)
        if not is_better.any():
            return 0
        above = above[is_better]
        shares = shares[is_better]
        test_errors = ERROR_QUANTILE * np.sqrt(precision * (1 - precision))
        sample_errors = POWER_QUANTILE * np.sqrt(shares * (1 - shares))
        errors = test_errors + sample_errors
        # With this many pairs above a threshold, both errors together are as large as the distance
        # of its share from the required precision.
        enough = np.maximum((errors / (shares - precision)) ** 2, fewest)
        # With this many times the pairs, the best threshold passes the test.
        factor = float((enough / above).min())
        if factor > OUT_OF_REACH:
            return 0
        # The number of pairs in all has a margin. The pairs that are there already are subtracted.
        more = len(self.scores) * max(MARGIN * factor - 1, LEAST_MORE)
        # The estimate has at most two significant digits.
        return int(float(f"{more:.1e}")) or 1

    def measure(self, threshold: Estimate) -> tuple[Estimate, Estimate, Estimate]:
        """Computes precision, recall and F1 of a threshold on these pairs, with their intervals."""
        if np.isnan(threshold.value):
            return NO_ESTIMATE, NO_ESTIMATE, NO_ESTIMATE
        above = self.scores >= threshold.value
        rows = np.stack([above & self.matches, above, self.matches]).astype(np.float64)
        # These are other resamples than the ones that a threshold is chosen with.
        draws = resample_weights(len(above), resamples_for(len(above)), seed=1)
        counts = np.concatenate([weights @ rows.T for weights in draws])  # (R, 3)
        estimates = []
        # Precision, recall and F1, each as the factors of hits, pairs above and matches in its
        # numerator and in its denominator.
        figures = (((1, 0, 0), (0, 1, 0)), ((1, 0, 0), (0, 0, 1)), ((2, 0, 0), (0, 1, 1)))
        for top, bottom in figures:
            is_f1 = top[0] == 2
            value, influence = ratio(top @ rows, bottom @ rows)
            # Precision is undefined without a pair above the threshold.
            with np.errstate(invalid="ignore", divide="ignore"):
                replicates = (counts @ top) / (counts @ bottom)
            estimates.append(Statistic(value, replicates, influence, self.keys, SHARE).estimate())
            # Resamples of a share of 0 or 1 cannot differ. F1 is not a share of the pairs.
            if value in (0, 1) and not is_f1:
                # The number of independent pairs: pairs that share sentences count for less.
                n = (bottom @ rows).sum() / self.effect
                low, high, _ = wilson_interval(value * n, n)
                estimates[-1] = Estimate(value, low, high)
        precision, recall, f1 = estimates
        return precision, recall, f1


def _sums_from(values: np.ndarray) -> np.ndarray:
    """Sums for each value the value itself and all later ones."""
    return np.cumsum(values[::-1])[::-1]


def isotonic(scores: np.ndarray, matches: np.ndarray) -> np.ndarray:
    """Fits the share of matches at each score, (N,), by isotonic regression: it never decreases with the score."""
    # Equal scores get the same share.
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    shares = np.bincount(place, matches) / counts
    return scipy.optimize.isotonic_regression(shares, weights=counts).x[place]


def _fewest_to_pass(precision: float) -> int:
    """Returns the least number of pairs that passes the test of a precision, if all of them match."""
    return int(np.ceil(np.log(TEST_ERROR) / np.log(precision)))


def _mean_partners(keys: np.ndarray) -> float:
    """Computes the mean number of other pairs that share a sentence with a pair, from `sentence_keys` (N, 3)."""
    rows = np.bincount(keys[:, :2].ravel())
    equal = np.bincount(keys[:, 2])
    # Equal pairs share two sentences but count once.
    shared = (rows * (rows - 1)).sum() - (equal * (equal - 1)).sum()
    return float(shared / len(keys))
