"""Thresholds: the least similarity of two sentences that match, and its uncertainty.

    decision = decide(scores, matches)                    scores (N,), matches (N,) bool
    decision.choices[0].threshold                         Estimate(value=0.71, low=0.69, high=0.74)
    decision.choices[0].precision                         on the pairs that the threshold was not chosen on
    choose_threshold(scores, matches, precision=0.95)     0.74, or InputError: too few pairs: about 120 more needed

A criterion names a threshold: ``best-f1``; ``precision=0.95``, the threshold with the highest
recall that passes a test of this precision, so that it holds beyond the sample
(`MatchScores.choose`); or the threshold itself, a number.

A threshold for a precision is tested, so it is chosen and measured on all pairs. The threshold of
the best F1 is chosen on one half of the pairs, and its precision, recall and F1 are measured on the
other half, which has the same share of matches. If no threshold passes the test of a precision, the
threshold that reached it on the first half is a second choice. Average precision needs no threshold
and is measured on all pairs. Equal scores are on the same side of every threshold
(`training.evaluation.metrics`).

Intervals are 95% percentile bootstrap intervals. Wilson's are used if a precision or recall is 0 or
1, as resamples cannot differ, and for average precision below 300 pairs. The threshold of the best
F1 has an interval if its half has at least 150 pairs; with fewer it would cover too little. The
threshold of a precision does not have one, as its precision is tested instead. If the sentences are
given, all intervals and tests allow for sentences that pairs share
(`training.evaluation.bootstrap`).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from training.errors import InputError
from training.evaluation.bootstrap import NO_ESTIMATE, Estimate, Keys, resamples_for
from training.evaluation.match_scores import BEST_F1, FIXED, PRECISION, Criterion, MatchScores

CRITERIA = (BEST_F1, f"{PRECISION}=0.95")
# Pairs are divided into halves if there are at least this many matches, and other pairs.
EACH_FOR_HALVES = 4
CURVE_POINTS = 400
# Each criterion is measured on every resample of the pairs.
MOST_CRITERIA = 20


@dataclass(frozen=True)
class Choice:
    """A threshold and its figures, NaN if no threshold fulfils the criterion."""

    criterion: str
    # Its interval is NaN if it would cover too little.
    threshold: Estimate
    precision: Estimate = NO_ESTIMATE
    recall: Estimate = NO_ESTIMATE
    f1: Estimate = NO_ESTIMATE
    # The number of pairs that it was chosen on (0 for a given threshold) and measured on.
    chosen_on: int = 0
    measured_on: int = 0
    # Whether it was chosen and measured on different pairs.
    is_held_out: bool = False
    # About how many more pairs are needed; 0 if a threshold exists, or the precision is out of
    # reach.
    more_pairs: int = 0
    # Whether some threshold reaches the precision on these pairs, although none passes the test.
    is_reached: bool = False
    # False for a threshold that reached the precision on the pairs that it was chosen on, without a
    # test.
    is_tested: bool = True

    @property
    def exists(self) -> bool:
        """Whether some threshold fulfils the criterion."""
        return not np.isnan(self.threshold.value)

    @property
    def why_none(self) -> str:
        """The reason why no threshold fulfils the criterion, in words."""
        if self.more_pairs:
            return f"too few pairs to be sure of it: about {self.more_pairs:,} more needed"
        percent = 100 * Criterion.parse(self.criterion).value
        if self.is_reached:
            return f"these {self.chosen_on:,} pairs reach {percent:g}%, but are too few to show that others will"
        return f"{percent:g}% is out of reach of these scores, as far as these {self.chosen_on:,} pairs show"


@dataclass(frozen=True)
class Decision:
    """The result of `decide`. Precision, recall, F1 and average precision are in 0 to 1."""

    n: int
    matches: int
    average_precision: Estimate
    choices: tuple[Choice, ...]
    interval_method: str
    # (threshold, precision, recall) of all pairs, thinned out
    curve: list[tuple[float, float, float]]

    def choice(self, criterion: str) -> Choice:
        return next(choice for choice in self.choices if choice.criterion == criterion)

    def to_dict(self) -> dict[str, Any]:
        """Returns the decision without its curve, as plain values."""
        values = asdict(self)
        del values["curve"]
        values["average_precision"] = self.average_precision._asdict()
        values["choices"] = list(values["choices"])
        for choice, row in zip(self.choices, values["choices"], strict=True):
            for name in ("threshold", "precision", "recall", "f1"):
                row[name] = getattr(choice, name)._asdict()
            if not choice.exists:
                row["why_none"] = choice.why_none
        return values


def parse_criteria(texts: Sequence[str]) -> list[Criterion]:
    """Reads criteria. InputError if one is not valid, or there are too many."""
    if len(texts) > MOST_CRITERIA:
        raise InputError(
            f"{len(texts):,} thresholds are asked for; at most {MOST_CRITERIA} are measured at once"
        )
    return [Criterion.parse(text) for text in texts]


class DataDecision(NamedTuple):
    """A decision on a data set with the first similarity of the model. ``meaning`` describes which pairs match."""

    similarity: str
    meaning: str
    decision: Decision

    def to_dict(self) -> dict[str, Any]:
        return {"similarity": self.similarity, "match": self.meaning, **self.decision.to_dict()}


def decide(
    scores: np.ndarray,
    matches: np.ndarray,
    criteria: Sequence[str] = CRITERIA,
    keys: Keys = None,
) -> Decision:
    """Chooses a threshold for each criterion, and measures it.

    The threshold of the best F1 is measured on other pairs than it is chosen on, if there are at
    least four matches and four other pairs.

    Args:
        scores: (N,), larger for more similar pairs.
        matches: (N,), true for pairs that belong together.
        criteria: ``best-f1``, ``precision=0.95`` or a number each.
        keys: the `sentence_keys` of the pairs, to allow for shared sentences.

    Raises:
        InputError: a criterion is not valid, or there are more than 20.
        ValueError: all pairs match, or none, or a score is not a number.
    """
    parsed = parse_criteria(criteria)
    pairs = MatchScores(scores, matches, keys)
    whole = pairs.curve
    n = len(pairs.scores)
    positives = int(pairs.matches.sum())
    # The pairs that the best F1 is chosen on, and the pairs that it is measured on.
    inside = pairs
    outside = pairs
    if min(positives, n - positives) >= EACH_FOR_HALVES:
        first, second = halves(pairs.matches, seed=0)
        inside = pairs.select(first)
        outside = pairs.select(second)
    choices = []
    for criterion in parsed:
        if criterion.kind == FIXED:
            # It is given, so it was not chosen on any pairs.
            choices.append(_choice(criterion, pairs.choose(criterion), None, pairs))
        elif criterion.kind == BEST_F1:
            choices.append(_choice(criterion, inside.choose(criterion), inside, outside))
        else:
            choice = _choice(criterion, pairs.choose(criterion), pairs, pairs)
            if choice.exists:
                choices.append(choice)
                continue
            # No threshold passes the test. This choice says why. A second choice has the threshold
            # that reaches the precision on the pairs ``inside``, without a test.
            choices.append(_with_more_pairs(choice, pairs, criterion.value))
            untested = inside.choose_untested(criterion.value)
            if not np.isnan(untested.value):
                choice = _choice(criterion, untested, inside, outside)
                choices.append(replace(choice, is_tested=False))
    # The curve has at most `CURVE_POINTS` points, evenly spaced in rank.
    last = len(whole.threshold) - 1
    count = min(last + 1, CURVE_POINTS)
    places = np.unique(np.linspace(0, last, count).round()).astype(int)
    curve = (whole.threshold, whole.precision, whole.recall)
    columns = [values[places].tolist() for values in curve]
    method = f"bootstrap, {resamples_for(n):,} resamples"
    if keys is not None:
        method += ", allows for shared sentences"
    return Decision(
        n=n,
        matches=positives,
        average_precision=pairs.estimate_average_precision(),
        choices=tuple(choices),
        interval_method=method,
        curve=list(zip(*columns, strict=True)),
    )


def _choice(
    criterion: Criterion,
    threshold: Estimate,
    inside: MatchScores | None,
    outside: MatchScores,
) -> Choice:
    """Measures a threshold on the pairs ``outside``. It was chosen on the pairs ``inside``; None if it is given."""
    precision, recall, f1 = outside.measure(threshold)
    return Choice(
        str(criterion),
        threshold,
        precision,
        recall,
        f1,
        chosen_on=len(inside.scores) if inside else 0,
        measured_on=len(outside.scores),
        is_held_out=inside is not None and inside is not outside,
    )


def _with_more_pairs(choice: Choice, pairs: MatchScores, precision: float) -> Choice:
    """Adds to a choice without a threshold how many more pairs it needs, and whether one reaches the precision."""
    is_reached = not np.isnan(pairs.choose_untested(precision).value)
    return replace(choice, more_pairs=pairs.more_pairs(precision), is_reached=is_reached)


@dataclass(frozen=True)
class CarriedThreshold:
    """The effect of an earlier threshold on some pairs, and the thresholds of other scores with the same effect."""

    # The share of the pairs above the earlier threshold, and their precision.
    accepted: float
    precision: Estimate
    # The threshold that accepts the same share, and the lowest one with this precision on these
    # pairs; NaN for none.
    same_share: float
    same_precision: float

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "precision": self.precision._asdict()}


def carry_threshold(
    scores: np.ndarray,
    matches: np.ndarray,
    was_scores: np.ndarray,
    was_threshold: float,
    keys: Keys = None,
) -> CarriedThreshold:
    """Transfers ``was_threshold``, which is for ``was_scores`` (N,), to other ``scores`` (N,) of the same pairs.

    The result has one threshold that accepts as many of these pairs, and one with the same
    precision on them. Neither is tested. The other arguments are as in `decide`.
    """
    pairs = MatchScores(scores, matches, keys)
    before = MatchScores(was_scores, matches, keys)
    count = int((before.scores >= was_threshold).sum())
    if not count:
        return CarriedThreshold(0.0, NO_ESTIMATE, same_share=np.nan, same_precision=np.nan)
    # Only the value of the threshold is used, so its interval is empty.
    precision, _, _ = before.measure(Estimate(was_threshold, was_threshold, was_threshold))
    # The threshold that accepts as many pairs, as nearly as equal scores allow.
    nearest = int(np.abs(pairs.curve.predicted - count).argmin())
    same_precision = pairs.choose_untested(precision.value).value
    same_share = float(pairs.curve.threshold[nearest])
    return CarriedThreshold(count / len(pairs.scores), precision, same_share, same_precision)


def halves(matches: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws the rows of two halves with the same share of matches."""
    random = np.random.default_rng(seed)
    first, second = np.array_split(random.permutation(np.flatnonzero(matches)), 2)
    first_others, second_others = np.array_split(random.permutation(np.flatnonzero(~matches)), 2)
    first = np.concatenate([first, first_others])
    second = np.concatenate([second, second_others])
    return np.sort(first), np.sort(second)


