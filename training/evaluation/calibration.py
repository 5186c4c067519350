"""Calibration: from a cosine to a gold score of STS (0–5), and to its meaning.

    curve = calibrate(Encoder.load("all-MiniLM-L6-v2"), "stsb:train")
    curve.gold_score(0.7), curve.band(0.7)          3.1, (2.0, 4.2)
    reliability(curve, pairs, cosines).describe     its errors on pairs that it was not fitted on

The same cosine means different things under different models and poolings. Isotonic regression on pairs with gold
scores gives the monotone curve from cosine to gold score with the least squared error, and the scale's definitions (Cer
et al. 2017, Table 1) describe the score in words.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from training.data.dataset import Data, Dataset, as_dataset, folded
from training.data.gold import TOP_SCORE
from training.data.load import load_data
from training.errors import InputError
from training.evaluation.bootstrap import Interval, wilson_interval
from training.evaluation.scoring import row_scores, without_score
from training.models.model import Model
from training.names import DataName
from training.progress import Progress, ShouldStop

# The pairs on which a curve is fitted unless a user has others.
FITTED_ON = "stsb:train"
KNOTS = 40
# Percentiles of the gold scores of pairs with about the same cosine.
BAND = (10, 90)
LEAST_PAIRS = 50
LEAST_PAIRS_OF_KNOT = 10
# The cosine from which on two sentences are equal in float32; knots have five digits.
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
    """A monotone piecewise linear curve from cosine to gold score, as knots; a cosine of 1 is a score of 5.

    ``low`` and ``high`` are the 10th and the 90th percentile of the gold scores. ``fitted_on`` is the name of a data
    set or file, ``pairs`` the number of its pairs. In curves that the app stores ``keys`` identify the pairs of a
    user's own, and ``weights`` the model; both are empty in the curves that ship.
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
            # Pydantic turns it into the sentence about a damaged file.
            raise ValueError("its columns differ in length")

    def gold_score(self, cosine: float) -> float:
        """The expected gold score (0–5) of a pair with this cosine."""
        return self._at(cosine, self.gold)

    def band(self, cosine: float) -> tuple[float, float]:
        """The gold scores between which 80% of the pairs with this cosine lie."""
        return self._at(cosine, self.low), self._at(cosine, self.high)

    def _at(self, cosine: float, values: tuple[float, ...]) -> float:
        # The gold scores of equal sentences do not count: their score is 5.
        below = sum(knot < 1 for knot in self.cosines)
        return float(np.interp(cosine, (*self.cosines[:below], EQUAL), (*values[:below], TOP_SCORE)))


def meaning(gold: float) -> str:
    """The definition of a gold score."""
    return next(text for minimum, text in MEANINGS if gold >= minimum)


def calibrate(
    scorer: Model,
    data: Data,
    home: str | Path | None = None,
    on_progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
) -> Calibration:
    """Fits the curve of a model, under its pooling, on pairs with gold scores.

    Args:
        scorer: a bi-encoder, for its cosine; or a model that scores pairs, for its score.
        data: a `Dataset` or an object that `as_dataset` takes, or the name of a data set. InputError if it has
            fewer than 50 pairs, or labels in place of scores.
    """
    pairs = load_data(data, home) if isinstance(data, str) else as_dataset(data, "data")
    check_scores(pairs)
    [by_similarity] = row_scores(scorer, pairs.columns, on_progress=on_progress, should_stop=should_stop)
    is_left_out, note = without_score(scorer, pairs.columns, [by_similarity])
    if note:
        pairs = pairs.select(np.flatnonzero(~is_left_out).tolist(), note)
    return fit_pairs(pairs, next(iter(by_similarity.values()))[~is_left_out])


def fit_pairs(data: Dataset, cosines: np.ndarray) -> Calibration:
    """The curve of the gold scores of N pairs by their cosines (N,). InputError as in `calibrate`."""
    check_scores(data)
    return replace(fit_isotonic(cosines, np.asarray(data.scores)), fitted_on=data.name, pairs=len(data))


def check_scores(data: Dataset) -> None:
    """InputError if there are too few pairs, or too few different gold scores, to fit a curve on."""
    if data.scores is None:
        raise InputError(f"{data.name} holds {data.kind}; a calibration takes pairs with gold scores")
    if len(data) < LEAST_PAIRS:
        raise InputError(f"{data.name} has {len(data)} pairs with scores; a calibration takes at least {LEAST_PAIRS}")
    if len(values := set(data.scores)) < 3:
        raise InputError(f"the pairs of {data.name} have {len(values)} different scores; a calibration takes a scale")


