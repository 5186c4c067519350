"""Lesson 11: how good the vectors of each layer are, pooled; and the average of the first and the last.

A transformer's last layer is trained for the last step, not for similarity. For raw BERT the average of the first and
the last layer was better than the last alone: 59.04 against 46.35 on STSb (Su et al. 2021; Reimers & Gurevych 2019,
Table 1).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sbert_app.services.lessons.sample import gold_sample, time_of_day
from sbert_app.services.lessons.setup import STANDARD, Setup
from training.errors import InputError

if TYPE_CHECKING:
    from sbert_app.services.models.cache import ModelCache
    from training.models.encoder import Encoder

TOKENS = 2_048  # of a batch, with padding


@dataclass(frozen=True)
class Layers:
    """ρ ×100 of every layer under every pooling. Layer 0 are the input embeddings."""

    model: str
    by_pooling: dict[str, list[float]]  # pooling -> ρ of layer 0, 1, …, L
    first_last: dict[str, float]  # pooling -> ρ of the average of layer 1 and layer L
    pairs: int
    data: str
    seconds: float
    measured_at: str

    def best(self, pooling: str) -> int:
        """The layer with the highest ρ."""
        return int(np.nanargmax(self.by_pooling[pooling]))


@lru_cache(maxsize=8)
def measure(models: ModelCache, home: Path, model: str, pairs: int, setup: Setup = STANDARD) -> Layers:
    """InputError if the model has no layers, or it or the data cannot be loaded."""
    from training.evaluation.metrics import cosine, spearman
    from training.models.pooling import PAPER_POOLINGS

    sample = gold_sample(home, pairs, setup)
    encoder = models.encoder(model)
    started = time.perf_counter()
    pooled = layer_vectors(encoder, [*sample.first, *sample.second])
    seconds = time.perf_counter() - started

    def rho(vectors: np.ndarray) -> float:
        return 100 * spearman(cosine(*np.split(vectors, 2)), sample.gold)

    return Layers(
        encoder.name,
        {name: [rho(layer) for layer in pooled[name]] for name in PAPER_POOLINGS},
        {name: rho((pooled[name][1] + pooled[name][-1]) / 2) for name in PAPER_POOLINGS},
        len(sample.gold),
        sample.data,
        seconds,
        time_of_day(),
    )


def layer_vectors(encoder: Encoder, sentences: list[str]) -> dict[str, np.ndarray]:
    """Pooling -> the pooled output of every layer, (L + 1, N, D) float32; layer 0 are the input embeddings.

    Raises:
        InputError: the encoder is no transformer.
    """
    import torch

    from training.inference.batching import pad, plan
    from training.models.pooling import PAPER_POOLINGS, POOLINGS

    layers = getattr(getattr(encoder.backbone, "config", None), "num_hidden_layers", None)
    if not layers:
        raise InputError(f"{encoder.name} is no transformer, and has no layers to compare")
    ids = encoder.tokenize(sentences)
    dimension = int(encoder.backbone.config.hidden_size)  # type: ignore[union-attr, arg-type]
    found = {name: np.empty((layers + 1, len(ids), dimension), dtype=np.float32) for name in PAPER_POOLINGS}
    for rows in plan([len(row) for row in ids], TOKENS):
        batch = pad([ids[row] for row in rows], 0)
        mask = None if batch.mask is None else batch.mask.to(encoder.device)
        with torch.inference_mode():
            states = encoder.backbone(
                batch.ids.to(encoder.device),
                attention_mask=None if mask is None else mask.long(),
                output_hidden_states=True,
            ).hidden_states
            for name, vectors in found.items():
                vectors[:, rows] = torch.stack([POOLINGS[name](state, mask) for state in states]).cpu().numpy()
    return found
