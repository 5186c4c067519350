"""What is trained: an encoder and an objective. From token ids to the gradient of every weight.

All columns of a batch go through the transformer alike: the network is siamese, so u and v may as well be rows of
one batch. On a CPU that batch is cut into shares of similar length, one for each core, which go forward and backward
side by side, meeting only for the loss: to split every single operation over the cores instead means to wait for the
slowest core hundreds of times a step, and for long when the machine has other things to do. A GPU takes one share.

The weights are float32. What goes forward and backward is a twin of the transformer in the dtype of choice, made equal
before every step (bfloat16 as in encoding, but with dropout and gradients); pooled vectors, the loss and the sums of
gradients are float32. With LoRA (a rank above 0) only small additions to the linear layers are trained; they are
merged when the model is saved.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training import workers
from training.batching import pad
from training.dropout import drawing_from, replace_dropout
from training.encoder import Encoder
from training.pooling import POOLINGS

Column = Sequence[Sequence[int]]  # the token ids of one column of a batch
SMALLEST_SHARE = 8  # sentences: with fewer the weights are fetched from memory for too little work

Item = TypeVar("Item")
Result = TypeVar("Result")


class Words(nn.Module):
    """Those word embeddings that the training data uses, as one small parameter.

    Adam leaves a row alone whose gradient has always been zero, so to train these rows only is to train all of
    them, at a third of the cost for the STS benchmark: the word embeddings are half of MiniLM's weights. Of their
    gradient a batch touches a few hundred rows; it is kept, and only those are written.
    """

    def __init__(self, table: nn.Embedding, used: Iterable[int] | None) -> None:
        super().__init__()
        place = table.weight.device
        self._table = [table]  # in a list, so that it is no parameter of this module
        self.used = torch.tensor(sorted(range(table.num_embeddings) if used is None else used), device=place)
        self.rows = nn.Parameter(table.weight.detach()[self.used].clone())
        self._position = torch.zeros(table.num_embeddings, dtype=torch.int64, device=place)
        self._position[self.used] = torch.arange(len(self.used), device=place)
        self._gradient = torch.zeros_like(self.rows)
        self._touched = torch.empty(0, dtype=torch.int64, device=place)

    def look_up(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Token ids (B, T) -> their rows (B, T) and vectors (B, T, D), cut off from the gradient of ``rows``.

        Padding gets any row: it is masked everywhere.
        """
        positions = self._position[ids]
        return positions, F.embedding(positions, self.rows.detach())

    def receive(self, positions: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """Make the gradient of ``rows`` from those of the vectors looked up, (B, T) and (B, T, D) each."""
        self._gradient[self._touched] = 0
        self._touched = torch.cat([rows.flatten() for rows in positions])
        self._gradient.index_add_(0, self._touched, torch.cat([part.flatten(0, 1).float() for part in gradients]))
        self.rows.grad = self._gradient

    @torch.no_grad()
    def write_back(self) -> None:
        """Put the rows as they are now into the whole table."""
        self._table[0].weight[self.used] = self.rows


class Part(NamedTuple):
    """A share of a batch after its way through the transformer."""

    positions: Tensor  # (B, T), rows of `Words`
    words: Tensor  # (B, T, D), where the share's graph begins
    vectors: Tensor  # (B, D), where it ends


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
        twin = copy.deepcopy(self.backbone).to(encoder.dtype).train()
        if encoder.device.type == "cpu":
            replace_dropout(twin)
        self._twin = [twin]  # in a list, so that its weights are not taken for trained ones
        names = [name for name, weight in self.backbone.named_parameters() if weight.requires_grad]
        self._weights: list[Tensor] = [self.backbone.get_parameter(name) for name in names]
        self._twins: list[Tensor] = [twin.get_parameter(name) for name in names]
        self.generators = [torch.Generator().manual_seed(seed + share) for share in range(shares)]

    def gradients(self, columns: Sequence[Column], target: Tensor | None) -> Tensor:
        """Token ids by column, targets (B,) -> the mean loss, a float32 scalar; every weight's ``grad`` is set anew."""
        self.objective.zero_grad(set_to_none=True)
        self._side_by_side(self._refresh, range(self.shares))
        ids = [row for column in columns for row in column]
        shares = cut([len(row) for row in ids], self.shares)
        parts = self._side_by_side(self._forward, [(i, [ids[row] for row in rows]) for i, rows in enumerate(shares)])
        vectors = torch.cat([part.vectors.detach() for part in parts]).requires_grad_()
        in_order = vectors[torch.from_numpy(np.argsort(np.concatenate(shares))).to(vectors.device)]
        loss = self.objective(in_order.chunk(len(columns)), target)
        loss.backward()
        assert vectors.grad is not None  # noqa: S101 - the loss is a function of them
        upstream = vectors.grad.split([len(rows) for rows in shares])
        found = self._side_by_side(self._backward, list(zip(parts, upstream, strict=True)))
        pieces = list(zip(*(gradients for gradients, _ in found), strict=True))  # of each weight, by share
        self._side_by_side(partial(self._add_up, pieces), range(self.shares))
        if not self.rank:
            self.words.receive([part.positions for part in parts], [words for _, words in found])
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

    def _forward(self, share: tuple[int, Column]) -> Part:
        number, ids = share
        device = self.encoder.device
        batch = pad(ids, 0)  # which token pads does not matter: it is masked
        mask = None if batch.mask is None else batch.mask.to(device)
        positions, words = self.words.look_up(batch.ids.to(device))
        words = words.to(self.encoder.dtype).requires_grad_(not self.rank)
        with drawing_from(self.generators[number]):
            seen = None if mask is None else mask.long()
            hidden = self._twin[0](inputs_embeds=words, attention_mask=seen).last_hidden_state
        return Part(positions, words, POOLINGS[self.encoder.pooling](hidden, mask).float())

    def _backward(self, part: tuple[Part, Tensor]) -> tuple[tuple[Tensor | None, ...], Tensor]:
        """A share's gradients of the weights (None where a weight has no part in the vectors) and of its words."""
        (_, words, vectors), upstream = part
        wanted = self._twins if self.rank else [words, *self._twins]
        found = torch.autograd.grad(vectors, wanted, upstream, allow_unused=True)
        return (found, words) if self.rank else (found[1:], found[0])

    @torch.no_grad()
    def _refresh(self, share: int) -> None:
        """Make every n-th weight of the twin equal to the trained one."""
        torch._foreach_copy_(self._twins[share :: self.shares], self._weights[share :: self.shares])

    @torch.no_grad()
    def _add_up(self, pieces: Sequence[tuple[Tensor | None, ...]], share: int) -> None:
        """Set the gradient of every n-th weight: the sum over the shares, always in the same order."""
        for weight, parts in zip(self._weights[share :: self.shares], pieces[share :: self.shares], strict=True):
            there = [part for part in parts if part is not None]  # BERT's pooler has no part in the vectors
            if there and weight.grad is None:  # kept from then on: fresh memory costs more than the sum
                weight.grad = torch.empty_like(weight)
            for number, part in enumerate(there):
                weight.grad.add_(part) if number else weight.grad.copy_(part)  # type: ignore[union-attr]

    def _side_by_side(self, function: Callable[[Item], Result], shares: Sequence[Item]) -> list[Result]:
        if len(shares) == 1:
            return [function(shares[0])]
        return list(workers.spread(function, shares))


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
