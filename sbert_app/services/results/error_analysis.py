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

MAX_ERRORS = 4
# The fewest pairs of a slice for which ρ is computed.
MIN_PAIRS = 10
NEGATIONS = {
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
}
WORD = re.compile(r"\w+(?:'\w+)?")


class RankedError(NamedTuple):
    """A pair whose rank by score, from 0 to 1, is far from its rank by gold score. ``row`` counts from 1."""

    row: int
    first: str
    second: str
    gold: float
    score: float
    gold_rank: float
    score_rank: float


@dataclass(frozen=True)
class Slice:
    """The pairs with the value ``name`` of the property ``by``. If ``rho`` is None, ``why_none`` states the reason."""

    by: str
    name: str
    n: int
    rho: Estimate | None
    why_none: str = ""


@dataclass(frozen=True)
class ErrorAnalysis:
    """The largest errors, scores that are too high and scores that are too low, largest first; and the slices."""

    over: list[RankedError]
    under: list[RankedError]
    slices: list[Slice]


def analyze_errors(result: EvalResult, data: Dataset) -> ErrorAnalysis:
    """The errors of a model on a data set whose pairs all have scores."""
    scores = result.scores_by("cosine")
    score_ranks = _unit_ranks(scores)
    gold_ranks = _unit_ranks(result.gold)
    differences = score_ranks - gold_ranks
    # From the pair with the most underrated score to the most overrated one.
    order = np.argsort(differences, kind="stable")
    first, second = data.columns

    def errors(pairs: np.ndarray) -> list[RankedError]:
        """The first `MAX_ERRORS` of ``pairs``, which are positions in the data."""
        ranked = []
        for pair in pairs[:MAX_ERRORS].tolist():
            error = RankedError(
                row=data.rows[pair],
                first=first[pair],
                second=second[pair],
                gold=float(result.gold[pair]),
                score=float(scores[pair]),
                gold_rank=float(gold_ranks[pair]),
                score_rank=float(score_ranks[pair]),
            )
            ranked.append(error)
        return ranked

    over = order[differences[order] > 0][::-1]
    under = order[differences[order] < 0]
    # The words of each sentence, in a list for each column.
    words = []
    for column in data.columns:
        words.append([WORD.findall(text.lower().replace("’", "'")) for text in column])
    slices = []
    keys = sentence_keys(data.columns)
    for by, (names, classify) in SLICINGS.items():
        # For each pair, the position in ``names`` of its class.
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
    """The class of a pair by the mean number of words: how many of two limits it exceeds."""
    mean = (len(a) + len(b)) / 2
    return (mean > 8) + (mean > 15)


def _is_negated(words: list[str]) -> bool:
    return any(word in NEGATIONS or word.endswith("n't") for word in words)


def _overlap(a: list[str], b: list[str]) -> int:
    """The class of a pair by the share of distinct words in common: how many of two limits it reaches."""
    jaccard = len({*a} & {*b}) / max(len({*a} | {*b}), 1)
    return (jaccard >= 0.25) + (jaccard >= 0.5)


# The names of the classes, and a function that returns the number of a pair's class, from 0, by the
# words of its sentences.
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
    """Ranks from 0 to 1. Equal values have the mean of their ranks."""
    return (scipy.stats.rankdata(values) - 1) / max(len(values) - 1, 1)
