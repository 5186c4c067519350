"""The errors of a model: pairs that it scores far too high or too low, and kinds of pairs on which it is weak.

Spearman's ρ depends on ranks only, so an error is the rank of a pair by score minus that by gold score, from 0 for the
least similar pair of the data set to 1. Slices are by length, negation and lexical overlap; ρ within a slice is lower
where its gold scores vary less.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sbert_app.services.results.results import EvalResult
from training.data.dataset import Dataset
from training.evaluation.bootstrap import Estimate, correlation, sentence_keys
from training.evaluation.metrics import why_undefined

MAX_ERRORS = 5
# The fewest pairs of a slice that has a ρ.
MIN_PAIRS = 10
NEGATIONS = frozenset(
    ["not", "no", "never", "nobody", "nothing", "none", "neither", "nor", "nowhere", "without", "cannot"]
)
WORD = re.compile(r"\w+(?:'\w+)?")


class RankedError(NamedTuple):
    """A pair whose rank by score, from 0 to 1, is far from its rank by gold score. Its row in the source is from 1."""

    row: int
    first: str
    second: str
    gold: float
    score: float
    gold_rank: float
    score_rank: float


@dataclass(frozen=True)
class Slice:
    """The pairs with one value of a property. Where there is no ``rho``, ``why_none`` says why."""

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
    """The errors in the result of a data set."""
    scores = result.scores_by("cosine")
    score_ranks = _unit_ranks(scores)
    gold_ranks = _unit_ranks(result.gold)
    differences = score_ranks - gold_ranks
    order = np.argsort(differences, kind="stable")

    def errors(indices: np.ndarray) -> list[RankedError]:
        figures = np.stack([result.gold, scores, gold_ranks, score_ranks], axis=1).astype(float)
        rows = [(i, data.columns[0][i], data.columns[1][i]) for i in indices[:MAX_ERRORS].tolist()]
        return [RankedError(data.rows[i], first, second, *figures[i].tolist()) for i, first, second in rows]

    over = order[::-1][: (differences > 0).sum()]
    under = order[: (differences < 0).sum()]
    tokenized = [
        tuple(WORD.findall(text.lower().replace("’", "'")) for text in pair) for pair in zip(*data.columns, strict=True)
    ]
    slices = []
    keys = sentence_keys(data.columns)
    for by, (names, classify) in SLICINGS.items():
        classes = np.array([classify(a, b) for a, b in tokenized])
        for index, name in enumerate(names):
            rows = classes == index
            if not rows.any():
                continue
            n = int(rows.sum())
            parts = (scores[rows], result.gold[rows])
            why = "too few pairs" if n < MIN_PAIRS else why_undefined(*parts)
            rho = None if why else correlation(*parts, keys=keys[rows]).estimate(100)
            slices.append(Slice(by, name, n, rho, why))
    return ErrorAnalysis(errors(over), errors(under), slices)


def _length(a: list[str], b: list[str]) -> int:
    mean = (len(a) + len(b)) / 2
    return 0 if mean <= 8 else 1 if mean <= 15 else 2


def _is_negated(words: list[str]) -> bool:
    return any(word in NEGATIONS or word.endswith("n't") for word in words)


def _overlap(a: list[str], b: list[str]) -> int:
    jaccard = len({*a} & {*b}) / max(len({*a} | {*b}), 1)
    return 0 if jaccard < 0.25 else 1 if jaccard < 0.5 else 2


# The names of the classes, and the function that gives the class of a pair.
Slicing = tuple[tuple[str, ...], Callable[[list[str], list[str]], int]]
SLICINGS: dict[str, Slicing] = {
    "mean length": (("up to 8 words", "9 to 15 words", "over 15 words"), _length),
    "negation": (("in neither sentence", "in one of the two", "in both"), lambda a, b: _is_negated(a) + _is_negated(b)),
    "words in common": (("under a quarter", "a quarter to a half", "half or more"), _overlap),
}


def _unit_ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0 to 1, ties at their mean."""
    from scipy.stats import rankdata

    return (rankdata(values) - 1) / max(len(values) - 1, 1)
