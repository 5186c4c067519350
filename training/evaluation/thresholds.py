"""Thresholds: the similarity from which on two sentences count as a match, and its uncertainty.

    decision = decide(scores, matches)                    scores (N,), matches (N,) bool
    decision.choices[0].threshold                         Estimate(value=0.71, low=0.69, high=0.74)
    decision.choices[0].precision                         on the pairs that the threshold was not chosen on
    choose_threshold(scores, matches, precision=0.95)     0.74, or InputError: too few pairs: about 120 more needed

A criterion names a threshold: ``best-f1``; ``precision=0.95``, the one with the highest recall among those that are
shown to have this precision, and not in the sample alone (`MatchScores.choose`); or the threshold itself, a number.

A threshold for a precision is tested, so that it is chosen and measured on all pairs. That of the best F1 is chosen on
one half of the pairs, and its precision, recall and F1 are those of the other, with the same share of matches. Where no
threshold passes the test of a precision, a second choice is the one that reached it on that half, without a guarantee.
Average precision needs no threshold and is computed on all pairs. Equal scores are on the same side of every threshold
(`training.evaluation.metrics`).

Intervals are 95% percentile bootstrap intervals; Wilson's where a precision or recall is 0 or 1, as resamples cannot
differ, and for average precision below 300 pairs. The threshold of the best F1 has an interval from 150 pairs of its
half on: with fewer it covers less than it says. That of a precision has none, as its precision is tested instead. With
the sentences of the pairs all intervals and tests allow for those that pairs share (`training.evaluation.bootstrap`).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from training.errors import InputError
from training.evaluation.bootstrap import NO_ESTIMATE, Estimate, Keys, affordable_resamples
from training.evaluation.match_scores import BEST_F1, FIXED, PRECISION, Criterion, MatchScores

CRITERIA = (BEST_F1, f"{PRECISION}=0.95")
# The fewest matches, and the fewest other pairs, that are divided into two halves.
EACH_FOR_HALVES = 4
CURVE_POINTS = 400
# Each criterion is measured on every resample of the pairs.
MOST_CRITERIA = 20


@dataclass(frozen=True)
class Choice:
    """A threshold, and its figures; NaN where none fulfils the criterion."""

    criterion: str
    # Its interval is NaN where it would cover too little.
    threshold: Estimate
    precision: Estimate = NO_ESTIMATE
    recall: Estimate = NO_ESTIMATE
    f1: Estimate = NO_ESTIMATE
    # The pairs that it was chosen on, none for a given threshold, and those that it was measured on.
    chosen_on: int = 0
    measured_on: int = 0
    # Whether these are different pairs.
    is_held_out: bool = False
    # About the number of pairs that are missing; 0 where a threshold exists or the precision is not well within reach.
    more_pairs: int = 0
    # Whether the pairs that it was chosen on reach the precision at some threshold, where none is shown to have it.
    is_reached: bool = False
    # False for a threshold that reached the precision on the pairs that it was chosen on, and has passed no test.
    is_tested: bool = True

    @property
    def exists(self) -> bool:
        """Whether some threshold fulfils the criterion."""
        return not np.isnan(self.threshold.value)

    @property
    def why_none(self) -> str:
        """Why no threshold fulfils the criterion, in words."""
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


def decide(
    scores: np.ndarray, matches: np.ndarray, criteria: Sequence[str] = CRITERIA, seed: int = 0, keys: Keys = None
) -> Decision:
    """Chooses a threshold for each criterion, and measures it: that of the best F1 on pairs that it was not chosen on.

    ``scores`` (N,) are larger for more similar pairs, ``matches`` (N,) true for pairs that belong together. A criterion
    is ``best-f1``, ``precision=0.95`` or a number. InputError if a criterion is none of these, or there are more than
    20; ValueError if there are only matches, or none, or a score is not a number.
    """
    parsed = parse_criteria(criteria)
    pairs = MatchScores(scores, matches, keys)
    whole = pairs.curve
    n = len(pairs.scores)
    positives = int(pairs.matches.sum())
    inside, outside = pairs, pairs
    if min(positives, n - positives) >= EACH_FOR_HALVES:
        inside, outside = (pairs.select(rows) for rows in halves(pairs.matches, seed))
    choices = []
    for criterion in parsed:
        if criterion.kind == FIXED:
            choices.append(_choice(criterion, pairs.choose(criterion), None, pairs, seed))
        elif criterion.kind == BEST_F1:
            choices.append(_choice(criterion, inside.choose(criterion, seed), inside, outside, seed))
        else:
            choice = _choice(criterion, pairs.choose(criterion, seed), pairs, pairs, seed)
            if choice.exists:
                choices.append(choice)
                continue
            choices.append(_missing(choice, pairs, criterion.value))
            reached = inside.reached(criterion.value)
            if not np.isnan(reached.value):
                choices.append(replace(_choice(criterion, reached, inside, outside, seed), is_tested=False))
    # Evenly spaced in rank where there are too many points to draw.
    places = np.unique(np.linspace(0, len(whole.threshold) - 1, min(len(whole.threshold), CURVE_POINTS)).round())
    points = np.stack(whole[:3], axis=1)[places.astype(int)].tolist()
    return Decision(
        n=n,
        matches=positives,
        average_precision=pairs.estimate_average_precision(),
        choices=tuple(choices),
        interval_method=f"bootstrap, {affordable_resamples(n):,} resamples"
        + ("" if keys is None else ", allows for shared sentences"),
        curve=[(threshold, precision, recall) for threshold, precision, recall in points],
    )


def _choice(
    criterion: Criterion, threshold: Estimate, inside: MatchScores | None, outside: MatchScores, seed: int
) -> Choice:
    """A threshold that was chosen on the pairs ``inside``, with its figures on those ``outside``."""
    precision, recall, f1 = outside.measure(threshold, seed)
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


def _missing(choice: Choice, pairs: MatchScores, precision: float) -> Choice:
    """The choice with what is missing, where no threshold is shown to have a precision."""
    is_reached = not np.isnan(pairs.reached(precision).value)
    return replace(choice, more_pairs=pairs.more_pairs(precision), is_reached=is_reached)


@dataclass(frozen=True)
class CarriedThreshold:
    """The effect of the earlier threshold on some pairs, and the thresholds of other scores with the same effect."""

    # The share of the pairs from the threshold on, and the precision of these.
    accepted: float
    precision: Estimate
    # The threshold that accepts the same share, and the lowest with this precision on these pairs; NaN for none.
    same_share: float
    same_precision: float

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "precision": self.precision._asdict()}


def carry_threshold(
    scores: np.ndarray, matches: np.ndarray, was_scores: np.ndarray, was_threshold: float, keys: Keys = None
) -> CarriedThreshold:
    """Carries ``was_threshold`` of ``was_scores`` (N,) over to ``scores`` (N,) of the same pairs.

    The other arguments are as in `decide`. Nothing is tested: the thresholds do the same on these pairs.
    """
    pairs, before = MatchScores(scores, matches, keys), MatchScores(was_scores, matches, keys)
    count = int((before.scores >= was_threshold).sum())
    if not count:
        return CarriedThreshold(0.0, NO_ESTIMATE, np.nan, np.nan)
    precision = before.measure(Estimate(was_threshold, was_threshold, was_threshold), seed=0)[0]
    nearest = int(np.abs(pairs.curve.predicted - count).argmin())
    same_precision = pairs.reached(precision.value).value
    share = float(pairs.curve.threshold[nearest])
    return CarriedThreshold(count / len(pairs.scores), precision, share, same_precision)


def halves(matches: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of two halves with the same share of matches, at random."""
    random = np.random.default_rng(seed)
    shuffled = [random.permutation(np.flatnonzero(rows)) for rows in (matches, ~matches)]
    first, second = zip(*(np.array_split(rows, 2) for rows in shuffled), strict=True)
    return np.sort(np.concatenate(first)), np.sort(np.concatenate(second))


