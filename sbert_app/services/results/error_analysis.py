"""The errors of a model: pairs that it scores far too high or too low, and kinds of pairs on which it is weak.

Spearman's ρ depends only on ranks, so an error is the rank of a pair by score minus its rank by
gold score, where ranks go from 0 for the least similar pair to 1. Slices are by length, negation
and lexical overlap. ρ within a slice is lower if its gold scores vary less.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

from sbert_app.services.results.results import EvalResult
from training.data.dataset import Dataset
from training.evaluation.bootstrap import Estimate, correlation, sentence_keys
from training.evaluation.metrics import why_undefined

MAX_ERRORS = 5
# The fewest pairs of a slice for which ρ is computed.
MIN_PAIRS = 10
NEGATIONS = frozenset(
    [
        "not",
        "no",
        "never",
        "nobody",
        "nothing",
        "none",
        "neither",
        "nor",
        "nowhere",
        "without",
        "cannot",
    ]
)
WORD = re.compile(r"\w+(?:'\w+)?")


class RankedError(NamedTuple):
    """A pair whose rank by score, from 0 to 1, is far from its rank by gold score. Rows of the source count from 1."""

    row: int
    first: str
    second: str
    gold: float
    score: float
    gold_rank: float
    score_rank: float


@dataclass(frozen=True)
class Slice:
    """The pairs with one value of a property. If ``rho`` is None, ``why_none`` states the reason."""

    by: str
    name: str
    n: int
    rho: Estimate | None
    why_none: str = ""


@dataclass(frozen=True)
class ErrorAnalysis:
    """The largest errors in both directions, largest first, and the slices."""

    over: list[RankedError]
    under: list[RankedError]
    slices: list[Slice]


def analyze_errors(result: EvalResult, data: Dataset) -> ErrorAnalysis:
    """The errors of a model on a data set."""
    scores = result.scores_by("cosine")
    score_ranks = _unit_ranks(scores)
    gold_ranks = _unit_ranks(result.gold)
    differences = score_ranks - gold_ranks
    order = np.argsort(differences, kind="stable")

    first, second = data.columns

    def errors(places: np.ndarray) -> list[RankedError]:
        ranked = []
        for place in places[:MAX_ERRORS].tolist():
            error = RankedError(
                row=data.rows[place],
                first=first[place],
                second=second[place],
                gold=float(result.gold[place]),
                score=float(scores[place]),
                gold_rank=float(gold_ranks[place]),
                score_rank=float(score_ranks[place]),
            )
            ranked.append(error)
        return ranked

    over = order[::-1][: (differences > 0).sum()]
    under = order[: (differences < 0).sum()]
    # The words of each sentence, in a list for each column.
    words = []
    for column in data.columns:
        words.append([WORD.findall(text.lower().replace("’", "'")) for text in column])
    slices = []
    keys = sentence_keys(data.columns)
    for by, (names, classify) in SLICINGS.items():
        classes = np.array(list(map(classify, *words)))
        for number, name in enumerate(names):
            rows = classes == number
            n = int(rows.sum())
            if n == 0:
                continue
            gold = result.gold[rows]
            why = "too few pairs"
            if n >= MIN_PAIRS:
                why = why_undefined(scores[rows], gold)
            rho = None
            if not why:
                rho = correlation(scores[rows], gold, keys=keys[rows]).estimate(100)
            slices.append(Slice(by, name, n, rho, why))
    return ErrorAnalysis(errors(over), errors(under), slices)


def _length(a: list[str], b: list[str]) -> int:
    mean = (len(a) + len(b)) / 2
    return (mean > 8) + (mean > 15)


def _is_negated(words: list[str]) -> bool:
    return any(word in NEGATIONS or word.endswith("n't") for word in words)


def _overlap(a: list[str], b: list[str]) -> int:
    jaccard = len({*a} & {*b}) / max(len({*a} | {*b}), 1)
    return (jaccard >= 0.25) + (jaccard >= 0.5)


# The names of the classes, and a function that returns the number of the class of a pair.
Slicing = tuple[tuple[str, ...], Callable[[list[str], list[str]], int]]
SLICINGS: dict[str, Slicing] = {
    "mean length": (("up to 8 words", "9 to 15 words", "over 15 words"), _length),
    "negation": (
        ("in neither sentence", "in one of the two", "in both"),
        lambda a, b: _is_negated(a) + _is_negated(b),
    ),
    "words in common": (("under a quarter", "a quarter to a half", "half or more"), _overlap),
}


def _unit_ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0 to 1; ties have their mean rank."""
    return (scipy.stats.rankdata(values) - 1) / max(len(values) - 1, 1)
