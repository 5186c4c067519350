"""The batches of a run: sampling in groups of similar length, and the training data as token ids.

An epoch's rows are shuffled, cut into pools of `POOL` batches, sorted by length within each pool
and cut into batches, whose order is shuffled again. So a batch holds sentences of similar length
(the paper's smart batching, section 7), and each epoch combines other sentences. The order is a
function of (seed, epoch): the batch of any step can be computed without the earlier batches, which
makes resuming exact.

Training data may have several parts, with an objective each. Each part has its own batches, and
`MixedBatches` decides their order.
"""

import math
from collections import deque
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from training.data.dataset import folded
from training.errors import StoppedError
from training.models.encoder import Encoder
from training.progress import ShouldStop
from training.trainer.config import PROPORTIONAL, RunConfig
from training.trainer.cross_encoder import TrainableCrossEncoder
from training.trainer.language_model import TrainableLanguageModel
from training.trainer.replica import TokenIds
from training.trainer.teacher import Examples

# The number of batches whose rows are sorted by length together.
POOL = 100
# The number of texts that are tokenised between two checks for a stop.
TOKENIZE_CHUNK = 20_000
# The most row numbers that `MixedBatches.describe_rows` lists.
ROWS_NAMED = 32


class LengthGroupedSampler:
    """Chooses the rows of each step, which is one batch for each of the ``processes``.

    ``lengths`` (N,) are the tokens of each row's longest sentence. Rows that share one of their
    ``sentences`` are put into different batches as far as possible, because they are wrong
    negatives of each other; ``sentences`` is None if the objective does not use in-batch negatives.
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
        # None if rows with common sentences may share a batch.
        self.sentences = sentences
        self.processes = processes
        # An epoch has every row once. With several processes its last step may repeat the first
        # batches.
        batches = math.ceil(len(self.lengths) / batch_size)
        self.steps_per_epoch = math.ceil(batches / processes)
        # The epoch of the last call, and its batches.
        self._epoch: tuple[int, list[np.ndarray]] = (-1, [])

    def rows(self, step: int, process: int = 0) -> np.ndarray:
        """Returns the row numbers (B,) int64 of a step, counted from 0 over all epochs."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if self._epoch[0] != epoch:
            self._epoch = (epoch, self._batches(epoch))
        batches = self._epoch[1]
        # In the last step of an epoch, processes without a batch of their own repeat the first
        # ones.
        return batches[(position * self.processes + process) % len(batches)]

    def _batches(self, epoch: int) -> list[np.ndarray]:
        """Returns the row numbers of each batch of an epoch, in the order of training."""
        random = np.random.default_rng([self.seed, epoch])
        shuffled = random.permutation(len(self.lengths))
        pool_size = POOL * self.batch_size
        batches = []
        for start in range(0, len(shuffled), pool_size):
            pool = shuffled[start : start + pool_size]
            by_length = np.argsort(self.lengths[pool], kind="stable")
            batches += self._split(pool[by_length])
        return [batches[i] for i in random.permutation(len(batches))]

    def _split(self, rows: np.ndarray) -> list[np.ndarray]:
        """Cuts rows into batches. Rows with common sentences go into different batches as far as possible."""
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
                if texts.isdisjoint(self.sentences[row]):
                    batch.append(row)
                    texts |= self.sentences[row]
                else:
                    skipped.append(row)
            # There is room left only if every remaining row shares a sentence with the batch. Then
            # such rows fill it.
            room = size - len(batch)
            batch += skipped[:room]
            # The other skipped rows go back to the front, so the rows stay sorted by length.
            remaining.extendleft(reversed(skipped[room:]))
            batches.append(np.array(batch, dtype=np.int64))
        return batches


