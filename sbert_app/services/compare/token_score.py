"""A pair under late interaction or a sparse encoder: the score, and the tokens whose shares add up to it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sbert_app.services.models.cache import ModelCache
from training.models.model import Model
from training.names import ModelName

NUMBERS = ("cosine", "share")


@dataclass(frozen=True)
class TokenScore:
    """The score of a pair, and rows of text that end with a share of it. ``what`` describes the rows."""

    title: str
    score: float
    milliseconds: float
    what: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def to_json(self) -> dict[str, Any]:
        tokens = [
            {name: float(cell) if name in NUMBERS else cell for name, cell in zip(self.columns, row, strict=True)}
            for row in self.rows
        ]
        milliseconds = round(self.milliseconds, 2)
        return {"title": self.title, "score": round(self.score, 6), "tokens": tokens, "milliseconds": milliseconds}


def score_tokens(models: ModelCache, name: ModelName, a: str, b: str) -> TokenScore | None:
    """The score of a pair by the tokens that a model compares; None if it is a model of another kind.

    InputError if it cannot be opened.
    """
    # They import torch, which takes seconds.
    from training.models.maxsim import LateInteraction
    from training.models.st_models import SparseEncoder

    model, started, rows = models.get(name.weights, Model), time.perf_counter(), list[tuple[str, ...]]()
    if isinstance(model, LateInteraction):
        model = model.with_settings(name)
        result = model.matches(a, b)
        ended, title, score = time.perf_counter(), "Late interaction", result.score
        for side, pairs in (("first", result.first), ("second", result.second)):
            count = (len(pairs) if model.takes_mean else 1) * (2 if result.second else 1)
            rows += [(side, token, other, f"{cosine:.3f}", f"{cosine / count:+.4f}") for token, other, cosine in pairs]
        columns: tuple[str, ...] = ("in", "token", "finds", "cosine", "share")
        what = "Each token finds the most similar one of the other sentence; the shares add up to the score"
    elif isinstance(model, SparseEncoder):
        terms = model.with_settings(name).terms(a, b)
        ended, title, score = time.perf_counter(), "Sparse encoder", sum(term.share for term in terms)
        rows += [
            (term.token, _weight(term.first, term.in_first), _weight(term.second, term.in_second), f"{term.share:+.4f}")
            for term in terms
            if term.share
        ]
        columns = ("term", "first", "second", "share")
        what = f"Terms that both sentences have a weight for, of {len(terms):,} in all; the shares add up to the score"
    else:
        return None
    return TokenScore(f"{title} · {name.label}", score, (ended - started) * 1000, what, columns, rows)


def _weight(weight: float, is_own: bool) -> str:
    """A weight as text, which says if the model has added the term to those of the sentence."""
    return f"{weight:.2f}" if is_own else f"{weight:.2f} added"
