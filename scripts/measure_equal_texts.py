"""Measure what equal texts of a batch do to mnrl: how many pairs are masked, and Spearman's ρ with and without.

    python -m scripts.measure_equal_texts --data snli-dev.csv --seeds 2

First, without training, the shares of pairs and of rows that the mask concerns, over an epoch with each of three seeds.
Then ρ. Batches are drawn in three ways: as a run does, which keeps rows that share a sentence apart; by length alone,
with equal texts masked; and by length alone, with equal texts as negatives.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from training.models.encoder import Encoder
from training.objectives import ranking, training_data
from training.objectives.base import TEXTS
from training.trainer import batches
from training.trainer.config import RunConfig
from training.trainer.teacher import own_targets
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


def shares(name: str, base: str, size: int) -> Iterator[dict[str, object]]:
    """The shares of (row, candidate) that are equal texts, and of rows with one at least, for each way to sample."""
    data = training_data(name, "mnrl")
    targets = own_targets(data, TEXTS).targets
    assert targets is not None
    encoder = Encoder.load(base, device="cpu")
    lengths = np.max([[len(ids) for ids in encoder.tokenize(column)] for column in data.columns], axis=0).tolist()
    rows = [frozenset(map(str, row)) for row in targets.values.tolist()]
    ways = {"as a run": (lengths, rows), "by length": (lengths, None), "at random": ([1] * len(rows), None)}
    for way, given in ways.items():
        found = []
        for seed in range(3):
            sampler = batches.LengthGroupedSampler(given[0], size, seed, given[1])
            steps = (torch.from_numpy(sampler.rows(step)) for step in range(sampler.steps_per_epoch))
            found += [ranking.false_negatives(targets[step]) for step in steps]
        pairs = sum(int(each.sum()) for each in found) / sum(each.numel() - len(each) for each in found)
        some = sum(int(each.any(1).sum()) for each in found) / sum(map(len, found))
        yield {"sampled": way, "batch_size": size, "pairs": pairs, "rows": some}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--base", default="all-MiniLM-L6-v2")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--max-steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    for size in (32, 64, 256):
        for each in shares(given.data, given.base, size):
            print(json.dumps(each), flush=True)
    if not given.seeds:
        return
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
