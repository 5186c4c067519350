"""Runs a transformer in inference: without dropout and gradients, in the chosen precision, on all cores.

An ``InferenceRunner`` holds a copy of a backbone's weights. Architectures of BERT's family and
ModernBERT run as ``FusedBert`` and ``FusedModernBert`` on packed rows, all others as their own
modules on padded batches. ``map`` plans the batches, computes one per core at a time, and passes
the hidden states of each to a function that reduces them, for example to sentence vectors.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence, Sized
from itertools import chain
from typing import Any, Generic, Self, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from training import parallel
from training.device import pick_dtype, to_device
from training.errors import InputError, StoppedError
from training.inference import batching
from training.inference.batching import Boundaries, PackedBatch, Row
from training.inference.fused_bert import (
    FusedBert,
    FusedModernBert,
    supports_fused,
    supports_fused_modernbert,
)
from training.inference.layers import has_int8
from training.pooling import is_finite

TOKEN_BUDGET = {"cpu": 1_024, "mps": 8_192, "cuda": 65_536}  # tokens per batch, by type of device
GPU_BATCHES = 3  # batches in progress on a GPU: one is computed, one waits, one is collated
PROBED_LENGTH = 9  # a text of three tokens is padded to this length

Result = TypeVar("Result")
# A text as token ids, never empty. Its length is the number of tokens.
Text = TypeVar("Text", bound=Sized)
Ids = Sequence[int]
# Hidden states (n, T, D) of n texts, and their mask (n, T); None = no padding.
Hidden = tuple[Tensor, Tensor | None]
Reduce = Callable[[Tensor, Tensor | None], Result]


class InferenceRunner(ABC, Generic[Text]):
    """Computes hidden states with a copy of a backbone's weights, which later training does not change. Thread-safe."""

    device: torch.device
    # The most texts in a batch; None for as many as the token budget allows.
    batch_size: int | None = None
    deterministic = False  # whether a text's vector has the same bits whatever texts are beside it

    def with_batch_size(self, batch_size: int) -> Self:
        """Returns a runner of the same weights that computes at most ``batch_size`` texts at a time."""
        if batch_size < 1:
            raise InputError(f"the batch size is {batch_size}; it must be at least 1")
        runner = copy.copy(self)
        runner.batch_size = batch_size
        return runner

    def made_deterministic(self) -> Self:
        """Returns a runner of the same weights whose results for a text do not depend on the texts beside it."""
        runner = copy.copy(self)
        runner.deterministic = True
        return runner

    def map(
        self,
        texts: Sequence[Text],
        reduce: Reduce[Result],
        should_stop: Callable[[], bool] | None = None,
    ) -> Iterator[tuple[list[int], Result]]:
        """Yields for each batch the indices of its texts, and ``reduce`` of their hidden states and mask.

        ``reduce`` runs in a worker thread, in inference mode. ``should_stop`` is called before each
        batch; once it returns True, the batches that are already running are yielded and
        ``StoppedError`` is raised.
        """
        stopped = False

        def batches() -> Iterator[list[Row]]:
            nonlocal stopped
            for rows in self.plan(list(map(len, texts))):
                if should_stop is not None and should_stop():
                    stopped = True
                    return
                yield rows

        def compute(rows: list[Row]) -> tuple[list[int], Result]:
            with torch.inference_mode():
                hidden, mask = self.hidden(texts, rows)
                return list(chain.from_iterable(rows)), reduce(hidden, mask)

        yield from parallel.imap(compute, batches(), self.at_a_time)
        if stopped:
            raise StoppedError

    def collect(
        self,
        texts: Sequence[Text],
        reduce: Reduce[np.ndarray],
        shape: tuple[int, ...],
        should_stop: Callable[[], bool] | None = None,
        on_progress: Callable[[int], object] | None = None,
    ) -> np.ndarray:
        """Returns the results of `map` as one array (N, *shape) float32, in the order of the texts.

        ``on_progress`` is called with the number of texts that are done, after each batch. A text
        without a finite result is computed again alone: NaN of one text reaches the other texts in
        a row, as 0 · NaN is NaN.
        """
        results = np.empty((len(texts), *shape), dtype=np.float32)
        done = 0
        for indices, batch in self.map(texts, reduce, should_stop):
            results[indices] = batch
            # Deterministic batches repeat texts.
            done = min(done + len(indices), len(texts))
            if on_progress is not None:
                on_progress(done)
        not_finite = np.flatnonzero(~is_finite(results))
        if len(not_finite):
            alone = [texts[row] for row in not_finite.tolist()]
            for indices, batch in self.with_batch_size(1).map(alone, reduce, should_stop):
                results[not_finite[indices]] = batch
        return results

    @property
    def at_a_time(self) -> int:
        """The number of batches in progress at a time: one per core of a CPU, few on a GPU."""
        threads = parallel.num_threads()
        return threads if self.device.type == "cpu" else min(GPU_BATCHES, threads)

    def plan(self, lengths: list[int]) -> Iterator[list[Row]]:
        """Yields batches within the device's token budget, equally many for each CPU core, of nearly equal size."""
        most_tokens = TOKEN_BUDGET[self.device.type]
        if self.deterministic:
            # The budget of these batches does not depend on the other texts. `plan_alike` groups the
            # texts, and `rows` arranges each group in rows.
            for batch in batching.plan_alike(lengths, most_tokens, self.batch_size):
                yield self.rows(batch)
            return
        total = sum(lengths)
        threads = parallel.num_threads() if self.device.type == "cpu" else 1
        batches_per_thread = max(1, math.ceil(total / (threads * most_tokens)))
        num_batches = threads * batches_per_thread
        budget = batching.round_up(math.ceil(total / num_batches), batching.TOKEN_MULTIPLE)
        for rows in self.batches(lengths, budget):
            if self.batch_size is None:
                yield rows
            else:
                yield from batching.split_rows(rows, self.batch_size)

    def batches(self, lengths: list[int], token_budget: int) -> Iterator[list[Row]]:
        """Yields batches of at most ``token_budget`` tokens: lists of rows with the indices of one or more texts."""
        for batch in batching.plan(lengths, token_budget):
            yield self.rows(batch.tolist())

    def rows(self, batch: Row) -> list[Row]:
        """Arranges the texts of a batch in rows: here one text in each."""
        return [[text] for text in batch]

    @abstractmethod
    def hidden(self, texts: Sequence[Text], rows: list[Row]) -> Hidden:
        """Computes hidden states and mask of the texts in ``rows``, in the order of the rows."""

    @torch.inference_mode()
    def reads_padding(self, texts: Sequence[Text], dtype: torch.dtype) -> bool:
        """Tells whether the results of the first text change, beyond rounding, beside the longer second text."""
        alone, _ = self.hidden(texts, [[0]])
        together, _ = self.hidden(texts, [[0], [1]])
        # The first text without its padding. The shapes are (n, T, D), or (n,) if the runner is of a
        # cross-encoder, whose `hidden` returns scores.
        first = together[tuple(map(slice, alone.shape))]
        tolerance = 1e-4 if dtype == torch.float32 else 0.02
        return not torch.allclose(alone.float(), first.float(), tolerance, tolerance)


