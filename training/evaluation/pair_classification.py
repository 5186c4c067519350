"""Pair classification: how well a similarity separates pairs that belong together from pairs that do not.

    average precision   Σ (R_n - R_{n-1}) P_n over the thresholds n, from the highest: 0 to 1, needs no threshold
    F1                  of the threshold at which it is highest

A threshold cannot separate equal scores, so pairs with the same score are on the same side of every threshold; scores
[.5, .5] with labels [1, 0] give an average precision of 1/2 and an F1 of 2/3, in whichever order. Average precision
equals scikit-learn's ``average_precision_score``; mteb's and sentence-transformers' F1 sort equal scores in the order
of the rows, and may separate them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class PairClassification(NamedTuple):
    """The figures of one similarity; all but the threshold in 0 to 1."""

    average_precision: float
    f1: float  # the highest
    threshold: float  # of that F1, in units of the similarity: pairs from here on belong together
    precision: float  # at the threshold
    recall: float


def classify_pairs(scores: np.ndarray, labels: np.ndarray) -> PairClassification:
    """The figures of scores (N,) against labels (N,), 1 for together and 0 for apart.

    The threshold lies half-way between the lowest score above it and the highest below it; where all are above, it is
    the lowest score. Of several thresholds with the same F1 it is the highest.

    Raises:
        ValueError: there is no pair of one of the two labels, or a score is not a number.
    """
    scores, together = np.asarray(scores, dtype=np.float64), np.asarray(labels).astype(bool)
    if together.all() or not together.any():
        raise ValueError("both labels are needed, 1 and 0")
    if np.isnan(scores).any():
        raise ValueError("a score is not a number")
    order = np.argsort(-scores, kind="stable")
    ordered, hits = scores[order], np.cumsum(together[order])
    last = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))  # of each group of equal scores
    true_positives, predicted = hits[last], last + 1
    precision, recall = true_positives / predicted, true_positives / hits[-1]
    average_precision = float((np.diff(recall, prepend=0.0) * precision).sum())
    f1 = 2 * true_positives / (predicted + hits[-1])
    best = int(f1.argmax())
    lowest = ordered[last[best]]
    below = ordered[last[best] + 1] if last[best] + 1 < len(ordered) else lowest
    return PairClassification(
        average_precision, float(f1[best]), float((lowest + below) / 2), float(precision[best]), float(recall[best])
    )
