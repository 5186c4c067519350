"""Where a model errs: the pairs it rates far too high or far too low, and the kinds of pairs on which it is weak.

Spearman's ρ sees ranks, so an error is a distance of ranks: by the model's score against by gold, 0 the least similar
pair of the data set and 1 the most. Slices are by length, by negation and by words in common; n and ρ stand for each,
because ρ within a slice is lower wherever its gold scores vary less.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sbert_app.services.results.eval_result import Estimate, EvalResult, Metric
from training.data.dataset import Dataset
from training.evaluation.bootstrap import bootstrap_replicates

SHOWN = 15  # over- and underestimates each
FEWEST = 10  # pairs of a slice with a ρ
NEGATIONS = frozenset(
    ["not", "no", "never", "nobody", "nothing", "none", "neither", "nor", "nowhere", "without", "cannot"]
)
_WORD = re.compile(r"\w+(?:'\w+)?")


class RankedError(NamedTuple):
    """A pair whose ranks lie far apart."""

    row: int  # in the source, from 1
    first: str
    second: str
    gold: float  # 0–5
    score: float
    gold_rank: float  # 0–1
    score_rank: float


@dataclass(frozen=True)
class Slice:
    """Pairs that have something in common, and how well the model does on them."""

    by: str
    name: str
    n: int
    rho: Estimate | None  # None for too few


@dataclass(frozen=True)
class ErrorAnalysis:
    """Both ends, worst first, and the slices."""

    over: list[RankedError]
    under: list[RankedError]
    slices: list[Slice]


def analyze_errors(cell: EvalResult, data: Dataset, similarity: str = "cosine") -> ErrorAnalysis:
    """What a model gets wrong on a data set that it was scored on."""
    scores = cell.by(similarity)
    score_rank, gold_rank = _ranks(scores), _ranks(cell.gold)
    apart = score_rank - gold_rank
    order = np.argsort(apart, kind="stable")

    def mistakes(places: np.ndarray) -> list[RankedError]:
        return [
            RankedError(
                data.rows[at],
                data.columns[0][at],
                data.columns[1][at],
                *(float(each[at]) for each in (cell.gold, scores, gold_rank, score_rank)),
            )
            for at in places[:SHOWN].tolist()
        ]

    over, under = order[::-1][: (apart > 0).sum()], order[: (apart < 0).sum()]
    return ErrorAnalysis(mistakes(over), mistakes(under), _slices(scores, cell.gold, data))


def _slices(scores: np.ndarray, gold: np.ndarray, data: Dataset) -> list[Slice]:
    found = []
    for by, sort in SLICINGS.items():
        kinds = [sort(_words(a), _words(b)) for a, b in zip(*data.columns, strict=True)]
        for name in sorted(set(kinds)):
            at = np.array([kind == name for kind in kinds])
            found.append(Slice(by, name.partition(" ")[2], int(at.sum()), _rho(scores[at], gold[at])))
    return found


def _rho(scores: np.ndarray, gold: np.ndarray) -> Estimate | None:
    from training.evaluation.metrics import spearman

    value = spearman(scores, gold) if len(scores) >= FEWEST else float("nan")
    if np.isnan(value):
        return None
    draws = bootstrap_replicates(scores, gold, Metric().statistic)
    low, high = np.nanpercentile(draws, [2.5, 97.5])
    return Estimate(100 * value, 100 * float(low), 100 * float(high))


# Each gives "<place in the order> <name>".


def _length(a: list[str], b: list[str]) -> str:
    mean = (len(a) + len(b)) / 2
    return "1 up to 8 words" if mean <= 8 else "2 9 to 15 words" if mean <= 15 else "3 over 15 words"


def _negation(a: list[str], b: list[str]) -> str:
    negated = _negated(a) + _negated(b)
    return ("1 in neither sentence", "2 in one of the two", "3 in both")[negated]


def _negated(words: list[str]) -> bool:
    return any(word in NEGATIONS or word.endswith("n't") for word in words)


def _overlap(a: list[str], b: list[str]) -> str:
    share = len({*a} & {*b}) / max(len({*a} | {*b}), 1)
    return "1 under a quarter" if share < 0.25 else "2 a quarter to a half" if share < 0.5 else "3 half or more"


SLICINGS: dict[str, Callable[[list[str], list[str]], str]] = {
    "mean length": _length,
    "negation": _negation,
    "words in common": _overlap,
}


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower().replace("’", "'"))


def _ranks(values: np.ndarray) -> np.ndarray:
    from scipy.stats import rankdata

    return (rankdata(values) - 1) / max(len(values) - 1, 1)
