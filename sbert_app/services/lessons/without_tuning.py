"""Lesson 1: sentence vectors of models that were not trained for them, compared with one that was.

A raw BERT has to be downloaded from the Hub. These need no download: TF-IDF, a transformer with random weights, and
three representations of the default model: the average of its input embeddings, its CLS vector, and the mean of its
outputs. Paper: section 1 and Table 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sbert_app.services.lessons.sample import GoldSample, encode_sample, gold_sample
from sbert_app.services.lessons.setup import STANDARD, Setup
from training.registry import DEFAULT_MODEL

if TYPE_CHECKING:
    from sbert_app.services.models.cache import ModelCache
    from training.models.encoder import Encoder

RANDOM_WEIGHTS = "scratch:6x384"


@dataclass(frozen=True)
class Representation:
    """A kind of sentence vector, and its quality."""

    label: str
    how: str  # it is computed
    rho: float  # Spearman ×100 between cosine and gold score


@dataclass(frozen=True)
class Representations:
    """All representations; ``seconds`` and ``measured_at`` are those of the first computation."""

    rows: list[Representation]
    seconds: float
    measured_at: str


def measure(models: ModelCache, home: Path, model: str, pairs: int, setup: Setup = STANDARD) -> Representations:
    """Measure all representations on the same pairs. InputError if a model cannot be loaded."""
    sample = gold_sample(home, pairs, setup)
    rows = [Representation("TF-IDF", "counts of words, no network", _rho(tf_idf(sample), sample))]
    rows += _cls_and_mean(models, home, RANDOM_WEIGHTS, "random weights", pairs, setup)
    encoder = models.encoder(model)
    rows.append(
        Representation(
            f"{encoder.name}: word vectors",
            "its input table, averaged, no attention",
            _input_embeddings(encoder, sample),
        )
    )
    rows += _cls_and_mean(models, home, model, encoder.name, pairs, setup)
    if model != DEFAULT_MODEL:
        rows += _cls_and_mean(models, home, DEFAULT_MODEL, DEFAULT_MODEL, pairs, setup)[1:]
    samples = [encode_sample(models, home, name, pairs, setup) for name in (RANDOM_WEIGHTS, model)]
    return Representations(rows, sum(each.seconds for each in samples), samples[-1].measured_at)


def tf_idf(sample: GoldSample) -> np.ndarray:
    """Cosines of TF-IDF vectors, fitted on the sample's own sentences: (N,)."""
    from training.models.baselines import TfIdf

    counts = TfIdf().encode([*sample.first, *sample.second])
    half = len(sample.first)
    return (counts[:half] * counts[half:]).sum(axis=1)


def _cls_and_mean(
    models: ModelCache, home: Path, model: str, label: str, pairs: int, setup: Setup
) -> list[Representation]:
    sample = encode_sample(models, home, model, pairs, setup)
    mean = "all output vectors, averaged" + (" – what it was trained for" if model == DEFAULT_MODEL else "")
    return [
        Representation(f"{label}: CLS", "the vector of the first token", sample.rho("cls")),
        Representation(f"{label}: mean", mean, sample.rho("mean")),
    ]


def _input_embeddings(encoder: Encoder, sample: GoldSample) -> float:
    from training.evaluation.metrics import cosine

    table = encoder.backbone.get_input_embeddings().weight.detach().float().cpu().numpy()  # type: ignore[operator]
    ids = encoder.tokenize([*sample.first, *sample.second])
    vectors = np.stack([table[row[1:-1] or row].mean(axis=0) for row in ids])  # without [CLS] and [SEP]
    half = len(sample.first)
    return _rho(cosine(vectors[:half], vectors[half:]), sample)


def _rho(scores: np.ndarray, sample: GoldSample) -> float:
    from training.evaluation.metrics import spearman

    return 100 * spearman(scores, sample.gold)
