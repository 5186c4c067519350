"""Calibration: converts a cosine to a gold score of STS (0–5), and to its meaning.

    curve = calibrate(Encoder.load("all-MiniLM-L6-v2"), "stsb:train")
    curve.gold_score(0.7), curve.band(0.7)          3.1, (2.0, 4.2)
    reliability(curve, pairs, cosines).description  its errors on other pairs

The same cosine means different things for different models and poolings. Isotonic regression on
pairs with gold scores finds the monotone curve from cosine to gold score with the least squared
error. The definitions of the scale (Cer et al. 2017, Table 1) describe the score in words.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy

from training.data.dataset import Data, Dataset, as_dataset, folded
from training.data.gold import TOP_SCORE
from training.data.load import load_data
from training.errors import InputError
from training.evaluation.bootstrap import Interval, wilson_interval
from training.evaluation.scoring import row_scores, without_score
from training.models.model import Model
from training.names import DataName
from training.progress import Progress, ShouldStop

# A curve is fitted on these pairs unless a user has others.
FITTED_ON = "stsb:train"
KNOTS = 40
# Percentiles of the gold scores of pairs with about the same cosine.
BAND = (10, 90)
LEAST_PAIRS = 50
LEAST_PAIRS_OF_KNOT = 10
# Sentences with at least this cosine are equal in float32. Knots have five digits.
EQUAL = 1 - 1e-6
BINS = 10
LEAST_CHECKED = 20

# The scale of the STS benchmark, shortened: gold scores and their meanings.
MEANINGS = (
    (4.5, "the same meaning"),
    (3.5, "nearly the same: only details differ"),
    (2.5, "roughly the same: something important differs"),
    (1.5, "not the same, but details in common"),
    (0.5, "different, on the same topic"),
    (float("-inf"), "different topics"),
)


@dataclass(frozen=True)
class Calibration:
    """A monotone, piecewise linear curve from cosine to gold score. A cosine of 1 is a score of 5.

    Attributes:
        cosines, gold: the knots of the curve.
        low, high: the 10th and the 90th percentile of the gold scores at the knots.
        fitted_on: the name of a data set or file.
        pairs: the number of its pairs.
        keys, weights: identify a user's own pairs, and the model, in curves that the app stores;
            else empty.
    """

    cosines: tuple[float, ...]
    gold: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    fitted_on: str = FITTED_ON
    pairs: int = 0
    keys: tuple[str, ...] = ()
    weights: str = ""

    def __post_init__(self) -> None:
        if {len(self.gold), len(self.low), len(self.high)} != {len(self.cosines)}:
            # Pydantic converts it to the error about a damaged file.
            raise ValueError("its columns differ in length")

    def gold_score(self, cosine: float) -> float:
        """Returns the expected gold score (0–5) of a pair with this cosine."""
        return self._at(cosine, self.gold)

    def band(self, cosine: float) -> tuple[float, float]:
        """Returns the limits of the gold scores of 80% of the pairs with this cosine."""
        return self._at(cosine, self.low), self._at(cosine, self.high)

    def _at(self, cosine: float, values: tuple[float, ...]) -> float:
        """Interpolates between ``values`` at the knots."""
        # Equal sentences have the score 5, whatever their gold scores are. A knot that is rounded
        # to 1 is left out, as the knots must ascend to `EQUAL`.
        count = sum(knot < 1 for knot in self.cosines)
        knots = (*self.cosines[:count], EQUAL)
        scores = (*values[:count], TOP_SCORE)
        return float(np.interp(cosine, knots, scores))


def meaning(gold: float) -> str:
    """Returns the definition of a gold score."""
    return next(text for minimum, text in MEANINGS if gold >= minimum)


def calibrate(
    scorer: Model,
    data: Data,
    home: str | Path | None = None,
    on_progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
) -> Calibration:
    """Fits the curve from a model's cosine to the gold score, on pairs with gold scores.

    Args:
        scorer: a bi-encoder, for its cosine; or a model that scores pairs, for its score.
        data: a `Dataset`, an object that `as_dataset` takes, or the name of a data set.

    Returns:
        A curve with ``gold_score`` and ``band``.

    Raises:
        InputError: the data has fewer than 50 pairs, or labels instead of scores.

    Example::

        from sbert_lab import Encoder, calibrate

        curve = calibrate(Encoder("all-MiniLM-L6-v2"), "stsb:dev")
        print(curve.gold_score(0.7), curve.band(0.7))
    """
    pairs = load_data(data, home) if isinstance(data, str) else as_dataset(data, "data")
    check_scores(pairs)
    # There is one pair of columns.
    [by_similarity] = row_scores(
        scorer, pairs.columns, on_progress=on_progress, should_stop=should_stop
    )
    is_left_out, note = without_score(scorer, pairs.columns, [by_similarity])
    if note:
        pairs = pairs.select(np.flatnonzero(~is_left_out).tolist(), note)
    # The first similarity is the cosine, or the only score of the model.
    scores = next(iter(by_similarity.values()))
    return fit_pairs(pairs, scores[~is_left_out])


def fit_pairs(data: Dataset, cosines: np.ndarray) -> Calibration:
    """Fits the curve of N pairs with these cosines (N,). InputError as in `calibrate`."""
    check_scores(data)
    curve = fit_isotonic(cosines, np.asarray(data.scores))
    return replace(curve, fitted_on=data.name, pairs=len(data))


def check_scores(data: Dataset) -> None:
    """Raises InputError if there are too few pairs, or too few different gold scores, to fit a curve."""
    if data.scores is None:
        raise InputError(
            f"{data.name} holds {data.kind}; a calibration takes pairs with gold scores"
        )
    if len(data) < LEAST_PAIRS:
        raise InputError(
            f"{data.name} has {len(data)} pairs with scores; a calibration takes at least {LEAST_PAIRS}"
        )
    distinct = len(set(data.scores))
    if distinct < 3:
        raise InputError(
            f"the pairs of {data.name} have {distinct} different scores; a calibration takes a scale"
        )


def fit_isotonic(cosines: np.ndarray, gold: np.ndarray) -> Calibration:
    """Fits gold scores to cosines by isotonic regression, reduced to at most 40 knots, with an 80% band.

    The knots have equal numbers of pairs. The band of a knot contains 80% of the distances from the
    curve, by Weibull's percentiles of its own pairs and its neighbours'. In simulation it contains
    75 to 80% of new pairs, from 60 pairs on.
    """
    order = np.argsort(cosines, kind="stable")
    x = np.asarray(cosines, dtype=np.float64)[order]
    ratings = np.asarray(gold, dtype=np.float64)[order]
    y = scipy.optimize.isotonic_regression(ratings).x
    num_knots = min(KNOTS, max(1, len(x) // LEAST_PAIRS_OF_KNOT))
    groups = np.array_split(np.arange(len(x)), num_knots)
    knots = np.array([x[group].mean() for group in groups])
    scores = np.array([y[group].mean() for group in groups])
    errors = ratings - np.interp(x, knots, scores)
    bands = []
    for number, score in enumerate(scores):
        # The pairs of the knot and of its neighbours.
        near = np.concatenate(groups[max(0, number - 1) : number + 2])
        bands.append(score + np.percentile(errors[near], BAND, method="weibull"))
    # Like the curve, the limits never decrease.
    limits = np.maximum.accumulate(np.array(bands).clip(0, TOP_SCORE))  # (knots, 2)
    low, high = limits.T
    return Calibration(_rounded(knots, 5), _rounded(scores), _rounded(low), _rounded(high))


def _rounded(values: Iterable[float], digits: int = 4) -> tuple[float, ...]:
    return tuple(round(float(value), digits) for value in values)


class Bin(NamedTuple):
    """Pairs with about the same predicted score."""

    predicted: float
    gold: float
    pairs: int


@dataclass(frozen=True)
class Reliability:
    """The quality of a curve on pairs that it was not fitted on."""

    fitted_on: str
    data: str
    pairs: int
    # Pairs that are left out because the curve was fitted on them.
    left_out: int
    bins: tuple[Bin, ...]
    # The share of gold scores in the 80% band, and its interval.
    coverage: float
    interval: Interval
    # The mean distance from the gold scores, in points of 5.
    error: float

    def to_json(self) -> dict[str, Any]:
        """Returns plain values for JSON, as `evaluate --calibrate --json` prints them."""
        bins = [group._asdict() for group in self.bins]
        return {**asdict(self), "bins": bins, "interval": self.interval._asdict()}

    @property
    def description(self) -> str:
        """The result in words."""
        text = (
            f"On {self.pairs:,} pairs of {DataName.parse(self.data).label}, the 80% band holds "
            f"{100 * self.coverage:.1f}% of the gold scores (95% interval {100 * self.interval.low:.1f} to "
            f"{100 * self.interval.high:.1f}), and “x of 5” is off by {self.error:.2f} points on average."
        )
        if self.left_out:
            text += f" {self.left_out:,} more pairs are left out because it was fitted on them."
        return text


def reliability(
    curve: Calibration, data: Dataset, cosines: np.ndarray, home: str | Path | None = None
) -> Reliability:
    """Measures a curve on the pairs, with cosines (N,), that it was not fitted on.

    InputError for fewer than 20 such pairs, or if a curve without keys was fitted on data that has
    no name.
    """
    # Without keys the pairs that the curve was fitted on are loaded by the name of their data.
    fitted_keys = set(curve.keys or pair_keys(load_data(curve.fitted_on, home)))
    rows = [row for row, key in enumerate(pair_keys(data)) if key not in fitted_keys]
    if len(rows) < LEAST_CHECKED:
        raise InputError(
            f"{data.name} has {len(rows)} pairs that the calibration was not fitted on; it is checked on at least "
            f"{LEAST_CHECKED} others: choose another set"
        )
    gold = np.asarray(data.scores)[rows]
    predicted = np.array([curve.gold_score(value) for value in cosines[rows]])
    low, high = np.array([curve.band(value) for value in cosines[rows]]).T
    inside = int(((low <= gold) & (gold <= high)).sum())
    bins = []
    for group in np.array_split(np.argsort(predicted, kind="stable"), BINS):
        bins.append(Bin(float(predicted[group].mean()), float(gold[group].mean()), len(group)))
    return Reliability(
        curve.fitted_on,
        data.name,
        pairs=len(rows),
        left_out=len(data) - len(rows),
        bins=tuple(bins),
        coverage=inside / len(rows),
        interval=wilson_interval(inside, len(rows)),
        error=float(np.abs(predicted - gold).mean()),
    )


def pair_keys(data: Dataset) -> list[str]:
    """Returns a short key for each pair, equal for equal pairs in either order, ignoring case and white space."""
    keys = []
    for pair in zip(*data.columns, strict=True):
        text = "\0".join(sorted(map(folded, pair)))
        keys.append(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12])
    return keys
