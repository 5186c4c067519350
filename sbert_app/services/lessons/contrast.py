"""Lessons 8 and 12: what similarity misses. Sentences with a paraphrase and with one that says something else.

Lesson 8: the other sentence is a negation. Lesson 12: it has the same words in another order, as in PAWS (Zhang et al.
2019). Each set ships with the app (assets/examples/contrasts.json) and was written for it. Three scorers read the same
pairs: TF-IDF, which sees no order; the bi-encoder; the cross-encoder, which reads both sentences at once.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sbert_app.services.lessons.sample import time_of_day
from sbert_app.services.lessons.setup import STANDARD, Setup
from training.assets import asset
from training.errors import InputError
from training.registry import DEFAULT_CROSS_ENCODER

if TYPE_CHECKING:
    from sbert_app.services.models.cache import ModelCache

FILE = asset("examples/contrasts.json")
NEGATION, WORD_ORDER = "negation", "word_order"
TF_IDF, BI, CROSS = "TF-IDF", "bi-encoder", "cross-encoder"
SCORERS = (TF_IDF, BI, CROSS)


class Item(NamedTuple):
    """A sentence, the same in other words, and a sentence that shares its words and says something else."""

    sentence: str
    paraphrase: str
    contrast: str


@dataclass(frozen=True)
class Scores:
    """The similarities that one scorer gives to the pairs of each kind, (N,) each; row i belongs to item i."""

    paraphrase: np.ndarray
    contrast: np.ndarray
    unrelated: np.ndarray  # with the sentence of another item

    @property
    def told_apart(self) -> int:
        """Items whose paraphrase scores above the contrast."""
        return int((self.paraphrase > self.contrast).sum())

    @property
    def above_unrelated(self) -> int:
        """Items whose contrast scores above an unrelated sentence."""
        return int((self.contrast > self.unrelated).sum())


@dataclass(frozen=True)
class Contrast:
    """All scorers on all items of a set, and on the pair that the reader typed."""

    by_scorer: dict[str, Scores]
    own: dict[str, float]  # of the reader's pair, by scorer
    items: int
    model: str
    cross_encoder: str
    seconds: float  # to score the set
    measured_at: str


@cache
def items(kind: str) -> tuple[Item, ...]:
    """The items of `NEGATION` or `WORD_ORDER`."""
    return tuple(Item(*row) for row in json.loads(FILE.read_text(encoding="utf-8"))[kind])


def measure(models: ModelCache, home: Path, kind: str, a: str, b: str, setup: Setup = STANDARD) -> Contrast:
    """Score the set and the reader's pair. InputError if a sentence is empty or a model cannot be loaded."""
    for name, sentence in (("first", a), ("second", b)):
        if not sentence.strip():
            raise InputError(f"the {name} sentence is empty; type one")
    by_scorer, seconds, measured_at = _score_set(models, home, kind, setup.model)
    own = {name: float(scores[0]) for name, scores in _score_pairs(models, setup.model, [(a, b)], kind).items()}
    return Contrast(by_scorer, own, len(items(kind)), setup.model, DEFAULT_CROSS_ENCODER, seconds, measured_at)


@lru_cache(maxsize=8)
def _score_set(models: ModelCache, home: Path, kind: str, model: str) -> tuple[dict[str, Scores], float, str]:
    chosen = items(kind)
    half = len(chosen) // 2
    others = [chosen[(i + half) % len(chosen)].sentence for i in range(len(chosen))]
    pairs = [
        *((item.sentence, item.paraphrase) for item in chosen),
        *((item.sentence, item.contrast) for item in chosen),
        *((item.sentence, other) for item, other in zip(chosen, others, strict=True)),
    ]
    started = time.perf_counter()
    scores = _score_pairs(models, model, pairs, kind)
    seconds = time.perf_counter() - started
    return {name: Scores(*np.split(values, 3)) for name, values in scores.items()}, seconds, time_of_day()


def _score_pairs(models: ModelCache, model: str, pairs: list[tuple[str, str]], kind: str) -> dict[str, np.ndarray]:
    """Pairs -> their similarity by each scorer, (N,) each."""
    from training.evaluation.metrics import cosine
    from training.models.baselines import TfIdf

    first, second = ([pair[side] for pair in pairs] for side in (0, 1))
    known = [sentence for item in items(kind) for sentence in item]  # what TF-IDF takes its weights from as well
    first_counts, second_counts = np.split(TfIdf().encode([*known, *first, *second])[len(known) :], 2)
    vectors = models.encoder(model).encode([*first, *second])
    bi = cosine(vectors[: len(pairs)], vectors[len(pairs) :])
    cross = models.cross_encoder(DEFAULT_CROSS_ENCODER).predict(pairs)
    return {TF_IDF: (first_counts * second_counts).sum(axis=1), BI: bi, CROSS: cross}