class PackedRunner(InferenceRunner[Text]):
    """Computes with ``FusedBert`` or ``FusedModernBert``, several sentences in a row, or on some GPUs a whole batch."""

    def __init__(self, backbone: nn.Module, dtype: torch.dtype) -> None:
        self.device = next(backbone.parameters()).device
        # The caller has checked that one of the two supports the backbone.
        self.transformer: FusedBert | FusedModernBert
        if supports_fused(backbone):
            self.transformer = FusedBert(backbone, dtype)
        else:
            self.transformer = FusedModernBert(backbone, dtype)
        self.unpadded = self.transformer.unpadded

    def batches(self, lengths: list[int], token_budget: int) -> Iterator[list[Row]]:
        plan = batching.plan_unpadded if self.unpadded else batching.plan_rows
        return plan(lengths, token_budget)

    def rows(self, batch: Row) -> list[Row]:
        return [batch] if self.unpadded else super().rows(batch)

    def pack(
        self, texts: Sequence[Text], rows: list[Row]
    ) -> tuple[PackedBatch, Tensor | Boundaries | None]:
        """Makes a batch on the device, and the mask or boundaries that separate its sentences in attention.

        None in place of a mask if each row is filled by one sentence.
        """
        batch = batching.collate(texts, rows)
        if self.unpadded:
            boundaries = batching.boundaries(batch)
            starts = to_device(boundaries.starts, self.device)
            return batch.to(self.device), boundaries._replace(starts=starts)
        batch = batch.to(self.device)
        return batch, batch.attention_bias(self.transformer.dtype)

    def hidden(self, texts: Sequence[Text], rows: list[Row]) -> Hidden:
        packed, bias = self.pack(texts, rows)
        states = self.transformer(packed.ids, packed.positions, bias)
        return packed.unpack(states), packed.mask

    def calibrate(self, texts: Sequence[Text]) -> None:
        """Passes texts through a `FusedBert` made with int8, to fix the ranges of its inputs."""
        # While the texts pass, the products record the ranges of their inputs. The hidden states are
        # not needed.
        for _ in self.map(texts, lambda hidden, mask: None):
            pass
        # Only products are in int8. Attention is in the dtype that "auto" chooses.
        cast("FusedBert", self.transformer).to_int8(pick_dtype("auto", self.device))


