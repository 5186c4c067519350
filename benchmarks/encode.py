"""Encoding: sentences a second, from strings to vectors, beside sentence-transformers on the same machine.

All sides encode the same sentences (both columns of the STS benchmark's test part) with the same model in one
process, in turn. For each: the median time, Spearman ρ ×100 of its cosines with the gold scores, and its share
of what the processor can multiply: the products of the transformer's weights with the tokens it computed,
padding and duplicates left out, over the time, over the fastest of twelve large products measured in the same round
(what a shared machine can do drifts from minute to minute); the median of the rounds.
``where_ours_goes`` is the profile of the first.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks import machine, where
from training.catalogue import DEFAULT_MODEL
from training.data.load import load_data
from training.errors import InputError
from training.evaluation.metrics import spearman
from training.models.encoder import Encoder, ReadReport


@dataclass(frozen=True)
class Side:
    """One way to encode."""

    name: str
    dtype: str
    encode: Callable[[list[str]], np.ndarray]  # vectors of length 1
    tokens: int  # that it computes
    model: nn.Module

    @property
    def label(self) -> str:
        return f"{self.name}, {self.dtype}"


def run(
    rounds: int = 5,
    against: str | None = "sentence-transformers",
    model: str = DEFAULT_MODEL,
    data: str = "stsb:test",
) -> dict[str, Any]:
    """Measure. Plain JSON; ``rows`` is the table, our default first; ``times_ours`` is each one's time over that.

    Args:
        rounds: times each side encodes everything; the median counts.
        against: a name in ``PEERS``; None = alone.
        model: any that both can open.
        data: scored pairs.

    Raises:
        InputError: the peer is unknown or not installed, or the data have no scores.
    """
    if against is not None and against not in PEERS:
        raise InputError(f"there is no comparison against {against!r}; choose {', '.join(PEERS)}")
    pairs = load_data(data)
    if pairs.scores is None:
        raise InputError(f"{data} has no gold scores; choose scored pairs such as stsb:test")
    sentences = [sentence for column in pairs.columns for sentence in column]
    sides = ours(model, sentences)
    if against is not None:
        sides += PEERS[against](model, sentences)
    about = machine.describe()
    for side in sides:
        side.encode(sentences[:256])
    vectors: dict[str, np.ndarray] = {}
    peaks: dict[str, list[float]] = {side.dtype: [] for side in sides}

    def work(side: Side) -> None:
        vectors[side.label] = side.encode(sentences)

    def measure_peak(dtype: str) -> None:
        peaks[dtype].append(machine.product_peak(getattr(torch, dtype)))

    steps: dict[str, Callable[[], None]] = {side.label: partial(work, side) for side in sides}
    steps |= {f"{dtype} products": partial(measure_peak, dtype) for dtype in peaks}
    times = machine.alternate(steps, rounds)
    rows = [
        _row(side, times[side.label], vectors[side.label], np.array(pairs.scores), peaks[side.dtype]) for side in sides
    ]
    for row in rows:
        row["times_ours"] = round(row["seconds"] / rows[0]["seconds"], 2)
        row["processor_times_ours"] = round(row["processor_seconds"] / rows[0]["processor_seconds"], 2)
    return {
        "benchmark": "encode",
        "model": model,
        "data": data,
        "sentences": len(sentences),
        "rounds": rounds,
        "peak_gflops": {dtype: round(statistics.median(found), 1) for dtype, found in peaks.items()},
        "rows": rows,
        "where_ours_goes": where.shares(partial(work, sides[0])),
        "machine": about,
    }


def ours(model: str, sentences: list[str]) -> list[Side]:
    """Encoder.encode, in the machine's own precision and in float32."""
    sides: list[Side] = []
    for asked in ("auto", "float32"):
        encoder = Encoder.load(model, dtype=asked)
        dtype = str(encoder.dtype).removeprefix("torch.")
        if any(side.dtype == dtype for side in sides):
            continue
        report = ReadReport()
        encoder.encode(sentences, report=report)
        sides.append(Side("SBERT Lab", dtype, encoder.encode, report.tokens, encoder.backbone))
    return sides


def sentence_transformers(model: str, sentences: list[str]) -> list[Side]:
    """SentenceTransformer.encode, as it is and in bfloat16."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise InputError("sentence-transformers is not installed: pip install sentence-transformers") from error
    from training.sources.resolve import model_folder

    folder = str(model_folder(model).path)
    sides = []
    for dtype in ("float32", "bfloat16"):
        theirs = SentenceTransformer(folder, model_kwargs={"dtype": dtype}, local_files_only=True)
        encoder = Encoder.load(model, dtype="float32")
        tokens = sum(len(ids) for ids in encoder.tokenize(sentences))

        def encode(texts: list[str], theirs: SentenceTransformer = theirs) -> np.ndarray:
            return theirs.encode(texts, normalize_embeddings=True, show_progress_bar=False)

        sides.append(Side("sentence-transformers", dtype, encode, tokens, encoder.backbone))
    return sides


PEERS = {"sentence-transformers": sentence_transformers}


def _row(
    side: Side, times: list[machine.Timing], vectors: np.ndarray, gold: np.ndarray, peaks: list[float]
) -> dict[str, Any]:
    first, second = np.split(vectors.astype(np.float32), 2)
    figures = machine.summary(times)
    gflop = side.tokens * flop_per_token(side.model) / 1e9
    shares = [gflop / taken.wall / peak for taken, peak in zip(times, peaks, strict=True)]
    return {
        "side": side.name,
        "dtype": side.dtype,
        **figures,
        "sentences_per_second": round(len(vectors) / figures["seconds"]),
        "tokens": side.tokens,
        "share_of_peak": round(statistics.median(shares), 3),
        "spearman": round(100 * spearman((first * second).sum(1), gold), 3),
    }


def flop_per_token(model: nn.Module) -> int:
    """Two for each weight of the transformer's layers: one multiplication, one addition. Without attention's own."""
    layers = [child for child in model.modules() if isinstance(child, nn.ModuleList)]
    return 2 * sum(m.weight.numel() for layer in layers for m in layer.modules() if isinstance(m, nn.Linear))
