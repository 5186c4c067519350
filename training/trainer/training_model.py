"""What is trained: an encoder and an objective. From token ids to the gradient of every weight.

All columns of a batch go through the transformer alike: the network is siamese, so u and v may as well be rows of
one batch. On a CPU that batch is cut into shares of similar length, one for each core, which go forward and backward
side by side, meeting only for the loss: to split every single operation over the cores instead means to wait for the
slowest core hundreds of times a step, and for long when the machine has other things to do. A GPU takes one share.

The weights are float32. What goes forward and backward is a twin of the transformer in the dtype of choice
(twin.py); pooled vectors, the loss and the sums of gradients are float32. With LoRA (a rank above 0) only small
additions to the linear layers are trained; they are merged when the model is saved.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from training import parallel
from training.inference.fused_bert import supports_fused
from training.inference.packing import bins_by_length, pack_bin, round_up
from training.models.encoder import Encoder
from training.parallel import run_parallel
from training.trainer.compact_embedding import CompactEmbedding
from training.trainer.fused_replica import FusedReplica
from training.trainer.replica import AutogradReplica, Column, MicroBatch, Replica, gradient_norms
from training.trainer.unpadded_batch import TOKEN_MULTIPLE

SMALLEST_SHARE = 8  # sentences: with fewer the weights are fetched from memory for too little work


@dataclass
class TrainingBatch:
    """What a step learns from, laid out: all of the step that does not depend on the weights."""

    shares: list[MicroBatch]
    order: Tensor  # (rows,) int64, where each row's vector is among those of the shares, one after the other
    sizes: list[int]  # of the shares, in rows
    columns: int  # the rows are those of all columns, one after the other
    target: Tensor | None  # (B,)


class TrainingModel(nn.Module):
    """An encoder and an objective, with the weights that are trained.

    Args:
        encoder: stays usable for encoding inside `whole`.
        objective: see `training.objectives`.
        used: the token ids that the training data contains; None for all, as weight decay, which reaches every
            row, needs it.
        seed: of dropout.
        rank: of LoRA; 0 trains all weights.
        shares: into how many a batch is cut, see `default_micro_batches`.
    """

    def __init__(
        self,
        encoder: Encoder,
        objective: nn.Module,
        used: Iterable[int] | None = None,
        seed: int = 0,
        rank: int = 0,
        shares: int = 1,
    ) -> None:
        super().__init__()
        self.encoder, self.seed, self.rank, self.shares = encoder, seed, rank, shares
        self.objective = objective.to(encoder.device)
        table = encoder.backbone.get_input_embeddings()  # type: ignore[operator]
        self.words = CompactEmbedding(table, used).requires_grad_(not rank)
        table.requires_grad_(False)
        self.backbone = _with_lora(encoder.backbone, rank) if rank else encoder.backbone
        kind = FusedReplica if encoder.device.type == "cpu" and supports_fused(self.backbone) else AutogradReplica
        self.twin: Replica = kind(self.backbone, self.words, encoder.pooling, encoder.dtype)

    def collate(self, columns: Sequence[Column], target: Tensor | None, step: int) -> TrainingBatch:
        """Token ids by column, targets (B,), the number of the step, of which dropout is a function."""
        place = self.encoder.device
        ids = [row for column in columns for row in column]
        rows = split_rows([len(row) for row in ids], self.shares)
        return TrainingBatch(
            [
                self.twin.collate([ids[row] for row in own], np.random.default_rng([self.seed, step, share]))
                for share, own in enumerate(rows)
            ],
            torch.from_numpy(np.argsort(np.concatenate(rows))).to(place),
            [len(own) for own in rows],
            len(columns),
            None if target is None else target.to(place),
        )

    def gradients(self, batch: TrainingBatch) -> tuple[Tensor, Tensor]:
        """The mean loss and the length of the gradient, float32 scalars; every weight's ``grad`` is set anew."""
        self.objective.zero_grad(set_to_none=True)
        run_parallel(self.twin.refreshing(self.shares))
        parts = run_parallel([partial(self.twin.forward, share) for share in batch.shares])
        vectors = torch.cat([part.vectors.detach() for part in parts]).requires_grad_()
        loss = self.objective(vectors[batch.order].chunk(batch.columns), batch.target)
        loss.backward()
        assert vectors.grad is not None  # noqa: S101 - the loss is a function of them
        upstream = vectors.grad.split(batch.sizes)
        run_parallel([partial(self.twin.backward, *share) for share in zip(parts, upstream, strict=True)])
        of_words = [
            (share.positions, part.of_words)
            for share, part in zip(batch.shares, parts, strict=True)
            if part.of_words is not None
        ]
        summing: list[Callable[[], list[Tensor]]] = [partial(self.words.receive, of_words)]
        found = run_parallel(summing + self.twin.summing(parts, self.shares))
        found.append(gradient_norms([each.grad for each in self.objective.parameters() if each.grad is not None]))
        return loss.detach(), torch.linalg.vector_norm(torch.stack([length for each in found for length in each]))

    @contextmanager
    def whole(self) -> Iterator[Encoder]:
        """The encoder as it would be saved: all rows, LoRA merged, dropout off. Training goes on after it."""
        self.words.write_back()
        self.encoder.backbone = self.backbone
        if self.rank:
            self.encoder.backbone = copy.deepcopy(self.backbone).merge_and_unload()  # type: ignore[operator]
        try:
            yield self.encoder.eval()
        finally:
            self.encoder.train()  # lets go of the copy that encode has made: the weights are about to change

    def groups(self, weight_decay: float) -> list[dict[str, object]]:
        """Adam's parameter groups: biases and the scales of norms are never decayed."""
        trained = [weight for weight in self.parameters() if weight.requires_grad]
        return [
            {"params": [weight for weight in trained if weight.ndim > 1], "weight_decay": weight_decay},
            {"params": [weight for weight in trained if weight.ndim <= 1], "weight_decay": 0.0},
        ]


def default_micro_batches(device: torch.device, sentences: int) -> int:
    """One share for each core of a CPU, if each gets sentences enough; one in all on a GPU."""
    return max(1, min(parallel.num_threads(), sentences // SMALLEST_SHARE)) if device.type == "cpu" else 1


def split_rows(gradient_norms: Sequence[int], shares: int) -> list[list[int]]:
    """Rows in at most so many shares of about equally many tokens, long ones with long ones.

    A share's tokens are made a round number (stream.py). So each is filled up to one, with a short row last where no
    long one fits.
    """
    shelves, left, parts = bins_by_length(gradient_norms), sum(gradient_norms), list[list[int]]()
    for others in range(shares - 1, 0, -1):
        longest = max((length for length, shelf in enumerate(shelves) if shelf), default=0)
        room = max(longest, round_up(-(-left // (others + 1)), TOKEN_MULTIPLE))
        rows, unfilled = pack_bin(shelves, room)
        parts.append(rows)
        left -= room - unfilled
    parts.append([row for shelf in reversed(shelves) for row in reversed(shelf)])
    return [rows for rows in parts if rows]


def _with_lora(backbone: nn.Module, rank: int) -> nn.Module:
    from peft import LoraConfig, get_peft_model

    settings = LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.05, target_modules="all-linear", bias="none")
    return get_peft_model(backbone, settings)
