"""Calibration: from a cosine to a gold score of STS (0–5), and what that score means.

The same cosine means different things under different models and poolings. Isotonic regression on STSb train gives
the monotone curve from cosine to gold score with the least squared error, and the scale's definitions (Cer et al.
2017, Table 1) describe the score in words. Curves are fitted once for each model and pooling and stored in the home
folder; those of the default model ship in ``assets/calibration.json``, made by ``scripts/calibrate.py``.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sbert_app.services.store.documents import read_document
from training.assets import asset
from training.atomic import write_text
from training.data.dataset import TOP_SCORE
from training.errors import InputError

if TYPE_CHECKING:
    from training.models.encoder import Encoder

log = logging.getLogger("sbert_lab.services")

SHIPPED = asset("calibration.json")
KNOTS = 40
BAND = (10, 90)  # percentiles of the gold scores of pairs with about the same cosine
FITTED_ON = "stsb:train"
QUICK_PAIRS = 2_000  # of a model that has no shipped curve: a person is waiting

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
    """A monotone piecewise linear curve from cosine to gold score, as knots; a cosine of 1 is a score of 5.

    ``low`` and ``high`` are the 10th and the 90th percentile of the gold scores; curves of earlier versions have none.
    """

    cosines: tuple[float, ...]
    gold: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    def gold_score(self, cosine: float) -> float:
        """The expected gold score (0–5) of a pair with this cosine."""
        return self._at(cosine, self.gold)

    def band(self, cosine: float) -> tuple[float, float] | None:
        """Between which gold scores 80% of the pairs with this cosine lie; None where that is not known."""
        return (self._at(cosine, self.low), self._at(cosine, self.high)) if self.low else None

    def _at(self, cosine: float, values: tuple[float, ...]) -> float:
        is_open = self.cosines[-1] < 1  # no pair that it was fitted on says what equal sentences are
        knots, heights = ((*self.cosines, 1.0), (*values, TOP_SCORE)) if is_open else (self.cosines, values)
        return float(np.interp(cosine, knots, heights))


def meaning(gold: float) -> str:
    """The definition of a gold score."""
    return next(text for minimum, text in MEANINGS if gold >= minimum)


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


def fit_isotonic(cosines: np.ndarray, gold: np.ndarray) -> Calibration:
    """Isotonic regression of gold score on cosine, reduced to 40 knots of equally many pairs, with an 80% band.

    The band of a knot is of its own pairs and those of its neighbours.
    """
    from scipy.optimize import isotonic_regression

    order = np.argsort(cosines, kind="stable")
    x, given = np.asarray(cosines, dtype=np.float64)[order], np.asarray(gold, dtype=np.float64)[order]
    y = isotonic_regression(given).x
    groups = np.array_split(np.arange(len(x)), min(KNOTS, len(x)))
    near = [np.concatenate(groups[max(0, i - 1) : i + 2]) for i in range(len(groups))]
    low, high = np.maximum.accumulate([np.percentile(given[rows], BAND) for rows in near]).T
    columns = ([x[group].mean() for group in groups], [y[group].mean() for group in groups], low, high)
    digits = (5, 4, 4, 4)
    return Calibration(*(tuple(round(float(v), n) for v in column) for column, n in zip(columns, digits, strict=True)))


def fit_on_stsb(
    encoder: Encoder, home: Path, should_stop: Callable[[], bool] | None = None, pairs: int | None = None
) -> Calibration:
    """Fit on STSb train (11,498 sentences), or on ``pairs`` of it at equal distances.

    Raises InputError if the data cannot be loaded.
    """
    from training.data.load import load_data
    from training.evaluation.metrics import cosine

    data = load_data(FITTED_ON, home)
    if pairs is not None and pairs < len(data):
        data = data.select(np.linspace(0, len(data) - 1, pairs).round().astype(int).tolist())
    vectors = encoder.encode([*data.columns[0], *data.columns[1]], should_stop=should_stop)
    return fit_isotonic(cosine(*np.split(vectors, 2)), np.asarray(data.scores))


def load_calibration(model: str, pooling: str, home: Path) -> Calibration | None:
    """The curve from the home folder or the shipped file, else None."""
    for file in (_file(model, pooling, home), SHIPPED):
        if (curve := _curves(file).get(f"{model}|{pooling}")) is not None:
            return curve
    return None


def _curves(file: Path) -> dict[str, Calibration]:
    """The curves in a file; none in one that is damaged, which is written over."""
    try:
        return read_document(file, dict[str, Calibration])
    except FileNotFoundError:
        return {}
    except InputError as error:
        log.warning("%s", error)
        return {}


def calibrate(encoder: Encoder, home: Path) -> Calibration:
    """The curve of an encoder, fitted on 2,000 pairs and stored if there is none yet."""
    curve = load_calibration(encoder.name, encoder.pooling, home)
    if curve is None:
        curve = fit_on_stsb(encoder, home, pairs=QUICK_PAIRS)
        file = _file(encoder.name, encoder.pooling, home)
        try:
            save_calibration(encoder.name, encoder.pooling, curve, file)
        except OSError as error:
            log.warning("%s cannot be written: %s", file, error.strerror or error)
    return curve


def save_calibration(model: str, pooling: str, curve: Calibration, file: Path) -> None:
    """Add a curve to a file, which is replaced atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    curves = {**_curves(file), f"{model}|{pooling}": curve}
    values = {name: {"fitted_on": FITTED_ON, **asdict(each)} for name, each in curves.items()}
    write_text(file, json.dumps(values, indent=1) + "\n")


def _file(model: str, pooling: str, home: Path) -> Path:
    name = hashlib.sha256(f"{model}|{pooling}".encode()).hexdigest()[:16]
    return home / "calibration" / f"{name}.json"
