"""Thresholds: the similarity from which on two sentences count as a match, and its uncertainty.

    decision = decide(scores, matches)                    scores (N,), matches (N,) bool
    decision.choices[0].threshold                         Estimate(value=0.71, low=0.69, high=0.74)
    decision.choices[0].precision                         on the pairs that the threshold was not chosen on
    choose_threshold(scores, matches, precision=0.95)     0.74, or InputError: too few pairs: about 120 more needed

A criterion names a threshold: ``best-f1``; ``precision=0.95``, the one with the highest recall among those that have
this precision with 90% confidence, and not in the sample alone (`_most_recall`); or the threshold itself, a number.

The pairs are divided into two halves with the same share of matches: a threshold is chosen on one, and its precision,
recall and F1 are those of the other, so that nothing is reported on the pairs that it was fitted to. Average precision
needs no threshold; it is that of all pairs. Equal scores are on the same side of every threshold
(`training.evaluation.metrics`).

Intervals are 95% percentile bootstrap intervals. Where a precision or recall is 0 or 1, resamples cannot differ, and
the interval is Wilson's, as is that of average precision. The threshold of the best F1 has an interval, over thresholds
chosen on resamples of its half, from 150 pairs of that half on: with fewer it covers less than it says. The threshold
of a precision has none, as its precision is bounded instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from training.data.dataset import Dataset
from training.data.transforms import POSITIVE_FROM, match_labels
from training.errors import InputError
from training.evaluation.bootstrap import (
    NO_ESTIMATE,
    Estimate,
    affordable_resamples,
    percentile_interval,
    resample_weights,
    wilson_interval,
)
from training.evaluation.metrics import PrecisionRecall, precision_recall
from training.evaluation.scoring import row_scores
from training.progress import Progress, ShouldStop

if TYPE_CHECKING:
    from training.models.model import Model

BEST_F1, PRECISION, FIXED = "best-f1", "precision", "fixed"
CRITERIA = (BEST_F1, f"{PRECISION}=0.95")
# The fewest matches, and the fewest other pairs, that are divided into two halves.
EACH_FOR_HALVES = 4
CURVE_POINTS = 400
# The confidence that the precision of a threshold is reached.
CONFIDENCE = 0.9
# The factor between the numbers of pairs above two thresholds that are tested in turn.
NEXT_TESTED = 1.05
# The factor between the numbers of pairs above two thresholds at which the tests start afresh.
NEXT_START = 4
NORMAL_99 = 2.326
# The number of pairs from which on the interval of the best F1's threshold has its coverage.
INTERVAL_FROM = 150
# Each criterion is measured on every resample of the pairs.
MOST_CRITERIA = 20


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


@dataclass(frozen=True)
class Choice:
    """A threshold, and its figures on the pairs that it was not chosen on; NaN where none fulfils the criterion."""

    criterion: str
    # Its interval is NaN where it would cover too little.
    threshold: Estimate
    precision: Estimate = NO_ESTIMATE
    recall: Estimate = NO_ESTIMATE
    f1: Estimate = NO_ESTIMATE
    # About the number of pairs that are missing; 0 where a threshold exists or none reaches the precision.
    more_pairs: int = 0

    @property
    def exists(self) -> bool:
        """Whether some threshold fulfils the criterion."""
        return not np.isnan(self.threshold.value)

    @property
    def why_none(self) -> str:
        """Why no threshold fulfils the criterion, in words."""
        if self.more_pairs:
            return f"too few pairs to be sure of it: about {self.more_pairs:,} more needed"
        return "no threshold reaches it on the pairs that thresholds are chosen on"


@dataclass(frozen=True)
class Decision:
    """The result of `decide`. Precision, recall, F1 and average precision are in 0 to 1."""

    n: int
    matches: int
    average_precision: Estimate
    choices: tuple[Choice, ...]
    chosen_on: int
    # All pairs, the same, where there are too few for two halves.
    reported_on: int
    held_out: bool
    interval_method: str
    curve: list[tuple[float, float, float]]  # (threshold, precision, recall) of all pairs, thinned out

    def choice(self, criterion: str) -> Choice:
        return next(choice for choice in self.choices if choice.criterion == criterion)

    def to_dict(self) -> dict[str, Any]:
        """The decision without its curve, as plain values."""
        values = {key: value for key, value in asdict(self).items() if key != "curve"}
        values |= {"average_precision": self.average_precision._asdict(), "choices": list(values["choices"])}
        for choice, row in zip(self.choices, values["choices"], strict=True):
            row |= {name: getattr(choice, name)._asdict() for name in ("threshold", "precision", "recall", "f1")}
            if not choice.exists:
                row["why_none"] = choice.why_none
        return values


def parse_criteria(texts: Sequence[str]) -> list[Criterion]:
    """The criteria in ``texts``. InputError if one is none, or there are too many."""
    if len(texts) > MOST_CRITERIA:
        raise InputError(f"{len(texts):,} thresholds are asked for; at most {MOST_CRITERIA} are measured at once")
    return [Criterion.parse(text) for text in texts]


class DataDecision(NamedTuple):
    """A decision on a data set, by the first similarity of the model; ``meaning`` says which pairs are matches."""

    similarity: str
    meaning: str
    decision: Decision

    def to_dict(self) -> dict[str, Any]:
        return {"similarity": self.similarity, "match": self.meaning, **self.decision.to_dict()}


def decide_data(
    scorer: Model,
    data: Dataset,
    criteria: Sequence[str] = CRITERIA,
    match_from: float = POSITIVE_FROM,
    on_progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
) -> DataDecision:
    """Scores the pairs of a data set, and decides from which score on they are matches (`match_labels`).

    InputError if the data has neither labels nor gold scores, or a criterion is none.
    """
    # A mistake is reported before anything is scored.
    parse_criteria(criteria)
    matches, meaning = match_labels(data, match_from)
    [by_similarity] = row_scores(scorer, data.columns, on_progress=on_progress, should_stop=should_stop)
    similarity, scores = next(iter(by_similarity.items()))
    if not np.isfinite(scores).all():
        raise InputError(f"{scorer.name} gives scores that are not finite numbers on {data.name}")
    return DataDecision(similarity, meaning, decide(scores, matches, criteria))


def decide(scores: np.ndarray, matches: np.ndarray, criteria: Sequence[str] = CRITERIA, seed: int = 0) -> Decision:
    """Chooses a threshold for each criterion on one half of the pairs, and measures it on the other.

    Args:
        scores: (N,), larger = more similar.
        matches: (N,), true for pairs that belong together.
        criteria: ``best-f1``, ``precision=0.95``, a number.
        seed: the seed of the halves and of the bootstrap.

    Raises:
        InputError: a criterion is none of these, or there are more than 20.
        ValueError: there are only matches, or none, or a score is not a number.
    """
    scores, matches = np.asarray(scores, dtype=np.float64), np.asarray(matches).astype(bool)
    parsed, whole = parse_criteria(criteria), precision_recall(scores, matches)
    n, positives = len(scores), int(matches.sum())
    chosen_on = reported_on = np.arange(n)
    is_chosen = any(criterion.kind != FIXED for criterion in parsed)
    held_out = is_chosen and min(positives, n - positives) >= EACH_FOR_HALVES
    if held_out:
        chosen_on, reported_on = halves(matches, seed)
    parts = scores[chosen_on], matches[chosen_on]
    curve = precision_recall(*parts)
    thresholds = [_choose(*parts, curve, criterion, seed) for criterion in parsed]
    measured = _measure(scores[reported_on], matches[reported_on], thresholds, seed)
    # Wilson's interval of a share of the matches (Boyd, Eng & Page 2013: a binomial one). The percentile interval holds
    # the true figure in 56 to 84% of samples of 20 pairs, in 88 to 95% of 200 and more.
    average = whole.average_precision
    low, high, _ = wilson_interval(average * positives, positives)
    # Evenly spaced in rank where there are too many points to draw.
    places = np.unique(np.linspace(0, len(whole.threshold) - 1, min(len(whole.threshold), CURVE_POINTS)).round())
    points = np.stack(whole[:3], axis=1)[places.astype(int)].tolist()
    return Decision(
        n=n,
        matches=positives,
        average_precision=Estimate(average, low, high),
        choices=tuple(
            Choice(str(criterion), threshold, **figures, more_pairs=_more_pairs(curve, criterion, threshold, n))
            for criterion, threshold, figures in zip(parsed, thresholds, measured, strict=True)
        ),
        chosen_on=len(chosen_on),
        reported_on=len(reported_on),
        held_out=held_out,
        interval_method=f"bootstrap, {affordable_resamples(n):,} resamples",
        curve=[(threshold, precision, recall) for threshold, precision, recall in points],
    )


def halves(matches: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of two halves with the same share of matches, at random."""
    random = np.random.default_rng(seed)
    shuffled = [random.permutation(np.flatnonzero(rows)) for rows in (matches, ~matches)]
    first, second = zip(*(np.array_split(rows, 2) for rows in shuffled), strict=True)
    return np.sort(np.concatenate(first)), np.sort(np.concatenate(second))


