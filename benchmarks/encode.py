"""Encoding (``encode``) and the most similar pairs (``pairs``), beside sentence-transformers on the same machine.

All sides get the same sentences with the same model in one process, in turn.

``encode``: sentences a second, from strings to vectors, of both columns of the STS benchmark's test
part. For each side: the median time, Spearman ρ ×100 of its cosines with the gold scores, and its
share of the processor's peak. That is the FLOP of the transformer's weights with the tokens that the
side computed (without padding and duplicates), divided by the time and by the peak: the fastest of
twelve large products of the same round, because the speed of a shared machine drifts from minute to
minute. The median of the rounds counts.

``pairs``: the most similar pairs of 10,000 sentences, from strings: 65 hours of BERT in the paper,
and 5 seconds of SBERT. A side encodes a sample of the STS benchmark's distinct sentences, compares
every pair and returns the best pairs. Ours is ``Encoder.encode`` and the exact search of
``training.search``; the other is ``SentenceTransformer.encode`` and
``util.paraphrase_mining_embeddings``, in its default precision and in bfloat16. Both steps are
timed separately, and all sides must find the same pairs.
"""

import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks import machine
from training.catalogue import DEFAULT_MODEL
from training.data.load import load_data
from training.errors import InputError
from training.evaluation.metrics import spearman
from training.models.encoder import Encoder, ReadReport
from training.search import most_similar_pairs
from training.sources.resolve import model_folder


@dataclass(frozen=True)
class Side:
    """One way to encode."""

    name: str
    dtype: str
    # Returns vectors of length 1.
    encode: Callable[[list[str]], np.ndarray]
    # The number of tokens that it computes.
    tokens: int
    # The transformer, whose weights are counted.
    model: nn.Module

    @property
    def label(self) -> str:
        return f"{self.name}, {self.dtype}"


def run_encode(
    rounds: int = 5,
    against: str | None = "sentence-transformers",
    model: str = DEFAULT_MODEL,
    data: str = "stsb:test",
) -> dict[str, Any]:
    """Plain JSON; ``rows`` is the table, our default first; ``times_ours`` is each one's time over that.

    Args:
        rounds: times each side encodes everything; the median counts.
        against: a name in ``PEERS``; None = alone.
        model: any that both can open.
        data: scored pairs.

    Raises:
        InputError: the peer is unknown or not installed, or the data have no scores.
    """
    check_peer(against)
    pairs = load_data(data)
    if pairs.scores is None:
        raise InputError(f"{data} has no gold scores; choose scored pairs such as stsb:test")
    sentences = [sentence for column in pairs.columns for sentence in column]
    sides = ours(model, sentences)
    if against is not None:
        sides += PEERS[against](model, sentences)
    about = machine.describe()
    # The first call of each side warms up.
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
    gold = np.array(pairs.scores)
    rows = []
    for side in sides:
        label = side.label
        rows.append(_row(side, times[label], vectors[label], gold, peaks[side.dtype]))
    machine.compare(rows)
    return {
        "benchmark": "encode",
        "model": model,
        "data": data,
        "sentences": len(sentences),
        "rounds": rounds,
        "peak_gflops": {
            dtype: round(statistics.median(values), 1) for dtype, values in peaks.items()
        },
        "rows": rows,
        "machine": about,
    }


def ours(model: str, sentences: list[str]) -> list[Side]:
    """Encoder.encode, in the machine's own precision and in float32."""
    sides: list[Side] = []
    for precision in ("auto", "float32"):
        encoder = Encoder.load(model, dtype=precision)
        dtype = str(encoder.dtype).removeprefix("torch.")
        # The machine's own precision may be float32.
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
        raise InputError(
            "sentence-transformers is not installed: pip install sentence-transformers"
        ) from error
    folder = str(model_folder(model).path)
    sides = []
    for dtype in ("float32", "bfloat16"):
        theirs = SentenceTransformer(folder, model_kwargs={"dtype": dtype}, local_files_only=True)
        encoder = Encoder.load(model, dtype="float32")
        tokens = sum(len(ids) for ids in encoder.tokenize(sentences))

        # The default keeps the model of this turn of the loop.
        def encode(texts: list[str], theirs: SentenceTransformer = theirs) -> np.ndarray:
            return theirs.encode(texts, normalize_embeddings=True, show_progress_bar=False)

        sides.append(Side("sentence-transformers", dtype, encode, tokens, encoder.backbone))
    return sides


PEERS = {"sentence-transformers": sentence_transformers}


def check_peer(name: str | None) -> None:
    """Raises InputError if there is no such peer. None stands for no comparison."""
    if name is not None and name not in PEERS:
        raise InputError(f"there is no comparison against {name!r}; choose {', '.join(PEERS)}")


