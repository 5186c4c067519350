"""The most similar pair of 10,000 sentences, from strings: what took BERT 65 hours in the paper, and SBERT 5 seconds.

Both sides get the same sentences (a sample of the STS benchmark's different ones) and the same model in one process, in
turn: encode them, compare each with each, give the best pairs. Ours is ``Encoder.encode`` and the exact search of
``sbert_app.services.corpus.pairs``; theirs is ``SentenceTransformer.encode`` and
``util.paraphrase_mining_embeddings``, as it
is and in bfloat16. The two halves are measured apart, and both must find the same best pairs.
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
from sbert_app.services.corpus.pairs import most_similar_pairs
from training.data.load import load_data
from training.errors import InputError

PAIRS = 10
PAPER_SECONDS = {"BERT, each pair read (V100)": 65 * 3600, "SBERT (V100)": 5}


@dataclass
class Way:
    """One way from sentences to their most similar pairs."""

    name: str
    dtype: str
    encode: Callable[[list[str]], np.ndarray]
    find: Callable[[np.ndarray], list[tuple[int, int, float]]]
    encoding: list[machine.Took] = field(default_factory=list)
    finding: list[machine.Took] = field(default_factory=list)
    found: list[tuple[int, int, float]] = field(default_factory=list)

    def run(self, sentences: list[str]) -> None:
        """Once, both halves timed."""
        vectors: list[np.ndarray] = []
        self.encoding.append(machine.took(lambda: vectors.append(self.encode(sentences))))
        self.finding.append(machine.took(lambda: self.found.__setitem__(slice(None), self.find(vectors[0]))))

    @property
    def whole(self) -> list[machine.Took]:
        """Of each round, both halves."""
        return [
            machine.Took(*(sum(halves) for halves in zip(*both, strict=True)))
            for both in zip(self.encoding, self.finding, strict=True)
        ]


def run(
    rounds: int = 3,
    against: str | None = "sentence-transformers",
    model: str = "all-MiniLM-L6-v2",
    sentences: int = 10_000,
) -> dict[str, Any]:
    """Measure. Plain JSON; ``rows`` is the table, our default first; ``times_ours`` is each one's time over that.

    Args:
        rounds: times that each side does it all; the median counts.
        against: a name in ``encode.PEERS``; None = alone.
        model: any that both can open.
        sentences: how many, of the 15,457 different ones of the STS benchmark.

    Raises:
        InputError: the peer is unknown or not installed, or there are fewer sentences.
    """
    if against is not None and against not in PEERS:
        raise InputError(f"there is no comparison against {against!r}; choose {', '.join(PEERS)}")
    texts = _texts(sentences)
    ways = [
        Way(side.name, side.dtype, side.encode, partial(most_similar_pairs, k=PAIRS)) for side in ours(model, texts)
    ]
    if against is not None:
        ways += [Way(side.name, side.dtype, side.encode, _mine) for side in PEERS[against](model, texts)]
    about = machine.describe()
    for way in ways:
        way.find(way.encode(texts[:256]))
    machine.alternate({f"{way.name}, {way.dtype}": partial(way.run, texts) for way in ways}, rounds)
    rows = [_row(way, ways[0]) for way in ways]
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
    """A sample of the different sentences of the STS benchmark, the same each time."""
    parts = [load_data(f"stsb:{split}") for split in ("train", "dev", "test")]
    texts = list(dict.fromkeys(text for part in parts for column in part.columns for text in column))
    if len(texts) < count:
        raise InputError(f"the STS benchmark has {len(texts):,} different sentences, not {count:,}")
    return random.Random(0).sample(texts, count)


def _mine(vectors: np.ndarray) -> list[tuple[int, int, float]]:
    """sentence-transformers' own search, which gives (cosine, i, j)."""
    from sentence_transformers import util

    mined = util.paraphrase_mining_embeddings(vectors, max_pairs=PAIRS, top_k=PAIRS)
    return [(int(i), int(j), float(cosine)) for cosine, i, j in mined[:PAIRS]]


def _row(way: Way, first: Way) -> dict[str, Any]:
    figures = machine.summary(way.whole)
    seconds = machine.summary(first.whole)
    return {
        "side": way.name,
        "dtype": way.dtype,
        **figures,
        "encode_seconds": machine.summary(way.encoding)["seconds"],
        "pairs_seconds": machine.summary(way.finding)["seconds"],
        "times_ours": round(figures["seconds"] / seconds["seconds"], 2),
        "processor_times_ours": round(figures["processor_seconds"] / seconds["processor_seconds"], 2),
        "best_cosine": round(min(way.found[0][2], 1.0), 4),
        "same_best_pairs": len({pair[:2] for pair in way.found} & {pair[:2] for pair in first.found}),
    }