class TokenizedBatches:
    """Training data as token ids, in the form that the objective needs, and the rows of each step.

    The data is tokenised once, each column with the prompt of its role. Raises StoppedError if
    ``should_stop`` returns true during that. ``uses_batch`` is an attribute of the objective: rows
    with a common sentence go into different batches.
    """

    def __init__(
        self,
        examples: Examples,
        encoder: Encoder | TrainableCrossEncoder | TrainableLanguageModel,
        config: RunConfig,
        uses_batch: bool,
        processes: int,
        should_stop: ShouldStop,
    ) -> None:
        self.data = examples.data
        self.targets = examples.targets
        inputs: Sequence[Any] = self.data.columns
        if isinstance(encoder, TrainableCrossEncoder):
            # A cross-encoder reads the sentences of a row together: one column of pairs.
            inputs = [list(zip(*self.data.columns, strict=True))]
        # The role of each column, query or document, which decides its prompt. All are None if the
        # config sets no prompt.
        roles = [config.role(number) for number in range(len(inputs))]
        # The token ids that occur in the data.
        self.used: set[int] = set()
        # By role and text, so that a text of several rows is tokenised once with each prompt.
        ids: dict[str | None, dict[Any, Any]] = {}
        for role in dict.fromkeys(roles):
            reader: Any = encoder
            # The config refuses prompts for other models than an `Encoder`.
            if role and isinstance(encoder, Encoder):
                reader = encoder.for_role(role)
            columns = []
            for column, column_role in zip(inputs, roles, strict=True):
                if column_role == role:
                    columns.append(column)
            texts = list(dict.fromkeys(chain.from_iterable(columns)))
            ids[role] = {}
            for start in range(0, len(texts), TOKENIZE_CHUNK):
                if should_stop():
                    raise StoppedError
                chunk = texts[start : start + TOKENIZE_CHUNK]
                ids[role].update(zip(chunk, reader.tokenize(chunk), strict=True))
            self.used.update(chain.from_iterable(ids[role].values()))
        self.columns: list[TokenIds] = []
        for column, role in zip(inputs, roles, strict=True):
            self.columns.append([ids[role][text] for text in column])

        # The tokens of each row's longest sentence.
        lengths = [max(map(len, row)) for row in zip(*self.columns, strict=True)]
        sentences = None
        # If the objective ``uses_batch``, the rows of a batch are negatives of each other, and
        # should not have a common sentence.
        if uses_batch:
            rows = zip(*self.data.columns, strict=True)
            # Texts that differ only in case or white space count as one sentence.
            sentences = [frozenset(map(folded, row)) for row in rows]
        self.sampler = LengthGroupedSampler(
            lengths, config.batch_size, config.seed, sentences, processes
        )


class MixedBatches:
    """The batches of a run. Each belongs to one of its parts, in an order that is a function of (seed, epoch).

    A step is one batch here. With gradient accumulation an optimiser step takes several of them.

    With the mix "proportional" an epoch has all batches of all parts, shuffled
    (`ProportionalBatchSampler` of sentence-transformers). With "round-robin" it has as many batches
    of each part as the smallest part has (`RoundRobinBatchSampler`), and the next epoch continues
    with the following batches.
    """

    def __init__(self, parts: Sequence[TokenizedBatches], config: RunConfig) -> None:
        self.parts = parts
        self.seed = config.seed
        self.is_shuffled = config.mix == PROPORTIONAL
        # The number of batches of each part in an epoch.
        self.steps = config.steps_of_parts([part.sampler.steps_per_epoch for part in parts])
        self.steps_per_epoch = sum(self.steps)
        # The token ids that occur in the data of any part.
        self.used = set().union(*(part.used for part in parts))
        # The most columns of a batch.
        self.columns = max(len(part.columns) for part in parts)
        # The epoch of the last call, and the part of each of its steps.
        self._epoch: tuple[int, np.ndarray] = (-1, np.empty(0))

    def part(self, step: int) -> tuple[int, int]:
        """Returns the number of the part that a step takes its batch from, and that part's own step."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if self._epoch[0] != epoch:
            parts = np.arange(len(self.parts))
            if self.is_shuffled:
                random = np.random.default_rng([self.seed, epoch])
                order = random.permutation(np.repeat(parts, self.steps))
            else:
                # The parts take turns. `RunConfig.steps_of_parts` gives all of them the same number
                # of batches.
                order = np.tile(parts, self.steps[0])
            self._epoch = (epoch, order)
        order = self._epoch[1]
        part = int(order[position])
        # The part's own steps are counted over all epochs.
        earlier = int((order[:position] == part).sum())
        return part, epoch * self.steps[part] + earlier

    def batch(self, step: int, process: int = 0) -> tuple[list[TokenIds], Tensor | None, int]:
        """Returns the token ids of each column, the targets (B,), and the number of the part of a step."""
        number, own_step = self.part(step)
        part = self.parts[number]
        rows = part.sampler.rows(own_step, process)
        columns: list[TokenIds] = [[column[row] for row in rows] for column in part.columns]
        target = None if part.targets is None else part.targets[torch.from_numpy(rows)]
        return columns, target, number

    def describe_rows(self, step: int, process: int = 0) -> str:
        """Names the rows of a step by their numbers in the source, such as "rows 3, 17, 20 of stsb:train"."""
        number, own_step = self.part(step)
        part = self.parts[number]
        numbers = sorted(part.data.rows[row] for row in part.sampler.rows(own_step, process))
        text = ", ".join(map(str, numbers[:ROWS_NAMED]))
        if len(numbers) > ROWS_NAMED:
            text += f" and {len(numbers) - ROWS_NAMED} more"
        return f"rows {text} of {part.data.name}"
