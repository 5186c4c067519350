"""The agreement of raters.

It is Krippendorff's alpha, for any number of raters and with missing ratings: 1 - observed
disagreement / disagreement by chance. It is 1 for perfect agreement, 0 for chance and negative for systematic
disagreement. Krippendorff calls 0.8 reliable and 0.667 the least from which tentative conclusions follow
(Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability").
"""

from collections.abc import Callable

import numpy as np

RELIABLE = 0.8
TENTATIVE = 0.667


def _ordinal(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Squared number of ratings between two values, each end counting half; ``values`` ascend."""
    middle = np.cumsum(counts) - counts / 2
    return np.square(middle[:, None] - middle[None])


# By level of measurement: values (V,), how often each occurs (V,) -> squared distances (V, V).
DISTANCES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "nominal": lambda values, _: (values[:, None] != values[None]).astype(np.float64),
    "ordinal": _ordinal,
    "interval": lambda values, _: np.square(values[:, None] - values[None]),
}


def krippendorff_alpha(ratings: np.ndarray, level: str = "interval") -> float:
    """Krippendorff's alpha of ratings (raters, items), NaN where one is missing; ``level``: nominal, ordinal, interval.

    NaN if no item has two ratings, or if all ratings that can be compared are equal: without variation nothing can be
    said about reliability.
    """
    ratings = np.asarray(ratings, dtype=np.float64)
    pairable = ratings[:, (~np.isnan(ratings)).sum(axis=0) >= 2]
    values = np.unique(pairable[~np.isnan(pairable)])
    if len(values) < 2:
        return float("nan")
    occurs = (pairable[None] == values[:, None, None]).sum(axis=1).astype(np.float64)  # (V, items)
    raters = occurs.sum(axis=0)
    # Coincidences: how often two values are given to one item; an item with m ratings has m (m - 1) ordered pairs.
    coincidences = (occurs / (raters - 1)) @ occurs.T - np.diag((occurs / (raters - 1)).sum(axis=1))
    counts = coincidences.sum(axis=1)
    distances = DISTANCES[level](values, counts)
    expected = float((np.outer(counts, counts) * distances).sum()) / (counts.sum() - 1)
    return 1.0 - float((coincidences * distances).sum()) / expected
