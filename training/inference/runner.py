"""The transformer in inference: no dropout, no gradients, in the chosen precision, on all cores.

An ``InferenceRunner`` holds a copy of a backbone's weights. Architectures of BERT's family and ModernBERT run as
``FusedBert`` and ``FusedModernBert`` on packed rows, any other as its own module on padded batches. ``map`` plans the
batches, computes one per core at a time, and passes the hidden states of each to a function that reduces them, to
sentence vectors for example.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence, Sized
from typing import Generic, Self, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training import parallel
from training.device import pick_dtype, to_device
from training.errors import InputError, Stopped
from training.inference.batching import (
    TOKEN_MULTIPLE,
    PackedBatch,
    Row,
    TokenRows,
    collate,
    pad,
    plan,
    plan_alike,
    plan_rows,
    round_up,
    split_rows,
    token_counts,
)
from training.inference.fused_bert import FusedBert, supports_fused
from training.inference.fused_modernbert import FusedModernBert, supports_fused_modernbert
from training.inference.unpadded import Boundaries, boundaries, plan_unpadded

TOKEN_BUDGET = {"cpu": 1_024, "mps": 8_192, "cuda": 65_536}  # tokens a batch, by type of device
GPU_BATCHES = 3  # under way: one is computed, one waits, one is collated

Result = TypeVar("Result")
Text = TypeVar("Text", bound=Sized)  # a text as token ids, never empty; its length is the number of tokens
Ids = Sequence[int]  # of one sentence
Hidden = tuple[Tensor, Tensor | None]  # hidden states (n, T, D) of n texts, and their mask (n, T); None = no padding
Reduce = Callable[[Tensor, Tensor | None], Result]


class InferenceRunner(ABC, Generic[Text]):
    """A backbone's weights as they were when this was made. Thread-safe."""

    device: torch.device
    batch_size: int | None = None  # texts of a batch at most; None = as many as the token budget holds
    deterministic = False  # whether a text's vector is the same to the bit whatever texts are beside it

    def with_batch_size(self, batch_size: int) -> Self:
        """The same weights, at most ``batch_size`` texts at a time."""
        if batch_size < 1:
            raise InputError(f"the batch size is {batch_size}; it must be at least 1")
        runner = copy.copy(self)
        runner.batch_size = batch_size
        return runner

    def made_deterministic(self) -> Self:
        """The same weights; what a text gives does not depend on the texts beside it."""
        runner = copy.copy(self)
        runner.deterministic = True
        return runner

    def map(
        self, texts: Sequence[Text], reduce: Reduce[Result], should_stop: Callable[[], bool] | None = None
    ) -> Iterator[tuple[list[int], Result]]:
        """Yield for each batch the indices of its texts, and ``reduce`` of their hidden states and mask.

        ``reduce`` runs in a worker thread, in inference mode. ``should_stop`` is asked before each batch; once it
        says yes, the batches that are already running are yielded and ``Stopped`` is raised.
        """
        stopped = False

        def batches() -> Iterator[list[Row]]:
            nonlocal stopped
            for rows in self.plan(token_counts(texts)):
                if should_stop is not None and should_stop():
                    stopped = True
                    return
                yield rows

        def compute(rows: list[Row]) -> tuple[list[int], Result]:
            with torch.inference_mode():
                return [i for row in rows for i in row], reduce(*self.hidden(texts, rows))

        yield from parallel.imap(compute, batches(), self.at_a_time)
        if stopped:
            raise Stopped

    def collect(
        self,
        texts: Sequence[Text],
        reduce: Reduce[np.ndarray],
        shape: tuple[int, ...],
        should_stop: Callable[[], bool] | None = None,
        on_progress: Callable[[int], object] | None = None,
    ) -> np.ndarray:
        """`map` as one array (N, *shape) float32, in the order of the texts.

        ``on_progress`` gets the number of texts that are done, after each batch.
        """
        results, done = np.empty((len(texts), *shape), dtype=np.float32), 0
        for rows, batch in self.map(texts, reduce, should_stop):
            results[rows] = batch
            done = min(done + len(rows), len(texts))
            if on_progress is not None:
                on_progress(done)
        return results

    @property
    def at_a_time(self) -> int:
        """Batches that are under way at a time: one for each core of a CPU; a GPU is busy with one."""
        threads = parallel.num_threads()
        return threads if self.device.type == "cpu" else min(GPU_BATCHES, threads)

    def plan(self, lengths: list[int]) -> Iterator[list[Row]]:
        """Batches within the token budget of the device, as many for each core of a CPU, of nearly equal size."""
        if self.deterministic:
            alike = plan_alike(lengths, TOKEN_BUDGET[self.device.type], self.batch_size)
            return (self.rows(batch) for batch in alike)
        total, threads = sum(lengths), parallel.num_threads() if self.device.type == "cpu" else 1
        per_thread = max(1, -(-total // (threads * TOKEN_BUDGET[self.device.type])))
        batches = self.batches(lengths, round_up(-(-total // (threads * per_thread)), TOKEN_MULTIPLE))
        most = self.batch_size
        return batches if most is None else (part for rows in batches for part in split_rows(rows, most))

    def batches(self, lengths: list[int], token_budget: int) -> Iterator[list[Row]]:
        """Batches of at most ``token_budget`` tokens: rows, which hold the indices of one or more texts each."""
        return ([[int(i)] for i in group] for group in plan(lengths, token_budget))

    def rows(self, batch: Row) -> list[Row]:
        """Texts of one length as the rows of a batch."""
        return [[text] for text in batch]

    @abstractmethod
    def hidden(self, texts: Sequence[Text], rows: list[Row]) -> Hidden:
        """Hidden states and mask of the texts in ``rows``, in the order of the rows."""


class PackedRunner(InferenceRunner[Ids]):
    """Several sentences in a row, through ``FusedBert`` or ``FusedModernBert``; on a GPU all of a batch, if it can."""

    def __init__(self, backbone: nn.Module, dtype: torch.dtype) -> None:
        self.device = next(backbone.parameters()).device
        self.transformer = FusedBert(backbone, dtype) if supports_fused(backbone) else FusedModernBert(backbone, dtype)

    def batches(self, lengths: list[int], token_budget: int) -> Iterator[list[Row]]:
        return plan_unpadded(lengths, token_budget) if self.transformer.unpadded else plan_rows(lengths, token_budget)

    def rows(self, batch: Row) -> list[Row]:
        return [batch] if self.transformer.unpadded else super().rows(batch)

    def hidden(self, texts: Sequence[Ids], rows: list[Row]) -> Hidden:
        transformer = self.transformer
        packed, bias = attention_input(collate(texts, rows), self.device, transformer.dtype, transformer.unpadded)
        return packed.unpack(self.transformer(packed.ids, packed.positions, bias)), packed.mask


class PaddedRunner(InferenceRunner[Ids]):
    """One sentence in a row, through a module of the transformers library."""

    output = "last_hidden_state"  # of the module's outputs, the one that is reduced

    def __init__(self, backbone: nn.Module, dtype: torch.dtype, pad_id: int) -> None:
        self.device = next(backbone.parameters()).device
        self.transformer = copy.deepcopy(backbone).to(dtype).requires_grad_(False).eval()
        self.pad_id = pad_id

    def hidden(self, texts: Sequence[Ids], rows: list[Row]) -> Hidden:
        batch = pad([texts[row[0]] for row in rows], self.pad_id)
        ids, mask = to_device(batch.ids, self.device), batch.mask
        mask = None if mask is None else to_device(mask, self.device)
        attended = self.attended(ids, mask)
        found = self.transformer(input_ids=ids, attention_mask=None if attended is None else attended.long())
        return getattr(found, self.output), mask

    def attended(self, ids: Tensor, mask: Tensor | None) -> Tensor | None:
        """(n, T) bool: the tokens that others attend to; None = all."""
        return mask


def attention_input(
    packed: PackedBatch, device: torch.device, dtype: torch.dtype, unpadded: bool
) -> tuple[PackedBatch, Tensor | Boundaries | None]:
    """A collated batch on the device, and what keeps its sentences apart in attention: a mask, or their boundaries."""
    if unpadded:
        where = boundaries(packed)
        return packed.to(device), where._replace(starts=to_device(where.starts, device))
    packed = packed.to(device)
    return packed, packed.attention_bias(dtype)


def build_runner(
    backbone: nn.Module, dtype: torch.dtype, pad_id: int, calibration: Sequence[Ids] = ()
) -> InferenceRunner[Ids]:
    """A runner for a copy of ``backbone`` in ``dtype``: packed where its architecture allows, else padded.

    ``calibration``: texts that the ranges of int8 are measured on. With int8, ``check_int8`` must have passed.
    """
    if not (supports_fused(backbone) or supports_fused_modernbert(backbone)):
        return PaddedRunner(backbone, dtype, pad_id)
    runner = PackedRunner(backbone, dtype)
    if dtype == torch.int8:
        calibrate(runner, runner.transformer, calibration)
    return runner


def calibrate(runner: InferenceRunner[Text], transformer: FusedBert | FusedModernBert, texts: Sequence[Text]) -> None:
    """Let texts pass through a runner's transformer, made with int8, and fix the ranges that it saw."""
    if not isinstance(transformer, FusedBert) or not texts:
        raise ValueError("int8 is for FusedBert, and needs texts to measure its ranges on")
    for _ in runner.map(texts, lambda hidden, mask: None):
        pass
    transformer.to_int8(pick_dtype("auto", runner.device))


SENTENCES = 2_048  # a batch
STATIC_POOLINGS = ("mean", "mean_sqrt_len_tokens")  # which leave a text of one token as it is


class StaticRunner(InferenceRunner[Ids]):
    """``hidden`` returns the pooled rows of each text (n, 1, D), and no mask. ``pooling``: of `STATIC_POOLINGS`."""

    def __init__(self, table: nn.Embedding, pooling: str = "mean") -> None:
        self.table, self.pooling = table.weight.detach().clone(), pooling
        self.device = self.table.device

    def made_deterministic(self) -> Self:
        return self  # a text's rows are summed by themselves

    def batches(self, lengths: list[int], token_budget: int) -> Iterator[list[Row]]:
        for start in range(0, len(lengths), SENTENCES):
            yield [list(range(start, min(start + SENTENCES, len(lengths))))]

    def hidden(self, texts: Sequence[Ids], rows: list[Row]) -> Hidden:
        part = texts[rows[0][0] : rows[-1][-1] + 1]  # they follow each other
        bags = part if isinstance(part, TokenRows) else TokenRows.of(part)
        ids, offsets, lengths = (
            torch.from_numpy(each).to(self.device) for each in (bags.flat, bags.starts, bags.lengths)
        )
        pooled = F.embedding_bag(ids, self.table, offsets, mode="mean")
        if self.pooling == "mean_sqrt_len_tokens":
            pooled = pooled * lengths.sqrt()[:, None]
        return pooled[:, None], None
