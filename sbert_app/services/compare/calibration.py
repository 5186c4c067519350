"""Calibrations (`training.evaluation.calibration`), fitted once on STSb train, or on a user's gold scores, and kept.

They are in the home folder, for each model and pooling, and belong to the weights: where another model has taken the
name, they do not count. Those of the default model ship in ``assets/calibration.json``, made by
``scripts/calibrate.py``.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sbert_app.services.corpus.embedded import weights_key
from sbert_app.services.store.cache import digest
from sbert_app.services.store.documents import DocumentStore, read_document
from training.assets import asset
from training.data.dataset import Dataset, folded
from training.errors import InputError
from training.evaluation.calibration import Calibration, fit_pairs

if TYPE_CHECKING:
    from training.models.model import VectorModel

log = logging.getLogger("sbert_lab.services")

SHIPPED = asset("calibration.json")
FITTED_ON = "stsb:train"
QUICK_PAIRS = 2_000  # of a model that has no shipped curve: a person is waiting


def error_of_model(score: float, gold: float | None, expected: tuple[float, float] | None) -> str:
    """How a model's score, on the gold scale, differs from the annotators' by a point or more, or where there is none
    from where the scale's definitions place the pair; "" if it does not.
    """
    if gold is not None:
        is_wrong = abs(score - gold) >= 1
        return f"The model is wrong here: {score:.1f} of 5, and the annotators say {gold:.1f}." if is_wrong else ""
    if expected is None or expected[0] <= round(score, 1) <= expected[1]:
        return ""
    bound = f"at most {expected[1]:g}" if score > expected[1] else f"at least {expected[0]:g}"
    return f"The model is wrong here: by the definitions of the scale this pair deserves {bound}."


def fit_on_stsb(encoder: VectorModel, home: Path, pairs: int | None = None) -> Calibration:
    """Fit on STSb train, 5,749 pairs, or on ``pairs`` of it at equal distances.

    Raises InputError if the data cannot be loaded.
    """
    from training.data.load import load_data
    from training.evaluation.calibration import calibrate

    data = load_data(FITTED_ON, home)
    if pairs is not None and pairs < len(data):
        data = data.select(np.linspace(0, len(data) - 1, pairs).round().astype(int).tolist())
    return calibrate(encoder, data)


def load_calibration(model: str, pooling: str, home: Path, weights: str = "") -> Calibration | None:
    """The user's own curve, else that in the home folder or the shipped file, else None.

    ``weights``: those of the model (`weights_key`), to which a curve has to belong if both are known.
    Raises InputError if the user's own is damaged; `computed_curve` has the other.
    """
    store, key = own_curves(home), curve_key(model, pooling)
    own = store.get(key) if store.path(key).exists() else None
    return own if own and _is_of(own, weights) else computed_curve(model, pooling, home, weights)


def is_set_aside(model: str, pooling: str, home: Path, weights: str) -> bool:
    """Whether the user's own curve does not count, as it is of other weights. Raises InputError if it is damaged."""
    store, key = own_curves(home), curve_key(model, pooling)
    return store.path(key).exists() and not _is_of(store.get(key), weights)


def computed_curve(model: str, pooling: str, home: Path, weights: str = "") -> Calibration | None:
    """The curve that was fitted on STSb train, in the home folder or the shipped file; else None."""
    found = (_curves(file).get(f"{model}|{pooling}") for file in (_file(model, pooling, home), SHIPPED))
    return next((curve for curve in found if curve and _is_of(curve, weights)), None)


def _is_of(curve: Calibration, weights: str) -> bool:
    """Whether a curve may be that of these weights. Those of earlier versions do not say whose they are."""
    return not weights or curve.weights in ("", weights)


def _curves(file: Path) -> dict[str, Calibration]:
    """The curves in a file; none in one that is damaged, which is written over."""
    try:
        return read_document(file, dict[str, Calibration])
    except FileNotFoundError:
        return {}
    except InputError as error:
        log.warning("%s", error)
        return {}


def stored_curve(encoder: VectorModel, home: Path) -> Calibration:
    """The curve of an encoder on STSb train, fitted on 2,000 pairs and stored if there is none yet."""
    name, pooling, weights = encoder.name, encoder.pooling, weights_key(encoder)
    curve = computed_curve(name, pooling, home, weights)
    if curve is None:
        curve = replace(fit_on_stsb(encoder, home, QUICK_PAIRS), weights=weights)
        try:
            save_calibration(name, pooling, curve, _file(name, pooling, home))
        except InputError as error:  # the disk is full, or may not be written to
            log.warning("%s", error)
    return curve


def save_calibration(model: str, pooling: str, curve: Calibration, file: Path) -> None:
    """Add a curve to a file, which is replaced atomically. InputError if it cannot be written."""
    curves = {**_curves(file), f"{model}|{pooling}": curve}
    DocumentStore(file.parent, dict[str, Calibration]).put(file.stem, curves)


def fit_own(model: str, pooling: str, data: Dataset, cosines: np.ndarray, home: Path, weights: str = "") -> Calibration:
    """Fit on a user's pairs with gold scores, and keep the curve: from then on `load_calibration` returns it.

    Raises InputError for fewer than 50 pairs, for labels in place of scores, or if it cannot be written.
    """
    curve = replace(fit_pairs(data, cosines), seen=tuple(sorted(set(pair_keys(data)))), weights=weights)
    own_curves(home).put(curve_key(model, pooling), curve)
    return curve


def own_curves(home: Path) -> DocumentStore[Calibration]:
    """The curves that users have fitted, by `curve_key`."""
    return DocumentStore(home / "calibration" / "own", Calibration, what="calibration")


def pair_keys(data: Dataset) -> list[str]:
    """A short text for each pair, the same for equal ones: in either order, case and white space aside."""
    return [digest(sorted(map(folded, pair)))[:12] for pair in zip(*data.columns, strict=True)]


def curve_key(model: str, pooling: str) -> str:
    """The name of the file of a model's curve."""
    return hashlib.sha256(f"{model}|{pooling}".encode()).hexdigest()[:16]


def _file(model: str, pooling: str, home: Path) -> Path:
    return home / "calibration" / f"{curve_key(model, pooling)}.json"
