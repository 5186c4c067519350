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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from training import workers
from training.encoder import Encoder
from training.fused_bert import fits
from training.fused_twin import FusedTwin
from training.twin import Column, ModuleTwin, Twin
from training.words import Words
from training.workers import side_by_side

SMALLEST_SHARE = 8  # sentences: with fewer the weights are fetched from memory for too little work


class Trainee(nn.Module):
    """An encoder and an objective, with the weights that are trained.

    Args:
        encoder: stays usable for encoding inside `whole`.
        objective: see `training.objectives`.
        used: the token ids that the training data contains; None for all, as weight decay, which reaches every
            row, needs it.
        seed: of dropout.
        rank: of LoRA; 0 trains all weights.
        shares: into how many a batch is cut, see `default_shares`.
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
        self.encoder, self.rank, self.shares = encoder, rank, shares
        self.objective = objective.to(encoder.device)
        table = encoder.backbone.get_input_embeddings()  # type: ignore[operator]
        self.words = Words(table, used).requires_grad_(not rank)
        table.requires_grad_(False)
        self.backbone = _with_lora(encoder.backbone, rank) if rank else encoder.backbone
        kind = FusedTwin if encoder.device.type == "cpu" and fits(self.backbone) else ModuleTwin
        self.twin: Twin = kind(self.backbone, self.words, encoder.pooling, encoder.dtype)
        self.generators = [torch.Generator().manual_seed(seed + share) for share in range(shares)]

    def gradients(self, columns: Sequence[Column], target: Tensor | None) -> Tensor:
        """Token ids by column, targets (B,) -> the mean loss, a float32 scalar; every weight's ``grad`` is set anew."""
        self.objective.zero_grad(set_to_none=True)
        side_by_side(self.twin.refreshing(self.shares))
        ids = [row for column in columns for row in column]
        shares = cut([len(row) for row in ids], self.shares)
        parts = side_by_side(
            [
                partial(self.twin.forward, [ids[row] for row in rows], generator)
                for rows, generator in zip(shares, self.generators, strict=False)  # a small batch has fewer shares
            ]
        )
        vectors = torch.cat([part.vectors.detach() for part in parts]).requires_grad_()
        in_order = vectors[torch.from_numpy(np.argsort(np.concatenate(shares))).to(vectors.device)]
        loss = self.objective(in_order.chunk(len(columns)), target)
        loss.backward()
        assert vectors.grad is not None  # noqa: S101 - the loss is a function of them
        upstream = vectors.grad.split([len(rows) for rows in shares])
        side_by_side([partial(self.twin.backward, *share) for share in zip(parts, upstream, strict=True)])
        side_by_side(self.twin.summing(parts, self.shares))
        self.words.receive([(part.positions, part.of_words) for part in parts if part.of_words is not None])
        return loss.detach()

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


def default_shares(device: torch.device, sentences: int) -> int:
    """One share for each core of a CPU, if each gets sentences enough; one in all on a GPU."""
    return max(1, min(workers.count(), sentences // SMALLEST_SHARE)) if device.type == "cpu" else 1


def cut(lengths: Sequence[int], shares: int) -> list[np.ndarray]:
    """Rows of similar length together, in at most so many shares with about equally many tokens each."""
    order = np.argsort(-np.asarray(lengths), kind="stable")
    tokens = np.cumsum(np.asarray(lengths)[order])
    ends = np.searchsorted(tokens, tokens[-1] * np.arange(1, shares) / shares, side="left") + 1
    return [rows for rows in np.split(order, ends) if len(rows)]


def _with_lora(backbone: nn.Module, rank: int) -> nn.Module:
    from peft import LoraConfig, get_peft_model

    settings = LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.05, target_modules="all-linear", bias="none")
    return get_peft_model(backbone, settings)
