"""Measure what equal texts of a batch do to mnrl: how many pairs are masked, and Spearman's ρ with and without.

    python -m scripts.measure_equal_texts --data snli-dev.csv --seeds 3

Batches are drawn in three ways: as a run does, which keeps rows that share a sentence apart; by length alone, with
equal texts masked; and by length alone, with equal texts as negatives.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch import Tensor

from training.objectives import ranking
from training.trainer import batches
from training.trainer.config import RunConfig
from training.trainer.train import train

WAYS = {  # (rows that share a sentence are kept apart, equal texts are masked)
    "as a run draws them": (True, True),
    "by length, masked": (False, True),
    "by length, not masked": (False, False),
}


@contextmanager
def drawn(apart: bool, masked: bool, counts: list[tuple[int, int]]) -> Iterator[None]:
    """Inside the block runs draw their batches so; ``counts`` gets the (equal, all) pairs of each batch."""
    find, split = ranking.false_negatives, batches.LengthGroupedSampler._split

    def count(texts: Tensor) -> Tensor:
        found = find(texts)
        counts.append((int(found.sum()), found.numel() - len(found)))
        return found if masked else torch.zeros_like(found)

    def by_length(sampler: batches.LengthGroupedSampler, rows: object) -> object:
        sampler.sentences = sampler.sentences if apart else None
        return split(sampler, rows)  # type: ignore[arg-type]

    with (
        patch.object(ranking, "false_negatives", count),
        patch.object(batches.LengthGroupedSampler, "_split", by_length),
    ):
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--base", default="all-MiniLM-L6-v2")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--max-steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    for way, (apart, masked) in WAYS.items():
        found: list[float] = []
        counts: list[tuple[int, int]] = []
        for seed in range(given.seeds):
            config = RunConfig(
                "mnrl",
                base=given.base,
                train_data=given.data,
                batch_size=given.batch_size,
                max_steps=given.max_steps,
                eval_every=given.max_steps,
                seed=seed,
            )
            with drawn(apart, masked, counts):
                result = train(config, on_event=lambda event: None)
            found.append(round(100 * (result.final or {})["spearman"], 2))
        equal, pairs = map(sum, zip(*counts, strict=True))
        deviation = statistics.stdev(found) if len(found) > 1 else None
        figures = {"spearman": found, "mean": statistics.fmean(found), "sd": deviation, "equal": equal / pairs}
        print(json.dumps({"way": way, **figures}), flush=True)


if __name__ == "__main__":
    main()
