"""Scaling: the cost of encoding against the number of sentences and their length, and the gain of smart batching.

- ``by_count``: sentences of the STS benchmark, repeated with a number at the end (so that they are
  distinct), from 1,000 on: time should be proportional to the number, memory constant.
- ``by_length``: the same number of tokens as texts of 8 to 512 tokens: the time per token should be
  constant until attention, which is quadratic in the length, becomes noticeable.
- ``smart_batching``: batches in the order of the sentences, padded to the longest sentence of each;
  batches of similar length (the paper's section 7, where they gain 89% on a CPU and 48% on a GPU,
  Table 7); and packed rows, as in ``encode``.
"""

import resource
from collections.abc import Iterator
from functools import partial
from itertools import cycle, islice
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.encode import stsb_sentences
from training.inference.batching import Row
from training.inference.runner import InferenceRunner, PaddedRunner
from training.models.encoder import Encoder
from training.pooling import mean

COUNTS = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
# From this number of sentences on, one measurement suffices.
SINGLE_ROUND_FROM = 100_000
LENGTHS = (8, 16, 32, 64, 128, 256, 512)
# Tokens of each length.
TOKENS = 32_768
# Sentences of a batch in `InOrder`.
BATCH = 32
# Table 7, in sentences per second.
PAPER = {"CPU": {"without": 44, "with": 83}, "GPU": {"without": 1378, "with": 2042}}


class InOrder(PaddedRunner):
    """A runner without smart batching: 32 sentences at a time, in the order of the input."""

    def batches(self, lengths: list[int], budget: int) -> Iterator[list[Row]]:
        for start in range(0, len(lengths), BATCH):
            end = min(start + BATCH, len(lengths))
            # Each row has one sentence.
            yield [[sentence] for sentence in range(start, end)]


def run(rounds: int = 3, model: str = "all-MiniLM-L6-v2", most: int = COUNTS[-1]) -> dict[str, Any]:
    """Plain JSON, measured in the machine's default precision; every list is a table.

    Args:
        rounds: measurements of each point, of the largest numbers only one; the median counts.
        model: any encoder.
        most: the largest number of sentences.
    """
    encoder = Encoder.load(model)
    about = machine.describe()
    sentences = stsb_sentences("test")
    # The first call warms up.
    encoder.encode(sentences[:256])
    return {
        "benchmark": "scaling",
        "model": model,
        "dtype": str(encoder.dtype).removeprefix("torch."),
        "rounds": rounds,
        "by_count": [
            _by_count(encoder, sentences, count, rounds) for count in COUNTS if count <= most
        ],
        "by_length": [_by_length(encoder, length, rounds) for length in LENGTHS],
        "smart_batching": _smart_batching(encoder, sentences, rounds),
        "paper_table_7": PAPER,
        "machine": about,
    }


def _by_count(encoder: Encoder, sentences: list[str], count: int, rounds: int) -> dict[str, Any]:
    texts = [f"{text} {number}" for number, text in enumerate(islice(cycle(sentences), count))]

    def encode() -> None:
        for _ in encoder.encode_stream(texts):
            pass

    if count >= SINGLE_ROUND_FROM:
        rounds = 1
    figures = machine.summary([machine.time_call(encode) for _ in range(rounds)])
    return {
        "sentences": count,
        **figures,
        "sentences_per_second": round(count / figures["seconds"]),
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _by_length(encoder: Encoder, length: int, rounds: int) -> dict[str, Any]:
    draw = np.random.default_rng(length)
    vocabulary = int(encoder.backbone.config.vocab_size)
    ids = draw.integers(0, vocabulary, (TOKENS // length, length)).tolist()
    work = partial(_compute_all, encoder.inference, ids)
    figures = machine.summary([machine.time_call(work) for _ in range(rounds)])
    return {
        "tokens_each": length,
        "sentences": len(ids),
        **figures,
        "microseconds_per_token": round(1e6 * figures["seconds"] / TOKENS, 2),
    }


def _smart_batching(encoder: Encoder, sentences: list[str], rounds: int) -> list[dict[str, Any]]:
    tokenizer: Any = encoder.tokenizer
    ids = encoder.tokenize(sentences)
    pad_id = int(tokenizer.pad_token_id or 0)
    runners: dict[str, InferenceRunner] = {
        "batches in the given order": InOrder(encoder.backbone, encoder.dtype, pad_id),
        "smart batches": PaddedRunner(encoder.backbone, encoder.dtype, pad_id),
        "packed rows": encoder.inference,
    }
    work = {name: partial(_compute_all, runner, ids) for name, runner in runners.items()}
    times = machine.alternate(work, rounds)
    first = machine.summary(times["batches in the given order"])
    rows = []
    for name, timings in times.items():
        summary = machine.summary(timings)
        speed_up = first["seconds"] / summary["seconds"]
        processor_speed_up = first["processor_seconds"] / summary["processor_seconds"]
        row = {
            "batching": name,
            **summary,
            "sentences_per_second": round(len(ids) / summary["seconds"]),
            "gain_percent": round(100 * (speed_up - 1)),
            "processor_gain_percent": round(100 * (processor_speed_up - 1)),
        }
        rows.append(row)
    return rows


def _compute_all(runner: InferenceRunner, ids: list[list[int]]) -> None:
    for _ in runner.map(ids, mean):
        pass
