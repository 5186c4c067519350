"""Thresholds: from which similarity on two sentences count as a match, and how sure that is.

    decision = decide(scores, matches)                    scores (N,), matches (N,) bool
    decision.choices[0].threshold                         Estimate(value=0.71, low=0.69, high=0.74)
    decision.choices[0].precision                         on the pairs that the threshold was not chosen on

A criterion names a threshold: ``best-f1``; ``precision=0.95``, the one with the highest recall whose precision is at
least 0.95; or a number, which is taken as it is. The pairs are divided into two halves with the same share of matches:
a threshold is chosen on one, precision, recall and F1 are those of the other, so that nothing is reported on the pairs
it was fitted to. Average precision needs no threshold; it is that of all pairs. Equal scores are on the same side of
every threshold (`training.evaluation.metrics`). Intervals are 95% percentile bootstrap intervals: that of
a threshold is over thresholds chosen on resamples of its half. Where a precision or recall is 0 or 1, resamples cannot
differ, and the interval is Wilson's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from training.catalogue import LABELLED, SCORED
from training.data.dataset import TOP_SCORE, Dataset
from training.data.transforms import POSITIVE_FROM, POSITIVE_LABELS
from training.errors import InputError
from training.evaluation.metrics import (
    Estimate,
    PrecisionRecall,
    affordable_resamples,
    percentile_interval,
    precision_recall,
    resample_weights,
    wilson_interval,
)
from training.evaluation.scoring import Progress, ShouldStop, row_scores

if TYPE_CHECKING:
    from training.models.scorer import Scorer

BEST_F1, PRECISION, FIXED = "best-f1", "precision", "fixed"
CRITERIA = (BEST_F1, f"{PRECISION}=0.95")
EACH_FOR_HALVES = 4  # matches, and pairs that are none, from which there are two halves
CURVE_POINTS = 400
MOST_CRITERIA = 20  # at once: each is measured on every resample of the pairs
ROUNDING = 1e-9


class Criterion(NamedTuple):
    """What a threshold has to fulfil."""

    kind: str  # BEST_F1, PRECISION or FIXED
    value: float = 0.0  # the least precision, or the threshold itself

    @classmethod
    def parse(cls, text: str) -> Criterion:
        """Read ``best-f1``, ``precision=0.95`` or a number. Raises InputError for anything else."""
        name, _, number = text.strip().lower().partition("=")
        if name == BEST_F1 and not number:
            return cls(BEST_F1)
        try:
            value = float(number if name == PRECISION else text)
        except ValueError:
            value = float("nan")
        if name == PRECISION and 0 < value <= 1:
            return cls(PRECISION, value)
        if name != PRECISION and np.isfinite(value):
            return cls(FIXED, value)
        raise InputError(f"threshold {text[:80]!r} must be {BEST_F1}, {PRECISION}=0.95 (above 0, up to 1) or a number")

    def __str__(self) -> str:
        return {BEST_F1: BEST_F1, PRECISION: f"{PRECISION}={self.value:g}"}.get(self.kind, f"{self.value:g}")


@dataclass(frozen=True)
class Choice:
    """A threshold, and what it does to the pairs that it was not chosen on. All NaN where no threshold fulfils it."""

    criterion: str
    threshold: Estimate  # of a fixed one without an interval
    precision: Estimate
    recall: Estimate
    f1: Estimate

    @property
    def exists(self) -> bool:
        """Whether some threshold fulfils the criterion."""
        return not np.isnan(self.threshold.value)


@dataclass(frozen=True)
class Decision:
    """What `decide` found. Precision, recall, F1 and average precision in 0 to 1."""

    n: int
    matches: int
    average_precision: Estimate
    choices: tuple[Choice, ...]
    chosen_on: int  # pairs
    reported_on: int  # pairs; all of them, the same, where there are too few for two halves
    held_out: bool  # whether these are different pairs
    interval_method: str
    curve: list[tuple[float, float, float]]  # (threshold, precision, recall) of all pairs, thinned out

    def choice(self, criterion: str) -> Choice:
        """The choice by this criterion."""
        return next(each for each in self.choices if each.criterion == criterion)

    def to_dict(self) -> dict[str, Any]:
        """The decision without its curve, as plain values."""
        return {key: value for key, value in asdict(self).items() if key != "curve"} | {
            "average_precision": self.average_precision._asdict(),
            "choices": [
                {name: value._asdict() if isinstance(value, Estimate) else value for name, value in vars(each).items()}
                for each in self.choices
            ],
        }


def parse_criteria(texts: Sequence[str]) -> list[Criterion]:
    """The criteria in ``texts``. InputError if one is none, or there are too many."""
    if len(texts) > MOST_CRITERIA:
        raise InputError(f"{len(texts):,} thresholds are asked for; at most {MOST_CRITERIA} are measured at once")
    return [Criterion.parse(text) for text in texts]


class DataDecision(NamedTuple):
    """A decision on a data set."""

    similarity: str  # the model's first: cosine, or a cross-encoder's score
    meaning: str  # what counts as a match
    decision: Decision

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"similarity": self.similarity, "match": self.meaning, **self.decision.to_dict()}


def decide_data(
    scorer: Scorer,
    data: Dataset,
    criteria: Sequence[str] = CRITERIA,
    match_from: float = POSITIVE_FROM,
    on_progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
) -> DataDecision:
    """Score the pairs of a data set and `decide` from which score on they are matches (`match_labels`).

    InputError if the data has neither labels nor gold scores, or a criterion is none.
    """
    parse_criteria(criteria)  # what cannot be used is said before anything is scored
    matches, meaning = match_labels(data, match_from)
    [by_similarity] = row_scores(scorer, data.columns, on_progress=on_progress, should_stop=should_stop)
    similarity, scores = next(iter(by_similarity.items()))
    if not np.isfinite(scores).all():
        raise InputError(f"{scorer.name} gives scores that are not finite numbers on {data.name}")
    return DataDecision(similarity, meaning, decide(scores, matches, criteria))


def match_labels(data: Dataset, match_from: float = POSITIVE_FROM) -> tuple[np.ndarray, str]:
    """Which pairs of a data set are matches, bool (N,), and a sentence that says what counts as one.

    Labelled pairs: the one label that says so (1, yes, duplicate, entailment, …) against the rest. Scored pairs: a
    gold score of at least ``match_from`` on the scale from 0 to 5.

    InputError if the data is of another form, no label or several say that a pair belongs together, or all pairs are
    matches, or none.
    """
    if data.kind == LABELLED:
        positive = [i for i, name in enumerate(data.label_names) if name in POSITIVE_LABELS]
        if len(positive) != 1:
            raise InputError(
                f"the labels of {data.name} ({', '.join(data.label_names[:5])}) do not say which pairs are matches; "
                "name them 1 and 0, or entailment and others"
            )
        matches = np.asarray(data.labels) == positive[0]
        rest = [name for i, name in enumerate(data.label_names) if i != positive[0]]
        note = f"{data.label_names[positive[0]]} is a match, {' and '.join(rest[:3])} {'are' if rest[1:] else 'is'} not"
    elif data.kind == SCORED:
        if not 0 < match_from <= TOP_SCORE:
            raise InputError(f"a match is to begin at the gold score {match_from:g}; it must be above 0, up to 5")
        matches = np.asarray(data.scores) >= match_from
        note = f"a gold score of at least {match_from:g} (of 5) is a match"
    else:
        raise InputError(f"{data.name} holds {data.kind}; a threshold needs pairs with labels or gold scores")
    if matches.all() or not matches.any():
        raise InputError(
            f"{data.name} has {'only' if matches.all() else 'no'} matches ({note}); a threshold needs both"
        )
    return matches, note


def decide(scores: np.ndarray, matches: np.ndarray, criteria: Sequence[str] = CRITERIA, seed: int = 0) -> Decision:
    """Choose a threshold for each criterion on one half of the pairs, and measure it on the other.

    Args:
        scores: (N,), larger = more similar.
        matches: (N,), true for pairs that belong together.
        criteria: ``best-f1``, ``precision=0.95``, a number.
        seed: of the halves and of the bootstrap.

    Raises:
        InputError: a criterion is none of these, or there are more than 20.
        ValueError: there are only matches, or none, or a score is not a number.
    """
    scores, matches = np.asarray(scores, dtype=np.float64), np.asarray(matches).astype(bool)
    parsed = parse_criteria(criteria)
    whole = precision_recall(scores, matches)
    is_chosen = any(criterion.kind != FIXED for criterion in parsed)
    held_out = is_chosen and min(int(matches.sum()), int((~matches).sum())) >= EACH_FOR_HALVES
    chosen_on, reported_on = _halves(matches, seed) if held_out else (np.arange(len(scores)),) * 2
    thresholds = _choose(scores[chosen_on], matches[chosen_on], parsed, seed)
    measured = _measure(scores[reported_on], matches[reported_on], thresholds, seed)
    return Decision(
        n=len(scores),
        matches=int(matches.sum()),
        average_precision=_average_precision(scores, matches, whole, seed),
        choices=tuple(
            Choice(str(criterion), threshold, *figures)
            for criterion, threshold, figures in zip(parsed, thresholds, measured, strict=True)
        ),
        chosen_on=len(chosen_on),
        reported_on=len(reported_on),
        held_out=held_out,
        interval_method=f"bootstrap, {affordable_resamples(len(scores)):,} resamples",
        curve=_thinned(whole),
    )


def _halves(matches: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two halves with the same share of matches, drawn at random."""
    random = np.random.default_rng(seed)
    drawn = [random.permutation(rows) for rows in (np.flatnonzero(matches), np.flatnonzero(~matches))]
    first, second = zip(*(np.array_split(rows, 2) for rows in drawn), strict=True)
    return np.sort(np.concatenate(first)), np.sort(np.concatenate(second))


