"""What is trained: an encoder and an objective, as one module from token ids to a loss.

All columns of a batch go through the transformer in one pass: the network is siamese, so u and v may as well be
rows of one batch. The weights stay float32; under bfloat16 the products alone are computed in it (autocast), the
pooled vectors and the loss in float32.

With LoRA (a rank above 0) only small additions to the linear layers are trained; they are merged when the model is
saved. Without it all weights are, and two things make a step cheaper without changing it: only those rows of the
word embeddings are parameters whose tokens occur in the training data (`UsedRows`), and on a CPU random bits are
drawn four times as economically (`Dropout`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.encoder import Encoder

Column = Sequence[Sequence[int]]  # the token ids of one column of a batch


class Dropout(nn.Module):
    """nn.Dropout for CPUs, with four values from each 64 random bits: PyTorch draws 64 for every single one.

    That drawing, done by one core, is a tenth of a training step. A value is dropped with probability p to within
    1/65,536, and what stays is scaled by 1/(1-p), as in nn.Dropout; the bits come from PyTorch's generator.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Any shape, any floating dtype."""
        if not self.training or self.p == 0:
            return x
        bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
        threshold = round(self.p * 2**16) - 2**15
        stays = torch.ge(bits, threshold, out=bits)[: x.numel()].view(x.shape)  # 0 or 1, in the bits' own memory
        if x.dtype == torch.bfloat16:
            scale = torch.tensor(1 / (1 - self.p), dtype=torch.bfloat16).view(torch.int16)
            return x * stays.mul_(scale).view(torch.bfloat16)  # the bits of bfloat16's 0 or 1/(1-p)
        return x * stays.to(x.dtype).mul_(1 / (1 - self.p))


class UsedRows(nn.Module):
    """The rows of an embedding that the training data uses, as one small parameter.

    Adam leaves a row alone whose gradient has always been zero, so to train these rows only is to train all of
    them, at a third of the cost for the STS benchmark: the word embeddings are half of MiniLM's weights. Of their
    gradient a batch touches a few hundred rows: it has a place of its own, of which only those are written.
    """

    def __init__(self, embedding: nn.Embedding, used: Iterable[int]) -> None:
        super().__init__()
        self._table = [embedding]  # in a list, so that it is no parameter of this module
        place = embedding.weight.device
        self.used = torch.tensor(sorted(used), device=place)
        self.rows = nn.Parameter(embedding.weight.detach()[self.used].clone())
        self._position = torch.zeros(embedding.num_embeddings, dtype=torch.int64, device=place)
        self._position[self.used] = torch.arange(len(self.used), device=place)
        self._gradient = torch.zeros_like(self.rows)
        self._touched = torch.empty(0, dtype=torch.int64, device=place)

    def forward(self, ids: Tensor) -> Tensor:
        """Token ids (B, T) -> (B, T, D). Padding may be any row: no gradient comes back from it."""
        return _Lookup.apply(self.rows, self._position[ids], self)

    def receive(self, positions: Tensor, gradient: Tensor) -> None:
        """The gradient (B, T, D) of the vectors looked up, added row by row: the gradient of ``rows``."""
        self._gradient[self._touched] = 0
        self._touched = positions.flatten()
        self._gradient.index_add_(0, self._touched, gradient.flatten(0, 1).to(self.rows.dtype))
        self.rows.grad = self._gradient

    @torch.no_grad()
    def write_back(self) -> nn.Embedding:
        """The whole table, with the rows as they are now."""
        embedding = self._table[0]
        embedding.weight[self.used] = self.rows
        return embedding


class _Lookup(torch.autograd.Function):
    """An embedding whose gradient is handed to `UsedRows.receive` instead of filling a tensor of its size."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, positions: Tensor, owner: UsedRows) -> Tensor:
        ctx.positions, ctx.owner = positions, owner
        return F.embedding(positions, rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        ctx.owner.receive(ctx.positions, gradients[0])
        return None, None, None


class Trainee(nn.Module):
    """An encoder and an objective. ``forward`` gives the loss of a batch.

    Args:
        encoder: stays usable for encoding inside `whole`.
        objective: see `training.objectives`.
        used: the token ids that the training data contains, or None to train the whole embedding table, as weight
            decay and several processes need it.
        rank: of LoRA; 0 trains all weights.
    """

    def __init__(self, encoder: Encoder, objective: nn.Module, used: Iterable[int] | None, rank: int = 0) -> None:
        super().__init__()
        self._encoder = [encoder]
        self.objective = objective.to(encoder.device)
        self._rows: UsedRows | None = None
        if rank:
            encoder.backbone = _with_lora(encoder.backbone, rank)
        elif used is not None:
            self._rows = UsedRows(encoder.backbone.get_input_embeddings(), used)  # type: ignore[operator]
            encoder.backbone.set_input_embeddings(self._rows)  # type: ignore[operator]
        if encoder.device.type == "cpu":
            _replace_dropout(encoder.backbone)
        self.backbone = encoder.train().backbone
        for name, weight in self.backbone.named_parameters():
            if "pooler." in name:  # BERT's own head, which sentence vectors do not pass: no gradient ever comes
                weight.requires_grad_(False)
        self.rank = rank

    @property
    def encoder(self) -> Encoder:
        """The encoder that is being trained."""
        return self._encoder[0]

    def forward(self, columns: Sequence[Column], target: Tensor | None) -> Tensor:
        """Token ids by column, targets (B,) -> the mean loss of the batch, a float32 scalar."""
        encoder = self.encoder
        low = encoder.dtype == torch.bfloat16
        with torch.autocast(encoder.device.type, torch.bfloat16, enabled=low):
            vectors = encoder.embed([ids for column in columns for ids in column])
        return self.objective(vectors.float().chunk(len(columns)), target)

    @contextmanager
    def whole(self) -> Iterator[Encoder]:
        """The encoder as it would be saved: all rows, LoRA merged, dropout off. Training goes on after it."""
        encoder = self.encoder
        if self.rank:
            encoder.backbone = copy.deepcopy(self.backbone).merge_and_unload()  # type: ignore[operator]
        elif self._rows is not None:
            self.backbone.set_input_embeddings(self._rows.write_back())  # type: ignore[operator]
        try:
            yield encoder.eval()
        finally:
            encoder.backbone = self.backbone
            if self._rows is not None:
                self.backbone.set_input_embeddings(self._rows)  # type: ignore[operator]
            encoder.train()

    def groups(self, weight_decay: float) -> list[dict[str, object]]:
        """Adam's parameter groups: biases and the scales of norms are never decayed."""
        trained = [weight for weight in self.parameters() if weight.requires_grad]
        return [
            {"params": [weight for weight in trained if weight.ndim > 1], "weight_decay": weight_decay},
            {"params": [weight for weight in trained if weight.ndim <= 1], "weight_decay": 0.0},
        ]


def _replace_dropout(module: nn.Module) -> None:
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if type(child) is nn.Dropout:
                parent.register_module(name, Dropout(child.p))


def _with_lora(backbone: nn.Module, rank: int) -> nn.Module:
    from peft import LoraConfig, get_peft_model

    settings = LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.05, target_modules="all-linear", bias="none")
    return get_peft_model(backbone, settings)