def fit_isotonic(cosines: np.ndarray, gold: np.ndarray) -> Calibration:
    """Isotonic regression of gold score on cosine, reduced to up to 40 knots of equally many pairs, with an 80% band.

    The band of a knot is of the distances of its own pairs and its neighbours' from the curve, of which Weibull's
    percentiles hold 80% of new ones: in simulation 75 to 80% from 60 pairs on.
    """
    from scipy.optimize import isotonic_regression

    order = np.argsort(cosines, kind="stable")
    x = np.asarray(cosines, dtype=np.float64)[order]
    ratings = np.asarray(gold, dtype=np.float64)[order]
    y = isotonic_regression(ratings).x
    groups = np.array_split(np.arange(len(x)), min(KNOTS, max(1, len(x) // LEAST_PAIRS_OF_KNOT)))
    near = [np.concatenate(groups[max(0, i - 1) : i + 2]) for i in range(len(groups))]
    cosines, scores = (np.array([column[group].mean() for group in groups]) for column in (x, y))
    errors = ratings - np.interp(x, cosines, scores)
    bands = scores[:, None] + [np.percentile(errors[rows], BAND, method="weibull") for rows in near]
    low, high = np.maximum.accumulate(bands.clip(0, TOP_SCORE)).T
    return Calibration(_rounded(cosines, 5), _rounded(scores), _rounded(low), _rounded(high))


def _rounded(values: Iterable[float], digits: int = 4) -> tuple[float, ...]:
    return tuple(round(float(value), digits) for value in values)


class Bin(NamedTuple):
    """Pairs with about the same predicted score."""

    predicted: float
    gold: float
    pairs: int


@dataclass(frozen=True)
class Reliability:
    """A curve on pairs that it was not fitted on."""

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
        """Plain JSON, as `evaluate --calibrate --json` prints it."""
        bins = [group._asdict() for group in self.bins]
        return {**asdict(self), "bins": bins, "interval": self.interval._asdict()}

    @property
    def describe(self) -> str:
        """The result in words."""
        low, high = (f"{100 * end:.1f}" for end in self.interval[:2])
        out = f" {self.left_out:,} more pairs are left out because it was fitted on them." if self.left_out else ""
        return (
            f"On {self.pairs:,} pairs of {DataName.parse(self.data).label}, the 80% band holds "
            f"{100 * self.coverage:.1f}% of the gold scores (95% interval {low} to {high}), and “x of 5” is off by "
            f"{self.error:.2f} points on average.{out}"
        )


def reliability(curve: Calibration, data: Dataset, cosines: np.ndarray, home: str | Path | None = None) -> Reliability:
    """A curve on those pairs, with their cosines (N,), that it was not fitted on. InputError for fewer than 20."""
    fitted_keys = set(curve.keys or pair_keys(load_data(FITTED_ON, home)))
    rows = [row for row, key in enumerate(pair_keys(data)) if key not in fitted_keys]
    if len(rows) < LEAST_CHECKED:
        raise InputError(
            f"{data.name} has {len(rows)} pairs that the calibration was not fitted on; it is checked on at least "
            f"{LEAST_CHECKED} others: choose another set"
        )
    gold = np.asarray(data.scores)[rows]
    predicted = np.array([curve.gold_score(value) for value in cosines[rows]])
    low, high = np.array([curve.band(value) for value in cosines[rows]]).T
    groups = np.array_split(np.argsort(predicted, kind="stable"), BINS)
    inside = int(((low <= gold) & (gold <= high)).sum())
    return Reliability(
        curve.fitted_on,
        data.name,
        pairs=len(rows),
        left_out=len(data) - len(rows),
        bins=tuple(Bin(float(predicted[bin].mean()), float(gold[bin].mean()), len(bin)) for bin in groups),
        coverage=inside / len(rows),
        interval=wilson_interval(inside, len(rows)),
        error=float(np.abs(predicted - gold).mean()),
    )


def pair_keys(data: Dataset) -> list[str]:
    """A short text for each pair, the same for equal pairs in either order, case and white space aside."""
    texts = ("\0".join(sorted(map(folded, pair))) for pair in zip(*data.columns, strict=True))
    return [hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12] for text in texts]