def choose_threshold(scores: np.ndarray, labels: np.ndarray, precision: float = 0.95) -> float:
    """The threshold with the highest recall whose precision is at least ``precision``, with 90% confidence.

    Args:
        scores: (N,), larger = more similar.
        labels: (N,), 1 for pairs that belong together, 0 for others.
        precision: above 0, below 1; that of all pairs of this kind. The share in this sample is higher.

    Returns:
        A threshold in units of the scores: pairs from it on are matches.

    Raises:
        InputError: there are too few pairs (the message says how many more are needed), or no threshold reaches it.
        ValueError: there are only matches, or none, or a score is not a number.
    """
    criterion, curve = Criterion.parse(f"{PRECISION}={precision}"), precision_recall(scores, labels)
    threshold = _choose(scores, labels, curve, criterion)
    choice = Choice(str(criterion), threshold, more_pairs=_more_pairs(curve, criterion, threshold, len(scores)))
    if not choice.exists:
        raise InputError(f"{criterion}: {choice.why_none}")
    return threshold.value


def _choose(
    scores: np.ndarray, matches: np.ndarray, curve: PrecisionRecall, criterion: Criterion, seed: int = 0
) -> Estimate:
    """The threshold of a criterion on these pairs, whose curve is ``curve``; `NO_ESTIMATE` where none fulfils it.

    The threshold of the best F1 has an interval from `INTERVAL_FROM` pairs on.
    """
    if criterion.kind == FIXED:
        return Estimate(*(criterion.value,) * 3)
    if criterion.kind == PRECISION:
        place = _most_recall(curve, criterion.value)
        return NO_ESTIMATE if place < 0 else NO_ESTIMATE._replace(value=float(curve.threshold[place]))
    threshold = float(curve.threshold[int(curve.f1.argmax())])
    if len(scores) < INTERVAL_FROM:
        return NO_ESTIMATE._replace(value=threshold)
    counts = _resampled_counts(scores, matches, curve, seed)
    f1 = np.concatenate([2 * hits / np.maximum(predicted + hits[:, -1:], 1) for hits, predicted in counts])
    return percentile_interval(threshold, curve.threshold[f1.argmax(axis=1)])


