"""Calibration curves (`training.evaluation.calibration`) in the home folder, one for each model and pooling.

They are fitted on STSb train or on a user's gold scores, and belong to the weights of a model: they do not count for
another model of the same name. ``scripts/measure_examples.py`` writes those that ship, ``assets/calibration.json``.
"""

import hashlib
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np

from sbert_app.services.background.watch import Watch
from sbert_app.services.corpus.embedded import weights_key
from sbert_app.services.models.cache import ModelCache
from sbert_app.services.results.grid import evaluate_one, load_scored_pairs
from sbert_app.services.store.documents import DocumentStore, read_document
from training.catalogue import DEFAULT_MODEL, asset
from training.data.dataset import Dataset
from training.data.load import load_data
from training.errors import InputError
from training.evaluation.calibration import (
    FITTED_ON,
    Calibration,
    Reliability,
    calibrate,
    fit_pairs,
    pair_keys,
    reliability,
)
from training.models.model import Model, VectorModel
from training.names import ModelName

log = logging.getLogger("sbert_lab.services")

# By "model|pooling".
SHIPPED = asset("calibration.json")
# The curve whose range of scores was measured on text other than STSb too, the SemEval sets and SICK-R: it holds 57 to
# 73 of 100 there, in place of 80.
MEASURED_ELSEWHERE = (DEFAULT_MODEL, "mean")
# The pairs for a model that has no shipped curve, while a person is waiting.
QUICK_PAIRS = 2_000


def own_curves(home: Path) -> DocumentStore[Calibration]:
    """The store of the curves that users have fitted, by `curve_key`."""
    return DocumentStore(home / "calibration" / "own", Calibration, what="calibration")


def computed_curves(home: Path) -> DocumentStore[dict[str, Calibration]]:
    """The store of the curves that were fitted on STSb train, by `curve_key`, in the form of `SHIPPED`."""
    return DocumentStore(home / "calibration", dict[str, Calibration], what="calibration")


def curve_key(model: str, pooling: str) -> str:
    """The name of the file of a model's curve."""
    return hashlib.sha256(f"{model}|{pooling}".encode()).hexdigest()[:16]


def load_calibration(model: str, pooling: str, home: Path, weights: str = "") -> Calibration | None:
    """The user's own curve, else that of `computed_curve`. InputError if the user's own is damaged.

    A curve has to belong to the ``weights`` of the model (`weights_key`), if both are known.
    """
    store, key = own_curves(home), curve_key(model, pooling)
    own = store.get(key) if store.path(key).exists() else None
    return own if own and _is_of(own, weights) else computed_curve(model, pooling, home, weights)


def is_set_aside(model: str, pooling: str, home: Path, weights: str) -> bool:
    """Whether the user's own curve belongs to other weights and does not count. InputError if it is damaged."""
    store, key = own_curves(home), curve_key(model, pooling)
    return store.path(key).exists() and not _is_of(store.get(key), weights)


def computed_curve(model: str, pooling: str, home: Path, weights: str = "") -> Calibration | None:
    """The curve that was fitted on STSb train, in the home folder or the shipped file; else None."""
    for file in (computed_curves(home).path(curve_key(model, pooling)), SHIPPED):
        try:
            curve = read_document(file, dict[str, Calibration]).get(f"{model}|{pooling}")
        except FileNotFoundError:
            continue
        except InputError as error:
            # A damaged one is written over.
            log.warning("%s", error)
            continue
        if curve is not None and _is_of(curve, weights):
            return curve
    return None


def _is_of(curve: Calibration, weights: str) -> bool:
    """Whether a curve may be that of these weights, which shipped curves do not state."""
    return not weights or curve.weights in ("", weights)


def stored_curve(encoder: VectorModel, home: Path) -> Calibration:
    """The curve of an encoder on STSb train, fitted on 2,000 pairs and stored if there is none yet."""
    name, pooling, weights = encoder.name, encoder.pooling, weights_key(encoder)
    if (curve := computed_curve(name, pooling, home, weights)) is None:
        data = load_data(FITTED_ON, home)
        rows = np.linspace(0, len(data) - 1, min(QUICK_PAIRS, len(data))).round().astype(int).tolist()
        curve = replace(calibrate(encoder, data.select(rows)), weights=weights)
        try:
            computed_curves(home).put(curve_key(name, pooling), {f"{name}|{pooling}": curve})
        except InputError as error:
            # The disk is full, or may not be written to.
            log.warning("%s", error)
    return curve


def fit_own(model: str, pooling: str, data: Dataset, cosines: np.ndarray, home: Path, weights: str = "") -> Calibration:
    """Fit and store the curve of a user's pairs with gold scores, which `load_calibration` then returns.

    Raises InputError for fewer than 50 pairs, for labels in place of scores, or if it cannot be written.
    """
    curve = replace(fit_pairs(data, cosines), keys=tuple(sorted(set(pair_keys(data)))), weights=weights)
    own_curves(home).put(curve_key(model, pooling), curve)
    return curve


def calibrate_on(models: ModelCache, model: ModelName, data: str, home: Path, watch: Watch) -> Calibration:
    """Fit and store the curve of a bi-encoder on pairs with gold scores by name. InputError as `fit_own`."""
    encoder, pairs, cosines = _scored(models, model, data, home, watch)
    return fit_own(encoder.name, encoder.pooling, pairs, cosines, home, weights_key(encoder))


def check(models: ModelCache, model: ModelName, data: str, home: Path, watch: Watch) -> Reliability:
    """The reliability of the curve in use on other pairs. InputError if there is no curve, or no other pair."""
    encoder, pairs, cosines = _scored(models, model, data, home, watch)
    if (curve := load_calibration(encoder.name, encoder.pooling, home, weights_key(encoder))) is None:
        raise InputError(f"{model.label} has no calibration; fit one")
    return reliability(curve, pairs, cosines, home)


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
    result = evaluate_one(model, pairs, models, watch)
    result, pairs = result.measured(pairs)
    return encoder, pairs, result.scores_by("cosine")