def _row(
    side: Side,
    times: list[machine.Timing],
    vectors: np.ndarray,
    gold: np.ndarray,
    peaks: list[float],
) -> dict[str, Any]:
    # The vectors of the first column of the pairs, then those of the second.
    first, second = np.split(vectors.astype(np.float32), 2)
    figures = machine.summary(times)
    gflop = side.tokens * flop_per_token(side.model) / 1e9
    shares = []
    for timing, peak in zip(times, peaks, strict=True):
        shares.append(gflop / timing.wall / peak)
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
    """FLOP of a token: two for each weight of the transformer's layers, without the products of attention."""
    weights = 0
    for layers in model.modules():
        if not isinstance(layers, nn.ModuleList):
            continue
        for module in layers.modules():
            if isinstance(module, nn.Linear):
                weights += module.weight.numel()
    return 2 * weights


PAIRS = 10
PAPER_SECONDS = {"BERT, each pair read (V100)": 65 * 3600, "SBERT (V100)": 5}


@dataclass
class PairsSide:
    """One implementation, from sentences to their most similar pairs."""

    name: str
    dtype: str
    encode: Callable[[list[str]], np.ndarray]
    search: Callable[[np.ndarray], list[tuple[int, int, float]]]
    encoding: list[machine.Timing] = field(default_factory=list)
    searching: list[machine.Timing] = field(default_factory=list)
    # The results of the last round.
    vectors: np.ndarray = field(default_factory=lambda: np.empty((0, 0), np.float32))
    pairs: list[tuple[int, int, float]] = field(default_factory=list)

    def run(self, sentences: list[str]) -> None:
        """Encodes and searches once, and times both steps."""

        def encode() -> None:
            self.vectors = self.encode(sentences)

        def search() -> None:
            self.pairs = self.search(self.vectors)

        self.encoding.append(machine.time_call(encode))
        self.searching.append(machine.time_call(search))

    @property
    def total(self) -> list[machine.Timing]:
        """Both steps of each round together."""
        totals = []
        for encoding, searching in zip(self.encoding, self.searching, strict=True):
            wall = encoding.wall + searching.wall
            processor = encoding.processor + searching.processor
            totals.append(machine.Timing(wall, processor))
        return totals


def run_pairs(
    rounds: int = 3,
    against: str | None = "sentence-transformers",
    model: str = DEFAULT_MODEL,
    sentences: int = 10_000,
) -> dict[str, Any]:
    """Plain JSON; ``rows`` is the table, our default first; ``times_ours`` is each side's time divided by it.

    Args:
        rounds: repetitions of each side; the median counts.
        against: a key of ``PEERS``; None = no comparison.
        model: any that all sides can load.
        sentences: at most the 15,457 distinct ones of the STS benchmark.

    Raises:
        InputError: the peer is unknown or not installed, or there are fewer sentences.
    """
    check_peer(against)
    texts = _texts(sentences)
    find_pairs = partial(most_similar_pairs, k=PAIRS)
    sides = []
    for side in ours(model, texts):
        sides.append(PairsSide(side.name, side.dtype, side.encode, find_pairs))
    if against is not None:
        for side in PEERS[against](model, texts):
            sides.append(PairsSide(side.name, side.dtype, side.encode, _mine))
    about = machine.describe()
    # The first call of each side warms up.
    for pairs_side in sides:
        pairs_side.search(pairs_side.encode(texts[:256]))
    work = {f"{side.name}, {side.dtype}": partial(side.run, texts) for side in sides}
    machine.alternate(work, rounds)
    rows = [_pairs_row(side, sides[0]) for side in sides]
    machine.compare(rows)
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
    texts = stsb_sentences("train", "dev", "test")
    if len(texts) < count:
        raise InputError(f"the STS benchmark has {len(texts):,} distinct sentences, not {count:,}")
    return random.Random(0).sample(texts, count)


def stsb_sentences(*splits: str) -> list[str]:
    """The distinct sentences of splits of the STS benchmark."""
    sentences: dict[str, None] = {}
    for split in splits:
        for column in load_data(f"stsb:{split}").columns:
            sentences |= dict.fromkeys(column)
    return list(sentences)


def _mine(vectors: np.ndarray) -> list[tuple[int, int, float]]:
    """sentence-transformers' own search; it returns (cosine, i, j)."""
    from sentence_transformers import util

    mined = util.paraphrase_mining_embeddings(vectors, max_pairs=PAIRS, top_k=PAIRS)
    return [(int(i), int(j), float(cosine)) for cosine, i, j in mined[:PAIRS]]


def _pairs_row(side: PairsSide, first: PairsSide) -> dict[str, Any]:
    """The row of a side, with the number of its pairs that the ``first`` side has found, too."""
    pairs = {pair[:2] for pair in side.pairs}
    pairs_of_first = {pair[:2] for pair in first.pairs}
    return {
        "side": side.name,
        "dtype": side.dtype,
        **machine.summary(side.total),
        "encode_seconds": machine.summary(side.encoding)["seconds"],
        "pairs_seconds": machine.summary(side.searching)["seconds"],
        "best_cosine": round(min(side.pairs[0][2], 1.0), 4),
        "same_best_pairs": len(pairs & pairs_of_first),
    }
