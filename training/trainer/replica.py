"""The replica: a low-precision copy of the transformer that runs forward and backward during training.

The trained weights (the master weights) are float32. Before each step they are copied into the
replica in the compute dtype (`Replica.sync_weights`). Micro-batches run through it in parallel
threads, and their gradients are summed in float32 into the master weights' ``grad``
(`Replica.reduce_gradients`). In float32 the replica shares the memory of the master weights, and
nothing is copied.

Word embeddings are looked up outside of the replica (`CompactEmbedding`).

On a CPU the replica draws dropout from NumPy's bit generators. PyTorch draws 64 random bits per
element, single-threaded, which takes about a tenth of a training step. Here four elements share 64
bits, so the drop probability is exact to 1/65,536. Each thread draws from the generator set by
`use_generator`. With PyTorch's one global generator the result would depend on the scheduling of
the threads.
"""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.inference.batching import pad
from training.models.joint_pair_model import sentence_means
from training.models.loading import import_lock
from training.models.pairs import PairBatch, PairRow, pad_pairs
from training.pooling import Pool

TokenIds = Sequence[Sequence[int]]
ATTENTION = "sbert_lab_dropout"
_thread = threading.local()


class MicroBatch(NamedTuple):
    """A part of a batch, padded: B sentences of at most T tokens."""

    rows: Tensor  # (B, T) int64, rows of `CompactEmbedding`; token ids if the module looks them up
    mask: Tensor | None  # (B, T) bool, True = a real token; None = all are real
    generator: np.random.Generator
    token_types: Tensor | None = None  # (B, T) int64, for pairs, if the model has token types
    split: Tensor | None = None  # (B, 1) int64, where the second sentence of each pair starts
    masked: Tensor | None = None  # (M,) int64, the positions of masked tokens in the flattened rows
    targets: Tensor | None = None  # (M,) int64, the ids of these tokens before they were masked


@dataclass
class ForwardOutput:
    """The result of a forward pass. It holds the autograd graph until `Replica.backward`."""

    # (B, D) float32, pooled vectors; of a language model the logits (M, V) of the masked tokens
    vectors: Tensor
    # (B, T, D), word embeddings: a leaf of the graph; empty if the module itself looks them up
    inputs: Tensor
    # (B, T, D), set by `Replica.backward` if word embeddings are trained
    input_gradient: Tensor | None = None
    # The gradient of each master weight, set by `Replica.backward`; None for a weight that was not
    # used.
    gradients: Sequence[Tensor | None] = ()