def _best(hits: np.ndarray, predicted: np.ndarray, criterion: Criterion) -> np.ndarray:
    """The place of the threshold in each row of counts (R, T) -> (R,); −1 where none fulfils the criterion."""
    if criterion.kind == BEST_F1:
        figure = 2 * hits / np.maximum(predicted + hits[:, -1:], 1)
    else:
        is_precise = (hits > 0) & (hits >= criterion.value * predicted - ROUNDING)
        figure = np.where(is_precise, hits, 0)
    place = figure.argmax(axis=1)
    return np.where(figure.max(axis=1) > 0, place, -1)


def _choose(scores: np.ndarray, matches: np.ndarray, criteria: Sequence[Criterion], seed: int) -> list[Estimate]:
    """The threshold of each criterion on these pairs, with its interval."""
    curve = precision_recall(scores, matches)
    places = [_best(curve.hits[None], curve.predicted[None], criterion)[0] for criterion in criteria]
    found: list[list[np.ndarray]] = [[] for _ in criteria]
    thresholds = np.append(curve.threshold, np.nan)  # −1 takes the NaN
    if any(criterion.kind != FIXED for criterion in criteria):
        for hits, predicted in _resampled_counts(scores, matches, curve, seed):
            for criterion, replicates in zip(criteria, found, strict=True):
                replicates.append(thresholds[_best(hits, predicted, criterion)])
    return [
        Estimate(criterion.value, criterion.value, criterion.value)
        if criterion.kind == FIXED
        else percentile_interval(float(thresholds[place]), np.concatenate(replicates))
        for criterion, place, replicates in zip(criteria, places, found, strict=True)
    ]