def _most_recall(curve: PrecisionRecall, precision: float) -> int:
    """The place in the curve of the lowest threshold that is shown to have this precision; −1 where none is.

    Exact binomial tests (Clopper-Pearson's bound; Wilson's is too lenient near 1) of hypotheses in a fixed order, from
    the highest threshold on which a test can succeed downwards, each with 5% more pairs above it than the one before.
    A test is made with the error of those before it, as long as they succeed (the fallback procedure, Wiens 2003), so
    that the search costs nothing: the probability that any threshold is accepted wrongly stays below 1 - `CONFIDENCE`.
    The error is divided equally among the starts, each with 4 times the pairs, so that one bad pair at the top does not
    end the search. Given the scores, matches among the pairs above a threshold are independent, so the test is exact.
    """
    # bdtrc(k, n, p) is P(X > k) of a binomial distribution.
    from scipy.special import bdtrc

    n, error, starts = int(curve.predicted[-1]), 1 - CONFIDENCE, 1
    while _fewest(precision, error / (starts + 1)) * NEXT_START**starts <= n:
        starts += 1
    first = _fewest(precision, error / starts)
    start_at = {first * NEXT_START**start for start in range(starts)}
    steps = (first * NEXT_TESTED ** np.arange(np.log(max(n / first, 1)) / np.log(NEXT_TESTED) + 1)).astype(int)
    best, level = -1, 0.0
    for pairs in sorted(start_at.union(steps.tolist())):
        if pairs > n:
            break
        place = int(np.searchsorted(curve.predicted, pairs))
        level += error / starts if pairs in start_at else 0
        if level and bdtrc(curve.hits[place] - 1, curve.predicted[place], precision) <= level:
            best = place
        else:
            level = 0.0
    return best