class Replica:
    """A transformer of the transformers library, or word vectors with LSTMs, in training mode.

    ``backbone`` holds the master weights, adapters included. ``forward`` and ``backward`` may be
    called from several threads, each with its own micro-batch.
    """

    def __init__(
        self,
        backbone: nn.Module,
        embeddings: CompactEmbedding | None,
        dtype: torch.dtype,
        pooling: Pool | None = None,
    ) -> None:
        """``embeddings`` is None if the module itself looks up, and trains, its word embeddings.

        ``pooling`` is None for subclasses whose ``vectors`` are not pooled.
        """
        self.pooling = pooling
        self.dtype = dtype
        # Any, as the subclasses without embeddings override the methods that use them.
        self.embeddings: Any = embeddings
        self.device = next(backbone.parameters()).device
        self.shares_memory = dtype == torch.float32
        memo: dict[int, Any] = {}
        if self.shares_memory:
            # deepcopy does not copy objects that are in its memo.
            memo = {id(weight): weight for weight in backbone.parameters()}
        self.module = copy.deepcopy(backbone, memo).to(dtype).train()
        if self.device.type == "cpu":
            replace_dropout(self.module)
        trained = trained_weights(backbone)
        # The float32 weights and their copies, which are the same tensors if the replica is
        # float32.
        self.weights = list(trained.values())
        self.copies = [self.module.get_parameter(name) for name in trained]

    def collate(self, ids: TokenIds, generator: np.random.Generator) -> MicroBatch:
        """Pads the token ids of B sentences, none of them empty. Dropout will draw from ``generator``."""
        # The mask hides the padding, so any token id can be used for it.
        tokens, mask = pad(ids, 0).to(self.device)
        return MicroBatch(self.embeddings.rows(tokens), mask, generator)

    def sync_weights(self, pieces: int) -> list[Callable[[], None]]:
        """Returns ``pieces`` tasks that together copy the master weights into the replica; none if it shares them."""
        if self.shares_memory:
            return []
        # Each task gets large and small weights, so that the tasks take equally long.
        pairs = zip(self.copies, self.weights, strict=True)
        by_size = sorted(pairs, key=lambda pair: -pair[1].numel())
        return [partial(_copy_weights, by_size[first::pieces]) for first in range(pieces)]

    def forward(self, batch: MicroBatch) -> ForwardOutput:
        """Computes the pooled vectors of a micro-batch."""
        trains_inputs = self.embeddings.weight.requires_grad and torch.is_grad_enabled()
        # A leaf of the graph, as `CompactEmbedding` returns vectors that are detached.
        inputs = self.embeddings(batch.rows).to(self.dtype).requires_grad_(trains_inputs)
        with use_generator(batch.generator):
            vectors = self.vectors(inputs, batch)
        return ForwardOutput(vectors.float(), inputs)

    def vectors(self, inputs: Tensor, batch: MicroBatch) -> Tensor:
        """Computes pooled vectors (B, D) from word embeddings (B, T, D)."""
        assert self.pooling is not None  # noqa: S101 - subclasses without a pooling override this method
        mask = None if batch.mask is None else batch.mask.long()
        hidden = self.module(inputs_embeds=inputs, attention_mask=mask).last_hidden_state
        return self.pooling(hidden, batch.mask)

    @torch.no_grad()
    def embed(self, batch: MicroBatch) -> Tensor:
        """Computes the vectors (B, D) of `forward`, without a graph. A later ``forward`` draws the same dropout."""
        same_draws = batch._replace(generator=copy.deepcopy(batch.generator))
        return self.forward(same_draws).vectors

    def backward(self, output: ForwardOutput, gradient: Tensor) -> None:
        """Computes the gradients of an output, from the ``gradient`` of the loss for its vectors. Frees its graph."""
        leaves: list[Tensor] = [*self.copies]
        if output.inputs.requires_grad:
            leaves.append(output.inputs)
        gradients = torch.autograd.grad(output.vectors, leaves, gradient, allow_unused=True)
        output.gradients = gradients[: len(self.copies)]
        if output.inputs.requires_grad:
            output.input_gradient = gradients[-1]

    def reduce_gradients(
        self, outputs: Sequence[ForwardOutput], pieces: int, add: bool = False
    ) -> list[Callable[[], list[Tensor]]]:
        """Returns ``pieces`` tasks that together set the master weights' ``grad`` to the sum over micro-batches.

        With ``add`` the sum is added to the gradient. Each task returns gradient norms, computed
        right after the sum, while the gradient is in the cache.
        """
        gradients = zip(*(output.gradients for output in outputs), strict=True)
        parts = list(zip(self.weights, gradients, strict=True))
        return [partial(_sum_gradients, parts[first::pieces], add) for first in range(pieces)]


class PairReplica(Replica):
    """A sequence classifier in training mode. The vector of a pair is its logit, (B, 1)."""

    def __init__(
        self,
        classifier: nn.Module,
        embeddings: CompactEmbedding,
        has_token_types: bool,
        dtype: torch.dtype,
    ) -> None:
        super().__init__(classifier, embeddings, dtype)
        self.has_token_types = has_token_types

    def collate(self, ids: TokenIds, generator: np.random.Generator) -> MicroBatch:
        # The mask hides the padding, as in `Replica.collate`.
        batch = pad_pairs(cast("Sequence[PairRow]", ids), 0, self.device)
        types = batch.token_types if self.has_token_types else None
        return MicroBatch(self.embeddings.rows(batch.ids), batch.mask, generator, types)

    def vectors(self, inputs: Tensor, batch: MicroBatch) -> Tensor:
        mask = None if batch.mask is None else batch.mask.long()
        token_types = {} if batch.token_types is None else {"token_type_ids": batch.token_types}
        # (B, 1)
        return self.module(inputs_embeds=inputs, attention_mask=mask, **token_types).logits


