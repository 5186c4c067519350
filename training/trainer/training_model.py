"""TrainingModel: an encoder and an objective, from token ids to the gradient of every trained weight.

All columns of a batch form one batch of sentences, as the network is siamese. On a CPU that batch
is split into one micro-batch per core. These run forward and backward in parallel and synchronise
only for the loss. Splitting every operation over the cores instead would wait for the slowest core
hundreds of times a step. A GPU takes the whole batch.

The loss is computed from the vectors of the whole batch, which keeps the graphs of all
micro-batches in memory. A ``mini_batch_size`` avoids that by gradient caching (Gao et al. 2021,
"Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup"): the vectors are first
computed without graphs, and the loss gives each of them its gradient. Then a few micro-batches at a
time are computed again, with the same dropout, and go backward. The gradient is the same, for one
more forward pass.

Master weights, pooled vectors, loss and sums of gradients are float32; the transformer computes in
the dtype of the encoder (see `training.trainer.replica`). The modules after the pooling
(`Encoder.head`) are part of the loss: small, and computed once for the whole batch. With LoRA only
the adapters of an encoder are trained, and the head of a cross-encoder or a language model beside
them; `export_encoder` merges the adapters.
"""

import copy
import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.errors import InputError
from training.inference.batching import plan
from training.models.encoder import Encoder
from training.models.joint_pair_model import JointPairModel
from training.models.word_networks import WordBackbone
from training.objectives import Objective, Vectors
from training.parallel import num_threads, run_parallel
from training.pooling import pooling_function
from training.trainer.cross_encoder import TrainableCrossEncoder, head_modules
from training.trainer.language_model import MaskedReplica, TrainableLanguageModel, masked_targets
from training.trainer.replica import (
    CompactEmbedding,
    ForwardOutput,
    JointReplica,
    MicroBatch,
    PairReplica,
    Replica,
    trained_weights,
)

# With fewer sentences, reading the weights from memory dominates the time.
MIN_MICRO_BATCH = 8


@dataclass
class TrainingBatch:
    """The input of a step, which does not depend on the weights. B rows of C columns are B * C sentences.

    For a language model the vectors are the logits of the masked tokens.
    """

    micro_batches: list[MicroBatch]
    # The number of vectors of each micro-batch: one for each sentence, or for each masked token.
    sizes: list[int]
    # (B * C,) int64: the position of each sentence, column by column, in the micro-batches; None =
    # the same order.
    order: Tensor | None
    columns: int
    # The targets of the B rows, see `training.trainer.teacher.Targets`; of a language model the ids
    # of the masked tokens.
    target: Tensor | None
    # The number of the part of the data, whose objective computes the loss.
    part: int = 0

    @property
    def sentences(self) -> int:
        return sum(len(batch.rows) for batch in self.micro_batches)


