"""Stores calibration curves (`training.evaluation.calibration`) in the home folder, one per model and pooling.

A curve is fitted on STSb train or on a user's gold scores. It belongs to the weights of a model,
and is not used for other weights under the same name. ``scripts/measure_examples.py`` writes the
curves that ship with the app, ``assets/calibration.json``.
"""

import hashlib
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np

from sbert_app.services.background.watch import UNWATCHED, Watch
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

# The shipped curves by "model|pooling".
SHIPPED = asset("calibration.json")
# The only curve whose range of scores was also measured on text other than STSb, the SemEval sets
# and SICK-R. On that text the range contains 57 to 73 of 100 pairs instead of 80.
MEASURED_ELSEWHERE = (DEFAULT_MODEL, "mean")
# The number of pairs for the curve of a model that ships without one, as a person waits for it.
QUICK_PAIRS = 2_000


def own_curves(home: Path) -> DocumentStore[Calibration]:
    """Returns the store of the curves that users have fitted, by `curve_key`."""
    return DocumentStore(home / "calibration" / "own", Calibration, what="calibration")


def computed_curves(home: Path) -> DocumentStore[dict[str, Calibration]]:
    """Returns the store of the curves fitted on STSb train, by `curve_key`, in the form of `SHIPPED`."""
    return DocumentStore(home / "calibration", dict[str, Calibration], what="calibration")


def curve_key(model: str, pooling: str) -> str:
    """Returns the id of the curve of a model and a pooling in its store; it is the name of its file."""
    return hashlib.sha256(f"{model}|{pooling}".encode()).hexdigest()[:16]


def load_calibration(model: str, pooling: str, home: Path, weights: str = "") -> Calibration | None:
    """Returns the user's own curve of a model, or else its `computed_curve`, or None.

    Curves of other ``weights`` (`weights_key`) are not used; "" stands for unknown weights, for
    which every curve is used. Raises InputError if the user's own curve is damaged.
    """
    own = _own_curve(model, pooling, home)
    if own and _is_of(own, weights):
        return own
    return computed_curve(model, pooling, home, weights)


def is_set_aside(model: str, pooling: str, home: Path, weights: str) -> bool:
    """Whether the user's own curve is not used, as it is not of these ``weights``. InputError if it is damaged."""
    own = _own_curve(model, pooling, home)
    return own is not None and not _is_of(own, weights)


def _own_curve(model: str, pooling: str, home: Path) -> Calibration | None:
    store = own_curves(home)
    key = curve_key(model, pooling)
    if not store.path(key).exists():
        return None
    return store.get(key)


def computed_curve(model: str, pooling: str, home: Path, weights: str = "") -> Calibration | None:
    """Returns the curve fitted on STSb train, from the home folder or the shipped file, or None."""
    # A file of the home folder holds one curve, the shipped file all curves that ship.
    for file in (computed_curves(home).path(curve_key(model, pooling)), SHIPPED):
        try:
            curve = read_document(file, dict[str, Calibration]).get(f"{model}|{pooling}")
        except FileNotFoundError:
            continue
        except InputError as error:
            # A damaged file in the home folder will be overwritten by `stored_curve`.
            log.warning("%s", error)
            continue
        if curve is not None and _is_of(curve, weights):
            return curve
    return None


def _is_of(curve: Calibration, weights: str) -> bool:
    """Whether a curve may belong to these weights, "" if unknown. Shipped curves do not state their weights."""
    return not weights or curve.weights in ("", weights)


def stored_curve(encoder: VectorModel, home: Path, watch: Watch = UNWATCHED) -> Calibration:
    """Returns the curve of an encoder on STSb train. If it does not exist yet, fits it on 2,000 pairs and stores it."""
    name = encoder.name
    pooling = encoder.pooling
    weights = weights_key(encoder)
    curve = computed_curve(name, pooling, home, weights)
    if curve is not None:
        return curve
    data = load_data(FITTED_ON, home)
    count = min(QUICK_PAIRS, len(data))
    # Rows at equal distances, because the data set is sorted by genre.
    rows = np.linspace(0, len(data) - 1, count).round().astype(int)
    pairs = data.select(rows.tolist())
    curve = calibrate(encoder, pairs, home, watch.on_progress, watch.should_stop)
    curve = replace(curve, weights=weights)
    try:
        computed_curves(home).put(curve_key(name, pooling), {f"{name}|{pooling}": curve})
    except InputError as error:
        # The disk is full or read-only. The curve is useful all the same.
        log.warning("%s", error)
    return curve


def fit_own(
    model: str,
    pooling: str,
    data: Dataset,
    cosines: np.ndarray,
    home: Path,
    weights: str = "",
) -> Calibration:
    """Fits and stores the curve of a user's pairs with gold scores, which `load_calibration` then returns.

    ``cosines`` are the model's cosines of the pairs ``data``, and ``weights`` is its `weights_key`.
    Raises InputError for fewer than 50 pairs, for labels in place of scores, for fewer than three
    different scores, or if the curve cannot be written.
    """
    # The curve records its pairs, so that `check` can leave them out.
    keys = tuple(sorted(set(pair_keys(data))))
    curve = replace(fit_pairs(data, cosines), keys=keys, weights=weights)
    own_curves(home).put(curve_key(model, pooling), curve)
    return curve


def calibrate_on(
    models: ModelCache,
    model: ModelName,
    data: str,
    home: Path,
    watch: Watch,
) -> Calibration:
    """Fits and stores the curve of a bi-encoder on the pairs named ``data``.

    InputError if the model is not a bi-encoder, there are fewer than 50 pairs or, as with labels,
    fewer than three different scores, or the curve cannot be written.
    """
    encoder, pairs, cosines = _scored(models, model, data, home, watch)
    return fit_own(encoder.name, encoder.pooling, pairs, cosines, home, weights_key(encoder))


def check(
    models: ModelCache,
    model: ModelName,
    data: str,
    home: Path,
    watch: Watch,
) -> Reliability:
    """Returns the reliability of a model's curve on the pairs that it was not fitted on.

    Raises InputError if the model has no curve, or too few pairs are left.
    """
    encoder, pairs, cosines = _scored(models, model, data, home, watch)
    curve = load_calibration(encoder.name, encoder.pooling, home, weights_key(encoder))
    if curve is None:
        raise InputError(f"{model.label} has no calibration; fit one")
    # `reliability` leaves out the pairs that the curve was fitted on. It may load them from
    # ``home``.
    return reliability(curve, pairs, cosines, home)


def forget(models: ModelCache, model: ModelName, home: Path) -> None:
    """Deletes the user's own curve of a model, so that the one on STSb train is used again."""
    encoder = models.get(model, VectorModel)
    own_curves(home).delete(curve_key(encoder.name, encoder.pooling))


def _scored(
    models: ModelCache,
    model: ModelName,
    data: str,
    home: Path,
    watch: Watch,
) -> tuple[VectorModel, Dataset, np.ndarray]:
    """Returns the encoder, the pairs to which it gives a score, and their cosines (N,) float32."""
    # Any model, so that the message below can say what a calibration needs.
    encoder = models.get(model, Model)
    if not isinstance(encoder, VectorModel):
        raise InputError(
            f"{model.label} is not a bi-encoder; “x of 5” is calibrated from a cosine of sentence vectors"
        )
    pairs = load_scored_pairs(data, home)
    result = evaluate_one(model, pairs, models, watch)
    result, pairs = result.without_unscored(pairs)
    return encoder, pairs, result.scores_by("cosine")