def _fewest(precision: float, error: float) -> int:
    """The least number of pairs, all of them matches, that shows a precision."""
    return int(np.ceil(np.log(error) / np.log(precision)))


def _more_pairs(curve: PrecisionRecall, criterion: Criterion, threshold: Estimate, n: int) -> int:
    """About the number of pairs that are missing beside ``n``, if the shares of the curve are the true ones.

    It is 0 where no number suffices, and where there is a threshold. The estimate is by Wilson's bound at a confidence
    of 99%, which allows for the search: k pairs with a share q of matches show a precision p from
    k (q - p)² = z² p (1 - p) on.
    """
    if not np.isnan(threshold.value):
        return 0
    precision = criterion.value
    better = np.maximum(curve.precision - precision, 0)
    evidence = float((curve.predicted * better**2).max() / (NORMAL_99**2 * precision * (1 - precision)))
    return 0 if evidence == 0 else max(int(np.ceil(n / evidence)) - n, n // 10, 1)


def _measure(
    scores: np.ndarray, matches: np.ndarray, thresholds: Sequence[Estimate], seed: int
) -> list[dict[str, Estimate]]:
    """The figures of a `Choice` for each threshold: precision, recall and F1 on these pairs, with their intervals."""
    above = np.stack([scores >= threshold.value for threshold in thresholds]).astype(np.float64)  # (C, N)
    counted = np.concatenate([above, above * matches, matches[None].astype(np.float64)])  # (2C + 1, N)

    def figures(counts: np.ndarray) -> np.ndarray:
        """(R, 2C + 1), pairs above each threshold, matches among them, all matches -> precision, recall, F1."""
        predicted, hits, positives = np.split(counts, [len(above), 2 * len(above)], axis=1)
        # Nothing above the threshold: precision is not defined.
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.stack([hits / predicted, hits / positives, 2 * hits / (predicted + positives)], axis=1)

    totals = counted.sum(axis=1)
    values = figures(totals[None])[0]  # (3, C)
    draws = resample_weights(len(scores), affordable_resamples(len(scores)), seed + 1)
    replicates = np.concatenate([figures(weights @ counted.T) for weights in draws])  # (R, 3, C)
    measured: list[dict[str, Estimate]] = []
    for c, threshold in enumerate(thresholds):
        if np.isnan(threshold.value):
            measured.append({})
            continue
        estimates = [percentile_interval(float(value), replicates[:, row, c]) for row, value in enumerate(values[:, c])]
        # Where a share is 0 or 1 resamples cannot differ.
        for row, n in enumerate((int(totals[c]), int(totals[-1]))):
            if (value := estimates[row].value) in (0, 1):
                estimates[row] = Estimate(value, *wilson_interval(value * n, n)[:2])
        measured.append(dict(zip(("precision", "recall", "f1"), estimates, strict=True)))
    return measured


def average_precision_replicates(scores: np.ndarray, matches: np.ndarray, seed: int = 0) -> np.ndarray:
    """Average precision in each bootstrap resample, (R,); NaN where no match is drawn.

    N and ``seed`` alone decide which pairs are drawn, so that models can be compared replicate by replicate.
    """
    scores, matches = np.asarray(scores, dtype=np.float64), np.asarray(matches).astype(bool)
    replicates = []
    for hits, predicted in _resampled_counts(scores, matches, precision_recall(scores, matches), seed):
        gained = np.diff(hits, axis=1, prepend=0)
        with np.errstate(invalid="ignore"):
            replicates.append((gained * hits / np.maximum(predicted, 1)).sum(axis=1) / hits[:, -1])
    return np.concatenate(replicates)


def _resampled_counts(
    scores: np.ndarray, matches: np.ndarray, curve: PrecisionRecall, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For blocks of resamples: matches, and pairs, from each threshold of ``curve`` on; (R, T) each."""
    order, last = np.argsort(-scores, kind="stable"), curve.predicted - 1
    for draws in resample_weights(len(scores), affordable_resamples(len(scores)), seed):
        # Weights belong to pairs and not to ranks, so that all models have the same resamples.
        weights = draws[:, order]
        yield np.cumsum(weights * matches[order], axis=1)[:, last], np.cumsum(weights, axis=1)[:, last]
