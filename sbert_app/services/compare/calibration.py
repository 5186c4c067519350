"""From a cosine to a place on the gold scale of STS: what a number means.

A cosine of 0.6 means something else for each model and pooling. Isotonic regression on STSb train finds the
monotone curve from cosine to gold score (0–5) with the least squared error, and the scale's own definitions
(Cer et al. 2017, table 1) put the place in words. Fitted once per model and pooling, kept in the home folder; the
curves of the default model ship in ``assets/calibration.json``, made by ``scripts/calibrate.py``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from training.assets import asset
from training.atomic import write_text

if TYPE_CHECKING:
    from training.models.encoder import Encoder

SHIPPED = asset("calibration.json")
KNOTS = 40
FITTED_ON = "stsb:train"

# The scale of the STS benchmark, shortened: gold score -> meaning
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
    """A monotone curve from cosine to gold score, as knots between which it runs straight."""

    cosines: tuple[float, ...]
    gold: tuple[float, ...]

    def gold_score(self, cosine: float) -> float:
        """The gold score (0–5) that STSb's annotators gave to pairs of this cosine."""
        return float(np.interp(cosine, self.cosines, self.gold))


def meaning(gold: float) -> str:
    """A place on the gold scale in words."""
    return next(words for floor, words in MEANINGS if gold >= floor)


def fit(cosines: np.ndarray, gold: np.ndarray) -> Calibration:
    """Isotonic regression of gold score on cosine, thinned to 40 knots at equal shares of the data."""
    from scipy.optimize import isotonic_regression

    order = np.argsort(cosines, kind="stable")
    x, y = np.asarray(cosines, dtype=np.float64)[order], isotonic_regression(np.asarray(gold)[order]).x
    groups = np.array_split(np.arange(len(x)), min(KNOTS, len(x)))
    return Calibration(
        tuple(float(round(x[group].mean(), 5)) for group in groups),
        tuple(float(round(y[group].mean(), 4)) for group in groups),
    )


def measure(encoder: Encoder, home: Path, should_stop: Callable[[], bool] | None = None) -> Calibration:
    """Fit on STSb train: 11,498 sentences to encode."""
    from training.data.load import load_data
    from training.evaluation.metrics import cosine

    data = load_data(FITTED_ON, home)
    vectors = encoder.encode([*data.columns[0], *data.columns[1]], should_stop=should_stop)
    return fit(cosine(*np.split(vectors, 2)), np.asarray(data.scores))


def load_calibration(model: str, pooling: str, home: Path) -> Calibration | None:
    """The curve if it ships or was measured before, else None."""
    for file in (_file(model, pooling, home), SHIPPED):
        if file.exists():
            found = json.loads(file.read_text(encoding="utf-8")).get(f"{model}|{pooling}")
            if found:
                return Calibration(tuple(found["cosines"]), tuple(found["gold"]))
    return None


def calibrate(encoder: Encoder, home: Path) -> Calibration:
    """The curve, measured now if it is not known, and kept."""
    found = load_calibration(encoder.name, encoder.pooling, home)
    if found is None:
        found = measure(encoder, home)
        keep(encoder.name, encoder.pooling, found, _file(encoder.name, encoder.pooling, home))
    return found


def keep(model: str, pooling: str, curve: Calibration, file: Path) -> None:
    """Add a curve to a file, at once."""
    file.parent.mkdir(parents=True, exist_ok=True)
    curves = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    curves[f"{model}|{pooling}"] = {"fitted_on": FITTED_ON, "cosines": curve.cosines, "gold": curve.gold}
    write_text(file, json.dumps(curves, indent=1) + "\n")


def _file(model: str, pooling: str, home: Path) -> Path:
    digest = hashlib.sha256(f"{model}|{pooling}".encode()).hexdigest()[:16]
    return home / "calibration" / f"{digest}.json"