def _measure(
    scores: np.ndarray, matches: np.ndarray, thresholds: Sequence[Estimate], seed: int
) -> list[tuple[Estimate, Estimate, Estimate]]:
    """Precision, recall and F1 of each threshold on these pairs, with their intervals."""
    above = np.stack([scores >= threshold.value for threshold in thresholds]).astype(np.float64)  # (C, N)
    counted = np.concatenate([above, above * matches, matches[None].astype(np.float64)])  # (2C + 1, N)
    counts = counted.sum(axis=1)
    value = _figures(counts[None])
    resamples = affordable_resamples(len(scores))
    replicates = np.concatenate([_figures(w @ counted.T) for w in resample_weights(len(scores), resamples, seed + 1)])
    return [
        (Estimate(*(float("nan"),) * 3),) * 3
        if np.isnan(threshold.value)
        else (
            _proportion(float(value[0, 0, c]), replicates[:, 0, c], float(counts[c])),
            _proportion(float(value[0, 1, c]), replicates[:, 1, c], float(counts[-1])),
            percentile_interval(float(value[0, 2, c]), replicates[:, 2, c]),
        )
        for c, threshold in enumerate(thresholds)
    ]


def _figures(counts: np.ndarray) -> np.ndarray:
    """(R, 2C + 1), pairs above each threshold, matches among them, all matches -> precision, recall, F1 (R, 3, C)."""
    c = counts.shape[1] // 2
    predicted, hits, positives = counts[:, :c], counts[:, c : 2 * c], counts[:, 2 * c :]
    with np.errstate(invalid="ignore", divide="ignore"):  # nothing above the threshold: precision is not defined
        return np.stack([hits / predicted, hits / positives, 2 * hits / (predicted + positives)], axis=1)


def _average_precision(scores: np.ndarray, matches: np.ndarray, curve: PrecisionRecall, seed: int) -> Estimate:
    replicates = []
    for hits, predicted in _resampled_counts(scores, matches, curve, seed):
        with np.errstate(invalid="ignore", divide="ignore"):  # a resample without matches
            recall = hits / hits[:, -1:]
        precision = hits / np.maximum(predicted, 1)
        replicates.append((np.diff(recall, axis=1, prepend=0.0) * precision).sum(axis=1))
    return percentile_interval(curve.average_precision, np.concatenate(replicates))


def _resampled_counts(
    scores: np.ndarray, matches: np.ndarray, curve: PrecisionRecall, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For blocks of resamples: matches, and pairs, from each threshold of ``curve`` on; (R, T) each."""
    together, last = matches[np.argsort(-scores, kind="stable")].astype(np.float64), curve.predicted - 1
    for weights in resample_weights(len(scores), affordable_resamples(len(scores)), seed):
        yield np.cumsum(weights * together, axis=1)[:, last], np.cumsum(weights, axis=1)[:, last]


def _proportion(value: float, replicates: np.ndarray, n: float) -> Estimate:
    """A proportion of ``n`` with its interval: Wilson's where it is 0 or 1."""
    if value not in (0.0, 1.0):
        return percentile_interval(value, replicates)
    interval = wilson_interval(int(value * n), int(n))
    return Estimate(value, interval.low, interval.high)


def _thinned(curve: PrecisionRecall) -> list[tuple[float, float, float]]:
    """Points of the curve, evenly spaced in rank where there are too many to draw."""
    count = len(curve.threshold)
    kept = np.unique(np.linspace(0, count - 1, min(count, CURVE_POINTS)).round().astype(int))
    columns = (curve.threshold, curve.precision, curve.recall)
    return [(float(a), float(b), float(c)) for a, b, c in zip(*(column[kept] for column in columns), strict=True)]
