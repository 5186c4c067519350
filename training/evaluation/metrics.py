"""Correlations with gold scores, and pair classification.

The paper scores STS by Spearman's rank correlation between cosine and gold score (section 4.1). Pearson's, "badly
suited" for this (Reimers et al. 2016), is reported beside it for completeness.

Pair classification is how well a similarity separates pairs that belong together from pairs that do not:

    average precision   Σ (R_n - R_{n-1}) P_n over the thresholds n, from the highest: 0 to 1, needs no threshold
    F1                  of the threshold at which it is highest

Pairs with the same score are on the same side of every threshold; scores [.5, .5] with labels [1, 0] give an average
precision of 1/2 and an F1 of 2/3, in whichever order. Average precision equals scikit-learn's
``average_precision_score``; mteb's and sentence-transformers' F1 may separate equal scores by the order of the rows.
"""

from typing import NamedTuple

import numpy as np

# No model is so bad by chance.
CLEARLY_NEGATIVE = -0.3


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's rank correlation in -1..1; NaN when either side is constant or shorter than two."""
    from scipy.stats import rankdata

    return pearson(rankdata(x), rankdata(y))


def remarks_on_correlation(rho: float) -> list[str]:
    """A remark on a correlation with gold scores that is clearly negative, as it is if low scores mean similar."""
    question = "does the lowest gold score mean most similar? ?scale=4-1 after the name of a file turns a scale round"
    return [f"ρ is clearly negative: {question}"] if rho < CLEARLY_NEGATIVE else []


def pearson(x: np.ndarray, y: np.ndarray) -> float:
    """Pearson's correlation in -1..1; NaN when either side is constant or shorter than two."""
    x = np.asarray(x, dtype=np.float64)
    y = np.asarray(y, dtype=np.float64)
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    a = x - x.mean()
    b = y - y.mean()
    with np.errstate(invalid="ignore"):
        return float((a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum()))


def why_undefined(scores: np.ndarray, gold: np.ndarray) -> str:
    """Why scores (N,) and gold scores (N,) have no correlation, in words; "" where they have one."""
    for name, values in (("gold scores", gold), ("predictions", scores)):
        if len(values) > 1 and np.ptp(values) == 0:
            return f"undefined: all {name} are equal"
    return "undefined: fewer than two pairs" if len(gold) < 2 else ""


def spearman_or_reason(scores: np.ndarray, gold: np.ndarray) -> dict[str, float | str | None]:
    """Spearman's correlation of scores (N,) and gold scores (N,) as ``spearman``; or None, and why as ``undefined``."""
    why = why_undefined(scores, gold)
    return {"spearman": None, "undefined": why} if why else {"spearman": spearman(scores, gold)}


class PairClassification(NamedTuple):
    """The figures of one similarity; all but the threshold in 0 to 1."""

    average_precision: float
    f1: float
    # The similarity from which on pairs belong together at that F1; precision and recall are those at it.
    threshold: float
    precision: float
    recall: float


class PrecisionRecall(NamedTuple):
    """Precision and recall at every threshold that separates different scores, from the highest threshold: (T,) each.

    ``predicted`` and ``hits`` are counts: the pairs from the threshold on, and those of them that belong together.
    """

    threshold: np.ndarray
    precision: np.ndarray
    recall: np.ndarray
    predicted: np.ndarray
    hits: np.ndarray

    @property
    def f1(self) -> np.ndarray:
        """The harmonic mean of precision and recall, (T,)."""
        return 2 * self.hits / (self.predicted + self.hits[-1])

    @property
    def average_precision(self) -> float:
        """Σ (R_n - R_{n-1}) P_n."""
        return float((np.diff(self.recall, prepend=0.0) * self.precision).sum())


def precision_recall(scores: np.ndarray, labels: np.ndarray) -> PrecisionRecall:
    """The curve of scores (N,) against labels (N,), 1 for together and 0 for apart. At most N thresholds.

    A threshold lies half-way between the lowest score above it and the highest below it (on the former, where rounding
    would put it on the latter); where all are above, it is the lowest score.

    ValueError if there is no pair of one of the two labels, or a score is not a number.
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
    last = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    lowest = ordered[last]
    below = np.append(lowest[1:], lowest[-1])
    middle = lowest + (below - lowest) / 2
    threshold = np.where(middle > below, middle, lowest)
    return PrecisionRecall(threshold, hits[last] / (last + 1), hits[last] / hits[-1], last + 1, hits[last])


def classify_pairs(scores: np.ndarray, labels: np.ndarray) -> PairClassification:
    """The figures of scores (N,) against labels (N,), 1 for together and 0 for apart.

    The highest of several thresholds with the same F1 counts. ValueError as in `precision_recall`.
    """
    curve = precision_recall(scores, labels)
    best = int(curve.f1.argmax())
    figures = (curve.f1, curve.threshold, curve.precision, curve.recall)
    return PairClassification(curve.average_precision, *(float(figure[best]) for figure in figures))
