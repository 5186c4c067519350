"""What the ratings of a project say: do the raters agree, and how good is a model on these pairs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from sbert_app.services.annotations.project import Project
from sbert_app.services.annotations.selection import RANDOM, score_pairs
from training.errors import InputError

if TYPE_CHECKING:
    from sbert_app.services.models.cache import ModelCache
    from training.evaluation.bootstrap import Interval

FEWEST_JUDGED = 10  # pairs from which a correlation is worth a look


@dataclass(frozen=True)
class Agreement:
    """How far the raters agree on the pairs that several have judged."""

    judged: dict[str, int]  # rater -> pairs
    shared: int  # pairs with two ratings or more
    alpha: float  # Krippendorff's, interval; NaN where it is undefined
    alpha_ordinal: float
    between: dict[tuple[str, str], tuple[float, int]]  # two raters -> (Spearman, pairs of both)


@dataclass(frozen=True)
class Quality:
    """Spearman ρ ×100 between a model's score and the mean rating of each judged pair."""

    model: str
    rho: float
    interval: Interval  # ×100
    pairs: int
    random_rho: float  # on the pairs that were drawn at random; NaN for fewer than `FEWEST_JUDGED`
    random_interval: Interval
    random_pairs: int


def agreement(project: Project) -> Agreement:
    """Of all raters of a project."""
    from training.evaluation.agreement import krippendorff_alpha
    from training.evaluation.metrics import spearman

    ratings = project.ratings()
    table = np.full((len(ratings), len(project.pairs)), np.nan)
    for row, scores in zip(table, ratings.values(), strict=True):
        row[list(scores)] = list(scores.values())
    between = {}
    for (a, first), (b, second) in combinations(ratings.items(), 2):
        both = sorted(first.keys() & second.keys())
        rho = spearman(np.array([first[i] for i in both]), np.array([second[i] for i in both]))
        between[a, b] = (rho, len(both))
    return Agreement(
        {rater: len(scores) for rater, scores in ratings.items()},
        int(((~np.isnan(table)).sum(axis=0) >= 2).sum()) if len(table) else 0,
        krippendorff_alpha(table) if len(table) else float("nan"),
        krippendorff_alpha(table, "ordinal") if len(table) else float("nan"),
        between,
    )


def mean_ratings(project: Project) -> dict[int, float]:
    """Pair -> the mean of its ratings, of every pair that has one, in the order of the pairs."""
    by_pair: dict[int, list[int]] = {}
    for scores in project.ratings().values():
        for pair, score in scores.items():
            by_pair.setdefault(pair, []).append(score)
    return {pair: float(np.mean(by_pair[pair])) for pair in sorted(by_pair)}


def model_quality(project: Project, models: ModelCache, model: str) -> Quality:
    """Score the judged pairs with a model and compare.

    Raises:
        InputError: fewer than ten pairs are judged, all have the same score, or the model cannot be used.
    """
    from training.evaluation.bootstrap import bootstrap_interval
    from training.evaluation.metrics import spearman

    means = mean_ratings(project)
    if len(means) < FEWEST_JUDGED:
        raise InputError(f"{len(means)} pairs are judged; from {FEWEST_JUDGED} on a model can be compared with them")
    gold = np.array(list(means.values()))
    if np.ptp(gold) == 0:
        raise InputError("all judged pairs have the same score; there is no order to compare a model with")
    pairs = [project.pairs[i] for i in means]
    scores = score_pairs(models, model, [(pair.first, pair.second) for pair in pairs])
    drawn = np.array([pair.reason == RANDOM for pair in pairs])
    enough = int(drawn.sum()) >= FEWEST_JUDGED
    nothing = bootstrap_interval(gold[:0], gold[:0])
    return Quality(
        model,
        100 * spearman(scores, gold),
        _percent(bootstrap_interval(scores, gold)),
        len(gold),
        100 * spearman(scores[drawn], gold[drawn]) if enough else float("nan"),
        _percent(bootstrap_interval(scores[drawn], gold[drawn])) if enough else nothing,
        int(drawn.sum()),
    )


def _percent(interval: Interval) -> Interval:
    return interval._replace(low=100 * interval.low, high=100 * interval.high)
