"""The training rows as token ids, tokenised once, batch by batch in a run's order."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from training.data.load import Dataset
from training.errors import Stopped
from training.models.encoder import Encoder
from training.trainer.config import RunConfig
from training.trainer.evaluator import targets
from training.trainer.sampler import LengthGroupedSampler
from training.trainer.training_model import Column

TOKENIZED_AT_ONCE = 20_000  # sentences between two looks at should_stop
ROWS_NAMED = 32  # in a message


class TokenizedBatches:
    """Asked for a step, gives its batch.

    Args:
        data: the rows as the objective needs them.
        encoder: whose tokeniser is used.
        config: batch size, seed, and whether the objective takes the other rows of a batch as negatives.
        processes: how many train side by side.
        should_stop: asked now and then while tokenising; `Stopped` is raised if it says yes.
    """

    def __init__(
        self, data: Dataset, encoder: Encoder, config: RunConfig, processes: int, should_stop: Callable[[], bool]
    ) -> None:
        self.data = data
        ids = _tokenize(encoder, [text for column in data.columns for text in column], should_stop)
        self.columns: list[Column] = [[ids[text] for text in column] for column in data.columns]
        self.used = {token for row in ids.values() for token in row}
        self._targets = targets(data)
        lengths = [max(map(len, row)) for row in zip(*self.columns, strict=True)]
        distinct = [frozenset(row) for row in zip(*data.columns, strict=True)] if config.objective == "mnrl" else None
        self._order = LengthGroupedSampler(lengths, config.batch_size, config.seed, distinct, processes)

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps in which every row is seen once."""
        return self._order.steps_per_epoch

    def batch(self, step: int, process: int = 0) -> tuple[list[Column], Tensor | None]:
        """Token ids by column and the targets of a step counted from 0."""
        rows = self._order.rows(step, process)
        target = None if self._targets is None else self._targets[torch.from_numpy(rows)]
        return [[column[row] for row in rows] for column in self.columns], target

    def rows_of(self, step: int, process: int = 0) -> str:
        """The rows of a step by their numbers in the source: "rows 3, 17, 20 of stsb:train"."""
        numbers = sorted(self.data.rows[row] for row in self._order.rows(step, process))
        more = "" if len(numbers) <= ROWS_NAMED else f" and {len(numbers) - ROWS_NAMED} more"
        return f"rows {', '.join(map(str, numbers[:ROWS_NAMED]))}{more} of {self.data.name}"


def _tokenize(encoder: Encoder, sentences: list[str], should_stop: Callable[[], bool]) -> dict[str, list[int]]:
    """The token ids of each different sentence."""
    texts = list(dict.fromkeys(sentences))
    ids: dict[str, list[int]] = {}
    for start in range(0, len(texts), TOKENIZED_AT_ONCE):
        if should_stop():
            raise Stopped
        part = texts[start : start + TOKENIZED_AT_ONCE]
        ids.update(zip(part, encoder.tokenize(part), strict=True))
    return ids
