"""Lesson 1: sentence vectors from models that were never asked for them, against one that was.

A raw BERT needs the Hub. What can be measured anywhere is said by its name: a count of words (TF-IDF), a transformer
of random weights, and three readings of the model in question: its table of word vectors averaged before any
attention, its CLS vector, and the mean of its outputs. Paper: section 1 and Table 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sbert_app.services.lessons.sample import GoldSample, encoded, gold_sample
from training.registry import DEFAULT_MODEL

if TYPE_CHECKING:
    from sbert_app.services.models.cache import ModelCache
    from training.models.encoder import Encoder

RANDOM_WEIGHTS = "scratch:6x384"


@dataclass(frozen=True)
class Row:
    """One way to make sentence vectors, measured."""

    label: str
    how: str
    rho: float  # Spearman ×100 of cosine and gold score


@dataclass(frozen=True)
class Representations:
    """All rows, and when and how long the vectors under them were made; they are kept after that."""

    rows: list[Row]
    seconds: float
    measured_at: str


def measure(shelf: ModelCache, home: Path, model: str, pairs: int) -> Representations:
    """All rows on the same pairs. InputError if the model cannot be had."""
    sample = gold_sample(home, pairs)
    rows = [Row("TF-IDF", "counts of words, no network", _rho(tf_idf(sample), sample))]
    rows += _readings(shelf, home, RANDOM_WEIGHTS, "random weights", pairs)
    encoder = shelf.encoder(model)
    rows.append(
        Row(f"{encoder.name}: word vectors", "its input table, averaged, no attention", _word_table(encoder, sample))
    )
    rows += _readings(shelf, home, model, encoder.name, pairs)
    if model != DEFAULT_MODEL:
        rows += _readings(shelf, home, DEFAULT_MODEL, DEFAULT_MODEL, pairs)[1:]
    made = [encoded(shelf, home, name, pairs) for name in (RANDOM_WEIGHTS, model)]
    return Representations(rows, sum(one.seconds for one in made), made[-1].measured_at)


def tf_idf(sample: GoldSample) -> np.ndarray:
    """Cosine of word counts, rare words weighing more; the weights come from the sample's own sentences. (N,)."""
    from training.models.baselines import TfIdf

    counts = TfIdf().encode([*sample.first, *sample.second])
    half = len(sample.first)
    return (counts[:half] * counts[half:]).sum(axis=1)


def _readings(shelf: ModelCache, home: Path, model: str, label: str, pairs: int) -> list[Row]:
    found = encoded(shelf, home, model, pairs)
    mean = "all output vectors, averaged" + (" – what it was trained for" if model == DEFAULT_MODEL else "")
    return [
        Row(f"{label}: CLS", "the vector of the first token", found.rho("cls")),
        Row(f"{label}: mean", mean, found.rho("mean")),
    ]


def _word_table(encoder: Encoder, sample: GoldSample) -> float:
    from training.evaluation.metrics import cosine

    table = encoder.backbone.get_input_embeddings().weight.detach().float().cpu().numpy()  # type: ignore[operator]
    ids = encoder.tokenize([*sample.first, *sample.second])
    vectors = np.stack([table[row[1:-1] or row].mean(axis=0) for row in ids])  # without [CLS] and [SEP]
    half = len(sample.first)
    return _rho(cosine(vectors[:half], vectors[half:]), sample)


def _rho(scores: np.ndarray, sample: GoldSample) -> float:
    from training.evaluation.metrics import spearman

    return 100 * spearman(scores, sample.gold)
