"""The batches of a run: sampling in groups of similar length, and the training data as token ids.

An epoch's rows are shuffled, cut into pools of `POOL` batches, sorted by length within each pool and cut into batches,
whose order is shuffled again. So a batch holds sentences of similar length (the paper's smart batching, section 7),
but other sentences together in each epoch. The order is a function of (seed, epoch): the batch of any step can be
computed without those before it, which makes resuming exact.

Several parts of training data, with an objective each, have batches of their own, which `MixedBatches` puts in order.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from training.data.dataset import folded
from training.errors import Stopped
from training.models.encoder import Encoder
from training.trainer.config import PROPORTIONAL, RunConfig
from training.trainer.cross_encoder import TrainableCrossEncoder
from training.trainer.language_model import TrainableLanguageModel
from training.trainer.replica import TokenIds
from training.trainer.teacher import Examples

POOL = 100
TOKENIZE_CHUNK = 20_000
ROWS_NAMED = 32


class LengthGroupedSampler:
    """The rows of each optimiser step. Each of the ``processes`` gets a batch of its own in every step.

    ``lengths`` (N,) are the tokens of each row's longest sentence. Rows that have one of their ``sentences`` in common
    are kept out of the same batch as far as possible, as in-batch negatives need it; None where it does not matter.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        batch_size: int,
        seed: int,
        sentences: Sequence[frozenset[str]] | None = None,
        processes: int = 1,
    ) -> None:
        self.lengths = np.asarray(lengths, dtype=np.int64)
        self.batch_size = batch_size
        self.seed = seed
        self.sentences = sentences
        self.processes = processes
        # An epoch has every row once; with several processes it has a few twice.
        self.steps_per_epoch = math.ceil(math.ceil(len(self.lengths) / batch_size) / processes)
        self._epoch: tuple[int, list[np.ndarray]] = (-1, [])

    def rows(self, step: int, process: int = 0) -> np.ndarray:
        """Row numbers (B,) int64 of a step, which is counted from 0 over all epochs."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if self._epoch[0] != epoch:
            self._epoch = (epoch, self._batches(epoch))
        batches = self._epoch[1]
        return batches[(position * self.processes + process) % len(batches)]

    def _batches(self, epoch: int) -> list[np.ndarray]:
        random = np.random.default_rng([self.seed, epoch])
        shuffled = random.permutation(len(self.lengths))
        batches = []
        for start in range(0, len(shuffled), POOL * self.batch_size):
            pool = shuffled[start : start + POOL * self.batch_size]
            batches += self._split(pool[np.argsort(self.lengths[pool], kind="stable")])
        return [batches[i] for i in random.permutation(len(batches))]

    def _split(self, rows: np.ndarray) -> list[np.ndarray]:
        size = self.batch_size
        if self.sentences is None:
            return [rows[start : start + size] for start in range(0, len(rows), size)]
        remaining = deque(rows.tolist())
        batches = []
        while remaining:
            batch: list[int] = []
            skipped: list[int] = []
            texts: set[str] = set()
            while remaining and len(batch) < size:
                row = remaining.popleft()
                is_distinct = texts.isdisjoint(self.sentences[row])
                (batch if is_distinct else skipped).append(row)
                if is_distinct:
                    texts |= self.sentences[row]
            # There is room only if every remaining row shares a sentence with the batch.
            room = size - len(batch)
            batch += skipped[:room]
            remaining.extendleft(reversed(skipped[room:]))
            batches.append(np.array(batch, dtype=np.int64))
        return batches


class TokenizedBatches:
    """The training data, in the form that the objective needs, as token ids; and the rows of each step.

    The data is tokenised once, each column with the prompt of its role. Raises Stopped if ``should_stop`` returns true
    meanwhile. With ``uses_batch``, a fact of the objective, rows with a common sentence are in different batches.
    """

    def __init__(
        self,
        examples: Examples,
        encoder: Encoder | TrainableCrossEncoder | TrainableLanguageModel,
        config: RunConfig,
        uses_batch: bool,
        processes: int,
        should_stop: Callable[[], bool],
    ) -> None:
        self.data = data = examples.data
        # A cross-encoder reads the sentences of a row together: one column of pairs.
        pairs = isinstance(encoder, TrainableCrossEncoder)
        inputs: Sequence[Any] = [list(zip(*data.columns, strict=True))] if pairs else data.columns
        roles = [config.role(number) for number in range(len(inputs))]
        ids: dict[str | None, dict[Any, Any]] = {role: {} for role in roles}
        for role, ids_of_role in ids.items():
            reader: Any = encoder.for_role(role) if role and isinstance(encoder, Encoder) else encoder
            columns = (column for column, its_role in zip(inputs, roles, strict=True) if its_role == role)
            texts = list(dict.fromkeys(chain.from_iterable(columns)))
            for start in range(0, len(texts), TOKENIZE_CHUNK):
                if should_stop():
                    raise Stopped
                chunk = texts[start : start + TOKENIZE_CHUNK]
                ids_of_role.update(zip(chunk, reader.tokenize(chunk), strict=True))
        self.columns: list[TokenIds] = [
            [ids[role][text] for text in column] for column, role in zip(inputs, roles, strict=True)
        ]
        self.used = {token for ids_of_role in ids.values() for sentence in ids_of_role.values() for token in sentence}
        self.targets = examples.targets
        lengths = [max(map(len, row)) for row in zip(*self.columns, strict=True)]
        sentences = [frozenset(map(folded, row)) for row in zip(*data.columns, strict=True)] if uses_batch else None
        self.sampler = LengthGroupedSampler(lengths, config.batch_size, config.seed, sentences, processes)


class MixedBatches:
    """The batches of a run: each is of one of its parts, in an order that is a function of (seed, epoch).

    With ``proportional`` an epoch has all batches of all parts, shuffled (`ProportionalBatchSampler` of
    sentence-transformers). With ``round-robin`` it has the same number of batches of every part, as many as the
    smallest one has (`RoundRobinBatchSampler`), and the next epoch continues where the larger parts stopped.
    """

    def __init__(self, parts: Sequence[TokenizedBatches], config: RunConfig) -> None:
        self.parts = parts
        self.seed = config.seed
        self.is_shuffled = config.mix == PROPORTIONAL
        # The batches of each part in an epoch.
        self.steps = config.steps_of_parts([part.sampler.steps_per_epoch for part in parts])
        self.steps_per_epoch = sum(self.steps)
        self.used = set().union(*(part.used for part in parts))
        self.columns = max(len(part.columns) for part in parts)
        self._epoch: tuple[int, np.ndarray] = (-1, np.empty(0))

    def part(self, step: int) -> tuple[int, int]:
        """The part whose batch a step has, by its number, and which of that part's own steps it is."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if self._epoch[0] != epoch:
            order = np.tile(np.arange(len(self.parts)), self.steps[0])
            if self.is_shuffled:
                parts = np.repeat(np.arange(len(self.parts)), self.steps)
                order = np.random.default_rng([self.seed, epoch]).permutation(parts)
            self._epoch = (epoch, order)
        order = self._epoch[1]
        part = int(order[position])
        return part, epoch * self.steps[part] + int((order[:position] == part).sum())

    def batch(self, step: int, process: int = 0) -> tuple[list[TokenIds], Tensor | None, int]:
        """Token ids of each column, the targets (B,), and the number of the part that the rows of a step belong to."""
        number, own_step = self.part(step)
        part = self.parts[number]
        rows = part.sampler.rows(own_step, process)
        target = None if part.targets is None else part.targets[torch.from_numpy(rows)]
        return [[column[row] for row in rows] for column in part.columns], target, number

    def describe_rows(self, step: int, process: int = 0) -> str:
        """The rows of a step by their numbers in the source, such as "rows 3, 17, 20 of stsb:train"."""
        number, own_step = self.part(step)
        part = self.parts[number]
        numbers = sorted(part.data.rows[row] for row in part.sampler.rows(own_step, process))
        more = "" if len(numbers) <= ROWS_NAMED else f" and {len(numbers) - ROWS_NAMED} more"
        return f"rows {', '.join(map(str, numbers[:ROWS_NAMED]))}{more} of {part.data.name}"
