"""Correlations with gold scores, and pair classification.

The paper scores STS by Spearman's rank correlation between cosine and gold score (section 4.1).
Pearson's correlation, "badly suited" for this (Reimers et al. 2016), is reported for completeness.

Pair classification measures how well a similarity separates pairs that belong together from other
pairs:

    average precision   Σ (R_n - R_{n-1}) P_n over the thresholds n, from the highest: 0 to 1, needs no threshold
    F1                  the highest F1 of all thresholds

Pairs with the same score are on the same side of every threshold. Scores [.5, .5] with labels [1,
0] give an average precision of 1/2 and an F1 of 2/3, in either order. Average precision equals
scikit-learn's ``average_precision_score``. mteb's and sentence-transformers' F1 may separate equal
scores by the order of the rows.
"""

from typing import NamedTuple

import numpy as np
import scipy  # loads its submodules on first use

# A correlation as low as this does not happen by chance.
CLEARLY_NEGATIVE = -0.3


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Computes Spearman's rank correlation in -1..1; NaN if either side is constant or shorter than two."""
    return pearson(scipy.stats.rankdata(x), scipy.stats.rankdata(y))


def remarks_on_correlation(rho: float) -> list[str]:
    """Comments on a clearly negative correlation with gold scores, which suggests that low scores mean similar."""
    if rho >= CLEARLY_NEGATIVE:
        return []
    question = "does the lowest gold score mean most similar? ?scale=4-1 after the name of a file turns a scale round"
    return [f"ρ is clearly negative: {question}"]


def pearson(x: np.ndarray, y: np.ndarray) -> float:
    """Computes Pearson's correlation in -1..1; NaN if either side is constant or shorter than two."""
    x = np.asarray(x, dtype=np.float64)
    y = np.asarray(y, dtype=np.float64)
    if len(x) < 2 or min(np.ptp(x), np.ptp(y)) == 0:
        return float("nan")
    a = x - x.mean()
    b = y - y.mean()
    # A value that is not finite makes the result NaN.
    with np.errstate(invalid="ignore"):
        return float((a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum()))


def why_undefined(scores: np.ndarray, gold: np.ndarray) -> str:
    """Explains why the correlation of scores (N,) and gold scores (N,) is undefined; "" if it is defined."""
    for name, values in (("gold scores", gold), ("predictions", scores)):
        if len(values) > 1 and np.ptp(values) == 0:
            return f"undefined: all {name} are equal"
    return "undefined: fewer than two pairs" if len(gold) < 2 else ""


def spearman_or_reason(scores: np.ndarray, gold: np.ndarray) -> dict[str, float | str | None]:
    """Computes Spearman's correlation as ``spearman``. If it is None, ``undefined`` is the reason."""
    reason = why_undefined(scores, gold)
    if reason:
        return {"spearman": None, "undefined": reason}
    return {"spearman": spearman(scores, gold)}


class PairClassification(NamedTuple):
    """The figures of one similarity. All but the threshold are in 0 to 1."""

    average_precision: float
    f1: float
    # The threshold with this F1, and the precision and recall at this threshold.
    threshold: float
    precision: float
    recall: float


class PrecisionRecall(NamedTuple):
    """Precision and recall at every threshold that separates different scores, from the highest threshold: (T,) each.

    ``predicted`` counts the pairs above the threshold, and ``hits`` the pairs among them that
    belong together.
    """

    threshold: np.ndarray
    precision: np.ndarray
    recall: np.ndarray
    predicted: np.ndarray
    hits: np.ndarray

    @property
    def f1(self) -> np.ndarray:
        """The harmonic mean of precision and recall, (T,)."""
        # The last threshold has all pairs that belong together above it.
        return 2 * self.hits / (self.predicted + self.hits[-1])

    @property
    def average_precision(self) -> float:
        """Σ (R_n - R_{n-1}) P_n."""
        return float((np.diff(self.recall, prepend=0.0) * self.precision).sum())


def precision_recall(scores: np.ndarray, labels: np.ndarray) -> PrecisionRecall:
    """Computes the curve of scores (N,) and labels (N,), 1 for together and 0 for apart. It has at most N thresholds.

    A threshold lies half-way between the lowest score above it and the highest score below it. If
    rounding would move it to the lower score, it is the upper one. The last threshold is the lowest
    score.

    ValueError if all labels are equal, or a score is not a number.
    """
    scores = np.asarray(scores, dtype=np.float64)
    together = np.asarray(labels).astype(bool)
    if together.all() or not together.any():
        raise ValueError("both labels are needed, 1 and 0")
    if np.isnan(scores).any():
        raise ValueError("a score is not a number")
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    hits = np.cumsum(together[order])
    # The last row of each group of equal scores.
    last = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    lowest = ordered[last]
    below = np.append(lowest[1:], lowest[-1])
    middle = lowest + (below - lowest) / 2
    return PrecisionRecall(
        threshold=np.where(middle > below, middle, lowest),
        precision=hits[last] / (last + 1),
        recall=hits[last] / hits[-1],
        predicted=last + 1,
        hits=hits[last],
    )


def classify_pairs(scores: np.ndarray, labels: np.ndarray) -> PairClassification:
    """Computes the figures of scores (N,) and labels (N,), 1 for together and 0 for apart.

    Among thresholds with the same F1 the highest is used. ValueError if all labels are equal, or a
    score is not a number.
    """
    curve = precision_recall(scores, labels)
    best = int(curve.f1.argmax())
    return PairClassification(
        average_precision=curve.average_precision,
        f1=float(curve.f1[best]),
        threshold=float(curve.threshold[best]),
        precision=float(curve.precision[best]),
        recall=float(curve.recall[best]),
    )
