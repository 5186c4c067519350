"""In which order a run sees its rows: batches of similar length, shuffled, the same for the same seed.

An epoch's rows are shuffled, cut into pools of `POOL` batches, sorted by length inside each pool and cut into
batches, whose order is shuffled again. So a batch holds sentences of similar length (the paper's smart batching,
section 7) but a different set of them in each epoch. Everything is a function of (seed, epoch): the batch of step
1,234 can be asked for without having seen the steps before it, which is what makes resuming exact.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from functools import cached_property

import numpy as np

POOL = 100  # batches that are sorted together


class LengthGroupedSampler:
    """The rows of each optimiser step.

    Args:
        lengths: (N,) tokens of each row's longest sentence.
        batch_size: rows a batch; each of ``processes`` gets a batch of its own in every step.
        seed: of the shuffling.
        distinct: for each row its sentences, to keep two rows that share one out of the same batch as far as
            possible; in-batch negatives need that. None where it does not matter.
        processes: how many train side by side.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        batch_size: int,
        seed: int,
        distinct: Sequence[frozenset[str]] | None = None,
        processes: int = 1,
    ) -> None:
        self.lengths = np.asarray(lengths, dtype=np.int64)
        self.batch_size, self.seed, self.distinct, self.processes = batch_size, seed, distinct, processes
        self._epoch: tuple[int, list[np.ndarray]] = (-1, [])

    @cached_property
    def steps_per_epoch(self) -> int:
        """Optimiser steps in which every row is seen once (the last step may see a few twice)."""
        return math.ceil(math.ceil(len(self.lengths) / self.batch_size) / self.processes)

    def rows(self, step: int, process: int = 0) -> np.ndarray:
        """The rows of the step with this number, counted from 0 over all epochs. (n,) int64."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if self._epoch[0] != epoch:
            self._epoch = (epoch, self._plan(epoch))
        batches = self._epoch[1]
        return batches[(position * self.processes + process) % len(batches)]

    def _plan(self, epoch: int) -> list[np.ndarray]:
        random = np.random.default_rng([self.seed, epoch])
        shuffled = random.permutation(len(self.lengths))
        batches = []
        for start in range(0, len(shuffled), POOL * self.batch_size):
            pool = shuffled[start : start + POOL * self.batch_size]
            ordered = pool[np.argsort(self.lengths[pool], kind="stable")]
            batches += self._cut(ordered)
        return [batches[i] for i in random.permutation(len(batches))]

    def _cut(self, ordered: np.ndarray) -> list[np.ndarray]:
        size = self.batch_size
        if self.distinct is None:
            return [ordered[start : start + size] for start in range(0, len(ordered), size)]
        waiting, batches = deque(ordered.tolist()), []
        while waiting:
            batch: list[int] = []
            skipped: list[int] = []
            seen: set[str] = set()
            while waiting and len(batch) < size:
                row = waiting.popleft()
                fits = seen.isdisjoint(self.distinct[row])
                (batch if fits else skipped).append(row)
                if fits:
                    seen |= self.distinct[row]
            room = size - len(batch)  # left only when every row that waits shares a sentence with the batch
            batch += skipped[:room]
            waiting.extendleft(reversed(skipped[room:]))
            batches.append(np.array(batch, dtype=np.int64))
        return batches


def learning_rate(step: int, total: int, peak: float, warmup: float) -> float:
    """Linear warm-up over the first ``warmup`` share of ``total`` steps, then linear decay to 0 (section 3.1).

    ``step`` counts from 0. The first step's rate is 0, as in transformers' schedule of the same name.
    """
    warm = math.ceil(total * warmup)
    if step < warm:
        return peak * step / warm
    return peak * max(0, total - step) / max(1, total - warm)
