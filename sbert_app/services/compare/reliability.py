"""Calibrate a model on a user's gold scores, and check a calibration on pairs that it was not fitted on.

curve = calibrate_on(models, ModelName.parse("all-MiniLM-L6-v2"), "mine.csv", home, watch)
check(models, model, "stsb:test", home, watch)       mean predicted and mean gold score of each bin, and the band
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sbert_app.services.background.watch import Watch
from sbert_app.services.compare.calibration import (
    FITTED_ON,
    curve_key,
    fit_own,
    load_calibration,
    own_curves,
    pair_keys,
)
from sbert_app.services.corpus.embedded import weights_key
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.results.grid import EvalResultCache, evaluate_one, load_scored_pairs
from sbert_app.services.results.results import data_label
from training.data.dataset import Dataset
from training.data.load import load_data
from training.errors import InputError
from training.evaluation.calibration import Calibration
from training.evaluation.metrics import Interval, wilson_interval
from training.models.model import Model, VectorModel
from training.names import ModelName

BINS, LEAST_CHECKED = 10, 20


class Bin(NamedTuple):
    """Pairs with about the same predicted score."""

    predicted: float  # mean
    gold: float  # mean
    pairs: int


@dataclass(frozen=True)
class Reliability:
    """A curve on pairs that it was not fitted on."""

    fitted_on: str
    data: str
    pairs: int
    left_out: int  # pairs of the data that it was fitted on
    bins: tuple[Bin, ...]
    coverage: float  # the share of gold scores in the 80% band
    interval: Interval  # of the coverage
    error: float  # mean distance from the gold scores, in points of 5

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, as `evaluate --calibrate --json` prints it."""
        bins = [each._asdict() for each in self.bins]
        return {**asdict(self), "bins": bins, "interval": self.interval._asdict()}

    @property
    def describe(self) -> str:
        """In words."""
        low, high = (f"{100 * end:.1f}" for end in self.interval[:2])
        out = f"; {self.left_out:,} more are left out, as it was fitted on them" if self.left_out else ""
        return (
            f"The band that is to hold 80% of the gold scores holds {100 * self.coverage:.1f}% (95% {low} to {high}) "
            f"of those of {self.pairs:,} pairs of {data_label(self.data)}{out}. “x of 5” is {self.error:.2f} points "
            "from the gold score on average."
        )


def calibrate_on(models: ModelCache, model: ModelName, data: str, home: Path, watch: Watch) -> Calibration:
    """Fit the calibration of a bi-encoder on pairs with gold scores by name, and keep it. InputError as `fit_own`."""
    encoder, pairs, cosines = _scored(models, model, data, home, watch)
    return fit_own(encoder.name, encoder.pooling, pairs, cosines, home, weights_key(encoder))


def check(models: ModelCache, model: ModelName, data: str, home: Path, watch: Watch) -> Reliability:
    """The calibration in use on other pairs. InputError if there is none, or there are no other pairs."""
    encoder, pairs, cosines = _scored(models, model, data, home, watch)
    curve = load_calibration(encoder.name, encoder.pooling, home, weights_key(encoder))
    if curve is None or not curve.low:
        raise InputError(f"{model.label} has no calibration with a band; fit one")
    return reliability(curve, pairs, cosines, home)


def reliability(curve: Calibration, data: Dataset, cosines: np.ndarray, home: Path) -> Reliability:
    """A curve with a band on those pairs that it was not fitted on. InputError if these are fewer than 20."""
    seen = set(curve.seen or pair_keys(load_data(FITTED_ON, home)))
    rows = [row for row, key in enumerate(pair_keys(data)) if key not in seen]
    if len(rows) < LEAST_CHECKED:
        raise InputError(
            f"{data.name} has {len(rows)} pairs that the calibration was not fitted on; it is checked on at least "
            f"{LEAST_CHECKED} others: choose another set"
        )
    gold = np.asarray(data.scores)[rows]
    predicted = np.array([curve.gold_score(value) for value in cosines[rows]])
    low, high = np.array([curve.band(value) for value in cosines[rows]]).T
    groups = np.array_split(np.argsort(predicted, kind="stable"), BINS)
    bins = tuple(Bin(float(predicted[each].mean()), float(gold[each].mean()), len(each)) for each in groups)
    inside = int(((low <= gold) & (gold <= high)).sum())
    interval, error = wilson_interval(inside, len(rows)), float(np.abs(predicted - gold).mean())
    left_out = len(data) - len(rows)
    return Reliability(curve.fitted_on, data.name, len(rows), left_out, bins, inside / len(rows), interval, error)


def forget(models: ModelCache, model: ModelName, home: Path) -> None:
    """Delete the user's own curve of a model, so that the one on STSb train counts again."""
    encoder = models.get(model, VectorModel)
    own_curves(home).delete(curve_key(encoder.name, encoder.pooling))


def _scored(
    models: ModelCache, model: ModelName, data: str, home: Path, watch: Watch
) -> tuple[VectorModel, Dataset, np.ndarray]:
    """The encoder, the pairs, and their cosines (N,) float32."""
    encoder = models.get(model, Model)
    if not isinstance(encoder, VectorModel):
        raise InputError(f"{model.label} is no bi-encoder; “x of 5” is calibrated from a cosine of sentence vectors")
    pairs = load_scored_pairs(data, home)
    result = evaluate_one(model, pairs, models, EvalResultCache(home), watch)
    return encoder, pairs, result.scores_by("cosine")
