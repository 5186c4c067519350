"""The distribution of sentence vectors on the unit sphere, and whether they have collapsed.

A run can look perfect on its own data while all other pairs of sentences drift to a cosine of 0.99:
regression only constrains the pairs that it sees. Each evaluation therefore also measures sentences
drawn at random from the training data and from ``assets/plain-sentences.txt``, sentences of other
domains that no run is trained on:

    random cosine     mean and standard deviation over all pairs of different sentences; near 0 is healthy
    uniformity        log E exp(-2 |x - y|²) over the same pairs; lower is more uniform (Wang & Isola 2020)
    alignment         E |x - y|² over pairs that belong together; lower is better (Wang & Isola 2020)
    effective rank    exp of the entropy of the singular values: the number of dimensions in use,
                      1 to D (Roy & Vetterli 2007)

Vectors are float32 (N, D) and are scaled to length 1 here. `collapsed` gives the reason if a mean
is above 0.9.
"""

from collections.abc import Mapping

import numpy as np

from training.pooling import normalize_rows

COLLAPSED_FROM = 0.9
# The sentences of the training data that an evaluation draws: 32,640 pairs.
RANDOM_SENTENCES = 256


def random_cosines(vectors: np.ndarray) -> tuple[float, float]:
    """Computes mean and standard deviation of the cosine over all N(N-1)/2 pairs of rows. NaN for fewer than two."""
    cosines = pair_cosines(vectors)
    if not len(cosines):
        return float("nan"), float("nan")
    return float(cosines.mean()), float(cosines.std())


def uniformity(vectors: np.ndarray) -> float:
    """Computes log of the mean of exp(-2 |x - y|²) over all pairs of rows: 0 if collapsed, about -4 if uniform."""
    cosines = pair_cosines(vectors)
    if not len(cosines):
        return float("nan")
    # On the unit sphere |x - y|² is 2 - 2 cos.
    return float(np.log(np.exp(-2 * (2 - 2 * cosines)).mean()))


def alignment(first: np.ndarray, second: np.ndarray) -> float:
    """Computes the mean of |x - y|² over the rows of two (N, D): 0 if pairs are equal, 2 if they are orthogonal."""
    distances = np.square(normalize_rows(first) - normalize_rows(second)).sum(axis=1)
    return float(distances.mean()) if len(first) else float("nan")


def effective_rank(vectors: np.ndarray) -> float:
    """Computes exp(-Σ p log p) of the singular values' shares p: between 1 (one direction) and min(N, D)."""
    values = np.linalg.svd(normalize_rows(vectors), compute_uv=False)
    # log 0 is not finite, and 0 log 0 counts as 0.
    shares = values[values > 0] / values.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def diagnose(training: np.ndarray, plain: np.ndarray) -> dict[str, float]:
    """Computes the figures of an evaluation from vectors of training sentences and plain sentences, (N, D) each."""
    random_mean, random_std = random_cosines(training)
    plain_mean, plain_std = random_cosines(plain)
    return {
        "random_cosine": random_mean,
        "random_cosine_std": random_std,
        "plain_cosine": plain_mean,
        "plain_cosine_std": plain_std,
        "uniformity": uniformity(training),
        "effective_rank": effective_rank(training),
    }


def collapsed(figures: Mapping[str, float]) -> str | None:
    """Returns the reason in words if the mean cosine of random pairs is above 0.9, else None."""
    sources = {
        "random_cosine": "of the training data",
        "plain_cosine": "of plain sentences from other domains",
    }
    reasons = []
    for key, source in sources.items():
        mean = figures.get(key, 0.0)
        if mean > COLLAPSED_FROM:
            reasons.append(f"random pairs {source} have a mean cosine of {mean:.2f}")
    if not reasons:
        return None
    return f"collapsed: {' and '.join(reasons)}, so that the cosine hardly tells related sentences from unrelated ones"


def pair_cosines(vectors: np.ndarray) -> np.ndarray:
    """Computes the cosines of all N(N-1)/2 pairs of rows of (N, D), float64."""
    directions = normalize_rows(vectors).astype(np.float64)
    return (directions @ directions.T)[np.triu_indices(len(directions), k=1)]