class PaddedRunner(InferenceRunner[Ids]):
    """Computes one sentence in a row, with a module of the transformers library."""

    def __init__(self, backbone: nn.Module, dtype: torch.dtype, pad_id: int) -> None:
        self.device = next(backbone.parameters()).device
        self.transformer = copy.deepcopy(backbone).to(dtype).requires_grad_(False).eval()
        self.pad_id = pad_id
        # Some architectures read the padding, in convolutions or means of segments. They get
        # deterministic batches, which have texts of one length. Two texts of a token other than the
        # padding show whether it is read.
        token = 0 if self.pad_id else 1
        self.deterministic = self.reads_padding([[token] * 3, [token] * PROBED_LENGTH], dtype)

    def hidden(self, texts: Sequence[Ids], rows: list[Row]) -> Hidden:
        # Each row holds one text.
        batch = batching.pad([texts[row[0]] for row in rows], self.pad_id)
        ids, mask = batch.to(self.device)
        attention_mask = None if mask is None else mask.long()
        outputs = self.transformer(input_ids=ids, attention_mask=attention_mask)
        return outputs.last_hidden_state, mask


def check_int8(name: str, backbone: nn.Module) -> None:
    """Raises InputError if a model cannot compute in int8 on the device that its weights are on."""
    device = next(backbone.parameters()).device
    if not has_int8(device.type):
        raise InputError(
            f"int8 needs a CPU whose PyTorch has oneDNN's 8-bit products, not {device.type}; choose auto"
        )
    if not supports_fused(backbone):
        config: Any = backbone.config
        raise InputError(
            f"{name} cannot compute in int8: that is for BERT's family, not for {config.model_type}; choose auto"
        )


def build_runner(
    backbone: nn.Module, dtype: torch.dtype, pad_id: int, calibration: Sequence[Ids] = ()
) -> InferenceRunner[Ids]:
    """Makes a runner for a copy of ``backbone`` in ``dtype``: packed if its architecture allows it, else padded.

    ``calibration`` are texts to measure the ranges of int8 with. For int8 the backbone must pass
    ``check_int8``.
    """
    if not (supports_fused(backbone) or supports_fused_modernbert(backbone)):
        return PaddedRunner(backbone, dtype, pad_id)
    runner = PackedRunner[Ids](backbone, dtype)
    if dtype == torch.int8:
        runner.calibrate(calibration)
    return runner
