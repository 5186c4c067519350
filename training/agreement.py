"""The agreement of raters: Krippendorff's alpha, for any number of raters and with missing ratings.

It is 1 - observed disagreement / disagreement by chance: 1 for perfect agreement, 0 for chance and
negative for systematic disagreement. Krippendorff calls 0.8 reliable, and 0.667 the minimum for
tentative conclusions (Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability").
"""

from collections.abc import Callable

import numpy as np

RELIABLE = 0.8
TENTATIVE = 0.667


def _ordinal(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Squares the number of ratings between two of the ascending values. Ratings with either value count half."""
    # (V,): half of a value's ratings are below its middle.
    middles = np.cumsum(counts) - counts / 2
    return np.square(middles[:, None] - middles[None])


# By level of measurement: values (V,), how often each occurs (V,) -> squared distances (V, V).
DISTANCES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "nominal": lambda values, _: (values[:, None] != values[None]).astype(np.float64),
    "ordinal": _ordinal,
    "interval": lambda values, _: np.square(values[:, None] - values[None]),
}


def krippendorff_alpha(ratings: np.ndarray, level: str = "interval") -> float:
    """Computes Krippendorff's alpha of ratings (raters, items), NaN for a missing rating.

    ``level`` is nominal, ordinal or interval. The result is NaN if no item has two ratings, or if
    all ratings that can be compared are equal, as reliability cannot be judged without variation.
    """
    ratings = np.asarray(ratings, dtype=np.float64)
    has_two = (~np.isnan(ratings)).sum(axis=0) >= 2
    pairable = ratings[:, has_two]  # (raters, items)
    values = np.unique(pairable[~np.isnan(pairable)])
    if len(values) < 2:
        return float("nan")
    # How often each value is given to each item.
    is_value = pairable[None] == values[:, None, None]  # (V, raters, items)
    occurrences = is_value.sum(axis=1).astype(np.float64)  # (V, items)
    ratings_of_item = occurrences.sum(axis=0)
    # How often two values are given to the same item. An item with m ratings has m (m - 1) ordered
    # pairs, which count 1 / (m - 1) each.
    weighted = occurrences / (ratings_of_item - 1)
    # A rating is not paired with itself.
    coincidences = weighted @ occurrences.T - np.diag(weighted.sum(axis=1))  # (V, V)
    counts = coincidences.sum(axis=1)
    distances = DISTANCES[level](values, counts)
    # Both disagreements are multiplied by the number of ratings, which their quotient cancels.
    observed = float((coincidences * distances).sum())
    expected = float((np.outer(counts, counts) * distances).sum()) / (counts.sum() - 1)
    return 1.0 - observed / expected
