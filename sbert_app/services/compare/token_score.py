"""Scores a pair by late interaction or a sparse encoder, with the shares of the tokens that add up to the score."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sbert_app.services.models.cache import ModelCache
from training.models.model import Model
from training.names import ModelName

if TYPE_CHECKING:
    from training.models.maxsim import LateInteraction
    from training.models.st_models import SparseEncoder

# The columns whose cells are always numbers. The weights of a sparse encoder are not among them, as
# the word "added" may follow.
NUMBERS = ("cosine", "share")


@dataclass(frozen=True)
class TokenScore:
    """The score of a pair, and the shares of its tokens.

    Attributes:
        what: a description of the rows.
        rows: cells of text, the last of which is the share.
    """

    title: str
    score: float
    milliseconds: float
    what: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def to_json(self) -> dict[str, Any]:
        """The score as JSON values, with an object for each row."""
        tokens = []
        for row in self.rows:
            token: dict[str, Any] = dict(zip(self.columns, row, strict=True))
            # The rows are texts for a table.
            for name in token.keys() & NUMBERS:
                token[name] = float(token[name])
            tokens.append(token)
        return {
            "title": self.title,
            "score": round(self.score, 6),
            "tokens": tokens,
            "milliseconds": round(self.milliseconds, 2),
        }


def score_tokens(models: ModelCache, name: ModelName, a: str, b: str) -> TokenScore | None:
    """Returns the score of a pair by a model that compares tokens, or None for a model of another kind.

    Raises InputError if the model cannot be opened.
    """
    # Imported here because they import torch, which takes seconds.
    from training.models.maxsim import LateInteraction
    from training.models.st_models import SparseEncoder

    # Opened without the settings of the name, which `with_settings` adds below. The name of a
    # bi-encoder may have prompts by role, which `get` would refuse with an error in place of None.
    model = models.get(name.weights, Model)
    if isinstance(model, LateInteraction):
        return _score_late_interaction(model.with_settings(name), name, a, b)
    if isinstance(model, SparseEncoder):
        return _score_sparse(model.with_settings(name), name, a, b)
    return None


def _score_late_interaction(model: LateInteraction, name: ModelName, a: str, b: str) -> TokenScore:
    """Scores a pair, with a row for each token and the most similar token of the other text."""
    started = time.perf_counter()
    result = model.matches(a, b)
    milliseconds = (time.perf_counter() - started) * 1000
    rows = []
    for side, pairs in (("first", result.first), ("second", result.second)):
        # The score is a mean over the tokens, unless the model sums them, and over both directions
        # if there are two. A model with one direction has no matches of the second text.
        divisor = len(pairs) if model.takes_mean else 1
        if result.second:
            divisor *= 2
        for token, other, cosine in pairs:
            rows.append((side, token, other, f"{cosine:.3f}", f"{cosine / divisor:+.4f}"))
    return TokenScore(
        title=f"Late interaction · {name.label}",
        score=result.score,
        milliseconds=milliseconds,
        what="Each token finds the most similar one of the other sentence; the shares add up to the score",
        columns=("in", "token", "finds", "cosine", "share"),
        rows=rows,
    )


def _score_sparse(model: SparseEncoder, name: ModelName, a: str, b: str) -> TokenScore:
    """Scores a pair, with a row for each term that both sentences have a weight for."""
    started = time.perf_counter()
    terms = model.terms(a, b)
    milliseconds = (time.perf_counter() - started) * 1000
    rows = []
    for term in terms:
        # Terms that only one of the sentences has a weight for add nothing to the score.
        if term.share:
            # The cells say whether the sentence has the term, or the model has added it.
            first = _weight(term.first, term.in_first)
            second = _weight(term.second, term.in_second)
            rows.append((term.token, first, second, f"{term.share:+.4f}"))
    return TokenScore(
        title=f"Sparse encoder · {name.label}",
        score=sum(term.share for term in terms),
        milliseconds=milliseconds,
        what=f"Terms that both sentences have a weight for, of {len(terms):,} in all; the shares add up to the score",
        columns=("term", "first", "second", "share"),
        rows=rows,
    )


def _weight(weight: float, is_in_sentence: bool) -> str:
    """Returns a weight as text, with a remark if the model has added the term to the sentence."""
    return f"{weight:.2f}" if is_in_sentence else f"{weight:.2f} added"