class TrainingModel(nn.Module):
    """An encoder and an objective with their trained weights.

    Args:
        encoder: the encoder. It can encode only inside `export_encoder`.
        objectives: the objective of each part of the data; see `training.objectives`.
        used: the token ids in the training data; None for all (weight decay changes every row).
        seed: the seed of dropout.
        rank: the rank of LoRA; 0 trains all weights.
        num_micro_batches: the number of micro-batches that are computed at a time; see
            `default_micro_batches`.
        mini_batch_size: the number of rows that are computed at a time; None for the whole batch.
        max_tokens: the number of tokens that are computed at a time, padding included; None for the
            whole batch.
        matryoshka_dims: numbers of first dimensions that are trained in addition to all dimensions.
    """

    def __init__(
        self,
        encoder: Encoder | TrainableCrossEncoder | TrainableLanguageModel,
        objectives: Objective | Sequence[Objective],
        used: Iterable[int] | None = None,
        seed: int = 0,
        rank: int = 0,
        num_micro_batches: int = 1,
        mini_batch_size: int | None = None,
        matryoshka_dims: Sequence[int] = (),
        max_tokens: int | None = None,
    ) -> None:
        if encoder.dtype == torch.int8:
            raise InputError(f"{encoder.name}: int8 is for inference; train it without")
        super().__init__()
        self.encoder = encoder.train()
        self.seed = seed
        self.rank = rank
        self.num_micro_batches = num_micro_batches
        self.mini_batch_size = mini_batch_size
        self.max_tokens = max_tokens
        dims = all_dims(matryoshka_dims, encoder.full_dimension)
        self.objective = Loss(objectives, dims, encoder.normalizes).to(encoder.device)
        # With LoRA these modules are not trained. `_with_lora` makes an exception for a joint head.
        self.head = encoder.head.requires_grad_(not rank)
        self.replica: Replica
        self.embeddings: CompactEmbedding | None = None
        if isinstance(encoder, TrainableLanguageModel):
            # The word embeddings are also the weights of the output, which predicts any token. So
            # all rows are used.
            self.backbone = _with_lora(encoder.backbone, rank, is_language_model=True)
            self.replica = MaskedReplica(self.backbone, encoder.tokenizer, encoder.dtype)
            return
        table = encoder.backbone.get_input_embeddings()
        # The folder of word vectors may say that they are not trained.
        trains_embeddings = not rank and table.weight.requires_grad
        self.embeddings = CompactEmbedding(table, used).requires_grad_(trains_embeddings)
        # `self.embeddings` takes its place.
        table.requires_grad_(False)
        self.backbone = _with_lora(encoder.backbone, rank)
        if isinstance(encoder, TrainableCrossEncoder) and encoder.is_joint:
            self.replica = JointReplica(self.backbone, self.embeddings, encoder.dtype)
        elif isinstance(encoder, TrainableCrossEncoder):
            self.replica = PairReplica(
                self.backbone, self.embeddings, encoder.has_token_types, encoder.dtype
            )
        else:
            pool = pooling_function(encoder.pooling, encoder.skipped_tokens)
            self.replica = Replica(self.backbone, self.embeddings, encoder.dtype, pool)

    def collate(
        self,
        columns: Sequence[Sequence[Sequence[int]]],
        target: Tensor | None,
        step: int,
        part: int = 0,
    ) -> TrainingBatch:
        """Builds a step's input from the token ids of each column. Dropout is a function of the seed and the step.

        A step is one batch here, as in `training.trainer.batches.MixedBatches`.
        """
        ids = list(chain.from_iterable(columns))
        lengths = [len(sentence) for sentence in ids]
        count = self.num_micro_batches
        if self.mini_batch_size:
            # So the micro-batches that are computed at a time have about `mini_batch_size` rows.
            count *= math.ceil(len(columns[0]) / self.mini_batch_size)
        most_tokens = None
        if self.max_tokens:
            # The limit is for all micro-batches that are computed at a time.
            most_tokens = self.max_tokens // self.num_micro_batches
        groups = split_by_length(lengths, count, most_tokens)
        micro_batches = []
        for number, rows in enumerate(groups):
            generator = np.random.default_rng([self.seed, step, number])
            micro_batches.append(self.replica.collate([ids[row] for row in rows], generator))
        if isinstance(self.replica, MaskedReplica):
            targets = masked_targets(micro_batches)
            sizes = [0 if batch.targets is None else len(batch.targets) for batch in micro_batches]
            # One column, in the order of the micro-batches.
            return TrainingBatch(micro_batches, sizes, None, 1, targets, part)
        device = self.encoder.device
        # The place of each sentence among the vectors of all micro-batches.
        order = torch.from_numpy(np.argsort(np.concatenate(groups))).to(device)
        sizes = [len(rows) for rows in groups]
        target = None if target is None else target.to(device)
        return TrainingBatch(micro_batches, sizes, order, len(columns), target, part)

    def forward_backward(self, *batches: TrainingBatch) -> tuple[Tensor, Tensor]:
        """Sets the ``grad`` of every trained weight to its mean over the batches.

        Returns the mean loss of each batch (n,) and the norm of the gradient, a scalar, both
        float32.
        """
        # The first batch overwrites the gradients of the encoder, but adds to the gradients of the
        # objective and the head.
        self.objective.zero_grad(set_to_none=True)
        self.head.zero_grad(set_to_none=True)
        run_parallel(self.replica.sync_weights(self.num_micro_batches))
        losses = []
        norms = list[Tensor]()
        for number, batch in enumerate(batches):
            loss, norms = self._accumulate(batch, 1 / len(batches), add=number > 0)
            losses.append(loss.detach())
        # The norms after the last batch belong to the sum of all batches.
        for weight in (*self.objective.parameters(), *self.head.parameters()):
            if weight.grad is not None:
                norms.append(torch.linalg.vector_norm(weight.grad))
        return torch.stack(losses), torch.linalg.vector_norm(torch.stack(norms))

    def _accumulate(
        self, batch: TrainingBatch, share: float, add: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """Sets the ``grad`` of the encoder's weights to ``share`` times the batch's gradient, or adds that to it.

        For the objective and the head the gradient is always added, by autograd. Returns the loss
        of the batch, and the norms of the gradients of the encoder's weights.
        """
        micro_batches = batch.micro_batches
        at_a_time = self.num_micro_batches
        if len(micro_batches) <= at_a_time:
            outputs = self._forward(micro_batches)
            vectors = [output.vectors.detach() for output in outputs]
            loss, gradients = self._loss(batch, vectors, share)
            return loss, self._backward(micro_batches, outputs, gradients, add)

        # Gradient caching. The second forward pass must draw the same dropout as the first. On a
        # CPU each micro-batch has its own generator. A GPU has one for all of them, so its state
        # before each forward pass is kept.
        starts = range(0, len(micro_batches), at_a_time)
        device = self.encoder.device
        states = []
        vectors = []
        for start in starts:
            states.append(torch.cuda.get_rng_state(device) if device.type == "cuda" else None)
            group = micro_batches[start : start + at_a_time]
            vectors += run_parallel(
                [partial(self.replica.embed, micro_batch) for micro_batch in group]
            )
        loss, gradients = self._loss(batch, vectors, share)
        for start, state in zip(starts, states, strict=True):
            if state is not None:
                torch.cuda.set_rng_state(state, device)
            group = micro_batches[start : start + at_a_time]
            outputs = self._forward(group)
            group_gradients = gradients[start : start + at_a_time]
            # After the last round, these are the norms of the sum over all rounds.
            norms = self._backward(group, outputs, group_gradients, add or start > 0)
            # Free the gradients of this round, each as large as the model, before the next forward
            # pass.
            del outputs
        return loss, norms

    def _forward(self, micro_batches: list[MicroBatch]) -> list[ForwardOutput]:
        return run_parallel([partial(self.replica.forward, batch) for batch in micro_batches])

    def _loss(
        self, batch: TrainingBatch, blocks: Sequence[Tensor], share: float
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """Computes the loss from the vectors of each micro-batch, and ``share`` times its gradient for the vectors."""
        vectors = torch.cat(list(blocks)).requires_grad_()  # (B * C, D)
        ordered = vectors if batch.order is None else vectors[batch.order]
        loss = self.objective(self.head(ordered).chunk(batch.columns), batch.target, batch.part)
        loss.backward(torch.full_like(loss, share))
        assert vectors.grad is not None  # noqa: S101 - the loss is a function of them
        return loss, vectors.grad.split(batch.sizes)

    def _backward(
        self,
        micro_batches: list[MicroBatch],
        outputs: list[ForwardOutput],
        gradients: Sequence[Tensor],
        add: bool,
    ) -> list[Tensor]:
        """Sets the ``grad`` of the encoder's trained weights, or adds to it. Returns the norms of the gradients."""
        backward = self.replica.backward
        pairs = zip(outputs, gradients, strict=True)
        run_parallel([partial(backward, output, gradient) for output, gradient in pairs])
        tasks = self.replica.reduce_gradients(outputs, self.num_micro_batches, add)
        # The gradients for the word embeddings; none if these are not trained, or belong to the module.
        input_gradients = []
        for output in outputs:
            if output.input_gradient is not None:
                input_gradients.append(output.input_gradient)
        if input_gradients and self.embeddings is not None:
            rows = [batch.rows for batch in micro_batches]
            # The longest task starts first.
            tasks.insert(0, partial(self.embeddings.set_gradient, rows, input_gradients, add))
        return list(chain.from_iterable(run_parallel(tasks)))

    @contextmanager
    def export_encoder(self) -> Iterator[Any]:
        """Yields the encoder or cross-encoder as it would be saved: all embeddings, LoRA merged, dropout off.

        Training may continue after the block.
        """
        if self.embeddings is not None:
            self.embeddings.write_back()
        # With LoRA this releases the merged copy of the last call before the next one is made.
        self.encoder.backbone = self.backbone
        if self.rank:
            self.encoder.backbone = copy.deepcopy(self.backbone).merge_and_unload()  # type: ignore[operator]
        try:
            yield self.encoder.eval()
        finally:
            # The weights are about to change. train() drops the copy of them that encode has made.
            self.encoder.train()

    def parameter_groups(self, weight_decay: float) -> list[dict[str, object]]:
        """Returns Adam's parameter groups. Weights of one dimension (biases, norms) are not decayed."""
        trained = trained_weights(self).values()
        decayed = [weight for weight in trained if weight.ndim > 1]
        others = [weight for weight in trained if weight.ndim <= 1]
        return [
            {"params": decayed, "weight_decay": weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]


class Loss(nn.Module):
    """The loss of a run, computed by the objective of the part of the data that a batch belongs to.

    With ``dims`` it is the sum of the objective's losses on the first d dimensions, scaled to
    length 1, so that a vector can be truncated to any of these d after training. Targets that are
    vectors are truncated too.

    Without ``dims`` the vectors are unchanged, or scaled to length 1 if the model's own output is
    normalised (``normalizes``) and the objective compares that output.

    Source: Kusupati et al. 2022, "Matryoshka Representation Learning", equation 1, with weights of
    1; `MatryoshkaLoss` in sentence-transformers.
    """

    def __init__(
        self,
        objectives: Objective | Sequence[Objective],
        dims: Sequence[int] = (),
        normalizes: bool = False,
    ) -> None:
        super().__init__()
        self.objectives = [objectives] if isinstance(objectives, Objective) else objectives
        self.dims = tuple(sorted(dims, reverse=True))
        # An objective that compares the model's own output gets normalised vectors if that output
        # is normalised.
        self.normalizes = [normalizes and objective.takes_output for objective in self.objectives]
        for part, objective in enumerate(self.objectives):
            for name, weights in vars(objective).items():
                # An objective is not a module, so its weights are registered here, to be trained
                # and saved. In the first part, usually the only one, they keep their names.
                if isinstance(weights, nn.Module):
                    self.add_module(f"part{part}_{name}" if part else name, weights)

    def forward(self, vectors: Vectors, target: Tensor | None = None, part: int = 0) -> Tensor:
        """Computes the loss of a batch of one part, from the vectors (B, D) of each column and the targets."""
        objective = self.objectives[part]

        def normalized_loss(dim: int) -> Tensor:
            columns = [F.normalize(column[:, :dim], dim=1) for column in vectors]
            if target is not None and target.ndim == 3:
                # Vectors of a teacher, (B, C, D).
                return objective(columns, target[..., :dim])
            return objective(columns, target)

        if self.dims:
            first, *others = map(normalized_loss, self.dims)
            return sum(others, first)
        if self.normalizes[part]:
            return normalized_loss(vectors[0].shape[1])
        return objective(vectors, target)


def all_dims(dims: Iterable[int], dimension: int) -> list[int]:
    """Returns ``matryoshka_dims`` and D, largest first; nothing without dims. InputError if one exceeds D."""
    dims = set(dims)
    if not dims:
        return []
    if max(dims) > dimension:
        raise InputError(
            f"matryoshka_dims has {max(dims)}, but the base's vectors have {dimension} dimensions"
        )
    return sorted({dimension, *dims}, reverse=True)


def default_micro_batches(device: torch.device, sentences: int) -> int:
    """Returns one micro-batch per CPU core, of at least `MIN_MICRO_BATCH` sentences each, or a single one on a GPU."""
    if device.type != "cpu":
        return 1
    return max(1, min(num_threads(), sentences // MIN_MICRO_BATCH))


def split_by_length(
    lengths: Sequence[int], parts: int, most_tokens: int | None = None
) -> list[np.ndarray]:
    """Splits rows into at most ``parts`` groups, sorted by length, longest first; returns the row numbers of each.

    The largest group has as few tokens, padding included, as possible. There are more groups if one
    would have more than ``most_tokens``.
    """

    # `plan` makes groups of at most ``budget`` tokens.
    def fits(budget: int) -> bool:
        return len(list(plan(lengths, budget))) <= parts

    # The smallest budget that fits, by bisection: `fits` is false below it and true from it on. It is
    # at least the mean of the groups, and at most all rows in one group.
    most = max(lengths) * len(lengths)
    budget = bisect_left(range(most), True, lo=sum(lengths) // parts, key=fits)
    return list(plan(lengths, min(budget, most_tokens or budget)))


def _with_lora(backbone: nn.Module, rank: int, is_language_model: bool = False) -> nn.Module:
    """Adds adapters of this rank to a backbone; rank 0 returns it as it is."""
    if rank == 0:
        return backbone
    if isinstance(backbone, WordBackbone):
        raise InputError(
            "LoRA adapts transformers; a model of word vectors is trained as a whole, with lora_rank 0"
        )
    # peft takes seconds to import, and few runs use it.
    from peft import LoraConfig, get_peft_model

    settings = LoraConfig(
        r=rank, lora_alpha=2 * rank, lora_dropout=0.05, target_modules="all-linear", bias="none"
    )
    if isinstance(backbone, JointPairModel):
        # "all-linear" would give adapters to the head, too.
        layers = backbone.transformer.encoder.named_modules(prefix="transformer.encoder")
        settings.target_modules = {name for name, module in layers if isinstance(module, nn.Linear)}
        adapted = get_peft_model(cast("Any", backbone), settings)
        # peft leaves only the adapters trainable, but the weights of the head are trained as well.
        for name in backbone.head_tensors():
            backbone.get_parameter(name).requires_grad_()
        return adapted
    # All weights of a head are trained, as they may be random at first. Only the vocabulary of a
    # language model, its output embeddings, is not trained.
    heads = head_modules(backbone)
    if heads:
        # Heads get no adapters. `modules_to_save` trains all weights of a head. For a language
        # model they are selected below.
        settings.exclude_modules = rf"(.*\.)?({'|'.join(heads)})(\..*)?"
        settings.modules_to_save = None if is_language_model else heads
    adapted = get_peft_model(cast("Any", backbone), settings)
    if is_language_model:
        vocabulary = cast("Any", backbone).get_output_embeddings().weight
        for head in heads:
            for weight in backbone.get_submodule(head).parameters():
                weight.requires_grad_(weight is not vocabulary)
    return adapted