def choose_threshold(
    scores: np.ndarray,
    labels: np.ndarray,
    precision: float = 0.95,
    *,
    was: tuple[np.ndarray, float] | None = None,
) -> float:
    """The threshold with the highest recall that is shown to have a precision of at least ``precision``.

    It is in units of the scores; pairs from it on are matches. InputError if there are too few pairs (the message says
    how many more are needed), or the precision is out of reach; ValueError if there are only matches, or none, or a
    score is not a number.

    Args:
        scores: (N,), larger = more similar.
        labels: (N,), 1 for pairs that belong together, 0 for others.
        precision: above 0, below 1. It holds for all pairs of this kind; the precision on this sample is higher.
        was: scores (N,) of the model before, and its threshold. The result is then the lowest threshold with the
            precision that this one has on these pairs, which is not tested.
    """
    if was is not None:
        carried = carry_threshold(scores, labels, *was)
        if np.isnan(carried.same_precision):
            raise InputError(f"no threshold of these scores has the precision that {was[1]:g} had on these pairs")
        return carried.same_precision
    criterion = Criterion.parse(f"{PRECISION}={precision}")
    pairs = MatchScores(scores, labels)
    threshold = pairs.choose(criterion)
    if np.isnan(threshold.value):
        choice = Choice(str(criterion), threshold, chosen_on=len(pairs.scores))
        raise InputError(f"{criterion}: {_missing(choice, pairs, precision).why_none}")
    return threshold.value