def choose_threshold(
    scores: np.ndarray,
    labels: np.ndarray,
    precision: float = 0.95,
    *,
    was: tuple[np.ndarray, float] | None = None,
) -> float:
    """Chooses the threshold with the highest recall that passes a test of a precision of at least ``precision``.

    Args:
        scores: (N,), larger = more similar.
        labels: (N,), 1 for pairs that belong together, 0 for others.
        precision: the precision on all pairs of this kind, above 0 and below 1. In this sample it
            will be higher.
        was: the scores (N,) of an earlier model, and its threshold. The result is then the lowest
            threshold with the same precision on these pairs, without a test.

    Returns:
        The threshold in units of the scores. Pairs with at least this score match.

    Raises:
        InputError: there are too few pairs (the message says how many more are needed), or the
            precision is out of reach.
        ValueError: all pairs match, or none, or a score is not a number.

    Example::

        import numpy as np
        from sbert_lab import choose_threshold

        labels = np.tile([1, 0], 200)
        scores = 0.4 * labels + np.random.default_rng(0).uniform(0, 0.6, 400)
        print(choose_threshold(scores, labels, precision=0.9))
    """
    if was is not None:
        carried = carry_threshold(scores, labels, *was)
        if np.isnan(carried.same_precision):
            raise InputError(
                f"no threshold of these scores has the precision that {was[1]:g} had on these pairs"
            )
        return carried.same_precision
    criterion = Criterion.parse(f"{PRECISION}={precision}")
    pairs = MatchScores(scores, labels)
    threshold = pairs.choose(criterion)
    if np.isnan(threshold.value):
        choice = Choice(str(criterion), threshold, chosen_on=len(pairs.scores))
        raise InputError(f"{criterion}: {_with_more_pairs(choice, pairs, precision).why_none}")
    return threshold.value
