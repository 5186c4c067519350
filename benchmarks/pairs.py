"""The most similar pairs of 10,000 sentences, from strings: 65 hours of BERT in the paper, and 5 seconds of SBERT.

All sides get the same sentences (a sample of the STS benchmark's distinct ones) and the same model in one process, in
turn: encode, compare every pair, return the best pairs. Ours is ``Encoder.encode`` and the exact search of
``training.search``; the other is ``SentenceTransformer.encode`` and
``util.paraphrase_mining_embeddings``, in its default precision and in bfloat16. Both steps are timed separately, and
all sides must find the same pairs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.encode import PEERS, ours
from training.data.load import load_data
from training.errors import InputError
from training.search import most_similar_pairs

PAIRS = 10
PAPER_SECONDS = {"BERT, each pair read (V100)": 65 * 3600, "SBERT (V100)": 5}


@dataclass
class Side:
    """One implementation, from sentences to their most similar pairs."""

    name: str
    dtype: str
    encode: Callable[[list[str]], np.ndarray]
    search: Callable[[np.ndarray], list[tuple[int, int, float]]]
    encoding: list[machine.Timing] = field(default_factory=list)
    searching: list[machine.Timing] = field(default_factory=list)
    pairs: list[tuple[int, int, float]] = field(default_factory=list)

    def run(self, sentences: list[str]) -> None:
        """Run once and time both steps."""
        vectors: list[np.ndarray] = []
        self.encoding.append(machine.time_call(lambda: vectors.append(self.encode(sentences))))
        self.searching.append(machine.time_call(lambda: self.pairs.__setitem__(slice(None), self.search(vectors[0]))))

    @property
    def total(self) -> list[machine.Timing]:
        """Both steps of each round together."""
        return [
            machine.Timing(encoding.wall + searching.wall, encoding.processor + searching.processor)
            for encoding, searching in zip(self.encoding, self.searching, strict=True)
        ]


def run(
    rounds: int = 3,
    against: str | None = "sentence-transformers",
    model: str = "all-MiniLM-L6-v2",
    sentences: int = 10_000,
) -> dict[str, Any]:
    """Measure. Plain JSON; ``rows`` is the table, our default first; ``times_ours`` is each side's time divided by it.

    Args:
        rounds: repetitions of each side; the median counts.
        against: a key of ``encode.PEERS``; None = no comparison.
        model: any that all sides can load.
        sentences: at most the 15,457 distinct ones of the STS benchmark.

    Raises:
        InputError: the peer is unknown or not installed, or there are fewer sentences.
    """
    if against is not None and against not in PEERS:
        raise InputError(f"there is no comparison against {against!r}; choose {', '.join(PEERS)}")
    texts = _texts(sentences)
    sides = [
        Side(side.name, side.dtype, side.encode, partial(most_similar_pairs, k=PAIRS)) for side in ours(model, texts)
    ]
    if against is not None:
        sides += [Side(side.name, side.dtype, side.encode, _mine) for side in PEERS[against](model, texts)]
    about = machine.describe()
    for side in sides:
        side.search(side.encode(texts[:256]))
    machine.alternate({f"{side.name}, {side.dtype}": partial(side.run, texts) for side in sides}, rounds)
    rows = [_row(side, sides[0]) for side in sides]
    return {
        "benchmark": "pairs",
        "model": model,
        "data": "stsb",
        "sentences": len(texts),
        "pairs": len(texts) * (len(texts) - 1) // 2,
        "rounds": rounds,
        "paper_seconds": PAPER_SECONDS,
        "rows": rows,
        "machine": about,
    }


def _texts(count: int) -> list[str]:
    """A fixed sample of the distinct sentences of the STS benchmark."""
    parts = [load_data(f"stsb:{split}") for split in ("train", "dev", "test")]
    texts = list(dict.fromkeys(text for part in parts for column in part.columns for text in column))
    if len(texts) < count:
        raise InputError(f"the STS benchmark has {len(texts):,} distinct sentences, not {count:,}")
    return random.Random(0).sample(texts, count)


def _mine(vectors: np.ndarray) -> list[tuple[int, int, float]]:
    """sentence-transformers' own search; it returns (cosine, i, j)."""
    from sentence_transformers import util

    mined = util.paraphrase_mining_embeddings(vectors, max_pairs=PAIRS, top_k=PAIRS)
    return [(int(i), int(j), float(cosine)) for cosine, i, j in mined[:PAIRS]]


def _row(side: Side, first: Side) -> dict[str, Any]:
    figures = machine.summary(side.total)
    reference = machine.summary(first.total)
    return {
        "side": side.name,
        "dtype": side.dtype,
        **figures,
        "encode_seconds": machine.summary(side.encoding)["seconds"],
        "pairs_seconds": machine.summary(side.searching)["seconds"],
        "times_ours": round(figures["seconds"] / reference["seconds"], 2),
        "processor_times_ours": round(figures["processor_seconds"] / reference["processor_seconds"], 2),
        "best_cosine": round(min(side.pairs[0][2], 1.0), 4),
        "same_best_pairs": len({pair[:2] for pair in side.pairs} & {pair[:2] for pair in first.pairs}),
    }