class JointReplica(Replica):
    """A `JointPairModel` in training mode, without its head. The vector of a pair is the means of both sentences."""

    def collate(self, ids: TokenIds, generator: np.random.Generator) -> MicroBatch:
        # The mask hides the padding, as in `Replica.collate`.
        batch = pad_pairs(cast("Sequence[PairRow]", ids), 0, self.device)
        return MicroBatch(self.embeddings.rows(batch.ids), batch.mask, generator, split=batch.split)

    def vectors(self, inputs: Tensor, batch: MicroBatch) -> Tensor:
        assert batch.split is not None  # noqa: S101 - `collate` has set it
        pairs = PairBatch(batch.rows, batch.mask, batch.split)
        # (B, 2 D)
        return sentence_means(cast("Any", self.module).hidden(pairs, inputs).float(), pairs)


def trained_weights(module: nn.Module) -> dict[str, nn.Parameter]:
    """Returns the weights that are trained, by name."""
    return {name: weight for name, weight in module.named_parameters() if weight.requires_grad}


@torch.no_grad()
def _copy_weights(pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    torch._foreach_copy_([copied for copied, _ in pairs], [weight for _, weight in pairs])


@torch.no_grad()
def _sum_gradients(
    parts: Sequence[tuple[nn.Parameter, Sequence[Tensor | None]]], add: bool
) -> list[Tensor]:
    """Sets the ``grad`` of each weight to the sum of its gradients, or adds that, and returns the norms."""
    sums = []
    for weight, gradients in parts:
        used = [gradient for gradient in gradients if gradient is not None]
        if not used:
            continue
        # The gradient is allocated once, as page faults on fresh memory cost more than the sum.
        if weight.grad is None:
            weight.grad = torch.empty_like(weight)
        if not add:
            weight.grad.copy_(used.pop(0))
        for gradient in used:
            weight.grad.add_(gradient)
        sums.append(weight.grad)
    return list(torch._foreach_norm(sums)) if sums else []


class CompactEmbedding(nn.Module):
    """The V' rows of an embedding table that the training data uses, as one trainable parameter.

    Adam without weight decay never changes a row whose gradient has always been zero. So training
    only the rows in use is exact, and on the STS benchmark it takes a third of the time: half of
    MiniLM's weights are word embeddings. A batch touches a few hundred rows. The gradient buffer is
    kept, and only the touched rows are zeroed and rewritten. Only `write_back` updates the whole
    ``table``. ``used`` are the token ids in use, None for all of them.
    """

    def __init__(self, table: nn.Embedding, used: Iterable[int] | None) -> None:
        super().__init__()
        device = table.weight.device
        # Gemma scales the vectors that it looks up itself, but not the ones that are passed to it.
        self.scale = float(getattr(table, "scalar_embed_scale", 1.0))
        # The list keeps the table from being registered as a submodule.
        self._table = [table]
        token_ids = range(table.num_embeddings) if used is None else used
        self.used = torch.tensor(sorted(token_ids), device=device)
        self.weight = nn.Parameter(table.weight.detach()[self.used].clone())  # (V', D) float32
        # By token id: the row in ``weight``, 0 for an id that is not in use.
        self._row_of = torch.zeros(table.num_embeddings, dtype=torch.int64, device=device)
        self._row_of[self.used] = torch.arange(len(self.used), device=device)
        # torch.nn.Embedding never trains the row of the padding. Some models also use it as the end
        # of a text, so that it occurs in the data. No token has the id -1.
        padding = -1 if table.padding_idx is None else table.padding_idx
        self._untrained = (self.used == padding).nonzero().flatten()
        # The gradient of ``weight``, and the rows of it that are not 0: `set_gradient` resets only
        # these.
        self._gradient = torch.zeros_like(self.weight)
        self._touched = torch.empty(0, dtype=torch.int64, device=device)

    def rows(self, ids: Tensor) -> Tensor:
        """Converts token ids (...) to row numbers (...), int64. Ids not in use, such as padding, become row 0."""
        return self._row_of[ids]

    def forward(self, rows: Tensor) -> Tensor:
        """Looks up row numbers (...): vectors (..., D) float32, detached from ``weight``."""
        vectors = F.embedding(rows, self.weight.detach())
        return vectors if self.scale == 1 else vectors * self.scale

    def set_gradient(
        self, rows: Sequence[Tensor], gradients: Sequence[Tensor], add: bool = False
    ) -> list[Tensor]:
        """Sets the gradient of ``weight``, or adds to it, and returns its norm in a list of one.

        ``rows`` are the row numbers (...) that each micro-batch has looked up, and ``gradients``
        the gradients (..., D) of their vectors in any floating dtype. They are summed in float32.
        """
        touched = torch.cat([part.flatten() for part in rows])  # (R,)
        row_gradients = torch.cat([part.flatten(0, -2).float() for part in gradients])  # (R, D)
        if not add:
            self._gradient[self._touched] = 0
        # `forward` has multiplied the vectors by the scale, so their gradients are multiplied too.
        self._gradient.index_add_(0, touched, row_gradients, alpha=self.scale)
        self._gradient[self._untrained] = 0
        self._touched = torch.cat([self._touched, touched]) if add else touched
        self.weight.grad = self._gradient
        return [torch.linalg.vector_norm(self._gradient)]

    @torch.no_grad()
    def write_back(self) -> None:
        self._table[0].weight[self.used] = self.weight


@contextmanager
def use_generator(generator: np.random.Generator) -> Iterator[None]:
    """Inside the block, dropout in this thread draws from ``generator``."""
    previous = getattr(_thread, "generator", None)
    _thread.generator = generator
    try:
        yield
    finally:
        _thread.generator = previous


def dropout_mask(shape: torch.Size, p: float, dtype: torch.dtype) -> Tensor:
    """Draws a CPU tensor of 0 with probability ``p``, else 1 / (1 - p).

    Outside of `use_generator` the random bits come from a generator seeded by PyTorch's global one.
    """
    generator = getattr(_thread, "generator", None)
    if generator is None:
        generator = np.random.default_rng(int(torch.randint(2**63 - 1, ())))
    count = shape.numel()
    # 64 bits are four numbers of 16 bits, from -2^15 to 2^15 - 1. An element is dropped if its
    # number is one of the lowest, the fraction p.
    words = generator.bit_generator.random_raw(math.ceil(count / 4))
    numbers = torch.from_numpy(words.view(np.int16))[:count]
    # 1 or 0, written over the numbers.
    is_kept = torch.ge(numbers, round(p * 2**16) - 2**15, out=numbers)
    return is_kept.to(dtype).mul_(1 / (1 - p)).view(shape)


class Dropout(nn.Module):
    """Replaces `torch.nn.Dropout`, on CPU tensors of any shape."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        return x * dropout_mask(x.shape, self.p, x.dtype)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, None]:
    """Computes dropout(softmax(q kᵀ · scaling + mask)) v, with the signature of transformers' attention functions.

    Query, key and value are (B, H, T, d). The mask is added to the logits. A scaling of None is 1 /
    sqrt(d). Returns the context (B, T, H, d), and None in place of the attention weights.
    """
    scores = query @ key.transpose(2, 3) * (scaling or query.shape[-1] ** -0.5)  # (B, H, T, T)
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = F.softmax(scores, dim=-1)
    if module.training and dropout:
        weights = weights * dropout_mask(weights.shape, dropout, weights.dtype)
    return (weights @ value).transpose(1, 2).contiguous(), None


def has_dropout(backbone: nn.Module) -> bool:
    """Tells whether any layer of the module has dropout in training mode."""
    return any(isinstance(module, nn.Dropout) and module.p > 0 for module in backbone.modules())


def replace_dropout(backbone: nn.Module) -> None:
    """Replaces every dropout of a transformer in place, in adapters too, and its attention by `attention`."""
    # Two threads cannot import transformers at once.
    with import_lock:
        from transformers import AttentionInterface, PreTrainedModel
        from transformers.masking_utils import AttentionMaskInterface, eager_mask

    for parent in list(backbone.modules()):
        for name, child in parent.named_children():
            if type(child) is nn.Dropout:
                parent.register_module(name, Dropout(child.p))
    # The name is registered anew each time, which changes nothing. `eager_mask` makes the mask that
    # `attention` adds to the logits.
    AttentionInterface.register(ATTENTION, attention)
    AttentionMaskInterface.register(ATTENTION, eager_mask)
    for module in backbone.modules():
        if isinstance(module, PreTrainedModel):
            # Models without attention functions, such as MPNet, have an nn.Dropout in their
            # attention.
            if module.is_backend_compatible():
                module.set_attn_implementation(ATTENTION)
            # The modules inside of this model share its attention.
            return
