"""The transformer as ``encode`` runs it: no dropout, no gradients, in the precision of choice, on all cores.

An ``InferenceRunner`` holds a copy of a backbone's weights. Architectures of BERT's family run as ``FusedBert`` on
packed rows; any other runs as its own module on padded batches. Either way ``map`` cuts the work into batches, computes
them side by side (workers.py), and hands each batch's hidden states to the function that reduces them, to sentence
vectors for example. Small jobs of several threads at once share their batches (together.py).
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from training import parallel
from training.errors import Stopped
from training.inference.batching import pad, plan
from training.inference.dynamic_batching import DynamicBatcher
from training.inference.fused_bert import FusedBert, supports_fused
from training.inference.packing import TOKEN_MULTIPLE, Row, collate, plan_rows, round_up

TOKEN_BUDGET = {"cpu": 1_024, "mps": 8_192, "cuda": 32_768}  # tokens a batch
SMALL = 1_024  # tokens up to which a job shares its batches with those of other threads

Result = TypeVar("Result")
Text = TypeVar("Text", bound=Sized)  # what is computed, as token ids; its length is their number
Ids = Sequence[int]  # of a sentence; never none
Hidden = tuple[Tensor, Tensor | None]  # (n, T, D) of n sentences, and which are real (n, T); None = all
Reduce = Callable[[Tensor, Tensor | None], Result]


@dataclass(frozen=True)
class Job(Generic[Text]):
    """What one caller wants: sentences, and what is to be made of their hidden states."""

    texts: Sequence[Text]
    reduce: Reduce[Any]


BatchResults = list[
    tuple[list[int], Any]
]  # batch by batch: the sentences of a job, by number, and what was made of them


class InferenceRunner(ABC, Generic[Text]):
    """A backbone's weights as they were when this was made. Thread-safe."""

    device: torch.device

    def __init__(self) -> None:
        self._small_jobs: DynamicBatcher[Job[Text], BatchResults] = DynamicBatcher(self._share_batches)

    def map(
        self, texts: Sequence[Text], reduce: Reduce[Result], should_stop: Callable[[], bool] | None = None
    ) -> Iterator[tuple[list[int], Result]]:
        """Batch by batch: the sentences it held, by number, and ``reduce`` of their hidden states and mask.

        ``reduce`` runs in a worker's thread, in inference mode. ``should_stop`` is asked before each batch; once it
        says yes, what is under way is given back and ``Stopped`` is raised. A small job is one batch in this.
        """
        lengths = [len(text) for text in texts]
        if sum(lengths) <= SMALL:
            if should_stop is not None and should_stop():
                raise Stopped
            yield from self._small_jobs(Job(texts, reduce))
            return
        stopped = False

        def batches() -> Iterator[list[Row]]:
            nonlocal stopped
            for rows in self._plan(lengths):
                if should_stop is not None and should_stop():
                    stopped = True
                    return
                yield rows

        def compute(rows: list[Row]) -> tuple[list[int], Result]:
            with torch.inference_mode():
                return [i for row in rows for i in row], reduce(*self.hidden(texts, rows))

        yield from parallel.imap(compute, batches())
        if stopped:
            raise Stopped

    def _plan(self, lengths: list[int]) -> Iterator[list[Row]]:
        total, threads = sum(lengths), parallel.num_threads()
        each = -(-total // (threads * TOKEN_BUDGET[self.device.type]))  # batches a worker gets, all as many
        return self.batches(lengths, round_up(-(-total // (threads * max(1, each))), TOKEN_MULTIPLE))

    def _share_batches(self, jobs: list[Job[Text]]) -> list[BatchResults]:
        """Several jobs in the same batches: of each what ``map`` would have given it alone."""
        texts = [text for job in jobs for text in job.texts]
        ends = list(accumulate(len(job.texts) for job in jobs))

        def compute(rows: list[Row]) -> list[tuple[int, list[int], Any]]:
            sentences = [i for row in rows for i in row]
            order = sorted(range(len(sentences)), key=sentences.__getitem__)  # so that a job's are side by side
            found = []
            with torch.inference_mode():
                hidden, mask = self.hidden(texts, rows)
                for number, group in groupby(order, lambda place: bisect_right(ends, sentences[place])):
                    places, job = list(group), jobs[number]
                    numbers = [sentences[place] - ends[number] + len(job.texts) for place in places]
                    reduced = job.reduce(hidden[places], None if mask is None else mask[places])
                    found.append((number, numbers, reduced))
            return found

        reduced: list[BatchResults] = [[] for _ in jobs]
        for found in parallel.imap(compute, self._plan([len(text) for text in texts])):
            for number, numbers, result in found:
                reduced[number].append((numbers, result))
        return reduced

    @abstractmethod
    def batches(self, lengths: list[int], budget: int) -> Iterator[list[Row]]:
        """Sentences that are computed together: rows, which hold the numbers of one or more sentences each."""

    @abstractmethod
    def hidden(self, texts: Sequence[Text], rows: list[Row]) -> Hidden:
        """The hidden states of the sentences in ``rows``, one after the other."""


class PackedRunner(InferenceRunner[Ids]):
    """Several sentences in a row, through ``FusedBert``."""

    def __init__(self, backbone: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.device = next(backbone.parameters()).device
        self.transformer = FusedBert(backbone, dtype)

    def batches(self, lengths: list[int], budget: int) -> Iterator[list[Row]]:
        return plan_rows(lengths, budget)

    def hidden(self, texts: Sequence[Ids], rows: list[Row]) -> Hidden:
        packed = collate(texts, rows).to(self.device)
        bias = packed.attention_bias(self.transformer.dtype)
        return packed.unpack(self.transformer(packed.ids, packed.positions, bias)), packed.mask


class PaddedRunner(InferenceRunner[Ids]):
    """One sentence in a row, through a module of the transformers library."""

    def __init__(self, backbone: nn.Module, dtype: torch.dtype, pad_id: int) -> None:
        super().__init__()
        self.device = next(backbone.parameters()).device
        self.transformer = copy.deepcopy(backbone).to(dtype).requires_grad_(False).eval()
        self.pad_id = pad_id

    def batches(self, lengths: list[int], budget: int) -> Iterator[list[Row]]:
        for group in plan(lengths, budget):
            yield [[int(i)] for i in group]

    def hidden(self, texts: Sequence[Ids], rows: list[Row]) -> Hidden:
        batch = pad([texts[row[0]] for row in rows], self.pad_id)
        mask = None if batch.mask is None else batch.mask.to(self.device, non_blocking=True)
        states = self.transformer(
            input_ids=batch.ids.to(self.device, non_blocking=True),
            attention_mask=None if mask is None else mask.long(),
        ).last_hidden_state
        return states, mask


def build_runner(backbone: nn.Module, dtype: torch.dtype, pad_id: int) -> InferenceRunner[Ids]:
    """``backbone``, copied and prepared to compute in ``dtype``."""
    return PackedRunner(backbone, dtype) if supports_fused(backbone) else PaddedRunner(backbone, dtype, pad_id)
